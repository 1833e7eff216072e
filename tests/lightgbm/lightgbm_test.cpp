// SPDX-License-Identifier: Apache-2.0
//
// What LightGBM gets: sums and blocks of every rank, added in the order of its own network, and sentences where it is
// used wrongly. This program stands in for LightGBM: it exports the two functions that Kolo looks for, and calls back.
// scripts/test plugins trains with the real one.
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/kolo.hpp>
#include <kolo/lightgbm.hpp>

#include "lightgbm/sums.hpp"
#include "tests/optimizer/errors.hpp"

namespace {

using Bytes = std::int32_t;
using Reducer = void (*)(const char*, char*, int, Bytes);
using ReduceScatter = void (*)(char*, Bytes, int, const Bytes*, const Bytes*, int, char*, Bytes, const Reducer&);
using Allgather = void (*)(char*, Bytes, const Bytes*, const Bytes*, int, char*, Bytes);

/// LightGBM's network, which is the thread's.
struct Network {
  int machines = 1;
  int rank = 0;
  ReduceScatter reduce_scatter = nullptr;
  Allgather allgather = nullptr;
};
thread_local Network network;

}  // namespace

extern "C" {
KOLO_API int LGBM_NetworkInitWithFunctions(int machines, int rank, void* reduce_scatter, void* allgather) {
  if (machines > 1) {
    network = {machines, rank, reinterpret_cast<ReduceScatter>(reduce_scatter), reinterpret_cast<Allgather>(allgather)};
  }
  return 0;
}
KOLO_API int LGBM_NetworkFree() {
  network = {};
  return 0;
}
}

namespace {

using kolo::test::error_of;

void add_doubles(const char* input, char* output, int, Bytes bytes) {
  for (Bytes at = 0; at < bytes; at += 8) {
    double a = 0, b = 0;
    std::memcpy(&a, input + at, 8);
    std::memcpy(&b, output + at, 8);
    b += a;
    std::memcpy(output + at, &b, 8);
  }
}

/// Blocks of these numbers of doubles, one behind another, in bytes.
struct Blocks {
  std::vector<Bytes> starts, lengths;
  Bytes end = 0;
  explicit Blocks(const std::vector<int>& counts) {
    for (const int count : counts) {
      starts.push_back(end);
      lengths.push_back(8 * count);
      end += 8 * count;
    }
  }
};

/// What rank `rank` has at place `i`: doubles whose sum depends on the order.
double part(int rank, int i) { return 1.0 / (1 + rank * 7 + i * 13); }

/// All ranks' parts of one element, added as LightGBM's recursive halving adds them: `held[r]` is what rank r has of it
/// while the ranks that keep the element become fewer.
double halved(int ranks, int owner, int i) {
  std::vector<double> held;
  std::vector<int> group_of;
  int groups = 1;
  while (2 * groups <= ranks) groups *= 2;
  const int alone = 2 * groups - ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool is_second = rank >= alone && (rank - alone) % 2 == 1;
    if (is_second) {
      held.back() += part(rank, i);
    } else {
      held.push_back(part(rank, i));
    }
    group_of.push_back(static_cast<int>(held.size()) - 1);
  }
  const int mine = group_of[static_cast<std::size_t>(owner)];
  for (int distance = groups / 2; distance > 0; distance /= 2) {
    std::vector<double> next = held;
    for (int group = 0; group < groups; ++group) {
      const std::size_t partner = static_cast<std::size_t>(group ^ distance);
      if (group / distance == mine / distance) {
        next[static_cast<std::size_t>(group)] = held[static_cast<std::size_t>(group)] + held[partner];
      }
    }
    held = next;
  }
  return held[static_cast<std::size_t>(mine)];
}

double in_a_ring(int ranks, int owner, int i) {
  double sum = part((owner + 1) % ranks, i);
  for (int step = 2; step <= ranks; ++step) sum = part((owner + step) % ranks, i) + sum;
  return sum;
}

TEST(LightGbmSums, AreAddedInItsOrder) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (int owner = 0; owner < ranks; ++owner) {
      for (const std::int64_t bytes : {std::int64_t{100}, std::int64_t{64} << 20}) {
        std::vector<double> parts;
        for (int rank = 0; rank < ranks; ++rank) parts.push_back(part(rank, owner));
        const int sum = kolo::lightgbm::add_in_order(ranks, owner, bytes, [&](int from, int to) {
          parts[static_cast<std::size_t>(to)] += parts[static_cast<std::size_t>(from)];
        });
        const bool is_ring = bytes > 1000 && (ranks & (ranks - 1)) != 0;
        EXPECT_EQ(parts[static_cast<std::size_t>(sum)],
                  is_ring ? in_a_ring(ranks, owner, owner) : halved(ranks, owner, owner))
            << ranks << " ranks, owner " << owner;
      }
    }
  }
}

