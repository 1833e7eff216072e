// SPDX-License-Identifier: Apache-2.0
#include "api/forks.hpp"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <set>

#include "base/mutex.hpp"
#include "base/system_error.hpp"

namespace kolo::api {

/// In the child, where only what is safe in a signal handler may be called.
void close_in_child(const ClosedInChildren& inherited) noexcept {
  for (const ClosedInChildren::Descriptor& one : inherited.descriptors_) {
    struct stat file = {};
    if (::fstat(one.number, &file) == 0 && file.st_dev == one.device && file.st_ino == one.file) ::close(one.number);
  }
}

namespace {

/// Process-wide, as handlers of fork are, and never destroyed: those cannot be taken back.
struct Registry {
  base::Mutex mutex;
  std::set<const ClosedInChildren*> all KOLO_GUARDED_BY(mutex);
  std::atomic<std::uint64_t> generation{0};
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

// From the first to one of the others the mutex is held.
void before_fork() KOLO_ACQUIRE(registry().mutex) { registry().mutex.lock(); }
void after_fork_in_parent() KOLO_RELEASE(registry().mutex) { registry().mutex.unlock(); }
void after_fork_in_child() KOLO_RELEASE(registry().mutex) {
  registry().generation.fetch_add(1);
  for (const ClosedInChildren* inherited : registry().all) close_in_child(*inherited);
  registry().mutex.unlock();
}

void register_handlers() {
  static const int error = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (error != 0) base::throw_errno("pthread_atfork", error);
}

}  // namespace

std::uint64_t fork_generation() noexcept { return registry().generation.load(std::memory_order_relaxed); }

bool contexts_are_open() {
  const base::MutexLock lock(registry().mutex);
  return !registry().all.empty();
}

ClosedInChildren::ClosedInChildren(const std::vector<int>& descriptors) {
  register_handlers();
  for (const int number : descriptors) {
    struct stat file = {};
    if (::fstat(number, &file) != 0) base::throw_errno("fstat", errno);
    descriptors_.push_back({number, file.st_dev, file.st_ino});
  }
  const base::MutexLock lock(registry().mutex);
  registry().all.insert(this);
}

ClosedInChildren::~ClosedInChildren() {
  const base::MutexLock lock(registry().mutex);
  registry().all.erase(this);
}

}  // namespace kolo::api
