// SPDX-License-Identifier: Apache-2.0
//
// Nothing that reads, saves, describes or compares changes a training, and one that is loaded goes on as the one that
// was saved: the bits of ten steps of `Sgd` and `AdamW` are the same with and without such calls after each step, and
// across a load at each step. (tests/libtorch has the same for LibTorch's optimizers.)
#include <cmath>
#include <cstdio>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>
#include <kolo/training.hpp>

#include "tests/support/sanitized.hpp"
#include "tests/support/scratch_folder.hpp"
#include "world.hpp"

namespace {

using kolo::Parameter;
using kolo::Span;
using kolo::testing::run_in;
using kolo::testing::worlds;

constexpr int kSteps = kolo::testing::unless_sanitized(10, 5);

/// Rank 0 alone has gradients, and ranks are summed: so the number of ranks changes nothing. One value is a buffer.
struct Model {
  explicit Model(int seed) {
    for (const std::size_t count : {91, 1, 6, 3}) {
      values.emplace_back(count);
      gradients.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) values.back()[i] = number(seed, i);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      list.push_back({"w" + std::to_string(i), kolo::view(values[i]), kolo::view(gradients[i])});
    }
    list.push_back({"mean", kolo::view(mean), std::nullopt});
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  static float number(int a, std::size_t i) {
    return static_cast<float>(std::sin(1.0 + a * 3.7 + static_cast<double>(i) * 0.37));
  }
  void backward(int step) {
    for (std::size_t t = 0; t < gradients.size(); ++t) {
      for (std::size_t i = 0; i < gradients[t].size(); ++i) {
        gradients[t][i] = kolo::rank() == 0 ? number(step + static_cast<int>(t), i) : 0;
      }
    }
    mean[0] += 1;
  }

  std::vector<std::vector<float>> values, gradients;
  std::vector<float> mean{0, 1};
  std::vector<Parameter> list;
};

/// How an optimizer is used: alone (on one rank), distributed, in blocks of 8 bits, or sharded.
enum class Form { local, distributed, compressed, stage0, stage1, stage2, compressed_stage1, gathered_late };

bool is_compressed(Form form) { return form == Form::compressed || form == Form::compressed_stage1; }

std::vector<Form> forms(int ranks) {
  std::vector<Form> all{Form::distributed, Form::compressed,        Form::stage0,       Form::stage1,
                        Form::stage2,      Form::compressed_stage1, Form::gathered_late};
  if (ranks == 1) all.push_back(Form::local);
  return all;
}

template <class Optimizer>
using Make = std::function<Optimizer(Span<const Parameter>)>;

/// Calls `body(optimizer, step)`, where `step(i)` makes the step of number i.
template <class Optimizer, class Body>
void with_optimizer(const Make<Optimizer>& make, Form form, Model& model, const Body& body) {
  auto reduction = kolo::DistributedOptimizerOptions().with_op(kolo::ReduceOp::sum);
  if (is_compressed(form)) reduction.with_compression(kolo::Compression::int8_blocks);
  const auto stepping = [&model](auto& optimizer) {
    return [&model, &optimizer](int step) {
      model.backward(step);
      optimizer.step();
    };
  };
  if (form == Form::local) {
    Optimizer optimizer = make(model.list);
    body(optimizer, stepping(optimizer));
  } else if (form == Form::distributed || form == Form::compressed) {
    Optimizer inner = make(model.list);
    kolo::DistributedOptimizer optimizer(inner, model.list, reduction);
    body(optimizer, stepping(optimizer));
  } else {
    const int stage = form == Form::stage0 ? 0 : form == Form::stage2 ? 2 : 1;
    kolo::ShardedOptimizer<Optimizer> optimizer(
        model.list, make,
        kolo::ShardedOptimizerOptions().with_reduction(reduction).with_stage(stage).with_gather_late(
            form == Form::gathered_late));
    if (form == Form::stage2) {
      body(optimizer, [&](int step) {
        model.backward(step);
        for (std::size_t i = 0; i < model.gradients.size(); ++i) {
          optimizer.gradient_ready(i, kolo::view(model.gradients[i]));
        }
        optimizer.step();
      });
    } else {
      body(optimizer, stepping(optimizer));
    }
    optimizer.wait_parameters();
  }
}

/// How many trainings there were, and those whose values differ from the one without any call.
struct Count {
  int tried = 0, differ = 0;
  void add(bool is_equal, const std::string& what) {
    ++tried;
    if (is_equal) return;
    ++differ;
    std::printf("differs: %s, rank %d of %d\n", what.c_str(), kolo::rank(), kolo::size());
  }
};

using Values = std::vector<std::vector<float>>;

/// One optimizer, whose checkpoints are of this name.
template <class Optimizer>
class Trials {
 public:
  Trials(std::string name, Make<Optimizer> make, std::string folder)
      : name_(std::move(name)), make_(std::move(make)), folder_(std::move(folder)) {}

