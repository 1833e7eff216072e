// SPDX-License-Identifier: Apache-2.0
//
// The model: a multilayer perceptron with ReLU between its layers and softmax cross-entropy at its end, written out in
// plain C++. It knows nothing of ranks; all that Kolo needs of it are `parameters()` and the calls of `ready`.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <kolo/parameters.hpp>

#include "digits.hpp"

namespace train_digits {

/// One layer: out = in * weight + bias. The weight is [inputs, outputs], so that the inner loops run along outputs.
template <class T>
struct Layer {
  std::size_t inputs, outputs;
  std::vector<T> weight, bias;
  std::vector<T> weight_gradient, bias_gradient;
  std::vector<T> activations;  // of the last batch, [images, outputs]; after ReLU, but for the last layer
  std::vector<T> error;        // the loss's derivative by these, before ReLU

  Layer(std::size_t in, std::size_t out)
      : inputs(in), outputs(out), weight(in * out), bias(out), weight_gradient(in * out), bias_gradient(out) {}
};

template <class T>
class Network {
 public:
  /// He's initialisation: weights uniform in +-sqrt(6 / inputs), biases 0. The same seed gives the same weights on
  /// every machine (std::uniform_real_distribution would not promise that).
  explicit Network(std::uint64_t seed, const std::vector<std::size_t>& widths = {kPixels, 64, 32, kClasses}) {
    std::mt19937_64 generator(seed);
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      Layer<T>& layer = layers_.emplace_back(widths[i], widths[i + 1]);
      const double limit = std::sqrt(6.0 / static_cast<double>(layer.inputs));
      for (T& weight : layer.weight) {
        const double unit = std::ldexp(static_cast<double>(generator() >> 11U), -53);  // [0, 1)
        weight = static_cast<T>((2 * unit - 1) * limit);
      }
    }
  }

  /// Two a layer, from the first layer to the last: "layer0.weight", "layer0.bias", "layer1.weight", ...
  [[nodiscard]] std::vector<kolo::Parameter> parameters() {
    std::vector<kolo::Parameter> list;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Layer<T>& layer = layers_[i];
      const std::string name = "layer" + std::to_string(i);
      const kolo::Shape shape{static_cast<std::int64_t>(layer.inputs), static_cast<std::int64_t>(layer.outputs)};
      list.push_back(
          {name + ".weight", kolo::view(layer.weight.data(), shape), kolo::view(layer.weight_gradient.data(), shape)});
      list.push_back({name + ".bias", kolo::view(layer.bias), kolo::view(layer.bias_gradient)});
    }
    return list;
  }

  /// Adds the gradient of the batch's mean loss to every gradient, from the last layer to the first, and calls
  /// `ready(i)` when that of `parameters()[i]` is complete. Returns the sum of the images' losses.
  template <class Ready>
  double forward_backward(const Batch<T>& batch, const Ready& ready) {
    forward(batch);
    const double loss = compare(batch);
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const std::vector<T>& in = i == 0 ? batch.pixels : layers_[i - 1].activations;
      add_gradients(layers_[i], in, batch.size());
      ready(2 * i + 1);
      ready(2 * i);
      if (i > 0) {
        pass_error_down(layers_[i], layers_[i - 1], batch.size());
      }
    }
    return loss;
  }

  /// How many images of the batch the network takes for what they are.
  [[nodiscard]] std::int64_t count_correct(const Batch<T>& batch) {
    forward(batch);
    std::int64_t correct = 0;
    const std::vector<T>& logits = layers_.back().activations;
    for (std::size_t b = 0; b < batch.size(); ++b) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(b * kClasses);
      correct += std::max_element(row, row + kClasses) - row == batch.labels[b] ? 1 : 0;
    }
    return correct;
  }

 private:
  void forward(const Batch<T>& batch) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::vector<T>& in = i == 0 ? batch.pixels : layers_[i - 1].activations;
      apply(layers_[i], in, batch.size());
      if (i + 1 < layers_.size()) {
        for (T& a : layers_[i].activations) {
          a = std::max(a, T{0});
        }
      }
    }
  }

  static void apply(Layer<T>& layer, const std::vector<T>& in, std::size_t images) {
    layer.activations.resize(images * layer.outputs);
    for (std::size_t b = 0; b < images; ++b) {
      T* out = layer.activations.data() + b * layer.outputs;
      std::copy(layer.bias.begin(), layer.bias.end(), out);
      for (std::size_t i = 0; i < layer.inputs; ++i) {
        const T x = in[b * layer.inputs + i];
        const T* weight = layer.weight.data() + i * layer.outputs;
        for (std::size_t j = 0; j < layer.outputs; ++j) {
          out[j] += x * weight[j];
        }
      }
    }
  }

  // Softmax and cross-entropy: leaves the error (softmax - target) / images in the last layer, returns the losses' sum.
  double compare(const Batch<T>& batch) {
    Layer<T>& last = layers_.back();
    last.error.resize(last.activations.size());
    double loss = 0;
    for (std::size_t b = 0; b < batch.size(); ++b) {
      const T* logits = last.activations.data() + b * last.outputs;
      T* error = last.error.data() + b * last.outputs;
      const T most = *std::max_element(logits, logits + last.outputs);
      T sum = 0;
      for (std::size_t j = 0; j < last.outputs; ++j) {
        error[j] = std::exp(logits[j] - most);
        sum += error[j];
      }
      loss += std::log(static_cast<double>(sum)) - static_cast<double>(logits[batch.labels[b]] - most);
      for (std::size_t j = 0; j < last.outputs; ++j) {
        const T target = j == batch.labels[b] ? T{1} : T{0};
        error[j] = (error[j] / sum - target) / static_cast<T>(batch.size());
      }
    }
    return loss;
  }

  static void add_gradients(Layer<T>& layer, const std::vector<T>& in, std::size_t images) {
    for (std::size_t b = 0; b < images; ++b) {
      const T* error = layer.error.data() + b * layer.outputs;
      for (std::size_t j = 0; j < layer.outputs; ++j) {
        layer.bias_gradient[j] += error[j];
      }
      for (std::size_t i = 0; i < layer.inputs; ++i) {
        const T x = in[b * layer.inputs + i];
        T* gradient = layer.weight_gradient.data() + i * layer.outputs;
        for (std::size_t j = 0; j < layer.outputs; ++j) {
          gradient[j] += x * error[j];
        }
      }
    }
  }

  static void pass_error_down(const Layer<T>& layer, Layer<T>& below, std::size_t images) {
    below.error.assign(images * below.outputs, T{0});
    for (std::size_t b = 0; b < images; ++b) {
      const T* error = layer.error.data() + b * layer.outputs;
      for (std::size_t i = 0; i < layer.inputs; ++i) {
        const std::size_t place = b * layer.inputs + i;
        if (below.activations[place] > 0) {  // ReLU's derivative
          const T* weight = layer.weight.data() + i * layer.outputs;
          for (std::size_t j = 0; j < layer.outputs; ++j) {
            below.error[place] += error[j] * weight[j];
          }
        }
      }
    }
  }

  std::vector<Layer<T>> layers_;
};

}  // namespace train_digits
