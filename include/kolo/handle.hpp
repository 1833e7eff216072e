// SPDX-License-Identifier: Apache-2.0

/// @file
/// The caller's end of an asynchronous collective.
#ifndef KOLO_HANDLE_HPP
#define KOLO_HANDLE_HPP

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <kolo/detail/duration.hpp>
#include <kolo/error.hpp>
#include <kolo/export.hpp>
#include <kolo/types.hpp>

namespace kolo {

namespace detail {
class HandleState;
struct HandleAccess;
}  // namespace detail

/// An operation that was started. Move-only. Destroying a handle neither waits nor cancels: the buffers must still
/// outlive the operation. Different handles are independent. Several threads may call `wait`, `wait_for`, `done`,
/// `status`, `late_ranks`, `on_done` and `abandon` of one handle at once. Moving, `detach` and destruction must not
/// overlap with any of them.
///
/// Exceptions. If an exception destroys a handle whose operation is open, the buffers will probably be destroyed next,
/// so no memory may be touched afterwards. The handle cannot wait for ranks that may never come. It therefore ends this
/// rank's part of the job: all operations of its context fail, here and on the other ranks, with user_exception. A
/// world of one waits for the operation instead, and so does a rank that knows that another one has left (`rank_lost`).
/// If the job is to survive an exception, catch it before it reaches an open handle, or `detach` the handle.
///
/// In a forked child every call on an inherited handle throws `Error` (unsupported), and destroying it does nothing.
///
/// A thread that waits runs the engine itself, so a wait for a quick operation costs no thread switch.
class KOLO_RESULT Handle {
 public:
  Handle() noexcept = default;
  explicit Handle(std::shared_ptr<detail::HandleState> state) noexcept;
  Handle(Handle&&) noexcept = default;
  Handle& operator=(Handle&& other) noexcept {
    if (this == &other) return *this;
    detach();
    state_ = std::move(other.state_);
    exceptions_at_birth_ = other.exceptions_at_birth_;
    generation_ = other.generation_;
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (state_) let_go();
  }

  /// False for a default-constructed or moved-from handle; every other member then throws `Error` (invalid_argument).
  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }

  /// Returns when the operation has completed. If it failed, throws its `Error`, also at every later call. Never waits
  /// longer than the operation's deadline (`KOLO_TIMEOUT_S`, or the call's own), which is a fatal error. Must not be
  /// called inside a callback (`Error` invalid_argument).
  void wait();

  /// As `wait`, but returns false after `duration`. That is no error: the operation goes on and uses its buffers
  /// (`abandon` ends it). `std::chrono::hours::max()` waits as long as `wait` does; a negative duration does not wait.
  template <class Rep, class Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> duration) {
    return wait_for_ns(detail::to_nanoseconds(duration));
  }

  /// Whether the operation has completed or failed; does not wait.
  [[nodiscard]] bool done() const;

  /// The outcome without an exception; empty while the operation is open. Does not wait.
  [[nodiscard]] std::optional<Status> status() const;

  /// Which ranks of the group have not made this call yet, ascending. Asks all of them, and waits for their answers for
  /// `patience` at most. A rank whose process is stopped is among them: it is waited for half of
  /// `KOLO_LATCH_TIMEOUT_S`. Empty if all ranks have made it, if no answer came in time, if the operation is done, or
  /// if it is a message or a join. It costs a question to every rank: use it to explain a wait that has lasted too
  /// long. Throws `Error` (invalid_argument) inside a callback.
  template <class Rep, class Period>
  [[nodiscard]] std::vector<int> late_ranks(std::chrono::duration<Rep, Period> patience) const {
    return late_ranks_ns(detail::to_nanoseconds(patience));
  }

  /// Calls `callback` once, when the operation has completed or failed: immediately on this thread if it already has,
  /// else on the thread that runs the engine then (the background thread, or one that waits). The callback must be
  /// short. It must not wait for a Kolo operation or shut the context down (`Error` invalid_argument); it may start
  /// operations, and names their `Context` unless it is the process's own (no context is bound to the calling thread).
  /// `wait` may return before the callback has run, so what the callback refers to must outlive the callback. Kolo
  /// holds no lock while it calls the callback or destroys its captures. An exception that leaves it is logged as an
  /// error and dropped.
  void on_done(std::function<void(const Status&)> callback);

  /// Ends the operation, so that the caller can use its buffers again whatever the other ranks do. When this returns,
  /// the operation is done, and nothing touches the buffers any more. If the operation completes meanwhile, it has
  /// succeeded. Otherwise a message fails alone: here with user_exception and `reason`, on the other side with an error
  /// of its own. Any other operation cannot end alone, because other ranks may be in the middle of it: this rank's part
  /// of the job ends as by an exception (above), and the error's sentence contains `reason`. No rank gets a result of
  /// what is written into the buffers afterwards. Returns within seconds. Does nothing if the operation is done.
  void abandon(const std::string& reason);

  /// Makes the handle empty. The operation goes on, and the caller keeps its buffers until it has ended.
  void detach() noexcept;

 private:
  friend struct detail::HandleAccess;
  void let_go() noexcept;
  bool wait_for_ns(std::chrono::nanoseconds duration);
  [[nodiscard]] std::vector<int> late_ranks_ns(std::chrono::nanoseconds patience) const;
  [[nodiscard]] detail::HandleState& state() const;

  std::shared_ptr<detail::HandleState> state_;
  int exceptions_at_birth_ = 0;
  std::uint32_t generation_ = 0;  // of forks: that of the process that started it
};

/// Waits for all of them, also when one fails; then throws the first failure in the order given. Empty handles are
/// not allowed.
KOLO_API void wait_all(Span<const Handle> handles);
namespace detail {
KOLO_API void wait_all(Span<const Handle* const> handles);
}  // namespace detail
/// The same for a vector (or array) of futures; `get` then returns without waiting.
template <
    class Futures, class Future = std::remove_pointer_t<detail::DataOf<const Futures&>>,
    class = std::enable_if_t<std::is_base_of_v<Handle, Future> && !std::is_same_v<Handle, std::remove_const_t<Future>>>>
void wait_all(const Futures& futures) {
  std::vector<const Handle*> handles;
  handles.reserve(futures.size());
  for (const Handle& future : futures) handles.push_back(&future);
  detail::wait_all(handles);
}

/// A handle with a result: that of an allgather, a gather or a reduce_scatter (`Tensor`), of an alltoall, or of a join
/// (`int`: the rank that joined last).
template <class Result>
class KOLO_RESULT Future : public Handle {
 public:
  using Handle::Handle;
  /// For a started call (call.hpp) that has such a result.
  explicit Future(Handle handle) noexcept : Handle(std::move(handle)) {}
  /// Waits, and moves the result out; a second call throws `Error` (invalid_argument), except that of a join.
  [[nodiscard]] Result get();
};
template <>
Tensor Future<Tensor>::get();
template <>
AlltoallResult Future<AlltoallResult>::get();
template <>
int Future<int>::get();

}  // namespace kolo

#endif  // KOLO_HANDLE_HPP
