// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using kolo::DType;
using kolo::Shape;
using kolo::core::CollectiveKind;
using kolo::data::Job;
using kolo::data::Progress;
using kolo::engine::Batch;
using kolo::engine::Executor;
using kolo::engine::Operation;
using kolo::engine::OperationPtr;

/// Finishes what the test says, when it says.
class FakeBackend final : public kolo::data::Backend {
 public:
  std::vector<Job*> started;
  std::vector<Job*> to_finish;
  int asked = 0;
  bool aborted = false;

  [[nodiscard]] std::string describe() const override { return "fake"; }
  void start(Job& job) override { started.push_back(&job); }
  Progress progress(std::vector<Job*>& finished) override {
    ++asked;
    if (to_finish.empty()) return Progress::waiting;
    finished = std::exchange(to_finish, {});
    return Progress::advanced;
  }
  [[nodiscard]] std::optional<std::vector<int>> awaited() const override { return awaits; }
  void abort() noexcept override { aborted = true; }

  std::optional<std::vector<int>> awaits;
};

/// The same of a device, with an end of every set.
class FakeDevice final : public kolo::data::DeviceBackend {
 public:
  std::vector<Job*> started;
  std::vector<Job*> to_finish;
  Job* ended = nullptr;
  std::vector<const Job*> rung;
  Enqueued enqueued;

  [[nodiscard]] std::string describe() const override { return "fake"; }
  void start(Job& job) override { started.push_back(&job); }
  Progress progress(std::vector<Job*>& finished) override {
    if (to_finish.empty()) return Progress::waiting;
    finished = std::exchange(to_finish, {});
    return Progress::advanced;
  }
  [[nodiscard]] std::optional<std::vector<int>> awaited() const override { return std::nullopt; }
  void abort() noexcept override {}
  int bind() override { return 0; }
  void check_usable(kolo::Device /*device*/, const kolo::core::Signature& /*signature*/) override {}
  void check_usable(kolo::Device /*device*/) override {}
  [[nodiscard]] kolo::data::DeviceEventPtr record(kolo::Device /*device*/, kolo::Stream /*stream*/) override {
    return nullptr;
  }
  void refuse_capture(kolo::Stream /*stream*/) const override {}
  void read(kolo::Device /*device*/, kolo::Span<const kolo::Stream> /*streams*/, const std::byte* /*data*/,
            std::size_t /*bytes*/, const Taken& /*taken*/) override {}
  [[nodiscard]] std::shared_ptr<kolo::data::DeviceRegion> ask_region(std::uint16_t /*number*/, std::size_t /*bytes*/,
                                                                     std::vector<int> /*members*/) override {
    return nullptr;
  }
  void retire(const kolo::data::DeviceRegion& /*region*/, bool /*release*/) noexcept override {}
  [[nodiscard]] std::uint64_t place_of(const std::byte* /*data*/, std::size_t /*bytes*/,
                                       const std::vector<int>& /*ranks*/) const override {
    return 0;
  }
  [[nodiscard]] kolo::data::DeviceUsage usage() const override { return {}; }
  [[nodiscard]] bool wants_labels() const noexcept override { return true; }
  void note_submission(const std::string& /*name*/) const noexcept override {}
  void add_set(kolo::data::DeviceSet /*set*/) override {}
  [[nodiscard]] bool remove_set(Job& end) override {
    ended = &end;
    return true;
  }
  void set_enqueued(Enqueued tell) override { enqueued = std::move(tell); }
  void ring_at_end(const Job& job) override { rung.push_back(&job); }
  [[nodiscard]] bool passes_messages() const noexcept override { return false; }
  [[nodiscard]] kolo::data::DeviceCopies& copies() noexcept override { std::abort(); }
  [[nodiscard]] bool expects_soon() const noexcept override { return false; }
  void close() noexcept override {}
};

/// What the engine does, but for callbacks.
void tell_operation(Operation& operation, const kolo::data::DeviceEventPtr& event) {
  EXPECT_TRUE(operation.set_enqueued(event).empty());
}

class FakeEvent final : public kolo::data::DeviceEvent {
 public:
  void hold_back(kolo::Stream /*stream*/) const override {}
};

