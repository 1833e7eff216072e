// SPDX-License-Identifier: Apache-2.0
//
// Messages whose tensors lie on a device, on one side or on both: what comes, in which order, what the streams may rely
// on, and what goes wrong.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <kolo/point_to_point.hpp>

#include "tests/data/cuda/gate.hpp"
#include "tests/data/cuda/rank_device.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::cuda::test {
namespace {

struct World {
  const char* name;
  const char* backend;
  const char* per_node;
};

class Messages : public CudaTest {
 protected:
  static Options options(const char* backend = emulated::kIsReal ? "staged" : "nccl", const char* per_node = "0") {
    return CudaTest::options()
        .with_setting("KOLO_GPU_BACKEND", backend)
        .with_setting("KOLO_RANKS_PER_NODE", per_node)
        .with_setting("KOLO_TIMEOUT_S", "60");
  }
};

class EveryMessage : public Messages, public ::testing::WithParamInterface<World> {};

/// Elements of the n-th message of a pair.
Bytes contents(DType dtype, std::int64_t elements, int from, int to, int number) {
  constexpr std::int64_t kPeriod = 100;
  return elements_of(dtype, elements, kPeriod,
                     [=](std::int64_t i) { return (from * 31 + to * 7 + number * 3 + i) % kPeriod; });
}

/// One end of a message, its memory on the device or not.
struct End {
  std::unique_ptr<DeviceTensor> there;
  Bytes here;
  TensorView view;

