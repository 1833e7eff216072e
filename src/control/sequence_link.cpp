// SPDX-License-Identifier: Apache-2.0
#include "control/sequence_link.hpp"

#include <algorithm>
#include <utility>

#include "base/hash.hpp"
#include "control/ranges.hpp"

namespace kolo::control {

using core::Round;
using core::Signature;
using SignaturePtr = std::shared_ptr<const Signature>;

namespace {

/// Equal signatures have equal hashes.
std::uint64_t hash_of(const Signature& signature) {
  std::uint64_t hash = base::hash_hash(static_cast<std::uint64_t>(signature.kind), base::kHashSeed);
  hash = base::hash_hash(static_cast<std::uint64_t>(signature.op), hash);
  hash = base::hash_hash(static_cast<std::uint64_t>(signature.root), hash);
  hash = base::hash_hash(signature.members, hash);
  for (const core::TensorSignature& tensor : signature.tensors) {
    hash = base::hash_hash(static_cast<std::uint64_t>(tensor.dtype), hash);
    hash = base::hash_hash(tensor.place, hash);
    for (const std::int64_t extent : tensor.shape) hash = base::hash_hash(static_cast<std::uint64_t>(extent), hash);
  }
  return hash;
}

/// Adds the variants of these ranks, which made this call with one signature.
void add_variants(std::vector<Declared::Variant>& into, Calls& call, const std::vector<std::int32_t>& ranks) {
  if (call.signature) call.variants.push_back({*call.signature, ranks});
  for (Declared::Variant& variant : call.variants) {
    const auto same =
        std::find_if(into.begin(), into.end(), [&](const auto& v) { return v.signature == variant.signature; });
    if (same == into.end()) {
      into.push_back(std::move(variant));
      continue;
    }
    same->ranks.insert(same->ranks.end(), variant.ranks.begin(), variant.ranks.end());
    std::sort(same->ranks.begin(), same->ranks.end());
  }
}

}  // namespace

// ---------------------------------------------------------------- a link

std::uint32_t SequenceSender::number_of(const SignaturePtr& signature, bool& is_new) {
  is_new = false;
  if (last_ < signatures_.size() && signatures_[last_] == signature) return last_;
  const std::uint64_t hash = hash_of(*signature);
  const auto [begin, end] = numbers_.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    SignaturePtr& mine = signatures_[known->second];
    if (mine != signature && *mine != *signature) continue;
    mine = signature;  // the caller's own object: the next call then compares equal by its address
    return known->second;
  }
  is_new = true;
  if (signatures_.size() < kLinkSignatures) {
    numbers_.emplace(hash, static_cast<std::uint32_t>(signatures_.size()));
    signatures_.push_back(signature);
    return static_cast<std::uint32_t>(signatures_.size() - 1);
  }
  const std::uint32_t number = oldest_;
  oldest_ = (oldest_ + 1) % kLinkSignatures;
  const auto [first, last] = numbers_.equal_range(hash_of(*signatures_[number]));
  numbers_.erase(std::find_if(first, last, [number](const auto& known) { return known.second == number; }));
  numbers_.emplace(hash, number);
  signatures_[number] = signature;
  return number;
}

void SequenceSender::add(Calls calls) {
  for (; calls.count > kLongestRepeat; calls.count -= kLongestRepeat) add({calls.signature, kLongestRepeat});
  if (message_.repeats.empty()) message_.first = calls_ + 1;
  calls_ += calls.count;
  if (!calls.signature) {
    message_.repeats.push_back({0, 1, std::nullopt, std::move(calls.variants)});
    return;
  }
  bool is_new = false;
  const std::uint32_t number = number_of(calls.signature, is_new);
  const bool goes_on = !is_new && !message_.repeats.empty() && message_.repeats.back().variants.empty() &&
                       message_.repeats.back().number == number &&
                       message_.repeats.back().count + calls.count <= kLongestRepeat;
  last_ = number;
  if (goes_on) {
    message_.repeats.back().count += calls.count;
    return;
  }
  message_.repeats.push_back({number, calls.count});
  if (is_new) message_.repeats.back().signature = *calls.signature;
}