OperationPtr operation(CollectiveKind kind, std::vector<float>& memory,
                       kolo::DeviceKind device = kolo::DeviceKind::cpu) {
  auto result = std::make_shared<Operation>();
  auto signature = std::make_shared<kolo::core::Signature>();
  signature->kind = kind;
  signature->device = device;
  if (kind != CollectiveKind::barrier) {
    const auto elements = static_cast<std::int64_t>(memory.size());
    signature->tensors.push_back({DType::float32, Shape{elements}});
    auto* data = reinterpret_cast<std::byte*>(memory.data());
    result->buffers.push_back({data, data, elements});
  }
  result->signature = signature;
  return result;
}

class ExecutorTest : public testing::Test {
 protected:
  /// The members that the next pass finishes, batch by batch.
  std::vector<std::vector<OperationPtr>> pass(Progress wanted) {
    std::vector<std::vector<OperationPtr>> finished;
    const Progress result = executor_.progress(
        [&](Operation& member, const kolo::Status& outcome) { over_.emplace_back(&member, outcome.message()); },
        [&](Batch& batch) {
          finished.push_back(batch.members);
          outcomes_.push_back(batch.status);
          for (std::size_t i = 0; i < batch.members.size(); ++i) {
            if (batch.members[i]) ended_.emplace_back(batch.members[i].get(), batch.outcome_of(i).message());
          }
        });
    EXPECT_EQ(result, wanted);
    return finished;
  }

  std::unique_ptr<FakeBackend> made_ = std::make_unique<FakeBackend>();
  FakeBackend& backend_ = *made_;
  Executor executor_{std::move(made_), nullptr, 4};
  std::vector<float> x_ = std::vector<float>(3);
  std::vector<float> y_ = std::vector<float>(5);
  std::vector<kolo::Status> outcomes_;
  using Ended = std::vector<std::pair<const Operation*, std::string>>;
  Ended over_;   // members before their batch, with what their outcome says
  Ended ended_;  // with it
};

TEST_F(ExecutorTest, PointsPiecesAtTheCallersMemory) {
  const OperationPtr x = operation(CollectiveKind::allreduce, x_);
  const OperationPtr y = operation(CollectiveKind::allreduce, y_);
  executor_.run(kolo::core::kGlobalSet, {x, y}, {});
  EXPECT_EQ(executor_.open(), 1U);
  ASSERT_EQ(backend_.started.size(), 1U);
  const Job& job = *backend_.started[0];
  ASSERT_EQ(job.runs.size(), 1U);
  EXPECT_EQ(job.runs[0].elements, 8);
  ASSERT_EQ(job.runs[0].pieces.size(), 2U);
  EXPECT_EQ(job.runs[0].pieces[1].output, reinterpret_cast<std::byte*>(y_.data()));
  EXPECT_EQ(job.runs[0].pieces[1].elements, 5);
  EXPECT_TRUE(pass(Progress::waiting).empty());
  backend_.to_finish = backend_.started;
  const auto finished = pass(Progress::advanced);
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0], (std::vector<OperationPtr>{x, y}));
  EXPECT_EQ(executor_.open(), 0U);
}

TEST_F(ExecutorTest, ABackendWithoutJobsIsNotAsked) {
  EXPECT_TRUE(pass(Progress::idle).empty());
  EXPECT_EQ(backend_.asked, 0);
}

TEST_F(ExecutorTest, BarriersNeedNoBackend) {
  const OperationPtr barrier = operation(CollectiveKind::barrier, x_);
  executor_.run(kolo::core::kGlobalSet, {barrier}, {});
  EXPECT_TRUE(backend_.started.empty());
  EXPECT_TRUE(executor_.has_ready());
  EXPECT_EQ(pass(Progress::advanced).size(), 1U);
  EXPECT_FALSE(executor_.has_ready());
}

