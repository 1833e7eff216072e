// SPDX-License-Identifier: Apache-2.0
//
// Communicators and collectives among threads: results, order, what disagrees, what is lost.
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/settings.hpp"
#include "newer_nccl.hpp"
#include "support_for_tests.hpp"

namespace kolo::emulated {
namespace {

/// One rank of a test: a thread with a communicator, a stream and some memory.
struct Rank {
  int rank = 0;
  int size = 0;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;

  /// Polls until the last call on the communicator is through.
  ncclResult_t settle() const {
    ncclResult_t result = ncclInProgress;
    while (result == ncclInProgress) {
      ok(ncclCommGetAsyncError(communicator, &result));
      if (result == ncclInProgress) std::this_thread::yield();
    }
    return result;
  }
  /// What a call returned, followed to its end.
  void settled(ncclResult_t result) const {
    if (result == ncclInProgress) result = settle();
    ok(result);
  }
};

class Nccl : public EmulatedTest {
 protected:
  Config config() const override {
    Config two;
    two.devices = 2;
    return two;
  }

  /// Runs the body as so many ranks; afterwards their communicators end in peace, unless the body took them.
  static void run(int size, bool blocking, const std::function<void(Rank&)>& body, int devices = 2) {
    ncclUniqueId id;
    ok(ncclGetUniqueId(&id));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        ok(cudaSetDevice(rank % devices));
        Rank self{rank, size, nullptr, new_stream()};
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = blocking ? 1 : 0;
        self.settled(ncclCommInitRankConfig(&self.communicator, size, id, rank, &config));
        body(self);
        if (self.communicator == nullptr) return;
        ok(cudaStreamSynchronize(self.stream));
        self.settled(ncclCommFinalize(self.communicator));
        ok(ncclCommDestroy(self.communicator));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static float* put(const std::vector<float>& values) {
    float* data = new_memory<float>(values.size());
    ok(cudaMemcpy(data, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
    return data;
  }
  static std::vector<float> get(const Rank& self, const float* data, std::size_t count) {
    std::vector<float> values(count);
    ok(cudaStreamSynchronize(self.stream));
    ok(cudaMemcpy(values.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
};

class Collectives : public Nccl, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Blocking, Collectives, ::testing::Bool());

TEST_P(Collectives, AllReduce) {
  run(4, GetParam(), [](Rank& self) {
    const float own = static_cast<float>(self.rank + 1);
    float* data = put({own, 10 * own, -own});
    float* out = new_memory<float>(3);
    self.settled(ncclAllReduce(data, out, 3, ncclFloat32, ncclSum, self.communicator, self.stream));
    self.settled(ncclAllReduce(data, data, 3, ncclFloat32, ncclMax, self.communicator, self.stream));
    EXPECT_EQ(get(self, out, 3), (std::vector<float>{10, 100, -10}));
    EXPECT_EQ(get(self, data, 3), (std::vector<float>{4, 40, -1}));
  });
}

TEST_P(Collectives, TheOthers) {
  run(3, GetParam(), [](Rank& self) {
    const float own = static_cast<float>(self.rank);
    float* data = put({own, own + 10, own + 20});
    float* all = new_memory<float>(9);
    float* one = new_memory<float>(1);
    float* root = put({own, own, own});
    float* sum = put({own, own, own});
    self.settled(ncclAllGather(data, all, 3, ncclFloat32, self.communicator, self.stream));
    self.settled(ncclReduceScatter(data, one, 1, ncclFloat32, ncclSum, self.communicator, self.stream));
    self.settled(ncclBroadcast(data, root, 3, ncclFloat32, 2, self.communicator, self.stream));
    self.settled(ncclReduce(data, sum, 3, ncclFloat32, ncclSum, 1, self.communicator, self.stream));
    EXPECT_EQ(get(self, all, 9), (std::vector<float>{0, 10, 20, 1, 11, 21, 2, 12, 22}));
    EXPECT_EQ(get(self, one, 1), (std::vector<float>{3 + 30.0F * own}));
    EXPECT_EQ(get(self, root, 3), (std::vector<float>{2, 12, 22}));
    if (self.rank == 1) {
      EXPECT_EQ(get(self, sum, 3), (std::vector<float>{3, 33, 63}));
    } else {
      EXPECT_EQ(get(self, sum, 3), (std::vector<float>{own, own, own}));
    }
  });
}

TEST_P(Collectives, AllToAll) {
  run(3, GetParam(), [](Rank& self) {
    const float own = static_cast<float>(self.rank);
    float* data = put({own, own + 10, own + 20});
    float* out = new_memory<float>(3);
    self.settled(ncclAlltoAll(data, out, 1, ncclFloat32, self.communicator, self.stream));
    EXPECT_EQ(get(self, out, 3), (std::vector<float>{10 * own, 10 * own + 1, 10 * own + 2}));
  });
}

TEST_P(Collectives, InPlaceGatherAndScatter) {
  run(2, GetParam(), [](Rank& self) {
    const float own = static_cast<float>(self.rank);
    float* all = put({own, own});
    float* parts = put({own + 1, own + 2});
    const auto rank = static_cast<std::size_t>(self.rank);
    self.settled(ncclAllGather(all + rank, all, 1, ncclFloat32, self.communicator, self.stream));
    self.settled(ncclReduceScatter(parts, parts + rank, 1, ncclFloat32, ncclSum, self.communicator, self.stream));
    EXPECT_EQ(get(self, all, 2), (std::vector<float>{0, 1}));
    EXPECT_EQ(get(self, parts + rank, 1), (std::vector<float>{self.rank == 0 ? 3.0F : 5.0F}));
  });
}

TEST_P(Collectives, GroupedMessagesAmongAll) {
  run(3, GetParam(), [](Rank& self) {
    const float own = static_cast<float>(10 * self.rank);
    float* out = put({own, own + 1, own + 2});
    float* in = new_memory<float>(3);
    ok(ncclGroupStart());
    for (int peer = 0; peer < self.size; ++peer) {
      ok(ncclSend(out + peer, 1, ncclFloat32, peer, self.communicator, self.stream));
      ok(ncclRecv(in + peer, 1, ncclFloat32, peer, self.communicator, self.stream));
    }
    self.settled(ncclGroupEnd());
    const float place = static_cast<float>(self.rank);
    EXPECT_EQ(get(self, in, 3), (std::vector<float>{place, 10 + place, 20 + place}));
  });
}

TEST_P(Collectives, AGroupOfCollectivesIsOneOperation) {
  run(2, GetParam(), [](Rank& self) {
    float* a = put({1});
    float* b = put({2});
    ok(ncclGroupStart());
    ok(ncclAllReduce(a, a, 1, ncclFloat32, ncclSum, self.communicator, self.stream));
    ok(ncclAllReduce(b, b, 1, ncclFloat32, ncclProd, self.communicator, self.stream));
    self.settled(ncclGroupEnd());
    EXPECT_EQ(get(self, a, 1), (std::vector<float>{2}));
    EXPECT_EQ(get(self, b, 1), (std::vector<float>{4}));
  });
  EXPECT_EQ(calls("ncclAllReduce"), 4U);
  EXPECT_EQ(collective_calls().size(), 4U);
}

TEST_P(Collectives, Splits) {
  run(4, GetParam(), [](Rank& self) {
    Rank half = self;
    // Odd and even ranks, the later ones first.
    half.settled(ncclCommSplit(self.communicator, self.rank % 2, -self.rank, &half.communicator, nullptr));
    half.settled(ncclSuccess);
    EXPECT_EQ(half.settle(), ncclSuccess);
    int rank = -1;
    ok(ncclCommUserRank(half.communicator, &rank));
    EXPECT_EQ(rank, 1 - self.rank / 2);
    float* data = put({static_cast<float>(self.rank)});
    half.settled(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, half.communicator, half.stream));
    EXPECT_EQ(get(half, data, 1), (std::vector<float>{self.rank % 2 == 0 ? 2.0F : 4.0F}));
    ok(ncclCommDestroy(half.communicator));
  });
}

TEST_F(Nccl, EveryTypeAndOperator) {
  run(2, true, [](Rank& self) {
    auto* bytes = new_memory<unsigned char>(8);
    for (int type = ncclInt8; type <= ncclBfloat16; ++type) {
      for (int op = ncclSum; op < ncclNumOps; ++op) {
        ok(cudaMemsetAsync(bytes, 1, 8, self.stream));
        ok(ncclAllReduce(bytes, bytes, 1, static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op),
                         self.communicator, self.stream));
        ok(cudaStreamSynchronize(self.stream));
      }
    }
  });
}

TEST_F(Nccl, RankOnOneDeviceCanBeRefused) {
  Config strict = config();
  strict.shared_devices = false;
  reset(strict);
  ncclUniqueId id;
  ok(ncclGetUniqueId(&id));
  ncclConfig_t lazy = NCCL_CONFIG_INITIALIZER;
  lazy.blocking = 0;
  ncclComm_t first = nullptr;
  ncclComm_t second = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &lazy), ncclInProgress);
  EXPECT_EQ(ncclCommInitRankConfig(&second, 2, id, 1, &lazy), ncclInvalidUsage);
  EXPECT_NE(the_report(Report::Kind::misuse).find("Duplicate GPU"), std::string::npos);
  ok(ncclCommAbort(first));
}

// ---------------------------------------------------------------- non-blocking

TEST_F(Nccl, ACallWhileTheOneBeforeIsUnderWayIsRefused) {
  ncclUniqueId id;
  ok(ncclGetUniqueId(&id));
  ncclConfig_t lazy = NCCL_CONFIG_INITIALIZER;
  lazy.blocking = 0;
  ncclComm_t lonely = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&lonely, 2, id, 0, &lazy), ncclInProgress);
  float* data = put({1});
  EXPECT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, lonely, nullptr), ncclInvalidArgument);
  the_report(Report::Kind::misuse);
  ncclResult_t state = ncclSuccess;
  ok(ncclCommGetAsyncError(lonely, &state));
  EXPECT_EQ(state, ncclInProgress);
  ok(ncclCommAbort(lonely));
}