TEST(LightGbm, GetsTheSumOfItsBlock) {
  for (const int ranks : {2, 3, 4}) {
    kolo::run_local(ranks, [ranks] {
      const int me = kolo::rank();
      kolo::lightgbm::attach(kolo::world());
      ASSERT_EQ(network.machines, ranks);
      ASSERT_EQ(network.rank, me);
      for (const int factor : {1, 0, 5000}) {
        std::vector<int> counts;
        for (int rank = 0; rank < ranks; ++rank) counts.push_back(factor * rank + (factor == 0 && rank == 1 ? 3 : 0));
        const Blocks blocks(counts);
        std::vector<double> input;
        for (int i = 0; i < blocks.end / 8; ++i) input.push_back(part(me, i));
        std::vector<double> output(input.size() + 1, -1);
        const Reducer add = add_doubles;
        network.reduce_scatter(reinterpret_cast<char*>(input.data()), blocks.end, 8, blocks.starts.data(),
                               blocks.lengths.data(), ranks, reinterpret_cast<char*>(output.data()), blocks.end, add);
        const auto mine = static_cast<std::size_t>(me);
        for (int i = 0; i < blocks.lengths[mine] / 8; ++i) {
          ASSERT_EQ(output[static_cast<std::size_t>(i)], halved(ranks, me, blocks.starts[mine] / 8 + i));
        }
        EXPECT_EQ(output.back(), -1);
      }
      EXPECT_EQ(kolo::lightgbm::calls(), 3U);
      kolo::lightgbm::detach();
      EXPECT_EQ(network.machines, 1);
    });
  }
}

TEST(LightGbm, GathersBlocksAlsoInPlace) {
  for (const int ranks : {2, 3, 4}) {
    kolo::run_local(ranks, [ranks] {
      const int me = kolo::rank();
      kolo::lightgbm::attach(kolo::world());
      std::vector<int> counts;
      for (int rank = 0; rank < ranks; ++rank) counts.push_back(rank == 1 ? 0 : 2 + rank);
      const Blocks blocks(counts);
      std::vector<double> expected;
      for (int rank = 0; rank < ranks; ++rank) {
        for (int i = 0; i < counts[static_cast<std::size_t>(rank)]; ++i) expected.push_back(part(rank, i));
      }
      for (const bool in_place : {false, true}) {
        std::vector<double> output(expected.size(), -1), own(8);
        double* const input = in_place ? output.data() : own.data();  // its all-reduce leaves the block at the front
        for (int i = 0; i < counts[static_cast<std::size_t>(me)]; ++i) input[i] = part(me, i);
        network.allgather(reinterpret_cast<char*>(input), blocks.lengths[static_cast<std::size_t>(me)],
                          blocks.starts.data(), blocks.lengths.data(), ranks, reinterpret_cast<char*>(output.data()),
                          blocks.end);
        EXPECT_EQ(output, expected);
      }
      kolo::lightgbm::detach();
    });
  }
}

TEST(LightGbm, ThatNeverCalledIsAnError) {
  kolo::run_local(2, [] {
    kolo::lightgbm::attach(kolo::world());
    std::thread([] { EXPECT_EQ(network.machines, 1); }).join();  // where a training would be alone
    EXPECT_EQ(error_of([] { kolo::lightgbm::detach(); }),
              "invalid_argument: LightGBM has never reached for the other ranks, so each has trained on its own data "
              "alone: train on the thread that has called kolo::lightgbm::attach(), with num_machines=2 and "
              "tree_learner=data (or voting)");
    EXPECT_EQ(error_of([] { kolo::lightgbm::detach(); }), "nothing");
    kolo::lightgbm::attach(kolo::world());  // again
    EXPECT_EQ(error_of([] { kolo::lightgbm::attach(kolo::world()); }),
              "invalid_argument: kolo::lightgbm::attach() twice on one thread: call kolo::lightgbm::detach() before");
    EXPECT_NE(error_of([] { kolo::lightgbm::detach(); }), "nothing");
  });
}

TEST(LightGbm, IsAloneInAGroupOfOne) {
  kolo::run_local(1, [] {
    kolo::lightgbm::attach(kolo::world());
    EXPECT_EQ(network.machines, 1);
    EXPECT_EQ(error_of([] { kolo::lightgbm::detach(); }), "nothing");
  });
}