TEST_F(ExecutorTest, HandsOnTheJobsOutcome) {
  executor_.run(kolo::core::kGlobalSet, {operation(CollectiveKind::allreduce, x_)}, {});
  backend_.started[0]->status = kolo::Status(kolo::ErrorCode::invalid_argument, "it does not fit");
  backend_.to_finish = backend_.started;
  pass(Progress::advanced);
  ASSERT_EQ(outcomes_.size(), 1U);
  EXPECT_EQ(outcomes_[0].message(), "it does not fit");
  // The batch is used again, without the old outcome.
  backend_.started.clear();
  executor_.run(kolo::core::kGlobalSet, {operation(CollectiveKind::allreduce, x_)}, {});
  backend_.to_finish = backend_.started;
  pass(Progress::advanced);
  EXPECT_TRUE(outcomes_[1].ok());
}

/// Of the members of a batch whose rows differ by rank one is over before the batch, and one fails.
TEST_F(ExecutorTest, MembersWhoseRowsDifferHaveOutcomesAndEndsOfTheirOwn) {
  std::vector<float> z(7);
  for (int round = 0; round < 2; ++round) {
    const OperationPtr x = operation(CollectiveKind::allgather, x_), y = operation(CollectiveKind::allgather, y_),
                       group = operation(CollectiveKind::allgather, z);
    auto signature = std::make_shared<kolo::core::Signature>(*group->signature);
    signature->tensors.push_back(signature->tensors.front());
    group->signature = signature;
    group->buffers.push_back(group->buffers.front());
    executor_.run(kolo::core::kGlobalSet, {group, x, y}, {});
    Job& job = *backend_.started.at(0);
    ASSERT_EQ(job.runs.size(), 4U);
    job.run_over(job, 0);
    EXPECT_TRUE(pass(Progress::waiting).empty());
    EXPECT_EQ(over_, Ended()) << "the other tensor of the group is not over";
    job.runs[1].status = kolo::Status(kolo::ErrorCode::invalid_argument, "it does not fit");
    job.run_over(job, 1);
    job.run_over(job, 2);
    pass(Progress::advanced);
    EXPECT_EQ(over_, (Ended{{group.get(), "it does not fit"}, {x.get(), ""}}));
    EXPECT_EQ(executor_.open(), 1U);
    job.runs[3].status = kolo::Status(kolo::ErrorCode::invalid_argument, "nor does this");
    backend_.to_finish = backend_.started;
    EXPECT_EQ(pass(Progress::advanced), (std::vector<std::vector<OperationPtr>>{{nullptr, nullptr, y}}));
    EXPECT_EQ(ended_, (Ended{{y.get(), "nor does this"}}));
    EXPECT_EQ(over_.size(), 2U);
    over_.clear();
    ended_.clear();
    backend_.started.clear();
  }
}

/// A batch that is used again for the end of a set on the device knows nothing of the rows it once had.
TEST_F(ExecutorTest, ASetsEndOnTheDeviceHasNoRuns) {
  FakeDevice device;
  Executor executor(std::make_unique<FakeBackend>(), &device, 4);
  executor.set_enqueued(tell_operation);
  const auto move = [&] {
    static_cast<void>(executor.progress([](Operation&, const kolo::Status&) {}, [](Batch&) {}));
  };
  executor.add_set(7, std::make_unique<FakeBackend>(), 2);
  const OperationPtr x = operation(CollectiveKind::allgather, x_, kolo::DeviceKind::cuda);
  executor.run(kolo::core::kGlobalSet, {x}, {});
  ASSERT_EQ(device.started.size(), 1U);
  Job* const job = device.started[0];
  device.to_finish = {job};
  move();
  executor.remove_set(7);
  ASSERT_EQ(device.ended, job) << "the same batch";
  EXPECT_TRUE(job->runs.empty());
  EXPECT_EQ(job->run_over, nullptr);
  device.to_finish = {job};
  move();
  EXPECT_EQ(executor.open(), 0U);
}

