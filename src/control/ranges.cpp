// SPDX-License-Identifier: Apache-2.0
#include "control/ranges.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <kolo/error.hpp>

#include "control/sequence_link.hpp"

namespace kolo::control {
namespace {

/// The most calls of a sequence.
constexpr std::uint64_t kMostCalls = std::uint64_t{1} << 62;

class UpRanges {
 public:
  explicit UpRanges(std::int32_t size) : size_(size) {}

  void operator()(const Counted& m) const { last(m.last); }
  void operator()(const Declared& m) const {
    last(m.last);
    require(!m.variants.empty(), "a declaration has no variants");
    for (const Declared::Variant& variant : m.variants) {
      require(!variant.ranks.empty(), "a variant has no ranks");
      ranks(variant.ranks);
      require(variant.signature || m.id != core::kNoTensor, "a name without an id was submitted without a signature");
    }
    members(m.set, m.members);
    require(m.name != kSequence, "a sequence was declared as a name");
    require(!m.name.empty() || !m.members.empty(), "a tensor has no name");
    if (m.members.empty()) return;
    require(m.id == core::kNoTensor && m.round > 0, "a request that names its members is no round of a name");
    for (const Declared::Variant& variant : m.variants) {
      require(std::includes(m.members.begin(), m.members.end(), variant.ranks.begin(), variant.ranks.end()),
              "a rank makes a request that does not name it");
      std::vector<std::int32_t> named = variant.signature->ranks;
      std::sort(named.begin(), named.end());
      require(variant.signature->kind == core::CollectiveKind::add_process_set && named == m.members,
              "a request names other members than its process set has");
    }
  }
  void operator()(const PartAwaited& m) const {
    rank(m.rank);
    require(!m.lacking.empty(), "a part that is awaited lacks nothing");
  }
  void operator()(const Overdue& m) const {
    rank(m.rank);
    require(std::isfinite(m.waited_s) && m.waited_s >= 0, "a wait is no number of seconds");
    request(m.request);
    const std::vector<std::int32_t>& members = m.request.members;
    require(members.empty() || std::binary_search(members.begin(), members.end(), m.rank),
            "a rank waits for a request that does not name it");
    require(!m.alone || !members.empty(), "a deadline ends a request alone that does not name its members");
  }
  void operator()(const RankLost& m) const {
    rank(m.rank);
    require(m.code != ErrorCode::ok, "a rank is lost without an error");
  }
  void operator()(const Departed& m) const { rank(m.rank); }
  void operator()(const Deserted& m) const {
    rank(m.rank);
    last(m.by);
    require(m.by != m.rank, "a rank was deserted by itself");
  }
  void operator()(const Starved& m) const { rank(m.rank); }
  void operator()(const SequenceGrown& m) const {
    last(m.last);
    require(!m.repeats.empty(), "a sequence has not grown");
    std::uint64_t remaining = kMostCalls;
    require(m.first > 0 && m.first <= remaining, "a call has no such number");
    remaining -= m.first;
    for (const SequenceGrown::Repeat& repeat : m.repeats) {
      require(repeat.count > 0 && repeat.count <= kLongestRepeat && repeat.count <= remaining,
              "a sequence has grown by too many calls");
      remaining -= repeat.count;
      if (repeat.variants.empty()) continue;
      require(repeat.count == 1 && !repeat.signature && repeat.variants.size() > 1, "a disputed call is not one call");
      for (const Declared::Variant& variant : repeat.variants) {
        require(variant.signature.has_value() && !variant.ranks.empty(), "a variant has no signature or no ranks");
        ranks(variant.ranks);
      }
    }
  }
  void operator()(const Answer& m) const {
    rank(m.rank);
    for (const std::int32_t awaited : m.awaited) rank(awaited);
    if (m.wait) request(*m.wait);
  }
  void operator()(const Joined& m) const {
    rank(m.rank);
    require(m.sequence <= m.calls && m.calls <= kMostCalls, "a call has no such number");
    const auto& listed = m.submissions;
    const auto ascend = [](const auto& a, const auto& b) { return a.name >= b.name; };
    require(std::adjacent_find(listed.begin(), listed.end(), ascend) == listed.end(), "names do not ascend");
  }

