// SPDX-License-Identifier: Apache-2.0
//
// kolo::libtorch, by its public API alone. Ranks are threads of this process; with --in-job, which mpirun is given, the
// same tests run on the job's processes, however many.
//
// Few files for all tests: LibTorch's headers take longer to compile than these tests do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

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

// Two layers, and one between them for rows that ask for it.
struct Net : torch::nn::Module {
  torch::nn::Linear first, extra, last;

  Net() : first(6, 8), extra(8, 8), last(8, 3) {
    register_module("first", first);
    register_module("extra", extra);
    register_module("last", last);
    to(torch::kDouble);
  }

  // `asks` is 1 for rows that go through `extra`. Where no row does, it is not part of the graph.
  torch::Tensor forward(const torch::Tensor& rows, const torch::Tensor& asks) {
    torch::Tensor hidden = torch::tanh(first(rows));
    if (asks.any().item<bool>()) {
      hidden = hidden + asks.unsqueeze(1) * torch::tanh(extra(hidden));
    }
    return last(hidden);
  }
};

struct Data {
  torch::Tensor rows, asks, targets;
  [[nodiscard]] Data part(std::int64_t begin, std::int64_t size) const {
    return {rows.narrow(0, begin, size), asks.narrow(0, begin, size), targets.narrow(0, begin, size)};
  }
};

constexpr std::int64_t kRowsPerPass = 4;

// The batch of a step. Only the second rank's rows use `extra`.
Data batch_of(int step, int ranks, int passes) {
  const std::int64_t rows = kRowsPerPass * ranks * passes;
  torch::Tensor asks = torch::zeros({rows}, torch::kDouble);
  asks.narrow(0, kRowsPerPass * passes, kRowsPerPass * passes).fill_(ranks > 1 ? 1 : 0);
  return {numbers({rows, 6}, step), asks, numbers({rows, 3}, 100 + step)};
}

torch::Tensor loss_of(Net& net, const Data& data) {
  return torch::mean(torch::square(net.forward(data.rows, data.asks) - data.targets));
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

std::unique_ptr<torch::optim::Optimizer> make_sgd(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.1).momentum(0.9));
}
std::unique_ptr<torch::optim::Optimizer> make_adamw(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::AdamW>(std::move(parameters), torch::optim::AdamWOptions(0.01));
}

constexpr int kSteps = 20;
constexpr double kMaxNorm = 0.2;  // below the norm in most steps

std::vector<torch::Tensor> train_alone(const MakeOptimizer& make, int ranks, int passes) {
  Net net;
  fill(net, 0);
  const auto optimizer = make(net.parameters());
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    loss_of(net, batch_of(step, ranks, passes)).backward();
    torch::nn::utils::clip_grad_norm_(net.parameters(), kMaxNorm);
    optimizer->step();
  }
  return net.parameters();
}

struct Variant {
  const char* name;
  MakeOptimizer make;
  int passes;
  bool by_no_sync;   // how several passes are accumulated
  bool set_to_none;  // how gradients are reset
  std::optional<kolo::DType> narrow = {};
};

// One step of this rank's part, in as many passes.
void step_together(Net& net, kt::DistributedOptimizer& optimizer, const Variant& variant, int step) {
  const Data batch = batch_of(step, kolo::size(), variant.passes);
  const std::int64_t begin = kRowsPerPass * variant.passes * kolo::rank();
  for (int pass = 0; pass < variant.passes; ++pass) {
    const bool last = pass + 1 == variant.passes;
    const Data part = batch.part(begin + kRowsPerPass * pass, kRowsPerPass);
    if (variant.by_no_sync) {
      if (pass == 0) {
        optimizer.zero_grad(variant.set_to_none);
      }
      if (!last) {
        const auto scope = optimizer.no_sync();
        (loss_of(net, part) / variant.passes).backward();
        continue;
      }
      (loss_of(net, part) / variant.passes).backward();
    } else {
      optimizer.zero_grad(variant.set_to_none);
      loss_of(net, part).backward();
    }
    if (last) {
      EXPECT_TRUE(optimizer.synchronize());
      torch::nn::utils::clip_grad_norm_(net.parameters(), kMaxNorm);
    }
    EXPECT_EQ(optimizer.step(), last);
  }
}

// The loss over what was trained on.
double loss_with(const std::vector<torch::Tensor>& parameters, int passes) {
  const torch::NoGradGuard no_grad;
  Net net;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    net.parameters()[i].copy_(parameters[i]);
  }
  double loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    loss += loss_of(net, batch_of(step, kolo::size(), passes)).item<double>();
  }
  return loss;
}

void train_together(const Variant& variant) {
  Net net;
  fill(net, 10 * kolo::rank());  // different everywhere, and then not
  kt::broadcast_parameters(net);
  const auto inner = variant.make(net.parameters());
  kolo::DistributedOptimizerOptions options;
  options.accumulation_steps = variant.by_no_sync ? 1 : variant.passes;
  options.send_gradients_as = variant.narrow;
  kt::DistributedOptimizer optimizer(*inner, net, options);
  for (int step = 0; step < kSteps; ++step) {
    step_together(net, optimizer, variant, step);
  }
  const std::vector<torch::Tensor> alone = train_alone(variant.make, kolo::size(), variant.passes);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    if (!variant.narrow) {
      EXPECT_TRUE(torch::allclose(net.parameters()[i], alone[i], 1e-10, 1e-10)) << variant.name << ", parameter " << i;
    }
    EXPECT_TRUE(same_on_all_ranks(net.parameters()[i]));
  }
  if (variant.narrow) {  // AdamW takes a step of full length on whatever gradient is rounded: parameters may be others
    const double wanted = loss_with(alone, variant.passes);
    EXPECT_NEAR(loss_with(net.parameters(), variant.passes), wanted, 0.01 * wanted) << variant.name;
  }
}

