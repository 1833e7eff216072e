// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes that this one starts.
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <kolo/context.hpp>

#include "api/assemble.hpp"
#include "api/context_impl.hpp"
#include "api/forks.hpp"
#include "api/launch.hpp"
#include "api/rank_failure.hpp"
#include "base/fields.hpp"
#include "base/files.hpp"
#include "base/proof.hpp"
#include "base/settings.hpp"
#include "launch/processes.hpp"
#ifdef KOLO_HAS_CUDA
#include "data/cuda/visibility.hpp"
#endif

namespace kolo {
namespace {

constexpr const char* kHost = "127.0.0.1";

/// The kinds of a rank's report of its end. `start`: the sentence names the rank that failed. `repeat`: it repeats
/// another rank's fatal error.
constexpr const char* kDone = "done";
constexpr const char* kStart = "start";
constexpr const char* kCause = "cause";
constexpr const char* kRepeat = "repeat";

/// Throws if the process has state that a fork would break or ignore.
void require_fresh_process(const Options& options) {
  const auto refuse = [](const char* why) {
    throw Error(ErrorCode::invalid_argument, std::string("run_forked: ") + why);
  };
  if (is_initialized()) {
    refuse(
        "this thread has a context already, and its process is a rank: the processes that it forks cannot be others");
  }
  if (api::contexts_are_open()) {
    refuse("this process has a context, whose threads would not be there in the processes that it forks: shut it down "
           "first");
  }
  if (options.store) refuse("its ranks meet by a place of their own; leave Options::with_store out");
#ifdef KOLO_HAS_CUDA
  if (cuda::cuda_has_started()) {
    refuse("CUDA has started in this process, and does not work in processes that are forked from now on: call "
           "run_forked before anything that uses a GPU");
  }
#endif
}

void report_end(int fd, const char* kind, const Status& what) {
  const std::string report = base::join_fields({kind, std::to_string(static_cast<int>(what.code())), what.message()});
  static_cast<void>(base::write_all(fd, report));  // an error: the parent does not read it any more
}

/// Makes this rank's context. Null if the start fails; the failure is then reported.
std::shared_ptr<detail::ContextImpl> join_meeting(const launch::Start& start, const Options& options, int report) {
  try {
    return api::assemble(std::move(api::meet(start, options)->bootstrap), options);
  } catch (...) {
    report_end(report, kStart, api::current_failure());
    return nullptr;
  }
}

/// Why a rank failed, and the kind of its report.
struct Failure {
  std::string kind;
  Status status;
};

std::optional<Failure> failure_of(const launch::ProcessEnd& ending) {
  const std::string rank = "rank " + std::to_string(ending.rank);
  const bool has_reported = !ending.report.empty();
  const std::vector<std::string> fields =
      has_reported ? base::split_fields(ending.report) : std::vector<std::string>{kDone, "", ""};
  if (fields.size() != 3) return std::nullopt;
  if (fields[0] == kDone) {  // or it has failed while it ended
    if (has_reported && ending.status == 0) return std::nullopt;
    return Failure{kCause, Status(ErrorCode::rank_lost, rank + " " + launch::describe_status(ending.status))};
  }
  return Failure{fields[0],
                 Status(base::error_code_of(fields[1]), (fields[0] == kStart ? "" : rank + ": ") + fields[2])};
}

void rethrow(const launch::Outcome& outcome) {
  std::optional<Failure> first;
  for (const launch::ProcessEnd& ending : outcome.endings) {
    const std::optional<Failure> failure = failure_of(ending);
    if (!failure) continue;
    if (!first) first = failure;
    if (failure->kind != kCause) continue;
    throw Error(failure->status);
  }
  if (first) throw Error(first->status);
}

}  // namespace

void run_forked(int ranks, const std::function<void()>& body, const Options& options) {
  api::require_ranks(ranks, "run_forked");
  require_fresh_process(options);
  launch::open_standard_descriptors();
  launch::Start start;
  start.kind = launch::StartKind::meeting;
  start.reason = "run_forked has made this process";
  start.where = store::tcp(kHost, 0);
  start.place = {0, ranks, "the rank", "the size"};
  Options own = options;
  own.settings.insert_or_assign("KOLO_JOB_KEY", base::hex_of(base::random_word()));
  // Runs in the process of one rank; returns its exit status.
  const launch::Outcome outcome = launch::run_processes(ranks, [&](int rank, int report) {
    start.place.rank = rank;
    const std::shared_ptr<detail::ContextImpl> impl = join_meeting(start, own, report);
    if (impl == nullptr) return EXIT_FAILURE;
    const auto failed = [report](const Status& what, bool repeats) {
      report_end(report, repeats ? kRepeat : kCause, what);
    };
    if (!api::run_rank(Context(impl), body, failed)) return EXIT_FAILURE;
    report_end(report, kDone, Status());
    return EXIT_SUCCESS;
  });
  if (outcome.signal) ::raise(*outcome.signal);
  rethrow(outcome);
}

}  // namespace kolo
