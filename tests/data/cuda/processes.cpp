// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes, started by mpirun, on emulated devices that find each other in shared memory: what worlds of
// threads show of the backend, through MPI's bootstrap and a node's real segment. Every rank runs the same tests.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>
#include <kolo/point_to_point.hpp>

#include "tests/data/cuda/any_collective.hpp"

namespace kolo::cuda::test {
namespace {

class Processes : public CudaTest {
 protected:
  void SetUp() override {
    emulated::Config config = machine();
    config.devices = 8;
    config.ranks_are_processes = true;
    emulated::reset(config);
  }
  static Options options(const char* backend) {
    return CudaTest::options()
        .with_setting("KOLO_GPU_BACKEND", backend)
        .with_setting("KOLO_FUSION_THRESHOLD", "64K")
        .with_setting("KOLO_GPU_DIRECT_BYTES", "8K");
  }
};

/// Every collective of every type.
std::vector<AnyArguments> drawn() {
  std::vector<AnyArguments> all;
  for (const core::CollectiveKind kind : kKinds) {
    for (const DType dtype : kTypes) {
      for (const bool in_place : {true, false}) {
        AnyArguments arguments;
        arguments.kind = kind;
        arguments.dtype = dtype;
        arguments.op = static_cast<ReduceOp>(all.size() % 5);
        arguments.in_place = in_place;
        arguments.rows = 1 + static_cast<std::int64_t>(all.size() % 7);
        arguments.width = all.size() % 4 == 0 ? 3000 : 5;
        arguments.root = static_cast<int>(all.size()) % size();
        if (is_supported(arguments, true)) all.push_back(arguments);
      }
    }
  }
  return all;
}

/// In all of these groups at once.
void run_steps(const std::vector<Group>& groups, int steps) {
  const RankStream stream;
  std::vector<AnyCollective> collectives;
  const std::vector<AnyArguments> all = drawn();
  for (const Group& group : groups) {
    for (std::size_t i = 0; i < all.size(); i += groups.size()) {
      AnyArguments arguments = all[i];
      arguments.root %= size(group);
      collectives.emplace_back("c" + std::to_string(i), arguments, stream, i % 2, group);
    }
  }
  for (int step = 0; step < steps; ++step) {
    std::vector<Handle> handles;
    for (AnyCollective& one : collectives) handles.push_back(one.start(step));
    for (std::size_t i = 0; i < handles.size(); ++i) finish(handles[i], collectives[i], i % 7 == 0);
    for (const AnyCollective& one : collectives) one.expect_result();
    wait_all(handles);
    for (const Group& group : groups) end_step(group);
  }
  std::printf("rank %d of %d: %d steps of %zu collectives in %zu groups\n", rank(), size(), steps, collectives.size(),
              groups.size());
}

/// Halves, all in another order, those that have a place of the same parity, and a rank alone: made again and again.
void run_steps_in_groups() {
  std::vector<int> backwards;
  for (int i = size(); i-- > 0;) backwards.push_back(i);
  for (int round = 0; round < 3; ++round) {
    std::vector<Group> groups{Group::of(backwards), world(), world().split(rank() * 2 / size())};
    groups.push_back(world().split(rank() % 2, -rank()));
    groups.push_back(world().split(rank()));
    run_steps(groups, 2);
  }
}

TEST_F(Processes, StepsByNccl) {
  const Session session(options("nccl"));
  bind();
  run_steps({world()}, 10);
}

TEST_F(Processes, StepsByPinnedMemory) {
  const Session session(options("staged"));
  bind();
  run_steps({world()}, 10);
}

TEST_F(Processes, GroupsByNccl) {
  const Session session(options("nccl"));
  bind();
  run_steps_in_groups();
}

TEST_F(Processes, GroupsByPinnedMemory) {
  const Session session(options("staged"));
  bind();
  run_steps_in_groups();
}

/// To each rank and from each, itself included: short, and more than fits into the channel.
void exchange_messages(const Group& group) {
  const RankStream stream;
  constexpr std::int64_t kElements[] = {3, 300001};
  const auto value = [](int from, int to) { return [=](std::int64_t i) { return i % 50 + 10 * from + to; }; };
  for (const std::int64_t elements : kElements) {
    std::vector<DeviceTensor> out, in;
    std::vector<Handle> sends;
    std::vector<Future<Received>> receives;
    for (int peer = 0; peer < size(group); ++peer) {
      out.emplace_back(DType::int32, elements, stream);
      in.emplace_back(DType::int32, elements, stream);
      out.back().write(elements_of(DType::int32, elements, 50, value(rank(group), peer)));
      sends.push_back(send_async(group, out.back().view(), peer, 3));
      receives.push_back(recv_async(group, in.back().view(), peer, 3));
    }
    for (int peer = 0; peer < size(group); ++peer) {
      Future<Received>& receive = receives[static_cast<std::size_t>(peer)];
      if (peer % 2 == 0) wait_on(receive, stream);
      EXPECT_EQ(receive.get().elements, elements);
      emulated::acquire_all();
      EXPECT_EQ(in[static_cast<std::size_t>(peer)].read(),
                elements_of(DType::int32, elements, 50, value(peer, rank(group))));
    }
    wait_all(sends);
    emulated::acquire_all();
  }
}

/// In a ring, in both directions at once, once the devices have found each other.
TEST_F(Processes, MessagesFromDeviceToDevice) {
  constexpr int kMostRounds = 100000;
  constexpr int kMessages = 20;
  const Session session(options("nccl"));
  bind();
  const RankStream stream;
  const int right = (rank() + 1) % size(), left = (rank() + size() - 1) % size();
  std::vector<DeviceTensor> out, in;
  for (int i = 0; i < 2 * kMessages; ++i) {
    out.emplace_back(DType::int32, 1 + 3000 * (i % kMessages), stream);
    in.emplace_back(DType::int32, 1 + 3000 * (i % kMessages), stream);
  }
  /// The first so many to the right, and as many to the left.
  const auto exchange_some = [&](int messages, int round) {
    const auto value = [round](int from, int number) {
      return [=](std::int64_t i) { return i % 50 + from + number + round; };
    };
    std::vector<Handle> handles;
    const auto each = [&](const auto& what) {
      for (int i = 0; i < messages; ++i) {
        for (const int way : {0, 1})
          what(static_cast<std::size_t>(way * kMessages + i), way == 0 ? right : left, way == 0 ? left : right, i);
      }
    };
    each([&](std::size_t at, int to, int, int number) {
      out[at].write(elements_of(DType::int32, 1 + 3000 * number, 50, value(rank(), number)));
      handles.push_back(send_async(out[at].view(), to, to == right ? 1 : 2));
    });
    each([&](std::size_t at, int to, int from, int) {
      in[at].write(Bytes(in[at].bytes(), 0xEE));
      handles.push_back(recv_async(in[at].view(), from, to == right ? 1 : 2));
      wait_on(handles.back(), stream);
    });
    each([&](std::size_t at, int, int from, int number) {
      EXPECT_EQ(in[at].read(), elements_of(DType::int32, 1 + 3000 * number, 50, value(from, number)));
    });
    wait_all(handles);
    emulated::acquire_all();
    stream.synchronize();
  };
  const auto passed_in = [&](int messages, int round) {
    const std::uint64_t before = emulated::calls("ncclRecv");
    exchange_some(messages, round);
    return static_cast<int>(emulated::calls("ncclRecv") - before);
  };
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<int> least{passed_in(1, round)};
    allreduce("least", kolo::view(least), ReduceOp::min);
    if (least[0] == 2) break;
  }
  EXPECT_EQ(passed_in(kMessages, 7), 2 * kMessages);
  std::printf("rank %d of %d: %d messages to either side\n", rank(), size(), kMessages);
}

TEST_F(Processes, Messages) {
  for (const char* backend : {"nccl", "staged"}) {
    const Session session(options(backend).with_setting("KOLO_RANKS_PER_NODE", *backend == 'n' ? "0" : "2"));
    bind();
    exchange_messages(world());
    exchange_messages(world().split(rank() % 2, -rank()));
  }
}

TEST_F(Processes, AnArena) {
  const Session session(options("nccl"));
  const Device device{DeviceKind::cuda, bind()};
  const RankStream stream;
  GradientArena arena(1 << 16, device);
  const TensorView tensor = arena.allocate(DType::float32, Shape{3001}, Stream{stream});
  for (int step = 0; step < 5; ++step) {
    const auto input = elements_of(DType::float32, 3001, [&](std::int64_t i) {
      return exact::value_of(DType::float32, ReduceOp::average, i + step, rank(), size());
    });
    write(tensor, input);
    EXPECT_EQ(result_of(allreduce_async("x", tensor, AllreduceOptions{}.with_op(ReduceOp::average)), tensor),
              elements_of(DType::float32, 3001, [&](std::int64_t i) {
                return exact::reduced_value(DType::float32, ReduceOp::average, i + step, size());
              }));
    emulated::acquire_all();
  }
  EXPECT_EQ(metrics().bytes_in_place, 5U * 3001U * 4U);
}

}  // namespace
}  // namespace kolo::cuda::test
