// SPDX-License-Identifier: Apache-2.0
//
// Contexts, the one that belongs to the process, and the one that is bound to a thread.
#include <kolo/context.hpp>
#include <kolo/detail/leaving.hpp>
#include <kolo/looking.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/access.hpp"
#include "api/assemble.hpp"
#include "api/context_impl.hpp"
#include "api/forks.hpp"
#include "api/launch.hpp"
#include "api/metrics_file.hpp"
#include "base/mutex.hpp"

namespace kolo {
namespace {

class Process;
Process& process();

/// Lets `Process::end_process` be called when the process ends, before what was registered earlier.
void end_at_exit() noexcept;

/// How long a failing rank waits until its departure is reported.
constexpr std::chrono::seconds kFarewell{1};

/// The process-wide state of the library: the context of `init`, which is closed at exit if it is still open. It is
/// never destroyed: a thread other than the one that called exit may be inside a call, or make one later.
class Process {
 public:
  /// At the end of the process, with its exit status: leaves all jobs, then finalises MPI. A second call finds nothing
  /// left to do.
  void end_process(int status) noexcept {
    if (is_inherited()) return;
    static Context* kept = nullptr;
    if (auto context = release()) {
      kept = context.release();
      end(api::impl_of(*kept), {}, status != 0);
    }
    std::vector<std::shared_ptr<detail::ContextImpl>> open;
    {
      const base::MutexLock lock(mutex_);
      open = left_open_;
    }
    for (const auto& impl : open) end(*impl, {}, status != 0);
    const base::MutexLock lock(mutex_);
    launcher_.end(patience_, status);
  }

  void init(const Options& options) {
    const api::ContextInTheMaking making;
    check_own();
    const base::MutexLock one_at_a_time(initialising_);
    if (context() != nullptr) {
      throw Error(ErrorCode::invalid_argument, "kolo::init was called before, and kolo::shutdown has not been");
    }
    auto context = std::make_unique<Context>(options);
    const base::MutexLock lock(mutex_);
    context_ = std::move(context);
    current_.store(context_.get(), std::memory_order_release);
  }
  /// A membership in the launcher's job.
  std::shared_ptr<detail::ContextImpl> join(const Options& options) {
    const api::ContextInTheMaking making;
    check_own();
    const base::MutexLock lock(joining_);
    try {
      auto holder = bootstrap(options);
      auto impl = api::assemble(std::move(holder->bootstrap), options);
      impl->belong_to_job();
      const base::MutexLock members(mutex_);
      launcher_.note(api::Launcher::State::joined);
      patience_ = base::from_seconds(impl->engine().settings().timeout_s);
      return impl;
    } catch (...) {
      const base::MutexLock members(mutex_);
      launcher_.note(api::Launcher::State::broken);
      throw;
    }
  }
  /// Returns the context; the caller ends it.
  std::unique_ptr<Context> release() {
    const base::MutexLock lock(mutex_);
    current_.store(nullptr, std::memory_order_release);
    return std::move(context_);
  }
  /// Ends a context. `hurry`: without waiting for the others.
  void end(detail::ContextImpl& impl, const std::string& reason, bool hurry = false) noexcept {
    impl.close(reason, hurry);
    note_end(impl);
  }
  void note_end(const detail::ContextImpl& impl) noexcept {
    using State = api::Launcher::State;
    if (!impl.of_job()) return;
    const State state = impl.engine().faulted()         ? State::broken
                        : impl.engine().left_together() ? State::left_together
                                                        : State::left_alone;
    const base::MutexLock lock(mutex_);
    launcher_.note(state);
  }
  /// Keeps a context until the process ends that was destroyed inside a callback, where it cannot be shut down.
  void leave_open(std::shared_ptr<detail::ContextImpl> impl) {
    const base::MutexLock lock(mutex_);
    left_open_.push_back(std::move(impl));
  }
  /// Whether this process is a fork of the one that made this.
  [[nodiscard]] bool is_inherited() const noexcept { return generation_.load() != api::fork_generation(); }
  /// Every call uses it, so it does not take the lock.
  [[nodiscard]] Context* context() const noexcept { return current_.load(std::memory_order_acquire); }

