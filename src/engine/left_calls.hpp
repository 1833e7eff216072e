// SPDX-License-Identifier: Apache-2.0
//
// The unnamed calls of a rank in a set that it has left early and not settled (control/express.hpp): what is needed to
// submit them to the log after all, and what came of those that failed there.
//
// The input of such a call still lies where the peers would have read it. Its output, if it has one, the caller has
// already: what the log brings goes into memory that nobody reads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <kolo/error.hpp>
#include <kolo/types.hpp>

#include "base/mutex.hpp"
#include "control/express.hpp"
#include "core/signature.hpp"
#include "core/topology.hpp"
#include "engine/express_routes.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

class LeftCalls {
 public:
  // -- inside the claim of the unnamed calls
  /// The call of that number is left. `data`: its input; null: this rank gives nothing.
  void add(core::Round number, const ExpressCall& call, const std::byte* data,
           std::optional<std::chrono::nanoseconds> timeout);
  /// The operation that submits it, but for its entry and its engine.
  [[nodiscard]] OperationPtr make_operation(core::Round number, const core::Topology& set) const;

  /// How long its input was.
  [[nodiscard]] std::size_t bytes(core::Round number) const noexcept;
  /// This call has thrown to its caller: what the log says of it later is not told.
  void note_told(core::Round number) noexcept { at(number).is_told = true; }
  [[nodiscard]] bool is_told(core::Round number) const noexcept { return at(number).is_told; }

  // -- any thread
  /// A call has failed that this rank had left: the first such failure is kept, until it is told.
  void note_failure(const Status& status);
  /// Throws it, once: what the next call of the rank does when it is done.
  void tell() {
    if (has_failed_.load(std::memory_order_acquire)) throw_failure();
  }
  /// The same without throwing; ok: there is none.
  [[nodiscard]] Status take_failure();

 private:
  struct Call {
    core::CollectiveKind kind = core::CollectiveKind::barrier;
    DType dtype = DType::float32;
    Shape shape;
    ReduceOp op = ReduceOp::sum;
    double prescale = 1;
    double postscale = 1;
    int root = 0;
    std::int64_t elements = 0;
    std::int64_t room_elements = 0;
    const std::byte* data = nullptr;
    Splits splits;
    std::optional<std::chrono::nanoseconds> timeout;
    bool is_told = false;
  };
  [[nodiscard]] Call& at(core::Round number) noexcept { return calls_[number % control::Express::kAhead]; }
  [[nodiscard]] const Call& at(core::Round number) const noexcept { return calls_[number % control::Express::kAhead]; }
  void throw_failure();

  std::vector<Call> calls_;  // by number, once there has been one
  std::atomic<bool> has_failed_{false};
  base::Mutex mutex_;
  Status failure_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo::engine
