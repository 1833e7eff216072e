// SPDX-License-Identifier: Apache-2.0
//
// ShardedOptimizer around LibTorch's optimizers, their state in checkpoints, and DeepSpeed's engine.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <kolo/checkpoint.hpp>
#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

#include "tests/libtorch/ranks.hpp"
#include "tests/optimizer/errors.hpp"

namespace {

namespace kt = kolo::libtorch;
using kolo::test::error_of;
using kolo::test::fill;
using kolo::test::numbers;
using kolo::test::on_ranks;
using kolo::test::same_on_all_ranks;

template <class Optimizer, class Options>
kt::ShardedOptimizer::Make maker(const Options& options) {
  return [options](const kt::NamedTensors& mine) { return std::make_unique<Optimizer>(kt::tensors(mine), options); };
}
const kt::ShardedOptimizer::Make kSgd =
    maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
const kt::ShardedOptimizer::Make kAdamW = maker<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01));

std::vector<kt::ShardedOptimizer::Make> all_optimizers() {
  return {kSgd, kAdamW, maker<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(true)),
          maker<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01).momentum(0.5).centered(true)),
          maker<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01))};
}

// Tensors with more, as many and fewer elements than there are ranks; one laid out by columns, one that is not trained.
struct Net : torch::nn::Module {
  torch::nn::Linear first, last;
  torch::Tensor scale, columns;

  explicit Net(torch::ScalarType type = torch::kDouble) : first(5, 13), last(13, 2) {
    register_module("first", first);
    register_module("last", last);
    scale = register_parameter("scale", torch::ones({1}));
    columns = register_parameter("columns", torch::ones({13, 7}).t());
    register_buffer("count", torch::zeros({}, torch::kLong));
    to_type(type);
    fill(*this, 0);
    last->bias.set_requires_grad(false);
  }
  void to_type(torch::ScalarType type) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : parameters()) parameter.set_data(parameter.to(type));
  }
  torch::Tensor loss(const torch::Tensor& rows) {
    const torch::Tensor hidden = torch::tanh(first(rows));
    return torch::square(last(hidden) * scale).mean() + torch::square(torch::matmul(hidden, columns.t())).mean();
  }
};

torch::Tensor rows_of(int rank, int pass, torch::ScalarType type, std::int64_t count = 3) {
  return numbers({count, 5}, 10 * pass + rank, type);
}

void expect_equal(const Net& got, const Net& wanted, const std::string& what) {
  for (const auto& item : wanted.named_parameters()) {
    const torch::Tensor* const value = got.named_parameters().find(item.key());
    ASSERT_NE(value, nullptr);
    EXPECT_TRUE(torch::equal(*value, item.value())) << item.key() << ", rank " << kolo::rank() << ", " << what;
  }
}

// The same loop with either optimizer.
template <class Optimizer>
void train(Net& net, Optimizer& optimizer, torch::ScalarType type, int passes, bool weighs) {
  for (int pass = 0; pass < passes; ++pass) {
    const std::int64_t count = weighs ? 1 + (kolo::rank() + pass) % 3 : 3;
    if (weighs) optimizer.begin_micro_step(static_cast<std::size_t>(count));
    optimizer.zero_grad(pass % 2 == 1);
    net.loss(rows_of(kolo::rank(), pass, type, count)).backward();
    optimizer.step();
  }
}

void expect_sharded_trains_alike(const kt::ShardedOptimizer::Make& make, torch::ScalarType type, int accumulation,
                                 bool weighs) {
  kolo::DistributedOptimizerOptions reduction;
  reduction.accumulation_steps = accumulation;
  Net wanted(type);
  const auto inner = make(kt::named_parameters(wanted));
  kt::DistributedOptimizer distributed(*inner, wanted, reduction);
  train(wanted, distributed, type, 7, weighs);
  distributed.flush();
  for (const int stage : {0, 1, 2}) {
    Net net(type);
    kt::ShardedOptimizer sharded(
        net, make,
        kt::ShardedOptimizerOptions().with_stage(stage).with_reduction(
            kolo::DistributedOptimizerOptions(reduction).with_name("stage " + std::to_string(stage))));
    train(net, sharded, type, 7, weighs);
    sharded.flush();
    expect_equal(net, wanted, "stage " + std::to_string(stage) + ", accumulation " + std::to_string(accumulation));
    EXPECT_EQ(net.first->weight.grad().defined(), stage < 2);
  }
}

