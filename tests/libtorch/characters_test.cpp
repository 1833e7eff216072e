// SPDX-License-Identifier: Apache-2.0
//
// The example's language model, on ranks as threads: gradients that travel as 8 or 16 bits teach as much.
#include <gtest/gtest.h>

#include <cstdint>

#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

#include "examples/torch_characters/trainer.hpp"

namespace {

namespace kt = kolo::libtorch;

/// The accuracy on the held-out text, a mean over three trainings: one alone varies by some 0.3 points.
double accuracy_with(const torch_characters::Text& text, const kolo::DistributedOptimizerOptions& reduction) {
  constexpr int kTrainings = 3;
  double sum = 0;
  for (int seed = 0; seed < kTrainings; ++seed) {
    torch_characters::Options options;
    options.steps = options.every = 300;
    options.width = 64;
    options.seed = static_cast<std::uint64_t>(seed);
    options.reduction = reduction;
    kolo::run_local(2, [&] {
      const auto result = torch_characters::train(text, options, [](const torch_characters::Result&) {});
      if (kolo::rank() == 0) sum += result.accuracy;
    });
  }
  return sum / kTrainings;
}

TEST(Characters, AreForetoldAsWellWithGradientsOf8And16Bits) {
  const torch_characters::Text text(PAGES);
  const double plain = accuracy_with(text, {});
  EXPECT_GT(plain, 0.25) << "it learns";
  EXPECT_GE(accuracy_with(text, kolo::DistributedOptimizerOptions().with_compression(kolo::Compression::int8_blocks)),
            plain - 0.005);
  EXPECT_GE(accuracy_with(text, kolo::DistributedOptimizerOptions().with_send_gradients_as(kolo::DType::bfloat16)),
            plain - 0.005);
}

}  // namespace