  End(bool on_device, DType dtype, std::int64_t elements, cudaStream_t stream, std::size_t misalignment)
      : here(on_device ? 0 : static_cast<std::size_t>(elements) * size_of(dtype)),
        view(here.data(), dtype, Shape{elements}) {
    if (!on_device) return;
    there = std::make_unique<DeviceTensor>(dtype, elements, stream, misalignment * size_of(dtype));
    view = there->view();
  }
  void write(const Bytes& bytes) {
    if (there) {
      there->write(bytes);
    } else {
      here = bytes;
      view = TensorView(here.data(), view.dtype(), view.shape());
    }
  }
  [[nodiscard]] Bytes read() const { return there ? there->read() : here; }
};

/// From each rank to each, itself included: every size, from device to device, to the host and from there. Several of a
/// pair have one tag, and come in order. Each rank begins in an order of its own.
void exchange(const Group& group, bool follow_by_stream) {
  constexpr DType kDTypes[] = {DType::float32, DType::int8, DType::float64, DType::bfloat16};
  const std::int64_t kSizes[] = {1, 0, 1000, 300001, 5000, 17};  // nothing, short, several pieces
  const RankStream stream;
  const RankStream other;
  struct Open {
    std::unique_ptr<End> end;
    Handle send;
    Future<Received> receive;
    Bytes wanted;
    std::int64_t elements = 0;
    int peer = 0, tag = 0;
    bool receives = false;
  };
  std::vector<Open> open;
  const int own = rank(group), ranks = size(group);
  for (int distance = 0; distance < ranks; ++distance) {
    for (const bool sends : {own % 2 == 0, own % 2 != 0}) {
      const int peer = sends ? (own + distance) % ranks : (own + ranks - distance) % ranks;
      const int from = sends ? own : peer, to = sends ? peer : own;
      for (int number = 0; number < 6; ++number) {
        const int kind = (from + to + number) % 3;  // which sides lie on the device
        const std::int64_t elements = kSizes[number];
        const DType dtype = kDTypes[number % 4];
        Open one;
        one.peer = peer;
        one.receives = !sends;
        one.tag = number % 2;
        one.elements = elements;
        one.wanted = contents(dtype, elements, from, to, number);
        const bool on_device = kind == 0 || kind == (sends ? 1 : 2);
        one.end = std::make_unique<End>(on_device, dtype, elements + (sends ? 0 : 3), number < 3 ? stream : other,
                                        static_cast<std::size_t>(number % 2));
        if (sends) {
          one.end->write(one.wanted);
          one.send = send_async(group, one.end->view, peer, one.tag);
        } else {
          one.end->write(Bytes((static_cast<std::size_t>(elements) + 3) * size_of(dtype), 0xEE));
          one.wanted.resize(one.wanted.size() + 3 * size_of(dtype), 0xEE);
          one.receive = recv_async(group, one.end->view, peer, one.tag);
        }
        open.push_back(std::move(one));
      }
    }
  }
  for (Open& one : open) {
    if (one.receives) {
      if (one.end->there && follow_by_stream) {
        wait_on(one.receive, static_cast<cudaStream_t>(one.end->view.stream()->native));
        EXPECT_EQ(one.end->read(), one.wanted);
      }
      const Received got = one.receive.get();
      EXPECT_EQ(got.source, one.peer);
      EXPECT_EQ(got.tag, one.tag);
      EXPECT_EQ(got.elements, one.elements);
      emulated::acquire_all();
      EXPECT_EQ(one.end->read(), one.wanted) << "from " << one.peer << ", " << one.elements << " elements";
    } else {
      one.send.wait();
      emulated::acquire_all();
      one.end->write(Bytes(one.wanted.size(), 0xDD));  // the memory is the program's
    }
  }
  stream.synchronize();
  other.synchronize();
}

TEST_P(EveryMessage, ComesWholeAndInOrder) {
  const World& world = GetParam();
  run_local(
      4,
      [] {
        bind();
        for (int round = 0; round < kolo::testing::unless_sanitized(4, 1); ++round) {
          exchange(kolo::world(), round % 2 == 0);
          if (rank() < 3) exchange(Group::of({2, 0, 1}), round % 2 != 0);
          exchange(kolo::world().split(rank() % 2, -rank()), false);
        }
      },
      options(world.backend, world.per_node));
}

INSTANTIATE_TEST_SUITE_P(By, EveryMessage,
                         ::testing::Values(World{"nccl", "nccl", "0"}, World{"staged", "staged", "0"},
                                           World{"nodes", "nccl", "2"}, World{"uneven_nodes", "staged", "3"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(Messages, BesideCollectivesOfTheSameStreams) {
  on_devices(3, options(), [](const RankStream& stream) {
    const DeviceTensor x(DType::int32, 200000, stream);
    const DeviceTensor y(DType::int32, 200000, stream);
    const int right = (rank() + 1) % 3, left = (rank() + 2) % 3;
    for (int step = 0; step < kolo::testing::unless_sanitized(8, 2); ++step) {
      x.write(elements_of(DType::int32, 200000, [=](std::int64_t i) { return i % 50 + rank() + step; }));
      Handle reduced = allreduce_async("x", x.view(), ReduceOp::sum);
      wait_on(reduced, stream);
      // The stream orders all of these: the sum is sent, what has come is reduced, the sum written over.
      Handle sent = send_async(x.view(), right, step);
      Future<Received> got = recv_async(y.view(), left, step);
      wait_on(got, stream);
      Handle again = allreduce_async("y", y.view(), ReduceOp::sum);
      wait_on(sent, stream);
      ok(cudaMemsetAsync(x.data(), 0, x.bytes(), stream));
      wait_on(again, stream);
      const auto wanted =
          elements_of(DType::int32, 200000, [=](std::int64_t i) { return 3 * (3 * (i % 50) + 3 + 3 * step); });
      EXPECT_EQ(y.read(), wanted);
      sent.wait();
      EXPECT_EQ(got.get().elements, 200000);
      reduced.wait();
      again.wait();
      end_step();
    }
  });
}

/// In both directions at once, more than the pieces of pinned memory hold by far.
TEST_F(Messages, LongRingsAndExchangesOfAllPairsEnd) {
  constexpr int kRanks = 3;
  static constexpr std::int64_t kLong =
      kolo::testing::unless_sanitized(emulated::kIsReal ? 64 << 20 : 8 << 20, 3 << 20);
  on_devices(kRanks, options(), [](const RankStream& stream) {
    std::vector<DeviceTensor> out, in;
    std::vector<Handle> handles;
    for (int peer = 0; peer < kRanks; ++peer) {
      out.emplace_back(DType::uint8, kLong, stream);
      in.emplace_back(DType::uint8, kLong, stream);
      ok(cudaMemsetAsync(out.back().data(), 10 * rank() + peer, out.back().bytes(), stream));
      handles.push_back(send_async(out.back().view(), peer));
    }
    for (int peer = 0; peer < kRanks; ++peer) {
      handles.push_back(recv_async(in[static_cast<std::size_t>(peer)].view(), peer));
    }
    wait_all(handles);
    emulated::acquire_all();
    for (int peer = 0; peer < kRanks; ++peer) {
      EXPECT_EQ(in[static_cast<std::size_t>(peer)].read(),
                Bytes(static_cast<std::size_t>(kLong), static_cast<unsigned char>(10 * peer + rank())));
    }
    // A ring of plain sends, with receives open.
    Future<Received> got = recv_async(in[0].view(), (rank() + kRanks - 1) % kRanks);
    send(out[1].view(), (rank() + 1) % kRanks);
    EXPECT_EQ(got.get().elements, kLong);
    emulated::acquire_all();
    EXPECT_EQ(in[0].read(), Bytes(static_cast<std::size_t>(kLong),
                                  static_cast<unsigned char>(10 * ((rank() + kRanks - 1) % kRanks) + 1)));
  });
}

/// By the host. More sends than there are pieces, of streams that have not come to the calls, and receives into such
/// streams.
TEST_F(Messages, WhatIsNotReadyHoldsUpNobody) {
  run_local(
      2,
      [] {
        bind();
        const RankStream held, free;
        constexpr std::int64_t kElements = 1000;
        constexpr int kSends = 6;
        const DeviceTensor x(DType::uint8, kElements, held);
        const DeviceTensor y(DType::uint8, kElements, free);
        const DeviceTensor z(DType::uint8, kElements, free);
        std::vector<DeviceTensor> results;
        for (int i = 0; i < kSends; ++i) results.emplace_back(DType::uint8, kElements, held);
        exchange(world(), false);  // what is allocated with the first of them is there
        barrier();  // ranks of one device share a context, and what the other frees there waits for all its streams
        std::vector<Handle> handles;
        Handle sent;
        Gate before;  // ends first, whatever happens
        before.hold(held);
        ok(cudaMemsetAsync(x.data(), 3, x.bytes(), held));
        for (int i = 0; i < kSends; ++i) {
          handles.push_back(send_async(x.view(), 1 - rank(), 1));
          handles.push_back(recv_async(results[static_cast<std::size_t>(i)].view(), 1 - rank(), 1));
        }
        ok(cudaMemsetAsync(y.data(), 4, y.bytes(), free));
        sent = send_async(y.view(), 1 - rank(), 2);
        EXPECT_EQ(recv(z.view(), 1 - rank(), 2).elements, kElements);
        sent.wait();
        EXPECT_FALSE(handles.front().done());
        before.open();
        wait_all(handles);
        emulated::acquire_all();
        EXPECT_EQ(z.read(), Bytes(kElements, 4));
        for (const auto& result : results) EXPECT_EQ(result.read(), Bytes(kElements, 3));
      },
      options("staged").with_setting("KOLO_TIMEOUT_S", "20"));
}

TEST_F(Messages, WhatDoesNotFitIsToldOnBothSidesAndTheJobGoesOn) {
  on_devices(2, options(), [](const RankStream& stream) {
    const DeviceTensor x(DType::float32, 40000, stream, always(1));
    const DeviceTensor small(DType::float32, 4, stream, always(7));
    const DeviceTensor other(DType::int32, 40000, stream, always(7));
    if (rank() == 0) {
      EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { send(x.view(), 1, 3); }),
                "send of 40000 elements of float32 to rank 1 with tag 3: its receive has room for 4 elements; give "
                "room for as many as are sent");
      EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { send(x.view(), 1, 4); }),
                "send of 40000 elements of float32 to rank 1 with tag 4: its receive is of int32; send and receive "
                "the same type");
    } else {
      EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { recv(small.view(), 0, 3); }),
                "recv of up to 4 elements of float32 from rank 0 with tag 3: the message from rank 0 with tag 3 "
                "has 40000 elements; give room for as many");
      EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { recv(other.view(), 0, 4); }),
                "recv of up to 40000 elements of int32 from rank 0 with tag 4: the message from rank 0 with tag 4 "
                "is of float32; send and receive the same type");
      emulated::acquire_all();
      EXPECT_EQ(small.read(), elements_of(DType::float32, 4, always(7)));
      EXPECT_EQ(other.read(), elements_of(DType::int32, 40000, always(7)));
    }
    exchange(world(), true);
  });
}

