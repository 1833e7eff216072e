// SPDX-License-Identifier: Apache-2.0
//
// Worlds that cannot be made, or not by everybody: all ranks hear of it, and nobody waits for one that has given up.
#include <sys/resource.h>

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>

#include <kolo/collectives.hpp>

#include "errors.hpp"

namespace {

using kolo::ErrorCode;
using kolo::testing::sentence_of;

/// Leaves this process so many descriptors more than it has open.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t spare) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(open) - 1 + spare;  // one was for looking
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

/// At whatever step they run out.
TEST(Start, WithoutDescriptorsFailsAtOnceAndSaysWhoLacksThem) {
  int bodies = 0;
  for (rlim_t spare = 0; spare < 12; ++spare) {
    const FewDescriptors few(spare);
    const std::string sentence = sentence_of(ErrorCode::transport, [&] { kolo::run_local(4, [&] { ++bodies; }); });
    const std::string reason = "Too many open files (errno 24)";
    ASSERT_GT(sentence.size(), reason.size());
    EXPECT_EQ(sentence.substr(sentence.size() - reason.size()), reason) << sentence;
    EXPECT_EQ(sentence.substr(0, 5), "rank ") << sentence;
  }
  EXPECT_EQ(bodies, 0);
  kolo::run_local(4, [] { EXPECT_EQ(kolo::allreduce(1, kolo::ReduceOp::sum), 4); });
}

TEST(Start, ABadSettingIsEveryRanks) {
  const auto options = kolo::Options{}.with_setting("KOLO_SLOTS", "many");
  EXPECT_EQ(sentence_of(ErrorCode::invalid_setting, [&] { kolo::run_local(3, [] {}, options); }),
            "rank 0: KOLO_SLOTS is \"many\" (option); expected an integer in the range 0 .. 64");
}

TEST(Start, RingsOfAnySizeInTheirRange) {
  for (const char* size : {"4K", "5000", "4097"}) {
    kolo::run_local(
        2,
        [] {
          for (int i = 0; i < 100; ++i) {
            float x = 1;
            kolo::allreduce("t" + std::to_string(i), kolo::view(&x, {1}));
            EXPECT_EQ(x, 2.0F);
          }
        },
        kolo::Options{}.with_setting("KOLO_MESSAGE_RING", size).with_setting("KOLO_LOG_RING", size));
  }
}

}  // namespace
