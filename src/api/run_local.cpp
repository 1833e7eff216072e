// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one process.
#include <exception>
#include <optional>
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

/// The exception that ended the world, and its rank: the first exception that does not repeat another rank's.
class FirstFailure {
 public:
  /// `rank`: empty if the sentence names the rank itself. `repeats`: the exception is a fatal error that another rank's
  /// exception may have caused.
  void note(std::optional<int> rank, std::exception_ptr what, bool repeats = false) {
    const base::MutexLock lock(mutex_);
    Failure& first = repeats ? repeat_ : cause_;
    // The exception is destroyed after the ranks have ended, because they may use it.
    if (!first.what) first = {rank, std::move(what)};
  }
  void rethrow() const {
    const base::MutexLock lock(mutex_);
    const Failure& first = cause_.what ? cause_ : repeat_;
    if (!first.what) return;
    const std::string prefix = first.rank ? "rank " + std::to_string(*first.rank) + ": " : "";
    try {
      std::rethrow_exception(first.what);
    } catch (const Error& error) {
      throw Error(error.code(), prefix + error.status().message());
    } catch (const std::exception& error) {
      throw Error(ErrorCode::user_exception, prefix + error.what());
    } catch (...) {
      throw Error(ErrorCode::user_exception, prefix + "an exception that is no std::exception");
    }
  }

 private:
  struct Failure {
    std::optional<int> rank;
    std::exception_ptr what;
  };

  mutable base::Mutex mutex_;
  Failure cause_ KOLO_GUARDED_BY(mutex_);
  Failure repeat_ KOLO_GUARDED_BY(mutex_);
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
      failure.note(std::nullopt, std::current_exception());
      return;
    }
    static_cast<void>(api::run_rank(
        Context(impl), body, [&](const std::exception_ptr& what, bool repeats) { failure.note(rank, what, repeats); }));
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  try {
    for (int rank = 0; rank < ranks; ++rank)
      threads.push_back(
          base::start_thread("the thread of rank " + std::to_string(rank), [&, rank] { run_rank(rank); }));
  } catch (const Error& why) {
    failure.note(std::nullopt, std::make_exception_ptr(why));
    world.abort(why.status().message());
  }
  for (std::thread& thread : threads) thread.join();
  failure.rethrow();
}

}  // namespace kolo
