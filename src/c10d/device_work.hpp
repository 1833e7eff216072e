// SPDX-License-Identifier: Apache-2.0
//
// The caller's end of an operation on tensors of a CUDA device, as PyTorch wants it.
//
//     caller's stream     ..backward..|call|..backward..            |wait|..optimizer..
//     the operation                   '------>.....all-reduce......--'
//     own stream of it                                        (copies to where results belong)
//
// `wait` and the future do not wait for the device, but for the moment from which on a stream can be held back: when
// all work of the operation has been given to the device ("given"). That takes the other ranks' calls. The thread that
// waits drives the engine meanwhile, so that no other thread is woken on the way. Of a message, too: both ranks have
// called then. (Where it goes by the host it has come there.)
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "c10d/streams.hpp"
#include "c10d/versions.hpp"
#include "c10d/work.hpp"
#include "c10d/world.hpp"

namespace kolo::c10d {

/// It has completed when the device has done it. Before that it may end by a deadline or an abort, as `Work`. Once it
/// has been waited for, memory that the caller lets go of may be used again, on streams that have waited. All members
/// may be called from several threads at a time.
class DeviceWork final : public WorkOfKolo {
 public:
  DeviceWork(std::shared_ptr<World> world, Occasion occasion, std::unique_ptr<Operation> operation);

  /// Does not wait. Whether the device has done it, or it has failed; false, too, while another thread looks after it.
  bool isCompleted() override;
  /// The current stream of the operation's device waits for it. A time given here that passes before the operation has
  /// been given ends the operation.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  /// Ends the operation.
  void abort() override;
  /// Completes when the operation has been given; its callbacks run, and who waits for it goes on, on streams that
  /// wait.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  class Given;
  /// Tells a future that the operation has been given. It is made when somebody asks for the first time.
  std::shared_ptr<Given> given();
  /// The current stream runs behind the operation, which has been given.
  void hold_back_current_stream();
  /// Likewise a stream of its own, on which results come to where they belong. Once.
  void finish_on_own_stream();
  /// Ends it with this error, or with that of a handle, if all are done and one has failed.
  void end_if_failed(std::exception_ptr error = nullptr);
  void end_if_this_throws(const std::function<void()>& body);
  void end(const std::exception_ptr& error);
  void complete_future();

  const at::Device device_;
  std::mutex mutex_;
  // Under the mutex.
  bool ended_ = false;
  std::shared_ptr<Given> given_;
  std::unique_ptr<Point> finished_;  // on the operation's own stream, if it was needed
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool future_completed_ = false;
};

}  // namespace kolo::c10d
