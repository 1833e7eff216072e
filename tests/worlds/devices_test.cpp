// SPDX-License-Identifier: Apache-2.0
//
// What a library says of GPUs where it has no CUDA part, and that a world has the devices of its process. (With CUDA:
// tests/data/cuda.)
#include <string>

#include <gtest/gtest.h>

#include <kolo/context.hpp>
#include <kolo/devices.hpp>
#include <kolo/error.hpp>

#include "world.hpp"

namespace {

using kolo::testing::run_in;
using kolo::testing::With;

TEST(Devices, WhereThereAreNoneTheReasonIsSaid) {
  const std::string said = kolo::describe_devices();
  if (!kolo::devices().empty()) {
    EXPECT_EQ(said.rfind("GPUs of this machine: ", 0), 0U) << said;
    return;
  }
#ifdef KOLO_HAS_CUDA
  EXPECT_EQ(said.rfind("No CUDA-compatible GPU found.\n  ", 0), 0U) << said;
#else
  EXPECT_EQ(said, "No CUDA-compatible GPU found.\n  this build of Kolo has no CUDA part, and does not look for one\n");
#endif
}

#ifndef KOLO_HAS_CUDA
TEST(Devices, WithoutACudaPartNoneCanBeMadeVisible) {
  try {
    run_in(2, kolo::Options{}.with_visible_devices("0"), [] {});
    ADD_FAILURE() << "not refused";
  } catch (const kolo::Error& error) {
    EXPECT_EQ(error.code(), kolo::ErrorCode::unsupported);
    EXPECT_EQ(error.status().message(), "Options::visible_devices is \"0\", but this build of Kolo has no CUDA part");
  }
}
#endif

}  // namespace