TEST_F(Nccl, AnEventRecordedWhileTheCallIsUnderWayDoesNotCoverIt) {
  bool seen = false;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Config seeded = config();
    seeded.seed = seed;
    reset(seeded);
    run(2, false, [](Rank& self) {
      float* data = put({1});
      cudaEvent_t event = new_event();
      cudaStream_t other = new_stream();
      const ncclResult_t result = ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.communicator, self.stream);
      ok(cudaEventRecord(event, self.stream));
      ok(cudaStreamWaitEvent(other, event, 0));
      ok(cudaMemsetAsync(data, 0, 4, other));
      self.settled(result);
    });
    drain();
    for (const Report& report : take_reports()) seen = seen || report.kind == Report::Kind::race;
  }
  EXPECT_TRUE(seen);
}

/// A non-blocking communicator's group is launched by a thread of NCCL's, in CUDA's strictest mode; a blocking one's by
/// the thread that calls, in its own.
TEST_F(Nccl, ALaunchByNcclsThreadEndsACaptureBesideIt) {
  for (const bool blocking : {true, false}) {
    cudaStream_t captured = new_stream();
    run(2, blocking, [&](Rank& self) {
      cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
      ok(cudaThreadExchangeStreamCaptureMode(&relaxed));
      float* data = put({1});
      if (self.rank == 0) ok(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
      self.settled(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.communicator, self.stream));
      ok(cudaStreamSynchronize(self.stream));
      cudaGraph_t graph = nullptr;
      if (self.rank != 0) return;
      EXPECT_EQ(cudaStreamEndCapture(captured, &graph), blocking ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
    });
    if (blocking) continue;
    drain();
    const std::vector<Report> reports = take_reports();
    ASSERT_FALSE(reports.empty());
    EXPECT_NE(reports.front().text.find("a launch by NCCL's thread"), std::string::npos) << reports.front().text;
  }
}

/// NCCL connects the ranks in the first collective of a kind and size, and waits for them in the call.
TEST_F(Nccl, AFirstCollectiveWaitsForThePeersUntilItIsAbortedByAnotherThread) {
  for (const std::size_t other : {std::size_t{1}, std::size_t{1} << 16}) {  // of the same size as before, and not
    std::barrier together(2);
    run(2, true, [&](Rank& self) {
      float* data = new_memory<float>(std::size_t{1} << 16);
      ok(cudaMemset(data, 0, sizeof(float) << 16));
      ok(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.communicator, self.stream));
      ok(cudaStreamSynchronize(self.stream));
      together.arrive_and_wait();
      if (self.rank == 0) {
        ncclResult_t result = ncclInProgress;
        std::thread caller([&] {
          ok(cudaSetDevice(0));
          result = ncclAllReduce(data, data, other, ncclFloat32, ncclSum, self.communicator, self.stream);
        });
        if (other == 1) caller.join();  // nothing to wait for
        ok(ncclCommAbort(self.communicator));
        if (caller.joinable()) caller.join();
        EXPECT_EQ(result == ncclSuccess, other == 1);
      }
      together.arrive_and_wait();
      if (self.rank == 1) ok(ncclCommAbort(self.communicator));
      self.communicator = nullptr;
    });
  }
  drain();
  take_reports();  // who comes too late may find that the communicator is gone
}

