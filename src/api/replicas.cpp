// SPDX-License-Identifier: Apache-2.0
//
// Whether all ranks hold the same parameters. In the good case ranks exchange one hash of the list and one of all
// values. If lists differ, they exchange the lists, and if values do, a hash of each.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/detail/replica_checks.hpp>
#include <kolo/error.hpp>
#include <kolo/parameters.hpp>

#include "api/access.hpp"
#include "api/context_impl.hpp"
#include "api/submit.hpp"
#include "base/fields.hpp"
#include "base/hash.hpp"
#include "core/signature.hpp"
#include "data/device.hpp"

namespace kolo {
namespace {

/// Runs an all-gather; ranks that have joined give no rows.
using GatherRows = std::function<Tensor(const ConstTensorView&)>;

/// The same wherever the value lies: of pieces as long as those in which a device is read. Behind the value's stream.
std::uint64_t hash_of(const engine::Engine& engine, const Parameter& parameter) {
  const TensorView& value = parameter.value;
  std::uint64_t hash = 0;
  const auto add = [&hash](const std::byte* data, std::size_t bytes) {
    hash = base::hash_memory(data, bytes, hash);
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
    data::DeviceBackend& device = api::device_of(engine);
    device.check_usable(value.device());
    device.read(value.device(), stream ? Span<const Stream>(&*stream, 1) : Span<const Stream>(), data, bytes, add);
  } catch (const Error& error) {
    throw Error(error.code(), "check_replicas: the parameter " + quoted_name(parameter.name) + " lies on " +
                                  to_string(value.device()) + ", but " + error.status().message());
  }
  return hash;
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

std::string described_parameter(const Parameter& parameter) {
  return parameter.name + ' ' + std::string(to_string(parameter.value.dtype())) + ' ' +
         to_string(parameter.value.shape());
}

/// One rank's row of what has been gathered: its rank, and then numbers.
struct ReplicaRow {
  int rank;
  Span<const std::uint64_t> numbers;
};

std::vector<ReplicaRow> rows_of(const Tensor& gathered, std::size_t numbers) {
  const Span<const std::uint64_t> all = gathered.as<std::uint64_t>();
  std::vector<ReplicaRow> rows;
  for (std::size_t at = 0; at < all.size(); at += 1 + numbers)
    rows.push_back({static_cast<int>(all[at]), {all.data() + at + 1, numbers}});
  return rows;
}

/// Whether number `i` is the same in all rows.
bool are_equal(const std::vector<ReplicaRow>& rows, std::size_t i) {
  return std::all_of(rows.begin(), rows.end(),
                     [&](const ReplicaRow& row) { return row.numbers[i] == rows.front().numbers[i]; });
}

ConstTensorView one_row(const std::vector<std::uint64_t>& numbers) {
  return const_view(numbers.data(), Shape{1, static_cast<std::int64_t>(numbers.size())});
}

/// The sentence about parameters of which each row has a hash; there is a difference.
std::string explain_replicas(const std::vector<ReplicaRow>& rows, Span<const Parameter> parameters,
                             const std::string& when) {
  std::string sentence;
  std::size_t more = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (are_equal(rows, i)) continue;
    if (!sentence.empty()) {
      ++more;
      continue;
    }
    std::vector<std::pair<int, std::uint64_t>> hashes;
    hashes.reserve(rows.size());
    for (const ReplicaRow& row : rows) hashes.emplace_back(row.rank, row.numbers[i]);
    sentence = "parameter " + quoted_name(parameters[i].name) + " is not the same on all ranks" + when + ": " +
               difference(hashes);
  }
  if (more > 0)
    sentence += "; " + std::to_string(more) + (more == 1 ? " more parameter differs" : " more parameters differ");
  return sentence;
}

/// How a comparison is spoken of.
struct ReplicaWords {
  std::string caller;  // begins the sentence about lists that differ
  std::string when;    // in the sentence about values
  std::string remedy;  // ends it
};

void compare_replicas(const Group& group, Span<const Parameter> parameters, const GatherRows& gather,
                      const ReplicaWords& words) {
  if (size(group) == 1) return;
  const auto own_rank = static_cast<std::uint64_t>(rank(group));
  std::vector<std::uint64_t> hashes{own_rank};
  std::vector<std::string> entries;
  for (const Parameter& parameter : parameters) {
    entries.push_back(described_parameter(parameter));
    hashes.push_back(hash_of(api::impl_of(group).engine(), parameter));
  }
  const std::uint64_t of_values = base::hash_memory(hashes.data() + 1, (hashes.size() - 1) * sizeof hashes[0]);
  const std::vector<std::uint64_t> both{own_rank, base::hash_string(base::join_fields(entries)), of_values};
  const Tensor sums = gather(one_row(both));
  const std::vector<ReplicaRow> all = rows_of(sums, 2);
  if (!are_equal(all, 0)) check_agreement(group, words.caller, entries);
  if (are_equal(all, 1)) return;
  const Tensor each = gather(one_row(hashes));
  throw Error(ErrorCode::mismatch,
              explain_replicas(rows_of(each, parameters.size()), parameters, words.when) + words.remedy);
}

ReplicaWords words_of(std::optional<std::string_view> name, std::optional<std::int64_t> step) {
  ReplicaWords words{std::string(name.value_or("check_replicas")), "", ""};
  if (!step) return words;
  if (*step > 0) {
    words.when = " after step " + std::to_string(*step) + " (KOLO_CHECK_REPLICAS)";
  } else {
    words.when = " before the first step";
    words.remedy = ". Give all ranks the values of one (broadcast_parameters), or leave out what is to differ "
                   "(KOLO_CHECK_REPLICAS=first,-PATTERN)";
  }
  return words;
}

}  // namespace

std::int64_t detail::replica_interval(const Group& group) {
  return api::impl_of(group).engine().settings().check_replicas.interval;
}

void detail::check_replicas_at(const Group& group, std::optional<std::string_view> name,
                               Span<const Parameter> parameters, std::optional<std::int64_t> step) {
  const base::ReplicaSetting& setting = api::impl_of(group).engine().settings().check_replicas;
  std::vector<Parameter> compared;
  for (const Parameter& parameter : parameters) {
    if (!step || setting.compares(parameter.name)) compared.push_back(parameter);
  }
  if (name) {
    const auto by_name = [&](const ConstTensorView& mine) { return allgather({group, *name}, mine); };
    return compare_replicas(group, compared, by_name, words_of(name, step));
  }
  const base::MutexLock lock(api::lock_of_own_calls(group));
  const auto in_order = [&group](const ConstTensorView& mine) {
    return api::run_own(group, "kolo.check_replicas", Call::allgather(mine));
  };
  compare_replicas(group, compared, in_order, words_of(name, step));
}

void check_replicas(const Group& group, Span<const Parameter> parameters) {
  detail::check_replicas_at(group, std::nullopt, parameters, std::nullopt);
}

}  // namespace kolo
