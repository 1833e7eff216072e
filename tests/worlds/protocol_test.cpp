// SPDX-License-Identifier: Apache-2.0
//
// What the design claims about negotiation, looked at through metrics(): once steps repeat, nothing is described
// again, one short log entry a batch comes down, and the batches stay the same. And what may break a plan does so
// without breaking anything else.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/info.hpp>

#include "api/access.hpp"
#include "api/context_impl.hpp"
#include "steps.hpp"
#include "tests/support/sanitized.hpp"
#include "world.hpp"

namespace {

using kolo::detail::Counters;
using kolo::testing::Gradients;
using kolo::testing::run_in;

/// Ranks, and ranks per (virtual) node.
using Form = std::pair<int, int>;

std::string name_of(const testing::TestParamInfo<Form>& info) {
  return std::to_string(info.param.first) + "ranks" + std::to_string(info.param.second) + "pernode";
}

class Protocol : public testing::TestWithParam<Form> {
 protected:
  [[nodiscard]] kolo::Options options() const {
    return kolo::Options{}
        .with_setting("KOLO_RANKS_PER_NODE", std::to_string(GetParam().second))
        .with_setting("KOLO_ROUTES", "*:none=small")  // so that barriers stand in the log as well
        .with_setting("KOLO_TIMEOUT_S", "100");
  }
  [[nodiscard]] int ranks() const { return GetParam().first; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(ranks()); }
};

/// This rank's metrics when it has done, and its engine has drained, everything that the body called so far; and before
/// any rank has left.
Counters settled() {
  kolo::barrier();
  Counters metrics = kolo::detail::counters();
  kolo::barrier();
  return metrics;
}

constexpr std::size_t kTensors = 30;
constexpr int kLearnt = 10;
constexpr int kLast = kolo::testing::unless_sanitized(100, 40);
/// Where the machine stands still for a tenth of a second ranks say that they are starved: a message now and then.
constexpr std::uint64_t kStalls = 30;

/// What each rank saw after step kLearnt, and after step kLast.
struct Seen {
  Counters early;
  Counters late;
};

template <class Step>
std::vector<Seen> watch(int ranks, const kolo::Options& options, Step step_of) {
  std::vector<Seen> seen(static_cast<std::size_t>(ranks));
  run_in(ranks, options, [&] {
    Gradients gradients(kTensors);
    auto& mine = seen[static_cast<std::size_t>(kolo::rank())];
    for (int step = 1; step <= kLast; ++step) {
      step_of(gradients, step);
      kolo::end_step();
      if (step == kLearnt) mine.early = settled();
    }
    mine.late = settled();
  });
  return seen;
}

TEST_P(Protocol, ASteadyStepSendsCountsAndReadsOneEntryABatch) {
  // A threshold that cuts a step into several batches.
  const std::vector<Seen> seen =
      watch(ranks(), options().with_setting("KOLO_FUSION_THRESHOLD", "4K"),
            [](Gradients& gradients, int step) { gradients.run(kolo::current_context(), step); });
  const std::uint64_t steps = kLast - kLearnt;
  for (const auto& [early, late] : seen) {
    EXPECT_EQ(late.signatures_sent, early.signatures_sent);
    EXPECT_EQ(late.counts_published - early.counts_published, steps * kTensors);
    EXPECT_LE(late.messages_posted - early.messages_posted, kStalls + 2) << "and two of barriers";
    EXPECT_EQ(late.plans, 1U);
    EXPECT_EQ(late.plans_voided, 0U);
    const std::uint64_t batches = late.batches - early.batches;
    EXPECT_EQ(late.planned_batches - early.planned_batches, batches - 2) << "all but the barriers";
    EXPECT_EQ(late.log_entries - early.log_entries, batches + late.pushes - early.pushes);
    EXPECT_EQ(batches - 2, steps * late.last_step_batches);
    EXPECT_GT(late.last_step_batches, 1U);
    EXPECT_LT(late.last_step_batches, kTensors);
    EXPECT_LE(late.log_bytes - early.log_bytes, batches * 16);
    EXPECT_EQ(late.failures, 0U);
    // The batches of step kLearnt are those of step kLast, on every rank.
    EXPECT_EQ(early.last_step_digest, late.last_step_digest);
    EXPECT_EQ(early.last_step_batches, late.last_step_batches);
    EXPECT_EQ(late.last_step_digest, seen.front().late.last_step_digest);
    EXPECT_EQ(late.last_step_batches, seen.front().late.last_step_batches);
    EXPECT_NE(late.last_step_digest, 0U);
  }
}

TEST_P(Protocol, FramesBetweenNodesAreBoundedByTensorsNotByRanks) {
  const std::vector<Seen> seen =
      watch(ranks(), options(), [](Gradients& gradients, int step) { gradients.run(kolo::current_context(), step); });
  const std::uint64_t steps = kLast - kLearnt;
  const int per_node = GetParam().second == 0 ? ranks() : GetParam().second;
  const auto nodes = static_cast<std::uint64_t>((ranks() + per_node - 1) / per_node);
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    const auto& [early, late] = seen[rank];
    const std::uint64_t sent = late.control_frames_sent - early.control_frames_sent;
    const std::uint64_t received = late.control_frames_received - early.control_frames_received;
    if (nodes == 1 || rank % static_cast<std::size_t>(per_node) != 0) {
      EXPECT_EQ(late.control_frames_sent, 0U) << "only leaders of several nodes talk TCP";
      EXPECT_EQ(late.control_frames_received, 0U);
      continue;
    }
    // At worst every count goes alone: those of the tensors, of the step's end, of a completed batch; two barriers'
    // two.
    const std::uint64_t counts = steps * (kTensors + 1 + late.last_step_batches) + 4;
    const std::uint64_t entries = steps * late.last_step_batches + 2;
    EXPECT_LE(sent, counts + (nodes - 1) * entries);
    EXPECT_LE(received, (nodes - 1) * counts + entries);
    EXPECT_GE(sent, steps);
    EXPECT_GE(received, steps);
  }
}

