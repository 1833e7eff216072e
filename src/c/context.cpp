// SPDX-License-Identifier: Apache-2.0
//
// Contexts: joining a job, leaving it, places in it, and groups.
#include <kolo/context.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.h>
#include <kolo/looking.hpp>

#include "c/arguments.hpp"
#include "c/guard.hpp"
#include "c/objects.hpp"
#include "c/starting.hpp"

namespace kolo::c {
namespace {

static_assert(KOLO_NO_GROUP == kNoGroup);

/// The place of the process's own context. It is never destroyed, so that a context that was shut down can be named.
kolo_context* process_context(Context& context) {
  static auto* const place = new std::optional<kolo_context>;
  return &place->emplace(kolo_context::Kind::process, context);
}

bool is_over(const kolo_context& context) noexcept {
  try {
    static_cast<void>(size(context.world.group));
    return false;
  } catch (const Error& error) {
    return error.code() == ErrorCode::not_initialized;
  }
}

/// The place of a context that others have made. Places are never freed, for C may keep their addresses; one serves the
/// contexts that follow one another at the same address.
kolo_context* place_of_current(Context& context) {
  static auto* const mutex = new std::mutex;
  static auto* const places = new std::map<const Context*, std::optional<kolo_context>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::optional<kolo_context>& place = (*places)[&context];
  if (!place || is_over(*place)) place.emplace(kolo_context::Kind::borrowed, context);
  return &*place;
}

/// The context, unless it was shut down (Error not_initialized).
Context& live(const kolo_context* context) {
  const kolo_context& its = given(context, "the context");
  static_cast<void>(size(its.world.group));
  return *its.context;
}

/// One rank of `kolo_run_local` or `kolo_run_forked`. Throws what the body returns.
void run_body(kolo_body body, void* data) {
  kolo_context context(kolo_context::Kind::borrowed, current_context());
  fail(KOLO_OK, "");  // a sentence from before is not the body's
  const kolo_status status = body(data, &context);
  if (status == KOLO_OK) return;
  const bool is_ours = status > KOLO_OK && status < kErrorCodeCount;
  const std::string sentence = kolo_last_error();
  throw Error(is_ours ? static_cast<ErrorCode>(status) : ErrorCode::user_exception,
              std::string("the rank's function has returned ") + kolo_status_name(status) +
                  (sentence.empty() ? "" : ": " + sentence));
}

template <class Run>
kolo_status run_ranks(const Run& run, int32_t ranks, kolo_body body, void* data, const kolo_init_options* options) {
  return guarded([&] {
    const kolo_init_options checked = checked_init_options(options);
    if (body == nullptr) refuse("the ranks' function is NULL: give one");
    if (checked.separate != 0) refuse("these contexts are the ranks' own: leave `separate` 0");
    run(
        ranks, [&] { run_body(body, data); }, options_of_init(checked));
  });
}

GroupOptions group_options(const kolo_group_options* given) {
  const auto from = options_of(given, kolo_group_options KOLO_GROUP_OPTIONS_INIT, 24, "KOLO_GROUP_OPTIONS_INIT");
  GroupOptions options;
  if (from.name != nullptr) options.name = from.name;
  options.timeout = timeout_of(from.timeout);
  if ((from.fails_alone != 0 && from.fails_alone != 1) || from.reserved != 0) {
    refuse("the options of a group: fails_alone is 0 or 1, and reserved 0; start from KOLO_GROUP_OPTIONS_INIT");
  }
  options.fails_alone = from.fails_alone == 1;
  return options;
}

template <class Ask>
kolo_status ask_place(const kolo_context* context, int32_t* answer, const Ask& ask) {
  return guarded([&] {
    int32_t& place = given(answer, "the place for the answer");
    place = ask(live(context));
  });
}

}  // namespace
}  // namespace kolo::c

using namespace kolo::c;

kolo_status kolo_init(const kolo_init_options* options, kolo_context** context) {
  return guarded([&] {
    kolo_context*& place = given(context, "the place for the context");
    const kolo_init_options checked = checked_init_options(options);
    const kolo::Options its_options = options_of_init(checked);
    if (checked.separate != 0) {
      place = std::make_unique<kolo_context>(kolo::Context(its_options)).release();
    } else {
      kolo::init(its_options);
      place = process_context(kolo::current_context());
    }
  });
}

kolo_status kolo_current(kolo_context** context) {
  return guarded([&] {
    kolo_context*& place = given(context, "the place for the context");
    kolo::Context& current = kolo::current_context();
    static_cast<void>(current.size());  // in a fork this fails before anything is locked
    place = place_of_current(current);
  });
}

