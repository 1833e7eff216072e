// SPDX-License-Identifier: Apache-2.0
//
// The carrier by itself: communicators of process sets.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "data/cuda/nccl_carrier.hpp"
#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {
namespace {

constexpr std::size_t kElements = 1000;

class Carriers : public CudaTest {};

/// The carrier's worker rings nobody: these ranks look again and again.
const std::function<void()> kNobody = [] {};

/// One rank's end, on the device of its number.
class Rank {
 public:
  Rank(int rank, std::size_t buffers)
      : rank_(rank), context_(std::make_shared<const PrimaryContext>(rank)), guard_(*context_),
        carrier_(context_, buffers, kElements * sizeof(float), std::chrono::seconds(60), kNobody) {}
  [[nodiscard]] NcclCarrier& carrier() { return carrier_; }
  [[nodiscard]] bool has(core::SetId set) const { return sets_.count(set) > 0; }

  /// Nothing for ranks that are no members.
  void add_set(core::SetId set, const UniqueId& id, const std::vector<int>& members) {
    const auto found = std::find(members.begin(), members.end(), rank_);
    if (found == members.end()) return;
    data::DeviceSet is;
    is.number = set;
    is.rank = static_cast<int>(found - members.begin());
    is.size = static_cast<int>(members.size());
    auto made = std::make_unique<SetOnDevice>(std::move(is));
    made->link = &carrier_.connect(id, made->is);
    while (!carrier_.connected(*made->link)) std::this_thread::yield();
    sets_[set] = std::move(made);
  }
  void end_set(core::SetId set) {
    while (!carrier_.end(*sets_.at(set)->link)) std::this_thread::yield();
    sets_.erase(set);
  }

  /// The sum, over the set, of what its ranks give.
  float reduce(core::SetId set, float mine) {
    begin(set, mine);
    return end();
  }
  /// Gives it to the device.
  void begin(core::SetId set, float mine) {
    const std::vector<float> input(kElements, mine);
    Call call;
    call.count = kElements;
    call.dtype = DType::float32;
    portion_.calls = {call};
    Load load{sets_.at(set).get(), &portion_, 0, carrier_.buffer(0)};
    ok(cudaMemcpyAsync(load.memory, input.data(), kElements * sizeof(float), cudaMemcpyHostToDevice, pack_.raw()));
    carrier_.collect(load, pack_);
    while (!carrier_.may_carry(load)) std::this_thread::yield();
    carrier_.carry(load);
    while (!carrier_.carried(load)) std::this_thread::yield();
    load_ = load;
  }
  float end() {
    const Load& load = load_;
    carrier_.deliver(load, unpack_);
    std::vector<float> output(kElements);
    ok(cudaMemcpyAsync(output.data(), load.memory, kElements * sizeof(float), cudaMemcpyDeviceToHost, unpack_.raw()));
    ok(cudaStreamSynchronize(unpack_.raw()));
    for (const float one : output) EXPECT_EQ(one, output.front());
    return output.front();
  }

