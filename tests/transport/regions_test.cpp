// SPDX-License-Identifier: Apache-2.0
#include "transport/regions.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace kolo::transport {
namespace {

/// A page of each of two ranks.
class FakeRegion final : public SharedRegion {
 public:
  FakeRegion(std::byte* own, std::byte* peers) : own_(own), peers_(peers) {}
  [[nodiscard]] std::size_t bytes() const noexcept override { return 64; }
  [[nodiscard]] std::byte* own() const noexcept override { return released ? nullptr : own_; }
  [[nodiscard]] std::byte* of(int local_rank) const noexcept override { return local_rank == 0 ? own_ : peers_; }
  void detach() noexcept override { detached = true; }
  void release_own() noexcept override { released = true; }

  bool detached = false;
  bool released = false;

 private:
  std::byte* own_;
  std::byte* peers_;
};

/// Two ranks' regions, and the meetings in which they make them. Rank 0 is `ranks[0]`.
struct Ranks {
  std::array<Regions, 2> ranks;

  Regions::Id make(const std::shared_ptr<SharedRegion>& region = nullptr) {
    const Regions::Id id = ranks[0].propose();
    const std::vector<std::vector<Regions::Serial>> lists{ranks[0].retired(), ranks[1].retired()};
    for (Regions& rank : ranks) {
      rank.forget_common(lists);
      if (id.number != 0) rank.add(id, region);
    }
    return id;
  }
  void retire(const Regions::Id& id) {
    for (Regions& rank : ranks) rank.retire(id, true);
  }
};

TEST(Regions, GiveNumbersAgainAndForgetWhatIsGone) {
  Ranks world;
  const Regions::Id stays = world.make();
  std::set<Regions::Serial> serials{stays.serial};
  for (int i = 0; i < 70'000; ++i) {
    const Regions::Id id = world.make();
    ASSERT_NE(id.number, 0);
    ASSERT_NE(id.number, stays.number);
    ASSERT_TRUE(serials.insert(id.serial).second);
    world.retire(id);
    ASSERT_LE(world.ranks[0].size(), 4U);
    ASSERT_LE(world.ranks[1].size(), 4U);
  }
}

TEST(Regions, KeepANumberUntilAllHaveRetiredIt) {
  Ranks world;
  const Regions::Id id = world.make();
  world.ranks[0].retire(id, true);
  for (int i = 0; i < 3; ++i) {
    const Regions::Id other = world.make();
    EXPECT_NE(other.number, id.number);
    world.retire(other);
  }
  EXPECT_EQ(world.ranks[0].retired().front(), id.serial);
  world.ranks[1].retire(id, true);
  (void)world.make();  // in whose meeting both say so
  EXPECT_EQ(world.make().number, id.number);
}

TEST(Regions, KeepANumberWhoseMemoryMustStay) {
  Ranks world;
  const Regions::Id id = world.make();
  for (Regions& rank : world.ranks) rank.retire(id, false);
  for (int i = 0; i < 3; ++i) EXPECT_NE(world.make().number, id.number);
}

TEST(Regions, HaveSixteenBitsOfNumbers) {
  Regions regions;
  Regions::Id last;
  for (int i = 0; i < 40; ++i) last = regions.propose();
  EXPECT_EQ(last.number, 40);
  regions.withdraw(last);
  const Regions::Id again = regions.propose();
  EXPECT_EQ(again.number, 40);
  EXPECT_NE(again.serial, last.serial);
  regions.add(again, nullptr);
  regions.withdraw(again);  // too late: it is in use
  EXPECT_EQ(regions.propose().number, 41);
}

/// A rank may hear of a new region before it has forgotten the one that had its number.
TEST(Regions, ReplaceARegionThatIsAboutToBeForgotten) {
  std::array<std::byte, 128> memory{};
  const auto regions = std::make_shared<Regions>();
  RegionTable table(regions);
  const auto first = std::make_shared<FakeRegion>(memory.data(), memory.data() + 64);
  regions->add({1, 7}, first);
  EXPECT_EQ(table.find(memory.data() + 3, 4), (Place{1} << 48) + 3);
  regions->retire({1, 7}, true);
  EXPECT_TRUE(first->released);
  EXPECT_EQ(table.find(memory.data() + 3, 4), kNowhere);
  EXPECT_EQ(table.at(1, (Place{1} << 48) + 5), memory.data() + 69) << "peers' parts stay";
  const auto second = std::make_shared<FakeRegion>(memory.data(), memory.data() + 64);
  regions->add({1, 8}, second);
  regions->forget_common({{7}, {7}});  // the one that is gone already
  EXPECT_EQ(regions->size(), 1U);
  EXPECT_EQ(table.find(memory.data() + 3, 4), (Place{1} << 48) + 3);
  regions->add({2, 9}, nullptr);  // a device's
  regions->detach_all();
  EXPECT_TRUE(second->detached);
  EXPECT_FALSE(first->detached);
}

}  // namespace
}  // namespace kolo::transport
