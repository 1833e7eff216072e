// SPDX-License-Identifier: Apache-2.0
//
// What waits in the sequencer's queues, as somebody else keeps count of it: from the messages that it hears, and from
// the log. Names alone; of unnamed calls it knows only that they have no priority.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "control/messages.hpp"

namespace kolo::simulator {

class Readiness {
 public:
  /// The sequencer hears this next.
  void hear(const control::UpMessage& message) {
    if (const auto* counted = std::get_if<control::Counted>(&message)) {
      const auto known = known_.find(counted->id);
      if (known == known_.end() || known->second.generation != counted->word.generation) return;
      become_ready(known->second, counted->word.count);
    } else if (const auto* declared = std::get_if<control::Declared>(&message)) {
      if (!declared->members.empty()) return;
      const auto known = known_.find(declared->id);
      if (known != known_.end() && known->second.generation == declared->generation) {
        become_ready(known->second, declared->round);
      } else if (declared->id == core::kNoTensor) {
        declared_[{declared->set, declared->name}] = declared->round;
      }
    }
  }

  /// The log's next entry. When it runs something: the name of what waits and is more urgent; empty: nothing.
  std::string follow(const control::LogEntry& entry) {
    return std::visit([this](const auto& value) { return on(value); }, entry);
  }

 private:
  using Ids = std::vector<core::TensorId>;
  struct Known {
    core::SetId set = 0;
    std::string name;
    std::uint16_t generation = 0;
    std::int32_t priority = 0;
    core::Round round = 0;
    bool ready = false;
  };

  static void become_ready(Known& known, core::Round round) {
    known.ready = known.ready || round > known.round;
    known.round = std::max(known.round, round);
  }

  std::string on(const control::Assigned& entry) {
    Known& known = known_[entry.id];
    if (known.set != entry.set || known.name != entry.name) known = {entry.set, entry.name, 0, 0, 0, false};
    known.generation = entry.generation;
    known.priority = entry.signature.priority;
    const auto declared = declared_.find({entry.set, entry.name});
    if (declared == declared_.end()) return {};
    become_ready(known, declared->second);
    declared_.erase(declared);
    return {};
  }
  std::string on(const control::Evicted& entry) {
    known_.erase(entry.id);
    return {};
  }
  std::string on(const control::Failed& entry) {
    const control::Request& request = entry.request;
    declared_.erase({request.set, request.name});
    for (auto& [id, known] : known_) {
      if (!request.members.empty() || known.set != request.set || known.name != request.name) continue;
      known.round = std::max(known.round, request.round);
      known.ready = false;
    }
    return {};
  }
  std::string on(const control::SetRemoved& entry) {
    for (auto it = known_.begin(); it != known_.end();) {
      it = it->second.set == entry.set ? known_.erase(it) : std::next(it);
    }
    return {};
  }
  std::string on(const control::PlanDefined& entry) {
    plans_[entry.plan] = entry;
    return {};
  }
  std::string on(const control::PlanVoided& entry) {
    plans_.erase(entry.plan);
    return {};
  }
  std::string on(const control::SequenceAppended& entry) { return more_urgent(entry.set, 0); }
  /// All its members come before what is left.
  std::string on(const control::BatchAppended& entry) {
    for (const core::TensorId id : entry.members) take(id);
    std::int32_t lowest = priority_of(entry.members.front());
    for (const core::TensorId id : entry.members) lowest = std::min(lowest, priority_of(id));
    return more_urgent(entry.set, lowest);
  }
  std::string on(const control::PlannedBatch& entry) {
    const auto plan = plans_.find(entry.plan);
    if (plan == plans_.end() || entry.number >= plan->second.batches.size()) return {};
    const Ids& members = plan->second.batches[entry.number];
    for (const core::TensorId id : members) take(id);
    return more_urgent(plan->second.set, highest(members));
  }
  template <class Other>
  std::string on(const Other&) {
    return {};
  }

  void take(core::TensorId id) {
    const auto known = known_.find(id);
    if (known == known_.end()) return;
    // Where all members have joined the rest runs without having been counted.
    if (!std::exchange(known->second.ready, false)) ++known->second.round;
  }
  [[nodiscard]] std::int32_t priority_of(core::TensorId id) const {
    const auto known = known_.find(id);
    return known == known_.end() || known->second.name.empty() ? 0 : known->second.priority;
  }
  [[nodiscard]] std::int32_t highest(const Ids& ids) const {
    std::int32_t priority = priority_of(ids.front());
    for (const core::TensorId id : ids) priority = std::max(priority, priority_of(id));
    return priority;
  }
  [[nodiscard]] const Ids* planned_batch_of(core::TensorId id) const {
    for (const auto& [number, plan] : plans_) {
      for (const Ids& batch : plan.batches) {
        if (std::find(batch.begin(), batch.end(), id) != batch.end()) return &batch;
      }
    }
    return nullptr;
  }

  /// A name that waits in this set's queue, alone or in a whole batch of the plan, with a higher priority.
  [[nodiscard]] std::string more_urgent(core::SetId set, std::int32_t priority) const {
    for (const auto& [id, known] : known_) {
      if (!known.ready || known.set != set || known.priority <= priority) continue;
      const auto is_ready = [this](core::TensorId member) {
        const auto found = known_.find(member);
        return found != known_.end() && found->second.ready;
      };
      const Ids* batch = planned_batch_of(id);
      if (batch == nullptr || std::all_of(batch->begin(), batch->end(), is_ready)) return known.name;
    }
    return {};
  }

  std::map<core::TensorId, Known> known_;
  std::map<std::pair<core::SetId, std::string>, core::Round> declared_;  ///< new names, on their way to an id
  std::map<std::uint32_t, control::PlanDefined> plans_;
};

}  // namespace kolo::simulator
