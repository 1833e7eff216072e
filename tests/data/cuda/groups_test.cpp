// SPDX-License-Identifier: Apache-2.0
//
// Groups of some ranks on devices: every collective in several groups at once, the one order in which their kernels
// run, groups that come and go, and what ends when a rank is lost or cannot use its device.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

#include <kolo/detail/counters.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>

#include <nccl.h>

#include "tests/data/cuda/any_collective.hpp"
#include "tests/support/random.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::cuda::test {
namespace {

using emulated::Failure;

/// Of the lists, those with this rank.
std::vector<Group> groups_of(const std::vector<std::vector<int>>& lists) {
  std::vector<Group> groups;
  for (const std::vector<int>& list : lists) {
    if (std::count(list.begin(), list.end(), rank()) > 0) groups.push_back(Group::of(list));
  }
  return groups;
}

struct World {
  const char* name;
  const char* backend;
  bool direct;
  const char* per_node;
};

class EveryGroup : public CudaTest, public ::testing::WithParamInterface<World> {};

/// So that with several groups every kind meets every type.
std::vector<AnyArguments> arguments_of(std::size_t group, const World& world) {
  std::vector<AnyArguments> all;
  std::size_t cell = 0;
  for (const core::CollectiveKind kind : kKinds) {
    for (const DType dtype : kTypes) {
      if (++cell % 3 != group % 3) continue;
      AnyArguments arguments;
      arguments.kind = kind;
      arguments.dtype = dtype;
      arguments.op = static_cast<ReduceOp>(cell / 3 % 8);
      arguments.in_place = cell % 2 == 0;
      arguments.rows = world.direct ? 16 : 1 + static_cast<std::int64_t>(cell % 13);
      arguments.width = world.direct ? 16 : 3;
      arguments.root = static_cast<int>(cell);
      arguments.scaled = cell % 4 == 0;
      if (is_supported(arguments, std::string(world.backend) == "nccl")) all.push_back(arguments);
    }
  }
  return all;
}

/// The same names are in flight in all groups at once, and each rank submits in an order of its own.
TEST_P(EveryGroup, EveryCollectiveAndType) {
  constexpr int kSteps = kolo::testing::unless_sanitized(3, 1);
  const World& world = GetParam();
  std::atomic<std::size_t> count{0};
  run_local(
      4,
      [&] {
        bind();
        const RankStream streams[2];
        kolo::testing::Random own = kolo::testing::random_of(11, static_cast<std::uint64_t>(rank()));
        std::vector<Group> groups = groups_of({{0, 1}, {2, 3}, {2, 1, 0}, {0}, {3}, {3, 0, 1, 2}});
        groups.push_back(kolo::world());
        std::vector<AnyCollective> collectives;
        for (const Group& group : groups) {
          // The same number in the group on all its ranks.
          const std::vector<int> members = group.members();
          const auto number = static_cast<std::size_t>(std::accumulate(members.begin(), members.end(), 0));
          const std::vector<AnyArguments> all = arguments_of(number, world);
          for (std::size_t i = 0; i < all.size(); ++i) {
            AnyArguments arguments = all[i];
            arguments.root %= size(group);
            collectives.emplace_back("m" + std::to_string(i), arguments, streams[i % 2], i % 3, group);
          }
        }
        for (int step = 0; step < kSteps; ++step) {
          std::vector<std::size_t> order(collectives.size());
          std::iota(order.begin(), order.end(), 0);
          std::shuffle(order.begin(), order.end(), own);
          std::vector<Handle> handles(collectives.size());
          for (const std::size_t i : order) handles[i] = collectives[i].start(step);
          for (std::size_t i = 0; i < handles.size(); ++i) finish(handles[i], collectives[i], i % 5 == 0);
          for (const AnyCollective& one : collectives) one.expect_result();
          wait_all(handles);
          for (const Group& group : groups) end_step(group);
          count += collectives.size();
        }
        EXPECT_EQ(kolo::detail::counters().device_communicators,
                  std::string(world.backend) == "nccl" ? groups.size() : 0U);
      },
      Options{}
          .with_setting("KOLO_TIMEOUT_S", "60")
          .with_setting("KOLO_GPU_BACKEND", world.backend)
          .with_setting("KOLO_RANKS_PER_NODE", world.per_node)
          .with_setting("KOLO_FUSION_THRESHOLD", "64K")
          .with_setting("KOLO_GPU_DIRECT_BYTES", world.direct ? "1" : "1M"));
  std::printf("%zu collectives of ranks by way of %s\n", count.load(), world.name);
}

INSTANTIATE_TEST_SUITE_P(By, EveryGroup,
                         ::testing::Values(World{"nccl", "nccl", false, "0"}, World{"direct", "nccl", true, "0"},
                                           World{"staged", "staged", false, "0"},
                                           World{"nccl_on_nodes", "nccl", false, "3"},
                                           World{"staged_on_nodes", "staged", false, "2"}),
                         [](const auto& info) { return std::string(info.param.name); });

class Groups : public CudaTest {};

constexpr std::int64_t kElements = 1000;

Bytes all_of(std::int64_t value, std::int64_t elements = kElements) {
  return elements_of(DType::int32, elements, always(value));
}

std::int64_t sum_of(const Group& group) {
  const std::vector<int> members = group.members();
  return std::accumulate(members.begin(), members.end(), std::int64_t{0});
}

/// Collectives of which a device has room for two, of groups that share ranks, given in an order of its own
/// by each rank; and work that needs the results of both.
TEST_F(Groups, CannotDeadlockOnOneDevice) {
  constexpr int kSteps = kolo::testing::unless_sanitized(60, 10);
  for (unsigned seed = 1; seed <= 3; ++seed) {
    emulated::Config config = machine();
    config.collectives_at_a_time = 2;
    config.seed = seed;
    emulated::reset(config);
    on_devices(4, options().with_setting("KOLO_TIMEOUT_S", "20"), [](const RankStream& stream) {
      const std::vector<Group> groups = groups_of({{0, 1, 2}, {3, 2, 1, 0}, {1, 2, 3}, {2, 0}});
      std::vector<DeviceTensor> tensors;
      for (std::size_t i = 0; i < groups.size(); ++i) tensors.emplace_back(DType::int32, kElements, stream);
      const DeviceTensor both(DType::int32, 2 * kElements, stream);
      for (int step = 0; step < kSteps; ++step) {
        std::vector<Handle> handles(groups.size());
        for (std::size_t i = 0; i < groups.size(); ++i) {
          const std::size_t at = (i + static_cast<std::size_t>(rank() + step)) % groups.size();
          tensors[at].write(all_of(rank() + step));
          handles[at] = allreduce_async({groups[at], "x"}, tensors[at].view(), ReduceOp::sum);
        }
        for (Handle& handle : handles) follow(handle, stream);
        // Needs two of them, and is part of a collective of all.
        for (std::size_t half = 0; half < 2; ++half) {
          ok(cudaMemcpyAsync(both.data() + half * tensors[half].bytes(), tensors[half].data(), tensors[half].bytes(),
                             cudaMemcpyDeviceToDevice, stream));
        }
        Handle last = allreduce_async("both", both.view(), ReduceOp::sum);
        follow(last, stream);
        if (step % 10 == 0) {
          for (std::size_t i = 0; i < groups.size(); ++i) {
            EXPECT_EQ(tensors[i].read(), all_of(sum_of(groups[i]) + step * size(groups[i])));
          }
        }
        wait_all(handles);
        last.wait();
      }
    });
    expect_no_reports();
  }
}

std::map<std::string, int> count_live_objects() {
  std::map<std::string, int> counts;
  for (const std::string& object : emulated::live_objects()) ++counts[object.substr(0, object.find(' '))];
  return counts;
}

class ManyGroups : public Groups, public ::testing::WithParamInterface<const char*> {};

TEST_P(ManyGroups, LeaveNothingBehind) {
  constexpr int kRounds = kolo::testing::unless_sanitized(1000, 60);
  constexpr int kWarm = 20;
  const std::size_t communicators = std::string(GetParam()) == "nccl" ? 1 : 0;
  std::map<std::string, int> before;
  std::map<std::string, int> after;
  const Options with = options().with_setting("KOLO_GPU_BACKEND", GetParam()).with_setting("KOLO_GROUPS", "4");
  on_devices(3, with, [&](const RankStream& stream) {
    const DeviceTensor x(DType::int32, kElements, stream);
    const DeviceTensor y(DType::int32, kElements, stream);
    const auto counted = [&](std::map<std::string, int>& counts) {
      while (kolo::detail::counters().device_communicators > communicators) std::this_thread::yield();
      together(0, [&] { counts = count_live_objects(); });
    };
    for (int round = 0; round < kRounds; ++round) {
      std::vector<int> list;
      for (int i = 0; i < 3; ++i) {
        const int one = (round + i) % 3;
        if (one != round % 4) list.push_back(one);
      }
      Handle in_world;
      x.write(all_of(1));
      if (round % 5 == 0) in_world = allreduce_async("x", x.view(), ReduceOp::sum);
      if (std::count(list.begin(), list.end(), rank()) > 0) {
        std::optional<Group> group = Group::of(list);
        const std::int64_t sum = sum_of(*group);
        y.write(all_of(rank()));
        Handle handle = allreduce_async({*group, "x"}, y.view(), ReduceOp::sum);
        if (round % 2 == 0) group.reset();
        follow(handle, stream);
        if (round % 50 == 0) {
          EXPECT_EQ(y.read(), all_of(sum));
        }
        handle.wait();
      }
      if (in_world.valid()) {
        follow(in_world, stream);
        in_world.wait();
      }
      if (round == kWarm) counted(before);
    }
    counted(after);
  });
  // A rank makes the stream of its bell when it first sleeps on the host.
  EXPECT_LE(after["stream"], before["stream"] + 3);
  before["stream"] = after["stream"];
  EXPECT_EQ(before, after);
  if (communicators > 0) {
    EXPECT_EQ(before["communicator"], 3);
  }
  EXPECT_EQ(emulated::calls("ncclCommAbort"), 0U);
  EXPECT_EQ(emulated::calls("ncclCommInitRankConfig"), emulated::calls("ncclCommDestroy"));
  std::printf("%d groups by way of %s, %llu communicators of a rank\n", kRounds, GetParam(),
              static_cast<unsigned long long>(emulated::calls("ncclCommInitRankConfig")));
}

INSTANTIATE_TEST_SUITE_P(By, ManyGroups, ::testing::Values("nccl", "staged"),
                         [](const auto& info) { return std::string(info.param); });

/// A communicator is made and destroyed while nothing of ours occupies the device.
TEST_F(Groups, AreMadeAndEndedBesideNothing) {
  constexpr int kRounds = kolo::testing::unless_sanitized(40, 10);
  emulated::Config config = machine();
  config.report_allocation_hazards = true;
  emulated::reset(config);
  on_devices(3, options(), [](const RankStream& stream) {
    std::vector<DeviceTensor> tensors;
    for (int i = 0; i < 8; ++i) tensors.emplace_back(DType::int32, kElements, stream, always(1));
    const DeviceTensor own(DType::int32, kElements, stream, always(1));
    for (int round = 0; round < kRounds; ++round) {
      std::vector<Handle> handles;
      const auto reduce = [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
          handles.push_back(allreduce_async("x" + std::to_string(i), tensors[i].view(), ReduceOp::max));
        }
      };
      reduce(0, 4);
      if (rank() != round % 3) {
        const Group pair = Group::of({(round + 2) % 3, (round + 1) % 3});
        handles.push_back(allreduce_async({pair, "own"}, own.view(), ReduceOp::max));
      }
      reduce(4, 8);
      wait_all(handles);
    }
    emulated::acquire_all();
    EXPECT_EQ(own.read(), all_of(1));
    barrier();
  });
}