TEST(Training, FourRanksReachWhatOneProcessDoes) {
  for (const Variant& variant :
       {Variant{"sgd", make_sgd, 1, false, false}, Variant{"adamw", make_adamw, 1, false, true},
        Variant{"sgd, 2 passes", make_sgd, 2, false, true}, Variant{"adamw, 2 passes", make_adamw, 2, false, false},
        Variant{"sgd, no_sync", make_sgd, 2, true, false}, Variant{"adamw, no_sync", make_adamw, 2, true, true}}) {
    on_ranks(4, [&] { train_together(variant); });
  }
}

TEST(Training, GradientsSentAs16BitsTrainAsWell) {
  for (const Variant& variant :
       {Variant{"sgd, float16", make_sgd, 1, false, false, kolo::DType::float16},
        Variant{"adamw, bfloat16, 2 passes", make_adamw, 2, false, true, kolo::DType::bfloat16}}) {
    on_ranks(4, [&] { train_together(variant); });
  }
  on_ranks(2, [] {  // numbers that 16 bits hold: nothing is lost, and of others something
    torch::nn::Linear layer(torch::nn::LinearOptions(2, 1).bias(false));
    kt::broadcast_parameters(*layer);
    torch::optim::SGD sgd(layer->parameters(), 1);
    kt::DistributedOptimizer optimizer(
        sgd, *layer, kolo::DistributedOptimizerOptions().with_send_gradients_as(kolo::DType::float16));
    for (const double beyond : {0.0, 1.0 / (1 << 20)}) {
      optimizer.zero_grad();
      layer(torch::full({1, 2}, 1.0 + kolo::rank() + beyond)).sum().backward();
      EXPECT_TRUE(optimizer.synchronize());
      const double lost = kolo::size() == 1 ? 0 : beyond;
      EXPECT_TRUE(torch::equal(layer->weight.grad(), torch::full({1, 2}, (kolo::size() + 1) / 2.0 + beyond - lost)));
      EXPECT_TRUE(optimizer.step());
    }
    kolo::DistributedOptimizerOptions wrong;
    wrong.with_name("wrong").with_send_gradients_as(kolo::DType::float32);
    EXPECT_EQ(error_of([&] { kt::DistributedOptimizer(sgd, *layer, wrong); }),
              "invalid_argument: DistributedOptimizer: send_gradients_as is float32; only float16 and bfloat16 make "
              "sense");
  });
}

TEST(Training, GradientsAreReducedWhileTheBackwardPassGoesOn) {
  on_ranks(2, [] {
    torch::nn::Linear first(4, 4), second(4, 4), third(4, 1);
    kt::NamedTensors parameters;
    int number = 0;
    for (auto& layer : {first, second, third}) {
      for (auto& named : kt::named_parameters(*layer, std::to_string(number++) + ".")) {
        parameters.push_back(named);
      }
    }
    kt::broadcast_parameters(parameters);
    std::vector<torch::Tensor> tensors;
    for (const auto& named : parameters) {
      tensors.push_back(named.second);
    }
    torch::optim::SGD sgd(tensors, 0.1);
    kt::DistributedOptimizer optimizer(sgd, parameters);

    bool seen = false;
    const torch::Tensor hidden = first(torch::ones({2, 4}));
    hidden.register_hook([&](const torch::Tensor&) {  // the pass has come to the first layer, on every rank
      EXPECT_EQ(optimizer.started(), 4U);
      while (optimizer.finished() < 4) {  // and no rank goes on until the others' gradients have arrived
        std::this_thread::yield();
      }
      EXPECT_EQ(optimizer.started(), 4U);
      seen = true;
    });
    third(torch::tanh(second(hidden))).sum().backward();
    EXPECT_TRUE(seen);
    EXPECT_EQ(optimizer.started(), 6U);
    EXPECT_TRUE(optimizer.step());
    EXPECT_EQ(optimizer.started(), 0U);
  });
}

// What a rank's `optimizer` says about a model that `change` has made another on the last rank.
void expect_told(const std::string& last, const std::string& others,
                 const std::function<void(kt::NamedTensors& model)>& change) {
  on_ranks(2, [&] {
    const int ranks = kolo::size();
    kt::NamedTensors model{{"a", torch::ones({2, 3})}, {"b", torch::ones({3})}};
    if (kolo::rank() == ranks - 1) {
      change(model);
    }
    std::vector<torch::Tensor> tensors;
    for (auto& named : model) {
      named.second = named.second.set_requires_grad(true);
      tensors.push_back(named.second);
    }
    torch::optim::SGD sgd(tensors, 0.1);
    std::string who = "rank 0 has";
    if (ranks == 3) {
      who = "ranks 0 and 1 have";
    } else if (ranks > 3) {
      who = "ranks 0-" + std::to_string(ranks - 2) + " have";
    }
    EXPECT_EQ(error_of([&] { kt::DistributedOptimizer(sgd, model); }),
              "mismatch: DistributedOptimizer(gradients): ranks disagree: " + who + ' ' + others + "; rank " +
                  std::to_string(ranks - 1) + " has " + last);
    EXPECT_EQ(kolo::allreduce(1, kolo::ReduceOp::sum), ranks) << "the job goes on";
  });
}

TEST(Models, RanksWithDifferentModelsAreTold) {
  expect_told("nothing (the list is over)", "\"b float32 [3]\"", [](auto& model) { model.pop_back(); });
  expect_told("\"b float32 [4]\"", "\"b float32 [3]\"", [](auto& model) { model[1].second = torch::ones({4}); });
  expect_told("\"b float64 [3]\"", "\"b float32 [3]\"",
              [](auto& model) { model[1].second = torch::ones({3}, torch::kDouble); });
  expect_told("\"b float32 [3]\"", "\"a float32 [2, 3]\"", [](auto& model) { std::swap(model[0], model[1]); });
  expect_told("\"a float32 [2, 3] strides [1, 2]\"", "\"a float32 [2, 3]\"", [](auto& model) {
    model[0].second = torch::ones({3, 2}).t();
  });
}

