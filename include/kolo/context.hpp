// SPDX-License-Identifier: Apache-2.0

/// @file
/// Life and place: joining a job, leaving it, and knowing where one is in it.
///
/// A *context* is one rank's membership in one world. `init` makes the process's own, from the launcher's environment
/// (a world of one without a launcher; MPI is then not touched at all). Libraries and programs that have MPI make
/// theirs explicitly, and several live side by side. Calls that are not given a context use the one bound to the
/// calling thread (`ContextGuard`, `run_local`), else the one that `init` made, else throw `Error` (not_initialized).
#ifndef KOLO_CONTEXT_HPP
#define KOLO_CONTEXT_HPP

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <kolo/export.hpp>
#include <kolo/options.hpp>

namespace kolo {

namespace detail {
class ContextImpl;
class Membership;
struct BootstrapHolder;
struct GroupParts;
}  // namespace detail
namespace engine {
class SetState;
}  // namespace engine

/// How the ranks of a new world find one another; made by an adapter (`kolo::mpi::bootstrap`), used up by `Context`.
class KOLO_API Bootstrap {
 public:
  explicit Bootstrap(std::unique_ptr<detail::BootstrapHolder> holder) noexcept;
  Bootstrap(Bootstrap&&) noexcept;
  Bootstrap& operator=(Bootstrap&&) noexcept;
  ~Bootstrap();

  /// The library's own.
  [[nodiscard]] std::unique_ptr<detail::BootstrapHolder> release() noexcept;

 private:
  std::unique_ptr<detail::BootstrapHolder> holder_;
};

/// The colour of ranks that `Group::split` gives no group.
inline constexpr int kNoGroup = -1;

/// Ranks that act together: a context, and those of its ranks that take part: all of them, its *world*, or some. A
/// small value: copies are cheap and mean the same group. Every call that takes a group takes it first, and roots are
/// ranks of the group. A `Context` converts to its world, so it can stand wherever a group is asked for; `world()` is
/// that of the calling thread's context.
///
/// Groups may overlap, and one rank may be in many (KOLO_GROUPS): names, unnamed calls, plans, messages and data of one
/// know nothing of those of another, and groups that share no rank do not wait for each other. Calls of one thread in
/// several groups need the same order on all ranks only where they wait. For tensors of GPUs see kolo/cuda.hpp.
///
/// Destroying the last copy of a group is local, and waits for nothing: operations in flight go on, and the group ends
/// when all its ranks have done so. A group does not keep its context alive, and follows it when it is moved. Once the
/// context has been destroyed (or `init`'s has been shut down) every use of the group throws `Error`
/// (not_initialized). Thread-safe as the context is.
class KOLO_API Group {
 public:
  /// The group of these ranks of `parent`, which may stand in any order: a rank's place in the list is its rank in the
  /// group. Each of them calls it, with the same list, and no other rank of the parent need know. Waits for the others,
  /// like any collective. Groups of the same ranks and name are matched in the order of the calls. Throws `Error`
  /// (invalid_argument: a rank that there is not, or twice, or this rank is none of them, one is in as many groups as
  /// KOLO_GROUPS says, or has joined; mismatch: another order; timeout, fatal: a rank of the list never asks for it).
  [[nodiscard]] static Group of(const Group& parent, const std::vector<int>& ranks, const std::string& name = {});
  /// Of ranks of the calling thread's context.
  [[nodiscard]] static Group of(const std::vector<int>& ranks, const std::string& name = {});
  /// The group of all ranks of this one that give the same colour, in the order of their keys, and of their ranks here
  /// where keys are equal. All ranks of this group call it. A colour is not negative; ranks that give `kNoGroup` get a
  /// group that they are no members of: it can be destroyed, and nothing else. Throws `Error` (invalid_argument).
  [[nodiscard]] Group split(int color, int key = 0) const;

  // No moves: a group is never empty.
  Group(const Group&) noexcept = default;
  Group& operator=(const Group&) noexcept = default;
  ~Group() = default;

  /// Whether this rank is one of it: false for what `split` gives those that want no group.
  [[nodiscard]] bool is_member() const noexcept;
  /// Its ranks, as ranks of the context, in the group's order. Throws `Error` as every use.
  [[nodiscard]] std::vector<int> members() const;

  /// The library's own. Throws `Error` (not_initialized; in a forked process unsupported).
  [[nodiscard]] detail::ContextImpl& impl() const;
  /// Likewise; and invalid_argument where this rank is no member.
  [[nodiscard]] detail::GroupParts parts() const;
  [[nodiscard]] engine::SetState& set() const;