TEST_F(Groups, AGroupOfOneRankAndTheWorldAfterIt) {
  for (const char* backend : {"nccl", "staged"}) {
    on_devices(2, options().with_setting("KOLO_GPU_BACKEND", backend), [](const RankStream& stream) {
      const DeviceTensor x(DType::float32, kElements, stream, [](std::int64_t i) { return i; });
      if (rank() == 0) {  // whatever the other one does
        const Group own = Group::of({0});
        allreduce({own, "x"}, x.view(), AllreduceOptions{}.with_op(ReduceOp::average).with_prescale(2.0));
        broadcast(own, x.view(), 0);
        emulated::acquire_all();
        EXPECT_EQ(x.read(), elements_of(DType::float32, kElements, [](std::int64_t i) { return 2 * i; }));
      }
      allreduce("x", x.view(), ReduceOp::sum);
      emulated::acquire_all();
      EXPECT_EQ(x.read(), elements_of(DType::float32, kElements, [](std::int64_t i) { return 3 * i; }));
    });
  }
}

TEST_F(Groups, InPeaceAllCommunicatorsAreFinalisedAndNoneIsAborted) {
  on_devices(3, options(), [](const RankStream& stream) {
    const DeviceTensor x(DType::int32, kElements, stream, always(1));
    Context& context = current_context();
    const std::vector<Group> groups = groups_of({{0, 1}, {2, 1}, {2, 1, 0}});
    for (const Group& group : groups) allreduce({group, "x"}, x.view(), ReduceOp::max);
    allreduce("x", x.view(), ReduceOp::max);
    EXPECT_EQ(kolo::detail::counters().device_communicators, groups.size() + 1);
    emulated::acquire_all();
    context.shutdown();  // with the groups there
  });
  EXPECT_EQ(emulated::calls("ncclCommFinalize"), 10U);
  EXPECT_EQ(emulated::calls("ncclCommDestroy"), 10U);
  EXPECT_EQ(emulated::calls("ncclCommAbort"), 0U);
}

