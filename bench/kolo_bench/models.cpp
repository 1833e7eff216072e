// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace kolo_bench {
namespace {

using Sizes = std::vector<std::int64_t>;

void convolution_and_norm(Sizes& sizes, std::int64_t in, std::int64_t out, std::int64_t kernel) {
  sizes.push_back(out * in * kernel * kernel);
  sizes.insert(sizes.end(), 2, out);  // batch norm: weight, bias
}

/// He et al., Deep Residual Learning for Image Recognition (2015), table 1, as torchvision builds it.
Sizes resnet50() {
  Sizes sizes;
  convolution_and_norm(sizes, 3, 64, 7);
  std::int64_t in = 64;
  const struct { std::int64_t width, blocks; } stages[] = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (const auto& stage : stages) {
    for (std::int64_t block = 0; block < stage.blocks; ++block) {
      const std::int64_t out = 4 * stage.width;
      convolution_and_norm(sizes, in, stage.width, 1);
      convolution_and_norm(sizes, stage.width, stage.width, 3);
      convolution_and_norm(sizes, stage.width, out, 1);
      if (block == 0) convolution_and_norm(sizes, in, out, 1);
      in = out;
    }
  }
  sizes.push_back(1000 * 2048);
  sizes.push_back(1000);
  return sizes;
}

void linear(Sizes& sizes, std::int64_t in, std::int64_t out) {
  sizes.push_back(in * out);
  sizes.push_back(out);
}

/// Devlin et al., BERT (2018), base: embeddings, 12 layers, pooler.
Sizes bert_base() {
  constexpr std::int64_t kWidth = 768;
  Sizes sizes{30522 * kWidth, 512 * kWidth, 2 * kWidth, kWidth, kWidth};
  for (int layer = 0; layer < 12; ++layer) {
    for (int matrix = 0; matrix < 4; ++matrix) linear(sizes, kWidth, kWidth);  // query, key, value, output
    sizes.insert(sizes.end(), 2, kWidth);
    linear(sizes, kWidth, 4 * kWidth);
    linear(sizes, 4 * kWidth, kWidth);
    sizes.insert(sizes.end(), 2, kWidth);
  }
  linear(sizes, kWidth, kWidth);
  return sizes;
}

/// Radford et al., Language Models are Unsupervised Multitask Learners (2019), the smallest, with tied embeddings.
Sizes gpt2_small() {
  constexpr std::int64_t kWidth = 768;
  Sizes sizes{50257 * kWidth, 1024 * kWidth};
  for (int layer = 0; layer < 12; ++layer) {
    sizes.insert(sizes.end(), 2, kWidth);
    linear(sizes, kWidth, 3 * kWidth);
    linear(sizes, kWidth, kWidth);
    sizes.insert(sizes.end(), 2, kWidth);
    linear(sizes, kWidth, 4 * kWidth);
    linear(sizes, 4 * kWidth, kWidth);
  }
  sizes.insert(sizes.end(), 2, kWidth);
  return sizes;
}

}  // namespace

Model find_model(const std::string& name) {
  if (name == "resnet50") return {name, resnet50()};
  if (name == "bert-base") return {name, bert_base()};
  if (name == "gpt2-small") return {name, gpt2_small()};
  if (name == "many-small") return {name, Sizes(1000, 256)};
  throw std::invalid_argument("there is no model '" + name + "'; give resnet50, bert-base, gpt2-small or many-small");
}

Model read_shapes(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) throw std::invalid_argument("cannot read '" + file + "'");
  Model model{file, {}};
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    std::istringstream fields(line);
    std::int64_t elements = 1;
    std::int64_t extent = 0;
    bool any = false;
    if (line.empty() || line.front() == '#') continue;
    while (fields >> extent) {
      if (extent < 1) throw std::invalid_argument(file + ":" + std::to_string(number) + ": extents are at least 1");
      elements *= extent;
      any = true;
    }
    if (!any || !fields.eof()) {
      throw std::invalid_argument(file + ":" + std::to_string(number) +
                                  ": expected dimensions separated by spaces, as in '64 3 7 7', not '" + line + "'");
    }
    model.tensors.push_back(elements);
  }
  if (model.tensors.empty()) throw std::invalid_argument("'" + file + "' holds no tensors");
  return model;
}

}  // namespace kolo_bench
