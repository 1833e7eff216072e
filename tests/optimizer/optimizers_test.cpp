// SPDX-License-Identifier: Apache-2.0
//
// Expected values: three steps of the scalar loops _single_tensor_sgd and _single_tensor_adamw of PyTorch 2, written
// down in Python and run in double.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <kolo/optimizers.hpp>

#include "errors.hpp"
#include "model.hpp"

namespace kolo {
namespace {

using test::error_of;
using test::Model;

constexpr std::array<std::array<double, 3>, 3> kGradients{{{0.1, -0.2, 0.3}, {0.4, 0.5, -0.6}, {-0.7, 0.8, 0.9}}};

template <class T, class Optimizer, class Options>
std::vector<T> after_three_steps(const Options& options) {
  Model<T> model;
  auto& vector = model.add("w", {T(1.0), T(-2.0), T(0.5)});
  Optimizer optimizer(model.parameters(), options);
  for (const auto& gradient : kGradients) {
    for (std::size_t i = 0; i < 3; ++i) {
      vector.gradient[i] = static_cast<T>(gradient[i]);
    }
    optimizer.step();
  }
  return vector.value;
}

template <class Optimizer, class Options>
void expect_values(const Options& options, const std::array<double, 3>& wanted) {
  const std::vector<double> in_double = after_three_steps<double, Optimizer>(options);
  const std::vector<float> in_float = after_three_steps<float, Optimizer>(options);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(in_double[i], wanted[i], 4e-15) << i;
    EXPECT_NEAR(in_float[i], wanted[i], 1e-6) << i;
  }
}

TEST(Sgd, Plain) { expect_values<Sgd>(SgdOptions{0.1}, {1.02, -2.11, 0.44}); }

TEST(Sgd, WeightDecay) {
  expect_values<Sgd>(SgdOptions{0.1}.with_weight_decay(0.01), {1.017062989, -2.103995978, 0.4385014695000001});
}

TEST(Sgd, Momentum) { expect_values<Sgd>(SgdOptions{0.1, 0.9}, {0.9669, -2.1208, 0.4427}); }

TEST(Sgd, MomentumWithDampening) {
  expect_values<Sgd>(SgdOptions{0.1, 0.9}.with_dampening(0.5).with_weight_decay(0.01),
                     {0.96577114725, -2.0250097945, 0.42866306737500004});
}

TEST(Sgd, Nesterov) {
  expect_values<Sgd>(
      SgdOptions{}.with_learning_rate(0.1).with_momentum(0.9).with_weight_decay(0.01).with_nesterov(true),
      {0.9824222125509999, -2.202675125102, 0.3845045848005});
}

TEST(AdamW, Defaults) {
  expect_values<AdamW>(AdamWOptions{}, {0.9982893387774623, -2.000103071056542, 0.4990078789665189});
}

TEST(AdamW, EveryOption) {
  const AdamWOptions options =
      AdamWOptions{}.with_learning_rate(0.1).with_beta1(0.8).with_beta2(0.95).with_epsilon(1e-3);
  expect_values<AdamW>(AdamWOptions(options).with_weight_decay(0.1),
                       {0.81107034228125, -1.969103150838193, 0.3907148127807645});
}

TEST(Optimizers, LearningRateChangesBetweenSteps) {
  Model<double> model;
  auto& w = model.add("w", {1.0});
  Sgd sgd(model.parameters(), {0.5});
  w.gradient = {1.0};
  sgd.step();
  EXPECT_EQ(w.value[0], 0.5);
  sgd.set_learning_rate(0.25);
  EXPECT_EQ(sgd.learning_rate(), 0.25);
  sgd.step();
  EXPECT_EQ(w.value[0], 0.25);
}

TEST(Optimizers, ZeroGradAndBuffers) {
  Model<float> model;
  auto& w = model.add("w", {1.0F, 2.0F});
  std::vector<float> mean{7.0F};
  std::vector<Parameter> parameters = model.parameters();
  parameters.insert(parameters.begin(), Parameter{"mean", view(mean)});
  AdamW adamw(parameters);
  w.gradient = {3.0F, std::numeric_limits<float>::quiet_NaN()};
  adamw.zero_grad();
  EXPECT_EQ(w.gradient, (std::vector<float>{0.0F, 0.0F}));
  adamw.step();
  EXPECT_EQ(mean[0], 7.0F);
  EXPECT_EQ(adamw.state().size(), 8U) << "six scalars and two moments of w";
}

// What a checkpoint needs: an optimizer that gets another's state goes on as the other does.
template <class Optimizer, class Options>
void expect_state_is_complete(const Options& options, const Options& other_options) {
  Model<double> model, copy;
  auto& w = model.add("w", {1.0, -2.0, 0.5});
  auto& v = copy.add("w", {0.0, 0.0, 0.0});
  Optimizer first(model.parameters(), options), second(copy.parameters(), other_options);
  w.gradient = {0.1, 0.2, -0.3};
  first.step();
  w.gradient = {-0.4, 0.5, 0.6};
  first.step();

  v.value = w.value;
  const std::vector<NamedView> from = first.state(), to = second.state();
  ASSERT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].name, to[i].name);
    std::memcpy(to[i].view.data(), from[i].view.data(), static_cast<std::size_t>(from[i].view.bytes()));
  }
  w.gradient = v.gradient = {0.7, -0.8, 0.9};
  first.step();
  second.step();
  EXPECT_EQ(w.value, v.value);
}

