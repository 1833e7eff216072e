// SPDX-License-Identifier: Apache-2.0
//
// The data: images of handwritten digits, and their division into rows to train on and rows held out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <kolo/sampler.hpp>

namespace train_digits {

constexpr std::size_t kPixels = 64;   // 8 x 8, row by row
constexpr std::size_t kClasses = 10;  // the digits 0 to 9

struct Digits {
  std::vector<float> pixels;         // kPixels an image, 0 (paper) to 1 (ink)
  std::vector<std::uint8_t> labels;  // one an image

  [[nodiscard]] std::size_t size() const { return labels.size(); }
};

/// One line of the file: 64 pixels of 0 to 16, then the label, separated by commas.
inline void append_image(const std::string& line, Digits& digits) {
  std::istringstream fields(line);
  for (std::size_t i = 0; i <= kPixels; ++i) {
    int value = -1;
    char comma = ',';
    const bool read = (i == 0 || fields >> comma) && comma == ',' && fields >> value;
    const int most = i < kPixels ? 16 : 9;
    if (!read || value < 0 || value > most) {
      throw std::runtime_error("field " + std::to_string(i + 1) + " is not a number from 0 to " + std::to_string(most));
    }
    if (i < kPixels) {
      digits.pixels.push_back(static_cast<float>(value) / 16.0F);
    } else {
      digits.labels.push_back(static_cast<std::uint8_t>(value));
    }
  }
}

/// Reads examples/data/digits.csv, or a file like it. Throws std::runtime_error that names the file and the line.
inline Digits load_digits(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error(path + ": cannot be opened (--data names the file)");
  }
  Digits digits;
  std::string line;
  while (std::getline(file, line)) {
    try {
      append_image(line, digits);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(path + ", line " + std::to_string(digits.size() + 1) + ": " + error.what());
    }
  }
  if (digits.size() == 0) {
    throw std::runtime_error(path + ": holds no images");
  }
  return digits;
}

using Rows = std::vector<std::size_t>;  // indices into a Digits

struct Split {
  Rows training, held_out;
};

/// `training_rows` rows to train on and the rest held out, drawn by a fixed seed: the same in every run, so that
/// accuracies can be compared.
inline Split split(std::size_t images, std::size_t training_rows) {
  constexpr std::uint64_t kSplitSeed = 1797;
  const kolo::DistributedSampler shuffle(images, /*rank=*/0, /*size=*/1,
                                         kolo::DistributedSamplerOptions{}.with_seed(kSplitSeed));
  const Rows order = shuffle.epoch(0);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(training_rows);
  return {Rows(order.begin(), middle), Rows(middle, order.end())};
}

/// A few images as a network takes them.
template <class T>
struct Batch {
  std::vector<T> pixels;  // kPixels an image
  std::vector<std::uint8_t> labels;

  [[nodiscard]] std::size_t size() const { return labels.size(); }
};

template <class T>
Batch<T> gather(const Digits& digits, const Rows& rows) {
  Batch<T> batch;
  for (const std::size_t row : rows) {
    const auto* image = digits.pixels.data() + row * kPixels;
    batch.pixels.insert(batch.pixels.end(), image, image + kPixels);
    batch.labels.push_back(digits.labels[row]);
  }
  return batch;
}

/// This rank's batches of an epoch: `places` are places in `training`, `per_rank` a batch, the last one possibly fewer.
template <class T>
std::vector<Batch<T>> batches(const Digits& digits, const Rows& training, const Rows& places, std::size_t per_rank) {
  std::vector<Batch<T>> result;
  for (std::size_t begin = 0; begin < places.size(); begin += per_rank) {
    Rows rows;
    for (std::size_t i = begin; i < begin + per_rank && i < places.size(); ++i) {
      rows.push_back(training[places[i]]);
    }
    result.push_back(gather<T>(digits, rows));
  }
  return result;
}

}  // namespace train_digits