kolo_status kolo_shutdown(kolo_context* context) {
  return guarded([&] {
    switch (given(context, "the context").kind) {
    case kolo_context::Kind::borrowed:
      refuse("this context is that of kolo_run_local, kolo_run_forked or kolo_current: whoever made it ends it");
    case kolo_context::Kind::process:
      kolo::shutdown();
      break;
    case kolo_context::Kind::separate:
      context->own->shutdown();
      delete context;
      break;
    }
  });
}

kolo_status kolo_abandon(kolo_context* context, const char* reason) {
  return guarded([&] { live(context).abandon(std::string(given_name(reason, "the reason"))); });
}

kolo_status kolo_start_timeline(kolo_context* context, const char* path) {
  return guarded([&] { kolo::start_timeline(live(context), std::string(given_name(path, "the path"))); });
}

kolo_status kolo_stop_timeline(kolo_context* context) {
  return guarded([&] { kolo::stop_timeline(live(context)); });
}

kolo_status kolo_run_local(int32_t ranks, kolo_body body, void* data, const kolo_init_options* options) {
  return run_ranks(kolo::run_local, ranks, body, data, options);
}

kolo_status kolo_run_forked(int32_t ranks, kolo_body body, void* data, const kolo_init_options* options) {
  return run_ranks(kolo::run_forked, ranks, body, data, options);
}

kolo_group* kolo_world(kolo_context* context) {
  if (context != nullptr) return &context->world;
  fail(KOLO_INVALID_ARGUMENT, "the context is NULL: kolo_init makes one");
  return nullptr;
}

kolo_status kolo_local_rank(const kolo_context* context, int32_t* rank) {
  return ask_place(context, rank, [](const kolo::Context& its) { return its.local_rank(); });
}
kolo_status kolo_local_size(const kolo_context* context, int32_t* size) {
  return ask_place(context, size, [](const kolo::Context& its) { return its.local_size(); });
}
kolo_status kolo_cross_rank(const kolo_context* context, int32_t* rank) {
  return ask_place(context, rank, [](const kolo::Context& its) { return its.cross_rank(); });
}
kolo_status kolo_cross_size(const kolo_context* context, int32_t* size) {
  return ask_place(context, size, [](const kolo::Context& its) { return its.cross_size(); });
}

kolo_status kolo_rank(const kolo_group* group, int32_t* rank) {
  return guarded([&] { given(rank, "the place for the rank") = kolo::rank(given_group(group)); });
}

kolo_status kolo_size(const kolo_group* group, int32_t* size) {
  return guarded([&] { given(size, "the place for the size") = kolo::size(given_group(group)); });
}

kolo_status kolo_group_of(const kolo_group* parent, const int32_t* ranks, size_t count,
                          const kolo_group_options* options, kolo_group** group) {
  return guarded([&] {
    const kolo::Group& its = given_group(parent);
    kolo_group*& place = given(group, "the place for the group");
    const auto list = given_list(ranks, count, "the list of ranks");
    const kolo::GroupOptions its_options = group_options(options);
    place = std::make_unique<kolo_group>(
                kolo_group{kolo::Group::of(its, std::vector<int>(list.begin(), list.end()), its_options)})
                .release();
  });
}

kolo_status kolo_group_split(const kolo_group* parent, int32_t color, int32_t key, const kolo_group_options* options,
                             kolo_group** group) {
  return guarded([&] {
    const kolo::Group& its = given_group(parent);
    kolo_group*& place = given(group, "the place for the group");
    place = std::make_unique<kolo_group>(kolo_group{its.split(color, key, group_options(options))}).release();
  });
}

kolo_status kolo_address(const kolo_group* group, int32_t rank, kolo_result** result) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    return give_bytes(result, [&] { return std::vector{kolo::address(its, rank)}; });
  });
}

kolo_status kolo_group_is_member(const kolo_group* group, int32_t* is_member) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    given(is_member, "the place for the answer") = its.is_member() ? 1 : 0;
  });
}

kolo_status kolo_group_members(const kolo_group* group, int32_t* ranks, size_t capacity) {
  return guarded([&] {
    const std::vector<int> members = given_group(group).members();
    const auto room = given_list(ranks, capacity, "the room for ranks");
    if (room.size() < members.size()) {
      refuse("there is room for " + std::to_string(room.size()) + " ranks: the group has " +
             std::to_string(members.size()));
    }
    std::copy(members.begin(), members.end(), room.begin());
  });
}

kolo_status kolo_group_release(kolo_group* group) {
  return guarded([&] {
    if (group != nullptr && group->is_world) {
      refuse("this group is the world of a context, and ends with it: release only groups that you have made");
    }
    delete group;
  });
}