/// NCCL's hang where peers reach into each other's memory.
TEST_F(Nccl, MemoryThatIsRegisteredOnSomeRanksIsReported) {
  for (const int ranks : {1, 2}) {
    run(2, true, [&](Rank& self) {
      void* memory = nullptr;
      ok(ncclMemAlloc(&memory, 4096));
      ok(cudaMemset(memory, 0, 4096));
      ok(cudaDeviceSynchronize());
      void* registration = nullptr;
      if (self.rank < ranks) ok(ncclCommRegister(self.communicator, memory, 4096, &registration));
      ok(ncclAllReduce(memory, memory, 4, ncclFloat32, ncclSum, self.communicator, self.stream));
      ok(cudaStreamSynchronize(self.stream));
      if (self.rank < ranks) ok(ncclCommDeregister(self.communicator, registration));
      ok(ncclMemFree(memory));
    });
    if (ranks == 2) continue;
    const std::string text = the_report(Report::Kind::hazard);
    EXPECT_NE(text.find("the input is not registered"), std::string::npos) << text;
    EXPECT_NE(text.find("the input is registered, byte 0"), std::string::npos) << text;
  }
}

TEST_F(Nccl, FreeingItsMemoryDoesNotWaitForTheDevice) {
  for (const bool waits : {true, false}) {
    cudaStream_t stream = new_stream();
    void* memory = nullptr;
    ok(ncclMemAlloc(&memory, 4096));
    ok(cudaMemsetAsync(memory, 0, 4096, stream));
    if (waits) ok(cudaStreamSynchronize(stream));
    ok(ncclMemFree(memory));
    drain();
    EXPECT_EQ(take_reports().empty(), waits);
  }
}

