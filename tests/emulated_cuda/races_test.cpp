// SPDX-License-Identifier: Apache-2.0
//
// A racing program is reported, and the same program with its synchronisation is not: for each kind of edge.
#include <chrono>
#include <future>
#include <thread>

#include "machine.hpp"
#include "support_for_tests.hpp"

namespace kolo::emulated {
namespace {

constexpr std::size_t kBytes = 4096;

class Races : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    data_ = new_memory<char>(kBytes);
    pinned_ = new_pinned<char>(kBytes);
    first_ = new_stream();
    second_ = new_stream();
    event_ = new_event();
  }
  void write(cudaStream_t stream, std::size_t from = 0, std::size_t bytes = kBytes) {
    ok(cudaMemsetAsync(data_ + from, 1, bytes, stream));
  }
  void read(cudaStream_t stream) { ok(cudaMemcpyAsync(pinned_, data_, kBytes, cudaMemcpyDeviceToHost, stream)); }

  char* data_ = nullptr;
  char* pinned_ = nullptr;
  cudaStream_t first_ = nullptr;
  cudaStream_t second_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

TEST_F(Races, TwoStreamsWithoutOrderAreReportedOnceWithBothNames) {
  write(first_);
  read(second_);
  const std::string text = the_report(Report::Kind::race);
  EXPECT_NE(text.find("cudaMemcpyAsync on stream 2 of device 0"), std::string::npos) << text;
  EXPECT_NE(text.find("cudaMemsetAsync on stream 1 of device 0"), std::string::npos) << text;
  EXPECT_NE(text.find("bytes [0, 4096) of buffer 1 (cudaMalloc of 4096 bytes on device 0)"), std::string::npos) << text;
}

TEST_F(Races, TwoReadsAreNone) {
  char* other = new_pinned<char>(kBytes);
  read(first_);
  ok(cudaMemcpyAsync(other, data_, kBytes, cudaMemcpyDeviceToHost, second_));
}

TEST_F(Races, DisjointBytesAreNone) {
  write(first_, 0, 100);
  write(second_, 100, 100);
}

TEST_F(Races, OverlappingBytesAreNamed) {
  write(first_, 0, 100);
  write(second_, 99, 100);
  const std::string text = the_report(Report::Kind::race);
  EXPECT_NE(text.find("bytes [99, 100)"), std::string::npos) << text;
}

TEST_F(Races, OneStreamIsAnOrder) {
  write(first_);
  read(first_);
  write(first_);
}

TEST_F(Races, AnEventIsAnOrder) {
  write(first_);
  ok(cudaEventRecord(event_, first_));
  ok(cudaStreamWaitEvent(second_, event_, 0));
  read(second_);
}

TEST_F(Races, AnEventRecordedTooEarlyIsNone) {
  ok(cudaEventRecord(event_, first_));
  write(first_);
  ok(cudaStreamWaitEvent(second_, event_, 0));
  read(second_);
  the_report(Report::Kind::race);
}

TEST_F(Races, AWaitUsesTheRecordOfItsTime) {
  write(first_);
  ok(cudaEventRecord(event_, first_));
  ok(cudaStreamWaitEvent(second_, event_, 0));
  write(first_, 0, 10);
  ok(cudaEventRecord(event_, first_));
  read(second_);
  the_report(Report::Kind::race);
}

TEST_F(Races, AnEventOrdersWhatThirdStreamsPassOn) {
  cudaStream_t third = new_stream();
  cudaEvent_t passed_on = new_event();
  write(first_);
  ok(cudaEventRecord(event_, first_));
  ok(cudaStreamWaitEvent(third, event_, 0));
  ok(cudaEventRecord(passed_on, third));
  ok(cudaStreamWaitEvent(second_, passed_on, 0));
  read(second_);
}

TEST_F(Races, AWaitBeforeAnyRecordOrdersNothing) {
  write(first_);
  ok(cudaStreamWaitEvent(second_, event_, 0));
  read(second_);
  the_report(Report::Kind::race);
}

TEST_F(Races, StreamSynchronizeIsAnOrder) {
  write(first_);
  ok(cudaStreamSynchronize(first_));
  read(second_);
}

TEST_F(Races, StreamSynchronizeOfAnotherStreamIsNone) {
  write(first_);
  ok(cudaStreamSynchronize(second_));
  read(second_);
  the_report(Report::Kind::race);
}

TEST_F(Races, DeviceSynchronizeIsAnOrder) {
  write(first_);
  ok(cudaDeviceSynchronize());
  read(second_);
}

TEST_F(Races, EventSynchronizeIsAnOrder) {
  write(first_);
  ok(cudaEventRecord(event_, first_));
  ok(cudaEventSynchronize(event_));
  read(second_);
}

TEST_F(Races, AQueryThatSaysYesIsAnOrder) {
  write(first_);
  ok(cudaEventRecord(event_, first_));
  while (cudaEventQuery(event_) == cudaErrorNotReady) std::this_thread::yield();
  read(second_);
}

TEST_F(Races, AQueryOfAnEarlierEventIsNone) {
  ok(cudaEventRecord(event_, first_));
  write(first_);
  while (cudaEventQuery(event_) == cudaErrorNotReady) std::this_thread::yield();
  read(second_);
  the_report(Report::Kind::race);
}

TEST_F(Races, AStreamQueryThatSaysYesIsAnOrder) {
  write(first_);
  while (cudaStreamQuery(first_) == cudaErrorNotReady) std::this_thread::yield();
  read(second_);
}

TEST_F(Races, ThatAnOperationHasLongEndedIsNoOrder) {
  write(first_);
  drain();
  read(second_);
  the_report(Report::Kind::race);
}

TEST_F(Races, TheLegacyDefaultStreamWaitsForBlockingStreams) {
  cudaStream_t blocking = new_stream(cudaStreamDefault);
  write(blocking);
  read(nullptr);
  write(blocking);
}

TEST_F(Races, TheLegacyDefaultStreamDoesNotWaitForOthers) {
  write(first_);
  read(cudaStreamLegacy);
  the_report(Report::Kind::race);
}

TEST_F(Races, NonBlockingStreamsDoNotWaitForTheLegacyDefaultStream) {
  write(nullptr);
  read(second_);
  the_report(Report::Kind::race);
}

TEST_F(Races, ThePerThreadDefaultStreamAndTheLegacyOneWaitForEachOther) {
  write(cudaStreamPerThread);
  read(nullptr);
  write(cudaStreamPerThread);
}

TEST_F(Races, PerThreadDefaultStreamsOfTwoThreadsAreTwo) {
  write(cudaStreamPerThread);
  std::thread([&] { read(cudaStreamPerThread); }).join();
  the_report(Report::Kind::race);
}

TEST_F(Races, ASynchronousCopyIsAnOrderForItsThread) {
  char host[kBytes] = {};
  ok(cudaMemcpy(data_, host, kBytes, cudaMemcpyHostToDevice));
  read(second_);
}

TEST_F(Races, CudaFreeWaitsForTheDevice) {
  char* other = new_memory<char>(kBytes);
  write(first_);
  ok(cudaFree(other));
  read(second_);
}

// ---------------------------------------------------------------- the host and pinned memory

TEST_F(Races, TheHostReadsPinnedMemoryAfterWaiting) {
  read(first_);
  ok(cudaStreamSynchronize(first_));
  host_read(pinned_, kBytes);
}

TEST_F(Races, TheHostReadsPinnedMemoryTooEarly) {
  read(first_);
  host_read(pinned_, kBytes);
  const std::string text = the_report(Report::Kind::race);
  EXPECT_NE(text.find("host read on host thread 1"), std::string::npos) << text;
}

TEST_F(Races, TheHostReusesPinnedMemoryTooEarly) {
  host_write(pinned_, kBytes);
  ok(cudaMemcpyAsync(data_, pinned_, kBytes, cudaMemcpyHostToDevice, first_));
  host_write(pinned_, kBytes);
  the_report(Report::Kind::race);
}

TEST_F(Races, WhatTheHostWroteBeforeACallIsThereForIt) {
  host_write(pinned_, kBytes);
  ok(cudaMemcpyAsync(data_, pinned_, kBytes, cudaMemcpyHostToDevice, first_));
}

TEST_F(Races, PageableMemoryIsReadBeforeTheCallReturns) {
  std::vector<char> host(kBytes, 3);
  ok(cudaMemcpyAsync(data_, host.data(), kBytes, cudaMemcpyHostToDevice, first_));
  host.assign(kBytes, 4);
  read(first_);
  ok(cudaStreamSynchronize(first_));
  host_read(pinned_, kBytes);
  EXPECT_EQ(pinned_[kBytes - 1], 3);
}

TEST_F(Races, AHostFunctionIsPartOfItsStream) {
  read(first_);
  const auto look = [](void* data) { host_read(data, kBytes); };
  ok(cudaLaunchHostFunc(first_, look, pinned_));
}

TEST_F(Races, AHostFunctionIsNotPartOfAnotherStream) {
  read(first_);
  const auto look = [](void* data) { host_read(data, kBytes, "callback"); };
  ok(cudaLaunchHostFunc(second_, look, pinned_));
  const std::string text = the_report(Report::Kind::race);
  EXPECT_NE(text.find("callback on stream 2 of device 0"), std::string::npos) << text;
}

/// A wait ends with what was there when it began, whatever the stream is given meanwhile.
TEST_F(Races, AWaitDoesNotWaitForWhatComesLater) {
  struct Gate {
    std::promise<void> open;
    static void pass(void* gate) { static_cast<Gate*>(gate)->open.get_future().wait(); }
  };
  Gate gates[2];
  ok(cudaLaunchHostFunc(first_, &Gate::pass, &gates[0]));
  auto wait = std::async(std::launch::async, [&] { ok(cudaStreamSynchronize(first_)); });
  Machine& machine = Machine::instance();
  const auto waits = [&] {
    const Lock lock(machine.mutex);
    return !machine.find_stream(first_, 0)->last->waiters.empty();
  };
  while (!waits()) std::this_thread::yield();
  ok(cudaLaunchHostFunc(first_, &Gate::pass, &gates[1]));
  gates[0].open.set_value();
  EXPECT_EQ(wait.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  gates[1].open.set_value();
  ok(cudaStreamSynchronize(first_));
}

// ---------------------------------------------------------------- host threads

TEST_F(Races, WhatTellsOfAnEventIsHeldBackBehindIt) {
  write(first_);
  ok(cudaEventRecord(event_, first_));
  ok(cudaStreamWaitEvent(second_, event_, 0));
  expect_behind(second_, event_);
}

TEST_F(Races, WhatTellsOfAnEventTooEarlyIsReported) {
  write(first_);
  ok(cudaEventRecord(event_, first_));
  drain();  // that it happens to have ended is no order
  expect_behind(second_, event_);
  EXPECT_NE(the_report(Report::Kind::race).find("tells of event 1"), std::string::npos);
}

class StrictThreads : public Races {
 protected:
  Config config() const override {
    Config strict;
    strict.threads_inherit = false;
    return strict;
  }
};

TEST_F(StrictThreads, WhatOneThreadWaitedForAnotherDoesNotKnow) {
  write(first_);
  ok(cudaStreamSynchronize(first_));
  std::thread([&] { read(second_); }).join();
  the_report(Report::Kind::race);
}

TEST_F(StrictThreads, AHandOverBetweenThreadsIsAnOrder) {
  write(first_);
  ok(cudaStreamSynchronize(first_));
  release(&data_);
  std::thread([&] {
    acquire(&data_);
    read(second_);
  }).join();
}

TEST_F(StrictThreads, AHandOverBeforeTheWaitIsNone) {
  write(first_);
  release(&data_);
  ok(cudaStreamSynchronize(first_));
  std::thread([&] {
    acquire(&data_);
    read(second_);
  }).join();
  the_report(Report::Kind::race);
}

TEST_F(StrictThreads, AcquireAllComesAfterWhateverAnybodyWaitedFor) {
  write(first_);
  ok(cudaStreamSynchronize(first_));
  std::thread([&] {
    acquire_all();
    read(second_);
  }).join();
}

TEST_F(StrictThreads, AHostFunctionHandsOverItsStream) {
  read(first_);
  ok(cudaLaunchHostFunc(
      first_, [](void* key) { release(key); }, &data_));
  drain();
  acquire(&data_);
  host_read(pinned_, kBytes);
}

TEST_F(Races, ANewThreadComesAfterWhatOthersHadWaitedFor) {
  write(first_);
  ok(cudaStreamSynchronize(first_));
  std::thread([&] { read(second_); }).join();
}

}  // namespace
}  // namespace kolo::emulated