TEST(Sharded, WeightsAreThoseOfTheReplicatedOne) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_ranks(ranks, [] {
      for (const auto type : {torch::kFloat, torch::kDouble}) {
        for (const auto& make : all_optimizers()) expect_sharded_trains_alike(make, type, 1, false);
        expect_sharded_trains_alike(kAdamW, type, 3, false);
        expect_sharded_trains_alike(kSgd, type, 2, true);
      }
    });
    if (kolo::test::in_job) break;
  }
}

TEST(Sharded, ManyElementsAsInVectorKernelsAndTheirEnds) {
  on_ranks(3, [] {
    const auto step = [](torch::Tensor& value, const std::function<void()>& body) {
      for (int i = 0; i < 3; ++i) {
        (value * numbers({1000, 37}, i + kolo::rank(), torch::kFloat)).sum().backward();
        body();
      }
    };
    torch::Tensor wanted = numbers({1000, 37}, 5, torch::kFloat).requires_grad_();
    torch::Tensor value = wanted.detach().clone().requires_grad_();
    const auto inner = kAdamW({{"w", wanted}});
    kt::DistributedOptimizer distributed(*inner, kt::NamedTensors{{"w", wanted}});
    step(wanted, [&] {
      distributed.step();
      distributed.zero_grad();
    });
    kt::ShardedOptimizer sharded(
        kt::NamedTensors{{"w", value}}, kAdamW,
        kt::ShardedOptimizerOptions().with_reduction(kolo::DistributedOptimizerOptions().with_name("sharded")));
    step(value, [&] {
      sharded.step();
      sharded.zero_grad();
    });
    EXPECT_TRUE(torch::equal(value, wanted));
    std::int64_t mine = 0;
    for (const torch::Tensor& piece : sharded.optimizer().param_groups()[0].params()) mine += piece.numel();
    EXPECT_LE(std::abs(mine - value.numel() / kolo::size()), 1);
  });
}

TEST(Sharded, RanksThatRunOutOfDataFollow) {
  on_ranks(3, [] {
    for (const int stage : {1, 2}) {
      Net net, wanted;
      const kolo::DistributedOptimizerOptions named =
          kolo::DistributedOptimizerOptions().with_name("wanted " + std::to_string(stage));
      const auto inner = kAdamW(kt::named_parameters(wanted));
      {
        kt::DistributedOptimizer distributed(*inner, wanted, named);
        train(wanted, distributed, torch::kDouble, 2 + kolo::rank(), false);
        kt::broadcast_parameters(wanted, kolo::join());
      }
      kt::ShardedOptimizer sharded(net, kAdamW, kt::ShardedOptimizerOptions().with_stage(stage));
      train(net, sharded, torch::kDouble, 2 + kolo::rank(), false);
      sharded.join();
      expect_equal(net, wanted, "stage " + std::to_string(stage));
    }
    Net net;
    kt::ShardedOptimizer replicated(net, kAdamW, kt::ShardedOptimizerOptions().with_stage(0));
    EXPECT_EQ(error_of([&] { replicated.join(); }),
              "unsupported: ShardedOptimizer: join() is for stages 1 and 2; in stage 0 a rank without data calls "
              "kolo::join");
  });
}

TEST(Sharded, NoSyncAddsUpInStage2) {
  on_ranks(2, [] {
    Net net, wanted;
    const auto inner = kSgd(kt::named_parameters(wanted));
    kt::DistributedOptimizer distributed(*inner, wanted);
    kt::ShardedOptimizer sharded(net, kSgd,
                                 kt::ShardedOptimizerOptions().with_stage(2).with_reduction(
                                     kolo::DistributedOptimizerOptions().with_name("sharded")));
    const auto twice = [](Net& model, auto& optimizer) {
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        {
          const auto scope = optimizer.no_sync();
          model.loss(rows_of(kolo::rank(), step, torch::kDouble)).backward();
        }
        model.loss(rows_of(kolo::rank(), step + 10, torch::kDouble)).backward();
        EXPECT_TRUE(optimizer.step());
      }
    };
    twice(wanted, distributed);
    twice(net, sharded);
    expect_equal(net, wanted, "no_sync");
  });
}

