// SPDX-License-Identifier: Apache-2.0
//
// Process sets by the thousand: made, used and dropped until every 16-bit number has gone round, and many at once.
// Three ranks of one node; a rank's counts stand in a column, as on the board, and the leader looks at all of them
// again and again.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "control/participant.hpp"
#include "control/relay.hpp"
#include "control/sequencer.hpp"
#include "tests/control/only.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::control {
namespace {

using core::SetId;
using core::TensorId;

constexpr std::uint32_t kIds = 8;

class SmallWorld {
 public:
  static constexpr int kSize = 3;

  Participant& rank(int which) { return ranks_[static_cast<std::size_t>(which)]; }

  /// Until nobody has anything to say.
  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t child = 0; child < kSize; ++child) moved |= publish(child);
      for (const UpMessage& message : std::exchange(relay_.outbox(), {})) sequencer_.on_message(message, {});
      sequencer_.decide({});
      for (const LogEntry& entry : std::exchange(sequencer_.outbox(), {})) {
        moved = true;
        read(entry);
      }
    }
  }

  /// Ranks 0 and 2 make a set.
  SetId make_set() {
    for (const int member : {0, 2}) rank(member).ask_for_set({2, 0}, "");
    run();
    return made_.back();
  }
  /// They submit in it: a call without a name, and two names.
  void use(SetId set) {
    for (const int member : {0, 2}) {
      rank(member).call(set, signature_, ++calls_[{set, member}]);
      for (const char* name : {"x", "y"}) rank(member).submit(rank(member).open(set, name), signature_);
      rank(member).end_step(set);
    }
    run();
  }
  void drop(SetId set) {
    for (const int member : {0, 2}) rank(member).drop(set);
    run();
  }

  [[nodiscard]] std::size_t made() const { return made_.size(); }
  [[nodiscard]] std::size_t gone() const { return gone_; }
  [[nodiscard]] std::uint64_t batches() const { return batches_; }
  [[nodiscard]] TensorId highest_base() const { return highest_base_; }
  [[nodiscard]] TensorId id_bound() const { return relay_.id_bound(); }

 private:
  static SequencerOptions options() {
    SequencerOptions options;
    options.size = kSize;
    options.capacity = kIds;
    return options;
  }

  bool publish(std::size_t child) {
    const Outbox out = std::exchange(ranks_[child].outbox(), Outbox{});
    for (const UpMessage& message : out.messages) relay_.on_message(child, message);
    for (const auto& [id, word] : out.counts) {
      columns_[child][id] = word;
      relay_.on_count(child, id, word);
    }
    if (columns_[child].size() < 100) {
      for (const auto& [id, word] : columns_[child]) relay_.on_count(child, id, word);
    }
    return !out.empty();
  }

  void read(const LogEntry& entry) {
    if (const auto* added = std::get_if<SetAdded>(&entry)) highest_base_ = std::max(highest_base_, added->base);
    relay_.on_log(entry);
    for (std::size_t child = 0; child < kSize; ++child) {
      std::vector<Action> actions;
      ranks_[child].on_log(entry, actions);
      for (const Action& action : actions) {
        EXPECT_FALSE(std::holds_alternative<FailName>(action));
        if (const auto* made = std::get_if<SetMade>(&action); made != nullptr && child == 0) made_.push_back(made->set);
        if (std::holds_alternative<SetGone>(action) && child == 0) ++gone_;
        const auto* batch = std::get_if<RunBatch>(&action);
        const auto* calls = std::get_if<RunCalls>(&action);
        if (batch == nullptr && calls == nullptr) continue;
        ++batches_;
        ranks_[child].completed(batch != nullptr ? batch->set : calls->set);
      }
    }
  }

  const std::shared_ptr<const core::Signature> signature_ = std::make_shared<const core::Signature>(signature_of(1));
  std::array<Participant, kSize> ranks_{Participant{0, kSize, kIds}, {1, kSize, kIds}, {2, kSize, kIds}};
  Relay relay_{kSize, {{0}, {1}, {2}}, kSize, 4, kIds};
  Sequencer sequencer_{options()};
  std::array<std::map<TensorId, CountWord>, kSize> columns_;
  std::map<std::pair<SetId, int>, core::Round> calls_;  ///< by set and member
  std::vector<SetId> made_;
  std::size_t gone_ = 0;
  std::uint64_t batches_ = 0;
  TensorId highest_base_ = 0;
};

TEST(ManySets, OneAfterTheOtherTakeNoMoreThanOne) {
  SmallWorld world;
  const std::size_t count = testing::share_of(200000U);
  for (std::size_t i = 0; i < count; ++i) {
    const SetId set = world.make_set();
    world.use(set);
    ASSERT_EQ(world.gone(), i);
    world.drop(set);
    ASSERT_EQ(world.made(), i + 1);
  }
  EXPECT_EQ(world.gone(), count);
  EXPECT_EQ(world.batches(), 4 * count) << "of two members, two batches each";
  EXPECT_EQ(world.highest_base(), core::kFirstRow);
  EXPECT_LE(world.id_bound(), kIds);
}

TEST(ManySets, AtOnceCostOnlyTheirRows) {
  SmallWorld world;
  const std::size_t count = testing::share_of(10000U);
  std::vector<SetId> sets;
  for (std::size_t i = 0; i < count; ++i) sets.push_back(world.make_set());
  for (const SetId set : sets) world.use(set);
  EXPECT_EQ(world.batches(), 4 * count);
  EXPECT_LE(world.id_bound(), kIds) << "names are evicted, sets are not";
  for (const SetId set : sets) world.drop(set);
  EXPECT_EQ(world.gone(), count);
  EXPECT_EQ(world.highest_base(), core::kFirstRow + (count - 1) * core::kReservedIds);
}

}  // namespace
}  // namespace kolo::control