// ---------------------------------------------------------------- races

TEST_F(Nccl, ACollectiveReadsItsInputAndWritesItsOutput) {
  run(2, true, [](Rank& self) {
    float* in = put({1});
    float* out = new_memory<float>(1);
    cudaStream_t other = new_stream();
    ok(cudaMemcpyAsync(new_pinned<float>(1), in, 4, cudaMemcpyDeviceToHost, other));
    ok(ncclAllReduce(in, out, 1, ncclFloat32, ncclSum, self.communicator, self.stream));
    ok(cudaStreamSynchronize(self.stream));
    if (self.rank == 0) ok(cudaMemcpyAsync(new_pinned<float>(1), out, 4, cudaMemcpyDeviceToHost, other));
  });
}

/// Whoever has opened the group: calls that are made inside go to their stream when it ends.
TEST_F(Nccl, AnEventRecordedInAnOpenGroupIsReported) {
  run(1, true, [](Rank& self) {
    float* data = put({1, 2});
    cudaEvent_t event = new_event();
    ok(ncclGroupStart());
    ok(ncclAllReduce(data, data, 2, ncclFloat32, ncclSum, self.communicator, self.stream));
    ok(cudaEventRecord(event, self.stream));
    ok(ncclGroupEnd());
    ok(cudaEventRecord(event, self.stream));
    ok(cudaEventSynchronize(event));
  });
  EXPECT_NE(the_report(Report::Kind::misuse).find("in an open group of NCCL's"), std::string::npos);
}

