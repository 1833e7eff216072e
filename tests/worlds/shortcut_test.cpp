// SPDX-License-Identifier: Apache-2.0
//
// Unnamed calls that avoid the log, among calls that cannot: every result exact, every rank of one mind, and whatever
// is wrong is said by the log as if there were no other way.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/info.hpp>

#include "errors.hpp"
#include "tests/support/every_collective.hpp"
#include "tests/support/sanitized.hpp"
#include "without_log.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::testing::has;
using kolo::testing::numbers_of;
using kolo::testing::run_in;
using kolo::testing::sentence_of;

using Numbers = std::vector<std::int32_t>;

struct Form {
  const char* name;
  int ranks;
  std::map<std::string, std::string> settings;
};

class ShortcutCalls : public testing::TestWithParam<Form> {
 protected:
  [[nodiscard]] int ranks() const { return GetParam().ranks; }
  /// Whether no call is small.
  [[nodiscard]] static bool never() {
    const auto routes = GetParam().settings.find("KOLO_ROUTES");
    return routes != GetParam().settings.end() && routes->second == "*:none=small";
  }
  [[nodiscard]] kolo::Options options() const {
    kolo::Options options;
    for (const auto& [name, value] : GetParam().settings) options.with_setting(name, value);
    return options.with_setting("KOLO_TIMEOUT_S", "100");
  }
};

/// Small integers, so that every order of adding gives the same float.
template <class T>
void reduce_once(std::size_t elements, int call, bool in_place) {
  std::vector<T> in(elements);
  for (std::size_t i = 0; i < elements; ++i) in[i] = static_cast<T>((i + static_cast<std::size_t>(call)) % 7 + 1);
  std::vector<T> wanted = in;
  for (const int ranks = kolo::size(); T & x : wanted) x = static_cast<T>(x * ranks);
  std::vector<T> out(elements, T{99});
  if (in_place) {
    out = in;
    kolo::allreduce(kolo::view(out));
  } else {
    const std::vector<T> before = in;
    kolo::allreduce_into(kolo::const_view(in), kolo::view(out));
    ASSERT_EQ(in, before);
  }
  ASSERT_EQ(out, wanted) << "call " << call;
}

TEST_P(ShortcutCalls, EveryResultIsExactWhateverComesBetween) {
  constexpr int kCalls = kolo::testing::unless_sanitized(400, 150);
  run_in(ranks(), options(), [&] {
    std::minstd_rand same(7);  // the same program on every rank, but not at the same pace
    std::minstd_rand own(static_cast<unsigned>(kolo::rank() + 1));
    for (int call = 0; call < kCalls; ++call) {
      const std::size_t sizes[] = {0, 1, 7, 14, 15, 100, 1000, 8192, 8193, 20000};
      const std::size_t elements = sizes[same() % std::size(sizes)];
      const bool in_place = same() % 2 == 0;
      for (unsigned pause = own() % 32 == 0 ? 200 : 0; pause > 0; --pause) std::this_thread::yield();
      switch (same() % 16) {
      case 0:
        kolo::barrier();
        break;
      case 1: {
        std::vector<int> x(3, kolo::rank() == 0 ? call : -1);
        kolo::broadcast(kolo::view(x), 0);
        ASSERT_EQ(x, std::vector<int>(3, call));
        break;
      }
      case 2: {
        float loss = 1;
        kolo::allreduce("a name", kolo::view(&loss, kolo::Shape{}));
        ASSERT_EQ(loss, static_cast<float>(kolo::size()));
        break;
      }
      case 3:
      case 4:
        reduce_once<double>(elements, call, in_place);
        break;
      case 5:
        reduce_once<std::int8_t>(elements, call, in_place);
        break;
      default:
        reduce_once<float>(elements, call, in_place);
      }
    }
    const float mean = kolo::allreduce(static_cast<float>(2 * kolo::rank()), ReduceOp::average);
    EXPECT_EQ(mean, static_cast<float>(kolo::size() - 1));
    EXPECT_EQ(kolo::allreduce(kolo::rank(), ReduceOp::max), kolo::size() - 1);
    if (never()) {
      EXPECT_EQ(kolo::detail::counters().shortcuts, 0U);
    }
  });
}

