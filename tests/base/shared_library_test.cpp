// SPDX-License-Identifier: Apache-2.0
#include "base/shared_library.hpp"

#include <dlfcn.h>

#include <gtest/gtest.h>

#include <string>

namespace kolo::base {
namespace {

TEST(SharedLibrary, IsTheOneThatTheProcessHasLoaded) {
  std::string why;
  void* const own = ::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(open_shared_library("libc.so.6", "nowhere", why), own);
  EXPECT_EQ(why, "");
}

TEST(SharedLibrary, ThatIsNowhereHasTheLoadersReason) {
  std::string why;
  EXPECT_EQ(open_shared_library("libkolo-has-no-such.so.1", "nowhere/lib", why), nullptr);
  EXPECT_NE(why.find("libkolo-has-no-such.so.1"), std::string::npos) << why;
}

}  // namespace
}  // namespace kolo::base
