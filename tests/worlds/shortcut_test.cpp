// SPDX-License-Identifier: Apache-2.0
//
// Unnamed calls that avoid the log, among calls that cannot: every result exact, every rank of one mind, and whatever
// is wrong is said by the log as if there were no other way.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/info.hpp>

#include "errors.hpp"
#include "tests/support/sanitized.hpp"
#include "without_log.hpp"

namespace {

using kolo::AllreduceOptions;
using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::testing::has;
using kolo::testing::sentence_of;

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
  kolo::run_local(
      ranks(),
      [&] {
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
      },
      options());
}

/// What element i of rank r's input is, exact in every type and different from its neighbours.
std::int32_t value(int rank, std::int64_t i, int call) {
  return static_cast<std::int32_t>(rank * 1000003 + i * 7 + call * 13);
}

std::vector<std::int32_t> input_of(int rank, std::int64_t elements, int call) {
  std::vector<std::int32_t> in(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) in[static_cast<std::size_t>(i)] = value(rank, i, call);
  return in;
}

// The inputs are overwritten as soon as a call returns: a peer that still read them would see that.
void broadcast_once(std::int64_t elements, int call) {
  const int root = call % kolo::size();
  std::vector<std::int32_t> x = input_of(kolo::rank(), elements, call);
  std::vector<std::int32_t> out(x.size(), -1);
  if (call % 2 == 0) {
    kolo::broadcast_into(kolo::const_view(x), kolo::view(out), root);
    x.assign(x.size(), -2);
  } else {
    kolo::broadcast(kolo::view(x), root);
    out.swap(x);
  }
  ASSERT_EQ(out, input_of(root, elements, call)) << "call " << call;
}

void reduce_to_root_once(std::int64_t elements, int call) {
  const int root = call % kolo::size();
  const std::vector<std::int32_t> mine = input_of(kolo::rank(), elements, call);
  std::vector<std::int32_t> wanted(mine.size());
  for (int rank = 0; rank < kolo::size(); ++rank) {
    const std::vector<std::int32_t> theirs = input_of(rank, elements, call);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += theirs[i];
  }
  std::vector<std::int32_t> x = mine;
  if (call % 3 == 0) {
    std::vector<std::int32_t> out(mine.size(), -1);
    kolo::reduce_into(kolo::const_view(x), kolo::view(out), root);
    ASSERT_EQ(x, mine) << "call " << call;
    x.assign(x.size(), -2);
    ASSERT_EQ(out, kolo::rank() == root ? wanted : std::vector<std::int32_t>(mine.size(), -1)) << "call " << call;
  } else {
    kolo::reduce(kolo::view(x), root);
    ASSERT_EQ(x, kolo::rank() == root ? wanted : mine) << "call " << call;
    x.assign(x.size(), -2);
  }
}

void gather_once(std::int64_t most, int call) {
  const auto elements_of = [&](int rank) { return most == 0 ? 0 : (call * 31 + rank * 17) % most; };
  std::vector<std::int32_t> in = input_of(kolo::rank(), elements_of(kolo::rank()), call);
  std::vector<std::int32_t> wanted;
  for (int rank = 0; rank < kolo::size(); ++rank) {
    const std::vector<std::int32_t> part = input_of(rank, elements_of(rank), call);
    wanted.insert(wanted.end(), part.begin(), part.end());
  }
  if (call % 2 == 0) {
    const kolo::Tensor result = kolo::allgather(kolo::const_view(in));
    in.assign(in.size(), -2);
    ASSERT_EQ(result.elements(), static_cast<std::int64_t>(wanted.size()));
    ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), static_cast<const std::int32_t*>(result.data())));
    return;
  }
  std::vector<std::int32_t> out(wanted.size(), -1);
  kolo::allgather_into(kolo::const_view(in), kolo::view(out));
  in.assign(in.size(), -2);
  ASSERT_EQ(out, wanted) << "call " << call;
}

void gather_to_root_once(std::int64_t most, int call) {
  const int root = call % kolo::size();
  const auto elements_of = [&](int rank) { return most == 0 ? 0 : (call * 31 + rank * 17) % most; };
  std::vector<std::int32_t> in = input_of(kolo::rank(), elements_of(kolo::rank()), call);
  std::vector<std::int32_t> wanted;
  std::size_t place = 0;
  for (int rank = 0; rank < kolo::size(); ++rank) {
    if (rank == root) place = wanted.size();
    const std::vector<std::int32_t> part = input_of(rank, elements_of(rank), call);
    wanted.insert(wanted.end(), part.begin(), part.end());
  }
  if (kolo::rank() != root) wanted.clear();
  if (call % 3 == 0) {
    const kolo::Tensor result = kolo::gather(kolo::const_view(in), root);
    in.assign(in.size(), -2);
    const auto got = result.as<std::int32_t>();
    ASSERT_EQ(std::vector<std::int32_t>(got.begin(), got.end()), wanted) << "call " << call;
    return;
  }
  std::vector<std::int32_t> out(wanted.size(), -1);
  if (call % 3 == 1 && kolo::rank() == root) {
    std::copy(in.begin(), in.end(), out.begin() + static_cast<std::ptrdiff_t>(place));
    kolo::gather_into(kolo::const_view(out.data() + place, in.size()), kolo::view(out), root);
  } else {
    kolo::gather_into(kolo::const_view(in), kolo::view(out), root);
  }
  in.assign(in.size(), -2);
  ASSERT_EQ(out, wanted) << "call " << call;
}