TEST_P(Protocol, AMetricNowAndThenGoesInBetween) {
  const std::vector<Seen> seen = watch(ranks(), options(), [](Gradients& gradients, int step) {
    gradients.run(kolo::current_context(), step);
    if (step % 7 != 0) return;
    float loss = static_cast<float>(kolo::rank());
    kolo::allreduce("loss", kolo::TensorView(&loss, kolo::DType::float32, kolo::Shape{}));
    EXPECT_EQ(loss, static_cast<float>(kolo::size() * (kolo::size() - 1)) / 2);
  });
  for (const auto& [early, late] : seen) {
    EXPECT_EQ(late.plans, 1U);
    EXPECT_EQ(late.plans_voided, 0U);
    EXPECT_EQ(late.signatures_sent, early.signatures_sent);
    EXPECT_EQ(early.last_step_digest, late.last_step_digest) << "neither step has a metric";
    const std::uint64_t metrics = kLast / 7 - kLearnt / 7;
    EXPECT_EQ((late.batches - late.planned_batches) - (early.batches - early.planned_batches), metrics + 2);
  }
}

/// The metric of every step comes after the gradients have been waited for: a plan that fuses it with them is broken
/// once, and the cut is remembered.
TEST_P(Protocol, AMetricInEveryStepIsLearntToStandAlone) {
  const std::vector<Seen> seen = watch(ranks(), options(), [](Gradients& gradients, int step) {
    gradients.run(kolo::current_context(), step);
    float loss = 1;
    kolo::allreduce("loss", kolo::TensorView(&loss, kolo::DType::float32, kolo::Shape{}));
    EXPECT_EQ(loss, static_cast<float>(kolo::size()));
  });
  for (const auto& [early, late] : seen) {
    EXPECT_LE(late.plans_voided, 2U);
    EXPECT_EQ(late.plans, late.plans_voided + 1);
    EXPECT_EQ(late.plans, early.plans);
    EXPECT_EQ(late.signatures_sent, early.signatures_sent);
    EXPECT_EQ(late.planned_batches - early.planned_batches, late.batches - early.batches - 2);
    EXPECT_EQ(early.last_step_digest, late.last_step_digest);
    EXPECT_EQ(late.last_step_digest, seen.front().late.last_step_digest);
  }
}

