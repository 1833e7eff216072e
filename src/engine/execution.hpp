// SPDX-License-Identifier: Apache-2.0
//
// Executing: moves the batches of the log to the end of each operation. The executor (executor.hpp) starts and runs a
// batch; this has the transport between nodes move in between, ends the operations, and wakes peers of the node that
// sleep amid a batch.
//
// The driver's.
#pragma once

#include "engine/engine_state.hpp"

namespace kolo::engine {

class Execution {
 public:
  explicit Execution(EngineState& engine) noexcept : engine_(engine) {}

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
