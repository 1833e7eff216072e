// SPDX-License-Identifier: Apache-2.0
//
// end_step and join.
#include <optional>
#include <string>

#include <kolo/collectives.hpp>
#include <kolo/error.hpp>
#include <kolo/join.hpp>

#include "api/access.hpp"
#include "api/context_impl.hpp"
#include "api/handle_access.hpp"
#include "engine/engine.hpp"

namespace kolo {
namespace {

Future<int> start_join(const Group& group, const JoinOptions& options, bool waits) {
  if (options.timeout && *options.timeout <= std::chrono::nanoseconds::zero()) {
    throw Error(ErrorCode::invalid_argument, "join: its timeout is " + std::to_string(options.timeout->count()) +
                                                 " ns; give a time greater than zero, or none for KOLO_TIMEOUT_S");
  }
  const auto [engine, set] = api::parts_of(group);
  return Future<int>(engine.submitter().join(set, options.counts_in_averages, options.timeout, waits));
}

}  // namespace

int join(const Group& group, const JoinOptions& options) { return start_join(group, options, true).get(); }
Future<int> join_async(const Group& group, const JoinOptions& options) { return start_join(group, options, false); }

int Future<int>::get() {
  wait();
  return detail::HandleAccess::state(*this).outputs.first.last;
}

void end_step(const Group& group) {
  const auto [engine, set] = api::parts_of(group);
  engine.submitter().end_step(set.number);
}

}  // namespace kolo