/// The worst program for a plan that fuses: it waits for each tensor before it submits the next.
TEST_P(Protocol, WaitingForEachTensorLearnsAPlanOfSingles) {
  constexpr std::size_t kFew = 6;
  constexpr int kHalf = kolo::testing::unless_sanitized(100, 40);
  std::vector<Seen> seen(size());
  run_in(ranks(), options(), [&] {
    Gradients gradients(kFew);
    auto& mine = seen[static_cast<std::size_t>(kolo::rank())];
    for (int step = 1; step <= 2 * kHalf; ++step) {
      for (std::size_t which = 0; which < kFew; ++which) {
        gradients.submit(kolo::current_context(), which, step).wait();
        gradients.check(which, step, kolo::size());
      }
      kolo::end_step();
      if (step == kHalf) mine.early = settled();
    }
    mine.late = settled();
  });
  for (const auto& [early, late] : seen) {
    EXPECT_EQ(late.plans_voided, early.plans_voided);
    EXPECT_LE(late.plans_voided, kFew) << "one break a cut";
    EXPECT_EQ(late.planned_batches - early.planned_batches, kHalf * kFew);
    EXPECT_EQ(late.last_step_batches, kFew);
    EXPECT_EQ(early.last_step_digest, late.last_step_digest);
  }
}

TEST_P(Protocol, ManyTensorsWaitedForOneByOneNeverHang) {
  run_in(ranks(), options(), [&] {
    Gradients gradients(20);
    for (int step = 1; step <= kolo::testing::unless_sanitized(40, 15); ++step) {
      for (std::size_t which = 0; which < gradients.count(); ++which) {
        gradients.submit(kolo::current_context(), which, step).wait();
        gradients.check(which, step, kolo::size());
      }
      kolo::end_step();
    }
  });
}

/// Without end_step a step ends when a name comes again.
TEST_P(Protocol, StepsAreRecognisedByRepetition) {
  std::vector<Seen> seen(size());
  run_in(ranks(), options(), [&] {
    Gradients gradients(kTensors);
    auto& mine = seen[static_cast<std::size_t>(kolo::rank())];
    for (int step = 1; step <= kLast; ++step) {
      gradients.run(kolo::current_context(), step);
      if (step == kLearnt) mine.early = settled();
    }
    mine.late = settled();
  });
  for (const auto& [early, late] : seen) {
    EXPECT_EQ(late.signatures_sent, early.signatures_sent);
    EXPECT_LE(late.messages_posted - early.messages_posted, kStalls);
    EXPECT_EQ(late.plans_voided, 0U);
    EXPECT_EQ(late.planned_batches - early.planned_batches, late.batches - early.batches - 2);
  }
}

TEST_P(Protocol, StepsThatAlternate) {
  run_in(ranks(), options(), [] {
    Gradients common(7, "common");
    Gradients even(9, "even");
    Gradients odd(4, "odd");
    for (int step = 0; step < 60; ++step) {
      kolo::Context& context = kolo::current_context();
      std::vector<kolo::Handle> handles;
      Gradients& other = step % 2 == 0 ? even : odd;
      for (std::size_t k = 0; k < common.count(); ++k) handles.push_back(common.submit(context, k, step));
      for (std::size_t k = 0; k < other.count(); ++k) handles.push_back(other.submit(context, k, step));
      kolo::wait_all(handles);
      for (std::size_t k = 0; k < common.count(); ++k) common.check(k, step, kolo::size());
      for (std::size_t k = 0; k < other.count(); ++k) other.check(k, step, kolo::size());
      kolo::end_step();
    }
  });
}

/// A step in which some tensors are missing: nobody waits for the rest of the plan.
TEST_P(Protocol, StepsThatLackPartOfThePlan) {
  run_in(ranks(), options(), [] {
    Gradients gradients(12);
    kolo::Context& context = kolo::current_context();
    for (int step = 0; step < 60; ++step) {
      std::vector<kolo::Handle> handles;
      const std::size_t some = step % 10 < 5 ? 12 : 1 + static_cast<std::size_t>(step % 11);
      for (std::size_t k = 0; k < some; ++k) handles.push_back(gradients.submit(context, k, step));
      kolo::wait_all(handles);
      for (std::size_t k = 0; k < some; ++k) gradients.check(k, step, kolo::size());
      kolo::end_step();
    }
  });
}