TEST(Optimizers, StateIsComplete) {
  expect_state_is_complete<Sgd>(SgdOptions{0.1, 0.9, 0.0, 0.01, true}, SgdOptions{0.3, 0.5});
  expect_state_is_complete<Sgd>(SgdOptions{0.1, 0.9, 0.5}, SgdOptions{0.3, 0.5});
  expect_state_is_complete<AdamW>(AdamWOptions{0.1, 0.8, 0.95, 1e-3, 0.1}, AdamWOptions{});
}

TEST(Optimizers, OptionsOutOfRange) {
  Model<float> model;
  model.add("w", {1.0F});
  const auto sgd = [&](const SgdOptions& options) { return error_of([&] { Sgd(model.parameters(), options); }); };
  const auto adamw = [&](const AdamWOptions& options) { return error_of([&] { AdamW(model.parameters(), options); }); };
  EXPECT_EQ(sgd({-0.1}), "invalid_argument: Sgd: learning_rate is -0.1; it must be 0 or more");
  EXPECT_EQ(sgd({0.1, -0.9}), "invalid_argument: Sgd: momentum is -0.9; it must be 0 or more");
  EXPECT_EQ(sgd({std::nan("")}), "invalid_argument: Sgd: learning_rate is nan; it must be 0 or more");
  EXPECT_EQ(sgd(SgdOptions{0.1}.with_nesterov(true)),
            "invalid_argument: Sgd: nesterov needs a momentum above 0 and no dampening; momentum is 0 and "
            "dampening 0");
  EXPECT_EQ(adamw(AdamWOptions{}.with_beta1(1.0)),
            "invalid_argument: AdamW: beta1 is 1; it must be 0 or more and below 1");
  EXPECT_EQ(adamw(AdamWOptions{}.with_epsilon(-1.0)), "invalid_argument: AdamW: epsilon is -1; it must be 0 or more");
  Sgd good(model.parameters(), {0.1});
  EXPECT_EQ(error_of([&] { good.set_learning_rate(-1); }),
            "invalid_argument: Sgd: learning_rate is -1; it must be 0 or more");
  EXPECT_EQ(good.learning_rate(), 0.1);
}

TEST(Optimizers, ParametersThatCannotBe) {
  std::vector<float> floats(4);
  std::vector<double> doubles(4);
  std::vector<std::int32_t> integers(4);
  const auto made_of = [](std::vector<Parameter> parameters) { return error_of([&] { Sgd(std::move(parameters)); }); };
  EXPECT_EQ(made_of({{"w", view(floats), view(floats)}, {"w", view(floats), view(floats)}}),
            "invalid_argument: Sgd: two entries are named \"w\"; names must differ");
  EXPECT_EQ(made_of({{"", view(floats), view(floats)}}),
            "invalid_argument: Sgd: entry 0 has no name; every one needs its own");
  EXPECT_EQ(made_of({{"w", view(floats), view(doubles)}}), "invalid_argument: Sgd: the gradient of \"w\" is float64 "
                                                           "[4], its value float32 [4]; they must have the same type "
                                                           "and shape");
  EXPECT_EQ(made_of({{"w", view(floats), view(floats.data(), Shape{2, 2})}}),
            "invalid_argument: Sgd: the gradient of \"w\" is float32 [2, 2], its value float32 [4]; they must have the "
            "same type and shape");
  EXPECT_EQ(made_of({{"w", view(integers), view(integers)}}),
            "unsupported: Sgd: \"w\" is int32; only float32 and float64 are supported");
  EXPECT_EQ(made_of({{"w", view(floats), view(static_cast<float*>(nullptr), 4)}}),
            "invalid_argument: Sgd: the gradient of \"w\" is a null pointer");
  const TensorView crooked(reinterpret_cast<char*>(floats.data()) + 1, DType::float32, Shape{3});
  EXPECT_EQ(made_of({{"w", crooked, crooked}}),
            "invalid_argument: Sgd: \"w\" is not aligned to 4 bytes, the size of its float32");
  const TensorView away(floats.data(), DType::float32, Shape{4}, Device{DeviceKind::cuda, 1});
  EXPECT_EQ(made_of({{"w", away, away}}), "unsupported: Sgd: \"w\" is on cuda:1; only CPU memory is supported");
}

TEST(ClipGradNorm, ScalesAllByOneFactor) {
  std::vector<float> a{3.0F, 0.0F};
  std::vector<double> b{4.0}, buffer{9.0};
  const std::vector<Parameter> parameters{{"a", view(a), view(a)}, {"buffer", view(buffer)}, {"b", view(b), view(b)}};
  EXPECT_EQ(clip_grad_norm(parameters, 6.0), 5.0);
  EXPECT_EQ(a[0], 3.0F) << "a norm below the limit changes nothing";
  EXPECT_EQ(clip_grad_norm(parameters, 1.0), 5.0);
  const double factor = 1.0 / (5.0 + 1e-6);
  EXPECT_EQ(a[0], 3.0F * static_cast<float>(factor));
  EXPECT_EQ(b[0], 4.0 * factor);
  EXPECT_EQ(buffer[0], 9.0);
}

TEST(ClipGradNorm, NaNAndBadLimits) {
  std::vector<float> a{std::numeric_limits<float>::quiet_NaN(), 1.0F};
  const std::vector<Parameter> parameters{{"a", view(a), view(a)}};
  EXPECT_EQ(error_of([&] { clip_grad_norm(parameters, -1.0); }),
            "invalid_argument: clip_grad_norm: max_norm is -1; it must be 0 or more");
  EXPECT_EQ(a[1], 1.0F);
  EXPECT_TRUE(std::isnan(clip_grad_norm(parameters, 1.0)));
  EXPECT_TRUE(std::isnan(a[1]));
}

}  // namespace
}  // namespace kolo