 private:
  std::unique_ptr<detail::BootstrapHolder> bootstrap(const Options& options) {
    if (auto holder = api::meet_without_mpi(options)) return holder;  // others need not wait for a resolver of names
    const base::MutexLock lock(mutex_);
    launcher_.begin(options);
    // Once more, behind MPI_Init: handlers run last in, first out, and MPICH's ends a job that has not finalised.
    static const bool once = (end_at_exit(), true);
    static_cast<void>(once);
    return launcher_.bootstrap(options);
  }
  /// Throws Error (unsupported) in a process that was forked while its parent had a context, or made one. If the parent
  /// had none, this object is unused, and the child uses it as its own.
  void check_own() {
    if (!is_inherited()) return;
    if (api::contexts_are_inherited()) api::throw_inherited();
    generation_ = api::fork_generation();
  }
  std::atomic<std::uint32_t> generation_{api::fork_generation()};
  base::Mutex initialising_;
  base::Mutex joining_;
  base::Mutex mutex_;
  std::unique_ptr<Context> context_ KOLO_GUARDED_BY(mutex_);
  std::atomic<Context*> current_{nullptr};  // what context_ holds
  std::vector<std::shared_ptr<detail::ContextImpl>> left_open_ KOLO_GUARDED_BY(mutex_);
  api::Launcher launcher_ KOLO_GUARDED_BY(mutex_);
  base::Duration patience_ KOLO_GUARDED_BY(mutex_){};  // KOLO_TIMEOUT_S
};

void end_at_exit() noexcept {
  // If it cannot be registered, the others are told by the end of this process's connections.
  static_cast<void>(::on_exit([](int status, void*) { process().end_process(status); }, nullptr));
}

Process& process() {
  static Process& instance = *[] {
    end_at_exit();
    return new Process;
  }();
  return instance;
}

thread_local Context* bound_context = nullptr;

Context* find_context() noexcept { return bound_context != nullptr ? bound_context : process().context(); }

constexpr const char* kUnwinding =
    "its text is known on that rank only (kolo::abandon, called in a handler, sends it to all ranks)";

/// Whether a destructor runs inside a callback of on_done, where the context cannot be shut down. Logs that.
bool stays_open(const detail::ContextImpl& impl, const char* what) noexcept {
  if (!impl.engine().driving().in_callback()) return false;
  impl.engine().logger().write(
      LogLevel::error, std::string("a ") + what +
                           " was destroyed inside a callback of on_done, where its context cannot be shut down: the "
                           "context stays open until the process ends");
  return true;
}

/// The timeline of KOLO_TIMELINE, and the file of KOLO_METRICS_FILE. A job goes on without them.
void begin_looking(Context& context) noexcept {
  detail::ContextImpl& impl = api::impl_of(context);
  impl.begin_metrics();
  const engine::Engine& engine = impl.engine();
  if (engine.settings().timeline.empty()) return;
  try {
    start_timeline(context, engine.settings().timeline);
  } catch (const std::exception& error) {
    if (engine.topology().is_leader())
      engine.logger().write(LogLevel::warning, std::string("there is no timeline (KOLO_TIMELINE): ") + error.what());
  }
}

/// The end of a context by its destructor.
void end_by_destructor(std::shared_ptr<detail::ContextImpl> impl, const std::string& reason) noexcept {
  if (impl->is_inherited()) {
    api::keep_inherited(std::move(impl));
  } else if (stays_open(*impl, "kolo::Context")) {
    process().leave_open(std::move(impl));
  } else {
    process().end(*impl, reason);
    impl->dissolve();
  }
}

}  // namespace

Bootstrap::Bootstrap(std::unique_ptr<detail::BootstrapHolder> holder) noexcept : holder_(std::move(holder)) {}
Bootstrap::Bootstrap(Bootstrap&&) noexcept = default;
Bootstrap& Bootstrap::operator=(Bootstrap&&) noexcept = default;
Bootstrap::~Bootstrap() = default;
std::unique_ptr<detail::BootstrapHolder> api::holder_of(Bootstrap bootstrap) noexcept {
  return std::move(detail::Access::holder(bootstrap));
}

// ---------------------------------------------------------------- Group

Group::Group(std::shared_ptr<detail::ContextImpl> context, std::shared_ptr<detail::Membership> membership) noexcept
    : context_(std::move(context)), membership_(std::move(membership)) {}

detail::ContextImpl& detail::Access::impl(const Group& group) {
  if (!group.context_) throw Error(ErrorCode::not_initialized, "this context was moved from");
  if (group.context_->is_inherited()) api::throw_inherited();
  if (group.context_->dissolved()) {
    throw Error(ErrorCode::not_initialized, "the context of this group is gone: it was destroyed, or shut down by "
                                            "kolo::shutdown; take a group of the context that is there now");
  }
  return *group.context_;
}

detail::GroupParts detail::Access::parts(const Group& group) {
  engine::Engine& engine = impl(group).engine();
  if (group.membership_ == nullptr) return {engine, *engine.world()};
  if (group.membership_->state() == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "this rank is no member of the group: it asked Group::split for none (kNoGroup)");
  }
  return {engine, *group.membership_->state()};
}