/// Whoever waits on a stream would go on with memory that holds no result.
TEST_F(ExecutorTest, WhatHasFailedIsNotToldToHaveBeenGivenToTheDevice) {
  FakeDevice device;
  Executor executor(std::make_unique<FakeBackend>(), &device, 4);
  executor.set_enqueued(tell_operation);
  const OperationPtr x = operation(CollectiveKind::allgather, x_, kolo::DeviceKind::cuda);
  const OperationPtr y = operation(CollectiveKind::allgather, y_, kolo::DeviceKind::cuda);
  executor.run(kolo::core::kGlobalSet, {x, y}, {});
  Job& job = *device.started.at(0);
  ASSERT_EQ(job.runs.size(), 2U);
  job.runs[0].status = kolo::Status(kolo::ErrorCode::invalid_argument, "it does not fit");
  device.enqueued(job, std::make_shared<FakeEvent>());
  std::function<void(const kolo::Status&)> callback = [](const kolo::Status&) {};
  EXPECT_TRUE(x->add_callback_when_enqueued(callback)) << "it has been given to the device";
  EXPECT_FALSE(y->add_callback_when_enqueued(callback)) << "it has not been given to the device";
  device.to_finish = {&job};
  Ended ended;
  static_cast<void>(executor.progress([](Operation&, const kolo::Status&) {},
                                      [&](Batch& batch) {
                                        for (std::size_t i = 0; i < 2; ++i)
                                          ended.emplace_back(batch.members[i].get(), batch.outcome_of(i).message());
                                      }));
  EXPECT_EQ(ended, (Ended{{x.get(), "it does not fit"}, {y.get(), ""}}));
}

/// The key stands for the layout: what is different about the members does not matter until the plan is dropped.
/// A device rings at the end of a batch for which somebody sleeps, and of no other.
TEST_F(ExecutorTest, OnlyABatchThatTheHostWaitsForIsRungFor) {
  FakeDevice device;
  Executor executor(std::make_unique<FakeBackend>(), &device, 4);
  executor.set_enqueued(tell_operation);
  const auto move = [&] {
    static_cast<void>(executor.progress([](Operation&, const kolo::Status&) {}, [](Batch&) {}));
  };
  const OperationPtr x = operation(CollectiveKind::allreduce, x_, kolo::DeviceKind::cuda);
  const OperationPtr y = operation(CollectiveKind::allreduce, y_, kolo::DeviceKind::cuda);
  executor.run(kolo::core::kGlobalSet, {x}, {});
  executor.run(kolo::core::kGlobalSet, {y}, {0, 1});
  EXPECT_EQ(device.started.at(0)->label, "a call without a name");
  EXPECT_TRUE(y->note_host_waits());
  EXPECT_FALSE(y->note_host_waits()) << "once";
  move();
  EXPECT_TRUE(device.rung.empty()) << "nothing is with the device yet";
  for (Job* job : device.started) device.enqueued(*job, std::make_shared<FakeEvent>());
  EXPECT_TRUE(x->is_given());
  for (int i = 0; i < 2; ++i) move();
  EXPECT_EQ(device.rung, (std::vector<const Job*>{device.started[1]}));
  std::function<void(const kolo::Status&)> callback = [](const kolo::Status&) {};
  EXPECT_TRUE(x->add_callback(callback));
  for (int i = 0; i < 2; ++i) move();
  EXPECT_EQ(device.rung, (std::vector<const Job*>{device.started[1], device.started[0]}));
}

TEST_F(ExecutorTest, PlannedLayoutsAreMadeOnce) {
  const auto elements_of = [&](const OperationPtr& member, std::uint32_t key) {
    backend_.started.clear();
    executor_.run(kolo::core::kGlobalSet, {member}, {key, 7});
    backend_.to_finish = backend_.started;
    const std::int64_t elements = backend_.started.at(0)->runs.at(0).elements;
    pass(Progress::advanced);
    return elements;
  };
  EXPECT_EQ(elements_of(operation(CollectiveKind::allreduce, x_), 1), 3);
  EXPECT_EQ(elements_of(operation(CollectiveKind::allreduce, y_), 1), 3);
  EXPECT_EQ(elements_of(operation(CollectiveKind::allreduce, y_), 2), 5);
  executor_.drop_plan(1);
  EXPECT_EQ(elements_of(operation(CollectiveKind::allreduce, y_), 1), 5);
}