TEST_F(Nccl, AnInputThatIsStillWrittenIsARace) {
  run(2, true, [](Rank& self) {
    float* in = put({1});
    cudaStream_t other = new_stream();
    if (self.rank == 1) ok(cudaMemsetAsync(in, 0, 4, other));
    ok(ncclAllReduce(in, in, 1, ncclFloat32, ncclSum, self.communicator, self.stream));
  });
  const std::string text = the_report(Report::Kind::race);
  EXPECT_NE(text.find("ncclAllReduce of 1 float32, sum by rank 1"), std::string::npos) << text;
}

TEST_F(Nccl, WhatAllReduceGivesComesAfterWhatEveryRankGave) {
  // Rank 1 may reuse what rank 0 had written before the collective: memory of one device, two ranks.
  float* shared = put({1});
  const auto body = [&](Rank& self) {
    float* own = put({1});
    if (self.rank == 0) ok(cudaMemsetAsync(shared, 0, 4, self.stream));
    ok(ncclAllReduce(own, own, 1, ncclFloat32, ncclSum, self.communicator, self.stream));
    if (self.rank == 1) ok(cudaMemsetAsync(shared, 0, 4, self.stream));
  };
  run(2, true, body, /*devices=*/1);
}

TEST_F(Nccl, ABroadcastTellsTheRootNothing) {
  float* shared = put({1});
  const auto body = [&](Rank& self) {
    float* own = put({1});
    if (self.rank == 1) ok(cudaMemsetAsync(shared, 0, 4, self.stream));
    ok(ncclBroadcast(own, own, 1, ncclFloat32, 0, self.communicator, self.stream));
    if (self.rank == 0) ok(cudaMemsetAsync(shared, 0, 4, self.stream));
  };
  run(2, true, body, /*devices=*/1);
  the_report(Report::Kind::race);
}

// ---------------------------------------------------------------- disagreement

struct Wrong {
  const char* name;
  std::function<ncclResult_t(const Rank&, float*)> first;
  std::function<ncclResult_t(const Rank&, float*)> second;
  const char* said;
};

TEST_F(Nccl, DisagreementIsReportedWithWhatEachRankSaid) {
  const auto all_reduce = [](std::size_t count, ncclDataType_t type, ncclRedOp_t op) {
    return [=](const Rank& self, float* data) {
      return ncclAllReduce(data, data, count, type, op, self.communicator, self.stream);
    };
  };
  const auto broadcast = [](int root) {
    return [=](const Rank& self, float* data) {
      return ncclBroadcast(data, data, 2, ncclFloat32, root, self.communicator, self.stream);
    };
  };
  const auto pass = [](std::size_t count) {
    return [=](const Rank& self, float* data) {
      return self.rank == 0 ? ncclSend(data, count, ncclFloat32, 1, self.communicator, self.stream)
                            : ncclRecv(data, count, ncclFloat32, 0, self.communicator, self.stream);
    };
  };
  const auto plain = all_reduce(2, ncclFloat32, ncclSum);
  const std::vector<Wrong> wrongs{
      {"count", plain, all_reduce(1, ncclFloat32, ncclSum), "rank 1: ncclAllReduce of 1 float32, sum"},
      {"type", plain, all_reduce(2, ncclInt32, ncclSum), "rank 1: ncclAllReduce of 2 int32, sum"},
      {"op", plain, all_reduce(2, ncclFloat32, ncclMax), "rank 1: ncclAllReduce of 2 float32, max"},
      {"order", plain, broadcast(0), "rank 1: ncclBroadcast of 2 float32, root 0"},
      {"root", broadcast(1), broadcast(0), "rank 1: ncclBroadcast of 2 float32, root 0"},
      {"message", pass(1), pass(2), "rank 1: ncclRecv of 2 float32 from rank 0"}};
  for (const Wrong& wrong : wrongs) {
    SCOPED_TRACE(wrong.name);
    run(2, true, [&](Rank& self) {
      float* data = put({1, 2});
      const ncclResult_t result = (self.rank == 0 ? wrong.first : wrong.second)(self, data);
      EXPECT_TRUE(result == ncclSuccess || result == ncclInvalidUsage) << result;  // the other may have spoken already
      ok(cudaStreamSynchronize(self.stream));
      ncclResult_t state = ncclSuccess;
      while (state == ncclSuccess) {
        ok(ncclCommGetAsyncError(self.communicator, &state));
        std::this_thread::yield();
      }
      EXPECT_EQ(state, ncclInvalidUsage);
      ok(ncclCommAbort(self.communicator));
      self.communicator = nullptr;
    });
    const std::string text = the_report(Report::Kind::mismatch);
    EXPECT_NE(text.find(wrong.said), std::string::npos) << text;
    EXPECT_NE(text.find("rank 0: "), std::string::npos) << text;
  }
}

