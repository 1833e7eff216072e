// SPDX-License-Identifier: Apache-2.0
//
// Nothing that reads, saves, describes or compares changes a training, and a training that is loaded goes on as the one
// that was saved: for every optimizer of LibTorch's that is served, the bits of ten steps are the same with and without
// such calls after each step, and across a load at each step.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <kolo/checkpoint.hpp>
#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

#include "tests/libtorch/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace {

namespace kt = kolo::libtorch;
using kolo::test::fill;
using kolo::test::numbers;
using kolo::test::on_ranks;
using kolo::testing::ScratchFolder;

constexpr int kSteps = 10;
constexpr int kLate = 5;  // when a group of parameters is added

// All ranks compute the same gradients, so that their mean is one of them, to the last bit, on any number of ranks.
struct Net : torch::nn::Module {
  torch::Tensor weight, bias, late, unused, frozen, mean;

  explicit Net(double seed) {
    weight = register_parameter("weight", torch::ones({5, 3}));
    bias = register_parameter("bias", torch::ones({1}));
    late = register_parameter("late", torch::ones({4}));
    unused = register_parameter("unused", torch::ones({3}));
    frozen = register_parameter("frozen", torch::ones({2}), false);
    mean = register_buffer("mean", torch::zeros({3}));
    register_buffer("count", torch::zeros({}, torch::kLong));
    fill(*this, seed);
  }
  torch::Tensor loss(int step, bool with_late) const {
    const auto wide = [](const torch::Tensor& tensor) { return tensor.to(torch::kFloat); };
    torch::Tensor loss =
        torch::tanh(torch::matmul(numbers({4, 5}, step, torch::kFloat), wide(weight)) + wide(bias)).square().mean();
    if (with_late) loss = loss + (wide(late) * numbers({4}, step + 0.5, torch::kFloat)).square().sum();
    return loss;
  }
  [[nodiscard]] std::vector<torch::Tensor> bits() const {
    std::vector<torch::Tensor> all;
    for (const torch::Tensor& parameter : parameters()) all.push_back(parameter.detach().clone());
    return all;
  }
};

bool are_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  bool is_equal = a.size() == b.size();
  for (std::size_t i = 0; is_equal && i < a.size(); ++i) is_equal = torch::equal(a[i], b[i]);
  return is_equal;
}

// An optimizer with its options. A second group of parameters may come later.
struct Case {
  std::string name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::optim::OptimizerParamGroup>)> make;
  std::function<std::unique_ptr<torch::optim::OptimizerOptions>()> options;
  bool takes_groups = true;  // LibTorch's Adagrad makes its state when it is made, and no group can be added
};

template <class Optimizer, class Options>
Case a_case(const std::string& name, const Options& options, bool takes_groups = true) {
  return {name,
          [options](std::vector<torch::optim::OptimizerParamGroup> groups) {
            return std::make_unique<Optimizer>(std::move(groups), options);
          },
          [options] { return std::make_unique<Options>(options); }, takes_groups};
}

std::vector<Case> all_cases() {
  using namespace torch::optim;
  const auto sgd = [](const std::string& name, const SGDOptions& options) {
    return a_case<SGD>("SGD " + name, options);
  };
  const auto rmsprop = [](const std::string& name, const RMSpropOptions& options) {
    return a_case<RMSprop>("RMSprop " + name, options);
  };
  return {
      sgd("plain", SGDOptions(0.1)),
      sgd("momentum", SGDOptions(0.1).momentum(0.9).weight_decay(0.01)),
      sgd("dampening", SGDOptions(0.1).momentum(0.9).dampening(0.5)),
      sgd("nesterov", SGDOptions(0.1).momentum(0.9).nesterov(true)),
      a_case<Adam>("Adam", AdamOptions(0.01).weight_decay(0.01)),
      a_case<Adam>("Adam amsgrad", AdamOptions(0.01).amsgrad(true)),
      a_case<AdamW>("AdamW", AdamWOptions(0.01)),
      a_case<AdamW>("AdamW amsgrad", AdamWOptions(0.01).amsgrad(true)),
      rmsprop("plain", RMSpropOptions(0.01)),
      rmsprop("momentum", RMSpropOptions(0.01).momentum(0.5)),
      rmsprop("centered", RMSpropOptions(0.01).centered(true)),
      rmsprop("centered momentum", RMSpropOptions(0.01).momentum(0.5).centered(true)),
      a_case<Adagrad>("Adagrad", AdagradOptions(0.01), false),
      a_case<Adagrad>("Adagrad from 0.1", AdagradOptions(0.01).initial_accumulator_value(0.1).lr_decay(0.1), false)};
}