TEST_F(ExecutorTest, AbortForgetsTheMembers) {
  const OperationPtr x = operation(CollectiveKind::allreduce, x_);
  executor_.run(kolo::core::kGlobalSet, {x}, {});
  executor_.run(kolo::core::kGlobalSet, {operation(CollectiveKind::barrier, x_)}, {});
  EXPECT_EQ(x.use_count(), 2);
  executor_.abort_on_cpu();
  executor_.abort_on_device();
  EXPECT_TRUE(backend_.aborted);
  executor_.forget();
  EXPECT_EQ(x.use_count(), 2) << "members are held until they have been failed";
  executor_.drop();
  EXPECT_EQ(x.use_count(), 1);
  EXPECT_EQ(executor_.open(), 0U);
  EXPECT_FALSE(executor_.has_ready());
}

TEST_F(ExecutorTest, SaysWhatOpenBatchesWaitFor) {
  using kolo::control::Doing;
  const auto doing = [this](std::vector<std::int32_t> awaited = {}) {
    kolo::control::Answer answer;
    executor_.account(answer);
    EXPECT_EQ(answer.awaited, awaited);
    return answer.doing;
  };
  EXPECT_EQ(doing(), Doing::nothing);
  executor_.run(kolo::core::kGlobalSet, {operation(CollectiveKind::allreduce, x_)}, {});
  EXPECT_EQ(doing(), Doing::waiting) << "a backend that cannot say";
  backend_.awaits = {3, 5};
  EXPECT_EQ(doing({3, 5}), Doing::waiting);
  backend_.awaits = std::vector<int>();
  EXPECT_EQ(doing(), Doing::standing);
}

TEST_F(ExecutorTest, SetsHaveBackendsOfTheirOwn) {
  auto made = std::make_unique<FakeBackend>();
  FakeBackend& other = *made;
  executor_.add_set(3, std::move(made), 2);
  const OperationPtr x = operation(CollectiveKind::allreduce, x_), y = operation(CollectiveKind::allreduce, y_);
  executor_.run(kolo::core::kGlobalSet, {x}, {});
  executor_.run(3, {y}, {});
  EXPECT_EQ(executor_.open(), 2U);
  ASSERT_EQ(other.started.size(), 1U);
  EXPECT_EQ(other.started[0]->set, 3U);
  EXPECT_EQ(pass(Progress::waiting).size(), 0U);
  other.to_finish = other.started;
  EXPECT_EQ(pass(Progress::advanced), (std::vector<std::vector<OperationPtr>>{{y}}));
  EXPECT_EQ(executor_.open(), 1U);
  const int asked = other.asked;
  pass(Progress::waiting);
  EXPECT_EQ(other.asked, asked) << "a backend without jobs is not asked";
  executor_.remove_set(3);
  executor_.abort_on_cpu();
  executor_.abort_on_device();
  EXPECT_TRUE(backend_.aborted);
}

TEST_F(ExecutorTest, AlltoallsWithSplitsAskForRoom) {
  const OperationPtr exchange = operation(CollectiveKind::alltoall_splits, x_);
  exchange->outputs.first.owns_result = true;
  exchange->outputs.splits = {1, 2};
  executor_.run(kolo::core::kGlobalSet, {exchange}, {});
  const kolo::data::Run& run = backend_.started.at(0)->runs.at(0);
  EXPECT_EQ(run.elements, 3);
  EXPECT_EQ(run.splits.data(), exchange->outputs.splits.data());
  const std::byte* const output = run.allocate({4, 0});
  EXPECT_EQ(output, exchange->outputs.first.result.data());
  EXPECT_EQ(exchange->outputs.first.result.shape(), (Shape{4}));
  EXPECT_EQ(exchange->outputs.received, (std::vector<std::int64_t>{4, 0}));
}

TEST_F(ExecutorTest, AllgathersAskForRoom) {
  const OperationPtr gather = operation(CollectiveKind::allgather, x_);
  gather->outputs.first.owns_result = true;
  gather->outputs.first.row_bytes = 4;
  executor_.run(kolo::core::kGlobalSet, {gather}, {});
  const kolo::data::Run& run = backend_.started.at(0)->runs.at(0);
  EXPECT_EQ(run.elements, 3);
  const std::byte* const output = run.allocate({12, 8});
  EXPECT_EQ(output, gather->outputs.first.result.data());
  EXPECT_EQ(gather->outputs.first.result.shape(), (Shape{5}));
}

}  // namespace