TEST(Models, BroadcastCopiesParametersAndBuffersOfAnyTypeAndLayout) {
  on_ranks(3, [] {
    const int rank = kolo::rank();
    kt::NamedTensors tensors;
    for (const auto type : {torch::kBool, torch::kByte, torch::kLong, torch::kHalf, torch::kBFloat16, torch::kFloat,
                            torch::kDouble, torch::kComplexFloat}) {
      tensors.emplace_back(torch::toString(type), torch::full({3, 2}, rank == 0 ? 1 : 0, type));
    }
    tensors.emplace_back("strided", torch::full({4, 4}, rank).slice(1, 0, 4, 2));
    tensors.emplace_back("scalar", torch::full({}, rank));
    tensors.emplace_back("nothing", torch::ones({0, 3}));
    tensors.emplace_back("of 9 dimensions", torch::full({1, 2, 1, 2, 1, 2, 1, 2, 3}, rank));
    kt::broadcast_parameters(tensors, kolo::size() - 1);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const double wanted = i < 8 ? 0 : kolo::size() - 1;
      EXPECT_TRUE(torch::equal(tensors[i].second, torch::full_like(tensors[i].second, wanted))) << tensors[i].first;
    }
  });
}

TEST(Models, TheirOwnErrorsAreClear) {
  on_ranks(1, [] {
    torch::nn::Linear layer(2, 2), other(2, 2);
    torch::optim::SGD sgd(other->parameters(), 0.1);
    EXPECT_EQ(error_of([&] { kt::DistributedOptimizer(sgd, *layer); }),
              "invalid_argument: DistributedOptimizer: the optimizer steps parameter 0 of group 0 (float32 [2, 2]), "
              "which has no name in the module; it would not be reduced");
    torch::optim::LBFGS lbfgs(layer->parameters());
    EXPECT_EQ(error_of([&] { kt::DistributedOptimizer(lbfgs, *layer); }),
              "unsupported: DistributedOptimizer: LBFGS evaluates its closure several times a step, which is not "
              "supported");
    torch::optim::SGD mine(layer->parameters(), 0.1);
    const kt::DistributedOptimizer first(mine, *layer);
    EXPECT_EQ(error_of([&] { kt::DistributedOptimizer(mine, *layer); }).substr(0, 15), "duplicate_name:");
    const kt::DistributedOptimizer second(mine, *layer, kolo::DistributedOptimizerOptions().with_name("another"));
  });
}

TEST(Backward, RefusesWhatIsNotSupported) {
  on_ranks(2, [] {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    torch::optim::SGD sgd(table->parameters(), 0.1);
    kt::DistributedOptimizer optimizer(sgd, *table);
    EXPECT_EQ(error_of([&] { table(torch::ones({3}, torch::kLong)).sum().backward(); }),
              "unsupported: DistributedOptimizer: the gradient of \"weight\" is sparse, which is not supported");
    EXPECT_EQ(error_of([&] { table->weight.square().sum().backward({}, {}, /*create_graph=*/true); }),
              "unsupported: DistributedOptimizer: a backward pass that is itself differentiated (create_graph) is not "
              "supported");
    EXPECT_TRUE(torch::equal(table->weight.grad(), torch::zeros({4, 2}))) << "nothing changed";
  });
}

// A name may hold any bytes: it is shown on one line, and in part.
TEST(Models, NamesInSentences) {
  on_ranks(2, [] {
    const std::string xs(10000, 'x');
    for (const auto& [name, shown] :
         {std::pair<std::string, std::string>("a\n\"b\"", "\"a\\n\\\"b\\\"\""),
          std::pair<std::string, std::string>(xs, "\"" + xs.substr(0, 100) + "...\" (10000 bytes)")}) {
      torch::nn::Linear layer(torch::nn::LinearOptions(2, 1).bias(false));
      kt::broadcast_parameters(*layer);
      torch::optim::SGD sgd(layer->parameters(), 1);
      const kt::NamedTensors names{{name, layer->weight}};
      {
        kt::DistributedOptimizer optimizer(sgd, names);
        const torch::Tensor row = torch::ones({1, 2});
        layer(row).sum().backward();
        EXPECT_EQ(error_of([&] { layer(row).sum().backward(); }),
                  "invalid_argument: DistributedOptimizer: a second backward pass has reached " + shown +
                      ", which is being reduced already; step() comes first, or accumulate (accumulation_steps, "
                      "no_sync())");
        optimizer.step();
      }
      EXPECT_EQ(error_of([&] {
                  kt::broadcast_parameters({{name, torch::ones({2}).to_sparse()}});
                }),
                "unsupported: broadcast_parameters: " + shown +
                    " is sparse, quantized or otherwise not plain memory; only dense tensors are supported");
    }
    // Of different names the whole is compared.
    const std::string others =
        kolo::size() == 2 ? "rank 1 has" : "ranks 1-" + std::to_string(kolo::size() - 1) + " have";
    const std::string mine = xs + (kolo::rank() == 0 ? "a\n" : "b");
    EXPECT_EQ(error_of([&] {
                kt::broadcast_parameters({{mine, torch::ones({2})}});
              }),
              "mismatch: broadcast_parameters: ranks disagree: rank 0 has \"" + xs.substr(0, 100) +
                  "...\" (10014 bytes; after the first 10000: \"a\\n float32 [2]\"); " + others + " \"" +
                  xs.substr(0, 100) + "...\" (10013 bytes; after the first 10000: \"b float32 [2]\")");
  });
}

TEST(Backward, ASecondPassBeforeStepIsAnErrorThatChangesNothing) {
  on_ranks(2, [] {
    torch::nn::Linear layer(torch::nn::LinearOptions(2, 1).bias(false));
    kt::broadcast_parameters(*layer);
    torch::optim::SGD sgd(layer->parameters(), 1);
    kt::DistributedOptimizer optimizer(sgd, *layer);
    const torch::Tensor rows = torch::full({1, 2}, 1.0 + kolo::rank());
    layer(rows).sum().backward();
    EXPECT_EQ(error_of([&] { layer(rows).sum().backward(); }),
              "invalid_argument: DistributedOptimizer: a second backward pass has reached \"weight\", which is being "
              "reduced already; step() comes first, or accumulate (accumulation_steps, no_sync())");
    EXPECT_EQ(error_of([&] { optimizer.zero_grad(); }).substr(0, 17), "invalid_argument:");
    EXPECT_TRUE(optimizer.synchronize());
    EXPECT_TRUE(torch::equal(layer->weight.grad(), torch::full({1, 2}, (kolo::size() + 1) / 2.0)));
    {
      const auto scope = optimizer.no_sync();
      EXPECT_EQ(
          error_of([&] { optimizer.step(); }),
          "invalid_argument: DistributedOptimizer: step(), synchronize() and flush() while a no_sync() scope is open");
    }
    EXPECT_TRUE(optimizer.step());
  });
}