TEST(Sharded, GradientsInBlocksOf8BitsTrainAlmostAlike) {
  on_ranks(3, [] {
    Net wanted;
    const auto inner = kSgd(kt::named_parameters(wanted));
    kt::DistributedOptimizer distributed(*inner, wanted);
    train(wanted, distributed, torch::kDouble, 10, false);
    for (const int stage : {0, 1, 2}) {
      Net net;
      kt::ShardedOptimizer sharded(net, kSgd,
                                   kt::ShardedOptimizerOptions().with_stage(stage).with_reduction(
                                       kolo::DistributedOptimizerOptions()
                                           .with_name("blocks " + std::to_string(stage))
                                           .with_compression(kolo::Compression::int8_blocks)));
      train(net, sharded, torch::kDouble, 10, false);
      EXPECT_FALSE(torch::equal(net.first->weight, wanted.first->weight));
      for (std::size_t i = 0; i < wanted.parameters().size(); ++i) {
        EXPECT_TRUE(torch::allclose(net.parameters()[i], wanted.parameters()[i], 0, 0.01)) << i << ", stage " << stage;
        EXPECT_TRUE(same_on_all_ranks(net.parameters()[i]));
      }
    }
  });
}

// In stage 2 the gradients of the last layers are freed while the backward pass is still at the first.
TEST(Sharded, FreesGradientsWhileTheBackwardPassGoesOn) {
  on_ranks(2, [] {
    Net net;
    kt::ShardedOptimizer optimizer(net, kSgd, kt::ShardedOptimizerOptions().with_stage(2));
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
    net.last->weight.register_hook([&](const torch::Tensor& gradient) {
      seen.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(gradient.storage().unsafeGetStorageImpl()));
    });
    bool has_waited = false;
    net.first->bias.register_hook([&](const torch::Tensor&) {
      while (optimizer.finished() < optimizer.started()) std::this_thread::yield();
      has_waited = optimizer.started() > 0;
    });
    net.loss(rows_of(kolo::rank(), 0, torch::kDouble)).backward();
    EXPECT_TRUE(has_waited);
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_TRUE(seen[0].expired());
    EXPECT_FALSE(net.last->weight.grad().defined());
    EXPECT_TRUE(optimizer.step());
    EXPECT_EQ(optimizer.started(), 0U);
  });
}

TEST(Sharded, ClipsAndScalesInAllStages) {
  on_ranks(2, [] {
    for (const int stage : {0, 1, 2}) {
      Net net, wanted;
      kt::ShardedOptimizer optimizer(net, kSgd,
                                     kt::ShardedOptimizerOptions().with_stage(stage).with_max_norm(0.05).with_reduction(
                                         kolo::DistributedOptimizerOptions().with_name(std::to_string(stage))));
      kolo::LossScaler scaler(kolo::LossScalerOptions().with_initial_scale_power(4));
      const auto alone = kSgd(kt::named_parameters(wanted));
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        torch::Tensor loss = net.loss(rows_of(kolo::rank(), step, torch::kDouble)) * scaler.scale();
        if (step == 1 && kolo::rank() == kolo::size() - 1) loss = loss * INFINITY;  // of one rank: skipped by all
        loss.backward();
        EXPECT_EQ(optimizer.step(scaler), step != 1);
        if (step == 1) continue;
        alone->zero_grad();
        for (int rank = 0; rank < kolo::size(); ++rank) {
          (wanted.loss(rows_of(rank, step, torch::kDouble)) / kolo::size()).backward();
        }
        std::vector<torch::Tensor> trained;
        for (const auto& parameter : wanted.parameters()) {
          if (parameter.requires_grad()) trained.push_back(parameter);
        }
        const double norm = torch::nn::utils::clip_grad_norm_(trained, 0.05);
        EXPECT_NEAR(optimizer.norm().value(), norm, 1e-9);
        EXPECT_GT(norm, 0.05);
        alone->step();
      }
      EXPECT_EQ(scaler.scale(), 8);
      for (std::size_t i = 0; i < wanted.parameters().size(); ++i) {
        EXPECT_TRUE(torch::allclose(net.parameters()[i], wanted.parameters()[i], 0, 1e-9)) << "stage " << stage;
      }
    }
  });
}

// Steps that are too small for 16 bits.
TEST(Sharded, ComparesReplicasInTheStepThatFollows) {
  const auto train_in_stage = [](int stage) {
    Net net;
    kt::ShardedOptimizer optimizer(net, kAdamW, kt::ShardedOptimizerOptions().with_stage(stage));
    train(net, optimizer, torch::kDouble, 4, false);
    if (kolo::rank() == 1) net.first->bias.data().add_(1);
    EXPECT_EQ(
        error_of([&] { train(net, optimizer, torch::kDouble, 1, false); }),
        "mismatch: parameter \"first.bias\" is not the same on all ranks after step 4 (KOLO_CHECK_REPLICAS): rank 1 "
        "holds other values than ranks 0 and 2");
  };
  for (int stage = 0; stage < 3; ++stage) {
    kolo::run_local(
        3, [&] { train_in_stage(stage); },
        kolo::Options{}.with_setting("KOLO_CHECK_REPLICAS", "2").with_setting("KOLO_TIMEOUT_S", "60"));
  }
}