/// From and to each kind of memory, in a ring.
TEST_F(Messages, Sendrecv) {
  on_devices(3, options(), [](const RankStream& stream) {
    const int to = (rank() + 1) % 3, from = (rank() + 2) % 3;
    for (const std::int64_t elements : {std::int64_t{0}, std::int64_t{1000}, std::int64_t{300001}}) {
      for (int kind = 0; kind < 4; ++kind) {
        const bool sends_from_device = (kind + rank()) % 2 == 0, receives_there = kind < 2;
        End out(sends_from_device, DType::float32, elements, stream, 0);
        End in(receives_there, DType::float32, elements, stream, 0);
        out.write(contents(DType::float32, elements, rank(), to, kind));
        in.write(Bytes(static_cast<std::size_t>(elements) * 4, 0xEE));
        const Received got = sendrecv(out.view, to, in.view, from);
        EXPECT_EQ(got.source, from);
        EXPECT_EQ(got.elements, elements);
        emulated::acquire_all();
        EXPECT_EQ(in.read(), contents(DType::float32, elements, from, rank(), kind));
      }
    }
    const DeviceTensor x(DType::float32, 1000, stream), y(DType::float32, 1000, stream);
    EXPECT_EQ(sentence_of(ErrorCode::unsupported, [&] { sendrecv(x.view(), to, y.view(), any_rank); }),
              "sendrecv, receiving: it receives into " + to_string(y.view().device()) +
                  " from any rank, which is for memory of the CPU alone; name the rank that sends");
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { sendrecv(x.view(), to, x.view(), from); }),
              "sendrecv: the tensor that it sends and the one that it receives into overlap; give it two");
    stream.synchronize();
  });
}

