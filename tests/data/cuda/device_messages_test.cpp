// SPDX-License-Identifier: Apache-2.0
//
// Messages that go from device to device, by NCCL: what comes, in which order, who waits for whom, and what goes wrong.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nccl.h>

#include <kolo/detail/counters.hpp>
#include <kolo/point_to_point.hpp>

#include "tests/data/cuda/gate.hpp"
#include "tests/data/cuda/rank_device.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::cuda::test {
namespace {

using Directions = std::vector<std::pair<int, int>>;

class DeviceMessages : public CudaTest {
 protected:
  static Options options() { return CudaTest::options().with_setting("KOLO_GPU_BACKEND", "nccl"); }
  static Options with_timeout(const char* seconds) {
    return options().with_setting("KOLO_TIMEOUT_S", seconds).with_setting("KOLO_LATCH_TIMEOUT_S", "0.1");
  }
};

/// Messages that devices have passed to each other so far, of all ranks.
std::uint64_t passed() { return emulated::calls("ncclRecv"); }

/// How many messages the devices pass while all ranks do this.
template <class Body>
std::uint64_t passed_while(const Body& body) {
  barrier();
  const std::uint64_t before = passed();
  barrier();
  body();
  barrier();
  const std::uint64_t after = passed();
  barrier();
  return after - before;
}

/// Sends a message in each of these directions, until the devices pass all of them.
void introduce(const Directions& directions, cudaStream_t stream) {
  constexpr int kMostRounds = 100000;
  const DeviceTensor x(DType::uint8, 1, stream, always(1));
  std::vector<DeviceTensor> in;
  for (std::size_t i = 0; i < directions.size(); ++i) in.emplace_back(DType::uint8, 1, stream);
  std::uint64_t by_device = 0;
  for (int round = 0; by_device < directions.size() && round < kMostRounds; ++round) {
    by_device = passed_while([&] {
      std::vector<Handle> handles;
      for (std::size_t i = 0; i < directions.size(); ++i) {
        const auto [from, to] = directions[i];
        if (rank() == from) handles.push_back(send_async(x.view(), to, 77));
        if (rank() == to) handles.push_back(recv_async(in[i].view(), from, 77));
      }
      wait_all(handles);
    });
  }
  EXPECT_EQ(by_device, directions.size());
  ok(cudaStreamSynchronize(stream));
  emulated::acquire_all();
}

/// The n-th message of a direction.
Bytes contents(DType dtype, std::int64_t elements, int from, int to, int number) {
  constexpr std::int64_t kPeriod = 100;
  return elements_of(dtype, elements, kPeriod,
                     [=](std::int64_t i) { return (from * 31 + to * 7 + number * 3 + i) % kPeriod; });
}
Bytes poison(const DeviceTensor& tensor) { return Bytes(tensor.bytes(), 0xEE); }

const std::int64_t kSizes[] = {1, 17, 1000, 5000, 300001, kolo::testing::unless_sanitized(9 << 20, 1 << 20)};

/// Each rank sends all before it receives anything, and nothing but streams keeps the order.
TEST_F(DeviceMessages, BothDirectionsAtOnce) {
  on_devices(2, options(), [](const RankStream& stream) {
    const int peer = 1 - rank();
    introduce({{0, 1}, {1, 0}}, stream);
    constexpr DType kDTypes[] = {DType::float32, DType::int8, DType::float64, DType::bfloat16, DType::int16};
    const auto before = kolo::detail::counters();
    const std::uint64_t by_device = passed_while([&] {
      std::vector<DeviceTensor> out, in;
      std::vector<Handle> sends;
      std::vector<Future<Received>> receives;
      int number = 0;
      for (const std::int64_t elements : kSizes) {
        const DType dtype = kDTypes[number % 5];
        out.emplace_back(dtype, elements, stream, static_cast<std::size_t>(number % 2) * size_of(dtype));
        out.back().write(contents(dtype, elements, rank(), peer, number++));
        sends.push_back(send_async(out.back().view(), peer));
      }
      number = 0;
      for (const std::int64_t elements : kSizes) {
        in.emplace_back(kDTypes[number % 5], elements + 3, stream);
        in.back().write(poison(in.back()));
        receives.push_back(recv_async(in.back().view(), peer));
        ++number;
      }
      number = 0;
      for (std::size_t i = 0; i < receives.size(); ++i, ++number) {
        wait_on(receives[i], stream);
        const Received got = received(receives[i]);
        EXPECT_EQ(got.elements, kSizes[i]);
        EXPECT_EQ(got.source, peer);
        Bytes wanted = contents(kDTypes[i % 5], kSizes[i], peer, rank(), number);
        wanted.resize(wanted.size() + 3 * size_of(kDTypes[i % 5]), 0xEE);
        EXPECT_EQ(in[i].read(), wanted) << kSizes[i] << " elements";
      }
      for (std::size_t i = 0; i < sends.size(); ++i) {
        wait_on(sends[i], stream);
        out[i].write(poison(out[i]));  // the stream may write again
      }
      wait_all(sends);
      for (Future<Received>& receive : receives) receive.wait();
      stream.synchronize();
      emulated::acquire_all();
    });
    EXPECT_EQ(by_device, 2 * std::size(kSizes));
    const auto after = kolo::detail::counters();
    EXPECT_EQ(after.device_exchanges, before.device_exchanges);
    EXPECT_EQ(after.messages_sent - before.messages_sent, std::size(kSizes));
    EXPECT_EQ(after.messages_received - before.messages_received, std::size(kSizes));
  });
}

/// Activations go forward and gradients back, by streams alone: no host waits for a device on the way.
TEST_F(DeviceMessages, APipelineForwardAndBack) {
  static constexpr int kRanks = 4, kMicrobatches = 5;
  static constexpr std::int64_t kElements = 20000;
  on_devices(kRanks, options(), [](const RankStream& stream) {
    const int next = rank() + 1, previous = rank() - 1;
    introduce({{0, 1}, {1, 2}, {2, 3}, {3, 2}, {2, 1}, {1, 0}}, stream);
    const std::uint64_t by_device = passed_while([&] {
      std::vector<DeviceTensor> forward, back;
      std::vector<Handle> handles;
      for (int i = 0; i < kMicrobatches; ++i) {
        forward.emplace_back(DType::int32, kElements, stream);
        back.emplace_back(DType::int32, kElements, stream);
        forward.back().write(rank() == 0 ? contents(DType::int32, kElements, 0, 9, i) : poison(forward.back()));
        back.back().write(poison(back.back()));
      }
      const auto pass = [&](const DeviceTensor& tensor, int from, int to, int tag) {
        if (from >= 0 && from < kRanks) {
          handles.push_back(recv_async(tensor.view(), from, tag));
          wait_on(handles.back(), stream);
        }
        if (to >= 0 && to < kRanks) handles.push_back(send_async(tensor.view(), to, tag));
      };
      const auto at = [](std::vector<DeviceTensor>& all, int i) -> DeviceTensor& {
        return all[static_cast<std::size_t>(i)];
      };
      for (int i = 0; i < kMicrobatches; ++i) pass(at(forward, i), previous, next, i);
      for (int i = kMicrobatches; i-- > 0;) {
        if (rank() == kRanks - 1) {
          ok(cudaMemcpyAsync(at(back, i).data(), at(forward, i).data(), at(back, i).bytes(), cudaMemcpyDeviceToDevice,
                             stream));
        }
        pass(at(back, i), next, previous, i);
      }
      for (int i = 0; i < kMicrobatches; ++i)
        EXPECT_EQ(at(back, i).read(), contents(DType::int32, kElements, 0, 9, i)) << "microbatch " << i;
      wait_all(handles);
      emulated::acquire_all();
    });
    EXPECT_EQ(by_device, 2U * kMicrobatches * (kRanks - 1));
  });
}

TEST_F(DeviceMessages, TagsAreTakenInTheOrderOfTheReceives) {
  on_devices(2, options(), [](const RankStream& stream) {
    constexpr int kTags = 6;
    introduce({{0, 1}}, stream);
    const std::uint64_t by_device = passed_while([&] {
      std::vector<DeviceTensor> tensors;
      std::vector<Handle> handles;
      for (int i = 0; i < 2 * kTags; ++i) {
        const int tag = rank() == 0 ? i % kTags : kTags - 1 - i % kTags;
        const int number = i / kTags * kTags + tag;  // those of one tag come in their order
        tensors.emplace_back(DType::int32, 100 + number, stream);
        if (rank() == 0) {
          tensors.back().write(contents(DType::int32, 100 + number, 0, 1, number));
          handles.push_back(send_async(tensors.back().view(), 1, tag));
        } else {
          tensors.back().write(poison(tensors.back()));
          handles.push_back(recv_async(tensors.back().view(), 0, tag));
        }
      }
      for (int i = 0; rank() == 1 && i < 2 * kTags; ++i) {
        const int number = i / kTags * kTags + kTags - 1 - i % kTags;
        wait_on(handles[static_cast<std::size_t>(i)], stream);
        EXPECT_EQ(tensors[static_cast<std::size_t>(i)].read(), contents(DType::int32, 100 + number, 0, 1, number));
      }
      wait_all(handles);
      emulated::acquire_all();
    });
    EXPECT_EQ(by_device, 2U * kTags);
  });
}

/// Of one tag, in their order, whichever sides lie on devices; nothing at all among them.
TEST_F(DeviceMessages, AmongThoseOfTheHost) {
  on_devices(2, options(), [](const RankStream& stream) {
    constexpr int kMessages = 24;
    introduce({{0, 1}, {1, 0}}, stream);
    const int peer = 1 - rank();
    std::vector<std::unique_ptr<DeviceTensor>> there;
    std::vector<Bytes> here(2 * kMessages);
    std::vector<Handle> handles;
    const auto elements_of_number = [](int number) { return number % 5 == 4 ? 0 : std::int64_t{number} * 700 + 3; };
    const std::uint64_t by_device = passed_while([&] {
      for (int i = 0; i < 2 * kMessages; ++i) {
        const int number = i % kMessages;
        const bool sends = i < kMessages;
        const bool on_device = number % 4 == 0 || number % 4 == (sends ? 1 : 2);
        const std::int64_t elements = elements_of_number(number);
        const Bytes first = sends ? contents(DType::int32, elements, rank(), peer, number)
                                  : Bytes(static_cast<std::size_t>(elements) * 4, 0xEE);
        TensorView view(nullptr, DType::int32, Shape{0});
        if (on_device) {
          there.push_back(std::make_unique<DeviceTensor>(DType::int32, elements, stream));
          there.back()->write(first);
          view = there.back()->view();
        } else {
          there.push_back(nullptr);
          here[static_cast<std::size_t>(i)] = first;
          view = TensorView(here[static_cast<std::size_t>(i)].data(), DType::int32, Shape{elements});
        }
        handles.push_back(sends ? send_async(view, peer) : Handle(recv_async(view, peer)));
      }
      wait_all(handles);
      emulated::acquire_all();
    });
    for (int number = 0; number < kMessages; ++number) {
      const auto at = static_cast<std::size_t>(kMessages + number);
      EXPECT_EQ(there[at] ? there[at]->read() : here[at],
                contents(DType::int32, elements_of_number(number), peer, rank(), number))
          << number;
    }
    EXPECT_EQ(by_device, 2U * 5);  // of six whose both sides are on a device one is empty
    stream.synchronize();
  });
}

/// A message that is not ready holds up those behind it in its direction, and nothing else.
TEST_F(DeviceMessages, WhatIsNotReadyHoldsUpItsDirectionAlone) {
  on_devices(3, with_timeout("60"), [](const RankStream& free) {
    const RankStream held;
    introduce({{0, 1}, {1, 0}, {0, 2}, {2, 0}, {1, 2}}, free);
    const DeviceTensor late(DType::int32, 1000, held, always(1)), next(DType::int32, 1000, free, always(2));
    const DeviceTensor sum(DType::int32, 1000, free, always(1)), other(DType::int32, 1000, free, always(4));
    std::vector<DeviceTensor> in;
    Handle first = allreduce_async("sum", sum.view());  // makes the world's communicator, for which devices are empty
    wait_on(first, free);
    first.wait();
    held.synchronize();
    emulated::acquire_all();
    std::vector<Handle> behind;
    Gate gate;  // ends first, whatever happens
    if (rank() == 0) {
      gate.hold(held);
      ok(cudaMemsetAsync(late.data(), 5, late.bytes(), held));
      behind.push_back(send_async(late.view(), 1, 1));
      behind.push_back(send_async(next.view(), 1, 2));
    } else if (rank() == 1) {
      behind.push_back(recv_async(late.view(), 0, 1));
      behind.push_back(recv_async(next.view(), 0, 2));
    }
    for (Handle& handle : behind) wait_on(handle, held);  // which no host waits for
    std::vector<Handle> beside;
    beside.push_back(allreduce_async("sum", sum.view()));
    for (const auto& [from, to] : Directions{{1, 0}, {0, 2}, {2, 0}, {1, 2}}) {
      if (rank() == from) beside.push_back(send_async(other.view(), to));
      if (rank() != to) continue;
      in.emplace_back(DType::int32, 1000, free, always(0));
      beside.push_back(recv_async(in.back().view(), from));
    }
    for (Handle& handle : beside) EXPECT_TRUE(handle.wait_for(std::chrono::seconds(20)));
    emulated::acquire_all();
    EXPECT_EQ(sum.read(), elements_of(DType::int32, 1000, always(9)));
    for (const DeviceTensor& one : in) EXPECT_EQ(one.read(), elements_of(DType::int32, 1000, always(4)));
    for (const Handle& handle : behind) EXPECT_FALSE(handle.done());
    barrier();
    gate.open();
    wait_all(behind);
    wait_all(beside);
    emulated::acquire_all();
    if (rank() == 1) {
      EXPECT_EQ(late.read(), Bytes(4000, 5));
      EXPECT_EQ(next.read(), elements_of(DType::int32, 1000, always(2)));
    }
    free.synchronize();
  });
}

/// In the log everything has its place: a communicator is made while a message to one of its ranks waits for a
/// collective that comes later.
TEST_F(DeviceMessages, AGroupIsMadeBesideAMessageThatWaits) {
  emulated::Config config = machine();
  config.report_allocation_hazards = true;
  emulated::reset(config);
  on_devices(3, options(), [](const RankStream& stream) {
    introduce({{2, 1}, {1, 2}}, stream);
    const RankStream own;
    const DeviceTensor x(DType::int32, 1000, stream, always(1)), y(DType::int32, 1000, own, always(4));
    const DeviceTensor in(DType::int32, 1000, own, always(0));
    Handle received, of_pair;
    if (rank() == 1) received = recv_async(in.view(), 2);
    std::optional<Group> pair;
    if (rank() < 2) pair = Group::of({0, 1});
    if (pair) of_pair = allreduce_async({*pair, "first of the pair"}, y.view());
    Handle sum = allreduce_async("sum", x.view());
    wait_on(sum, stream);
    if (rank() == 2) send(x.view(), 1);
    if (rank() == 1) {
      EXPECT_EQ(result_of(std::move(received), in), elements_of(DType::int32, 1000, always(3)));
    }
    if (pair) {
      EXPECT_EQ(result_of(std::move(of_pair), y), elements_of(DType::int32, 1000, always(8)));
    }
    sum.wait();
    stream.synchronize();
    own.synchronize();
    emulated::acquire_all();
  });
}

/// Those of all groups go one after another; the order of each group's own is kept.
TEST_F(DeviceMessages, OfGroups) {
  on_devices(3, options(), [](const RankStream& stream) {
    introduce({{0, 1}, {1, 0}, {2, 0}}, stream);
    const Group turned = Group::of({2, 0, 1});
    std::optional<Group> pair;
    if (rank() < 2) pair = Group::of({1, 0});
    const std::uint64_t by_device = passed_while([&] {
      std::vector<DeviceTensor> tensors;
      std::vector<Handle> handles;
      const auto begin = [&](const Group& group, int from, int to, int number) {
        tensors.emplace_back(DType::int32, 500, stream);
        if (rank(group) == from) {
          tensors.back().write(contents(DType::int32, 500, from, to, number));
          handles.push_back(send_async(group, tensors.back().view(), to));
        } else {
          tensors.back().write(poison(tensors.back()));
          handles.push_back(recv_async(group, tensors.back().view(), from));
        }
      };
      for (int number = 0; number < 4; ++number) {
        if (rank() < 2) begin(world(), 0, 1, number);
        if (rank() < 2) begin(turned, 1, 2, 10 + number);
        if (pair) begin(*pair, 0, 1, 20 + number);
        if (rank() != 1) begin(turned, 0, 1, 30 + number);
      }
      wait_all(handles);
      emulated::acquire_all();
      if (rank() == 1) {
        for (std::size_t number = 0; number < 4; ++number) {
          EXPECT_EQ(tensors[3 * number].read(), contents(DType::int32, 500, 0, 1, static_cast<int>(number)));
          EXPECT_EQ(tensors[3 * number + 1].read(), contents(DType::int32, 500, 1, 2, 10 + static_cast<int>(number)));
        }
      }
      if (rank() == 0) {
        for (std::size_t number = 0; number < 4; ++number) {
          EXPECT_EQ(tensors[4 * number + 2].read(), contents(DType::int32, 500, 0, 1, 20 + static_cast<int>(number)));
          EXPECT_EQ(tensors[4 * number + 3].read(), contents(DType::int32, 500, 0, 1, 30 + static_cast<int>(number)));
        }
      }
      stream.synchronize();
    });
    EXPECT_EQ(by_device, 16U);
  });
}

TEST_F(DeviceMessages, EndByDeadlinesAndCancelsAsOthersDo) {
  on_devices(2, options(), [](const RankStream& stream) {
    const auto soon = std::chrono::milliseconds(20);
    introduce({{0, 1}, {1, 0}}, stream);
    const DeviceTensor x(DType::float32, 1000, stream, always(1));
    const DeviceTensor small(DType::float32, 4, stream, always(7));
    if (rank() == 0) {
      EXPECT_TRUE(refused(ErrorCode::expired, "rank 1 has not received it within 0.02 s",
                          [&] { send(x.view(), 1, 5, SendOptions{}.with_timeout(soon)); }));
      EXPECT_TRUE(refused(ErrorCode::mismatch, "its receive has room for 4 elements", [&] { send(x.view(), 1, 6); }));
    } else {
      EXPECT_TRUE(
          refused(ErrorCode::mismatch, "has 1000 elements; give room for as many", [&] { recv(small.view(), 0, 6); }));
      EXPECT_TRUE(refused(ErrorCode::expired, "no message that fits has come within 0.02 s",
                          [&] { recv(x.view(), 0, 7, RecvOptions{}.with_timeout(soon)); }));
      Future<Received> taken_back = recv_async(x.view(), 0, 7);
      EXPECT_TRUE(taken_back.cancel());
      EXPECT_TRUE(refused(ErrorCode::cancelled, "it was cancelled", [&] { taken_back.wait(); }));
      EXPECT_EQ(small.read(), elements_of(DType::float32, 4, always(7)));
    }
    emulated::acquire_all();
    ok(cudaMemsetAsync(x.data(), 2, x.bytes(), stream));  // nobody touches it any more
    introduce({{0, 1}, {1, 0}}, stream);
    stream.synchronize();
  });
}

/// A send is given up while its receiver's answer may be on its way: either both have it, or neither, and the next ones
/// match.
TEST_F(DeviceMessages, GivenUpAtAnyMoment) {
  const int rounds = kolo::testing::unless_sanitized(200, 40);
  on_devices(2, options(), [rounds](const RankStream& stream) {
    introduce({{0, 1}}, stream);
    const DeviceTensor x(DType::int32, 1000, stream), y(DType::int32, 1000, stream);
    int came = 0;
    for (int round = 0; round < rounds; ++round) {
      const auto deadline = std::chrono::microseconds(1 + round % 10 * 20);
      const DeviceTensor& tensor = rank() == 0 ? x : y;
      tensor.write(rank() == 0 ? contents(DType::int32, 1000, 0, 1, round) : poison(y));
      barrier();
      bool is_here = true;
      try {
        if (rank() == 0) {
          Handle sent = send_async(x.view(), 1, 1, SendOptions{}.with_timeout(deadline));
          sent.wait();
        } else {
          recv(y.view(), 0, 1, RecvOptions{}.with_timeout(std::chrono::milliseconds(30)));
        }
      } catch (const Error& error) {
        is_here = false;
        EXPECT_TRUE(error.code() == ErrorCode::expired || error.code() == ErrorCode::cancelled)
            << error.status().message();
      }
      emulated::acquire_all();
      if (rank() == 1) {
        EXPECT_EQ(y.read(), is_here ? contents(DType::int32, 1000, 0, 1, round) : poison(y));
      }
      stream.synchronize();
      came += is_here ? 1 : 0;
      barrier();
      // A later one is not taken for it.
      if (rank() == 0) send(x.view(), 1, 2);
      if (rank() == 1) recv(y.view(), 0, 2);
      emulated::acquire_all();
      if (rank() == 1) {
        EXPECT_EQ(y.read(), contents(DType::int32, 1000, 0, 1, round));
      }
      std::vector<int> counts{rank() == 0 ? came : 0, rank() == 1 ? came : 0};
      allreduce("came", kolo::view(counts));
      EXPECT_EQ(counts[0], counts[1]);
    }
    std::printf("rank %d: %d of %d messages came in time\n", rank(), came, rounds);
  });
}

/// A rank ends by an exception while its send waits for its stream: the receiver hears of it, and has its memory back.
TEST_F(DeviceMessages, ARankThatEndsAmidOne) {
  for (const bool sends : {true, false}) {
    const auto body = [sends](const RankStream& stream) {
      introduce({{0, 1}, {1, 0}}, stream);
      const DeviceTensor x(DType::uint8, 1 << 20, stream, always(0));
      const DeviceTensor y(DType::uint8, 1 << 20, stream, always(0));
      const bool is_sender = (rank() == 1) == sends;
      Gate gate;
      if (rank() == 1) gate.hold(stream);
      Handle open = is_sender ? send_async(x.view(), 1 - rank()) : Handle(recv_async(x.view(), 1 - rank()));
      wait_on(open, stream);
      Handle matched = is_sender ? Handle(recv_async(y.view(), 1 - rank())) : send_async(y.view(), 1 - rank());
      wait_on(matched, stream);
      barrier();
      if (rank() == 1) {
        const Opened opened{gate};
        throw std::runtime_error("the program's own");
      }
      EXPECT_THROW(
          {
            for (;;) allreduce("never", x.view());
          },
          Error);
      for (Handle* handle : {&open, &matched}) {
        try {
          handle->wait();
        } catch (const Error&) {
        }
      }
      emulated::acquire_all();
      ok(cudaMemsetAsync(x.data(), 0, x.bytes(), stream));
      ok(cudaMemsetAsync(y.data(), 0, y.bytes(), stream));
      stream.synchronize();
    };
    EXPECT_ANY_THROW(on_devices(2, with_timeout("30"), body));
    expect_no_reports();
  }
}

/// What fails in NCCL is fatal, as of collectives, and afterwards the memory is the program's.
TEST_F(DeviceMessages, AFaultOfNcclEndsAllOfThem) {
  for (const char* api : {"ncclSend", "ncclRecv"}) {
    emulated::reset(machine());
    const auto body = [api](const RankStream& stream) {
      introduce({{0, 1}, {1, 0}}, stream);
      const DeviceTensor x(DType::uint8, 1 << 20, stream, always(0));
      const DeviceTensor y(DType::uint8, 1 << 20, stream, always(0));
      together(1, [&] { emulated::inject({.api = api, .code = ncclInternalError, .and_later = true, .device = 1}); });
      std::vector<Handle> handles;
      handles.push_back(send_async(x.view(), 1 - rank()));
      handles.push_back(recv_async(y.view(), 1 - rank()));
      int failed = 0;
      for (Handle& handle : handles) {
        try {
          handle.wait();
        } catch (const Error&) {
          ++failed;
        }
      }
      emulated::acquire_all();
      ok(cudaMemsetAsync(x.data(), 0, x.bytes(), stream));
      ok(cudaMemsetAsync(y.data(), 0, y.bytes(), stream));
      stream.synchronize();
      EXPECT_GE(failed, 1) << api;
      barrier();
    };
    EXPECT_THROW(on_devices(2, with_timeout("30"), body), Error);
    expect_no_reports();
  }
}

/// Where NCCL cannot connect two ranks, or they may be in no more groups, their messages go by the host for ever.
TEST_F(DeviceMessages, GoByTheHostWhereNcclCannot) {
  for (const bool lacks_groups : {false, true}) {
    emulated::reset(machine());
    const Options with = with_timeout("6").with_setting("KOLO_GROUPS", lacks_groups ? "0" : "9");
    on_devices(2, with, [lacks_groups](const RankStream& stream) {
      if (!lacks_groups) {
        together(1, [&] {
          emulated::inject({.api = "ncclCommInitRankConfig", .code = ncclSystemError, .and_later = true, .device = 1});
        });
      }
      const DeviceTensor x(DType::int32, 1000, stream);
      const std::uint64_t by_device = passed_while([&] {
        for (int number = 0; number < 30; ++number) {
          const bool tries = number == 10 && !lacks_groups;  // the devices, to find each other
          while (tries && emulated::calls("ncclCommInitRankConfig") < 2) std::this_thread::yield();
          x.write(rank() == 0 ? contents(DType::int32, 1000, 0, 1, number) : poison(x));
          if (rank() == 0) send(x.view(), 1);
          if (rank() == 1) recv(x.view(), 0);
          emulated::acquire_all();
          EXPECT_EQ(x.read(), contents(DType::int32, 1000, 0, 1, number));
        }
      });
      EXPECT_EQ(by_device, 0U);
    });
    expect_no_reports();
  }
}

/// Nobody waits for the handles: what both ranks have agreed on goes to its end all the same.
TEST_F(DeviceMessages, InFlightAtShutdown) {
  std::vector<std::unique_ptr<DeviceTensor>> tensors(2);
  std::vector<cudaStream_t> streams(2);
  run_local(
      2,
      [&] {
        bind();
        cudaStream_t& stream = streams[static_cast<std::size_t>(rank())];
        ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        introduce({{0, 1}}, stream);
        auto& tensor = tensors[static_cast<std::size_t>(rank())];
        tensor = std::make_unique<DeviceTensor>(DType::int32, 500000, stream);
        tensor->write(rank() == 0 ? contents(DType::int32, 500000, 0, 1, 0) : poison(*tensor));
        Handle handle = rank() == 0 ? send_async(tensor->view(), 1) : Handle(recv_async(tensor->view(), 0));
        wait_on(handle, stream);  // both ranks have called
      },
      options());
  emulated::acquire_all();
  for (const int device : {0, 1}) {
    const auto at = static_cast<std::size_t>(device);
    ok(cudaSetDevice(device));
    EXPECT_EQ(tensors[at]->read(), contents(DType::int32, 500000, 0, 1, 0));
    tensors[at].reset();
    ok(cudaStreamDestroy(streams[at]));
  }
  ok(cudaSetDevice(0));
}

}  // namespace
}  // namespace kolo::cuda::test
