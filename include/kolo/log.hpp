// SPDX-License-Identifier: Apache-2.0

/// @file
/// Kolo's log: levels, records, and sinks. By default each record is a line on standard error.
#ifndef KOLO_LOG_HPP
#define KOLO_LOG_HPP

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <kolo/detail/names.hpp>
#include <kolo/export.hpp>

namespace kolo {

/// How important a record is. As a threshold: everything of this level and above is logged; `off` silences the log.
enum class LogLevel : std::uint8_t {
  trace = 0,    ///< every request, when it is submitted and when it is done
  debug = 1,    ///< every batch, and the routes of its parts
  info = 2,     ///< on rank 0: what was found and chosen at the start; plans learned and given up, and why
  warning = 3,  ///< the default: stalls, settings that differ between ranks
  error = 4,    ///< fatal errors, once each
  off = 5,      ///< nothing; no record has this level
};

namespace detail {
inline constexpr std::array<std::string_view, 6> kLogLevelNames{"trace", "debug", "info", "warning", "error", "off"};
}  // namespace detail
/// The level's name as above.
constexpr std::string_view to_string(LogLevel level) noexcept { return detail::name_of(detail::kLogLevelNames, level); }
/// The inverse of `to_string`, which also takes "fatal" (Horovod's word) for `off`; empty when the name is unknown.
constexpr std::optional<LogLevel> parse_log_level(std::string_view name) noexcept {
  return name == "fatal" ? LogLevel::off : detail::value_of<LogLevel>(detail::kLogLevelNames, name);
}

/// One record. `rank` is -1 until the rank is known.
struct LogRecord {
  LogLevel level = LogLevel::info;
  std::chrono::system_clock::time_point time;
  int rank = -1;
  std::string message;  ///< one line or more, without the final newline
};

/// Receives the records of one context. Called from any thread, one call at a time; exceptions that it throws are
/// dropped. A record that it causes itself goes to standard error. It may call Kolo, but must not wait for an operation
/// nor shut the context down.
using LogSink = std::function<void(const LogRecord&)>;

/// The line that the default sink writes, with its newline: "[kolo 3 warning 14:03:27.012] message", in local time.
KOLO_API std::string format_log_line(const LogRecord& record);

}  // namespace kolo

#endif  // KOLO_LOG_HPP
