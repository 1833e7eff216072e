// SPDX-License-Identifier: Apache-2.0
#include "engine/name_table.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using kolo::ErrorCode;
using kolo::engine::Entry;
using kolo::engine::NameTable;

template <class Call>
bool is_duplicate(Call&& call) {
  try {
    call();
  } catch (const kolo::Error& error) {
    return error.code() == ErrorCode::duplicate_name;
  }
  return false;
}

TEST(NameTable, ANameIsClaimedOnce) {
  NameTable names(kolo::core::kGlobalSet);
  Entry& entry = names.claim("a");
  EXPECT_EQ(entry.name, "a");
  EXPECT_TRUE(is_duplicate([&] { names.claim("a"); }));
  EXPECT_TRUE(is_duplicate([&] { names.hold("a"); }));
  Entry& other = names.claim("b");
  EXPECT_NE(&entry, &other);
  names.set_name_id(entry, 0);
  names.finished(entry);
  EXPECT_EQ(&names.claim("a"), &entry) << "the same entry, with what is known about the name";
  EXPECT_EQ(names.size(), 2U);
}

TEST(NameTable, HeldNamesAreClaimedByTheirHolderAlone) {
  NameTable names(kolo::core::kGlobalSet);
  Entry& entry = names.hold("a");
  EXPECT_TRUE(is_duplicate([&] { names.claim("a"); }));
  EXPECT_TRUE(is_duplicate([&] { names.hold("a"); }));
  names.claim_held(entry);
  EXPECT_TRUE(is_duplicate([&] { names.claim_held(entry); }));
  names.release(entry);  // its operation goes on
  EXPECT_TRUE(is_duplicate([&] { names.claim("a"); }));
  names.finished(entry);
  EXPECT_EQ(&names.claim("a"), &entry);
}

/// A claim looks at the names behind its own, for a hint, while another thread makes them.
TEST(NameTable, ClaimsHeldNamesWhileTheNextAreMade) {
  constexpr int kNames = 300;
  NameTable names(kolo::core::kGlobalSet);
  std::atomic<Entry*> newest{&names.hold("0")};
  std::thread maker([&] {
    for (int i = 1; i < kNames; ++i) newest.store(&names.hold(std::to_string(i)), std::memory_order_release);
  });
  Entry* entry = nullptr;
  do {
    entry = newest.load(std::memory_order_acquire);
    names.claim_held(*entry);
    names.finished(*entry);
  } while (entry->number + 1 < kNames);
  maker.join();
  EXPECT_EQ(names.size(), kNames);
}

TEST(NameTable, ForgottenNamesGoUnlessSomebodyHasThem) {
  NameTable names(kolo::core::kGlobalSet);
  Entry& idle = names.claim("idle");
  kolo::engine::EntriesByNameId by_name_id;
  by_name_id.add(idle, 1);
  EXPECT_EQ(&by_name_id[1], &idle);
  names.finished(idle);
  by_name_id.forget(1);
  EXPECT_EQ(names.size(), 0U);

  Entry& busy = names.claim("busy");
  names.set_name_id(busy, 2);
  names.forget(busy);
  EXPECT_FALSE(busy.name_id.has_value());
  EXPECT_EQ(names.size(), 1U) << "it is in flight";
  names.finished(busy);
  EXPECT_EQ(names.size(), 0U) << "nobody will ask for it to be forgotten again";

  Entry& held = names.hold("held");
  names.set_name_id(held, 3);
  names.forget(held);
  EXPECT_FALSE(held.name_id.has_value());
  names.claim_held(held);  // the address is still good
  names.finished(held);
  EXPECT_EQ(names.size(), 1U) << "it is held";
  names.release(held);
  EXPECT_EQ(names.size(), 0U);
}

/// A request for a set is one at a time; who waits for the name is told of every end.
TEST(NameTable, ANameIsClaimedInTurn) {
  NameTable names(kolo::core::kGlobalSet);
  int turns = 0;  // guarded by the claim
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        Entry& entry = names.claim_in_turn("a");
        ++turns;
        names.finished(entry);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turns, 2000);
  EXPECT_EQ(names.size(), 0U);
}

TEST(NameTable, NamesThatTheDriverNeverSawGoWithWhoHadThem) {
  NameTable names(kolo::core::kGlobalSet);
  names.release(names.hold("prepared, and never started"));
  EXPECT_EQ(names.size(), 0U);
  names.give_back(names.claim("claimed, and never submitted"));
  EXPECT_EQ(names.size(), 0U);
  Entry& known = names.claim("known");
  names.set_name_id(known, 0);
  names.finished(known);
  names.give_back(names.claim("known"));
  EXPECT_EQ(names.size(), 1U) << "the driver knows it";
}