/// One collective of LightGBM's, of a byte block of each rank.
void gather_once(int ranks) {
  const Blocks blocks(std::vector<int>(static_cast<std::size_t>(ranks), 1));
  std::vector<double> input(1), output(static_cast<std::size_t>(ranks));
  network.allgather(reinterpret_cast<char*>(input.data()), 8, blocks.starts.data(), blocks.lengths.data(), ranks,
                    reinterpret_cast<char*>(output.data()), 8 * ranks);
}

TEST(LightGbm, IsToldAtOnceThatOneRankHasStoppedEarly) {
  kolo::run_local(3, [] {
    kolo::lightgbm::attach(kolo::world());
    gather_once(3);
    const std::string said = error_of([] {
      if (kolo::rank() == 1) return kolo::lightgbm::detach();
      gather_once(3);
    });
    EXPECT_EQ(said,
              "mismatch: LightGBM's training has ended on rank 1 and goes on on ranks 0 and 2: end it at the same "
              "iteration on every rank; early stopping does if all ranks give the same validation rows");
    if (kolo::rank() != 1) {
      EXPECT_EQ(error_of([] { kolo::lightgbm::end_training(); }), "nothing");  // waits for nobody
    }
    EXPECT_EQ(error_of([] { kolo::lightgbm::detach(); }), "nothing");
    kolo::barrier();  // the job goes on
    kolo::lightgbm::attach(kolo::world());
    gather_once(3);
    kolo::lightgbm::end_training();
    if (kolo::rank() == 0) kolo::lightgbm::end_training();  // it has ended already: waits for nobody
    gather_once(3);
    if (kolo::rank() == 2) kolo::lightgbm::end_training("the others have ended it, too");
    EXPECT_EQ(error_of([] { kolo::lightgbm::detach(); }), "nothing");
  });
}

TEST(LightGbm, IsToldOfTheErrorThatHasEndedItOnAnotherRank) {
  kolo::run_local(4, [] {
    kolo::lightgbm::attach(kolo::world());
    const std::string said = error_of([] {
      if (kolo::rank() % 2 == 1) return kolo::lightgbm::end_training("ValueError: out of paper");
      gather_once(4);
    });
    EXPECT_EQ(said, "mismatch: LightGBM's training has ended on ranks 1 and 3, by an error (ValueError: out of paper), "
                    "and goes on on ranks 0 and 2");
    const bool has_called = kolo::lightgbm::calls() > 0;
    EXPECT_EQ(error_of([] { kolo::lightgbm::detach(); }) == "nothing", has_called);
  });
}

TEST(LightGbm, KeepsKolosSentenceWhereRanksTrainDifferently) {
  kolo::run_local(2, [] {
    kolo::lightgbm::attach(kolo::world());
    const std::string said = error_of([] {
      if (kolo::rank() == 1) return gather_once(2);
      const Blocks blocks({1, 1});
      std::vector<double> input(2), output(2);
      const Reducer add = add_doubles;
      network.reduce_scatter(reinterpret_cast<char*>(input.data()), blocks.end, 8, blocks.starts.data(),
                             blocks.lengths.data(), 2, reinterpret_cast<char*>(output.data()), blocks.end, add);
    });
    EXPECT_EQ(said.substr(0, 10), "mismatch: ") << said;
    EXPECT_EQ(said.find("has ended"), std::string::npos) << said;
    EXPECT_EQ(error_of([] { kolo::lightgbm::detach(); }), "nothing");
  });
}

TEST(LightGbm, MayBeDetachedAfterTheContextIsGone) {
  kolo::run_local(2, [] {
    kolo::Context separate(kolo::Options().with_setting("KOLO_ALONE", "1"));
    kolo::lightgbm::attach(separate);
    separate.shutdown();
    EXPECT_EQ(error_of([] { kolo::lightgbm::end_training(); }), "nothing");
    EXPECT_EQ(error_of([] { kolo::lightgbm::detach(); }), "nothing");
  });
}

TEST(LightGbm, IsToldOfALostRank) {
  EXPECT_NE(error_of([] {
              kolo::run_local(2, [] {
                kolo::lightgbm::attach(kolo::world());
                if (kolo::rank() == 1) throw std::runtime_error("out of paper");
                const Blocks blocks({1, 1});
                std::vector<double> input(2), output(2);
                const auto gather = [&] {
                  network.allgather(reinterpret_cast<char*>(input.data()), 8, blocks.starts.data(),
                                    blocks.lengths.data(), 2, reinterpret_cast<char*>(output.data()), 16);
                };
                const std::string said = error_of(gather);
                EXPECT_NE(said.find("out of paper"), std::string::npos) << said;
                kolo::lightgbm::detach();
              });
            }),
            "");
}

}  // namespace