TEST(Sharded, StepsCopiesInFloat32) {
  on_ranks(3, [] {
    for (const int stage : {0, 1, 2}) {
      torch::Tensor value = torch::ones({5}, torch::kBFloat16).requires_grad_();
      kt::ShardedOptimizer optimizer(
          kt::NamedTensors{{"w", value}}, maker<torch::optim::SGD>(torch::optim::SGDOptions(1.0 / 4096)),
          kt::ShardedOptimizerOptions().with_stage(stage).with_master_weights(true).with_reduction(
              kolo::DistributedOptimizerOptions().with_name(std::to_string(stage))));
      for (int step = 0; step < 64; ++step) {
        optimizer.zero_grad();
        value.sum().backward();
        optimizer.step();
      }
      EXPECT_TRUE(torch::equal(value, torch::full({5}, 1 - 64.0 / 4096, torch::kBFloat16)));
    }
  });
}

TEST(Sharded, TellsWhatItCannotDo) {
  on_ranks(2, [] {
    Net net;
    const std::string parts = error_of([&] {
      kt::ShardedOptimizer optimizer(kt::NamedTensors{{"z", torch::ones({2}, torch::kComplexFloat).requires_grad_()}},
                                     kSgd);
    });
    EXPECT_EQ(parts, "unsupported: ShardedOptimizer: \"z\" is complex, which has no pieces");
    EXPECT_EQ(error_of([&] { kt::ShardedOptimizer optimizer(net, [](const auto&) { return nullptr; }); }),
              "invalid_argument: ShardedOptimizer: the function that is to make the optimizer has returned none");
    kt::ShardedOptimizer optimizer(net, kSgd);
    net.loss(rows_of(0, 0, torch::kDouble)).backward();
    optimizer.step();
    net.first->weight.set_data(net.first->weight.clone());
    EXPECT_EQ(
        error_of([&] { optimizer.step(); }),
        "invalid_argument: ShardedOptimizer: \"first.weight\" has other memory than when this was made; make a new "
        "one when the model has been moved or loaded anew");
    kt::ShardedOptimizer moved = std::move(optimizer);
    EXPECT_EQ(error_of([&] { optimizer.step(); }), "invalid_argument: ShardedOptimizer: this one was moved from");
  });
}

// A path of this process, gone with everything in it at the end.
class Path {
 public:
  explicit Path(const std::string& ending) {
    static std::atomic<int> count = 0;
    path_ = "libtorch_test_" + std::to_string(::getpid()) + "_" + std::to_string(++count) + ending;
  }
  ~Path() { std::filesystem::remove_all(path_); }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;
  [[nodiscard]] const std::string& get() const { return path_; }

 private:
  std::string path_;
};

// Trains on from a checkpoint, saves the next one, and returns the weights.
std::vector<torch::Tensor> go_on(const kt::ShardedOptimizer::Make& make, int ranks, std::optional<int> stage,
                                 const std::string& from, const std::string& to) {
  std::vector<torch::Tensor> result;
  kolo::run_local(ranks, [&] {
    Net net;
    std::int64_t steps = 0;
    const auto values = kolo::CheckpointOptions().with_value("steps", steps);
    const auto run = [&](auto& optimizer) {
      if (!from.empty()) kolo::load_checkpoint(from, kt::views(net), optimizer, values);
      for (int i = 0; i < 3; ++i, ++steps) {  // the same mean gradient on any number of ranks
        optimizer.zero_grad();
        net.loss(rows_of(0, static_cast<int>(steps), torch::kDouble)).backward();
        optimizer.step();
      }
      kolo::save_checkpoint(to, kt::views(net), optimizer, values);
    };
    if (stage) {
      kt::ShardedOptimizer optimizer(net, make, kt::ShardedOptimizerOptions().with_stage(*stage));
      run(optimizer);
    } else {
      const auto inner = make(kt::named_parameters(net));
      kt::DistributedOptimizer optimizer(*inner, net);
      run(optimizer);
    }
    if (kolo::rank() == 0) {
      for (const torch::Tensor& parameter : net.parameters()) result.push_back(parameter.detach().clone());
    }
  });
  return result;
}

