// SPDX-License-Identifier: Apache-2.0
#include <kolo/error.hpp>

#include <cerrno>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/system_error.hpp"

namespace kolo {
namespace {

TEST(Status, OkUnlessTold) {
  EXPECT_TRUE(Status().ok());
  const Status status(ErrorCode::timeout, "too late");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), ErrorCode::timeout);
  EXPECT_EQ(status.message(), "too late");
}

TEST(Error, CarriesItsStatus) {
  const Error error(ErrorCode::rank_lost, "rank 3 died");
  EXPECT_STREQ(error.what(), "kolo: rank 3 died");
  EXPECT_EQ(error.code(), ErrorCode::rank_lost);
  const Error again(error.status());
  EXPECT_STREQ(again.what(), "kolo: rank 3 died");
}

TEST(ErrorCode, Names) {
  const std::vector<std::string> names{"ok",
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
  ASSERT_EQ(names.size(), static_cast<std::size_t>(kErrorCodeCount));
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(to_string(static_cast<ErrorCode>(i)), names[i]);
  EXPECT_EQ(to_string(static_cast<ErrorCode>(99)), "unknown");
}

TEST(SystemError, SaysWhichLimitsAThreadMayHaveMet) {
  EXPECT_EQ(
      base::start_remedy(EAGAIN),
      "; a limit of processes and threads was met: raise the user's (ulimit -u) or the container's (pids.max), or "
      "start fewer ranks");
  EXPECT_EQ(base::start_remedy(ENOMEM), "");
}

TEST(SystemError, NamesWhatFailed) {
  EXPECT_EQ(base::errno_text(ENOENT), "No such file or directory (errno 2)");
  try {
    base::throw_errno("opening x", ENOENT);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    EXPECT_EQ(error.status().message(), "opening x: No such file or directory (errno 2)");
  }
}

}  // namespace
}  // namespace kolo