void SequenceSender::go_on_from(Round call) {
  require(!has_news() && call >= calls_, "a sequence goes on where it cannot");
  calls_ = call;
}

SequenceGrown SequenceSender::next_message() {
  const core::SetId set = message_.set;
  SequenceGrown message = std::exchange(message_, {});
  message_.set = set;
  return message;
}

std::vector<Calls> SequenceReceiver::receive(SequenceGrown&& message) {
  require(message.first > calls_, "a sequence does not go on where it was");
  calls_ = message.first - 1;
  std::vector<Calls> taken;
  taken.reserve(message.repeats.size());
  for (SequenceGrown::Repeat& repeat : message.repeats) {
    calls_ += repeat.count;
    if (!repeat.variants.empty()) {
      taken.push_back({nullptr, 1, std::move(repeat.variants)});
      continue;
    }
    if (repeat.signature) {
      require(repeat.number <= signatures_.size() && repeat.number < kLinkSignatures,
              "a signature has a number that does not follow");
      if (repeat.number == signatures_.size()) signatures_.emplace_back();
      signatures_[repeat.number] = std::make_shared<const Signature>(std::move(*repeat.signature));
    }
    require(repeat.number < signatures_.size(), "a signature has a number that means nothing");
    taken.push_back({signatures_[repeat.number], repeat.count});
  }
  return taken;
}

// ---------------------------------------------------------------- merging

SequenceMerger::SequenceMerger(core::SetId set, std::vector<std::vector<std::int32_t>> ranks)
    : children_(ranks.size()), up_(set) {
  for (std::size_t child = 0; child < ranks.size(); ++child) children_[child].ranks = std::move(ranks[child]);
}

void SequenceMerger::Child::pop(std::uint64_t count) {
  next += count;
  queue.front().count -= count;
  if (queue.front().count == 0) queue.pop_front();
}

void SequenceMerger::hear(std::size_t child, SequenceGrown&& message) {
  for (const SequenceGrown::Repeat& repeat : message.repeats) {
    for (const Declared::Variant& variant : repeat.variants) {
      const std::vector<std::int32_t>& below = children_[child].ranks;
      require(std::includes(below.begin(), below.end(), variant.ranks.begin(), variant.ranks.end()),
              "a rank submits for another one");
    }
  }
  std::deque<Calls>& queue = children_[child].queue;
  require(queue.empty() || message.first == children_[child].link.calls() + 1,
          "calls have avoided the log while others were on their way there");
  if (queue.empty()) children_[child].next = message.first;
  for (Calls& calls : children_[child].link.receive(std::move(message))) {
    if (!queue.empty() && are_alike(queue.back(), calls)) {
      queue.back().count += calls.count;
    } else {
      queue.push_back(std::move(calls));
    }
  }
}

void SequenceMerger::expect(std::size_t child, Round calls) {
  children_[child].expected = std::max(children_[child].expected, calls);
}

void SequenceMerger::merge(const std::vector<std::size_t>& speakers) {
  while (true) {
    for (const std::size_t speaker : speakers) {
      if (children_[speaker].queue.empty()) return;
    }
    std::vector<Child*> sayers;
    for (Child& child : children_) {
      if (!child.queue.empty()) {
        sayers.push_back(&child);
      } else if (child.link.calls() < child.expected) {
        return;
      }
    }
    if (sayers.empty()) return;
    const Calls& first = sayers.front()->queue.front();
    const Round number = sayers.front()->next;
    std::uint64_t count = first.count;
    bool agree = true;
    for (const Child* const sayer : sayers) {
      require(sayer->next == number, "ranks have made different calls without the log");
      agree = agree && are_alike(first, sayer->queue.front());
      count = std::min(count, sayer->queue.front().count);
    }
    Calls merged{first.signature, count};
    if (!agree) {
      merged = {nullptr, 1};
      for (Child* const sayer : sayers) {
        Calls& call = sayer->queue.front();
        Calls one{call.signature, 1, call.variants};
        add_variants(merged.variants, one, sayer->ranks);
      }
    }
    for (Child* const sayer : sayers) sayer->pop(merged.count);
    if (number != up_.calls() + 1) up_.go_on_from(number - 1);
    up_.add(std::move(merged));
  }
}

}  // namespace kolo::control