 private:
  const int rank_;
  const PrimaryContextPtr context_;
  const DeviceGuard guard_;
  NcclCarrier carrier_;
  OwnStream pack_;
  OwnStream unpack_;
  Portion portion_;
  Load load_;
  std::map<core::SetId, std::unique_ptr<SetOnDevice>> sets_;
};

/// With a communicator of all ranks.
void on_ranks(int size, const std::function<void(Rank&, int)>& body, std::size_t buffers = 1) {
  const UniqueId id = make_unique_id();
  std::vector<int> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(rank);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Rank one(rank, buffers);
      one.add_set(core::kGlobalSet, id, all);
      body(one, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Carriers, ProcessSetsHaveCommunicatorsOfTheirOwn) {
  // Some overlap, one is in an order of its own, one has one rank.
  const std::vector<std::vector<int>> members{{0, 2}, {1, 3}, {3, 1, 0}, {2}};
  for (int round = 0; round < 3; ++round) {
    std::vector<UniqueId> ids(members.size());
    std::generate(ids.begin(), ids.end(), make_unique_id);
    on_ranks(4, [&](Rank& rank, int number) {
      for (core::SetId set = 0; set < members.size(); ++set) rank.add_set(set + 1, ids[set], members[set]);
      const auto mine = static_cast<float>(1 << number);
      for (int turn = 0; turn < 5; ++turn) {
        EXPECT_EQ(rank.reduce(core::kGlobalSet, mine), 15.0F);
        for (core::SetId set = 0; set < members.size(); ++set) {
          float sum = 0;
          for (const int member : members[set]) sum += static_cast<float>(1 << member);
          if (!rank.has(set + 1)) continue;
          EXPECT_EQ(rank.reduce(set + 1, mine), sum) << "set " << set << ", rank " << number;
          if (turn == round) rank.end_set(set + 1);
        }
      }
      EXPECT_TRUE(rank.carrier().leave());
    });
    EXPECT_EQ(emulated::calls("ncclCommAbort"), 0U);
  }
}

TEST_F(Carriers, EveryBufferIsRegisteredAndGivenBack) {
  const UniqueId id = make_unique_id();
  on_ranks(
      2,
      [&](Rank& rank, int /*number*/) {
        EXPECT_EQ(rank.reduce(core::kGlobalSet, 1.0F), 2.0F);
        rank.add_set(1, id, {1, 0});
        EXPECT_EQ(rank.reduce(1, 1.0F), 2.0F);
        rank.end_set(1);
        EXPECT_TRUE(rank.carrier().leave());
      },
      8);
  EXPECT_EQ(emulated::calls("ncclCommRegister"), 32U);
  EXPECT_EQ(emulated::calls("ncclCommDeregister"), 32U);
  EXPECT_EQ(emulated::calls("ncclCommAbort"), 0U);
}

TEST_F(Carriers, ACommunicatorThatCannotBeMadeIsNotLeftBehind) {
  emulated::inject({.api = "ncclCommInitRankConfig", .code = ncclSystemError});
  const auto context = std::make_shared<const PrimaryContext>(0);
  const DeviceGuard guard(*context);
  NcclCarrier carrier(context, 1, kElements * sizeof(float), std::chrono::seconds(60), kNobody);
  data::DeviceSet pair;
  pair.size = 2;
  NcclLink& link = carrier.connect(make_unique_id(), pair);
  while (!carrier.connected(link)) std::this_thread::yield();
  EXPECT_NE(link.failure.message().find("ncclCommInitRankConfig failed"), std::string::npos) << link.failure.message();
  for (const std::string& left : emulated::live_objects()) {
    EXPECT_EQ(left.find("communicator"), std::string::npos) << left;
  }
}

/// Its second task waits behind the first, which waits for what runs on the device.
TEST_F(Carriers, ALinkThatIsGivenUpMayEndBeforeItsTasksDo) {
  const UniqueId id = make_unique_id();
  std::atomic<bool> has_ended{false};
  on_ranks(2, [&](Rank& rank, int number) {
    EXPECT_EQ(rank.reduce(core::kGlobalSet, 1.0F), 2.0F);
    if (number == 0) {
      rank.begin(core::kGlobalSet, 1.0F);
      data::DeviceSet pair;
      pair.size = 2;
      NcclLink& link = rank.carrier().connect(id, pair);
      while (emulated::calls("ncclCommInitRankConfig") < 3) std::this_thread::yield();
      rank.carrier().give_up(link);
      rank.carrier().give_up(link);
      while (!rank.carrier().connected(link)) std::this_thread::yield();
      while (!rank.carrier().end(link, /*in_peace=*/false)) std::this_thread::yield();
      has_ended = true;
    } else {
      while (!has_ended) std::this_thread::yield();
      rank.begin(core::kGlobalSet, 1.0F);
    }
    EXPECT_EQ(rank.end(), 2.0F);
    EXPECT_TRUE(rank.carrier().leave());
  });
}

TEST_F(Carriers, AllCommunicatorsAreAbortedTogether) {
  const UniqueId id = make_unique_id();
  on_ranks(3, [&](Rank& rank, int number) {
    rank.add_set(1, id, {0, 1});
    if (number < 2) {
      EXPECT_EQ(rank.reduce(1, 1.0F), 2.0F);
    }
    rank.carrier().abort();
    EXPECT_TRUE(rank.carrier().leave());
  });
}

}  // namespace
}  // namespace kolo::cuda::test