 private:
  friend class Context;
  explicit Group(std::shared_ptr<detail::ContextImpl> context,
                 std::shared_ptr<detail::Membership> membership = nullptr) noexcept;
  std::shared_ptr<detail::ContextImpl> context_;
  std::shared_ptr<detail::Membership> membership_;  // null: the world
};

/// One rank's membership in a world. Thread-safe, but for construction, destruction and `shutdown`, which must not
/// overlap other uses. Destruction is `shutdown` without its exceptions; while an exception unwinds it announces the
/// departure and does not wait for the others. A context that is destroyed inside a callback of `on_done` logs an error
/// and stays open until the process ends.
class KOLO_API Context {
 public:
  /// Joins the job that the launcher started, as `init` does, or makes a world of one where none did; nobody's default.
  /// Collective over the job's ranks. Throws `Error`.
  [[nodiscard]] Context();
  [[nodiscard]] explicit Context(const Options& options);
  /// A world of one, whatever launcher has started this process.
  [[nodiscard]] static Context alone(const Options& options = {});
  /// The world that `bootstrap` describes. Collective over its ranks. Throws `Error`.
  [[nodiscard]] explicit Context(Bootstrap bootstrap, const Options& options = {});
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  ~Context();

  /// The group of all its ranks.
  operator const Group&() const& noexcept { return world_; }
  operator const Group&() const&& = delete;  // it leaves the job at the end of the line: keep it in a variable

  /// See the free functions of the same names.
  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] int local_rank() const;
  [[nodiscard]] int local_size() const;
  [[nodiscard]] int cross_rank() const;
  [[nodiscard]] int cross_size() const;
  [[nodiscard]] bool is_homogeneous() const;

  /// Leaves: waits (at most `KOLO_TIMEOUT_S`) until every rank has called it, then ends the engine. Operations that are
  /// still open fail with shut_down. Where a rank comes later than that, its own `shutdown` returns, and its other
  /// operations fail. Returns at once after a fatal error, and does not throw it: the operations have reported it.
  /// Never finalises MPI. A second call does nothing. Throws `Error`
  /// (invalid_argument) inside a callback of `on_done`, and leaves the context open.
  void shutdown();

  /// Leaves because of an error of this rank's own: on every other rank operations fail with `user_exception`, and the
  /// sentence holds `reason`. Does not wait for the others, but for at most a second for the announcement; operations
  /// still open here fail, too. Nothing happens after `shutdown` or a second time. A rank that has been told that
  /// another one has left (`rank_lost`) leaves as by `shutdown`: the others are told of that one. For a handler inside
  /// the context's scope (its destructor, while an exception unwinds, cannot know what the exception says):
  ///
  ///     try { train(context); } catch (const std::exception& error) { context.abandon(error.what()); throw; }
  void abandon(const std::string& reason);

  /// The library's own.
  [[nodiscard]] detail::ContextImpl& impl() const;

 private:
  friend KOLO_API void run_local(int, const std::function<void()>&, const Options&);
  friend KOLO_API void run_forked(int, const std::function<void()>&, const Options&);
  explicit Context(std::shared_ptr<detail::ContextImpl> impl) noexcept;
  Group world_;  // empty when this was moved from
  int exceptions_at_birth_ = 0;
};

/// Binds a context to the calling thread for a scope; guards nest.
class KOLO_API ContextGuard {
 public:
  [[nodiscard]] explicit ContextGuard(Context& context) noexcept;
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  Context* previous_;
};

/// Joins the job that the launcher started, or makes a world of one where none did (`KOLO_ALONE` asks for one in any
/// case). Each of its steps waits for the other ranks for `KOLO_CONNECT_TIMEOUT_S` at most. Throws `Error`, on every
/// rank alike if one rank fails: invalid_setting for a bad value, transport when ranks cannot find each other, or when
/// the environment speaks of several processes (of torchrun's, say) that cannot be joined. And on this thread alone:
/// invalid_argument when a context made by `init` is alive, or the thread has one of `run_local` or a ContextGuard;
/// unsupported in a process that was forked while its parent had a context. `init` after `shutdown` works, and after an
/// `init` that failed on all ranks. A process that ends without `shutdown` is closed at exit; with another exit status
/// than 0 it waits for nobody.
KOLO_API void init(const Options& options = {});
/// Leaves it; see `Context::shutdown`. Does nothing when `init` was not called. Throws `Error` (invalid_argument) on a
/// thread that has a context of `run_local` or a ContextGuard.
KOLO_API void shutdown();
/// Leaves it because of an error of this rank's own; see `Context::abandon`.
KOLO_API void abandon(const std::string& reason);
/// Whether calls without a context have one on this thread.
[[nodiscard]] KOLO_API bool is_initialized() noexcept;
/// The context that calls without one use. Throws `Error` (not_initialized).
[[nodiscard]] KOLO_API Context& current_context();

