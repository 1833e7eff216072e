// SPDX-License-Identifier: Apache-2.0
//
// The caller's end of an operation, as PyTorch wants it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <kolo/error.hpp>

#include "c10d/versions.hpp"
#include "c10d/world.hpp"

namespace kolo::c10d {

/// What is said about an operation when it begins.
struct Occasion {
  std::string call;  ///< "all_reduce": what messages begin with
  ::c10d::OpType type;
  const char* title;  ///< the profiler's: "kolo:all_reduce"
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> results;  ///< the future's value
  std::chrono::milliseconds timeout;
  std::uint64_t sequence = 0;
  int rank = 0;
};

/// The sentence about an operation that has not completed in this time: it names the ranks that are late, after asking
/// them.
[[nodiscard]] std::string timed_out(const Occasion& occasion, const Operation& operation,
                                    std::chrono::milliseconds after);
/// Ends an operation (`Handle::abandon`), and returns the error of it: of this code and sentence, or null where it has
/// ended otherwise.
[[nodiscard]] std::exception_ptr abandoned(const Occasion& occasion, const Operation& operation, ErrorCode code,
                                           const std::string& sentence);
/// The error of the operation, if one of its handles has failed. All are done.
[[nodiscard]] std::exception_ptr outcome_of(const Occasion& occasion, const Operation& operation);
/// To be called before a future is made: once it is there it completes. Throws DistBackendError.
void start_threads(const Occasion& occasion, World& world);

/// The common base of the Works of CPUs and of GPUs.
class WorkOfKolo : public ::c10d::Work {
 public:
  WorkOfKolo(std::shared_ptr<World> world, Occasion occasion, std::unique_ptr<Operation> operation);
  /// Gives the operation to the world if it is still open; a child keeps it.
  ~WorkOfKolo() override;

  std::vector<at::Tensor> result() override { return occasion_.results; }
  int sourceRank() const override { return operation_->source; }
  std::uint64_t getSequencenumber() const KOLO_OVERRIDE_SINCE_2 { return occasion_.sequence; }
#ifdef KOLO_C10D_HAS_GATHER_SINGLE
  std::chrono::milliseconds getTimeout() const override { return occasion_.timeout; }
#endif

 protected:
  const std::shared_ptr<World> world_;
  const Occasion occasion_;
  std::unique_ptr<Operation> operation_;
};

/// An operation on tensors of the CPU. It ends with Kolo's operations, which have its timeout. May be called from
/// several threads at a time.
class Work final : public WorkOfKolo {
 public:
  using WorkOfKolo::WorkOfKolo;

  /// Does not wait: false, too, while another thread brings the results where they belong.
  bool isCompleted() override;
  /// As PyTorch: zero waits as long as the operation may take. A time given here that passes ends the operation.
  bool wait(std::chrono::milliseconds timeout) override;
  /// Does nothing: results lie in the memory of the CPU when the work has completed.
  void synchronize() override {}
  /// Ends the operation.
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  /// Whether it has ended; ends it, if Kolo's operations have. `error`: null for theirs.
  bool settle(const std::exception_ptr& error = nullptr);
  /// With `settling_`, when Kolo's operations have ended.
  void settle_once(std::exception_ptr error);
  void complete_future_when_done();
  void complete_future();

  std::atomic<bool> settled_{false};
  std::mutex settling_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // under future_mutex_
  std::atomic<std::size_t> open_handles_{0};        // that the future waits for
};

}  // namespace kolo::c10d