TEST(ShardedCheckpoints, AnyNumberOfRanksReadsThem) {
  for (const auto& make : all_optimizers()) {
    const Path a("a"), b("b"), c("c"), d("d");
    go_on(make, 4, 1, "", a.get());
    go_on(make, 3, 2, a.get(), b.get());
    go_on(make, 1, std::nullopt, b.get(), c.get());
    const auto got = go_on(make, 4, 0, c.get(), d.get());
    const Path e("e"), f("f"), g("g"), h("h");
    go_on(make, 1, std::nullopt, "", e.get());
    go_on(make, 1, std::nullopt, e.get(), f.get());
    go_on(make, 1, std::nullopt, f.get(), g.get());
    const auto wanted = go_on(make, 1, std::nullopt, g.get(), h.get());
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::allclose(got[i], wanted[i], 0, 1e-12)) << i;
  }
}

TEST(Sharded, LayersThatAreThawedOrFrozenNeedANewOne) {
  on_ranks(2, [] {
    for (const int stage : {0, 1, 2}) {
      Net net;
      kt::ShardedOptimizer optimizer(net, kAdamW,
                                     kt::ShardedOptimizerOptions().with_stage(stage).with_reduction(
                                         kolo::DistributedOptimizerOptions().with_name(std::to_string(stage))));
      train(net, optimizer, torch::kDouble, 2, false);
      const auto step = [&] { train(net, optimizer, torch::kDouble, 1, false); };
      net.last->bias.set_requires_grad(true);
      EXPECT_EQ(error_of(step),
                "invalid_argument: ShardedOptimizer: \"last.bias\" did not require a gradient when this "
                "was made; make a new one when layers have been frozen or thawed");
      net.last->bias.set_requires_grad(false);
      net.first->weight.set_requires_grad(false);
      EXPECT_EQ(error_of([&] { optimizer.flush(); }),
                "invalid_argument: ShardedOptimizer: \"first.weight\" required a gradient when this was made; make a "
                "new one when layers have been frozen or thawed");
    }
  });
}

TEST(ShardedCheckpoints, StateHasLibTorchsNames) {
  kolo::run_local(1, [] {
    Net net;
    kt::ShardedOptimizer optimizer(net, kAdamW);
    std::string names;
    for (const kolo::ConstNamedView& one : optimizer.state()) names += one.name + ' ';
    EXPECT_EQ(names, "options/0/lr options/0/beta1 options/0/beta2 options/0/eps options/0/weight_decay "
                     "exp_avg/scale exp_avg_sq/scale step/scale exp_avg/columns exp_avg_sq/columns step/columns "
                     "exp_avg/first.weight exp_avg_sq/first.weight step/first.weight exp_avg/first.bias "
                     "exp_avg_sq/first.bias step/first.bias exp_avg/last.weight exp_avg_sq/last.weight "
                     "step/last.weight ");
  });
}

// A model whose gradient is what it is given, whatever its type.
struct Tiny : torch::nn::Module {
  torch::Tensor w = register_parameter("w", torch::ones({6}));
  torch::Tensor loss(const torch::Tensor& gradient) { return (w.to(torch::kFloat) * gradient).sum(); }
};

// Runs `body` with an engine on each of two ranks.
void with_engine(const std::string& keys, const std::function<void(Tiny&, kt::Engine&)>& body) {
  const Path file(".json");
  std::ofstream(file.get()) << "{\"train_micro_batch_size_per_gpu\": 2, " << keys << "}";
  kolo::run_local(2, [&] {
    Tiny tiny;
    if (kolo::rank() == 1) tiny.w.detach().fill_(7);  // all get rank 0's
    kt::Engine engine = kt::initialize(tiny, file.get());
    body(tiny, engine);
  });
}

const std::string kPlain = R"("optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "steps_per_print": 0)";

// One step with this gradient on rank 0, and twice that on rank 1.
bool step(Tiny& tiny, kt::Engine& engine, double gradient) {
  engine.backward(tiny.loss(torch::full({6}, gradient * (1 + kolo::rank()))));
  return engine.step();
}

void expect_value(const Tiny& tiny, double value, double tolerance = 0) {
  EXPECT_TRUE(
      torch::allclose(tiny.w.detach().to(torch::kDouble), torch::full({6}, value, torch::kDouble), 0, tolerance))
      << tiny.w << " instead of " << value;
}

