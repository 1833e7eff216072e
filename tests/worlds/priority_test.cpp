// SPDX-License-Identifier: Apache-2.0
//
// Priorities: of what waits for room the most urgent runs first. Rank 1's engine stands still while everything is
// submitted: its background thread is inside a callback, and its own thread calls nothing of Kolo's. So one batch stays
// open, and the others wait.
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "tests/optimizer/model.hpp"
#include "tests/support/gate.hpp"
#include "world.hpp"

namespace {

using kolo::AllreduceOptions;
using kolo::ErrorCode;
using kolo::testing::Gate;
using kolo::testing::run_in;
using kolo::testing::sentence_of;
using Names = std::vector<std::string>;

/// In which order these all-reduces completed on rank 0.
class Completions {
 public:
  explicit Completions(Names wanted) : wanted_(std::move(wanted)) {}
  [[nodiscard]] kolo::Options options() {
    kolo::Options options;
    options.log_sink = [this](const kolo::LogRecord& record) {
      if (record.rank == 0 && record.level == kolo::LogLevel::trace) note(record.message);
    };
    return options.with_setting("KOLO_LOG_LEVEL", "trace")
        .with_setting("KOLO_OPEN_BATCHES", "1")
        .with_setting("KOLO_FUSION_THRESHOLD", "0")
        .with_setting("KOLO_TIMEOUT_S", "100");
  }
  /// Returns when all have. The caller calls nothing of Kolo's meanwhile, so that one thread alone completes them.
  [[nodiscard]] Names await() {
    come_.wait_for(static_cast<int>(wanted_.size()));
    const std::lock_guard lock(mutex_);
    return found_;
  }

 private:
  void note(const std::string& message) {
    for (const std::string& name : wanted_) {
      if (message.rfind("done: allreduce of \"" + name + "\"", 0) != 0) continue;
      const std::lock_guard lock(mutex_);
      found_.push_back(name);
      come_.come();
    }
  }

  const Names wanted_;
  std::mutex mutex_;
  Names found_;
  Gate come_;
};

/// Both ranks submit, so that nothing of it runs before all of it has been heard; rank 0 tells in which order it ran.
class StandStill {
 public:
  [[nodiscard]] Names run(Completions& completions, const std::function<void()>& submit) {
    float held = 0;
    float first = 0;
    if (kolo::rank() == 1) {
      kolo::Handle opening = open(first);
      submit();
      kolo::Handle holding = kolo::allreduce_async("hold", kolo::view(&held, {}));
      holding.on_done([this](const kolo::Status&) {
        stands_.come();
        goes_on_.wait_for(1);
      });
      armed_.come();
      goes_on_.wait_for(1);
      opening.wait();
      holding.wait();
      return {};
    }
    armed_.wait_for(1);
    kolo::Handle holding = kolo::allreduce_async("hold", kolo::view(&held, {}));
    stands_.wait_for(1);
    // Either its end has been heard, and this one takes its room, or not.
    kolo::Handle opening = open(first);
    hear();
    submit();
    hear();
    goes_on_.come();
    Names found = completions.await();
    opening.wait();
    holding.wait();
    return found;
  }

 private:
  static kolo::Handle open(float& tensor) {
    return kolo::allreduce_async("first", kolo::view(&tensor, {}), AllreduceOptions{}.with_priority(100));
  }
  /// What rank 0 has submitted is known to the one that decides: it has answered a later request.
  static void hear() { static_cast<void>(kolo::Group::of({0})); }

