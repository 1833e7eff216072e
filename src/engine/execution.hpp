// SPDX-License-Identifier: Apache-2.0
//
// Executing: the batches of the log, from their start to the end of each operation. The executor (executor.hpp) runs a
// batch; this has the transport between nodes move in between, ends the operations, and wakes peers of the node that
// sleep amid a batch.
//
// The driver's.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine_state.hpp"

namespace kolo::engine {

class Execution {
 public:
  explicit Execution(EngineState& engine) noexcept : engine_(engine) {}

  /// Starts a batch, as Executor::run.
  void start(core::SetId set, std::vector<OperationPtr> members, std::uint32_t plan_key, std::uint32_t number,
             std::int32_t last) KOLO_REQUIRES(kDriving) {
    engine_.executor.run(set, std::move(members), plan_key, number, last);
  }
  void start_without(core::SetId set, std::vector<OperationPtr> members, const Absence& absence, std::int32_t last)
      KOLO_REQUIRES(kDriving) {
    engine_.executor.run_without(set, std::move(members), absence, last);
  }
  void remove_set(core::SetId set) KOLO_REQUIRES(kDriving) { engine_.executor.remove_set(set); }
  /// Moves open batches; whether any has come further.
  bool move(base::Time now) KOLO_REQUIRES(kDriving);

  /// Whether passes of the background thread can move an open batch.
  [[nodiscard]] bool can_move() const noexcept KOLO_REQUIRES(kDriving) {
    return engine_.executor.open() > 0 && !engine_.ending.has_reported();
  }
  /// Whether an open batch may go on though nothing rings: peers of the node publish how far they have come by plain
  /// stores, and some transports tell nothing.
  [[nodiscard]] bool moves_unheard() const noexcept KOLO_REQUIRES(kDriving) {
    return can_move() &&
           (engine_.topology.local_size() > 1 || engine_.inter == nullptr || engine_.inter->event_fd() < 0);
  }

 private:
  void wake_peers() KOLO_REQUIRES(kDriving);
  void tell_spans(const Batch& batch) KOLO_REQUIRES(kDriving);
  void finish(Batch& batch) KOLO_REQUIRES(kDriving);
  void finish(Operation& member, const Status& outcome) KOLO_REQUIRES(kDriving);

  EngineState& engine_;
};

}  // namespace kolo::engine