TEST(Engine, BatchSizesAndAccumulation) {
  with_engine(kPlain + R"(, "gradient_accumulation_steps": 3)", [](Tiny& tiny, kt::Engine& engine) {
    EXPECT_EQ(engine.train_batch_size(), 12);
    EXPECT_EQ(engine.train_micro_batch_size_per_gpu(), 2);
    EXPECT_EQ(engine.gradient_accumulation_steps(), 3);
    EXPECT_FALSE(engine.is_gradient_accumulation_boundary());
    EXPECT_FALSE(step(tiny, engine, 1) || step(tiny, engine, 2));
    EXPECT_TRUE(engine.is_gradient_accumulation_boundary());
    expect_value(tiny, 1);
    EXPECT_TRUE(step(tiny, engine, 3));
    expect_value(tiny, 1 - 0.5 * 3, 1e-6);  // the mean of 1, 2, 3 and of twice that
    EXPECT_EQ(engine.global_steps(), 1);
    EXPECT_FALSE(step(tiny, engine, 1));  // gradients were zeroed
  });
}

// What LibTorch's own optimizer makes of the mean gradients.
template <class Optimizer, class Options>
double alone(const Options& options, const std::vector<double>& gradients) {
  torch::Tensor w = torch::ones({6}).requires_grad_();
  Optimizer optimizer({w}, options);
  for (const double gradient : gradients) {
    w.mutable_grad() = torch::full({6}, 1.5 * gradient);
    optimizer.step();
  }
  return w[0].item<double>();
}

TEST(Engine, Optimizers) {
  const std::vector<double> gradients{1, -0.5, 0.25};
  const auto check = [&](const std::string& optimizer, double wanted) {
    with_engine("\"steps_per_print\": 0, \"optimizer\": " + optimizer, [&](Tiny& tiny, kt::Engine& engine) {
      for (const double gradient : gradients) EXPECT_TRUE(step(tiny, engine, gradient));
      expect_value(tiny, wanted);
    });
  };
  check(R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}})",
        alone<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).dampening(0.5).weight_decay(0.1),
                                 gradients));
  check(R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": true}})",
        alone<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true), gradients));
  check(R"({"type": "Adam", "params": {"lr": 0.1, "weight_decay": 0.1, "adam_w_mode": false, "amsgrad": true}})",
        alone<torch::optim::Adam>(torch::optim::AdamOptions(0.1).weight_decay(0.1).amsgrad(true), gradients));
  check(R"({"type": "Adam", "params": {"lr": 0.1, "weight_decay": 0.1, "betas": [0.8, 0.99], "eps": 1e-3}})",
        alone<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1).weight_decay(0.1).betas({0.8, 0.99}).eps(1e-3),
                                   gradients));
  check(R"({"type": "AdamW", "params": {"lr": 0.1}})",
        alone<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1).weight_decay(0), gradients));
}

TEST(Engine, Schedulers) {
  with_engine(kPlain +
                  R"(, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 0.4, "warmup_num_steps": 2,
      "total_num_steps": 4, "warmup_type": "linear"}})",
              [](Tiny& tiny, kt::Engine& engine) {
                std::vector<double> rates;
                for (int i = 0; i < 6; ++i) {
                  rates.push_back(engine.learning_rate());
                  step(tiny, engine, 1);
                }
                EXPECT_EQ(rates, (std::vector<double>{0, 0, 0.2, 0.4, 0.2, 0}));
                expect_value(tiny, 1 - 1.5 * 0.8, 1e-6);
              });
  with_engine(kPlain + R"(, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4}})",
              [](Tiny& tiny, kt::Engine& engine) {
                for (int i = 0; i < 3; ++i) step(tiny, engine, 1);
                EXPECT_DOUBLE_EQ(engine.learning_rate(), 0.5 * std::log(3.0) / std::log(4.0));
                for (int i = 0; i < 3; ++i) step(tiny, engine, 1);
                EXPECT_EQ(engine.learning_rate(), 0.5);  // the optimizer's own
              });
}