/// A tensor of an arena of the world is reduced there in a group, too.
TEST_F(Groups, ReduceInTheWorldsArenaWhereItLies) {
  on_devices(4, options(), [](const RankStream& stream) {
    GradientArena arena(1 << 16, own_device());
    const Group pair = Group::of({rank() % 2, rank() % 2 + 2});
    const TensorView tensor = arena.allocate(DType::int32, Shape{kElements}, Stream{stream});
    const std::uint64_t bytes = kElements * sizeof(std::int32_t);
    for (int step = 1; step <= 3; ++step) {
      write(tensor, all_of(rank() + step));
      EXPECT_EQ(result_of(allreduce_async({pair, "x"}, tensor, ReduceOp::sum), tensor),
                all_of(sum_of(pair) + 2 * step));
    }
    EXPECT_EQ(kolo::detail::counters().device_bytes_in_place, 3 * bytes);
    EXPECT_EQ(kolo::detail::counters().device_bytes_packed, 0U);
    emulated::acquire_all();
  });
}

/// Reduced where it lies in the group that has made it, and as any memory in groups with other ranks.
TEST_F(Groups, MakeArenasOfTheirOwn) {
  for (const char* backend : {"nccl", "staged"}) {
    on_devices(4, options().with_setting("KOLO_GPU_BACKEND", backend), [&](const RankStream& stream) {
      const Device device = own_device();
      const std::uint64_t bytes = kElements * sizeof(std::int32_t);
      for (int round = 0; round < 3; ++round) {
        const Group pair = Group::of({rank() % 2 + 2, rank() % 2});
        // Of another size, and with another number.
        const Group part = Group::of({rank() / 2 * 2, rank() / 2 * 2 + 1});
        GradientArena arena(pair, 1 << 16, device);
        GradientArena other(part, std::size_t{1} << (14 + rank() / 2), device);
        const TensorView tensor = arena.allocate(DType::int32, Shape{kElements}, Stream{stream});
        const TensorView second = other.allocate(DType::int32, Shape{kElements}, Stream{stream});
        for (const Group& group : {pair, part, world()}) {
          for (const TensorView& one : {tensor, second}) {
            write(one, all_of(rank() + round));
            const std::uint64_t before = kolo::detail::counters().device_bytes_in_place;
            EXPECT_EQ(result_of(allreduce_async({group, "x"}, one, ReduceOp::sum), one),
                      all_of(sum_of(group) + size(group) * round));
            const bool by_nccl = std::string(backend) == "nccl";
            EXPECT_EQ(kolo::detail::counters().device_bytes_in_place - before, by_nccl ? bytes : 0U) << "it is alone";
          }
        }
        emulated::acquire_all();
      }
    });
  }
}

