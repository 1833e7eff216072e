// SPDX-License-Identifier: Apache-2.0
//
// What the process groups of one job share: the membership in Kolo's world, memory of operations that nobody holds any
// more, and the threads on which futures complete.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/handle.hpp>
#include <kolo/store.hpp>

#include "c10d/tensor_memory.hpp"
#include "c10d/threads.hpp"
#include "c10d/versions.hpp"

namespace kolo::c10d {

/// What a Work waits for, and the memory that Kolo uses until then. One after the other may use it, but for `handles`.
struct Operation {
  std::vector<std::shared_ptr<Handle>> handles;
  std::vector<Packed> buffers;
  /// What is left to do when all handles have completed without an error: brings results where they belong. May throw.
  std::function<void()> finish;
  /// Of a receive that has finished: whom its message came from.
  std::atomic<int> source{-1};

  [[nodiscard]] bool done() const;
  /// False: it was not done in this time. With zero it waits for as long as the operation may take.
  [[nodiscard]] bool wait_for(std::chrono::milliseconds timeout) const;
  /// The same for the moment when all work has been given to the device, or it is done; the thread drives meanwhile.
  [[nodiscard]] bool wait_given(std::chrono::milliseconds timeout) const;
  /// Ends what is open (`Handle::abandon`).
  void abandon(const std::string& reason) const;
};

/// What Kolo takes at most: 31 years stand for everything beyond, in whatever unit of Kolo's clock.
[[nodiscard]] inline std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) {
  return std::min<std::chrono::milliseconds>(timeout, std::chrono::seconds(1'000'000'000));
}

/// Thread-safe.
class World {
 public:
  /// How it is left at the end of a process that has not left it.
  enum class AtExit : std::uint8_t { waits_for_all, leaves_early };
  /// Joins the job whose ranks meet in this store, which takes `start` at most. Collective. Throws `Error`.
  [[nodiscard]] static std::shared_ptr<World> join(c10::intrusive_ptr<::c10d::Store> store, int rank, int size,
                                                   std::chrono::milliseconds timeout, std::chrono::milliseconds start,
                                                   AtExit at_exit);
  /// Takes a membership that exists.
  [[nodiscard]] static std::shared_ptr<World> of(Context context);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Whether it is that of a process that has forked this one. Then it stays as it is.
  [[nodiscard]] bool is_inherited() const noexcept { return origin_.is_inherited(); }

  /// Leaves the job, when all ranks do, and waits for what futures have called back. Does nothing if it is inherited.
  /// Throws `Error`.
  void leave();
  /// The same as `at_exit` says.
  void leave_at_exit();
  /// For a rank that goes on in another world: waits a second or two for the others at most, and what is open fails.
  /// Frees the world's memory and descriptors, also where the program keeps groups of it. No other thread uses it
  /// meanwhile. Does nothing if it is inherited. Throws `Error`.
  void leave_now(const std::string& reason);
  /// See ProcessGroupKolo. Does nothing once it was left so.
  void abandon(const std::string& reason);
  /// At the end of the process: leaves all worlds that are left, and waits for what futures have called back. With a
  /// reason the other ranks are told that, and nobody waits for them.
  static void leave_all(const std::optional<std::string>& reason) noexcept;

  /// How worlds are left: Python's side gives up Python's lock around it, which other threads may need to end theirs.
  using Around = void (*)(const std::function<void()>& leave);
  static void set_around(Around around) noexcept;

  /// Throws Error (not_initialized) once it was left by `leave_now`.
  [[nodiscard]] Context& context();
  [[nodiscard]] Threads& threads() noexcept { return threads_; }

  /// Keeps the memory of an operation whose Work has gone until Kolo has done with it, and finishes it then.
  void adopt(std::unique_ptr<Operation> operation);
  /// Looks which of these have completed. Costs nothing where there are none.
  void sweep();

 private:
  explicit World(Context context) : context_(std::move(context)) {}
  ~World();

  const Origin origin_;
  AtExit at_exit_ = AtExit::waits_for_all;
  Threads threads_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Operation>> adopted_;  // under the mutex
  std::atomic<bool> has_adopted_{false};
  std::optional<Context> context_;  // the first to go: that ends all operations
};

/// PyTorch's store as the place where Kolo's ranks meet.
class MeetingStore final : public Store {
 public:
  explicit MeetingStore(c10::intrusive_ptr<::c10d::Store> store);
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key, std::chrono::nanoseconds timeout) override;

 private:
  c10::intrusive_ptr<::c10d::Store> store_;
};

}  // namespace kolo::c10d