bool is_late(const std::string& name) { return name == "late"; }

std::unique_ptr<torch::optim::Optimizer> make(const Case& of, const kt::NamedTensors& parameters, bool with_late) {
  std::vector<torch::Tensor> first, second;
  for (const auto& [name, tensor] : parameters) (is_late(name) ? second : first).push_back(tensor);
  std::vector<torch::optim::OptimizerParamGroup> groups{{std::move(first), of.options()}};
  if (with_late) groups.emplace_back(std::move(second), of.options());
  return of.make(std::move(groups));
}

struct Form {
  std::string name;
  int stage;  // of a ShardedOptimizer; -1: a DistributedOptimizer
};
const std::vector<Form> kForms{{"distributed", -1}, {"stage 0", 0}, {"stage 1", 1}, {"stage 2", 2}};

// A model and its optimizer, of which `has_late` says whether the second group is there.
class Training {
 public:
  Training(const Case& of, const Form& form, bool adds_late, bool has_late, double seed)
      : of_(of), adds_late_(adds_late), has_late_(has_late), net_(std::make_unique<Net>(seed)) {
    if (form.stage < 0) {
      inner_ = make(of, kt::named_parameters(*net_), has_late);
      distributed_ = std::make_unique<kt::DistributedOptimizer>(*inner_, *net_);
      return;
    }
    kt::NamedTensors list = kt::named_parameters(*net_);
    list.erase(
        std::remove_if(list.begin(), list.end(), [&](const auto& one) { return is_late(one.first) && !has_late; }),
        list.end());
    sharded_ = std::make_unique<kt::ShardedOptimizer>(
        list, [&](const kt::NamedTensors& mine) { return make(of, mine, has_late); },
        kt::ShardedOptimizerOptions().with_stage(form.stage));
  }

  // After `step` steps: the next one.
  void step(int step) {
    if (adds_late_ && !has_late_ && step == kLate) {
      distributed_->add_param_group({{net_->late}, of_.options()});
      has_late_ = true;
    }
    with([&](auto& optimizer) {
      optimizer.zero_grad();
      net_->loss(step, has_late_).backward();
      optimizer.step();
    });
  }
  template <class Body>
  void with(const Body& body) {
    if (distributed_) {
      body(*distributed_);
    } else {
      body(*sharded_);
    }
  }
  [[nodiscard]] Net& net() const { return *net_; }
  [[nodiscard]] kt::DistributedOptimizer* distributed() const { return distributed_.get(); }
  [[nodiscard]] torch::optim::Optimizer& inner() const { return inner_ ? *inner_ : sharded_->optimizer(); }

 private:
  const Case& of_;
  bool adds_late_, has_late_;
  std::unique_ptr<Net> net_;
  std::unique_ptr<torch::optim::Optimizer> inner_;
  std::unique_ptr<kt::DistributedOptimizer> distributed_;
  std::unique_ptr<kt::ShardedOptimizer> sharded_;
};

using Reader = std::pair<std::string, std::function<void(Training&, int step)>>;

// What may be called after each step, and before the first. The first saves checkpoints at `path` and the step; the
// second makes all other calls.
std::vector<Reader> all_readers(const ScratchFolder& folder, const std::string& path, kolo::CheckpointWriter& writer) {
  return {{"saved",
           [path](Training& training, int step) {
             training.with([&](auto& optimizer) {
               kolo::save_checkpoint(path + std::to_string(step), kt::views(training.net()), optimizer);
             });
           }},
          {"looked at", [&writer, folder = &folder](Training& training, int) {
             training.with([&](auto& optimizer) {
               writer.save(folder->path("written"), kt::views(training.net()), optimizer);
               writer.wait();
               static_cast<void>(optimizer.state());
               static_cast<void>(optimizer.places());
               static_cast<void>(optimizer.parameters());
               static_cast<void>(optimizer.started() + optimizer.finished());
             });
             kt::save_checkpoint(folder->path("archive"), training.net(), training.inner());
             if (training.distributed() != nullptr) {
               kt::broadcast_optimizer_state(training.inner());
               kolo::broadcast_optimizer_state(*training.distributed());
             }
             kolo::check_replicas(kt::views(training.net()));
             static_cast<void>(kolo::metrics());
             static_cast<void>(kt::average(1));
           }}};
}

