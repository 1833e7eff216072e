// SPDX-License-Identifier: Apache-2.0
//
// A process that is short of file descriptors.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

namespace kolo::testing {

/// While it lives, this process can open so many descriptors and no more.
class FewDescriptors {
 public:
  explicit FewDescriptors(unsigned left) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit few = before_;
    const int lowest_free = ::open("/dev/null", O_RDONLY);
    EXPECT_GE(lowest_free, 0);
    EXPECT_EQ(::close(lowest_free), 0);
    few.rlim_cur = static_cast<rlim_t>(lowest_free) + left;
    limit_ = few.rlim_cur;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

  [[nodiscard]] std::string limit() const { return std::to_string(limit_); }

 private:
  rlimit before_{};
  rlim_t limit_ = 0;
};

}  // namespace kolo::testing
