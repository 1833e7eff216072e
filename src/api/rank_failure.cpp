// SPDX-License-Identifier: Apache-2.0
#include "api/rank_failure.hpp"

#include <utility>

#include <kolo/error.hpp>

#include "api/access.hpp"
#include "api/context_impl.hpp"

namespace kolo::api {
namespace {

/// Whether this exception is the engine's fatal error.
bool is_fatal_error(engine::Engine& engine, const std::exception_ptr& exception) {
  if (!engine.faulted()) return false;
  try {
    engine.check_usable();
  } catch (const Error& fatal) {
    try {
      std::rethrow_exception(exception);
    } catch (const Error& error) {
      return error.status().message() == fatal.status().message();
    } catch (...) {
    }
  }
  return false;
}

}  // namespace

bool run_rank(Context&& context, const std::function<void()>& body,
              const std::function<void(const std::exception_ptr& what, bool repeats)>& failed) {
  try {
    Context own(std::move(context));
    detail::ContextImpl& impl = impl_of(own);  // also if the body moves the context away; the caller keeps it alive
    const ContextGuard guard(own);
    try {
      body();
    } catch (...) {
      const std::exception_ptr what = std::current_exception();
      failed(what, is_fatal_error(impl.engine(), what));
      impl.close("its code threw: " + what_of(what));
      return false;
    }
    own.shutdown();
    return true;
  } catch (...) {
    failed(std::current_exception(), false);
    return false;
  }
}

void require_ranks(int ranks, const char* caller) {
  if (ranks >= 1) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(caller) + " needs at least one rank, not " + std::to_string(ranks));
}

std::string what_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace kolo::api