/// The group of all ranks of the context that calls without one use. Throws `Error` (not_initialized).
[[nodiscard]] inline Group world() { return current_context(); }

/// `init()`, and `shutdown()` at the end of the scope; while an exception unwinds it announces the departure and does
/// not wait. Inside `run_local` (or a ContextGuard) it joins what is bound to the thread and leaves it alone.
class KOLO_API Session {
 public:
  [[nodiscard]] explicit Session(const Options& options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  int exceptions_at_birth_;
  bool owner_;
};

/// Runs `body` as `ranks` ranks on as many threads of this process, each with a context of its own bound to it; returns
/// when all have ended. An exception that leaves one rank's body is a fatal error for the others, and the first
/// is rethrown here: an `Error` as an `Error` whose sentence begins with "rank N: ", another std::exception as an
/// `Error` (user_exception). `KOLO_RANKS_PER_NODE` cuts these ranks into virtual nodes, as it does processes.
KOLO_API void run_local(int ranks, const std::function<void()>& body, const Options& options = {});

/// The same on processes: `ranks` of them are forked and meet without a launcher, on this machine. Their output comes
/// out of this process's own, in whole lines; rank 0 alone has its standard input. What `body` changes stays in its
/// process. A rank that dies, or whose body throws, is a fatal error for the others; they have 5 s to end by
/// themselves, and are then ended. The `Error` that is thrown here names it: the code and sentence of its own for an
/// `Error` ("rank N: ..."), user_exception for another std::exception, rank_lost for "rank N was killed by signal 9
/// (Killed)" and "rank N ended with exit status 3". SIGINT, SIGTERM and SIGHUP, unless they are ignored, are passed on
/// to the ranks, which have 30 s to end (none after a second signal), and then end this process as they would have.
/// When this process dies, the ranks do.
///
/// Call it before this process has threads: of these only the calling one exists in the ranks, and a lock that another
/// one holds, also one of a standard stream, stays locked there. Nor may it have used MPI. Throws `Error`
/// (invalid_argument) when there is a context, CUDA has started, or `options` name a store.
KOLO_API void run_forked(int ranks, const std::function<void()>& body, const Options& options = {});
/// What the tool kolo-run does: runs a program as `ranks` processes of this machine, each of which joins the job with
/// `init`. `command`: the program, looked for as a shell does, and its arguments. Output and signals as with
/// `run_forked`. A sentence on standard error names the rank that ended badly first; its exit status is returned (128
/// and the signal's number for one that was killed), or 0. Processes that they have started and left end, too. Throws
/// `Error` (invalid_argument, transport).
[[nodiscard]] KOLO_API int run_program(int ranks, const std::vector<std::string>& command);

/// This rank's place among all ranks, or among the group's: 0 ... size()-1.
[[nodiscard]] inline int rank() { return current_context().rank(); }
[[nodiscard]] KOLO_API int rank(const Group& group);
/// How many ranks there are, or the group has.
[[nodiscard]] inline int size() { return current_context().size(); }
[[nodiscard]] KOLO_API int size(const Group& group);
/// Its place among the ranks of this node (a machine, or a part of one: `KOLO_RANKS_PER_NODE`).
[[nodiscard]] inline int local_rank() { return current_context().local_rank(); }
/// How many ranks this node has.
[[nodiscard]] inline int local_size() { return current_context().local_size(); }
/// Its place among the ranks of the same local rank, one a node: the number of this node, if all have as many ranks.
[[nodiscard]] inline int cross_rank() { return current_context().cross_rank(); }
/// How many nodes have a rank of this local rank.
[[nodiscard]] inline int cross_size() { return current_context().cross_size(); }
/// Whether every node has as many ranks.
[[nodiscard]] inline bool is_homogeneous() { return current_context().is_homogeneous(); }

}  // namespace kolo

#endif  // KOLO_CONTEXT_HPP
