// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of a network with one hidden layer, as what one thread does for one element of a result. Plain C++:
// the host's compiler can run it, too. Matrices are row by row; a batch is a matrix with one image a row.
#pragma once

#ifdef __CUDACC__
#define ON_DEVICE __device__
#else
#define ON_DEVICE
#endif

#include <cmath>

namespace cuda_trainer {

/// x[i] = the row-th image of the batch, from all images.
struct Gather {
  const float* images;
  const int* rows;
  float* x;
  int pixels;
  ON_DEVICE void operator()(int i) const { x[i] = images[rows[i / pixels] * pixels + i % pixels]; }
};

/// y = x w + b, and where asked the greater of that and 0.
struct Dense {
  const float* x;
  const float* w;
  const float* b;
  float* y;
  int inputs;
  int outputs;
  bool relu;
  ON_DEVICE void operator()(int i) const {
    const int row = i / outputs;
    const int column = i % outputs;
    float sum = b[column];
    for (int k = 0; k < inputs; ++k) sum += x[row * inputs + k] * w[k * outputs + column];
    y[i] = relu && sum < 0 ? 0 : sum;
  }
};

/// The gradient of the mean cross-entropy by the scores of image i of the batch: softmax minus the right answer.
struct ScoreGradient {
  const float* scores;
  const int* labels;
  const int* rows;
  float* d;
  int classes;
  int batch;
  ON_DEVICE void operator()(int i) const {
    const float* mine = scores + i * classes;
    float most = mine[0];
    for (int k = 1; k < classes; ++k) most = mine[k] > most ? mine[k] : most;
    float sum = 0;
    for (int k = 0; k < classes; ++k) sum += std::exp(mine[k] - most);
    for (int k = 0; k < classes; ++k) {
      const float right = labels[rows[i]] == k ? 1.0F : 0.0F;
      d[i * classes + k] = (std::exp(mine[k] - most) / sum - right) / static_cast<float>(batch);
    }
  }
};

/// dw = x^T d.
struct WeightGradient {
  const float* x;
  const float* d;
  float* dw;
  int inputs;
  int outputs;
  int batch;
  ON_DEVICE void operator()(int i) const {
    float sum = 0;
    for (int row = 0; row < batch; ++row) sum += x[row * inputs + i / outputs] * d[row * outputs + i % outputs];
    dw[i] = sum;
  }
};

/// db = the sum of d's rows.
struct BiasGradient {
  const float* d;
  float* db;
  int outputs;
  int batch;
  ON_DEVICE void operator()(int i) const {
    float sum = 0;
    for (int row = 0; row < batch; ++row) sum += d[row * outputs + i];
    db[i] = sum;
  }
};

/// dx = d w^T, where x, which left a Dense with relu, is not 0.
struct InputGradient {
  const float* d;
  const float* w;
  const float* x;
  float* dx;
  int inputs;
  int outputs;
  ON_DEVICE void operator()(int i) const {
    float sum = 0;
    for (int k = 0; k < outputs; ++k) sum += d[i / inputs * outputs + k] * w[i % inputs * outputs + k];
    dx[i] = x[i] > 0 ? sum : 0;
  }
};

/// Gradient descent with momentum.
struct Update {
  float* w;
  float* velocity;
  const float* gradient;
  float learning_rate;
  float momentum;
  ON_DEVICE void operator()(int i) const {
    velocity[i] = momentum * velocity[i] + gradient[i];
    w[i] -= learning_rate * velocity[i];
  }
};

}  // namespace cuda_trainer
