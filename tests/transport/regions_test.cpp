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

/// Three ranks' regions, and the meetings in which they make them.
struct Ranks {
  std::array<Regions, 3> ranks;

  Regions::Id make(const std::vector<int>& members = {0, 1, 2}) {
    std::vector<std::vector<Regions::Serial>> retired;
    std::vector<std::vector<Regions::Number>> taken;
    for (const int rank : members) {
      retired.push_back(of(rank).retired());
      taken.push_back(of(rank).taken());
    }
    const Regions::Id id{Regions::first_free(taken), of(members.front()).new_serial(members.front())};
    for (const int rank : members) {
      of(rank).forget_common(retired, members);
      EXPECT_TRUE(of(rank).reserve(id));
      of(rank).add(id, nullptr, members);
    }
    return id;
  }
  void retire(const Regions::Id& id, const std::vector<int>& members = {0, 1, 2}) {
    for (const int rank : members) of(rank).retire(id, true);
  }
  Regions& of(int rank) { return ranks[static_cast<std::size_t>(rank)]; }
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
  world.retire(id, {1, 2});
  (void)world.make();  // in whose meeting all say so
  EXPECT_EQ(world.make().number, id.number);
}

TEST(Regions, KeepANumberWhoseMemoryMustStay) {
  Ranks world;
  const Regions::Id id = world.make();
  for (Regions& rank : world.ranks) rank.retire(id, false);
  for (int i = 0; i < 3; ++i) EXPECT_NE(world.make().number, id.number);
}

/// A number is taken on the ranks of its region alone, and free again when all of these have met.
TEST(Regions, OfGroupsHaveNumbersThatAreFreeOnTheirRanks) {
  Ranks world;
  const Regions::Id left = world.make({1, 0});
  const Regions::Id right = world.make({1, 2});
  EXPECT_EQ(left.number, 1);
  EXPECT_EQ(right.number, 2);
  EXPECT_EQ(world.make({2}).number, 1);
  const Regions::Id all = world.make();
  EXPECT_EQ(all.number, 3);
  EXPECT_NE(left.serial, right.serial);
  world.retire(left, {0, 1});
  (void)world.make({1, 2});  // of `left` only rank 1 is there
  EXPECT_EQ(world.of(1).retired(), std::vector<Regions::Serial>{left.serial});
  (void)world.make({0, 1});
  EXPECT_TRUE(world.of(0).retired().empty());
  EXPECT_TRUE(world.of(1).retired().empty());
  world.of(1).retire(all, true);
  world.of(2).retire(all, true);
  (void)world.make();  // rank 0 has not
  EXPECT_EQ(world.of(2).retired(), std::vector<Regions::Serial>{all.serial});
}

TEST(Regions, HaveSixteenBitsOfNumbers) {
  EXPECT_EQ(Regions::first_free({}), 1);
  EXPECT_EQ(Regions::first_free({{1, 5}, {2, 1}}), 3);
  std::vector<Regions::Number> all;
  for (int number = 1; number <= 65'535; ++number) all.push_back(static_cast<Regions::Number>(number));
  EXPECT_EQ(Regions::first_free({{}, all}), 0);
}

TEST(Regions, TakeANumberOnce) {
  Regions regions;
  const Regions::Id first{1, regions.new_serial(3)};
  const Regions::Id second{1, regions.new_serial(3)};
  EXPECT_NE(first.serial, second.serial);
  EXPECT_NE(Regions().new_serial(2), first.serial);
  EXPECT_TRUE(regions.reserve(first));
  EXPECT_FALSE(regions.reserve(second));
  EXPECT_EQ(regions.taken(), std::vector<Regions::Number>{1});
  regions.withdraw(first);
  EXPECT_TRUE(regions.reserve(second));
  regions.add(second, nullptr, {0});
  regions.withdraw(second);  // too late: it is in use
  EXPECT_EQ(regions.taken(), std::vector<Regions::Number>{1});
}

/// Who is no member cannot reach it.
TEST(Regions, AreFoundByBackendsOfTheirMembersAlone) {
  std::array<std::byte, 128> memory{};
  const auto regions = std::make_shared<Regions>();
  const Regions::Id id{1, regions->new_serial(0)};
  ASSERT_TRUE(regions->reserve(id));
  regions->add(id, std::make_shared<FakeRegion>(memory.data(), memory.data() + 64), {2, 0});
  for (const std::vector<int>& ranks : {std::vector<int>{0}, {0, 2}, {2, 0}}) {
    EXPECT_EQ(RegionTable(regions, ranks).find(memory.data() + 3, 4), (Place{1} << 48) + 3);
  }
  for (const std::vector<int>& ranks : {std::vector<int>{0, 1}, {0, 1, 2}}) {
    EXPECT_EQ(RegionTable(regions, ranks).find(memory.data() + 3, 4), kNowhere);
    EXPECT_TRUE(RegionTable(regions, ranks).empty());
  }
}

TEST(Regions, KeepThePeersPartsOfWhatIsRetired) {
  std::array<std::byte, 128> memory{};
  const auto regions = std::make_shared<Regions>();
  RegionTable table(regions);
  const auto first = std::make_shared<FakeRegion>(memory.data(), memory.data() + 64);
  ASSERT_TRUE(regions->reserve({1, 7}));
  regions->add({1, 7}, first, {0, 1});
  EXPECT_EQ(table.find(memory.data() + 3, 4), (Place{1} << 48) + 3);
  regions->retire({1, 7}, true);
  EXPECT_TRUE(first->released);
  EXPECT_EQ(table.find(memory.data() + 3, 4), kNowhere);
  EXPECT_EQ(table.at(1, (Place{1} << 48) + 5), memory.data() + 69) << "peers' parts stay";
  regions->forget_common({{7}, {7}}, {0, 1});
  EXPECT_EQ(regions->size(), 0U);
  const auto second = std::make_shared<FakeRegion>(memory.data(), memory.data() + 64);
  ASSERT_TRUE(regions->reserve({1, 8}));
  regions->add({1, 8}, second, {0, 1});
  EXPECT_EQ(table.find(memory.data() + 3, 4), (Place{1} << 48) + 3);
  ASSERT_TRUE(regions->reserve({2, 9}));
  regions->add({2, 9}, nullptr, {0, 1});  // a device's
  regions->detach_all();
  EXPECT_TRUE(second->detached);
  EXPECT_FALSE(first->detached);
}

}  // namespace
}  // namespace kolo::transport
