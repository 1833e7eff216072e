// SPDX-License-Identifier: Apache-2.0
//
// Calls that end before the other ranks have made them: by `Handle::abandon`, and by a deadline. From then on the
// memory is the caller's: it is poisoned, the other ranks make the call after all, and none of them gets a result, nor
// is anything written into the poison.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "tests/support/gate.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::testing::Gate;
using kolo::testing::has;
using kolo::testing::run_in;
using kolo::testing::sentence_of;

constexpr float kPoison = -77;
constexpr std::chrono::milliseconds kSoon{50};
constexpr std::chrono::seconds kLate{60};

/// Memory of one rank, as much for each rank of the group.
struct Memory {
  Memory(const kolo::Group& group, kolo::Span<float> all)
      : ranks(static_cast<std::size_t>(kolo::size(group))), count(all.size() / (2 * ranks) * ranks),
        in(all.data(), count), out(all.data() + count, count) {
    fill(1);
  }
  void fill(float value) {
    std::fill(in.begin(), in.end(), value);
    std::fill(out.begin(), out.end(), value);
  }
  [[nodiscard]] bool is_all(float value) const {
    const auto is_it = [value](float x) { return x == value; };
    return std::all_of(in.begin(), in.end(), is_it) && std::all_of(out.begin(), out.end(), is_it);
  }
  [[nodiscard]] kolo::TensorView share(kolo::Span<float> of) const { return kolo::view(of.data(), count / ranks); }

  std::size_t ranks;
  std::size_t count;
  kolo::Span<float> in;
  kolo::Span<float> out;
  mutable std::optional<kolo::Prepared> prepared;
};

using Start = std::function<kolo::Handle(const kolo::Group&, const Memory&, std::chrono::nanoseconds timeout)>;

struct Case {
  const char* name;
  Start start;
};

template <class Options>
Options within(std::chrono::nanoseconds timeout) {
  return Options{}.with_timeout(timeout);
}

const std::vector<Case> kCases = {
    {"allreduce",
     [](const kolo::Group& group, const Memory& m, auto timeout) {
       return kolo::allreduce_async(group, kolo::view(m.in), within<kolo::AllreduceOptions>(timeout));
     }},
    {"named_allreduce",
     [](const kolo::Group& group, const Memory& m, auto timeout) {
       return kolo::allreduce_async({group, "x"}, kolo::view(m.in), within<kolo::AllreduceOptions>(timeout));
     }},
    {"prepared_allreduce",
     [](const kolo::Group& group, const Memory& m, auto timeout) {
       m.prepared.emplace(kolo::prepare(
           {group, "x"}, kolo::Call::allreduce(kolo::view(m.in), within<kolo::AllreduceOptions>(timeout))));
       return m.prepared->start();
     }},
    {"grouped",
     [](const kolo::Group& group, const Memory& m, auto timeout) {
       const auto options = within<kolo::AllreduceOptions>(timeout);
       return kolo::grouped_async({group, "x"}, {kolo::Call::allreduce(kolo::view(m.in), options),
                                                 kolo::Call::allreduce(kolo::view(m.out), options)});
     }},
    {"reduce",
     [](const kolo::Group& group, const Memory& m, auto timeout) {
       return kolo::reduce_async(group, kolo::view(m.in), 0, within<kolo::ReduceOptions>(timeout));
     }},
    {"broadcast",
     [](const kolo::Group& group, const Memory& m, auto timeout) {
       return kolo::broadcast_async(group, kolo::view(m.in), 0, within<kolo::BroadcastOptions>(timeout));
     }},
    {"allgather",
     [](const kolo::Group& group, const Memory& m, auto timeout) {
       return kolo::allgather_into_async(group, m.share(m.in), kolo::view(m.out),
                                         within<kolo::AllgatherOptions>(timeout));
     }},
    {"reduce_scatter",
     [](const kolo::Group& group, const Memory& m, auto timeout) {
       return kolo::reduce_scatter_into_async(group, kolo::view(m.in), m.share(m.out),
                                              within<kolo::ReduceScatterOptions>(timeout));
     }},
    {"alltoall",
     [](const kolo::Group& group, const Memory& m, auto timeout) {
       return kolo::alltoall_into_async(group, kolo::view(m.in), kolo::view(m.out), {},
                                        within<kolo::AlltoallOptions>(timeout));
     }},
    {"gather",
     [](const kolo::Group& group, const Memory& m, auto timeout) {
       return kolo::gather_into_async(group, m.share(m.in), kolo::view(m.out), 0, within<kolo::GatherOptions>(timeout));
     }},
    {"scatter",
     [](const kolo::Group& group, const Memory& m, auto timeout) {
       return kolo::scatter_into_async(group, kolo::view(m.in), m.share(m.out), 0, {},
                                       within<kolo::ScatterOptions>(timeout));
     }},
};

