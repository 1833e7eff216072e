// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/opinions.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "control/ranges.hpp"

namespace kolo::control::sequencer {

using core::kNoTensor;
using core::Signature;

namespace {

void add_opinion(std::vector<Opinion>& opinions, const Signature& signature, const std::vector<std::int32_t>& ranks) {
  const auto same = std::find_if(opinions.begin(), opinions.end(),
                                 [&signature](const Opinion& o) { return o.signature == signature; });
  if (same == opinions.end()) {
    opinions.push_back({signature, ranks});
  } else {
    same->ranks.insert(same->ranks.end(), ranks.begin(), ranks.end());
  }
}

}  // namespace

std::vector<Opinion> opinions_of(const Declared& message, const TensorTable& tensors) {
  std::vector<Opinion> opinions;
  for (const Declared::Variant& variant : message.variants) {
    const bool whole = variant.signature.has_value();
    require(whole || (message.id != kNoTensor && tensors[message.id].signature),
            "a tensor was counted before it had a signature");
    add_opinion(opinions, whole ? *variant.signature : *tensors[message.id].signature, variant.ranks);
  }
  return opinions;
}

void hear_absent(const Set& set, const std::string& name, std::vector<Opinion>& opinions) {
  for (Opinion& opinion : opinions) {
    std::erase_if(opinion.ranks, [&](std::int32_t rank) { return set.absent.has(rank); });
  }
  std::erase_if(opinions, [](const Opinion& one) { return one.ranks.empty(); });
  for (const auto& [rank, submissions] : set.absent.submissions()) {
    const auto found = submissions.find(name);
    if (found != submissions.end()) add_opinion(opinions, found->second.signature, {rank});
  }
  require(!opinions.empty(), "a tensor was submitted by nobody");
}

std::string disagreement_about(const SetTable& sets, const Request& request, const std::vector<Opinion>& opinions) {
  return disagreement(subject({}, request), sets.words_of(request.set), opinions);
}

std::string why_not(const SetTable& sets, const Set& set, const Request& request, const Signature& signature,
                    const std::vector<std::int32_t>& absent) {
  const core::CollectiveTraits& traits = core::traits_of(signature.kind);
  if (absent.empty()) return {};
  if (traits.needs_all) return needs_all(sets.subject_of(request), signature.kind, absent);
  if (traits.reduces && signature.op == ReduceOp::product && signature.prescale != 1) {
    return scaled_product(sets.subject_of(request), signature.kind, absent);
  }
  if (!traits.rooted || signature.root < 0 || static_cast<std::size_t>(signature.root) >= set.order.size()) return {};
  const std::int32_t root = set.order[static_cast<std::size_t>(signature.root)];
  const bool has_root = !std::binary_search(absent.begin(), absent.end(), root);
  return has_root ? std::string() : absent_root(sets.subject_of(request), signature.kind, root);
}

std::string why_not(const SetTable& sets, const Set& set, const Request& request, const Calls& calls,
                    const std::vector<std::int32_t>& absent) {
  if (calls.signature) return why_not(sets, set, request, *calls.signature, absent);
  std::vector<Opinion> opinions;
  for (const Declared::Variant& variant : calls.variants) {
    std::vector<std::int32_t> ranks;
    std::set_difference(variant.ranks.begin(), variant.ranks.end(), absent.begin(), absent.end(),
                        std::back_inserter(ranks));
    if (!ranks.empty()) opinions.push_back({*variant.signature, std::move(ranks)});
  }
  require(opinions.size() > 1, "a call was disputed on which ranks agree");
  return disagreement_about(sets, request, opinions);
}

}  // namespace kolo::control::sequencer