TEST(Engine, Fp16ScalesAndSkipsWhereOneRankOverflows) {
  with_engine(kPlain + R"(, "fp16": {"enabled": true, "initial_scale_power": 4, "loss_scale_window": 2, "hysteresis": 1,
      "min_loss_scale": 8})",
              [](Tiny& tiny, kt::Engine& engine) {
                EXPECT_EQ(tiny.w.scalar_type(), torch::kHalf);
                EXPECT_EQ(engine.loss_scale(), 16);
                EXPECT_TRUE(step(tiny, engine, 1.0 / 8192));  // steps that float16 cannot add to 1 one by one
                EXPECT_TRUE(step(tiny, engine, 1.0 / 8192));
                EXPECT_EQ(engine.loss_scale(), 32);
                for (int i = 0; i < 6; ++i) EXPECT_TRUE(step(tiny, engine, 1.0 / 8192));
                expect_value(tiny, 1 - 8 * 0.75 / 8192, 3e-4);
                EXPECT_NE(tiny.w[0].item<float>(), 1);
                EXPECT_EQ(engine.loss_scale(), 256);
                const double before = tiny.w[0].item<double>();
                EXPECT_FALSE(step(tiny, engine, kolo::rank() == 1 ? 1e6 : 1));
                EXPECT_EQ(tiny.w[0].item<double>(), before);
                EXPECT_EQ(engine.loss_scale(), 128);
                EXPECT_EQ(engine.skipped_steps(), 1);
                EXPECT_EQ(engine.global_steps(), 9);
                for (int i = 0; i < 9; ++i) EXPECT_FALSE(step(tiny, engine, 1e6));
                EXPECT_EQ(engine.loss_scale(), 8);
              });
  with_engine(kPlain + R"(, "fp16": {"enabled": true, "loss_scale": 4, "initial_scale_power": 9})",
              [](Tiny& tiny, kt::Engine& engine) {
                EXPECT_EQ(engine.loss_scale(), 4);
                EXPECT_FALSE(step(tiny, engine, 1e6));
                EXPECT_EQ(engine.loss_scale(), 4);
                EXPECT_TRUE(step(tiny, engine, 1));
                expect_value(tiny, 0.25);
              });
  with_engine(kPlain + R"(, "fp16": {"enabled": true, "hysteresis": 2})", [](Tiny& tiny, kt::Engine& engine) {
    EXPECT_EQ(engine.loss_scale(), 65536);
    EXPECT_FALSE(step(tiny, engine, 1e6));
    EXPECT_EQ(engine.loss_scale(), 65536);
    EXPECT_FALSE(step(tiny, engine, 1e6));
    EXPECT_EQ(engine.loss_scale(), 32768);
  });
}

TEST(Engine, Bf16) {
  with_engine(kPlain + R"(, "bf16": {"enabled": true})", [](Tiny& tiny, kt::Engine& engine) {
    EXPECT_EQ(tiny.w.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(engine.loss_scale(), 1);
    for (int i = 0; i < 64; ++i) step(tiny, engine, 1.0 / 1024);
    expect_value(tiny, 1 - 64 * 0.75 / 1024, 1.0 / 512);
  });
}

TEST(Engine, ZeroStagesShareStateAndGradients) {
  for (const int stage : {0, 1, 2}) {
    with_engine(kPlain + R"(, "zero_optimization": {"stage": )" + std::to_string(stage) + "}",
                [&](Tiny& tiny, kt::Engine& engine) {
                  EXPECT_EQ(engine.optimizer().optimizer().param_groups()[0].params()[0].numel(), stage == 0 ? 6 : 3);
                  engine.backward(tiny.loss(torch::full({6}, 1 + kolo::rank())));
                  EXPECT_EQ(tiny.w.grad().defined(), stage < 2);
                  EXPECT_TRUE(engine.step());
                  expect_value(tiny, 0.25);
                  engine.backward(tiny.loss(torch::full({6}, 1 + kolo::rank())));
                  EXPECT_TRUE(engine.step());
                  expect_value(tiny, -0.5);
                });
  }
}

TEST(Engine, GradientClipping) {
  with_engine(kPlain + R"(, "gradient_clipping": 0.5)", [](Tiny& tiny, kt::Engine& engine) {
    step(tiny, engine, 1);
    EXPECT_NEAR(engine.optimizer().norm().value(), 1.5 * std::sqrt(6.0), 1e-6);
    expect_value(tiny, 1 - 0.5 * 0.5 / std::sqrt(6.0), 1e-6);
  });
}

TEST(Engine, ClippingSkipsAStepWhoseNormIsNoNumberOnAllRanks) {
  const Path saved("saved");
  for (const std::string precision : {"", R"(, "bf16": {"enabled": true})"}) {
    const std::string keys = kPlain + R"(, "gradient_clipping": 100, "zero_optimization": {"stage": 1},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4, "warmup_type": "linear"}})" +
                             precision;
    with_engine(keys, [&](Tiny& tiny, kt::Engine& engine) {
      EXPECT_TRUE(step(tiny, engine, 1));
      EXPECT_TRUE(step(tiny, engine, 1));
      const torch::Tensor before = tiny.w.detach().clone();
      const double rate = engine.learning_rate();
      for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
        EXPECT_FALSE(step(tiny, engine, kolo::rank() == 1 ? bad : 1));
        EXPECT_FALSE(std::isfinite(engine.optimizer().norm().value()));
        EXPECT_TRUE(torch::equal(tiny.w, before)) << tiny.w;
      }
      EXPECT_EQ(engine.skipped_steps(), 2);
      EXPECT_EQ(engine.global_steps(), 4);
      EXPECT_EQ(engine.learning_rate(), rate);
      engine.save_checkpoint(saved.get());
      EXPECT_TRUE(step(tiny, engine, 1));
    });
    with_engine(keys, [&](Tiny& tiny, kt::Engine& engine) {
      engine.load_checkpoint(saved.get());
      EXPECT_EQ(engine.skipped_steps(), 2);
      EXPECT_EQ(engine.global_steps(), 4);
      EXPECT_TRUE(step(tiny, engine, 1));
    });
  }
}

