// SPDX-License-Identifier: Apache-2.0

/// @file
/// Joining a job, leaving it, and this process's place in it.
///
/// A *context* is one rank's membership in one world. `init` makes the process's own, from the launcher's environment
/// (a world of one without a launcher; MPI is then not touched at all). Libraries, and programs that have MPI, make
/// their own contexts; a process may have several. Calls that are not given a context use the one bound to the calling
/// thread (`ContextGuard`, `run_local`), else the one that `init` made, else throw `Error` (not_initialized).
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
struct Access;
struct BootstrapHolder;
}  // namespace detail

/// How the ranks of a new world find one another. An adapter makes it (`kolo::mpi::bootstrap`); one `Context` uses it.
class KOLO_API Bootstrap {
 public:
  explicit Bootstrap(std::unique_ptr<detail::BootstrapHolder> holder) noexcept;
  Bootstrap(Bootstrap&&) noexcept;
  Bootstrap& operator=(Bootstrap&&) noexcept;
  ~Bootstrap();

 private:
  friend struct detail::Access;
  std::unique_ptr<detail::BootstrapHolder> holder_;
};

/// The colour of a rank that wants no group from `Group::split`.
inline constexpr int kNoGroup = -1;

/// Ranks that act together: all ranks of a context, its *world*, or some of them. A small value: copies are cheap and
/// mean the same group. A call is given its group first (collectives: where.hpp), and roots are ranks of the group. A
/// `Context` converts to its world, so it can be given wherever a group is; `world()` is the world of the calling
/// thread's context.
///
/// Groups may overlap, and one rank may be in many (KOLO_GROUPS). Names, unnamed calls, plans and messages of one group
/// are independent of those of another, and groups that share no rank do not wait for each other. A thread that calls
/// several groups needs the same order on all ranks only for calls that wait. For tensors of GPUs see kolo/cuda.hpp.
///
/// Destroying the last copy of a group is local, and waits for nothing: operations in flight go on, and the group ends
/// when all its ranks have done so. A group does not keep its context alive. When the context is moved, the group stays
/// valid. Once the context has been destroyed (or `init`'s has been shut down) every use of the group throws `Error`
/// (not_initialized). Thread-safe as the context is.
class KOLO_API Group {
 public:
  /// The group of these ranks of `parent`, in any order: a rank's place in the list is its rank in the group. Each rank
  /// of the list calls it, with the same list; other ranks of the parent do not. Waits for the others, like any
  /// collective. Groups of the same ranks and name are matched in the order of the calls. Throws `Error`:
  /// invalid_argument if the list has a rank twice, has a rank that does not exist, or does not have this rank, or if
  /// one of them is in KOLO_GROUPS groups already or has joined; mismatch if ranks give other orders; timeout (fatal)
  /// if a rank of the list does not call it, or expired with `GroupOptions::fails_alone`.
  [[nodiscard]] static Group of(const Group& parent, const std::vector<int>& ranks, const GroupOptions& options = {});
  /// The group of these ranks of the calling thread's world.
  [[nodiscard]] static Group of(const std::vector<int>& ranks, const GroupOptions& options = {});
  /// The group of all ranks of this group that give the same colour, in the order of their keys; ranks with equal keys
  /// keep their order. All ranks of this group call it. A colour is not negative. A rank that gives `kNoGroup` gets a
  /// group of which it is no member; such a group can only be destroyed. With `GroupOptions::fails_alone` a rank that
  /// does not call it fails the call alone; for that, all ranks of this group are in one more group meanwhile
  /// (KOLO_GROUPS). Throws `Error` (invalid_argument).
  [[nodiscard]] Group split(int color, int key = 0, const GroupOptions& options = {}) const;

  // No moves: a group is never empty.
  Group(const Group&) noexcept = default;
  Group& operator=(const Group&) noexcept = default;
  ~Group() = default;

