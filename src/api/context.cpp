// SPDX-License-Identifier: Apache-2.0
//
// Contexts, the one that belongs to the process, and the one that is bound to a thread.
#include <kolo/context.hpp>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/assemble.hpp"
#include "api/bootstrap_holder.hpp"
#include "api/context_impl.hpp"
#include "api/launch.hpp"

namespace kolo {
namespace {

/// The process-wide state of the library: what `init` made, closed at exit if nobody has before.
class Process {
 public:
  ~Process() {
    if (const std::unique_ptr<Context> context = release()) end(context->impl(), {});
    for (const auto& impl : left_open_) end(*impl, {});
    launcher_.end();
  }

  void init(const Options& options) {
    const std::lock_guard lock(mutex_);
    if (context_) {
      throw Error(ErrorCode::invalid_argument, "kolo::init was called before, and kolo::shutdown has not been");
    }
    try {
      context_ = std::make_unique<Context>(Bootstrap(launcher_.bootstrap(api::connect_patience(options))), options);
    } catch (...) {
      launcher_.note_fault();
      throw;
    }
    current_.store(context_.get(), std::memory_order_release);
  }
  /// Takes it away: whoever has it ends it.
  std::unique_ptr<Context> release() {
    const std::lock_guard lock(mutex_);
    current_.store(nullptr, std::memory_order_release);
    return std::move(context_);
  }
  /// Ends what was taken away.
  void end(detail::ContextImpl& impl, const std::string& reason) noexcept {
    impl.close(reason);
    if (!impl.engine().faulted()) return;
    const std::lock_guard lock(mutex_);
    launcher_.note_fault();
  }
  /// For the end of the process: what was destroyed inside a callback, where nothing can be shut down.
  void leave_open(std::shared_ptr<detail::ContextImpl> impl) {
    const std::lock_guard lock(mutex_);
    left_open_.push_back(std::move(impl));
  }
  /// Asked by every call, so without the lock.
  [[nodiscard]] Context* context() const noexcept { return current_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;
  std::unique_ptr<Context> context_;                             // guarded by mutex_
  std::atomic<Context*> current_{nullptr};                       // what context_ holds
  std::vector<std::shared_ptr<detail::ContextImpl>> left_open_;  // guarded by mutex_
  api::Launcher launcher_;                                       // guarded by mutex_
};

Process& process() {
  static Process instance;
  return instance;
}

thread_local Context* bound_context = nullptr;

Context* find_context() noexcept { return bound_context != nullptr ? bound_context : process().context(); }

constexpr const char* kUnwinding =
    "only that rank knows what it says (kolo::abandon, called in a handler, tells it to all)";

/// Whether a destructor runs inside a callback of on_done, where the context cannot be shut down; says so.
bool stays_open(const detail::ContextImpl& impl, const char* what) noexcept {
  if (!impl.engine().in_callback()) return false;
  impl.engine().logger().write(
      LogLevel::error, std::string("a ") + what +
                           " was destroyed inside a callback of on_done, where its context cannot be shut down: the "
                           "context stays open until the process ends");
  return true;
}

/// The end of a context by its destructor.
void end_by_destructor(std::shared_ptr<detail::ContextImpl> impl, const std::string& reason) noexcept {
  if (stays_open(*impl, "kolo::Context")) {
    process().leave_open(std::move(impl));
  } else {
    impl->close(reason);
  }
}

}  // namespace

Bootstrap::Bootstrap(std::unique_ptr<detail::BootstrapHolder> holder) noexcept : holder_(std::move(holder)) {}
Bootstrap::Bootstrap(Bootstrap&&) noexcept = default;
Bootstrap& Bootstrap::operator=(Bootstrap&&) noexcept = default;
Bootstrap::~Bootstrap() = default;
std::unique_ptr<detail::BootstrapHolder> Bootstrap::release() noexcept { return std::move(holder_); }

// ---------------------------------------------------------------- Context

void detail::ContextImpl::close(const std::string& reason) noexcept {
  try {
    if (reason.empty()) {
      engine_->shutdown();
    } else {
      engine_->abandon(ErrorCode::user_exception, reason);
    }
  } catch (const std::exception& error) {
    engine_->logger().write(LogLevel::error, std::string("while leaving: ") + error.what());
  }
}

Context::Context() : Context(Options{}) {}

Context::Context(const Options& options) : Context(Bootstrap(api::solo_bootstrap()), options) {}

Context::Context(Bootstrap bootstrap, const Options& options) : exceptions_at_birth_(std::uncaught_exceptions()) {
  const std::unique_ptr<detail::BootstrapHolder> holder = bootstrap.release();
  if (!holder || !holder->bootstrap) {
    throw Error(ErrorCode::invalid_argument, "this bootstrap has made a context already; make another one");
  }
  impl_ = api::assemble(std::move(holder->bootstrap), options);
}

Context::Context(std::shared_ptr<detail::ContextImpl> impl) noexcept
    : impl_(std::move(impl)), exceptions_at_birth_(std::uncaught_exceptions()) {}

Context::Context(Context&&) noexcept = default;

Context& Context::operator=(Context&& other) noexcept {
  if (this != &other) {
    if (impl_) end_by_destructor(std::move(impl_), {});
    impl_ = std::move(other.impl_);
    exceptions_at_birth_ = other.exceptions_at_birth_;
  }
  return *this;
}

Context::~Context() {
  if (impl_) end_by_destructor(std::move(impl_), std::uncaught_exceptions() > exceptions_at_birth_ ? kUnwinding : "");
}

detail::ContextImpl& Context::impl() const {
  if (!impl_) throw Error(ErrorCode::not_initialized, "this context was moved from");
  return *impl_;
}

void Context::shutdown() {
  if (impl_) impl_->engine().shutdown();
}

void Context::abandon(const std::string& reason) {
  engine::Engine& engine = impl().engine();
  engine.check_may_shut_down();
  engine.abandon(ErrorCode::user_exception, reason);
}

int Context::rank() const { return impl().engine().topology().rank; }
int Context::size() const { return impl().engine().topology().size; }
int Context::local_rank() const { return impl().engine().topology().local_rank; }
int Context::local_size() const { return impl().engine().topology().local_size(); }
int Context::cross_rank() const { return impl().engine().topology().cross_rank(); }
int Context::cross_size() const { return impl().engine().topology().cross_size(); }
bool Context::is_homogeneous() const { return impl().engine().topology().is_homogeneous(); }

// ---------------------------------------------------------------- the default one

ContextGuard::ContextGuard(Context& context) noexcept : previous_(std::exchange(bound_context, &context)) {}
ContextGuard::~ContextGuard() { bound_context = previous_; }

void init(const Options& options) { process().init(options); }

void shutdown() {
  if (const Context* const context = process().context()) context->impl().engine().check_may_shut_down();
  if (const std::unique_ptr<Context> context = process().release()) process().end(context->impl(), {});
}

void abandon(const std::string& reason) { current_context().abandon(reason); }

bool is_initialized() noexcept { return find_context() != nullptr; }

Context& current_context() {
  Context* context = find_context();
  if (context == nullptr) {
    throw Error(ErrorCode::not_initialized,
                "call kolo::init() first (or make a kolo::Session, or pass a kolo::Context)");
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
    if (stays_open(context->impl(), "kolo::Session")) return;
  }
  if (const std::unique_ptr<Context> context = process().release()) {
    process().end(context->impl(), std::uncaught_exceptions() > exceptions_at_birth_ ? kUnwinding : "");
  }
}

int rank() { return current_context().rank(); }
int size() { return current_context().size(); }
int local_rank() { return current_context().local_rank(); }
int local_size() { return current_context().local_size(); }
int cross_rank() { return current_context().cross_rank(); }
int cross_size() { return current_context().cross_size(); }
bool is_homogeneous() { return current_context().is_homogeneous(); }

}  // namespace kolo
