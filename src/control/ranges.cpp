// SPDX-License-Identifier: Apache-2.0
#include "control/ranges.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <kolo/error.hpp>

namespace kolo::control {
namespace {

class UpRanges {
 public:
  explicit UpRanges(std::int32_t size) : size_(size) {}

  void operator()(const Counted&) const {}
  void operator()(const Declared& m) const {
    require(!m.variants.empty(), "a declaration has no variants");
    for (const Declared::Variant& variant : m.variants) {
      require(!variant.ranks.empty(), "a variant has no ranks");
      ranks(variant.ranks);
      require(variant.signature || m.id != core::kNoTensor, "a name without an id was submitted without a signature");
    }
  }
  void operator()(const Interest& m) const {
    rank(m.rank);
    require(!m.lacking.empty(), "an interest lacks nothing");
  }
  void operator()(const Overdue& m) const {
    rank(m.rank);
    require(std::isfinite(m.waited_s) && m.waited_s >= 0, "a wait is no number of seconds");
  }
  void operator()(const Missing& m) const { ranks(m.ranks); }
  void operator()(const RankLost& m) const {
    rank(m.rank);
    require(m.code != ErrorCode::ok, "a rank is lost without an error");
  }
  void operator()(const Left& m) const { rank(m.rank); }
  void operator()(const Starved& m) const { rank(m.rank); }
  void operator()(const Answer& m) const {
    rank(m.rank);
    for (const std::int32_t awaited : m.awaited) rank(awaited);
  }

  void rank(std::int32_t rank) const { require(rank >= 0 && rank < size_, "there is no such rank"); }
  /// Ascending, each once.
  void ranks(const std::vector<std::int32_t>& ranks) const {
    if (ranks.empty()) return;
    require(std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end(),
            "ranks do not ascend");
    rank(ranks.front());
    rank(ranks.back());
  }

 private:
  std::int32_t size_;
};

class LogRanges {
 public:
  LogRanges(std::int32_t size, std::uint32_t capacity) : world_(size), size_(size), capacity_(capacity) {}

  void operator()(const Assigned& m) const { id(m.id); }
  void operator()(const Evicted& m) const { id(m.id); }
  void operator()(const BatchAppended& m) const { batch(m.members); }
  void operator()(const PlanDefined& m) const {
    for (const std::vector<core::TensorId>& members : m.batches) batch(members);
  }
  void operator()(const PlanVoided&) const {}
  void operator()(const PlannedBatch&) const {}
  void operator()(const Failed& m) const { require(m.code != ErrorCode::ok, "an operation fails without an error"); }
  void operator()(const Query&) const {}
  void operator()(const Stalled& m) const { world_.ranks(m.missing); }
  void operator()(const SetAdded& m) const {
    require(!m.members.empty(), "a process set has no members");
    world_.ranks(m.members);
    require(std::uint64_t{m.base} + core::kReservedIds <= capacity_, "there is no such id");
  }
  void operator()(const SetRemoved&) const {}
  void operator()(const RankLeft& m) const { world_.rank(m.rank); }
  void operator()(const Faulted& m) const {
    require(m.rank >= -1 && m.rank < size_, "there is no such rank");
    require(m.code != ErrorCode::ok, "the world fails without an error");
  }
  void operator()(const Closed&) const {}
  void operator()(const Push&) const {}

 private:
  void id(core::TensorId id) const { require(id < capacity_, "there is no such id"); }
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