// ---------------------------------------------------------------- several communicators on a device

class NcclOnFullDevices : public Nccl {
 protected:
  Config config() const override {
    Config full = Nccl::config();
    full.collectives_at_a_time = 1;
    return full;
  }

  /// Two ranks give a collective of each of two communicators to two streams, the second when the first has started on
  /// both. Whether both end.
  static bool both_end(bool same_order) {
    ncclUniqueId id;
    ok(ncclGetUniqueId(&id));
    std::barrier together(2);
    bool ended = true;
    run(2, true, [&](Rank& self) {
      Rank other = self;
      other.stream = new_stream();
      ok(ncclCommInitRank(&other.communicator, 2, id, self.rank));
      std::vector<const Rank*> order{&self, &other};
      for (const Rank* one : order) {  // NCCL connects
        float* data = put({1});
        ok(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, one->communicator, one->stream));
        ok(cudaStreamSynchronize(one->stream));
      }
      together.arrive_and_wait();
      if (!same_order && self.rank == 1) std::swap(order[0], order[1]);
      for (const Rank* one : order) {
        float* data = put({1});
        ok(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, one->communicator, one->stream));
        together.arrive_and_wait();
        drain();
        together.arrive_and_wait();
      }
      if (self.rank == 0) {
        ended = cudaStreamQuery(self.stream) == cudaSuccess && cudaStreamQuery(other.stream) == cudaSuccess;
      }
      together.arrive_and_wait();
      // The end of one waits for the other's collective.
      std::thread at_once([&] { ok(ncclCommAbort(other.communicator)); });
      ok(ncclCommAbort(self.communicator));
      at_once.join();
      self.communicator = nullptr;
    });
    return ended;
  }
};

TEST_F(NcclOnFullDevices, CollectivesInAnOrderOfEachRankWaitForEachOther) {
  EXPECT_TRUE(both_end(true));
  EXPECT_FALSE(both_end(false));
}

// ---------------------------------------------------------------- ranks as processes, here by threads

class NcclOfProcesses : public Nccl {
 protected:
  Config config() const override {
    Config processes = Nccl::config();
    processes.ranks_are_processes = true;
    return processes;
  }
};

TEST_F(NcclOfProcesses, MessagesOfAGroupPassEachOther) {
  for (int round = 0; round < 3; ++round) {
    run(3, true, [](Rank& self) {
      const auto own = static_cast<float>(self.rank);
      float* in = put({own, own + 10, own + 20, own + 30});
      float* out = put(std::vector<float>(2 * 3, -1));
      for (int again = 0; again < 4; ++again) {
        ok(ncclGroupStart());
        ok(ncclAllReduce(in + 3, in + 3, 1, ncclFloat32, ncclMax, self.communicator, self.stream));
        for (int peer = 0; peer < 3; ++peer) {  // two to everybody, itself included, and one of nothing
          ok(ncclSend(in, 1, ncclFloat32, peer, self.communicator, self.stream));
          ok(ncclSend(in + 1, 0, ncclFloat32, peer, self.communicator, self.stream));
          ok(ncclSend(in + 1, 1, ncclFloat32, peer, self.communicator, self.stream));
          ok(ncclRecv(out + 2 * peer, 1, ncclFloat32, peer, self.communicator, self.stream));
          ok(ncclRecv(out, 0, ncclFloat32, peer, self.communicator, self.stream));
          ok(ncclRecv(out + 2 * peer + 1, 1, ncclFloat32, peer, self.communicator, self.stream));
        }
        self.settled(ncclGroupEnd());
        EXPECT_EQ(get(self, out, 6), (std::vector<float>{0, 10, 1, 11, 2, 12}));
        EXPECT_EQ(get(self, in + 3, 1), std::vector<float>{32});
      }
    });
  }
}