void scatter_from_root_once(std::int64_t most, int call) {
  const int root = call % kolo::size();
  std::vector<std::int64_t> splits;
  for (int rank = 0; rank < kolo::size(); ++rank)
    splits.push_back(most == 0 ? 0 : call % 3 == 0 ? most / 3 : (call * 31 + rank * 17) % most);
  const auto begin = std::accumulate(splits.begin(), splits.begin() + kolo::rank(), std::int64_t{0});
  const auto count = static_cast<std::size_t>(splits[static_cast<std::size_t>(kolo::rank())]);
  std::vector<std::int32_t> in = input_of(root, std::accumulate(splits.begin(), splits.end(), std::int64_t{0}), call);
  const std::vector<std::int32_t> wanted(in.begin() + begin, in.begin() + begin + static_cast<std::ptrdiff_t>(count));
  if (kolo::rank() != root) in.assign(1, -3);
  std::vector<std::int32_t> out(count, -1);
  if (call % 2 == 0 && kolo::rank() == root) {
    const kolo::TensorView own(in.data() + begin, kolo::DType::int32, kolo::Shape{static_cast<std::int64_t>(count)});
    kolo::scatter_into(kolo::const_view(in), own, root, splits);
    std::copy_n(in.begin() + begin, count, out.begin());
  } else {
    kolo::scatter_into(kolo::const_view(in), kolo::view(out), root, splits);
  }
  in.assign(in.size(), -2);
  ASSERT_EQ(out, wanted) << "call " << call;
}

void exchange_once(std::int64_t block, int call) {
  const int ranks = kolo::size();
  std::vector<std::int32_t> in = input_of(kolo::rank(), block * ranks, call);
  std::vector<std::int32_t> out(in.size(), -1);
  kolo::alltoall_into(kolo::const_view(in), kolo::view(out));
  in.assign(in.size(), -2);
  std::vector<std::int32_t> wanted;
  for (std::int64_t rank = 0, own = kolo::rank(); rank < ranks; ++rank) {
    for (std::int64_t i = own * block; i < (own + 1) * block; ++i) {
      wanted.push_back(value(static_cast<int>(rank), i, call));
    }
  }
  ASSERT_EQ(out, wanted) << "call " << call;
}

void scatter_once(std::int64_t rows, int call) {
  const int ranks = kolo::size();
  std::vector<std::int32_t> in = input_of(kolo::rank(), rows, call);
  const kolo::Tensor out = kolo::reduce_scatter(kolo::const_view(in));
  in.assign(in.size(), -2);
  std::int64_t begin = 0;
  for (int rank = 0; rank < kolo::rank(); ++rank) begin += rows / ranks + (rank < rows % ranks ? 1 : 0);
  ASSERT_EQ(out.elements(), rows / ranks + (kolo::rank() < rows % ranks ? 1 : 0));
  std::vector<std::int32_t> wanted(static_cast<std::size_t>(out.elements()));
  for (std::int64_t i = begin; std::int32_t & sum : wanted) {
    for (int rank = 0; rank < ranks; ++rank) sum += value(rank, i, call);
    ++i;
  }
  const auto got = out.as<std::int32_t>();
  ASSERT_EQ(std::vector<std::int32_t>(got.begin(), got.end()), wanted) << "call " << call;
}