TEST(Backward, AFaultOfTheWorldLeavesStepAndBackwardAsAnError) {
  std::string from_step, from_backward;
  std::promise<void> made;  // by rank 0, which would else hear of the fault while it makes its optimizer
  const std::string told = error_of([&] {
    kolo::run_local(2, [&] {
      torch::nn::Linear layer(2, 1);
      torch::optim::SGD sgd(layer->parameters(), 1);
      kt::DistributedOptimizer optimizer(sgd, *layer);
      if (kolo::rank() == 1) {
        made.get_future().wait();
        throw std::runtime_error("rank 1 has had enough");
      }
      made.set_value();
      const auto pass = [&] { layer(torch::ones({1, 2})).sum().backward(); };
      from_step = error_of([&] {
        pass();
        optimizer.step();
      });
      from_backward = error_of(pass);  // what was begun is over; this would begin the next
    });
  });
  EXPECT_EQ(told, "user_exception: rank 1: rank 1 has had enough");
  EXPECT_EQ(from_step.substr(0, 15), "user_exception:") << from_step;
  EXPECT_EQ(from_backward.substr(0, 15), "user_exception:") << from_backward;
}

TEST(Replicas, ThatDifferAreAnErrorOnAllRanksEverySoManySteps) {
  const auto train = [] {
    torch::nn::Linear layer(3, 1);
    kolo::test::fill(*layer, 1);
    torch::optim::SGD sgd(layer->parameters(), 0.1);
    kt::DistributedOptimizer optimizer(sgd, *layer);
    const auto step = [&] {
      optimizer.zero_grad();
      layer(torch::full({1, 3}, 1.0 + kolo::rank())).sum().backward();
      optimizer.step();
    };
    for (int i = 0; i < 4; ++i) step();
    if (kolo::rank() == 1) layer->bias.data().add_(1);
    step();
    EXPECT_EQ(error_of(step), "mismatch: parameter \"bias\" is not the same on all ranks after step 6 "
                              "(KOLO_CHECK_REPLICAS): rank 1 holds other values than ranks 0 and 2");
  };
  kolo::run_local(3, train,
                  kolo::Options{}.with_setting("KOLO_CHECK_REPLICAS", "2").with_setting("KOLO_TIMEOUT_S", "60"));
}

TEST(Replicas, OfAParameterWithGapsAreItsValues) {
  const auto train = [] {
    torch::Tensor gaps = torch::ones({6}).slice(0, 0, 6, 2).set_requires_grad(true);
    torch::optim::SGD sgd({gaps}, 0.1);
    kt::DistributedOptimizer optimizer(sgd, kt::NamedTensors{{"gaps", gaps}});
    const auto step = [&] {
      optimizer.zero_grad();
      gaps.sum().backward();
      optimizer.step();
    };
    step();
    if (kolo::rank() == 1) gaps.data()[2].add_(1);
    EXPECT_EQ(error_of(step), "mismatch: parameter \"gaps\" is not the same on all ranks after step 2 "
                              "(KOLO_CHECK_REPLICAS): ranks 0 and 1 hold different values");
  };
  kolo::run_local(2, train,
                  kolo::Options{}.with_setting("KOLO_CHECK_REPLICAS", "1").with_setting("KOLO_TIMEOUT_S", "60"));
}

// A parameter used twice, one shared between two modules, one frozen, one of no use.
struct Odd : torch::nn::Module {
  torch::nn::Linear twice, frozen, unused;
  torch::Tensor shared;

  Odd()
      : twice(torch::nn::LinearOptions(2, 2).bias(false)), frozen(torch::nn::LinearOptions(2, 2).bias(false)),
        unused(torch::nn::LinearOptions(2, 2).bias(false)), shared(torch::full({2}, 2.0).set_requires_grad(true)) {
    register_module("twice", twice);
    register_module("frozen", frozen);
    register_module("unused", unused);
    register_module("twice_again", twice.ptr());
    register_parameter("shared", shared);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      parameter.fill_(1);
    }
    frozen->weight.set_requires_grad(false);
  }

  torch::Tensor forward(const torch::Tensor& row) { return (twice(frozen(twice(row))) * shared).sum(); }
};

TEST(Backward, OddModels) {
  on_ranks(2, [] {
    Odd odd;
    EXPECT_EQ(kt::named_parameters(odd).size(), 4U);
    std::vector<torch::Tensor> own;
    for (const auto& named : kt::named_parameters(odd)) {
      own.push_back(named.second);
    }
    torch::optim::SGD sgd(own, torch::optim::SGDOptions(0.01).weight_decay(0));
    kt::DistributedOptimizer optimizer(sgd, odd);
    EXPECT_FALSE(odd.frozen->weight.grad().defined());
    for (int step = 0; step < 3; ++step) {
      Odd alone;
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < own.size(); ++i) {
        alone.parameters()[i].copy_(odd.parameters()[i]);
      }
      torch::Tensor wanted_twice = torch::zeros({2, 2}), wanted_shared = torch::zeros({2});
      for (int rank = 0; rank < kolo::size(); ++rank) {
        const torch::AutoGradMode with_grad(true);
        alone.zero_grad();
        alone.forward(torch::full({1, 2}, 1.0 + rank + step)).backward();
        wanted_twice += alone.twice->weight.grad().detach() / kolo::size();
        wanted_shared += alone.shared.grad().detach() / kolo::size();
      }
      {
        const torch::AutoGradMode with_grad(true);
        optimizer.zero_grad(step % 2 == 1);
        odd.forward(torch::full({1, 2}, 1.0 + kolo::rank() + step)).backward();
      }
      EXPECT_TRUE(optimizer.synchronize());
      EXPECT_TRUE(torch::allclose(odd.twice->weight.grad(), wanted_twice));
      EXPECT_TRUE(torch::allclose(odd.shared.grad(), wanted_shared));
      EXPECT_TRUE(torch::equal(odd.unused->weight.grad(), torch::zeros({2, 2})));
      EXPECT_TRUE(optimizer.step());
    }
    EXPECT_TRUE(torch::equal(odd.frozen->weight, torch::ones({2, 2})));
  });
}

