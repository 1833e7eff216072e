// SPDX-License-Identifier: Apache-2.0
//
// A context's log. There is no process-wide log: code that logs gets a Logger, by reference or shared_ptr.
#pragma once

#include <memory>
#include <ostream>
#include <string>

#include <kolo/log.hpp>

#include "base/check.hpp"
#include "base/mutex.hpp"
#include "base/text.hpp"

/// KOLO_LOG(logger, info) << "anything that streams"; `logger` is a Logger&, the level one of LogLevel's names.
/// Below the logger's level nothing on the line is evaluated.
#define KOLO_LOG(logger, level_name)                                                                                   \
  __builtin_expect((logger).enabled(::kolo::LogLevel::level_name), 0) == 0                                             \
      ? static_cast<void>(0)                                                                                           \
      : ::kolo::base::detail::Voidify() &                                                                              \
            ::kolo::base::detail::LogLine((logger), ::kolo::LogLevel::level_name).stream()

namespace kolo::base {

/// Writes a record to standard error, as one line in one write(2), so that lines of many ranks do not mix.
void write_to_stderr(const LogRecord& record) noexcept;

/// Safe to use from any number of threads. Never throws while logging.
class Logger {
 public:
  /// An empty sink is standard error.
  explicit Logger(LogLevel level = LogLevel::warning, int rank = -1, LogSink sink = {});
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  [[nodiscard]] bool enabled(LogLevel level) const noexcept { return level >= level_ && level < LogLevel::off; }
  [[nodiscard]] LogLevel level() const noexcept { return level_; }
  /// Passes one line, of at most 16 KiB, to the sink, whatever the level: KOLO_LOG checks `enabled` first.
  void write(LogLevel level, const std::string& message) const noexcept;

 private:
  const LogLevel level_;
  const int rank_;
  const LogSink sink_;  // called with the mutex; empty: standard error

  // Recursive, because a sink may log itself, for example through code that it calls.
  mutable RecursiveMutex mutex_;
  mutable bool in_sink_ KOLO_GUARDED_BY(mutex_) = false;
};

namespace detail {

/// Gathers one record; its destructor passes it to the logger.
class LogLine {
 public:
  LogLine(const Logger& logger, LogLevel level) : logger_(logger), level_(level) {}
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;
  ~LogLine() { logger_.write(level_, text_.str()); }

  std::ostream& stream() noexcept { return text_; }

 private:
  const Logger& logger_;
  Text text_;
  LogLevel level_;
};

}  // namespace detail
}  // namespace kolo::base
