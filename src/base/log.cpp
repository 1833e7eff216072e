// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <array>
#include <cstdio>
#include <ctime>
#include <new>
#include <utility>

#include <unistd.h>

#include "base/files.hpp"
#include "base/quote.hpp"

namespace kolo {
namespace {

std::string time_of_day(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  const auto since_epoch = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  std::tm parts{};
  if (::localtime_r(&seconds, &parts) == nullptr) return "??:??:??.???";
  std::array<char, 48> text{};
  const int length = std::snprintf(text.data(), text.size(), "%02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min,
                                   parts.tm_sec, static_cast<int>(((since_epoch % 1000) + 1000) % 1000));
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace

std::string format_log_line(const LogRecord& record) {
  std::string line = "[kolo ";
  if (record.rank >= 0) line += std::to_string(record.rank) + ' ';
  line += to_string(record.level);
  line += ' ' + time_of_day(record.time) + "] " + record.message + '\n';
  return line;
}

}  // namespace kolo

namespace kolo::base {
namespace {

/// Of a longer message the beginning is logged: texts of programs and of other processes become a part of messages.
constexpr std::size_t kLongestRecord = std::size_t{16} << 10U;

}  // namespace

void write_to_stderr(const LogRecord& record) noexcept {
  try {
    const std::string line = format_log_line(record);
    static_cast<void>(write_all(STDERR_FILENO, line));
  } catch (...) {
    // No memory for the line: logging must not end the program.
    static constexpr std::string_view kLost = "[kolo] a log record was lost for want of memory\n";
    static_cast<void>(write_all(STDERR_FILENO, kLost));
  }
}

Logger::Logger(LogLevel level, int rank, LogSink sink) : level_(level), rank_(rank), sink_(std::move(sink)) {}

void Logger::write(LogLevel level, const std::string& message) const noexcept {
  LogRecord record{level, std::chrono::system_clock::now(), rank_, {}};
  try {
    record.message = one_line(message, kLongestRecord);
  } catch (const std::bad_alloc&) {  // the line says when, and how bad it was
  }
  const MutexLock lock(mutex_);
  if (in_sink_ || !sink_) {
    write_to_stderr(record);
    return;
  }
  in_sink_ = true;
  try {
    sink_(record);
  } catch (...) {
    // The sink has thrown, and the caller must not fail because of that. The record goes to standard error.
    write_to_stderr(record);
  }
  in_sink_ = false;
}

}  // namespace kolo::base