enum class Place { own, arena };
enum class Way { abandon, deadline };

/// Kind of call, elements for each rank, whose memory, ranks per (virtual) node, and how it ends.
using Form = std::tuple<std::size_t, std::size_t, Place, int, Way>;

kolo::Options quiet(int per_node = 0) {
  return kolo::Options{}
      .with_setting("KOLO_RANKS_PER_NODE", std::to_string(per_node))
      .with_log_sink([](const kolo::LogRecord&) {});
}

class Abandoned : public testing::TestWithParam<Form> {};

TEST_P(Abandoned, NobodyGetsAResultOfItsMemory) {
  const auto& [which, each, place, per_node, way] = GetParam();
  constexpr int kRanks = 3;
  const Case& call = kCases[which];
  const std::size_t count = 2 * each * kRanks;
  Gate ready, gone, followed;
  run_in(kRanks, quiet(per_node), [&, each = each, place = place, way = way] {
    const kolo::Group group = kolo::Group::of({2, 0, 1});
    std::vector<float> own(count);
    std::optional<kolo::GradientArena> arena;
    kolo::Span<float> all(own.data(), count);
    if (place == Place::arena) {
      arena.emplace(group, 2 * count * sizeof(float));
      all = kolo::Span<float>(
          static_cast<float*>(arena->allocate(kolo::DType::float32, {static_cast<std::int64_t>(count)}).data()), count);
    }
    Memory memory(group, all);
    ready.come();
    ready.wait_for(kRanks);
    if (kolo::rank() != 1) {
      gone.wait_for(1);
      const std::string sentence = sentence_of(way == Way::abandon ? ErrorCode::user_exception : ErrorCode::timeout,
                                               [&] { call.start(group, memory, kLate).wait(); });
      EXPECT_TRUE(has(sentence, {way == Way::abandon ? "rank 1 left the job because of an exception: enough"
                                                     : "has not completed within"}));
      followed.come();
      return;
    }
    std::string sentence;
    if (way == Way::abandon) {
      kolo::Handle handle = call.start(group, memory, kLate);
      handle.abandon("enough");
      EXPECT_TRUE(handle.done());
      memory.fill(kPoison);
      handle.abandon("once more");
      sentence = sentence_of(ErrorCode::user_exception, [&] { handle.wait(); });
      EXPECT_TRUE(has(sentence, {"rank 1 left the job because of an exception: enough"}));
    } else {
      sentence = sentence_of(ErrorCode::timeout, [&] { call.start(group, memory, kSoon).wait(); });
      memory.fill(kPoison);
      EXPECT_TRUE(has(sentence, {"has not completed within"}));
    }
    gone.come();
    followed.wait_for(kRanks - 1);
    EXPECT_TRUE(memory.is_all(kPoison));
    EXPECT_EQ(sentence_of(way == Way::abandon ? ErrorCode::user_exception : ErrorCode::timeout,
                          [&] { call.start(group, memory, kLate).wait(); }),
              sentence);
    EXPECT_TRUE(memory.is_all(kPoison));
  });
}

/// Without a name these wait without the log first, for as long as a peer takes that is on its way.
TEST(BlockingCalls, ThatHaveTimedOutUseTheirMemoryNoMore) {
  const std::vector<std::function<void(const Memory&, std::chrono::nanoseconds)>> calls = {
      [](const Memory& m, auto timeout) { kolo::allreduce(kolo::view(m.in), within<kolo::AllreduceOptions>(timeout)); },
      [](const Memory& m, auto timeout) { kolo::reduce(kolo::view(m.in), 0, within<kolo::ReduceOptions>(timeout)); },
      [](const Memory& m, auto timeout) {
        kolo::broadcast(kolo::view(m.in), 1, within<kolo::BroadcastOptions>(timeout));
      },
      [](const Memory& m, auto timeout) {
        kolo::allgather_into(m.share(m.in), kolo::view(m.out), within<kolo::AllgatherOptions>(timeout));
      },
      [](const Memory& m, auto timeout) {
        kolo::alltoall_into(kolo::view(m.in), kolo::view(m.out), {}, within<kolo::AlltoallOptions>(timeout));
      },
      [](const Memory& m, auto timeout) {
        kolo::allreduce("x", kolo::view(m.in), within<kolo::AllreduceOptions>(timeout));
      },
  };
  for (const auto& call : calls) {
    for (const std::size_t each : {3, 300000}) {
      Gate gone, followed;
      run_in(2, quiet(), [&] {
        std::vector<float> all(4 * each);
        Memory memory(kolo::world(), all);
        if (kolo::rank() == 0) {
          gone.wait_for(1);
          EXPECT_TRUE(has(sentence_of(ErrorCode::timeout, [&] { call(memory, kLate); }), {"rank 0 has not"}));
          return followed.come();
        }
        EXPECT_TRUE(has(sentence_of(ErrorCode::timeout, [&] { call(memory, kSoon); }), {"rank 0 has not"}));
        memory.fill(kPoison);
        gone.come();
        followed.wait_for(1);
        EXPECT_TRUE(memory.is_all(kPoison));
      });
    }
  }
}