/// What a member lacks fails the group on all its ranks, with one sentence, and no other group.
TEST_F(Groups, OfRanksThatShareADeviceAreRefusedAndOthersWork) {
  emulated::Config config;
  config.devices = 2;
  emulated::reset(config);
  const std::string sentence =
      "ranks 1 and 0 use the same GPU: give each rank one of its own (kolo::cuda::bind does), or set "
      "KOLO_SHARE_DEVICE=1";
  run_local(
      3,
      [&] {
        ok(cudaSetDevice(rank() / 2));
        const RankStream stream;
        const DeviceTensor x(DType::int32, kElements, stream);
        for (int round = 0; round < 2; ++round) {
          x.write(all_of(rank()));
          if (rank() < 2) {
            const Group same = Group::of({1, 0});
            EXPECT_EQ(sentence_of(ErrorCode::unsupported, [&] { allreduce({same, "x"}, x.view()); }), sentence);
            stream.synchronize();
          }
          barrier();
          if (rank() != 1) {
            const Group apart = Group::of({2, 0});
            EXPECT_EQ(result_of(allreduce_async({apart, "x"}, x.view(), ReduceOp::max), x), all_of(2));
          }
          barrier();
        }
        EXPECT_TRUE(refused(ErrorCode::unsupported, "ranks 0 and 1 use the same", [&] { allreduce("x", x.view()); }));
        stream.synchronize();
      },
      options());
}