TEST_F(NcclOfProcesses, MessagesOfDifferentSizesAreReportedAtBothEnds) {
  run(2, true, [](Rank& self) {
    float* data = put({1, 2});
    ok(self.rank == 0 ? ncclSend(data, 1, ncclFloat32, 1, self.communicator, self.stream)
                      : ncclRecv(data, 2, ncclFloat32, 0, self.communicator, self.stream));
    ok(cudaStreamSynchronize(self.stream));
    ncclResult_t state = ncclSuccess;
    ok(ncclCommGetAsyncError(self.communicator, &state));
    EXPECT_EQ(state, ncclInvalidUsage);
    ok(ncclCommAbort(self.communicator));
    self.communicator = nullptr;
  });
  const std::string text = the_report(Report::Kind::mismatch);
  EXPECT_NE(text.find("rank 0: ncclSend of 1 float32 to rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1: ncclRecv of 2 float32 from rank 0"), std::string::npos) << text;
}

TEST_F(NcclOfProcesses, AbortEndsAMessageThatNobodyTakes) {
  run(2, true, [](Rank& self) {
    float* data = put({1});
    if (self.rank == 0) ok(ncclSend(data, 1, ncclFloat32, 1, self.communicator, self.stream));
    ok(ncclCommAbort(self.communicator));
    self.communicator = nullptr;
    ok(cudaStreamSynchronize(self.stream));
  });
}

// ---------------------------------------------------------------- faults

TEST_F(Nccl, AbortEndsWhatAPeerNeverJoins) {
  run(2, true, [](Rank& self) {
    float* data = put({1});
    ok(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.communicator, self.stream));
    ok(cudaStreamSynchronize(self.stream));
    if (self.rank == 0) {
      ok(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.communicator, self.stream));
      drain();
      EXPECT_EQ(cudaStreamQuery(self.stream), cudaErrorNotReady);
      EXPECT_NE(describe().find("in a collective, ncclAllReduce of 1 float32"), std::string::npos) << describe();
    }
    ok(ncclCommAbort(self.communicator));
    self.communicator = nullptr;
    if (self.rank == 0) {
      EXPECT_NE(get(self, data, 1)[0], 2.0F);  // undefined: poison, not the input
    }
  });
}

/// It frees nothing: the communicator is there, to be aborted.
TEST_F(Nccl, RevokingEndsWhatAPeerNeverJoins) {
  run(2, true, [](Rank& self) {
    float* data = put({1, 2});
    ok(ncclAllReduce(data, data, 2, ncclFloat32, ncclSum, self.communicator, self.stream));
    ok(cudaStreamSynchronize(self.stream));
    if (self.rank == 0) ok(ncclAllReduce(data, data, 2, ncclFloat32, ncclSum, self.communicator, self.stream));
    ok(ncclCommRevoke(self.communicator, 0));
    ok(cudaStreamSynchronize(self.stream));
    ok(ncclCommAbort(self.communicator));
    self.communicator = nullptr;
  });
}

/// It may free what that call uses.
TEST_F(Nccl, AnAbortBesideACallThatWaitsForNobodyIsReported) {
  run(1, true, [](Rank& self) {
    float* data = put({1, 2});
    hold_calls("ncclAllReduce");
    std::thread caller([&] {
      ok(cudaSetDevice(0));
      static_cast<void>(ncclAllReduce(data, data, 2, ncclFloat32, ncclSum, self.communicator, self.stream));
    });
    while (calls("ncclAllReduce") == 0) std::this_thread::yield();
    ok(ncclCommAbort(self.communicator));
    self.communicator = nullptr;
    release_calls();
    caller.join();
  });
  EXPECT_NE(the_report(Report::Kind::misuse).find("inside a call"), std::string::npos);
}