TEST_P(ShortcutCalls, EveryKindInEverySizeIsExact) {
  constexpr int kCalls = kolo::testing::unless_sanitized(40, 16);
  run_in(ranks(), options(), [&] {
    std::minstd_rand same(11);
    std::minstd_rand own(static_cast<unsigned>(kolo::rank() + 5));
    for (int call = 0; call < kCalls; ++call) {
      const std::int64_t sizes[] = {0, 1, 5, 8, 13, 14, 15, 200, 4000, 5000, 16384, 16385, 40000};
      for (unsigned pause = own() % 4 == 0 ? 200 : 0; pause > 0; --pause) std::this_thread::yield();
      kolo::testing::check_every_collective<std::int32_t>(kolo::world(), sizes[same() % std::size(sizes)], call, "",
                                                          [](const std::string& what) { ADD_FAILURE() << what; });
    }
    const auto& settings = GetParam().settings;
    const bool in_haste = settings.count("KOLO_SPIN_US") != 0 || settings.count("KOLO_RANKS_PER_NODE") != 0;
    if (kolo::size() > 1 && !in_haste && !never()) kolo::testing::expect_calls_without_the_log(0);
  });
}

TEST_P(ShortcutCalls, AnOutputTooSmallIsSaidAndTheOthersGoOn) {
  if (ranks() < 2) return;  // the rank that is wrong is not the only one
  run_in(ranks(), options(), [&] {
    for (const std::int64_t elements : {3, 3000, 30000}) {
      Numbers in = numbers_of<std::int32_t>(kolo::rank(), elements, 1);
      const bool wrong = kolo::rank() == kolo::size() - 1;
      std::vector<std::int32_t> out(static_cast<std::size_t>(elements * kolo::size() - (wrong ? 1 : 0)), -1);
      if (wrong) {
        const std::string sentence = sentence_of(ErrorCode::invalid_argument,
                                                 [&] { kolo::allgather_into(kolo::const_view(in), kolo::view(out)); });
        EXPECT_TRUE(has(sentence, {"output of this allgather has ", "the ranks together gave "}));
      } else {
        kolo::allgather_into(kolo::const_view(in), kolo::view(out));
        EXPECT_EQ(out.back(), numbers_of<std::int32_t>(kolo::size() - 1, elements, 1).back());
      }
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), kolo::size());
    }
  });
}

TEST_P(ShortcutCalls, ARootedOutputTooSmallIsSaidAndTheOthersGoOn) {
  if (ranks() < 2) return;  // the rank that is wrong is not the only one
  run_in(ranks(), options(), [&] {
    const int last = kolo::size() - 1;
    const bool wrong = kolo::rank() == last;
    const auto expect = [&](auto&& call, const char* what) {
      if (!wrong) return call();
      EXPECT_TRUE(has(sentence_of(ErrorCode::invalid_argument, call), {what}));
    };
    for (const std::int64_t elements : {2, 3000, 30000}) {
      Numbers in = numbers_of<std::int32_t>(kolo::rank(), elements, 1);
      std::vector<std::int32_t> all(static_cast<std::size_t>(elements * kolo::size() - 1), -1);
      expect([&] { kolo::gather_into(kolo::const_view(in), kolo::view(all), last); }, "output of this gather has ");
      in = numbers_of<std::int32_t>(0, elements * kolo::size(), 2);
      std::vector<std::int32_t> out(static_cast<std::size_t>(elements - (wrong ? 1 : 0)), -1);
      expect([&] { kolo::scatter_into(kolo::const_view(in), kolo::view(out), 0); }, "output of this scatter has ");
      EXPECT_EQ(out[0], wrong ? -1 : numbers_of<std::int32_t>(0, 1, 2, elements * kolo::rank())[0]);
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), kolo::size());
    }
  });
}