TEST_P(Protocol, GroupsArePlannedLikeTensors) {
  std::vector<Seen> seen(size());
  run_in(ranks(), options(), [&] {
    auto& mine = seen[static_cast<std::size_t>(kolo::rank())];
    std::vector<float> a(100);
    std::vector<double> b(77);
    std::vector<float> c(5);
    for (int step = 1; step <= 30; ++step) {
      std::fill(a.begin(), a.end(), static_cast<float>(step));
      std::fill(b.begin(), b.end(), kolo::rank());
      std::fill(c.begin(), c.end(), 1.0F);
      kolo::Handle group = kolo::grouped_allreduce_async("g", {{"a", kolo::view(a)}, {"b", kolo::view(b)}});
      kolo::allreduce("c", kolo::view(c));
      group.wait();
      const int n = kolo::size();
      EXPECT_EQ(a, std::vector<float>(100, static_cast<float>(step * n)));
      EXPECT_EQ(b, std::vector<double>(77, n * (n - 1) / 2.0));
      EXPECT_EQ(c, std::vector<float>(5, static_cast<float>(n)));
      kolo::end_step();
      if (step == kLearnt) mine.early = settled();
    }
    mine.late = settled();
  });
  for (const auto& [early, late] : seen) {
    EXPECT_EQ(late.signatures_sent, early.signatures_sent);
    EXPECT_EQ(late.tensors - early.tensors, 20U * 3) << "members count one by one";
    EXPECT_EQ(late.submissions - early.submissions, 20U * 2 + 2) << "groups as one; and two barriers";
  }
}

// ---------------------------------------------------------------- names that come and go

TEST_P(Protocol, MoreNamesThanNumbers) {
  run_in(ranks(), options().with_setting("KOLO_CACHE_CAPACITY", "16"), [] {
    Gradients gradients(40);
    for (int step = 0; step < 30; ++step) {
      gradients.run(kolo::current_context(), step);
      if (step % 2 == 0) kolo::end_step();
    }
  });
}

TEST_P(Protocol, UniqueNamesForEverKeepNothing) {
  run_in(ranks(), options().with_setting("KOLO_CACHE_CAPACITY", "16"), [] {
    kolo::Context& context = kolo::current_context();
    constexpr int kNames = kolo::testing::unless_sanitized(1000, 300);
    std::vector<float> x(3);
    for (int i = 0; i < kNames; ++i) {
      std::fill(x.begin(), x.end(), static_cast<float>(i));
      kolo::allreduce("once" + std::to_string(i), kolo::view(x));
      ASSERT_EQ(x[2], static_cast<float>(i * kolo::size()));
    }
    EXPECT_LE(kolo::api::impl_of(context).engine().world()->names.size(), 20U);
    EXPECT_EQ(kolo::detail::counters().signatures_sent, static_cast<std::uint64_t>(kNames));
  });
}

/// Names are evicted while their batches still run, and by others that are in flight.
TEST_P(Protocol, UniqueNamesInBurstsKeepNothing) {
  run_in(ranks(), options().with_setting("KOLO_CACHE_CAPACITY", "16"), [] {
    kolo::Context& context = kolo::current_context();
    constexpr int kBurst = 64;
    std::vector<std::vector<float>> x(kBurst, std::vector<float>(3));
    for (int burst = 0; burst < kolo::testing::unless_sanitized(20, 5); ++burst) {
      std::vector<kolo::Handle> handles;
      for (int i = 0; i < kBurst; ++i) {
        std::fill(x[i].begin(), x[i].end(), static_cast<float>(i));
        handles.push_back(kolo::allreduce_async(std::to_string(burst) + "/" + std::to_string(i), kolo::view(x[i])));
      }
      kolo::wait_all(handles);
      for (int i = 0; i < kBurst; ++i) ASSERT_EQ(x[i][2], static_cast<float>(i * kolo::size()));
    }
    kolo::barrier();
    EXPECT_LE(kolo::api::impl_of(context).engine().world()->names.size(), 20U);
  });
}

INSTANTIATE_TEST_SUITE_P(Forms, Protocol,
                         testing::Values(Form{1, 0}, Form{2, 0}, Form{4, 0}, Form{4, 2}, Form{3, 1}, Form{5, 2}),
                         name_of);

// ---------------------------------------------------------------- settings at their limits

struct Harsh {
  const char* what;
  std::vector<std::pair<const char*, const char*>> settings;
};