TEST(NameTable, AnEntryServesForAnotherNameAfterItsOwnHasGone) {
  NameTable names(kolo::core::kGlobalSet);
  Entry& first = names.claim("first");
  first.last = std::make_shared<kolo::engine::Operation>();
  names.set_name_id(first, 0);
  names.finished(first);
  names.forget(first);
  Entry& second = names.claim("second");
  EXPECT_EQ(&second, &first);
  EXPECT_EQ(second.name, "second");
  EXPECT_EQ(second.last, nullptr);
  EXPECT_EQ(second.signature, nullptr);
  EXPECT_FALSE(second.name_id.has_value());
  EXPECT_NE(&names.claim("first"), &second);
}

TEST(NameTable, NamesAreFoundInAnyOrderAndAfterOthersHaveGone) {
  NameTable names(kolo::core::kGlobalSet);
  const std::vector<std::string> all{"a", "b", "c", "d", "e"};
  std::vector<Entry*> entries;
  for (const std::string& name : all) {
    entries.push_back(&names.claim(name));
    names.set_name_id(*entries.back(), static_cast<std::uint32_t>(entries.size()));
  }
  for (Entry* entry : entries) names.finished(*entry);
  const auto claim_again = [&](std::vector<std::size_t> order) {
    for (const std::size_t i : order) EXPECT_EQ(&names.claim(all[i]), entries[i]) << all[i];
    for (const std::size_t i : order) names.finished(*entries[i]);
  };
  claim_again({0, 1, 2, 3, 4});
  claim_again({0, 1, 2, 3, 4});
  claim_again({4, 2, 0, 3, 1});
  claim_again({3, 0, 1, 4, 2});
  for (const std::size_t gone : {1U, 4U, 0U}) {
    names.forget(*entries[gone]);
    entries[gone] = &names.claim(all[gone]);
    EXPECT_EQ(entries[gone]->signature, nullptr) << "a new one";
    EXPECT_FALSE(entries[gone]->name_id.has_value());
    names.set_name_id(*entries[gone], static_cast<std::uint32_t>(gone + 1));
    names.finished(*entries[gone]);
    claim_again({0, 1, 2, 3, 4});
  }
  EXPECT_EQ(names.size(), all.size());
}

TEST(NameTable, ThousandsComeAndGoInAnyOrder) {
  NameTable names(kolo::core::kGlobalSet);
  std::map<std::string, Entry*> known;
  std::mt19937_64 random(1);
  std::uint32_t next_name_id = 0;
  for (int step = 0; step < 20'000; ++step) {
    const std::string name = "layer" + std::to_string(random() % 2'000) + ".weight";
    Entry& entry = names.claim(name);
    ASSERT_EQ(entry.name, name);
    const auto [found, is_new] = known.emplace(name, &entry);
    ASSERT_EQ(found->second, &entry);
    ASSERT_EQ(entry.name_id.has_value(), !is_new);
    if (is_new) names.set_name_id(entry, next_name_id++);
    names.finished(entry);
    if (random() % 3 == 0) {
      names.forget(entry);
      known.erase(found);
    }
    ASSERT_EQ(names.size(), known.size());
  }
}

TEST(NameTable, NeighboursShareEqualSignatures) {
  NameTable names(kolo::core::kGlobalSet);
  kolo::core::Signature signature;
  signature.tensors.push_back({kolo::DType::float32, {3}});
  const auto first = names.share(signature);
  EXPECT_EQ(names.share(signature), first);
  signature.tensors.front().shape = {4};
  const auto second = names.share(signature);
  EXPECT_NE(second, first);
  EXPECT_EQ(*second, signature);
}

/// In the order in which they came first, in another, and with one taken out in between.
TEST(NameTable, FindsTheSameEntryInEveryOrder) {
  NameTable names(kolo::core::kGlobalSet);
  const auto claim = [&](const std::string& name) {
    Entry& entry = names.claim(name);
    names.set_name_id(entry, entry.number);
    names.finished(entry);
    return &entry;
  };
  std::vector<std::string> all;
  for (int i = 0; i < 150; ++i) all.push_back("a name that is long " + std::to_string(i));
  std::vector<Entry*> entries;
  for (const std::string& name : all) entries.push_back(claim(name));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(claim(all[i]), entries[i]);
  for (std::size_t i = all.size(); i-- > 0;) EXPECT_EQ(claim(all[i]), entries[i]);
  claim(all[69]);
  names.forget(*entries[70]);
  EXPECT_EQ(claim("another"), entries[70]);
  claim(all[69]);
  EXPECT_NE(claim(all[70]), entries[70]);
  EXPECT_EQ(claim(all[71]), entries[71]);
  EXPECT_EQ(names.size(), all.size() + 1);
}

TEST(NameTable, OfManyThreadsOneWins) {
  NameTable names(kolo::core::kGlobalSet);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> winners{0};
    std::atomic<int> losers{0};
    const std::string name = "n" + std::to_string(round);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        if (is_duplicate([&] { names.claim(name); })) {
          losers.fetch_add(1);
        } else {
          winners.fetch_add(1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(winners.load(), 1);
    ASSERT_EQ(losers.load(), 3);
  }
}

}  // namespace
