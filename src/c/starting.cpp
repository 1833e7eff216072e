// SPDX-License-Identifier: Apache-2.0
#include "c/starting.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <kolo/log.hpp>
#include <kolo/store.hpp>

#include "c/arguments.hpp"

namespace kolo::c {
namespace {

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

}  // namespace

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

}  // namespace kolo::c