class HarshSettings : public testing::TestWithParam<std::tuple<Harsh, Form>> {};

TEST_P(HarshSettings, EverythingStillWorks) {
  const auto& [harsh, form] = GetParam();
  kolo::Options options = kolo::Options{}
                              .with_setting("KOLO_RANKS_PER_NODE", std::to_string(form.second))
                              .with_setting("KOLO_TIMEOUT_S", "100");
  for (const auto& [name, value] : harsh.settings) options.with_setting(name, value);
  run_in(form.first, options, [] {
    kolo::Context& context = kolo::current_context();
    Gradients gradients(25, std::string(200, 'n'), 2000);  // names of some length
    std::vector<std::vector<float>> members(300, std::vector<float>(3));
    std::vector<kolo::NamedView> group;
    for (std::size_t i = 0; i < members.size(); ++i) {
      group.push_back({"member" + std::to_string(i), kolo::view(members[i])});
    }
    for (int step = 0; step < kolo::testing::unless_sanitized(12, 6); ++step) {
      for (auto& member : members) std::fill(member.begin(), member.end(), static_cast<float>(kolo::rank() + step));
      kolo::Handle together = kolo::grouped_allreduce_async("group", group);
      gradients.run(context, step);
      together.wait();
      const auto wanted = static_cast<float>(kolo::size() * step + kolo::size() * (kolo::size() - 1) / 2);
      for (const auto& member : members) ASSERT_EQ(member, std::vector<float>(3, wanted));
      const std::vector<int> mine(static_cast<std::size_t>(kolo::rank() + step) * 50, kolo::rank());
      const kolo::Tensor all = kolo::allgather("rows", kolo::const_view(mine));
      const auto got = all.as<int>();
      std::vector<int> all_rows;
      for (int rank = 0; rank < kolo::size(); ++rank) {
        all_rows.insert(all_rows.end(), static_cast<std::size_t>(rank + step) * 50, rank);
      }
      ASSERT_EQ(std::vector<int>(got.begin(), got.end()), all_rows);
      kolo::end_step();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, HarshSettings,
    testing::Combine(testing::Values(Harsh{"NoFusion", {{"KOLO_FUSION_THRESHOLD", "0"}}},
                                     Harsh{"TinyFusion", {{"KOLO_FUSION_THRESHOLD", "100"}}},
                                     Harsh{"NoPlan", {{"KOLO_PLAN", "0"}}},
                                     Harsh{"OneOpenBatch", {{"KOLO_OPEN_BATCHES", "1"}}},
                                     Harsh{"SmallRings", {{"KOLO_MESSAGE_RING", "4K"}, {"KOLO_LOG_RING", "4K"}}},
                                     Harsh{"SmallMailbox", {{"KOLO_MAILBOX", "1"}}},
                                     Harsh{"SmallSlots", {{"KOLO_SLOT_BYTES", "256"}, {"KOLO_SLOTS", "2"}}},
                                     Harsh{"FewNumbers", {{"KOLO_CACHE_CAPACITY", "8"}}},
                                     Harsh{"NoSpin", {{"KOLO_SPIN_US", "0"}}},
                                     Harsh{"Chain", {{"KOLO_TREE_FANOUT", "1"}}},
                                     Harsh{"AllAtOnce",
                                           {{"KOLO_MESSAGE_RING", "4K"},
                                            {"KOLO_LOG_RING", "4K"},
                                            {"KOLO_MAILBOX", "2"},
                                            {"KOLO_SLOT_BYTES", "256"},
                                            {"KOLO_SLOTS", "2"},
                                            {"KOLO_OPEN_BATCHES", "1"},
                                            {"KOLO_CACHE_CAPACITY", "12"},
                                            {"KOLO_FUSION_THRESHOLD", "1K"},
                                            {"KOLO_TREE_FANOUT", "1"},
                                            {"KOLO_SPIN_US", "0"}}}),
                     testing::Values(Form{2, 0}, Form{4, 0}, Form{5, 2}, Form{4, 1})),
    [](const auto& info) {
      const Form form = std::get<1>(info.param);
      return std::string(std::get<0>(info.param).what) + "_" + std::to_string(form.first) + "ranks" +
             std::to_string(form.second) + "pernode";
    });

}  // namespace