  /// Whether this rank is a member: false only for a group that `split` gave for `kNoGroup`.
  [[nodiscard]] bool is_member() const noexcept;
  /// Its ranks, as ranks of the context, in the group's order. Throws `Error` (not_initialized).
  [[nodiscard]] std::vector<int> members() const;

 private:
  friend class Context;
  friend struct detail::Access;
  explicit Group(std::shared_ptr<detail::ContextImpl> context,
                 std::shared_ptr<detail::Membership> membership = nullptr) noexcept;
  std::shared_ptr<detail::ContextImpl> context_;
  std::shared_ptr<detail::Membership> membership_;  // null: the world
};

/// One rank's membership in a world. Thread-safe, except that no other thread may use it during construction,
/// destruction and `shutdown`. Destruction is `shutdown` without its exceptions. If an exception destroys the context,
/// the other ranks are told, and nothing is waited for. A context that is destroyed inside a callback of `on_done` logs
/// an error and stays open until the process ends.
class KOLO_API Context {
 public:
  /// Joins the job that the launcher started, as `init` does, or makes a world of one if there is no launcher. Calls
  /// without a context do not use it. Collective over the job's ranks. Throws `Error`.
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
  operator const Group&() const&& = delete;  // a temporary leaves the job at the end of the line: keep it in a variable

  /// See the free functions of the same names.
  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] int local_rank() const;
  [[nodiscard]] int local_size() const;
  [[nodiscard]] int cross_rank() const;
  [[nodiscard]] int cross_size() const;
  [[nodiscard]] bool is_homogeneous() const;

  /// Leaves: waits (at most `KOLO_TIMEOUT_S`) until every rank has called it, then ends the engine. Operations that are
  /// still open fail with shut_down. If a rank comes after that time, its own `shutdown` returns, and its other
  /// operations fail. Returns at once after a fatal error, and does not throw it: the operations have reported it.
  /// Never finalises MPI. A second call does nothing. Throws `Error` (invalid_argument) inside a callback of `on_done`,
  /// and leaves the context open.
  void shutdown();

  /// Leaves because of an error on this rank. On every other rank operations fail with `user_exception`, and the
  /// sentence contains `reason`. Operations still open here fail, too. Waits at most a second, for the announcement to
  /// be sent. Does nothing after `shutdown` or a second time. If another rank has left before (`rank_lost`), this is
  /// `shutdown`: the error names the other rank. Call it in a handler inside the context's scope, because the
  /// destructor cannot know what the exception says:
  ///
  ///     try { train(context); } catch (const std::exception& error) { context.abandon(error.what()); throw; }
  void abandon(const std::string& reason);

 private:
  friend struct detail::Access;
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
/// case). Each step of the start waits for the other ranks for `KOLO_CONNECT_TIMEOUT_S` at most. If one rank fails, all
/// throw `Error`: invalid_setting for a bad value; transport if ranks cannot find each other, or if the environment
/// says that there are several processes (of torchrun, say) and they cannot be joined. On this rank alone it throws
/// invalid_argument if a context made by `init` exists, or the thread has one of `run_local` or of a ContextGuard; and
/// unsupported in a process that was forked while its parent had a context. `init` works again after `shutdown`, and
/// after an `init` that failed on all ranks. In a process that ends without `shutdown` the context is closed at exit;
/// it waits for the other ranks only if the exit status is 0.
KOLO_API void init(const Options& options = {});
/// Leaves the job; see `Context::shutdown`. Does nothing if `init` was not called. Throws `Error` (invalid_argument) on
/// a thread that has a context of `run_local` or a ContextGuard.
KOLO_API void shutdown();
/// Whether calls without a context have one on this thread.
[[nodiscard]] KOLO_API bool is_initialized() noexcept;
/// The context that calls without one use. Throws `Error` (not_initialized).
[[nodiscard]] KOLO_API Context& current_context();
/// Leaves the job because of an error on this rank; see `Context::abandon`.
inline void abandon(const std::string& reason) { current_context().abandon(reason); }