  Gate armed_, stands_, goes_on_;
};

TEST(Priority, TheMostUrgentOfWhatWaitsRunsFirst) {
  const std::vector<std::pair<std::string, int>> calls = {{"low", -1},   {"a", 0},        {"high", 5},   {"b", 0},
                                                          {"higher", 6}, {"prepared", 4}, {"grouped", 3}};
  Completions completions({"hold", "first", "low", "a", "high", "b", "higher", "prepared", "grouped"});
  StandStill still;
  run_in(2, completions.options(), [&] {
    std::vector<std::vector<float>> tensors(calls.size(), std::vector<float>(100, 1.0F));
    std::vector<kolo::Handle> handles;
    kolo::Prepared prepared =
        kolo::prepare("prepared", kolo::Call::allreduce(kolo::view(tensors[5]), AllreduceOptions{}.with_priority(4)));
    const Names order = still.run(completions, [&] {
      for (std::size_t i = 0; i < 5; ++i) {
        const AllreduceOptions options = AllreduceOptions{}.with_priority(calls[i].second);
        handles.push_back(kolo::allreduce_async(calls[i].first, kolo::view(tensors[i]), options));
      }
      handles.push_back(prepared.start());
      const std::vector<kolo::NamedView> members = {{"member", kolo::view(tensors[6])}};
      handles.push_back(
          kolo::grouped_allreduce_async("grouped", members, AllreduceOptions{}.with_priority(calls[6].second)));
    });
    kolo::wait_all(handles);
    for (const std::vector<float>& tensor : tensors) EXPECT_EQ(tensor, std::vector<float>(100, 2.0F));
    if (kolo::rank() == 1) return;
    EXPECT_EQ(order, (Names{"hold", "first", "higher", "high", "prepared", "grouped", "a", "b", "low"}));
  });
}

/// How the gradients of four parameters run, which become ready last one first.
Names order_of_gradients(bool first_layers_first) {
  Names names = {"hold", "first"};
  for (const char* name : {"p0", "p1", "p2", "p3"}) names.push_back(std::string("gradients/") + name);
  Completions completions(names);
  StandStill still;
  Names order;
  run_in(2, completions.options(), [&] {
    kolo::test::Model<float> model;
    for (const char* name : {"p0", "p1", "p2", "p3"}) model.add(name, std::vector<float>(100, 1.0F));
    kolo::Sgd sgd(model.parameters(), kolo::SgdOptions{}.with_learning_rate(0.5));
    kolo::DistributedOptimizer optimizer(
        sgd, model.parameters(), kolo::DistributedOptimizerOptions{}.with_first_layers_first(first_layers_first));
    const Names found = still.run(completions, [&] {
      for (std::size_t i = 4; i > 0; --i) optimizer.gradient_ready(i - 1);
    });
    EXPECT_TRUE(optimizer.step());
    if (kolo::rank() == 0) order = found;
  });
  return order;
}

TEST(Priority, AnOptimizerReducesTheFirstLayersFirst) {
  EXPECT_EQ(order_of_gradients(true),
            (Names{"hold", "first", "gradients/p0", "gradients/p1", "gradients/p2", "gradients/p3"}));
  EXPECT_EQ(order_of_gradients(false),
            (Names{"hold", "first", "gradients/p3", "gradients/p2", "gradients/p1", "gradients/p0"}));
}

TEST(Priority, RanksMustAgreeOnThatOfEveryCollective) {
  kolo::run_local(2, [] {
    const int mine = kolo::rank();
    std::vector<float> in(2, 1.0F);
    std::vector<float> out(4, 0.0F);
    const auto refused = [](const std::string& name, const std::string& kind, const std::function<void()>& call) {
      EXPECT_EQ(sentence_of(ErrorCode::mismatch, call),
                "tensor \"" + name + "\" of " + kind + ": ranks disagree about priority: 0 on rank 0; 1 on rank 1. " +
                    "The operation did not run; submit the same on every rank.");
    };
    const auto view = kolo::view(in);
    const auto source = kolo::const_view(in);
    refused("x", "allreduce", [&] { kolo::allreduce("x", view, AllreduceOptions{}.with_priority(mine)); });
    refused("g", "allreduce", [&] {
      const std::vector<kolo::NamedView> members = {{"member", view}};
      kolo::grouped_allreduce("g", members, AllreduceOptions{}.with_priority(mine));
    });
    refused("r", "reduce", [&] { kolo::reduce("r", view, 0, kolo::ReduceOptions{}.with_priority(mine)); });
    refused("s", "reduce_scatter", [&] {
      static_cast<void>(kolo::reduce_scatter("s", source, kolo::ReduceScatterOptions{}.with_priority(mine)));
    });
    refused("b", "broadcast", [&] { kolo::broadcast("b", view, 0, kolo::BroadcastOptions{}.with_priority(mine)); });
    refused("all", "allgather",
            [&] { static_cast<void>(kolo::allgather("all", source, kolo::AllgatherOptions{}.with_priority(mine))); });
    refused("gather", "gather",
            [&] { static_cast<void>(kolo::gather("gather", source, 0, kolo::GatherOptions{}.with_priority(mine))); });
    refused("scatter", "scatter", [&] {
      const auto rows = kolo::view(out.data(), kolo::Shape{1});
      kolo::scatter_into("scatter", source, rows, 0, {}, kolo::ScatterOptions{}.with_priority(mine));
    });
    refused("to all", "alltoall", [&] {
      static_cast<void>(kolo::alltoall("to all", source, {}, kolo::AlltoallOptions{}.with_priority(mine)));
    });
    in.assign(2, 1.0F);
    kolo::allreduce("x", view, AllreduceOptions{}.with_priority(-7));
    EXPECT_EQ(in, std::vector<float>(2, 2.0F)) << "the next time they agree";
    kolo::allreduce_async("x", view, AllreduceOptions{}.with_priority(7)).wait();
    EXPECT_EQ(in, std::vector<float>(2, 4.0F)) << "on another one";
  });
}

TEST(Priority, DoesNotCountWithoutAName) {
  kolo::run_local(2, [] {
    std::vector<float> tensor(2, 1.0F);
    const AllreduceOptions options = AllreduceOptions{}.with_priority(kolo::rank());
    kolo::allreduce(kolo::view(tensor), options);
    kolo::allreduce_async(kolo::view(tensor), options).wait();
    EXPECT_EQ(tensor, std::vector<float>(2, 4.0F));
  });
}

TEST(Priority, CallsOfAGroupHaveOne) {
  kolo::run_local(1, [] {
    std::vector<float> a(2), b(2);
    const kolo::Call calls[] = {kolo::Call::allreduce(kolo::view(a)),
                                kolo::Call::allreduce(kolo::view(b), AllreduceOptions{}.with_priority(5))};
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { kolo::grouped("g", calls); }),
              "grouped call \"g\": its calls differ in priority: 0 in call 0, 5 in call 1; they may differ in their "
              "tensors alone");
  });
}

}  // namespace