TEST_P(ShortcutCalls, EveryKindInEverySizeIsExact) {
  constexpr int kCalls = kolo::testing::unless_sanitized(300, 120);
  kolo::run_local(
      ranks(),
      [&] {
        std::minstd_rand same(11);
        std::minstd_rand own(static_cast<unsigned>(kolo::rank() + 5));
        for (int call = 0; call < kCalls; ++call) {
          const std::int64_t sizes[] = {0, 1, 5, 8, 13, 14, 15, 200, 4000, 5000, 16384, 16385, 40000};
          const std::int64_t elements = sizes[same() % std::size(sizes)];
          for (unsigned pause = own() % 32 == 0 ? 200 : 0; pause > 0; --pause) std::this_thread::yield();
          switch (same() % 9) {
          case 8:
            scatter_from_root_once(elements, call);
            break;
          case 7:
            gather_to_root_once(elements, call);
            break;
          case 6:
            reduce_to_root_once(elements, call);
            break;
          case 0:
            broadcast_once(elements, call);
            break;
          case 1:
            gather_once(elements, call);
            break;
          case 2:
            exchange_once(elements, call);
            break;
          case 3:
            scatter_once(elements, call);
            break;
          case 4:
            kolo::barrier();
            break;
          default:
            reduce_once<std::int32_t>(static_cast<std::size_t>(elements), call, call % 2 == 0);
          }
          ASSERT_FALSE(testing::Test::HasFatalFailure());
        }
        const auto& settings = GetParam().settings;
        const bool in_haste = settings.count("KOLO_SPIN_US") != 0 || settings.count("KOLO_RANKS_PER_NODE") != 0;
        if (kolo::size() > 1 && !in_haste && !never()) kolo::testing::expect_calls_without_the_log(0);
      },
      options());
}

TEST_P(ShortcutCalls, AnOutputTooSmallIsSaidAndTheOthersGoOn) {
  if (ranks() < 2) return;  // the rank that is wrong is not the only one
  kolo::run_local(
      ranks(),
      [&] {
        for (const std::int64_t elements : {3, 3000, 30000}) {
          std::vector<std::int32_t> in = input_of(kolo::rank(), elements, 1);
          const bool wrong = kolo::rank() == kolo::size() - 1;
          std::vector<std::int32_t> out(static_cast<std::size_t>(elements * kolo::size() - (wrong ? 1 : 0)), -1);
          if (wrong) {
            const std::string sentence = sentence_of(
                ErrorCode::invalid_argument, [&] { kolo::allgather_into(kolo::const_view(in), kolo::view(out)); });
            EXPECT_TRUE(has(sentence, {"output of this allgather has ", "the ranks together gave "}));
          } else {
            kolo::allgather_into(kolo::const_view(in), kolo::view(out));
            EXPECT_EQ(out.back(), value(kolo::size() - 1, elements - 1, 1));
          }
          EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), kolo::size());
        }
      },
      options());
}

TEST_P(ShortcutCalls, ARootedOutputTooSmallIsSaidAndTheOthersGoOn) {
  if (ranks() < 2) return;  // the rank that is wrong is not the only one
  kolo::run_local(
      ranks(),
      [&] {
        const int last = kolo::size() - 1;
        const bool wrong = kolo::rank() == last;
        const auto expect = [&](auto&& call, const char* what) {
          if (!wrong) return call();
          EXPECT_TRUE(has(sentence_of(ErrorCode::invalid_argument, call), {what}));
        };
        for (const std::int64_t elements : {2, 3000, 30000}) {
          std::vector<std::int32_t> in = input_of(kolo::rank(), elements, 1);
          std::vector<std::int32_t> all(static_cast<std::size_t>(elements * kolo::size() - 1), -1);
          expect([&] { kolo::gather_into(kolo::const_view(in), kolo::view(all), last); }, "output of this gather has ");
          in = input_of(0, elements * kolo::size(), 2);
          std::vector<std::int32_t> out(static_cast<std::size_t>(elements - (wrong ? 1 : 0)), -1);
          expect([&] { kolo::scatter_into(kolo::const_view(in), kolo::view(out), 0); }, "output of this scatter has ");
          EXPECT_EQ(out[0], wrong ? -1 : value(0, elements * kolo::rank(), 2));
          EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), kolo::size());
        }
      },
      options());
}

TEST_P(ShortcutCalls, WhoDisagreesIsToldByTheLogAndTheJobGoesOn) {
  if (ranks() < 2) return;  // nobody to disagree with
  std::vector<std::string> said(static_cast<std::size_t>(ranks()));
  kolo::run_local(
      ranks(),
      [&] {
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
      },
      options());
  EXPECT_TRUE(has(said.front(), {"unnamed call number ", "shape", "[4]", "[5]"}));
  for (const std::string& sentence : said) EXPECT_EQ(sentence, said.front());
}

TEST_P(ShortcutCalls, ThreadsOfARankQueue) {
  constexpr int kThreads = 3;
  constexpr int kCalls = 60;
  kolo::run_local(
      ranks(),
      [&] {
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
      },
      options());
}

/// One rank is late for longer than anybody looks; then one leaves, and the others are told so, each in his own time.
TEST_P(ShortcutCalls, TheLateAreWaitedForAndTheGoneAreNamed) {
  std::atomic<std::int64_t> demoted{0};
  kolo::run_local(
      ranks(),
      [&] {
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
          const std::string sentence =
              sentence_of(ErrorCode::rank_lost, [] { (void)kolo::allreduce(1, ReduceOp::sum); });
          EXPECT_TRUE(has(sentence, {"unnamed call number ", ("rank " + std::to_string(last)).c_str()}));
        }
      },
      options());
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
