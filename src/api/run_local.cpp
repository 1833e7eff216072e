// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one process.
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <kolo/context.hpp>

#include "api/assemble.hpp"
#include "api/context_impl.hpp"
#include "shm/thread_world.hpp"

namespace kolo {
namespace {

/// The exception that ended the world: the first one, and whose it was.
class FirstFailure {
 public:
  void note(int rank, std::exception_ptr what) {
    const std::lock_guard lock(mutex_);
    if (what_) return;
    rank_ = rank;
    what_ = std::move(what);
  }
  void rethrow() const {
    if (!what_) return;
    const std::string prefix = "rank " + std::to_string(rank_) + ": ";
    try {
      std::rethrow_exception(what_);
    } catch (const Error& error) {
      throw Error(error.code(), prefix + error.status().message());
    } catch (const std::exception& error) {
      throw Error(ErrorCode::user_exception, prefix + error.what());
    } catch (...) {
      throw Error(ErrorCode::user_exception, prefix + "an exception that is no std::exception");
    }
  }

 private:
  std::mutex mutex_;
  int rank_ = 0;
  std::exception_ptr what_;
};

std::string what_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

void run_local(int ranks, const std::function<void()>& body, const Options& options) {
  if (ranks < 1) {
    throw Error(ErrorCode::invalid_argument, "run_local needs at least one rank, not " + std::to_string(ranks));
  }
  shm::ThreadWorld world(ranks);
  FirstFailure failure;
  const auto run_rank = [&](int rank) {
    std::shared_ptr<detail::ContextImpl> impl;
    try {
      impl = api::assemble(world.bootstrap(rank), options);
    } catch (...) {
      failure.note(rank, std::current_exception());
      world.abort("rank " + std::to_string(rank) + " could not join: " + what_of(std::current_exception()));
      return;
    }
    try {
      Context context(impl);
      const ContextGuard guard(context);
      try {
        body();
      } catch (...) {
        failure.note(rank, std::current_exception());
        impl->close("its code threw: " + what_of(std::current_exception()));
        return;
      }
      context.shutdown();
    } catch (...) {
      failure.note(rank, std::current_exception());
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  failure.rethrow();
}

}  // namespace kolo
