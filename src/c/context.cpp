// SPDX-License-Identifier: Apache-2.0
//
// Contexts: joining a job, leaving it, places in it, and groups.
#include <kolo/context.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.h>

#include "c/arguments.hpp"
#include "c/guard.hpp"
#include "c/objects.hpp"

namespace kolo::c {
namespace {

static_assert(KOLO_NO_GROUP == kNoGroup);
static_assert(KOLO_LOG_TRACE == static_cast<int>(LogLevel::trace) &&
              KOLO_LOG_DEBUG == static_cast<int>(LogLevel::debug) &&
              KOLO_LOG_INFO == static_cast<int>(LogLevel::info) &&
              KOLO_LOG_WARNING == static_cast<int>(LogLevel::warning) &&
              KOLO_LOG_ERROR == static_cast<int>(LogLevel::error));

/// A store of the program's.
class CStore final : public Store {
 public:
  explicit CStore(const kolo_store& functions) : functions_(functions) {}

  void set(const std::string& key, const std::string& value) override {
    check("set", functions_.set(functions_.data, key.c_str(), value.data(), value.size()));
  }
  std::optional<std::string> get(const std::string& key, std::chrono::nanoseconds timeout) override {
    std::string value(kMostBytes, '\0');
    std::size_t bytes = 0;
    const double seconds = std::chrono::duration<double>(timeout).count();
    const kolo_status status =
        functions_.get(functions_.data, key.c_str(), seconds, value.data(), value.size(), &bytes);
    if (status == KOLO_PENDING) return std::nullopt;
    check("get", status);
    if (bytes > value.size()) {
      throw Error(ErrorCode::user_exception, "the store's `get` says that it has written " + std::to_string(bytes) +
                                                 " bytes where there was room for " + std::to_string(value.size()));
    }
    value.resize(bytes);
    return value;
  }

 private:
  static constexpr std::size_t kMostBytes = 65536;

  static void check(const char* function, kolo_status status) {
    if (status == KOLO_OK) return;
    throw Error(ErrorCode::user_exception,
                std::string("the store's `") + function + "` has returned " + kolo_status_name(status));
  }

  kolo_store functions_;
};

MeetingPlace place_of(const kolo_store& given) {
  const auto store = copied(given, kolo_store KOLO_STORE_INIT, 32, "KOLO_STORE_INIT");
  if (store.set == nullptr || store.get == nullptr) refuse("the store lacks `set` or `get`: give both functions");
  return std::make_shared<CStore>(store);
}

Options options_of_init(const kolo_init_options& from) {
  Options options;
  for (const kolo_setting& one : given_list(from.settings, from.setting_count, "the list of settings")) {
    options.settings.insert_or_assign(std::string(given_name(one.name, "a setting's name")),
                                      std::string(given_name(one.value, "a setting's value")));
  }
  if (from.log != nullptr) {
    options.log_sink = [log = from.log, data = from.log_data](const LogRecord& record) {
      log(data, static_cast<kolo_log_level>(record.level), record.rank,
          std::chrono::duration<double>(record.time.time_since_epoch()).count(), record.message.c_str());
    };
  }
  if (from.visible_devices != nullptr) options.visible_devices = from.visible_devices;
  if (from.store != nullptr) {
    options.store = place_of(*from.store);
    options.rank = from.rank;
    options.size = from.ranks;
  } else if (from.rank != 0 || from.ranks != 1) {
    refuse("the options give a rank or a number of ranks, but no store: KOLO_RANK and KOLO_SIZE belong to KOLO_STORE");
  }
  return options;
}

kolo_init_options checked_init_options(const kolo_init_options* given) {
  const auto checked = options_of(given, kolo_init_options KOLO_INIT_OPTIONS_INIT, 72, "KOLO_INIT_OPTIONS_INIT");
  if ((checked.separate != 0 && checked.separate != 1) || checked.reserved != 0) {
    refuse("the options of a start: `separate` is 0 or 1, and `reserved` 0; start from KOLO_INIT_OPTIONS_INIT");
  }
  return checked;
}

/// The place of the process's own context. It is never destroyed, so that a context that was shut down can be named.
kolo_context* process_context(Context& context) {
  static auto* const place = new std::optional<kolo_context>;
  return &place->emplace(kolo_context::Kind::process, context);
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
    return KOLO_OK;
  });
}

template <class Ask>
kolo_status ask_place(const kolo_context* context, int32_t* answer, const Ask& ask) {
  return guarded([&] {
    int32_t& place = given(answer, "the place for the answer");
    place = ask(live(context));
    return KOLO_OK;
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
    return KOLO_OK;
  });
}

kolo_status kolo_shutdown(kolo_context* context) {
  return guarded([&] {
    switch (given(context, "the context").kind) {
    case kolo_context::Kind::borrowed:
      refuse("this context is that of kolo_run_local or kolo_run_forked: it ends when the rank's function returns");
    case kolo_context::Kind::process:
      kolo::shutdown();
      break;
    case kolo_context::Kind::separate:
      context->own->shutdown();
      delete context;
      break;
    }
    return KOLO_OK;
  });
}

kolo_status kolo_abandon(kolo_context* context, const char* reason) {
  return guarded([&] {
    live(context).abandon(std::string(given_name(reason, "the reason")));
    return KOLO_OK;
  });
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
  return guarded([&] {
    given(rank, "the place for the rank") = kolo::rank(given_group(group));
    return KOLO_OK;
  });
}

kolo_status kolo_size(const kolo_group* group, int32_t* size) {
  return guarded([&] {
    given(size, "the place for the size") = kolo::size(given_group(group));
    return KOLO_OK;
  });
}

kolo_status kolo_group_of(const kolo_group* parent, const int32_t* ranks, size_t count, const char* name,
                          kolo_group** group) {
  return guarded([&] {
    const kolo::Group& its = given_group(parent);
    kolo_group*& place = given(group, "the place for the group");
    const auto list = given_list(ranks, count, "the list of ranks");
    const std::string its_name = name == nullptr ? "" : name;
    place = std::make_unique<kolo_group>(
                kolo_group{kolo::Group::of(its, std::vector<int>(list.begin(), list.end()), its_name)})
                .release();
    return KOLO_OK;
  });
}

kolo_status kolo_group_split(const kolo_group* parent, int32_t color, int32_t key, kolo_group** group) {
  return guarded([&] {
    const kolo::Group& its = given_group(parent);
    kolo_group*& place = given(group, "the place for the group");
    place = std::make_unique<kolo_group>(kolo_group{its.split(color, key)}).release();
    return KOLO_OK;
  });
}

kolo_status kolo_group_is_member(const kolo_group* group, int32_t* is_member) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    given(is_member, "the place for the answer") = its.is_member() ? 1 : 0;
    return KOLO_OK;
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
    return KOLO_OK;
  });
}

kolo_status kolo_group_release(kolo_group* group) {
  return guarded([&] {
    if (group != nullptr && group->is_world) {
      refuse("this group is the world of a context, and ends with it: release only groups that you have made");
    }
    delete group;
    return KOLO_OK;
  });
}