TEST_F(Messages, ADeadlineOrACancelEndsOneMessageAndTheJobGoesOn) {
  on_devices(2, options(), [](const RankStream& stream) {
    const DeviceTensor x(DType::float32, 1000, stream, always(1));
    const auto soon = std::chrono::milliseconds(20);
    if (rank() == 0) {
      EXPECT_EQ(sentence_of(ErrorCode::expired, [&] { send(x.view(), 1, 5, SendOptions{}.with_timeout(soon)); }),
                "send of 1000 elements of float32 to rank 1 with tag 5: rank 1 has not received it within 0.02 s");
    }
    barrier();  // else the two wait for each other, which the sentence tells
    if (rank() == 1) {
      EXPECT_TRUE(refused(ErrorCode::expired,
                          "recv of up to 1000 elements of float32 from rank 0 with tag 6: no message that fits has "
                          "come within 0.02 s",
                          [&] { recv(x.view(), 0, 6, RecvOptions{}.with_timeout(soon)); }));
      Future<Received> taken_back = recv_async(x.view(), 0, 6);
      EXPECT_TRUE(taken_back.cancel());
      EXPECT_EQ(sentence_of(ErrorCode::cancelled, [&] { taken_back.wait(); }),
                "recv of up to 1000 elements of float32 from rank 0 with tag 6: it was cancelled");
    }
    emulated::acquire_all();
    ok(cudaMemsetAsync(x.data(), 2, x.bytes(), stream));  // nobody touches it any more
    exchange(world(), false);
    stream.synchronize();
  });
}

/// Of a send whose stream has not come to the call.
TEST_F(Messages, ADeadlineEndsASendThatIsNotReady) {
  on_devices(1, options(), [](const RankStream& stream) {
    const DeviceTensor x(DType::float32, 1000, stream);
    std::vector<float> y(1000);
    Gate before;
    before.hold(stream);
    Future<Received> got = recv_async(kolo::view(y), 0);
    EXPECT_EQ(sentence_of(ErrorCode::expired,
                          [&] { send(x.view(), 0, 0, SendOptions{}.with_timeout(std::chrono::milliseconds(20))); }),
              "send of 1000 elements of float32 to rank 0 with tag 0: its data has not gone whole within 0.02 s");
    EXPECT_EQ(sentence_of(ErrorCode::cancelled, [&] { got.wait(); }),
              "recv of up to 1000 elements of float32 from rank 0 with any tag: rank 0 has given up its send "
              "before all the data had come");
    before.open();
    stream.synchronize();
  });
}

TEST_F(Messages, WhatIsRefused) {
  on_devices(2, options(), [](const RankStream& stream) {
    const DeviceTensor x(DType::float32, 3, stream);
    const std::string device = to_string(x.view().device());
    EXPECT_EQ(sentence_of(ErrorCode::unsupported, [&] { recv(x.view()); }),
              "recv: it receives into " + device +
                  " from any rank, which is for memory of the CPU alone; name the rank that sends");
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)recv_async(x.view(), 2); }),
              "recv_async: from is rank 2, but there are 2 ranks; give one from 0 to 1");
    const TensorView away(x.data(), DType::float32, Shape{3}, {DeviceKind::cuda, x.view().device().index + 1});
    EXPECT_EQ(sentence_of(ErrorCode::unsupported, [&] { (void)send_async(away, 0); }),
              "send_async: its tensor lies on " + to_string(away.device()) + ", but this rank uses " + device +
                  ", which kolo::cuda::bind chose; one rank uses one device");
    std::vector<float> y(3);
    Future<Received> open = recv_async(kolo::view(y), rank(), 1);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { wait_on(open, stream); }),
              "wait_on is for operations on tensors of a CUDA device; use wait()");
    ok(cudaMemsetAsync(x.data(), 0, x.bytes(), stream));
    send(x.view(), rank(), 1);
    open.wait();
    EXPECT_EQ(y, std::vector<float>(3, 0));
  });
}