TEST(Backward, TypesLayoutsAndForeignGradients) {
  on_ranks(2, [] {
    for (const auto type : {torch::kHalf, torch::kBFloat16, torch::kFloat, torch::kDouble}) {
      torch::Tensor parameter = torch::ones({4, 3}, type).t().set_requires_grad(true);  // of strides [1, 3]
      torch::Tensor gap = torch::ones({4, 4}, type).slice(1, 0, 4, 2).detach().set_requires_grad(true);
      torch::optim::SGD sgd({parameter, gap}, 1);
      kt::DistributedOptimizer optimizer(sgd, kt::NamedTensors{{"w", parameter}, {"gap", gap}});
      const torch::Tensor input = torch::arange(12, torch::kFloat).reshape({3, 4}).to(type);
      for (int step = 0; step < 2; ++step) {
        if (step == 1) {
          sgd.zero_grad();  // the program's own, as it likes
          parameter.mutable_grad() = torch::full({3, 4}, 2, type);
        }
        ((parameter * input).sum() * (1 + kolo::rank()) + gap.sum()).backward();
        EXPECT_TRUE(optimizer.synchronize());
        const torch::Tensor wanted = input * ((kolo::size() + 1) / 2.0) + (step == 1 ? 2 : 0);
        EXPECT_TRUE(torch::equal(parameter.grad(), wanted.to(type))) << type;
        EXPECT_TRUE(torch::equal(gap.grad(), torch::ones({4, 2}, type)));
        EXPECT_TRUE(optimizer.step());
        optimizer.zero_grad();
      }
    }
  });
}

// So many that they are zeroed and copied past the cache; of odd sizes, and one that is not laid out row by row.
TEST(Backward, AGradientThatIsTheConjugateOfItsMemory) {
  on_ranks(2, [] {
    const torch::Tensor parameter = torch::zeros({2}, torch::kComplexDouble).set_requires_grad(true);
    torch::optim::SGD sgd({parameter}, 1);
    kt::DistributedOptimizer optimizer(sgd, kt::NamedTensors{{"w", parameter}});
    const torch::Tensor input = torch::full({2}, c10::complex<double>(1, 1 + kolo::rank()), torch::kComplexDouble);
    torch::real(parameter.conj() * input).sum().backward();
    EXPECT_TRUE(optimizer.step());
    const double mean = (kolo::size() + 1) / 2.0;
    EXPECT_TRUE(
        torch::equal(parameter.detach(), torch::full({2}, c10::complex<double>(-1, -mean), torch::kComplexDouble)));
  });
}

TEST(Backward, ManyGradients) {
  on_ranks(2, [] {
    const std::vector<torch::Tensor> sources{numbers({3001, 2999}, 1, torch::kFloat), numbers({17}, 2, torch::kFloat),
                                             numbers({801, 611}, 3, torch::kFloat).t()};
    kt::NamedTensors parameters;
    std::vector<torch::Tensor> tensors;
    for (const torch::Tensor& source : sources) {
      tensors.push_back(torch::empty_like(source).fill_(1).requires_grad_());
      parameters.emplace_back(std::to_string(tensors.size()), tensors.back());
    }
    torch::optim::SGD sgd(tensors, torch::optim::SGDOptions(0.5));
    kt::DistributedOptimizer optimizer(sgd, parameters);
    for (const bool set_to_none : {false, true, true, false}) {
      optimizer.zero_grad(set_to_none);
      torch::Tensor loss = torch::zeros({});
      for (std::size_t i = 0; i < sources.size(); ++i) {
        loss = loss + (tensors[i] * sources[i]).sum() * (kolo::rank() + 1);
      }
      loss.backward();
      EXPECT_TRUE(optimizer.synchronize());
      for (std::size_t i = 0; i < sources.size(); ++i) {
        EXPECT_TRUE(torch::equal(tensors[i].grad(), sources[i] * 1.5)) << i;
      }
      EXPECT_TRUE(optimizer.step());
    }
    optimizer.zero_grad();
    for (const torch::Tensor& tensor : tensors) {
      EXPECT_EQ(tensor.grad().count_nonzero().item<std::int64_t>(), 0);
    }
  });
}

