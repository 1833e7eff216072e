// SPDX-License-Identifier: Apache-2.0
//
// A language model of single characters: the text, the model, and the training job as every rank runs it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

namespace torch_characters {

constexpr std::int64_t kSymbols = 97;  // the end of a line, ASCII's printable characters, and all others as one
constexpr std::int64_t kContext = 16;  // characters by which the model foretells the next one

/// The text of all pages (*.md) of a folder. Every twentieth piece of it is held out.
struct Text {
  torch::Tensor windows;             // [characters, kContext + 1]: what stands before a character, and it itself
  torch::Tensor training, held_out;  // windows of each

  explicit Text(const std::string& folder) {
    std::vector<std::filesystem::path> pages;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".md") pages.push_back(entry.path());
    }
    std::sort(pages.begin(), pages.end());
    std::vector<std::int64_t> symbols;
    for (const auto& page : pages) {
      std::ifstream file(page, std::ios::binary);
      std::transform(std::istreambuf_iterator<char>(file), {}, std::back_inserter(symbols), symbol_of);
    }
    constexpr std::int64_t kPiece = 1000;
    if (static_cast<std::int64_t>(symbols.size()) < 20 * kPiece) {
      throw std::runtime_error(folder + ": has too little text to learn from");
    }
    windows = torch::tensor(symbols).unfold(0, kContext + 1, 1);
    const torch::Tensor is_held_out = torch::arange(windows.size(0)).div(kPiece, "floor").remainder(20).eq(19);
    training = is_held_out.logical_not().nonzero().flatten();
    held_out = is_held_out.nonzero().flatten();
  }

 private:
  static std::int64_t symbol_of(char character) {
    if (character == '\n') return 0;
    return character >= ' ' && character <= '~' ? 1 + character - ' ' : kSymbols - 1;
  }
};

/// Predicts the next character from a few before it: each has an embedding, and one hidden layer joins them (Bengio et
/// al., 2003).
struct Model : torch::nn::Module {
  static constexpr std::int64_t kDimensions = 16;
  torch::nn::Embedding places;
  torch::nn::Linear hidden, output;

  /// The same weights for the same seed, also where ranks are threads, which share LibTorch's own generator.
  Model(std::int64_t width, std::uint64_t seed)
      : places(register_module("places", torch::nn::Embedding(kSymbols, kDimensions))),
        hidden(register_module("hidden", torch::nn::Linear(kContext * kDimensions, width))),
        output(register_module("output", torch::nn::Linear(width, kSymbols))) {
    const torch::NoGradGuard no_grad;
    const at::Generator generator = at::detail::createCPUGenerator(seed);
    places->weight.normal_(0, 1, generator);
    for (const torch::nn::Linear& layer : {hidden, output}) {
      const double bound = 1 / std::sqrt(static_cast<double>(layer->options.in_features()));
      layer->weight.uniform_(-bound, bound, generator);
      layer->bias.zero_();
    }
  }

  torch::Tensor forward(const torch::Tensor& windows) {
    const torch::Tensor context = places->forward(windows.narrow(1, 0, kContext)).flatten(1);
    return output->forward(torch::relu(hidden->forward(context)));
  }
};

inline torch::Tensor what_follows(const torch::Tensor& windows) { return windows.select(1, kContext); }

struct Options {
  int steps = 4000;          // at most
  double until = 1;          // enough, as a part of the held-out characters
  int every = 100;           // steps from one look at these to the next
  std::int64_t width = 512;  // of the hidden layer
  std::size_t batch = 64;    // characters a rank and step
  double learning_rate = 0.003;
  std::uint64_t seed = 0;
  kolo::DistributedOptimizerOptions reduction;
};

struct Result {
  int steps = 0;
  double accuracy = 0;  // the part of the held-out characters that the model foretells
  double seconds = 0;   // in steps, of the slowest rank
};

/// Each rank looks at its share.
inline double accuracy(Model& model, const Text& text) {
  const torch::NoGradGuard no_grad;
  const std::int64_t rank = kolo::rank(), size = kolo::size(), all = text.held_out.size(0);
  std::int64_t right = 0;
  for (const torch::Tensor& rows : text.held_out.slice(0, all * rank / size, all * (rank + 1) / size).split(1024)) {
    const torch::Tensor windows = text.windows.index_select(0, rows);
    right += model.forward(windows).argmax(1).eq(what_follows(windows)).sum().item<std::int64_t>();
  }
  return static_cast<double>(kolo::allreduce(right, kolo::ReduceOp::sum)) / static_cast<double>(all);
}

/// Trains until it foretells enough, or the steps are over. Collective. `on_look` is called on every rank.
inline Result train(const Text& text, const Options& options, const std::function<void(const Result&)>& on_look) {
  Model model(options.width, options.seed);
  kolo::libtorch::broadcast_parameters(model);
  torch::optim::AdamW adamw(model.parameters(), torch::optim::AdamWOptions(options.learning_rate));
  kolo::libtorch::DistributedOptimizer optimizer(adamw, model, options.reduction);
  kolo::libtorch::DistributedSampler sampler(
      static_cast<std::size_t>(text.training.size(0)),
      kolo::DistributedSamplerOptions{}.with_seed(options.seed).with_drop_last(true));

  const auto step = [&] {
    auto places = sampler.next(options.batch);
    if (!places) {
      sampler.reset();
      places = sampler.next(options.batch);
    }
    const torch::Tensor rows = torch::tensor(std::vector<std::int64_t>(places->begin(), places->end()));
    const torch::Tensor windows = text.windows.index_select(0, text.training.index_select(0, rows));
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model.forward(windows), what_follows(windows)).backward();
    optimizer.step();
  };

  Result result;
  while (result.steps < options.steps && result.accuracy < options.until) {
    kolo::barrier();
    const auto start = std::chrono::steady_clock::now();
    const int some = std::min(options.every, options.steps - result.steps);
    for (int i = 0; i < some; ++i) step();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    result.seconds += kolo::allreduce(seconds, kolo::ReduceOp::max);
    result.steps += some;
    result.accuracy = accuracy(model, text);
    on_look(result);
  }
  return result;
}

}  // namespace torch_characters