/// Rank 0 gives its equipment back when a group fails, but not while another group's communicator is still to be ended.
TEST_F(Groups, OneFailsWhileAnotherEnds) {
  emulated::Config config;
  config.devices = 2;
  emulated::reset(config);
  run_local(
      3,
      [&] {
        ok(cudaSetDevice(rank() / 2));
        const RankStream stream;
        const DeviceTensor x(DType::int32, kElements, stream);
        for (int round = 0; round < 10; ++round) {
          std::vector<Group> groups = groups_of({{0, 1}, {0, 2}});
          if (rank() != 1) {
            x.write(all_of(rank()));
            EXPECT_EQ(result_of(allreduce_async({groups.back(), "x"}, x.view(), ReduceOp::sum), x), all_of(2));
          }
          barrier();
          Handle fails;
          if (rank() < 2) fails = allreduce_async({groups.front(), "x"}, x.view());
          if (rank() != 1) groups.pop_back();
          if (fails.valid()) {
            EXPECT_TRUE(refused(ErrorCode::unsupported, "use the same GPU", [&] { fails.wait(); }));
          }
          stream.synchronize();
          barrier();
        }
      },
      options());
}

TEST_F(Groups, OfARankWithoutMemoryAreRefusedAndOthersWork) {
  for (const char* backend : {"nccl", "staged"}) {
    emulated::reset(machine());
    const Failure failure{.api = std::string(backend) == "nccl" ? "ncclMemAlloc" : "cudaHostAlloc",
                          .nth = 2,
                          .code = std::string(backend) == "nccl" ? static_cast<int>(ncclUnhandledCudaError)
                                                                 : static_cast<int>(cudaErrorMemoryAllocation),
                          .device = 1};
    on_devices(3, options().with_setting("KOLO_GPU_BACKEND", backend), [&](const RankStream& stream) {
      const DeviceTensor x(DType::int32, kElements, stream, always(rank()));
      together(0, [&] { emulated::inject(failure); });
      const std::vector<Group> groups = groups_of({{0, 1}, {2, 0}});
      if (rank() < 2) {
        try {
          allreduce({groups.front(), "x"}, x.view());
          ADD_FAILURE() << "not refused";
        } catch (const Error& error) {
          EXPECT_EQ(error.status().message().find("rank 1 cannot use its GPU: "), 0U) << error.what();
        }
        stream.synchronize();
      }
      if (rank() != 1) {
        EXPECT_EQ(result_of(allreduce_async({groups.back(), "x"}, x.view(), ReduceOp::sum), x), all_of(2));
      }
      barrier();
      // Memory is to be had again: who failed tries again, in the next group.
      x.write(all_of(rank()));
      EXPECT_EQ(result_of(allreduce_async("x", x.view(), ReduceOp::sum), x), all_of(3));
    });
  }
}

