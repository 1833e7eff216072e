// SPDX-License-Identifier: Apache-2.0
//
// The example's network: its gradients against finite differences, and the order in which it announces them.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "examples/train_digits/digits.hpp"
#include "examples/train_digits/network.hpp"

namespace train_digits {
namespace {

Batch<double> some_batch() {
  Batch<double> batch;
  for (std::size_t b = 0; b < 3; ++b) {
    for (std::size_t i = 0; i < 6; ++i) {
      batch.pixels.push_back(std::sin(static_cast<double>(7 * b + 3 * i)));
    }
    batch.labels.push_back(static_cast<std::uint8_t>(4 * b));
  }
  return batch;
}

double mean_loss(Network<double>& net, const Batch<double>& batch) {
  return net.forward_backward(batch, [](std::size_t) {}) / static_cast<double>(batch.size());
}

TEST(Network, GradientsMatchFiniteDifferences) {
  Network<double> net(1, {6, 5, 4, kClasses}), other(1, {6, 5, 4, kClasses});
  const Batch<double> batch = some_batch();
  net.forward_backward(batch, [](std::size_t) {});
  const std::vector<kolo::Parameter> parameters = net.parameters(), shifted = other.parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const auto* gradient = static_cast<const double*>(parameters[p].gradient->data());
    auto* value = static_cast<double*>(shifted[p].value.data());
    for (std::int64_t i = 0; i < parameters[p].value.elements(); ++i) {
      const double before = value[i];
      constexpr double kStep = 1e-6;
      value[i] = before + kStep;
      const double above = mean_loss(other, batch);
      value[i] = before - kStep;
      const double below = mean_loss(other, batch);
      value[i] = before;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-8) << parameters[p].name << '[' << i << ']';
    }
  }
}

TEST(Network, GradientsAddUp) {
  Network<double> once(1, {6, 5, kClasses}), twice(1, {6, 5, kClasses});
  once.forward_backward(some_batch(), [](std::size_t) {});
  twice.forward_backward(some_batch(), [](std::size_t) {});
  twice.forward_backward(some_batch(), [](std::size_t) {});
  const auto* one = static_cast<const double*>(once.parameters()[0].gradient->data());
  const auto* two = static_cast<const double*>(twice.parameters()[0].gradient->data());
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_NEAR(two[i], 2 * one[i], 1e-15);
  }
}

TEST(Network, AnnouncesEveryGradientOnceWhenItIsFinal) {
  Network<double> net(1, {6, 5, 4, kClasses});
  const std::vector<kolo::Parameter> parameters = net.parameters();
  std::vector<std::size_t> order;
  std::vector<std::vector<double>> at_announcement(parameters.size());
  const auto contents = [&](std::size_t i) {
    const auto* data = static_cast<const double*>(parameters[i].gradient->data());
    return std::vector<double>(data, data + parameters[i].gradient->elements());
  };
  net.forward_backward(some_batch(), [&](std::size_t i) {
    order.push_back(i);
    at_announcement[i] = contents(i);
  });
  EXPECT_EQ(order, (std::vector<std::size_t>{5, 4, 3, 2, 1, 0}));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(at_announcement[i], contents(i)) << parameters[i].name;
  }
}

TEST(Digits, SplitIsAPartition) {
  const Split rows = split(1797, 1437);
  ASSERT_EQ(rows.training.size(), 1437U);
  ASSERT_EQ(rows.held_out.size(), 360U);
  std::vector<int> seen(1797);
  for (const Rows& part : {rows.training, rows.held_out}) {
    for (const std::size_t row : part) {
      ++seen.at(row);
    }
  }
  EXPECT_EQ(seen, std::vector<int>(1797, 1));
}

TEST(Digits, RefusesWhatIsNoImage) {
  Digits digits;
  const auto refusal = [&](const std::string& line) {
    try {
      append_image(line, digits);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  std::string line;
  for (std::size_t i = 0; i < kPixels; ++i) {
    line += "16,";
  }
  EXPECT_EQ(refusal(line + "9"), "nothing");
  EXPECT_EQ(digits.labels.at(0), 9);
  EXPECT_EQ(digits.pixels.at(63), 1.0F);
  EXPECT_EQ(refusal(line + "10"), "field 65 is not a number from 0 to 9");
  EXPECT_EQ(refusal("1,2,x"), "field 3 is not a number from 0 to 16");
  EXPECT_EQ(refusal("17"), "field 1 is not a number from 0 to 16");
  EXPECT_EQ(refusal("1 2"), "field 2 is not a number from 0 to 16");
}

}  // namespace
}  // namespace train_digits
