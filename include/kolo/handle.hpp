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

#include <kolo/duration.hpp>
#include <kolo/error.hpp>
#include <kolo/export.hpp>
#include <kolo/types.hpp>

namespace kolo {

namespace detail {
class HandleState;
struct HandleAccess;
}  // namespace detail

/// An operation that was started. Move-only. Dropping a handle neither waits nor cancels: the buffers must outlive the
/// operation all the same. Different handles are independent. Of one handle `wait`, `wait_for`, `done`, `status`,
/// `late_ranks`, `on_done` and `abandon` may be called by several threads at once; what changes the handle itself
/// (moving, `detach`, its end) may not overlap with any of them.
///
/// Exceptions. A handle that an exception destroys while its operation is open sees to it that no memory is touched
/// afterwards, for the buffers probably go next. It cannot wait for ranks that may never come; so it ends this rank's
/// part of the job: all operations of its context fail, here and on the other ranks, with user_exception. A world of
/// one waits for the operation instead, and so does a rank that has been told that another one has left (`rank_lost`).
/// Catch an exception that the job is to survive before it reaches an open handle,
/// or `detach` the handle.
///
/// In a process that a rank has forked every call on an inherited handle throws `Error` (unsupported), and its end does
/// nothing.
///
/// A thread that waits drives the engine itself, so a wait costs no thread switch where the operation is quick.
class KOLO_API Handle {
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

  /// Returns when the operation has completed; throws its `Error` when it failed, then and at every later call. Never
  /// waits longer than the operation's deadline (`KOLO_TIMEOUT_S`, or the call's own), which is a fatal error.
  /// Must not be called inside a callback (`Error` invalid_argument).
  void wait();

  /// As `wait`, but gives up after `duration` and returns false; that is no error, and the operation goes on, with its
  /// buffers: who wants these back calls `abandon`. Any
  /// duration: `std::chrono::hours::max()` waits as long as `wait` does, a negative one not at all.
  template <class Rep, class Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> duration) {
    return wait_for_ns(detail::to_nanoseconds(duration));
  }

  /// Whether the operation has completed or failed; does not wait.
  [[nodiscard]] bool done() const;

  /// The outcome without an exception; empty while the operation is open. Does not wait.
  [[nodiscard]] std::optional<Status> status() const;

  /// Which ranks of the group have not made this call yet: asks all nodes, and waits for their answer for `patience` at
  /// most. Empty: all have, or nobody knows in time, or the operation is done, or is a message or a join. Ranks of the
  /// group, ascending. It costs a question to every node, so it is for a wait that has lasted too long, to say why.
  /// Throws `Error` (invalid_argument) inside a callback.
  template <class Rep, class Period>
  [[nodiscard]] std::vector<int> late_ranks(std::chrono::duration<Rep, Period> patience) const {
    return late_ranks_ns(detail::to_nanoseconds(patience));
  }

  /// Calls `callback` once, when the operation has completed or failed: at once on this thread when it already has,
  /// else on the thread that drives the engine then (the background thread, or one that waits). It must be short and
  /// must not wait for a Kolo operation nor shut the context down (`Error` invalid_argument there); starting operations
  /// is fine, with their `Context` where it is not the process's own (no context is bound to the thread that calls
  /// back). `wait` may return before the callback has run: what the callback refers to must outlive the callback, not
  /// only the wait. Kolo holds no lock while it calls it, nor while it destroys what it has captured. An exception that
  /// leaves it is logged as an error and dropped.
  void on_done(std::function<void(const Status&)> callback);

  /// Ends the operation, for the caller wants its buffers back whatever the other ranks do: when this returns the
  /// operation is done, and nothing touches them any more. An operation that completes meanwhile has succeeded. Else a
  /// message fails alone, here with user_exception and this sentence, and on the other side with an error of its own.
  /// Any other operation cannot end alone, because other ranks may be in the middle of it: it ends this rank's part of
  /// the job as an exception does (above), and the sentence holds `reason`. No rank gets a result of what is written
  /// into the buffers afterwards. Returns within seconds. Nothing happens to an operation that is done.
  void abandon(const std::string& reason);

  /// Lets go of the operation, and makes the handle empty: the buffers will outlive it, whatever becomes of the handle.
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
/// The same for a vector (or array) of futures, whose results `get` then has at once.
template <
    class Futures, class Future = std::remove_pointer_t<detail::DataOf<const Futures&>>,
    class = std::enable_if_t<std::is_base_of_v<Handle, Future> && !std::is_same_v<Handle, std::remove_const_t<Future>>>>
void wait_all(const Futures& futures) {
  std::vector<const Handle*> handles;
  handles.reserve(futures.size());
  for (const Handle& future : futures) handles.push_back(&future);
  detail::wait_all(handles);
}

/// A handle with a result.
template <class T>
class Future;

/// The result of an allgather or a reduce_scatter.
template <>
class KOLO_API Future<Tensor> : public Handle {
 public:
  using Handle::Handle;
  /// Of a started call (call.hpp) that owns such a result.
  explicit Future(Handle handle) noexcept : Handle(std::move(handle)) {}
  /// Waits, and moves the result out; a second call throws `Error` (invalid_argument).
  [[nodiscard]] Tensor get();
};

/// The result of a join: the rank that joined last.
template <>
class KOLO_API Future<int> : public Handle {
 public:
  using Handle::Handle;
  /// Waits. May be called again.
  [[nodiscard]] int get();
};

/// The result of an alltoall.
template <>
class KOLO_API Future<AlltoallResult> : public Handle {
 public:
  using Handle::Handle;
  /// Of a started call (call.hpp) that owns such a result.
  explicit Future(Handle handle) noexcept : Handle(std::move(handle)) {}
  /// Waits, and moves the result out; a second call throws `Error` (invalid_argument).
  [[nodiscard]] AlltoallResult get();
};

}  // namespace kolo

#endif  // KOLO_HANDLE_HPP
