// SPDX-License-Identifier: Apache-2.0
//
// Whether all ranks hold the same parameters. In the good case ranks exchange one hash of all of them; only if it
// differs, one of each.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/error.hpp>
#include <kolo/objects.hpp>
#include <kolo/parameters.hpp>

#include "api/context_impl.hpp"
#include "base/hash.hpp"
#include "core/signature.hpp"
#include "data/device.hpp"

namespace kolo {
namespace {

/// The same wherever the value lies: of pieces as long as those in which a device is read. Behind the value's stream.
std::uint64_t hash_of(const engine::Engine& engine, const Parameter& parameter) {
  const TensorView& value = parameter.value;
  std::uint64_t hash = base::kHashSeed;
  const auto add = [&hash](const std::byte* data, std::size_t bytes) {
    hash = base::hash_hash(base::hash_text_quickly({reinterpret_cast<const char*>(data), bytes}), hash);
    return true;
  };
  const auto* const data = static_cast<const std::byte*>(value.data());
  const auto bytes = static_cast<std::size_t>(value.bytes());
  if (value.device().kind == DeviceKind::cpu) {
    constexpr std::size_t kPiece = data::DeviceBackend::kReadBytes;
    for (std::size_t at = 0; at < bytes; at += kPiece) add(data + at, std::min(kPiece, bytes - at));
    return hash;
  }
  const std::optional<Stream> stream = value.stream();
  try {
    if (engine.device() == nullptr)
      throw Error(ErrorCode::unsupported, "no CUDA device can be used: this build has no CUDA part");
    engine.device()->check_usable(value.device());
    engine.device()->read(value.device(), stream ? Span<const Stream>(&*stream, 1) : Span<const Stream>(), data, bytes,
                          add);
  } catch (const Error& error) {
    throw Error(error.code(), "check_replicas: the parameter " + quoted_name(parameter.name) + " lies on " +
                                  to_string(value.device()) + ", but " + error.status().message());
  }
  return hash;
}

std::uint64_t hash_of(const std::vector<std::uint64_t>& hashes) {
  std::uint64_t all = base::kHashSeed;
  for (const std::uint64_t hash : hashes) all = base::hash_hash(hash, all);
  return all;
}

/// Who differs from whom, of the hashes of one parameter by rank.
std::string difference(const std::vector<std::pair<int, std::uint64_t>>& hashes) {
  std::map<std::uint64_t, std::vector<int>> holders;
  for (const auto& [rank, hash] : hashes) holders[hash].push_back(rank);
  const auto most = std::max_element(holders.begin(), holders.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const auto as_many = std::count_if(holders.begin(), holders.end(),
                                     [&most](const auto& one) { return one.second.size() == most->second.size(); });
  std::vector<int> all;
  std::vector<int> others;
  for (const auto& [rank, hash] : hashes) {
    all.push_back(rank);
    if (hash != most->first) others.push_back(rank);
  }
  if (as_many > 1) return core::describe_ranks(all) + " hold different values";
  return core::describe_ranks(others) + (others.size() == 1 ? " holds" : " hold") + " other values than " +
         core::describe_ranks(most->second);
}

/// By rank, of those that have not joined: what each has given.
std::vector<std::pair<int, std::vector<std::uint64_t>>> hashes_of_all(const Group& group,
                                                                      const std::vector<std::uint64_t>& own) {
  std::vector<std::pair<int, std::vector<std::uint64_t>>> all;
  const std::vector<std::string> texts = allgather_bytes(
      group, std::string(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(std::uint64_t)));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].size() != own.size() * sizeof(std::uint64_t)) continue;
    std::vector<std::uint64_t> hashes(own.size());
    std::memcpy(hashes.data(), texts[rank].data(), texts[rank].size());
    all.emplace_back(static_cast<int>(rank), std::move(hashes));
  }
  return all;
}

/// Throws where they differ. `when`: "" or " after step 100".
void compare_replicas(const Group& group, Span<const Parameter> parameters, const std::string& when) {
  std::vector<std::uint64_t> own;
  own.reserve(parameters.size());
  for (const Parameter& parameter : parameters) own.push_back(hash_of(group.impl().engine(), parameter));
  const auto sums = hashes_of_all(group, {hash_of(own)});
  const bool are_equal =
      std::all_of(sums.begin(), sums.end(), [&sums](const auto& one) { return one.second == sums.front().second; });
  if (are_equal) return;
  const auto all = hashes_of_all(group, own);
  std::string first;
  std::size_t more = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<std::pair<int, std::uint64_t>> hashes;
    hashes.reserve(all.size());
    for (const auto& [rank, its] : all) hashes.emplace_back(rank, its[i]);
    const bool is_equal = std::all_of(hashes.begin(), hashes.end(),
                                      [&hashes](const auto& one) { return one.second == hashes.front().second; });
    if (is_equal) continue;
    if (!first.empty()) {
      ++more;
      continue;
    }
    first = "parameter " + quoted_name(parameters[i].name) + " is not the same on all ranks" + when + ": " +
            difference(hashes);
  }
  if (first.empty()) first = "the ranks compare different numbers of parameters" + when;
  if (more > 0)
    first += "; " + std::to_string(more) + (more == 1 ? " more parameter differs" : " more parameters differ");
  throw Error(ErrorCode::mismatch, first);
}

}  // namespace

void check_replicas(const Group& group, Span<const Parameter> parameters) { compare_replicas(group, parameters, ""); }

std::int64_t detail::replica_interval(const Group& group) { return group.impl().engine().settings().check_replicas; }

void detail::check_replicas_after(const Group& group, Span<const Parameter> parameters, std::int64_t step) {
  compare_replicas(group, parameters, " after step " + std::to_string(step) + " (KOLO_CHECK_REPLICAS)");
}

}  // namespace kolo
