// SPDX-License-Identifier: Apache-2.0
//
// What ranks as threads are told of waits in groups and for messages: the warnings while one lasts, and the deadline of
// a group that ranks ask for with different lists. Whole sentences, but for their times.
#include <condition_variable>
#include <mutex>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "tests/support/gate.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::Group;
using kolo::testing::Gate;
using kolo::testing::run_in;
using kolo::testing::sentence_of;

std::string without_times(const std::string& sentence) {
  return std::regex_replace(sentence, std::regex("[0-9.]+ s: "), "N s: ");
}

/// What was warned of, by all ranks together.
class Warnings {
 public:
  kolo::LogSink sink() {
    return [this](const kolo::LogRecord& record) {
      if (record.level != kolo::LogLevel::warning) return;
      const std::lock_guard lock(mutex_);
      said_.insert(without_times(record.message));
      one_more_.notify_all();
    };
  }
  /// Until it was said. A machine that is slow may have more said, of other waits.
  void wait_for(const std::string& sentence) {
    std::unique_lock lock(mutex_);
    const bool is_said = one_more_.wait_for(lock, std::chrono::seconds(60), [&] { return said_.count(sentence) > 0; });
    EXPECT_TRUE(is_said) << sentence << "\nwas not among\n" << ::testing::PrintToString(said_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable one_more_;
  std::set<std::string> said_;
};

/// Rank 0, which warns, is no member.
TEST(Waits, AWarningNamesTheGroup) {
  Warnings warnings;
  Gate gate;
  kolo::Options options = kolo::Options{}.with_setting("KOLO_STALL_WARNING_S", "0.1");
  options.log_sink = warnings.sink();
  run_in(4, options, [&] {
    if (kolo::rank() % 2 == 0) return gate.wait_for(2);
    const std::string group = "group \"pair\" of ranks 1 and 3";
    const std::string is_late = " has waited for N s: rank 3 has not submitted it. Either this rank is slow, or the "
                                "program does not submit it there.";
    const auto come_late = [&warnings](const std::string& sentence) {
      if (kolo::rank() == 3) warnings.wait_for(sentence);
    };
    const Group pair = Group::of({1, 3}, "pair");
    std::vector<float> x{1};

    come_late("tensor \"x\" of " + group + is_late);
    kolo::allreduce({pair, "x"}, kolo::view(x));
    kolo::barrier(pair);
    come_late("unnamed call number 2 (barrier) of " + group + is_late);
    kolo::barrier(pair);
    kolo::allreduce_async(pair, kolo::view(x)).wait();
    come_late("unnamed call number 4 (broadcast) of " + group + is_late);
    kolo::broadcast_async(pair, kolo::view(x), 0).wait();
    come_late("group \"next\" of ranks 1 and 3 has waited for N s: rank 3 has not called Group::of or split for "
              "it. Either this rank is slow, or the program does not ask for a group of the same ranks and name "
              "there.");
    kolo::barrier(Group::of({1, 3}, "next"));
    come_late("the join of " + group +
              " has waited for N s: rank 3 has not joined, and nothing runs. Either this rank is slow, or the "
              "program does not join there.");
    EXPECT_EQ(kolo::join(pair), 1) << "a rank of the group";
    gate.come();
  });
}

/// By the rank that waits, whichever that is: nobody else knows of a message.
TEST(Waits, AMessageThatIsLateIsWarnedOf) {
  for (const char* const per_node : {"0", "1"}) {
    Warnings warnings;
    kolo::Options options =
        kolo::Options{}.with_setting("KOLO_STALL_WARNING_S", "0.1").with_setting("KOLO_RANKS_PER_NODE", per_node);
    options.log_sink = warnings.sink();
    run_in(2, options, [&] {
      std::vector<float> x(100000, 1);
      if (kolo::rank() == 0) {
        warnings.wait_for(
            "recv of up to 100000 elements of float32 from rank 0 with tag 7 has waited for N s: no message that "
            "fits has come. Either rank 0 is slow, or the program does not send it there.");
        kolo::send(kolo::const_view(x), 1, 7);
        kolo::send(kolo::const_view(x), 1, 8);
        EXPECT_GT(kolo::metrics().stalls, 0U);
      } else {
        kolo::recv(kolo::view(x), 0, 7);
        EXPECT_GT(kolo::metrics().stalls, 0U);
        warnings.wait_for(
            "send of 100000 elements of float32 to rank 1 with tag 8 has waited for N s: rank 1 has not received "
            "it. Either rank 1 is slow, or the program does not receive it there.");
        kolo::recv(kolo::view(x), 0, 8);
      }
    });
  }
}

TEST(Waits, GroupsThatAreAskedForWithDifferentLists) {
  Warnings warnings;
  kolo::Options options =
      kolo::Options{}.with_setting("KOLO_TIMEOUT_S", "2").with_setting("KOLO_STALL_WARNING_S", "0.1");
  options.log_sink = warnings.sink();
  run_in(3, options, [&warnings] {
    std::vector<int> list{0, 1, 2};
    if (kolo::rank() == 1) {
      // The others' deadline comes first.
      warnings.wait_for("the group of ranks 0-2 has waited for N s: rank 1 has not called Group::of or split for "
                        "it. Either this rank is slow, or the program does not ask for a group of the same ranks "
                        "and name there.");
      list = {0, 1};
    }
    EXPECT_EQ(without_times(sentence_of(ErrorCode::timeout, [&] { (void)Group::of(list); })),
              "the group of ranks 0-2 has not been made within N s: rank 1 has not called Group::of or split for "
              "it; rank 1 waits for the group of ranks 0 and 1; all ranks of a group must give the same list and "
              "the same name. The contents of the buffers in flight are undefined.");
  });
}

}  // namespace