  void rank(std::int32_t rank) const { require(rank >= 0 && rank < size_, "there is no such rank"); }
  void last(std::int32_t rank) const { check_last(rank, size_); }
  /// Ascending, each once.
  void ranks(const std::vector<std::int32_t>& ranks) const {
    if (ranks.empty()) return;
    require(std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end(),
            "ranks do not ascend");
    rank(ranks.front());
    rank(ranks.back());
  }
  /// Checks the members that a request names, if it names them.
  void members(core::SetId set, const std::vector<std::int32_t>& members) const {
    ranks(members);
    require(members.empty() || set == core::kGlobalSet, "a request that names its members is not the world's");
  }
  void request(const Request& request) const {
    members(request.set, request.members);
    require(!request.join || (request.members.empty() && request.name.empty()), "a join has a name");
  }

 private:
  std::int32_t size_;
};

class LogRanges {
 public:
  LogRanges(std::int32_t size, std::uint32_t capacity) : world_(size), size_(size), capacity_(capacity) {}

  void operator()(const Assigned& m) const {
    id(m.id);
    require(!m.name.empty(), "a tensor has no name");
  }
  void operator()(const Evicted& m) const { id(m.id); }
  void operator()(const BatchAppended& m) const {
    batch(m.members);
    world_.last(m.last);
  }
  void operator()(const PlanDefined& m) const {
    for (const std::vector<core::TensorId>& members : m.batches) batch(members);
  }
  void operator()(const PlanVoided&) const {}
  void operator()(const PlannedBatch& m) const { world_.last(m.last); }
  void operator()(const Failed& m) const {
    require(m.code != ErrorCode::ok, "an operation fails without an error");
    world_.request(m.request);
  }
  void operator()(const Query& m) const {
    world_.request(m.request);
    world_.rank(m.asker);
  }
  void operator()(const Stalled& m) const {
    world_.ranks(m.missing);
    world_.ranks(m.silent);
    world_.request(m.request);
  }
  void operator()(const SetAdded& m) const {
    require(!m.members.empty(), "a process set has no members");
    std::vector<std::int32_t> members = m.members;  // in whatever order
    std::sort(members.begin(), members.end());
    world_.ranks(members);
    require(core::is_row(m.base), "there is no such row of ids");
  }
  void operator()(const SetRemoved&) const {}
  void operator()(const RankDeparted& m) const {
    world_.rank(m.rank);
    world_.last(m.because);
    require(m.because != m.rank, "a rank has left because of itself");
  }
  void operator()(const Faulted& m) const {
    require(m.rank >= -1 && m.rank < size_, "there is no such rank");
    require(m.code != ErrorCode::ok, "the world fails without an error");
  }
  void operator()(const Closed&) const {}
  void operator()(const Push&) const {}
  void operator()(const RankJoined& m) const {
    world_.rank(m.rank);
    require(std::adjacent_find(m.submissions.begin(), m.submissions.end(), std::greater_equal<>()) ==
                m.submissions.end(),
            "names do not ascend");
  }
  void operator()(const SequenceAppended& m) const {
    world_.last(m.last);
    std::uint64_t known = 0;
    for (const SequenceAppended::Repeat& repeat : m.repeats) {
      require(repeat.count > 0 && repeat.count <= m.calls - known, "a batch has more calls than it says");
      known += repeat.count;
    }
    require(m.calls > 0 && (m.repeats.empty() || known == m.calls), "a batch of a sequence has no calls");
  }
  void operator()(const SequenceFailed& m) const {
    require(m.code != ErrorCode::ok, "an operation fails without an error");
  }
  void operator()(const SequenceEnded& m) const {
    require(m.code != ErrorCode::ok, "an operation fails without an error");
  }
  void operator()(const JoinEnded& m) const {
    require(m.calls <= kMostCalls, "a call has no such number");
    if (m.code == ErrorCode::ok) return world_.rank(m.last);
    require(m.last == -1, "a join that failed has a last rank");
  }

 private:
  /// Checks the id of a name.
  void id(core::TensorId id) const { require(id >= core::kReservedIds && id < capacity_, "there is no such id"); }
  void batch(const std::vector<core::TensorId>& members) const {
    require(!members.empty(), "a batch has no members");
    for (const core::TensorId member : members) id(member);
  }

  UpRanges world_;
  std::int32_t size_;
  std::uint32_t capacity_;
};

}  // namespace

void refuse(const char* what) {
  throw Error(ErrorCode::transport, std::string("a control message is not valid: ") + what);
}

void check_ranges(const UpMessage& message, std::int32_t size) { std::visit(UpRanges(size), message); }

void check_ranges(const LogEntry& entry, std::int32_t size, std::uint32_t capacity) {
  std::visit(LogRanges(size, capacity), entry);
}

}  // namespace kolo::control