TEST(Backward, GroupsAddedLaterAndSeveralModels) {
  on_ranks(2, [] {
    torch::nn::Linear one(2, 2), two(2, 2), later(2, 2);
    kt::broadcast_parameters(*one);
    kt::broadcast_parameters(*two);
    kt::broadcast_parameters(*later);
    torch::optim::SGD sgd_one(one->parameters(), 0.1), sgd_two(two->parameters(), 0.1);
    kt::DistributedOptimizer first(sgd_one, *one);
    kt::DistributedOptimizer second(sgd_two, *two, kolo::DistributedOptimizerOptions().with_name("second"));
    const torch::Tensor row = torch::full({1, 2}, 1.0 + kolo::rank());
    const torch::Tensor wanted = torch::full({2, 2}, (kolo::size() + 1) / 2.0);

    (one(row).sum() + two(row).sum()).backward();
    EXPECT_TRUE(second.synchronize() && first.synchronize());
    EXPECT_TRUE(torch::equal(one->weight.grad(), wanted) && torch::equal(two->weight.grad(), wanted));
    EXPECT_TRUE(first.step() && second.step());

    sgd_one.add_param_group(torch::optim::OptimizerParamGroup({later->weight}));
    EXPECT_EQ(error_of([&] { first.step(); }),
              "invalid_argument: DistributedOptimizer: the optimizer has a parameter (float32 [2, 2]) that was added "
              "after this was made; add_param_group() or rebuild() takes it in");
    first.add_param_group(torch::optim::OptimizerParamGroup({later->bias}),
                          {{"later.weight", later->weight}, {"later.bias", later->bias}});
    two->weight.set_requires_grad(false);
    second.rebuild();
    first.zero_grad();
    second.zero_grad();
    (one(row).sum() + two(row).sum() + later(row).sum()).backward();
    EXPECT_TRUE(first.step() && second.step());
    EXPECT_TRUE(torch::equal(later->weight.grad(), wanted));
    EXPECT_FALSE(two->weight.grad().defined());
    two->weight.set_requires_grad(true);
    EXPECT_EQ(error_of([&] { second.step(); }),
              "invalid_argument: DistributedOptimizer: \"weight\" did not require a gradient when this was made; "
              "rebuild() takes it in");
    one->weight.set_requires_grad(false);
    EXPECT_EQ(error_of([&] { first.step(); }),
              "invalid_argument: DistributedOptimizer: \"weight\" required a gradient when this was made; rebuild() "
              "leaves it out");
  });
}

TEST(Replicas, ThatBeginUnequalAreToldBeforeTheFirstStep) {
  on_ranks(3, [] {
    const auto expect_told = [](const auto& make) {
      torch::nn::Linear layer(3, 1);
      kolo::test::fill(*layer, 1);
      if (kolo::rank() == 1) layer->bias.data().add_(1);
      const torch::Tensor before = layer->weight.detach().clone();
      make(layer, [&](auto& optimizer) {
        const auto step = [&] {
          optimizer.zero_grad();
          layer(torch::full({1, 3}, 1.0 + kolo::rank())).sum().backward();
          optimizer.step();
        };
        EXPECT_EQ(
            error_of(step),
            "mismatch: parameter \"bias\" is not the same on all ranks before the first step: rank 1 holds other "
            "values than ranks 0 and 2. Give all ranks the values of one (broadcast_parameters), or leave out what "
            "is to differ (KOLO_CHECK_REPLICAS=first,-PATTERN)");
        EXPECT_TRUE(torch::equal(layer->weight, before));
        kt::broadcast_parameters(*layer);
        step();
        EXPECT_FALSE(torch::equal(layer->weight, before));
      });
    };
    expect_told([](torch::nn::Linear& layer, const auto& body) {
      torch::optim::SGD sgd(layer->parameters(), 0.1);
      kt::DistributedOptimizer optimizer(sgd, *layer);
      body(optimizer);
    });
    for (const int stage : {0, 1, 2}) {
      expect_told([stage](torch::nn::Linear& layer, const auto& body) {
        kt::ShardedOptimizer optimizer(
            *layer,
            [](const kt::NamedTensors& mine) { return std::make_unique<torch::optim::SGD>(kt::tensors(mine), 0.1); },
            kt::ShardedOptimizerOptions().with_stage(stage).with_reduction(
                kolo::DistributedOptimizerOptions().with_name("stage " + std::to_string(stage))));
        body(optimizer);
      });
    }
  });
}

TEST(Backward, ClosuresWeightsAndBuffers) {
  on_ranks(2, [] {
    struct WithMean : torch::nn::Module {
      torch::Tensor weight = register_parameter("weight", torch::ones({2}));
      torch::Tensor mean = register_buffer("mean", torch::zeros({2}));
    } model;
    torch::optim::SGD sgd(model.parameters(), 1);
    kt::DistributedOptimizer optimizer(sgd, model, kolo::DistributedOptimizerOptions().with_broadcast_buffers(true));
    const int rank = kolo::rank();
    const torch::Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      optimizer.begin_micro_step(rank == 0 ? 3 : 0);  // the others have no samples
      model.mean.fill_(rank + 1);
      torch::Tensor sum = (model.weight * (rank + 2)).sum();
      sum.backward();
      return sum;
    });
    EXPECT_EQ(loss.item<float>(), 2.0F * static_cast<float>(rank + 2));
    EXPECT_TRUE(torch::equal(model.weight.detach(), torch::full({2}, -1.0)));
    EXPECT_TRUE(torch::equal(model.mean, torch::ones({2})));
  });
}

// Passes of uneven size, of which some are left over.
TEST(Backward, UnevenPassesAndAStepThatEndsEarly) {
  on_ranks(2, [] {
    torch::nn::Linear layer(3, 2);
    layer->to(torch::kDouble);
    fill(*layer, 1);
    torch::optim::SGD sgd(layer->parameters(), 0);
    kt::DistributedOptimizer optimizer(sgd, *layer, kolo::DistributedOptimizerOptions().with_accumulation_steps(3));
    const std::int64_t rows[] = {4, 0, 7, 1, 2};
    torch::Tensor sum = torch::zeros({2, 3}, torch::kDouble);
    double all = 0;
    for (int pass = 0; pass < 5; ++pass) {
      for (int rank = 0; rank < kolo::size(); ++rank) {
        const std::int64_t count = rows[(pass + rank) % 5];
        const torch::Tensor batch = numbers({count, 3}, 10 * pass + rank);
        sum += batch.sum(0);  // the gradient of the sum of a linear layer's outputs
        all += static_cast<double>(count);
        if (rank != kolo::rank()) {
          continue;
        }
        optimizer.begin_micro_step(static_cast<std::size_t>(count));
        optimizer.zero_grad();
        layer(batch).sum(1).mean().backward();  // of no rows: no number
        EXPECT_EQ(optimizer.step(), pass == 2);
      }
      if (pass == 2) {
        EXPECT_TRUE(torch::allclose(layer->weight.grad(), sum / all, 0, 1e-12));
        sum.zero_();
        all = 0;
      }
    }
    torch::Tensor seen;
    EXPECT_TRUE(optimizer.flush([&] { seen = layer->weight.grad().clone(); }));
    EXPECT_TRUE(torch::allclose(seen, sum / all, 0, 1e-12));
    EXPECT_FALSE(optimizer.flush());
  });
}