TEST_F(Nccl, ALostPeerIsTold) {
  Failure lost;
  lost.api = "ncclAllReduce";
  lost.nth = 2;
  lost.rank = 1;
  lost.code = ncclSystemError;
  lost.effect = Failure::Effect::lose_peer;
  inject(lost);
  run(2, true, [](Rank& self) {
    float* data = put({1});
    ok(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.communicator, self.stream));
    ok(cudaStreamSynchronize(self.stream));
    ncclResult_t state = ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.communicator, self.stream);
    if (self.rank == 0) {
      while (state == ncclSuccess) {
        ok(ncclCommGetAsyncError(self.communicator, &state));
        std::this_thread::yield();
      }
      EXPECT_EQ(state, ncclRemoteError);
      EXPECT_STREQ(ncclGetLastError(self.communicator), "rank 1 was lost");
    } else {
      EXPECT_EQ(state, ncclSystemError);
    }
    ok(ncclCommAbort(self.communicator));
    self.communicator = nullptr;
  });
}

TEST_F(Nccl, TheNthCallFails) {
  inject({.api = "cudaMalloc", .nth = 2, .code = cudaErrorMemoryAllocation});
  void* data = nullptr;
  ok(cudaMalloc(&data, 1));
  EXPECT_EQ(cudaMalloc(&data, 1), cudaErrorMemoryAllocation);
  ok(cudaMalloc(&data, 1));
  inject({.api = "ncclGetUniqueId", .code = ncclSystemError, .and_later = true});
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSystemError);
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSystemError);
}

TEST_F(Nccl, AnIdOfAnotherProcessIsRefused) {
  ncclUniqueId id{};
  std::strncpy(id.internal, "emulated 0 1 1", sizeof id.internal - 1);  // no process has this number
  ncclComm_t communicator = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&communicator, 2, id, 1, &config), ncclInvalidUsage);
  EXPECT_EQ(communicator, nullptr);
  EXPECT_EQ(the_report(Report::Kind::misuse),
            "ncclCommInitRankConfig: another process made this communicator's id, but NCCL is emulated between the "
            "threads of one process (Config::ranks_are_processes makes it between processes)");
}

/// The id's process lives, and waits: without a refusal this one would wait for it.
TEST_F(Nccl, AnIdIsRefusedByAnotherProcessThatLives) {
  constexpr const char* kVariable = "KOLO_TEST_NCCL_ID";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // another process, which begins this case anew
  ncclUniqueId id{};
  if (const auto given = base::process_environment()(kVariable)) {
    std::strncpy(id.internal, given->c_str(), sizeof id.internal - 1);
  } else {
    ok(ncclGetUniqueId(&id));
    ASSERT_EQ(::setenv(kVariable, id.internal, 1), 0);
  }
  const auto join = [&] {
    ncclComm_t communicator = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const ncclResult_t result = ncclCommInitRankConfig(&communicator, 2, id, 1, &config);
    std::fprintf(stderr, "%s\n", the_report(Report::Kind::misuse).c_str());
    std::_Exit(result == ncclInvalidUsage && communicator == nullptr ? 3 : 1);  // nothing else is of interest
  };
  EXPECT_EXIT(join(), testing::ExitedWithCode(3),
              "another process made this communicator's id, but NCCL is emulated between the threads of one process");
  ASSERT_EQ(::unsetenv(kVariable), 0);
}

TEST_F(Nccl, RegisteringMayOnlyHaveBegunWhenItReturns) {
  run(1, false, [](Rank& self) {
    void* memory = nullptr;
    ok(ncclMemAlloc(&memory, 4096));
    int began = 0;
    for (int i = 0; i < 100; ++i) {
      void* registration = nullptr;
      const ncclResult_t result = ncclCommRegister(self.communicator, memory, 4096, &registration);
      began += result == ncclInProgress ? 1 : 0;
      self.settled(result);
      ok(ncclCommDeregister(self.communicator, registration));
    }
    EXPECT_GT(began, 0);
    EXPECT_LT(began, 100);
    ok(ncclMemFree(memory));
  });
}

}  // namespace
}  // namespace kolo::emulated