// How many trainings there were, and those whose weights differ from the one without any call.
struct Count {
  int tried = 0, differ = 0;
  void add(bool is_equal, const std::string& what) {
    ++tried;
    if (is_equal) return;
    ++differ;
    std::printf("differs: %s, rank %d of %d\n", what.c_str(), kolo::rank(), kolo::size());
  }
};

// A case, with or without the group that comes later.
struct Scenario {
  const Case& of;
  bool adds_late;
  std::vector<torch::Tensor> wanted;  // the weights in the end
  [[nodiscard]] std::string name() const { return of.name + (adds_late ? " and a late group" : ""); }
};

std::string prefix(const ScratchFolder& folder, const Scenario& scenario, const Form& form, int ranks) {
  return folder.path(scenario.name() + ", " + form.name + ", " + std::to_string(ranks) + " ranks, step ");
}

bool serves(const Scenario& scenario, const Form& form) { return form.stage < 0 || !scenario.adds_late; }

std::vector<torch::Tensor> undisturbed(const Scenario& scenario) {
  Training training(scenario.of, kForms[0], scenario.adds_late, !scenario.adds_late, 0);
  for (int step = 0; step < kSteps; ++step) training.step(step);
  return training.net().bits();
}

// Ten steps with each reader.
void read_all(const ScratchFolder& folder, const Scenario& scenario, const Form& form, kolo::CheckpointWriter& writer,
              Count& count) {
  for (const auto& [name, read] : all_readers(folder, prefix(folder, scenario, form, kolo::size()), writer)) {
    Training training(scenario.of, form, scenario.adds_late, !scenario.adds_late, 0);
    read(training, 0);
    for (int step = 0; step < kSteps; ++step) {
      training.step(step);
      read(training, step + 1);
    }
    count.add(are_equal(training.net().bits(), scenario.wanted), scenario.name() + ", " + form.name + ", " + name);
  }
}

// From each of the checkpoints that were saved in this form by so many ranks, or, into another form or by another
// number of ranks, from some of them, on to the tenth step.
void load_all(const ScratchFolder& folder, const Scenario& scenario, const Form& saved, int ranks, const Form& form,
              Count& count) {
  const bool is_same = saved.stage == form.stage && ranks == kolo::size();
  const bool is_usual = form.stage == -1 || form.stage == 1;
  for (int from = is_same ? 0 : 1; from <= kSteps; from += is_same && is_usual ? 1 : 5) {
    const bool has_late = !scenario.adds_late || from > kLate;
    if (form.stage >= 0 && !has_late) continue;  // it cannot take the group in
    Training training(scenario.of, form, scenario.adds_late, has_late, 7);
    const std::string path = prefix(folder, scenario, saved, ranks) + std::to_string(from);
    training.with([&](auto& optimizer) { kolo::load_checkpoint(path, kt::views(training.net()), optimizer); });
    for (int step = from; step < kSteps; ++step) training.step(step);
    count.add(are_equal(training.net().bits(), scenario.wanted),
              path + " (of " + std::to_string(ranks) + " ranks) into " + form.name);
  }
}

void expect_none_differs(const std::vector<Count>& counts) {
  int tried = 0, differ = 0;
  for (const Count& count : counts) tried += count.tried, differ += count.differ;
  std::printf("combinations tried: %d; those whose bits differ: %d\n", tried, differ);
  EXPECT_GT(tried, 0);
  EXPECT_EQ(differ, 0);
}

TEST(NeutralReads, NoCallAndNoLoadChangesTheBitsOfATraining) {
  const ScratchFolder folder("libtorch");
  const std::vector<Case> cases = all_cases();
  std::vector<Scenario> scenarios;
  for (const Case& one : cases) {
    scenarios.push_back({one, false, {}});
    if (one.takes_groups) scenarios.push_back({one, true, {}});
  }
  std::vector<Count> counts(2);  // by rank
  const auto on = [&](int ranks, const std::function<void(Scenario&, Count&, kolo::CheckpointWriter&)>& body) {
    on_ranks(ranks, [&] {
      kolo::CheckpointWriter writer;
      for (Scenario& scenario : scenarios) body(scenario, counts[static_cast<std::size_t>(kolo::rank())], writer);
    });
  };
  on(1, [&](Scenario& scenario, Count& count, kolo::CheckpointWriter& writer) {
    scenario.wanted = undisturbed(scenario);
    read_all(folder, scenario, kForms[0], writer, count);
    load_all(folder, scenario, kForms[0], 1, kForms[0], count);
  });
  on(2, [&](Scenario& scenario, Count& count, kolo::CheckpointWriter& writer) {
    for (std::size_t i = 0; i < kForms.size(); ++i) {
      load_all(folder, scenario, kForms[0], 1, kForms[i], count);
      if (!serves(scenario, kForms[i])) continue;
      read_all(folder, scenario, kForms[i], writer, count);
      load_all(folder, scenario, kForms[i], 2, kForms[i], count);
      load_all(folder, scenario, kForms[i], 2, kForms[(i + 1) % kForms.size()], count);
    }
  });
  on(1, [&](Scenario& scenario, Count& count, kolo::CheckpointWriter&) {
    for (const Form& form : kForms) {
      if (serves(scenario, form)) load_all(folder, scenario, form, 2, kForms[0], count);
    }
  });
  expect_none_differs(counts);
}