TEST(Optimizer, ThatWasMovedFromThrows) {
  kolo::Context context;
  torch::nn::Linear layer(3, 2);
  torch::optim::SGD sgd(layer->parameters(), 1);
  std::optional<kt::DistributedOptimizer> first(std::in_place, context, sgd, *layer);
  kt::DistributedOptimizer second = std::move(*first);
  EXPECT_EQ(error_of([&] { first->step(); }), "invalid_argument: DistributedOptimizer: this one was moved from");
  EXPECT_EQ(error_of([&] { first->zero_grad(); }), "invalid_argument: DistributedOptimizer: this one was moved from");
  EXPECT_TRUE(second.step());
  std::optional<kt::DistributedOptimizer::NoSync> scope(second.no_sync());
  EXPECT_EQ(
      error_of([&] { second.flush(); }),
      "invalid_argument: DistributedOptimizer: step(), synchronize() and flush() while a no_sync() scope is open");
  { const kt::DistributedOptimizer gone = std::move(second); }
  scope.reset();  // after its optimizer
}

// As the library's own optimizer does (worlds/group_test.cpp).
TEST(Optimizer, FollowsAContextThatIsMovedAndSaysThatItIsGone) {
  torch::nn::Linear layer(3, 2);
  torch::optim::SGD sgd(layer->parameters(), 1);
  std::optional<kolo::Context> first(std::in_place);
  kt::DistributedOptimizer optimizer(*first, sgd, *layer);
  std::optional<kolo::Context> second(std::move(*first));
  first.reset();
  layer(numbers({2, 3}, 1, torch::kFloat)).sum().backward();
  EXPECT_TRUE(optimizer.step());
  const at::Tensor before = layer->weight.detach().clone();
  second.reset();
  EXPECT_EQ(error_of([&] {
              optimizer.zero_grad();
              layer(numbers({2, 3}, 2, torch::kFloat)).sum().backward();
              optimizer.step();
            }),
            "shut_down: this context was shut down");
  EXPECT_TRUE(torch::equal(layer->weight, before));
}

// Steps on gradients of this rank alone.
void step_alone(torch::nn::Linear& layer, torch::optim::Optimizer& optimizer, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    layer(numbers({2, 3}, step)).square().sum().backward();
    optimizer.step();
  }
}

TEST(Models, OptimizerStateFollowsRankZeros) {
  const std::vector<MakeOptimizer> makers{
      make_sgd, make_adamw,
      [](auto list) {
        return std::make_unique<torch::optim::Adam>(list, torch::optim::AdamOptions(0.01).amsgrad(true));
      },
      [](auto list) {
        return std::make_unique<torch::optim::RMSprop>(list, torch::optim::RMSpropOptions(0.01).momentum(0.5));
      },
      [](auto list) { return std::make_unique<torch::optim::Adagrad>(list, torch::optim::AdagradOptions(0.01)); }};
  for (const MakeOptimizer& make : makers) {
    on_ranks(2, [&] {
      torch::nn::Linear layer(3, 2);
      layer->to(torch::kDouble);
      fill(*layer, kolo::rank());
      const auto optimizer = make(layer->parameters());
      step_alone(layer, *optimizer, 1 + kolo::rank());
      if (kolo::rank() == 0) {
        optimizer->param_groups()[0].options().set_lr(0.5);
      }
      kt::broadcast_parameters(*layer);
      kt::broadcast_optimizer_state(*optimizer);
      EXPECT_EQ(optimizer->param_groups()[0].options().get_lr(), 0.5);
      step_alone(layer, *optimizer, 2);
      EXPECT_TRUE(same_on_all_ranks(layer->weight));
    });
  }
  on_ranks(2, [] {
    torch::nn::Linear layer(3, 2);
    const auto optimizer = kolo::rank() == 0 ? make_sgd(layer->parameters()) : make_adamw(layer->parameters());
    EXPECT_EQ(error_of([&] { kt::broadcast_optimizer_state(*optimizer); }).substr(0, 9), "mismatch:");
  });
}

TEST(Models, CheckpointsAreWrittenByRankZeroAndReadForAll) {
  const std::string path = "libtorch_test_checkpoint_" + std::to_string(::getpid()) + ".pt";
  on_ranks(2, [&] {
    const std::string file = kolo::broadcast_object(path);
    torch::nn::Linear layer(3, 2), other(3, 2);
    layer->to(torch::kDouble);
    other->to(torch::kDouble);
    fill(*layer, 1);
    fill(*other, 2 + kolo::rank());
    const auto optimizer = make_adamw(layer->parameters()), another = make_adamw(other->parameters());
    step_alone(layer, *optimizer, 3);
    kt::save_checkpoint(file, *layer, *optimizer, 42);
    EXPECT_EQ(kt::load_checkpoint(file, *other, *another), 42);
    step_alone(layer, *optimizer, 2);
    step_alone(other, *another, 2);
    EXPECT_TRUE(torch::equal(layer->weight, other->weight));
    kolo::barrier();
    if (kolo::rank() == 0) {
      std::remove(file.c_str());
    }
    kolo::barrier();
    EXPECT_EQ(error_of([&] { (void)kt::load_checkpoint(file, *other, *another); }).substr(0, 29),
              "io: load_checkpoint: rank 0: ");
    EXPECT_EQ(error_of([&] { kt::save_checkpoint("/no/such/folder/file", *layer, *optimizer); }).substr(0, 29),
              "io: save_checkpoint: rank 0: ");
  });
}