/// Unlike a collective it ends alone. Short ones are sent whole; the receiver of a long one takes it where it lies.
TEST(AbandonedMessages, EndAloneAndUseTheirMemoryNoMore) {
  for (const int per_node : {0, 1}) {
    for (const std::size_t count : {2, 300000}) {
      Gate taken_back;
      run_in(2, quiet(per_node), [&, count = count] {
        std::vector<float> x(count, static_cast<float>(kolo::rank() + 1));
        if (kolo::rank() == 0) {
          kolo::Future<kolo::Received> receive = kolo::recv_async(kolo::view(x), 1, 1);
          receive.abandon("no longer of interest");
          std::fill(x.begin(), x.end(), kPoison);
          EXPECT_EQ(sentence_of(ErrorCode::user_exception, [&] { receive.wait(); }), "no longer of interest");
          taken_back.come();
          std::vector<float> other(count);
          kolo::recv(kolo::view(other), 1, 1);
          EXPECT_EQ(other, std::vector<float>(count, 2.0F));
          EXPECT_EQ(x, std::vector<float>(count, kPoison));

          std::vector<float> sent(1 << 20, 5.0F);
          kolo::Handle send = kolo::send_async(kolo::const_view(sent), 1, 2);
          send.abandon("too late");
          EXPECT_EQ(sentence_of(ErrorCode::user_exception, [&] { send.wait(); }), "too late");
          std::fill(sent.begin(), sent.end(), kPoison);
          taken_back.come();
        } else {
          taken_back.wait_for(1);
          kolo::send(kolo::const_view(x), 0, 1);
          taken_back.wait_for(2);
          std::vector<float> room(1 << 20, 3.0F);
          EXPECT_THROW(kolo::recv(kolo::view(room), 0, 2, kolo::RecvOptions{}.with_timeout(kSoon)), kolo::Error);
          EXPECT_EQ(room, std::vector<float>(1 << 20, 3.0F));
        }
        EXPECT_EQ(kolo::allreduce(1, kolo::ReduceOp::sum), 2);
      });
    }
  }
}

/// What is done, or has nobody to wait for, does not end the job.
TEST(AbandonedHandles, ThatAreDoneStayAsTheyAre) {
  kolo::Context alone = kolo::Context::alone();
  std::vector<float> x{1, 2};
  kolo::Handle handle = kolo::allreduce_async(alone, kolo::view(x));
  handle.abandon("enough");
  EXPECT_TRUE(handle.status()->ok());
  handle.abandon("enough");
  EXPECT_EQ(kolo::allreduce(alone, 1, kolo::ReduceOp::sum), 1);
  EXPECT_THROW(kolo::Handle().abandon("enough"), kolo::Error);
}

std::string name_of(const testing::TestParamInfo<Form>& info) {
  const auto& [which, each, place, per_node, way] = info.param;
  return std::string(kCases[which].name) + "_" + std::to_string(each) + (place == Place::arena ? "_arena" : "") +
         (per_node == 0 ? "" : "_on_nodes") + (way == Way::abandon ? "" : "_deadline");
}

INSTANTIATE_TEST_SUITE_P(Kinds, Abandoned,
                         testing::Combine(testing::Range(std::size_t{0}, kCases.size()),
                                          testing::Values(std::size_t{100000}), testing::Values(Place::own),
                                          testing::Values(0, 1), testing::Values(Way::abandon, Way::deadline)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Small, Abandoned,
                         testing::Combine(testing::Values(std::size_t{0}, std::size_t{1}),
                                          testing::Values(std::size_t{3}), testing::Values(Place::own),
                                          testing::Values(0), testing::Values(Way::abandon, Way::deadline)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Arenas, Abandoned,
                         testing::Combine(testing::Values(std::size_t{0}, std::size_t{1}, std::size_t{3}),
                                          testing::Values(std::size_t{100000}), testing::Values(Place::arena),
                                          testing::Values(0, 1), testing::Values(Way::abandon, Way::deadline)),
                         name_of);

}  // namespace
