// SPDX-License-Identifier: Apache-2.0

/// @file
/// Errors. A failure that Kolo does not cause (a rank that died, a tensor that a rank did not submit, a wrong argument)
/// is an `Error`. A broken invariant of Kolo's own aborts the process with a message.
#ifndef KOLO_ERROR_HPP
#define KOLO_ERROR_HPP

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <kolo/detail/names.hpp>
#include <kolo/export.hpp>

namespace kolo {

/// Why a call failed. "Retry" says whether the same call may succeed later in the same job.
enum class ErrorCode : std::uint8_t {
  ok = 0,
  invalid_argument = 1,  ///< at the call; nothing was sent. Retry: with corrected arguments.
  duplicate_name = 2,    ///< the name is in flight already. Retry: once the first submission has completed.
  mismatch = 3,          ///< ranks disagree about this tensor; fails on every rank. Retry: yes, the job goes on; not
                         ///< where the sentence says "this call is done" (collectives.hpp).
  unsupported = 4,       ///< no backend does this (dtype, op, device). Retry: no.
  not_initialized = 5,   ///< no context: `init` was not called, or `shutdown` was. Retry: after `init`.
  invalid_setting = 6,   ///< a bad value in the environment or the options. Retry: `init` with a good one.
  timeout = 7,           ///< a deadline passed: a fatal error. Retry: no; save and leave.
  rank_lost = 8,         ///< another rank's process died, or left the job: a fatal error. Retry: no; save and leave.
  shut_down = 9,         ///< the engine was shut down before the operation ran. Retry: no.
  transport = 10,        ///< MPI, TCP or the system failed: a fatal error. Retry: no.
  user_exception = 11,   ///< a rank's own code threw and left the job: a fatal error. Retry: no.
  out_of_memory = 12,    ///< no memory for the start, a result or an arena; a job that runs goes on. Retry: with less.
  io = 13,               ///< a file cannot be read or written (a full disk); the job goes on. Retry: once it can.
  expired = 14,          ///< the deadline of a send or a receive, or of a group that was to be made (`fails_alone`),
                         ///< passed; the job goes on. Retry: yes.
  cancelled = 15,        ///< a receive was cancelled, or a message given up by the other side. Retry: yes.
};
/// How many codes there are.
inline constexpr int kErrorCodeCount = 16;

namespace detail {
inline constexpr std::array<std::string_view, kErrorCodeCount> kErrorCodeNames{"ok",
                                                                               "invalid_argument",
                                                                               "duplicate_name",
                                                                               "mismatch",
                                                                               "unsupported",
                                                                               "not_initialized",
                                                                               "invalid_setting",
                                                                               "timeout",
                                                                               "rank_lost",
                                                                               "shut_down",
                                                                               "transport",
                                                                               "user_exception",
                                                                               "out_of_memory",
                                                                               "io",
                                                                               "expired",
                                                                               "cancelled"};
static_assert(!kErrorCodeNames.back().empty(), "one name a code");
}  // namespace detail
/// The code's name as above: "rank_lost".
constexpr std::string_view to_string(ErrorCode code) noexcept { return detail::name_of(detail::kErrorCodeNames, code); }
/// Whether an operation that ends with this code ends the job, too: timeout, rank_lost, transport, user_exception.
/// Then every later call of its context fails with the same error: save and leave. After all other codes the job goes
/// on.
[[nodiscard]] constexpr bool is_fatal(ErrorCode code) noexcept {
  return code == ErrorCode::timeout || code == ErrorCode::rank_lost || code == ErrorCode::transport ||
         code == ErrorCode::user_exception;
}

/// The outcome of an operation: `ok`, or a code and one sentence that names the tensor, what was given and what would
/// be right. After a fatal error the contents of the buffers in flight are undefined, and the sentence says so.
class Status {
 public:
  Status() noexcept = default;
  Status(ErrorCode code, std::string message) : message_(std::move(message)), code_(code) {}

  [[nodiscard]] bool ok() const noexcept { return code_ == ErrorCode::ok; }
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

 private:
  std::string message_;
  ErrorCode code_ = ErrorCode::ok;
};

/// The exception that a call or `wait()` throws. `what()` is "kolo: <sentence>".
class KOLO_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  explicit Error(const Status& status);
  ~Error() override;

  [[nodiscard]] ErrorCode code() const noexcept { return status_.code(); }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

 private:
  Status status_;
};

}  // namespace kolo

#endif  // KOLO_ERROR_HPP