TEST(Tensors, Collectives) {
  on_ranks(3, [] {
    const int rank = kolo::rank(), size = kolo::size();
    const float sum = static_cast<float>(size * (size + 1)) / 2;
    torch::Tensor strided = torch::full({4, 4}, 1.0F + static_cast<float>(rank));
    kt::allreduce(strided.slice(1, 0, 4, 2));
    EXPECT_TRUE(torch::equal(strided.slice(1, 0, 4, 2), torch::full({4, 2}, sum)));
    EXPECT_TRUE(torch::equal(strided.slice(1, 1, 4, 2), torch::full({4, 2}, 1.0F + static_cast<float>(rank))));

    const torch::Tensor half = torch::full({5}, 1 + rank, torch::kHalf);
    EXPECT_TRUE(torch::equal(kt::allreduce_async("half", half).wait(), torch::full({5}, sum, torch::kHalf)));
    {
      auto dropped = kt::allreduce_async("dropped", torch::ones({1000}));  // nobody else holds this tensor
    }
    kt::broadcast(strided, size - 1);
    EXPECT_TRUE(same_on_all_ranks(strided));
    EXPECT_TRUE(
        torch::equal(kt::broadcast_async("b", torch::full({2}, rank), 0).wait(), torch::zeros({2}, torch::kLong)));

    const torch::Tensor rows = kt::allgather(torch::full({rank, 2}, rank));  // as many rows as the rank's number
    EXPECT_EQ(rows.size(0), size * (size - 1) / 2);
    EXPECT_EQ(rows.size(0) == 0 ? 0 : rows[0][0].item<std::int64_t>(), size > 1 ? 1 : 0);
    EXPECT_TRUE(kt::allgather(torch::ones({1}, torch::kComplexDouble)).is_complex());

    // What stands for the conjugate, or the negative, of its memory.
    const torch::Tensor complex = torch::complex(torch::full({2}, 1.0 + rank), torch::full({2}, 3.0));
    const torch::Tensor conjugate = complex.conj(), negative = torch::imag(conjugate.slice(0, 0, 1));
    ASSERT_TRUE(conjugate.is_conj() && negative.is_neg());
    EXPECT_TRUE(torch::equal(torch::imag(kt::allgather(conjugate).resolve_conj()), torch::full({2 * size}, -3.0F)));
    EXPECT_TRUE(torch::equal(kt::allgather(negative), torch::full({size}, -3.0F)));
    EXPECT_EQ(error_of([&] { (void)kt::view(negative); }),
              "invalid_argument: view: the tensor is the negative of what its memory has; resolve_neg() makes one that "
              "is not");
    EXPECT_EQ(
        error_of([&] { (void)kt::view(conjugate); }),
        "invalid_argument: view: the tensor is the conjugate of what its memory has; resolve_conj() makes one that "
        "is not");
    kolo::AllreduceOptions largest;
    largest.op = kolo::ReduceOp::max;
    kt::allreduce(negative.fill_(rank), largest);
    EXPECT_TRUE(torch::equal(negative, torch::full({1}, static_cast<float>(size - 1))));

    // Row r goes to rank r, who gets everybody's number; and gets the sum of everybody's row.
    const torch::Tensor numbered = torch::full({size, 2}, rank);
    const torch::Tensor received = torch::arange(size).unsqueeze(1).expand({size, 2});
    EXPECT_TRUE(torch::equal(kt::alltoall(numbered), received));
    EXPECT_TRUE(torch::equal(kt::alltoall(numbered.t().contiguous().t()), received));
    std::vector<std::int64_t> to_first(static_cast<std::size_t>(size));
    to_first[0] = size;
    EXPECT_EQ(kt::alltoall(numbered, to_first).size(0), rank == 0 ? size * size : 0);
    EXPECT_TRUE(torch::equal(kt::reduce_scatter(numbered), torch::full({1, 2}, size * (size - 1) / 2)));

    const std::string elsewhere = error_of([&] { kt::allreduce(torch::empty({2}, torch::kMeta)); });
    EXPECT_EQ(elsewhere.substr(0, 52), "unsupported: allreduce: the tensor is on meta; only ");
    const torch::Tensor followed = torch::ones({2}).set_requires_grad(true) * 2;
    EXPECT_EQ(error_of([&] { kt::allreduce(followed); }),
              "unsupported: allreduce: autograd would have to follow this tensor through the collective, which is not "
              "supported; give it detached (detach())");
    EXPECT_EQ(
        error_of([&] {
          (void)kt::allreduce_async("t", torch::ones({2, 3}).t());
        }),
        "invalid_argument: view: the tensor is not contiguous (float32 [3, 2] strides [1, 3]); contiguous() makes "
        "one that is");
    EXPECT_EQ(kt::average(rank, rank == 0 ? 0 : 2), size * (size - 1) / 2.0 / (size - 1));
  });
}

TEST(Tensors, TheSamplerDealsEveryRowOnceAnEpoch) {
  on_ranks(3, [] {
    const std::size_t rows = 4 * static_cast<std::size_t>(kolo::size());
    kt::DistributedSampler sampler(rows);
    std::vector<torch::Tensor> epochs;
    for (int epoch = 0; epoch < 2; ++epoch) {
      sampler.reset();
      std::vector<std::int64_t> mine;
      while (const auto batch = sampler.next(3)) {
        EXPECT_EQ(batch->size(), mine.empty() ? 3U : 1U);
        mine.insert(mine.end(), batch->begin(), batch->end());
      }
      epochs.push_back(kt::allgather(torch::tensor(mine)));
      EXPECT_TRUE(torch::equal(std::get<0>(epochs.back().sort()), torch::arange(static_cast<std::int64_t>(rows))));
    }
    EXPECT_FALSE(torch::equal(epochs[0], epochs[1]));
    EXPECT_EQ(error_of([&] { sampler.reset(5); }).substr(0, 17), "invalid_argument:");
    EXPECT_EQ(error_of([&] { (void)sampler.next(2 / 3); }),
              "invalid_argument: DistributedSampler: next(0): a batch has at least one row; a batch of all ranks that "
              "is divided by their number needs as many rows as there are ranks");
  });
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  kolo::test::in_job = argc > 1 && std::string(argv[1]) == "--in-job";
  if (!kolo::test::in_job) {
    return RUN_ALL_TESTS();
  }
  GTEST_FLAG_SET(output, "");  // the reports of several processes would overwrite each other
  const kolo::Session session;
  return RUN_ALL_TESTS();
}