detail::GroupParts api::parts_of(const Group& group) { return detail::Access::parts(group); }
engine::SetState& api::set_of(const Group& group) { return parts_of(group).set; }

std::string address(const Group& group, int rank) {
  const engine::SetState& set = api::set_of(group);
  if (rank < 0 || rank >= set.topology.size) {
    throw Error(ErrorCode::invalid_argument, "address: there is no rank " + std::to_string(rank) +
                                                 "; give one from 0 to " + std::to_string(set.topology.size - 1));
  }
  return api::impl_of(group).addresses()[static_cast<std::size_t>(set.members[static_cast<std::size_t>(rank)])];
}
int rank(const Group& group) { return api::set_of(group).topology.rank; }
int size(const Group& group) { return api::set_of(group).topology.size; }

// ---------------------------------------------------------------- Context

void detail::ContextImpl::begin_metrics() noexcept {
  const base::Settings& settings = engine_->settings();
  if (settings.metrics_file.empty()) return;
  try {
    metrics_file_ =
        std::make_unique<api::MetricsFile>(engine_, api::metrics_path(settings.metrics_file, engine_->topology().rank),
                                           base::from_seconds(settings.metrics_interval_s));
  } catch (const std::exception& error) {
    engine_->logger().write(LogLevel::warning,
                            std::string("there are no metrics (KOLO_METRICS_FILE): ") + error.what());
  }
}

void detail::ContextImpl::close(const std::string& reason, bool hurry) noexcept {
  end_metrics();
  try {
    if (hurry) {
      engine_->shutdown(kFarewell);
    } else if (reason.empty()) {
      engine_->shutdown();
    } else {
      engine_->abandon(ErrorCode::user_exception, reason);
    }
  } catch (const std::exception& error) {
    engine_->logger().write(LogLevel::error, std::string("shutdown failed: ") + error.what());
  }
  forget_connections();
  set_timeline(nullptr);
}

Context::Context() : Context(Options{}) {}

Context::Context(const Options& options) : Context(process().join(options)) {}

Context Context::alone(const Options& options) { return Context(Bootstrap(api::solo_bootstrap()), options); }

Context::Context(Bootstrap bootstrap, const Options& options)
    : world_(std::shared_ptr<detail::ContextImpl>()), exceptions_at_birth_(std::uncaught_exceptions()) {
  const std::unique_ptr<detail::BootstrapHolder> holder = api::holder_of(std::move(bootstrap));
  if (!holder || !holder->bootstrap) {
    throw Error(ErrorCode::invalid_argument, "this bootstrap has made a context already; make another one");
  }
  world_.context_ = api::assemble(std::move(holder->bootstrap), options);
  begin_looking(*this);
}

Context::Context(std::shared_ptr<detail::ContextImpl> impl) noexcept
    : world_(std::move(impl)), exceptions_at_birth_(std::uncaught_exceptions()) {
  begin_looking(*this);
}

Context::Context(Context&& other) noexcept
    : world_(std::move(other.world_.context_)), exceptions_at_birth_(other.exceptions_at_birth_) {}