/// Kernels of several communicators wait for it, behind one another on the streams of the others.
TEST_F(Groups, APeerThatVanishesInOneOfThemEndsAll) {
  for (const bool is_told : {false, true}) {
    emulated::reset(machine());
    const auto began = std::chrono::steady_clock::now();
    const auto job = [&](const RankStream& stream) {
      const std::vector<Group> groups = groups_of({{0, 1, 2}, {3, 1}, {3, 2, 1, 0}, {0, 2, 3}});
      std::vector<DeviceTensor> tensors;
      for (std::size_t i = 0; i < groups.size(); ++i) {
        tensors.emplace_back(DType::int32, kElements, stream, always(1));
        allreduce({groups[i], "x"}, tensors.back().view(), ReduceOp::max);
      }
      together(1, [&] {
        emulated::inject({.api = "ncclAllReduce",
                          .nth = 2,
                          .code = ncclSuccess,
                          .device = 1,
                          .effect = is_told ? Failure::Effect::lose_peer : Failure::Effect::vanish});
      });
      for (int step = 0; step < 20; ++step) {
        std::vector<Handle> handles;
        for (std::size_t i = 0; i < groups.size(); ++i) {
          handles.push_back(allreduce_async({groups[i], "x"}, tensors[i].view(), ReduceOp::max));
        }
        wait_all(handles);
      }
    };
    const Options with = options().with_setting("KOLO_TIMEOUT_S", is_told ? "100000" : "1");
    expect_error(4, Options(with).with_setting("KOLO_LATCH_TIMEOUT_S", "1"), job);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
    EXPECT_EQ(count_live_objects()["communicator"], 0);
  }
}

/// A call of NCCL fails while a group is made, used or ended.
TEST_F(Groups, AFailureOfNcclEndsTheJobOrChangesNothing) {
  struct Api {
    const char* name;
    bool matters;
  };
  const Api apis[] = {{"ncclGetUniqueId", false},  {"ncclCommInitRankConfig", false}, {"ncclCommGetAsyncError", true},
                      {"ncclCommRegister", false}, {"ncclAllReduce", true},           {"ncclCommFinalize", true},
                      {"ncclCommDestroy", true}};
  for (const Api& api : apis) {
    SCOPED_TRACE(api.name);
    emulated::reset(machine());
    std::atomic<int> refusals{0};
    const auto job = [&](const RankStream& stream) {
      const DeviceTensor x(DType::int32, kElements, stream, always(1));
      allreduce("x", x.view(), ReduceOp::max);
      emulated::acquire_all();
      together(1, [&] { emulated::inject({.api = api.name, .code = ncclSystemError, .device = 1}); });
      for (int round = 0; round < 10; ++round) {
        if (rank() == 0) {
          static_cast<void>(allreduce(kolo::world(), 1, ReduceOp::sum));
          continue;
        }
        const Group pair = Group::of({1, 2});
        try {
          allreduce({pair, "x"}, x.view(), ReduceOp::max);
        } catch (const Error& error) {
          if (error.code() != ErrorCode::unsupported) throw;
          EXPECT_NE(error.status().message().find(" cannot use its GPU"), std::string::npos) << error.what();
          ++refusals;
        }
        static_cast<void>(allreduce(kolo::world(), 1, ReduceOp::sum));
      }
      stream.synchronize();
    };
    const Options with = options().with_setting("KOLO_LATCH_TIMEOUT_S", "1").with_setting("KOLO_TIMEOUT_S", "20");
    if (api.matters) {
      expect_error(3, with, job);
    } else {
      on_devices(3, with, job);
      EXPECT_EQ(refusals.load(), 2);
    }
    if (std::string(api.name) != "ncclCommDestroy") {
      EXPECT_EQ(count_live_objects()["communicator"], 0);
    }
  }
  emulated::reset(machine());
}

}  // namespace
}  // namespace kolo::cuda::test