/// The group of all ranks of the context that calls without one use. Throws `Error` (not_initialized).
[[nodiscard]] inline Group world() { return current_context(); }

/// `init()`, and `shutdown()` at the end of the scope. If an exception leaves the scope, the other ranks are told, and
/// nothing is waited for. Inside `run_local` (or a ContextGuard) a Session uses the thread's context and does not shut
/// it down.
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

/// The same with processes: `ranks` processes are forked on this machine, and meet without a launcher. This process
/// writes their output, in whole lines; only rank 0 has its standard input. Memory that `body` changes changes in its
/// own process only. A rank that dies, or whose body throws, is a fatal error for the others; they have 5 s to end by
/// themselves, and are then ended. The `Error` that is thrown here names it: the code and sentence of its own for an
/// `Error` ("rank N: ..."), user_exception for another std::exception, rank_lost for "rank N was killed by signal 9
/// (Killed)" and "rank N ended with exit status 3". SIGINT, SIGTERM and SIGHUP, unless they are ignored, are passed on
/// to the ranks, which have 30 s to end (none after a second signal). Then the signal ends this process. When this
/// process dies, the ranks die.
///
/// Call it before this process starts threads: only the calling thread exists in the ranks, and a lock that another
/// thread holds (of a standard stream, say) stays locked there. The process must not have used MPI. Throws `Error`
/// (invalid_argument) when there is a context, CUDA has started, or `options` name a store.
KOLO_API void run_forked(int ranks, const std::function<void()>& body, const Options& options = {});
/// Runs a program as `ranks` processes of this machine, each of which joins the job with `init`. The tool kolo-run does
/// this. `command`: the program, looked for as a shell does, and its arguments. Output and signals as with
/// `run_forked`. A sentence on standard error names the rank that failed first; its exit status is returned (128 + the
/// signal's number if it was killed), or 0. Processes that the ranks started and left running are ended. Each rank gets
/// OMP_NUM_THREADS, its share of the CPUs, unless the environment has it. Throws `Error` (invalid_argument, transport).
[[nodiscard]] KOLO_API int run_program(int ranks, const std::vector<std::string>& command);

/// This rank's place among all ranks, or among the group's: 0 ... size()-1.
[[nodiscard]] inline int rank() { return current_context().rank(); }
[[nodiscard]] KOLO_API int rank(const Group& group);
/// How many ranks there are, or are in the group.
[[nodiscard]] inline int size() { return current_context().size(); }
[[nodiscard]] KOLO_API int size(const Group& group);
/// An address of the machine of a rank of the group (of all ranks), by which the other machines may reach it: the first
/// that KOLO_INTERFACE allows, IPv4 before IPv6, loopback last ("10.0.0.2"). Local. Throws `Error` (invalid_argument)
/// for a rank that there is not.
[[nodiscard]] KOLO_API std::string address(const Group& group, int rank);
[[nodiscard]] inline std::string address(int rank) { return address(current_context(), rank); }
/// This rank's place among the ranks of this node (a machine, or a part of one: `KOLO_RANKS_PER_NODE`).
[[nodiscard]] inline int local_rank() { return current_context().local_rank(); }
/// How many ranks this node has.
[[nodiscard]] inline int local_size() { return current_context().local_size(); }
/// This rank's place among the ranks of the same local rank, one on each node: the number of this node, if all nodes
/// have the same number of ranks.
[[nodiscard]] inline int cross_rank() { return current_context().cross_rank(); }
/// How many nodes have a rank with this local rank.
[[nodiscard]] inline int cross_size() { return current_context().cross_size(); }
/// Whether every node has the same number of ranks.
[[nodiscard]] inline bool is_homogeneous() { return current_context().is_homogeneous(); }

}  // namespace kolo

#endif  // KOLO_CONTEXT_HPP