// DeepSpeed's engine with this configuration, after so many steps.
struct EngineTraining {
  Net net;
  kt::Engine engine;
  EngineTraining(const std::string& config, double seed) : net(seed), engine(kt::initialize(net, config)) {}
  void step(int step) {
    engine.backward(net.loss(step, true));
    engine.step();
  }
};

std::vector<std::string> all_configurations() {
  std::vector<std::string> all;
  const std::vector<std::pair<int, std::string>> kinds{
      {0, ""},
      {1, ""},
      {2, ""},
      {1, R"(, "bf16": {"enabled": true})"},
      {2, R"(, "fp16": {"enabled": true, "initial_scale_power": 4, "loss_scale_window": 3})"}};
  for (const char* optimizer : {R"({"type": "SGD", "params": {"lr": 0.1}})",
                                R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}})",
                                R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": true}})",
                                R"({"type": "Adam", "params": {"lr": 0.01, "adam_w_mode": false, "amsgrad": true}})",
                                R"({"type": "AdamW", "params": {"lr": 0.01}})"}) {
    for (const auto& [stage, more] : kinds) {
      all.push_back(R"({"train_micro_batch_size_per_gpu": 1, "steps_per_print": 0, "scheduler": {"type": "WarmupLR",
          "params": {"warmup_max_lr": 0.1, "warmup_num_steps": 4}}, "zero_optimization": {"stage": )" +
                    std::to_string(stage) + R"(}, "optimizer": )" + optimizer + more + '}');
    }
  }
  return all;
}

void check_engine(const ScratchFolder& folder, const std::string& config, Count& count) {
  const std::string file = folder.path("config.json");
  if (kolo::rank() == 0) std::ofstream(file) << config;
  kolo::barrier();
  const auto path = [&](int step) { return folder.path("engine-" + std::to_string(step)); };
  std::vector<torch::Tensor> wanted;
  const std::vector<std::function<void(EngineTraining&, int)>> readers{
      [](EngineTraining&, int) {},
      [&](EngineTraining& training, int step) { training.engine.save_checkpoint(path(step)); },
      [](EngineTraining& training, int) {
        static_cast<void>(training.engine.optimizer().state());
        static_cast<void>(training.engine.optimizer().norm());
        static_cast<void>(training.engine.learning_rate() + training.engine.loss_scale());
        kolo::check_replicas(kt::views(training.net));
      }};
  for (std::size_t i = 0; i < readers.size(); ++i) {
    EngineTraining training(file, 0);
    readers[i](training, 0);
    for (int step = 0; step < kSteps; ++step) {
      training.step(step);
      readers[i](training, step + 1);
    }
    if (i == 0) wanted = training.net.bits();
    count.add(are_equal(training.net.bits(), wanted), config + ", reader " + std::to_string(i));
  }
  for (const int from : {0, 1, 2, 5, 10}) {
    EngineTraining training(file, 7);
    training.engine.load_checkpoint(path(from));
    for (int step = from; step < kSteps; ++step) training.step(step);
    count.add(are_equal(training.net.bits(), wanted), config + ", from step " + std::to_string(from));
  }
}

TEST(NeutralReads, OrOfDeepSpeedsEngine) {
  const ScratchFolder folder("libtorch");
  std::vector<Count> counts(2);
  for (const int ranks : {1, 2}) {
    on_ranks(ranks, [&] {
      for (const std::string& config : all_configurations()) {
        check_engine(folder, config, counts[static_cast<std::size_t>(kolo::rank())]);
      }
    });
  }
  expect_none_differs(counts);
}

}  // namespace