#ifndef KOLO_ON_REAL_DEVICE

using emulated::Failure;

TEST_F(Messages, WithoutADriverAreRefused) {
  emulated::Config config;
  config.driver = false;
  emulated::reset(config);
  Context context;
  std::vector<float> x{1, 2};
  const TensorView away(x.data(), DType::float32, Shape{2}, {DeviceKind::cuda, 0});
  EXPECT_TRUE(refused(ErrorCode::unsupported,
                      "send: its tensor lies on cuda:0, but there is no CUDA device: no NVIDIA driver is installed",
                      [&] { send(context, away, 0); }));
}

/// The memory through which messages go cannot be had: they fail, and the next ones do not.
TEST_F(Messages, FailWithTheDeviceAndCanBeTriedAgain) {
  on_devices(2, options(), [](const RankStream& stream) {
    const DeviceTensor x(DType::float32, 3, stream, always(0));
    if (rank() == 0) {
      emulated::inject({.api = "cudaHostAlloc", .code = cudaErrorMemoryAllocation, .device = 0});
      EXPECT_TRUE(refused(ErrorCode::out_of_memory, "this rank cannot use its GPU: ", [&] { send(x.view(), 1, 9); }));
    }
    barrier();
    exchange(world(), true);
    stream.synchronize();
  });
}

/// By the host. What fails on the way is fatal, as of collectives, and afterwards the memory is the program's.
TEST_F(Messages, AFaultOfTheDeviceEndsAllOfThem) {
  struct Place {
    const char* api;
    std::uint64_t nth;  // a message has 6 pieces: among those of the send, or of the receive
  };
  for (const Place& place : {Place{"cudaMemcpyAsync", 2}, Place{"cudaMemcpyAsync", 8}, Place{"cudaMemcpyAsync", 11},
                             Place{"cudaEventRecord", 3}, Place{"cudaEventRecord", 11}, Place{"cudaEventQuery", 3},
                             Place{"cudaLaunchHostFunc", 3}}) {
    emulated::reset(machine());
    std::atomic<int> failed{0};
    const auto job = [&](const RankStream& stream) {
      const DeviceTensor x(DType::uint8, 3 << 20, stream, always(0));
      const DeviceTensor y(DType::uint8, 3 << 20, stream, always(0));
      exchange(world(), false);
      if (rank() == 1)
        emulated::inject(
            {.api = place.api, .nth = place.nth, .code = cudaErrorUnknown, .and_later = true, .device = 1});
      barrier();
      std::vector<Handle> handles;
      try {
        handles.push_back(send_async(x.view(), 1 - rank()));
        handles.push_back(recv_async(y.view(), 1 - rank()));
        wait_all(handles);
      } catch (const Error&) {
        ++failed;
      }
      for (Handle& handle : handles) {
        try {
          handle.wait();
        } catch (const Error&) {
        }
      }
      emulated::acquire_all();
      if (rank() == 0) {  // the other's device is broken
        ok(cudaMemsetAsync(x.data(), 0, x.bytes(), stream));
        ok(cudaMemsetAsync(y.data(), 0, y.bytes(), stream));
        stream.synchronize();
      }
    };
    try {
      on_devices(2, options("staged").with_setting("KOLO_TIMEOUT_S", "20").with_setting("KOLO_LATCH_TIMEOUT_S", "0.1"),
                 job);
    } catch (const std::exception&) {
    }
    EXPECT_GE(failed, 1) << place.api << " " << place.nth;
    expect_no_reports();
  }
}

/// An exception of the program takes the memory away while messages are open.
TEST_F(Messages, OfADestroyedHandleLeaveItsMemoryAlone) {
  on_devices(2, options(), [](const RankStream& stream) {
    for (const bool sends : {true, false}) {
      try {
        const DeviceTensor x(DType::uint8, 5 << 20, stream, always(0));
        const Handle open = sends ? send_async(x.view(), 1 - rank(), 9) : recv_async(x.view(), 1 - rank(), 8);
        throw std::runtime_error("the program's own");
      } catch (const std::runtime_error&) {
      }
    }
    barrier();
    exchange(world(), true);
  });
}

#endif

}  // namespace
}  // namespace kolo::cuda::test