  /// Steps without any call, with each kind of call, and from each checkpoint.
  void run(Count& count) const {
    kolo::CheckpointWriter writer;
    for (const Form form : forms(kolo::size())) {
      const Values wanted = with_calls(form, [](auto&, const Model&, int) {});
      const auto saving = [&](auto& optimizer, const Model& model, int step) {
        kolo::save_checkpoint(path(form, kolo::size(), step), model.list, optimizer);
      };
      const auto looking = [&](auto& optimizer, const Model& model, int) {
        writer.save(folder_ + "/written", model.list, optimizer);
        writer.wait();
        look(optimizer);
        kolo::check_replicas(model.list);
        static_cast<void>(kolo::metrics());
      };
      count.add(with_calls(form, saving) == wanted, described(form) + ", saved");
      count.add(with_calls(form, looking) == wanted, described(form) + ", looked at");
      if (is_compressed(form)) continue;  // a checkpoint keeps the sum of what ranks have lost, not its parts
      const bool is_usual = form == Form::distributed || form == Form::stage1;
      for (int from = 0; from <= kSteps; from += is_usual ? 1 : 5) {
        count.add(loaded(form, kolo::size(), from, form) == wanted, described(form, from));
      }
    }
  }
  /// From checkpoints that so many ranks have saved in any form.
  void run_from(int ranks, Count& count) const {
    for (const Form saved : forms(ranks)) {
      for (const Form form : forms(kolo::size())) {
        if (is_compressed(saved) || is_compressed(form)) continue;
        const Values wanted = with_calls(form, [](auto&, const Model&, int) {});
        for (const int from : {0, kSteps - 3}) {
          count.add(loaded(saved, ranks, from, form) == wanted, described(saved, from) + " into " + described(form));
        }
      }
    }
  }

 private:
  [[nodiscard]] std::string path(Form form, int ranks, int step) const {
    return folder_ + '/' + name_ + '-' + std::to_string(static_cast<int>(form)) + '-' + std::to_string(ranks) + '-' +
           std::to_string(step);
  }
  [[nodiscard]] std::string described(Form form, int from = 0) const { return path(form, kolo::size(), from); }

  template <class Looked>
  static void look(Looked& optimizer) {
    static_cast<void>(std::as_const(optimizer).state());
    kolo::broadcast_optimizer_state(optimizer);
  }
  static void look(kolo::DistributedOptimizer<Optimizer>& optimizer) {
    static_cast<void>(optimizer.state());
    if (optimizer.places().empty()) kolo::broadcast_optimizer_state(optimizer);
  }
  static void look(kolo::ShardedOptimizer<Optimizer>& optimizer) {
    static_cast<void>(optimizer.state());
    static_cast<void>(optimizer.norm());
    if (optimizer.places().empty()) kolo::broadcast_optimizer_state(optimizer);
  }

  template <class Call>
  [[nodiscard]] Values with_calls(Form form, const Call& call) const {
    Model model(1);
    with_optimizer<Optimizer>(make_, form, model, [&](auto& optimizer, const auto& make_step) {
      call(optimizer, model, 0);
      for (int step = 0; step < kSteps; ++step) {
        make_step(step);
        call(optimizer, model, step + 1);
      }
    });
    return model.values;
  }
  [[nodiscard]] Values loaded(Form saved, int ranks, int from, Form form) const {
    Model model(9);
    with_optimizer<Optimizer>(make_, form, model, [&](auto& optimizer, const auto& make_step) {
      kolo::load_checkpoint(path(saved, ranks, from), model.list, optimizer);
      for (int step = from; step < kSteps; ++step) make_step(step);
    });
    return model.values;
  }

  const std::string name_;
  const Make<Optimizer> make_;
  const std::string folder_;
};

TEST(NeutralReads, NoCallAndNoLoadChangesTheBitsOfATraining) {
  const kolo::testing::ScratchFolder scratch("neutral-reads");
  const std::string& folder = scratch.path();
  const auto sgd = [&](const std::string& name, const kolo::SgdOptions& options) {
    return Trials<kolo::Sgd>(
        name, [options](Span<const Parameter> of) { return kolo::Sgd(of, options); }, folder);
  };
  const auto adamw = [&](const std::string& name, const kolo::AdamWOptions& options) {
    return Trials<kolo::AdamW>(
        name, [options](Span<const Parameter> of) { return kolo::AdamW(of, options); }, folder);
  };
  const auto slow = kolo::SgdOptions().with_learning_rate(0.05);
  const std::vector<Trials<kolo::Sgd>> sgds{
      sgd("plain", kolo::SgdOptions(slow).with_weight_decay(0.1)),
      sgd("momentum", kolo::SgdOptions(slow).with_momentum(0.9)),
      sgd("dampening", kolo::SgdOptions(slow).with_momentum(0.9).with_dampening(0.5)),
      sgd("nesterov", kolo::SgdOptions(slow).with_momentum(0.9).with_nesterov(true))};
  const std::vector<Trials<kolo::AdamW>> adamws{adamw("adamw", kolo::AdamWOptions()),
                                                adamw("decaying", kolo::AdamWOptions().with_weight_decay(0.2))};
  std::vector<Count> counts(2);  // by rank
  const auto on = [&](int ranks, int from) {
    run_in(ranks, [&] {
      Count& count = counts[static_cast<std::size_t>(kolo::rank())];
      const auto run = [&](const auto& trials) { from == 0 ? trials.run(count) : trials.run_from(from, count); };
      for (const auto& one : sgds) run(one);
      for (const auto& one : adamws) run(one);
    });
  };
  on(1, 0);
  on(2, 0);
  on(2, 1);
  on(1, 2);
  int tried = 0, differ = 0;
  for (const Count& count : counts) tried += count.tried, differ += count.differ;
  std::printf("combinations tried: %d; those whose bits differ: %d\n", tried, differ);
  EXPECT_GT(tried, 0);
  EXPECT_EQ(differ, 0);
}

}  // namespace
