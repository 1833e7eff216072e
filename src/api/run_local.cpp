// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one process.
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <kolo/context.hpp>

#include "api/assemble.hpp"
#include "api/context_impl.hpp"
#include "api/rank_failure.hpp"
#include "base/mutex.hpp"
#include "base/thread.hpp"
#include "bootstrap/thread_world.hpp"

namespace kolo {
namespace {

/// Why the world has ended: the first failure that does not repeat another rank's.
class FirstFailure {
 public:
  /// `repeats`: it is a fatal error that another rank's exception may have caused.
  void note(const Status& what, bool repeats = false) {
    const base::MutexLock lock(mutex_);
    Status& first = repeats ? repeat_ : cause_;
    if (first.ok()) first = what;
  }
  void rethrow() const {
    const base::MutexLock lock(mutex_);
    const Status& first = cause_.ok() ? repeat_ : cause_;
    if (!first.ok()) throw Error(first);
  }

 private:
  mutable base::Mutex mutex_;
  Status cause_ KOLO_GUARDED_BY(mutex_);
  Status repeat_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace

void run_local(int ranks, const std::function<void()>& body, const Options& options) {
  api::require_ranks(ranks, "run_local");
  api::show_devices(options);  // here, while no rank reads the environment
  bootstrap::ThreadWorld world(ranks);
  FirstFailure failure;
  const auto run_rank = [&](int rank) {
    std::shared_ptr<detail::ContextImpl> impl;
    try {
      impl = api::assemble(world.bootstrap(rank), options);
    } catch (...) {
      failure.note(api::current_failure());  // the sentence names the rank
      return;
    }
    const auto failed = [&](const Status& what, bool repeats) {
      try {
        failure.note({what.code(), "rank " + std::to_string(rank) + ": " + what.message()}, repeats);
      } catch (const std::bad_alloc&) {
        failure.note(what, repeats);
      }
    };
    static_cast<void>(api::run_rank(Context(impl), body, failed));
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  try {
    for (int rank = 0; rank < ranks; ++rank)
      threads.push_back(
          base::start_thread("the thread of rank " + std::to_string(rank), [&, rank] { run_rank(rank); }));
  } catch (const Error& why) {
    failure.note(why.status());
    world.abort(why.status().message());
  }
  for (std::thread& thread : threads) thread.join();
  failure.rethrow();
}

}  // namespace kolo