TEST_P(ShortcutCalls, WhoDisagreesIsToldByTheLogAndTheJobGoesOn) {
  if (ranks() < 2) return;  // nobody to disagree with
  std::vector<std::string> said(static_cast<std::size_t>(ranks()));
  run_in(ranks(), options(), [&] {
    const int last = kolo::size() - 1;
    for (int round = 0; round < 20; ++round) {
      std::vector<float> x(kolo::rank() == last ? 5 : 4, 1.0F);
      said[static_cast<std::size_t>(kolo::rank())] =
          sentence_of(ErrorCode::mismatch, [&] { kolo::allreduce(kolo::view(x)); });
      EXPECT_EQ(x, std::vector<float>(x.size(), 1.0F));
      // What only one of the two may avoid the log.
      const std::string kinds = sentence_of(ErrorCode::mismatch, [&] {
        if (kolo::rank() == last) {
          kolo::barrier();
        } else {
          kolo::allreduce(kolo::view(x));
        }
      });
      EXPECT_TRUE(has(kinds, {"unnamed call number ", "barrier"}));
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), kolo::size());
    }
  });
  EXPECT_TRUE(has(said.front(), {"unnamed call number ", "shape", "[4]", "[5]"}));
  for (const std::string& sentence : said) EXPECT_EQ(sentence, said.front());
}

TEST_P(ShortcutCalls, ThreadsOfARankQueue) {
  constexpr int kThreads = 3;
  constexpr int kCalls = 60;
  run_in(ranks(), options(), [&] {
    kolo::Context& context = kolo::current_context();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&context, t] {
        for (int call = 0; call < kCalls; ++call) {
          std::vector<int> x(10, 1);
          if (t == 0) {
            kolo::allreduce({context, "of thread 0"}, kolo::view(x));
          } else {
            kolo::allreduce(context, kolo::view(x));
          }
          ASSERT_EQ(x, std::vector<int>(10, context.size()));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

/// One rank is late for longer than anybody looks; then one leaves, and the others are told so, each in his own time.
TEST_P(ShortcutCalls, TheLateAreWaitedForAndTheGoneAreNamed) {
  std::atomic<std::int64_t> demoted{0};
  run_in(ranks(), options(), [&] {
    const int last = kolo::size() - 1;
    for (int round = 1; round <= 3; ++round) {
      // The others have given up looking when this call of theirs stands in the log.
      if (kolo::rank() == last) {
        while (demoted.load() < round * last) std::this_thread::yield();
      } else {
        const std::uint64_t posted = kolo::detail::counters().messages_posted;
        std::thread watcher([&demoted, posted, &context = kolo::current_context()] {
          while (kolo::detail::counters(context).messages_posted == posted) std::this_thread::yield();
          demoted.fetch_add(1);
        });
        EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), kolo::size());
        watcher.join();
        continue;
      }
      EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), kolo::size());
    }
    if (kolo::rank() == last) return;
    for (int round = 0; round < 3; ++round) {
      const std::string sentence = sentence_of(ErrorCode::rank_lost, [] { (void)kolo::allreduce(1, ReduceOp::sum); });
      EXPECT_TRUE(has(sentence, {"unnamed call number ", ("rank " + std::to_string(last)).c_str()}));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, ShortcutCalls,
                         testing::Values(Form{"One", 1, {}}, Form{"Two", 2, {}}, Form{"Four", 4, {}},
                                         Form{"ThreeWithoutPatience", 3, {{"KOLO_SPIN_US", "0"}}},
                                         Form{"FourInOneLine", 4, {{"KOLO_ROUTES", "*:0-112=small"}}},
                                         Form{"ThreeByTheLog", 3, {{"KOLO_ROUTES", "*:none=small"}}},
                                         Form{"TwoHardlyEverByTheLog", 2, {{"KOLO_ROUTES", "*:0-4M=small"}}},
                                         Form{"FourOnTwoNodes", 4, {{"KOLO_RANKS_PER_NODE", "2"}}}),
                         [](const testing::TestParamInfo<Form>& info) { return info.param.name; });

}  // namespace
