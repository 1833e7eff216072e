// SPDX-License-Identifier: Apache-2.0
#include "api/forks.hpp"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <utility>

#include <kolo/error.hpp>

#include "base/mutex.hpp"
#include "base/system_error.hpp"

namespace kolo::api {

/// Runs in the child, where only async-signal-safe functions may be called.
void close_in_child(const ClosedInChildren& inherited) noexcept {
  for (const ClosedInChildren::Descriptor& one : inherited.descriptors_) {
    struct stat file = {};
    if (::fstat(one.number, &file) == 0 && file.st_dev == one.device && file.st_ino == one.file) ::close(one.number);
  }
}

namespace {

/// Process-wide, as fork handlers are, and never destroyed, because fork handlers cannot be removed.
struct Registry {
  base::Mutex mutex;
  std::set<const ClosedInChildren*> all KOLO_GUARDED_BY(mutex);
  int in_the_making KOLO_GUARDED_BY(mutex) = 0;
  bool inherited KOLO_GUARDED_BY(mutex) = false;
  std::vector<std::shared_ptr<void>> kept KOLO_GUARDED_BY(mutex);

  [[nodiscard]] bool is_used() const KOLO_REQUIRES(mutex) { return !all.empty() || in_the_making > 0; }
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

// before_fork acquires the mutex, and each of the two others releases it.
void before_fork() KOLO_ACQUIRE(registry().mutex) { registry().mutex.lock(); }
void after_fork_in_parent() KOLO_RELEASE(registry().mutex) { registry().mutex.unlock(); }
void after_fork_in_child() KOLO_RELEASE(registry().mutex) {
  fork_count.fetch_add(1);
  registry().inherited |= registry().is_used();
  for (const ClosedInChildren* inherited : registry().all) close_in_child(*inherited);
  registry().mutex.unlock();
}

void register_handlers() {
  static const int error = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (error != 0) base::throw_errno("pthread_atfork", error);
}

}  // namespace

void throw_inherited() {
  throw Error(ErrorCode::unsupported,
              "this process is a fork of a rank, and no rank itself: it cannot use its parent's "
              "context, nor join the job");
}

void keep_inherited(std::shared_ptr<void> object) noexcept {
  const base::MutexLock lock(registry().mutex);
  registry().kept.push_back(std::move(object));
}

bool contexts_are_open() {
  const base::MutexLock lock(registry().mutex);
  return registry().is_used();
}

bool contexts_are_inherited() {
  const base::MutexLock lock(registry().mutex);
  return registry().inherited;
}

ContextInTheMaking::ContextInTheMaking() {
  register_handlers();
  const base::MutexLock lock(registry().mutex);
  ++registry().in_the_making;
}

ContextInTheMaking::~ContextInTheMaking() {
  const base::MutexLock lock(registry().mutex);
  --registry().in_the_making;
}

ClosedInChildren::ClosedInChildren(const std::vector<int>& descriptors) {
  register_handlers();
  for (const int number : descriptors) {
    struct stat file = {};
    if (::fstat(number, &file) != 0) base::throw_errno("fstat", errno);
    if (S_ISSOCK(file.st_mode)) descriptors_.push_back({number, file.st_dev, file.st_ino});
  }
  const base::MutexLock lock(registry().mutex);
  registry().all.insert(this);
}

ClosedInChildren::~ClosedInChildren() {
  const base::MutexLock lock(registry().mutex);
  registry().all.erase(this);
}

}  // namespace kolo::api