TEST(Engine, CommunicationDataType) {
  const double beyond = 1 + 1.0 / (1 << 18);  // more than 16 bits hold
  with_engine(kPlain, [&](Tiny& tiny, kt::Engine& engine) {
    step(tiny, engine, beyond);
    EXPECT_NE(tiny.w[0].item<float>(), 0.25F);
  });
  for (const char* type : {"fp16", "bf16"}) {
    with_engine(kPlain + R"(, "communication_data_type": ")" + type + "\"", [&](Tiny& tiny, kt::Engine& engine) {
      step(tiny, engine, beyond);
      EXPECT_EQ(tiny.w[0].item<float>(), 0.25F);
    });
  }
}

TEST(Engine, StepsPerPrint) {
  testing::internal::CaptureStdout();
  with_engine(R"("optimizer": {"type": "SGD", "params": {"lr": 0.125}}, "steps_per_print": 2)",
              [](Tiny& tiny, kt::Engine& engine) {
                for (int i = 0; i < 5; ++i) step(tiny, engine, 1);
              });
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "step=2, skipped=0, lr=0.125, loss_scale=1\nstep=4, skipped=0, lr=0.125, loss_scale=1\n");
}

TEST(Engine, Checkpoints) {
  const Path saved("saved");
  const std::string keys = R"("steps_per_print": 0, "optimizer": {"type": "Adam", "params": {"lr": 0.1}},
      "fp16": {"enabled": true, "loss_scale_window": 2, "initial_scale_power": 4}, "zero_optimization": {"stage": 2},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}})";
  torch::Tensor wanted;
  with_engine(keys, [&](Tiny& tiny, kt::Engine& engine) {
    for (int i = 0; i < 3; ++i) step(tiny, engine, 1);
    engine.save_checkpoint(saved.get());
    for (int i = 0; i < 3; ++i) step(tiny, engine, -1);
    if (kolo::rank() == 0) wanted = tiny.w.detach().clone();
  });
  with_engine(keys, [&](Tiny& tiny, kt::Engine& engine) {
    engine.load_checkpoint(saved.get());
    EXPECT_EQ(engine.global_steps(), 3);
    EXPECT_EQ(engine.loss_scale(), 32);
    for (int i = 0; i < 3; ++i) step(tiny, engine, -1);
    EXPECT_TRUE(torch::equal(tiny.w, wanted));
  });
}

TEST(Engine, TellsWhatIsWrongWithItsFile) {
  const Path file(".json");
  std::ofstream(file.get()) << R"({"train_batch_size": 2, "optimizer": {"type": "Lamb"}})";
  kolo::run_local(2, [&] {
    Tiny tiny;
    EXPECT_EQ(error_of([&] { (void)kt::initialize(tiny, file.get()); }),
              "unsupported: " + file.get() + ": optimizer.type: \"Lamb\" is not served; write SGD, Adam or AdamW");
    EXPECT_EQ(error_of([&] { (void)kt::initialize(tiny, "no_such.json"); }),
              "io: initialize: rank 0: no_such.json: open: No such file or directory");
  });
}

}  // namespace
