// SPDX-License-Identifier: Apache-2.0
#include "api/rank_failure.hpp"

#include <exception>
#include <string>
#include <utility>

#include "api/access.hpp"
#include "api/context_impl.hpp"

namespace kolo::api {
namespace {

/// Whether this is the engine's fatal error.
bool is_fatal_error(engine::Engine& engine, const Status& what) {
  try {
    engine.check_usable();
  } catch (const Error& fatal) {
    return engine.faulted() && what.message() == fatal.status().message();
  }
  return false;
}

}  // namespace

bool run_rank(Context&& context, const std::function<void()>& body,
              const std::function<void(const Status& what, bool repeats)>& failed) {
  try {
    Context own(std::move(context));
    detail::ContextImpl& impl = impl_of(own);  // also if the body moves the context away; the caller keeps it alive
    const ContextGuard guard(own);
    try {
      body();
    } catch (...) {
      const Status what = current_failure();
      failed(what, is_fatal_error(impl.engine(), what));
      impl.close("its code threw: " + what.message());
      return false;
    }
    own.shutdown();
    return true;
  } catch (...) {
    failed(current_failure(), false);
    return false;
  }
}

void require_ranks(int ranks, const char* caller) {
  if (ranks >= 1) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(caller) + " needs at least one rank, not " + std::to_string(ranks));
}

Status current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return error.status();
  } catch (const std::exception& error) {
    return {ErrorCode::user_exception, error.what()};
  } catch (...) {
    return {ErrorCode::user_exception, "an exception that is no std::exception"};
  }
}

}  // namespace kolo::api
