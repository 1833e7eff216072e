// SPDX-License-Identifier: Apache-2.0
//
// The data plane alone: an all-reduce of float32 sums through the CPU backend, two ranks as threads, no negotiation.
#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.hpp"
#include "base/cpu.hpp"
#include "data/cpu/cpu_backend.hpp"
#include "transport/shm/segment.hpp"
#include "transport/shm/slot_ring.hpp"

namespace kolo {
namespace {

constexpr int kRanks = 2;

/// One rank's buffer and backend.
class RankUnderTest {
 public:
  RankUnderTest(const shm::Segment& memory, int rank, std::size_t slot_bytes, std::uint64_t slots, std::size_t bytes)
      : data_(bytes / sizeof(float), 1.0F),
        backend_(core::make_topology(rank, std::vector<int>(kRanks, 0), 0),
                 std::make_shared<shm::SlotRing>(
                     base::Columns::in_a_row(memory.data(), shm::SlotRing::column_bytes(slot_bytes, slots), kRanks),
                     rank, slot_bytes, slots),
                 nullptr) {
    auto* pointer = reinterpret_cast<std::byte*>(data_.data());
    data::Run& run = job_.runs.emplace_back();
    run.pieces.push_back({pointer, pointer, static_cast<std::int64_t>(data_.size())});
    run.elements = static_cast<std::int64_t>(data_.size());
    run.op = ReduceOp::max;  // of equal numbers, however often it is run
  }

  void allreduce() {
    backend_.start(job_);
    finished_.clear();
    base::Waiter waiter(policy_);
    while (finished_.empty()) {
      if (backend_.progress(finished_) == data::Progress::advanced) {
        waiter.reset();
      } else {
        waiter.step();
      }
    }
  }
  [[nodiscard]] bool correct() const { return data_.front() == 1.0F && data_.back() == 1.0F; }

 private:
  std::vector<float> data_;
  data::Job job_;
  data::cpu::CpuBackend backend_;
  std::vector<data::Job*> finished_;
  base::WaitPolicy policy_ = base::choose_wait_policy(base::usable_cpus(), kRanks);
};

/// Arguments: bytes, slot bytes, slots.
void allreduce(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto slot_bytes = static_cast<std::size_t>(state.range(1));
  const auto slots = static_cast<std::uint64_t>(state.range(2));
  const shm::Segment memory = shm::Segment::anonymous(kRanks * shm::SlotRing::column_bytes(slot_bytes, slots));
  RankUnderTest mine(memory, 0, slot_bytes, slots, bytes);
  std::atomic<std::uint64_t> rounds{0};
  std::atomic<bool> end{false};
  std::thread peer([&] {
    RankUnderTest theirs(memory, 1, slot_bytes, slots, bytes);
    for (std::uint64_t done = 0;; ++done) {
      while (rounds.load(std::memory_order_acquire) == done && !end.load(std::memory_order_acquire)) base::cpu_relax();
      if (rounds.load(std::memory_order_acquire) == done) return;
      theirs.allreduce();
    }
  });
  for ([[maybe_unused]] auto _ : state) {
    rounds.fetch_add(1, std::memory_order_release);
    mine.allreduce();
  }
  end.store(true, std::memory_order_release);
  peer.join();
  if (!mine.correct()) state.SkipWithError("wrong result");
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}

BENCHMARK(allreduce)
    ->ArgNames({"bytes", "slot", "slots"})
    ->ArgsProduct({{1 << 10, 64 << 10, 1 << 20, 64 << 20}, {64 << 10, 128 << 10, 256 << 10}, {3, 4}})
    ->UseRealTime();

}  // namespace
}  // namespace kolo