Context& Context::operator=(Context&& other) noexcept {
  if (this != &other) {
    if (world_.context_) end_by_destructor(std::move(world_.context_), {});
    world_.context_ = std::move(other.world_.context_);
    exceptions_at_birth_ = other.exceptions_at_birth_;
  }
  return *this;
}

Context::~Context() {
  if (!world_.context_) return;
  end_by_destructor(std::move(world_.context_), std::uncaught_exceptions() > exceptions_at_birth_ ? kUnwinding : "");
}

namespace {

void shut_down(detail::ContextImpl& its, const std::function<void(engine::Engine&)>& leave) {
  its.engine().check_may_shut_down();
  its.end_metrics();
  leave(its.engine());
  its.forget_connections();
  its.set_timeline(nullptr);
  process().note_end(its);
}

}  // namespace

void Context::shutdown() {
  if (world_.context_) shut_down(api::impl_of(*this), [](engine::Engine& engine) { engine.shutdown(); });
}

void detail::leave_early(Context& context) {
  shut_down(api::impl_of(context), [](engine::Engine& engine) { engine.leave_early(); });
}

void detail::leave_now(Context& context, const std::string& reason) {
  if (api::impl_of(context).engine().has_open()) return context.abandon(reason);
  leave_early(context);
}

void Context::abandon(const std::string& reason) {
  engine::Engine& engine = api::impl_of(*this).engine();
  engine.check_may_shut_down();
  api::impl_of(*this).end_metrics();
  engine.abandon(ErrorCode::user_exception, reason);
}

int Context::rank() const { return api::impl_of(*this).engine().topology().rank; }
int Context::size() const { return api::impl_of(*this).engine().topology().size; }
int Context::local_rank() const { return api::impl_of(*this).engine().topology().local_rank; }
int Context::local_size() const { return api::impl_of(*this).engine().topology().local_size(); }
int Context::cross_rank() const { return api::impl_of(*this).engine().topology().cross_rank(); }
int Context::cross_size() const { return api::impl_of(*this).engine().topology().cross_size(); }
bool Context::is_homogeneous() const { return api::impl_of(*this).engine().topology().is_homogeneous(); }

// ---------------------------------------------------------------- the default one

ContextGuard::ContextGuard(Context& context) noexcept : previous_(std::exchange(bound_context, &context)) {}
ContextGuard::~ContextGuard() { bound_context = previous_; }

void init(const Options& options) {
  if (bound_context != nullptr) {
    throw Error(
        ErrorCode::invalid_argument,
        "kolo::init: this thread has a context already, that of run_local or of a ContextGuard; leave init out, "
        "or use a kolo::Session, which takes what is there");
  }
  process().init(options);
}

void shutdown() {
  if (bound_context != nullptr) {
    throw Error(ErrorCode::invalid_argument, "kolo::shutdown: this thread's context is that of run_local or of a "
                                             "ContextGuard, and not init's; whoever made it shuts it down");
  }
  if (const Context* const context = process().context()) api::impl_of(*context).engine().check_may_shut_down();
  if (const std::unique_ptr<Context> context = process().release()) process().end(api::impl_of(*context), {});
}

bool is_initialized() noexcept { return find_context() != nullptr; }

Context& current_context() {
  Context* context = find_context();
  if (context == nullptr) {
    throw Error(
        ErrorCode::not_initialized,
        "this thread has no context: call kolo::init() first (or make a kolo::Session, pass a kolo::Context, or "
        "bind one to this thread by a kolo::ContextGuard)");
  }
  return *context;
}

Session::Session(const Options& options)
    : exceptions_at_birth_(std::uncaught_exceptions()), owner_(bound_context == nullptr) {
  if (owner_) init(options);
}

Session::~Session() {
  if (!owner_) return;
  if (const Context* const context = process().context()) {
    if (process().is_inherited()) return;
    if (stays_open(api::impl_of(*context), "kolo::Session")) return;
  }
  if (const std::unique_ptr<Context> context = process().release()) {
    process().end(api::impl_of(*context), std::uncaught_exceptions() > exceptions_at_birth_ ? kUnwinding : "");
  }
}

}  // namespace kolo
