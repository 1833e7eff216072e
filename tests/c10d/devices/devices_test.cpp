// SPDX-License-Identifier: Apache-2.0
//
// The backend on CUDA tensors: what is ordered behind what, and how long memory lives. Ranks are threads, each with an
// emulated device of its own; every result is read by a stream that has nothing but the Work to put it behind, and the
// emulated device reports each pair of accesses that nothing orders. That all calls compute what they should is for
// c10d_test.py, on the CPU and, on a machine with a GPU, there.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>

#include <kolo/detail/counters.hpp>

#include "tests/c10d/devices/emulated_torch.hpp"
#include "tests/c10d/devices/ranks.hpp"
#include "tests/data/cuda/gate.hpp"
#include "tests/emulated_cuda/emulator.hpp"

namespace kolo::c10d::test {
namespace {

using kolo::cuda::test::Gate;

/// By NCCL, and by way of the host.
class Devices : public TestOnDevices, public ::testing::WithParamInterface<const char*> {
 protected:
  static Options options() {
    return Options{}
        .with_setting("KOLO_TIMEOUT_S", "60")
        .with_setting("KOLO_GPU_BACKEND", GetParam())
        .with_setting("KOLO_FUSION_THRESHOLD", "1M");  // else the emulator is busy filling memory with poison
  }
  [[nodiscard]] static bool is_by_nccl() { return std::string(GetParam()) == "nccl"; }
  static void on_ranks(const std::function<void(const GroupPtr&, int)>& body) {
    TestOnDevices::on_ranks(options(), body);
  }
};

at::Tensor numbers(std::int64_t count, int first) {
  return at::arange(first, first + count, at::TensorOptions(at::kFloat));
}

void expect_numbers(const at::Tensor& tensor, const at::Tensor& wanted) {
  const at::Tensor found = on_host(tensor);
  EXPECT_TRUE(at::equal(found, wanted)) << "found " << found << "\nwanted " << wanted;
}

TEST_P(Devices, ResultsComeBehindWait) {
  on_ranks([](const GroupPtr& group, int rank) {
    for (const std::int64_t count : {1, 1000}) {
      for (const auto make : {on_device, strided_on_device}) {
        Tensors reduced{make(numbers(count, rank))};
        group->allreduce(reduced, {})->wait();
        expect_numbers(reduced[0], numbers(count, 0) * 2 + 1);

        Tensors sent{make(numbers(count, 10 * rank))};
        ::c10d::BroadcastOptions from_1;
        from_1.rootRank = 1;
        group->broadcast(sent, from_1)->wait();
        expect_numbers(sent[0], numbers(count, 10));

        std::vector<Tensors> gathered{{make(numbers(count, -7)), make(numbers(count, -7))}};
        Tensors mine{make(numbers(count, 5 * rank))};
        group->allgather(gathered, mine, {})->wait();
        for (int other = 0; other < kRanks; ++other) {
          expect_numbers(gathered[0][static_cast<std::size_t>(other)], numbers(count, 5 * other));
        }

        Tensors scattered{make(numbers(count, -7))};
        std::vector<Tensors> parts{{make(numbers(count, rank)), make(numbers(count, rank + 3))}};
        group->reduce_scatter(scattered, parts, {})->wait();
        expect_numbers(scattered[0], numbers(count, 3 * rank) * 2 + 1);

        Tensors taken{make(numbers(count, -7)), make(numbers(count, -7))};
        Tensors given{make(numbers(count, 10 * rank)), make(numbers(count, 10 * rank + 1))};
        group->alltoall(taken, given, {})->wait();
        for (int other = 0; other < kRanks; ++other) {
          expect_numbers(taken[static_cast<std::size_t>(other)], numbers(count, 10 * other + rank));
        }
      }
    }
  });
}

/// The thread that waits drives: no other one is woken to give the device its work. The peer comes when it waits.
TEST_P(Devices, WaitWakesNoOtherThread) {
  if (!is_by_nccl()) return;
  constexpr int kTries = 100;
  std::atomic<int> submitted{0};
  std::atomic<bool> found{false};
  on_ranks([&](const GroupPtr& group, int rank) {
    Tensors tensors{on_device(numbers(1000, rank))};
    for (int i = 1; i <= kTries && !found; ++i) {
      group->barrier({})->wait();
      if (rank == 1) {
        while (submitted < i) std::this_thread::yield();
        group->allreduce(tensors, {})->wait();
      } else {
        emulated::trace();
        const auto work = group->allreduce(tensors, {});
        submitted = i;
        work->wait(std::chrono::minutes(1));
        for (const emulated::TracedCall& call : emulated::take_trace()) {
          if (call.api == "ncclAllReduce" && call.thread == std::this_thread::get_id()) found = true;
        }
      }
      group->barrier({})->wait();
    }
  });
  EXPECT_TRUE(found);
}

/// PyTorch gives the splits of both sides, so nobody is asked for them.
TEST_P(Devices, AnAllToAllAsksNobodyForSplits) {
  on_ranks([](const GroupPtr& group, int rank) {
    const std::uint64_t before = kolo::detail::counters(group->group()).device_exchanges;
    for (std::int64_t round = 0; round < 4; ++round) {
      // This rank keeps one row, and sends so many.
      std::vector<std::int64_t> gives{rank == 0 ? 1 : round, rank == 0 ? 3 : 1};
      std::vector<std::int64_t> takes{rank == 0 ? 1 : 3, rank == 0 ? round : 1};
      at::Tensor input = on_device(numbers(gives[0] + gives[1], 10 * rank));
      at::Tensor output = on_device(numbers(takes[0] + takes[1], 0));
      group->alltoall_base(output, input, takes, gives, {})->wait();
      expect_numbers(output, rank == 0 ? at::cat({numbers(1, 0), numbers(round, 10)})
                                       : at::cat({numbers(3, 1), numbers(1, 10 + static_cast<int>(round))}));
    }
    if (is_by_nccl()) {
      EXPECT_EQ(kolo::detail::counters(group->group()).device_exchanges, before);
    }
  });
}

TEST_P(Devices, ComplexNumbersAndBytesTravel) {
  on_ranks([](const GroupPtr& group, int rank) {
    const at::Tensor real = numbers(100, rank);
    Tensors complex{on_device(at::complex(real, real * 2))};
    group->allreduce(complex, {})->wait();
    EXPECT_TRUE(at::equal(at::view_as_real(on_host(complex[0])),
                          at::view_as_real(at::complex(numbers(100, 0) * 2 + 1, numbers(100, 0) * 4 + 2))));
    const at::Tensor bytes = numbers(100, 3).to(at::ScalarType::Float8_e5m2);
    Tensors sent{on_device(rank == 0 ? bytes : at::zeros_like(bytes))};
    group->broadcast(sent, {})->wait();
    EXPECT_TRUE(at::equal(on_host(sent[0]).view(at::kByte), bytes.view(at::kByte)));
  });
}

TEST_P(Devices, AMessageHasArrivedWhenItsReceiverHasWaited) {
  on_ranks([](const GroupPtr& group, int rank) {
    for (const auto make : {on_device, strided_on_device}) {
      Tensors tensor{make(numbers(500, rank == 0 ? 4 : -7))};
      if (rank == 0) {
        group->send(tensor, 1, 3)->wait();
        tensor[0].copy_(on_device(numbers(500, 0)));  // the message has been read
      } else {
        const auto work = group->recvAnysource(tensor, 3);
        work->wait();
        EXPECT_EQ(work->sourceRank(), 0);
        expect_numbers(tensor[0], numbers(500, 4));
      }
    }
  });
}

/// Rank 0's stream stands still; nobody's host does.
TEST_P(Devices, ACallComesBehindTheStreamAndWaitDoesNotBlockTheHost) {
  if (!is_by_nccl()) GTEST_SKIP() << "by way of the host a result is given to the device when it is known";
  Gate gate;
  std::atomic<int> have_waited{0};
  on_ranks([&](const GroupPtr& group, int rank) {
    Tensors warm{on_device(numbers(10, 0))};
    group->allreduce(warm, {})->wait();
    expect_numbers(warm[0], numbers(10, 0) * 2);
    if (rank == 0) gate.hold(current());
    Tensors tensors{on_device(numbers(1000, rank))};  // written behind the gate
    const auto work = group->allreduce(tensors, {});
    work->wait();
    EXPECT_TRUE(rank == 1 || !work->isCompleted());
    if (++have_waited == kRanks) gate.open();
    expect_numbers(tensors[0], numbers(1000, 0) * 2 + 1);
    while (!work->isCompleted()) std::this_thread::yield();
    EXPECT_TRUE(work->isSuccess());
  });
}

TEST_P(Devices, AnyStreamMayWaitAndAsOftenAsItLikes) {
  on_ranks([](const GroupPtr& group, int rank) {
    for (const auto make : {on_device, strided_on_device}) {
      Tensors tensors{make(numbers(300, rank))};
      const auto work = group->allreduce(tensors, {});
      for (int i = 0; i < 2; ++i) {
        const c10::StreamGuard another(new_stream(rank));
        work->wait();
        work->synchronize();
        expect_numbers(tensors[0], numbers(300, 0) * 2 + 1);
      }
    }
  });
}

TEST_P(Devices, AFuturesCallbacksAndWaitersComeBehindTheResult) {
  on_ranks([](const GroupPtr& group, int rank) {
    for (const auto make : {on_device, strided_on_device}) {
      Tensors tensors{make(numbers(300, rank))};
      const auto future = group->allreduce(tensors, {})->getFuture();
      ASSERT_EQ(future->devices(), std::vector<c10::Device>{tensors[0].device()});
      const auto doubled = future->then(
          [](c10::ivalue::Future& done) {
            const at::Tensor sum = done.value().toTensorVector()[0];
            at::Tensor both = at::empty({2, sum.numel()}, sum.options());
            both[0].copy_(sum);
            both[1].copy_(sum);
            return c10::IValue(both);
          },
          c10::TensorType::get());
      future->wait();
      expect_numbers(tensors[0], numbers(300, 0) * 2 + 1);
      doubled->wait();
      expect_numbers(doubled->value().toTensor()[1], numbers(300, 0) * 2 + 1);
    }
  });
}

TEST_P(Devices, MemoryLivesUntilTheDeviceHasDoneWithIt) {
  on_ranks([](const GroupPtr& group, int rank) {
    for (const auto make : {on_device, strided_on_device}) {
      for (int i = 0; i < 5; ++i) {
        Tensors dropped{make(numbers(200, rank))};  // and its Work, too
        group->allreduce(dropped, {});
      }
      Tensors kept{make(numbers(200, rank))};
      group->allreduce(kept, {});  // only its Work
      Tensors waited{make(numbers(200, rank))};
      auto work = group->allreduce(waited, {});
      const c10::StreamGuard another(new_stream(rank));
      work->wait();
      const at::Tensor copy = waited[0].clone();
      waited.clear();  // what `wait` has told the allocator alone puts the next owner behind
      work.reset();
      expect_numbers(copy, numbers(200, 0) * 2 + 1);
    }
  });
}

TEST_P(Devices, ABarrierWaitsForTheCurrentStream) {
  std::atomic<bool> stream_has_ended{false};
  std::atomic<bool> passed{false};
  Gate gate;
  on_ranks([&](const GroupPtr& group, int rank) {
    Tensors tensors{on_device(numbers(10, rank))};
    group->allreduce(tensors, {})->wait();
    if (rank == 0) {
      gate.hold(current());
      const auto before = emulated::calls("cudaStreamSynchronize");
      std::thread opens([&] {
        while (emulated::calls("cudaStreamSynchronize") == before && !passed) std::this_thread::yield();
        stream_has_ended = true;
        gate.open();
      });
      group->barrier({})->wait();
      EXPECT_TRUE(stream_has_ended);
      passed = true;
      opens.join();
    } else {
      group->barrier({})->wait();
      EXPECT_TRUE(stream_has_ended);
    }
  });
}

TEST_P(Devices, WhatIsWrongIsSaid) {
  on_ranks([&](const GroupPtr& group, int rank) {
    const auto refused = [](const std::function<void()>& call) -> std::string {
      try {
        call();
      } catch (const c10::Error& error) {
        return error.what_without_backtrace();
      }
      return "not refused";
    };
    Tensors two{on_device(numbers(4, 0)), numbers(4, 0)};
    std::vector<Tensors> outputs{two};
    Tensors input{on_device(numbers(4, 0))};
    const std::string here = "cuda:" + std::to_string(rank);
    EXPECT_EQ(refused([&] { group->allgather(outputs, input, {}); }),
              "kolo: all_gather: the tensors are on " + here + " and cpu; one device is needed");
    const std::string there = "cuda:" + std::to_string(1 - rank);
    group->setBoundDeviceId(at::Device(there));
    EXPECT_EQ(refused([&] { group->allreduce(input, {}); }), "kolo: all_reduce: the tensor is on " + here +
                                                                 ", and this process group was made for " + there +
                                                                 " (device_id)");
    group->setBoundDeviceId(std::nullopt);
    group->allreduce(input, {})->wait();
    expect_numbers(input[0], numbers(4, 0) * 2);
  });
}

/// On the host, too.
TEST_P(Devices, ACallThatHasEndedUsesItsTensorNoMore) {
  using Work = c10::intrusive_ptr<::c10d::Work>;
  const auto soon = std::chrono::milliseconds(20);
  const std::vector<std::function<void(const GroupPtr&, Tensors&)>> ways = {
      [soon](const GroupPtr& group, Tensors& tensors) {
        ::c10d::AllreduceOptions options;
        options.timeout = soon;
        EXPECT_ANY_THROW(group->allreduce(tensors, options)->wait());
      },
      [soon](const GroupPtr& group, Tensors& tensors) {
        ::c10d::AllreduceOptions options;
        options.timeout = soon;
        const auto future = group->allreduce(tensors, options)->getFuture();
        future->wait();
        EXPECT_TRUE(future->hasError());
      },
      [soon](const GroupPtr& group, Tensors& tensors) {
        const Work work = group->allreduce(tensors, {});
        EXPECT_ANY_THROW(work->wait(soon));
        EXPECT_TRUE(work->isCompleted());
      },
      [](const GroupPtr& group, Tensors& tensors) {
        const Work work = group->allreduce(tensors, {});
        const auto future = work->getFuture();
        work->abort();
        future->wait();
        EXPECT_TRUE(future->hasError());
        EXPECT_TRUE(work->isCompleted());
        EXPECT_ANY_THROW(work->wait());
      },
      [](const GroupPtr& group, Tensors& tensors) {
        const Work work = group->allreduce(tensors, {});
        std::thread aborts([&] { work->abort(); });
        EXPECT_ANY_THROW(work->wait());
        aborts.join();
        const auto future = work->getFuture();
        future->wait();
        EXPECT_TRUE(future->hasError());
      },
  };
  for (const auto& way : ways) {
    for (const bool on_cpu : {true, false}) {
      std::atomic<bool> has_ended{false};
      std::atomic<bool> was_tried{false};
      on_ranks([&](const GroupPtr& group, int rank) {
        Tensors tensors{on_cpu ? numbers(4, 0) : on_device(numbers(4, 0))};
        if (rank == 0) {
          way(group, tensors);
          tensors[0].copy_(on_cpu ? numbers(4, 100) : on_device(numbers(4, 100)));
          has_ended = true;
          while (!was_tried) std::this_thread::yield();
          expect_numbers(tensors[0], numbers(4, 100));
        } else {
          while (!has_ended) std::this_thread::yield();
          EXPECT_ANY_THROW(group->allreduce(tensors, {})->wait());
          was_tried = true;
        }
      });
    }
  }
}

/// It is taken back, and the job goes on.
TEST_P(Devices, WhoWaitsForAReceiveHearsAnAbort) {
  std::atomic<int> heard{0};
  on_ranks([&](const GroupPtr& group, int rank) {
    const auto hears = [&](const c10::intrusive_ptr<::c10d::Work>& work) {
      std::thread aborts([&] { work->abort(); });
      EXPECT_ANY_THROW(work->wait());
      aborts.join();
      ++heard;
    };
    Tensors on_cpu{numbers(4, 0)};
    Tensors here{on_device(numbers(4, 0))};
    if (rank == 0) {
      hears(group->recv(on_cpu, 1, 7));
      hears(group->recv(here, 1, 7));
    } else {
      while (heard < 2) std::this_thread::yield();
    }
    Tensors message{numbers(4, rank)};  // what is taken back takes none
    (rank == 0 ? group->recv(message, 1, 7) : group->send(message, 0, 7))->wait();
    expect_numbers(message[0], numbers(4, 1));
    group->allreduce(here, {})->wait();
    expect_numbers(here[0], numbers(4, 0) * 2);
  });
}

/// Also before the device has done it: the stream would go on with what the output held.
TEST_P(Devices, WaitThrowsWhereAResultHasNoRoom) {
  on_ranks([&](const GroupPtr& group, int rank) {
    for (int round = 0; round < 2; ++round) {
      Tensors mine{on_device(numbers(rank == 0 ? 2 : 4, rank))};
      std::vector<Tensors> outputs{{on_device(numbers(2, 0)), on_device(numbers(rank == 0 ? 3 : 4, 0))}};
      const auto work = group->allgather(outputs, mine, {});
      EXPECT_ANY_THROW(work->wait()) << "rank " << rank;
      EXPECT_TRUE(work->isCompleted());
    }
  });
}

TEST_P(Devices, TensorsOfOneCallAreOnOneDevice) {
  on_ranks([&](const GroupPtr& group, int rank) {
    Tensors mixed{numbers(4, rank), on_device(numbers(4, rank))};
    try {
      group->allreduce_coalesced(mixed, {});
      ADD_FAILURE() << "was taken";
    } catch (const c10::Error& error) {
      const std::string sentence = "the tensors are on cpu and " + mixed[1].device().str() + "; one device is needed";
      EXPECT_NE(std::string(error.what()).find(sentence), std::string::npos) << error.what();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(By, Devices, ::testing::Values("nccl", "staged"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace kolo::c10d::test
