/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include <math.h>
#include <string.h>

static const size_t kWidths[kLayers + 1] = {kPixels, 64, 32, kClasses};

void set_sizes(Network* net) {
  int i;
  for (i = 0; i < kParameters; ++i) {
    Parameter* const one = &net->parameters[i];
    one->inputs = i % 2 == 0 ? kWidths[i / 2] : 0;
    one->outputs = kWidths[i / 2 + 1];
    one->count = i % 2 == 0 ? one->inputs * one->outputs : one->outputs;
  }
}

void initialise(Network* net, uint64_t seed) {
  uint64_t state = seed * 0x9E3779B97F4A7C15U + 1; /* of a generator of its own: the same on every machine */
  size_t j;
  int i;
  for (i = 0; i < kParameters; ++i) {
    const Parameter* const one = &net->parameters[i];
    const float limit = one->inputs == 0 ? 0.0F : sqrtf(6.0F / (float)one->inputs);
    for (j = 0; j < one->count; ++j) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      one->value[j] = limit * (2.0F * (float)(state >> 40U) / 16777216.0F - 1.0F);
    }
  }
}

static void take_images(Network* net, const Digits* digits, const size_t* images, size_t count) {
  size_t b;
  for (b = 0; b < count; ++b) {
    memcpy(net->activations[0] + b * kPixels, digits->pixels + images[b] * kPixels, kPixels * sizeof(float));
  }
}

static void forward(Network* net, size_t count) {
  size_t b, i, j;
  int layer;
  for (layer = 0; layer < kLayers; ++layer) {
    const Parameter *const weight = &net->parameters[2 * layer], *const bias = weight + 1;
    for (b = 0; b < count; ++b) {
      const float* const in = net->activations[layer] + b * weight->inputs;
      float* const out = net->activations[layer + 1] + b * weight->outputs;
      memcpy(out, bias->value, bias->count * sizeof(float));
      for (i = 0; i < weight->inputs; ++i) {
        for (j = 0; j < weight->outputs; ++j) out[j] += in[i] * weight->value[i * weight->outputs + j];
      }
      for (j = 0; layer + 1 < kLayers && j < weight->outputs; ++j) out[j] = fmaxf(out[j], 0.0F);
    }
  }
}

/* Softmax and cross-entropy: leaves (softmax - target) / count in the errors, and returns the mean loss. */
static double compare(Network* net, const Digits* digits, const size_t* images, size_t count) {
  double loss = 0;
  size_t b, j;
  for (b = 0; b < count; ++b) {
    const float* const logits = net->activations[kLayers] + b * kClasses;
    float* const error = net->errors[kLayers % 2] + b * kClasses;
    const size_t label = (size_t)digits->labels[images[b]];
    float most = logits[0], sum = 0;
    for (j = 1; j < kClasses; ++j) most = fmaxf(most, logits[j]);
    for (j = 0; j < kClasses; ++j) sum += error[j] = expf(logits[j] - most);
    for (j = 0; j < kClasses; ++j) error[j] = (error[j] / sum - (j == label ? 1.0F : 0.0F)) / (float)count;
    loss += log(sum) - (logits[label] - most);
  }
  return loss / (double)count;
}

static void add_gradients(const Parameter* weight, const float* in, const float* error, size_t count) {
  const Parameter* const bias = weight + 1;
  size_t b, i, j;
  for (b = 0; b < count; ++b, in += weight->inputs, error += weight->outputs) {
    for (j = 0; j < weight->outputs; ++j) bias->gradient[j] += error[j];
    for (i = 0; i < weight->inputs; ++i) {
      for (j = 0; j < weight->outputs; ++j) weight->gradient[i * weight->outputs + j] += in[i] * error[j];
    }
  }
}

static void pass_error_down(const Parameter* weight, const float* in, const float* error, float* below, size_t count) {
  size_t b, i, j;
  for (b = 0; b < count; ++b, in += weight->inputs, error += weight->outputs, below += weight->inputs) {
    for (i = 0; i < weight->inputs; ++i) {
      below[i] = 0;
      if (in[i] <= 0) continue; /* ReLU's derivative */
      for (j = 0; j < weight->outputs; ++j) below[i] += error[j] * weight->value[i * weight->outputs + j];
    }
  }
}

double forward_backward(Network* net, const Digits* digits, const size_t* images, size_t count,
                        void (*ready)(void* data, int i), void* data) {
  double loss;
  int layer;
  take_images(net, digits, images, count);
  forward(net, count);
  loss = compare(net, digits, images, count);
  for (layer = kLayers - 1; layer >= 0; --layer) {
    const Parameter* const weight = &net->parameters[2 * layer];
    const float *const in = net->activations[layer], *const error = net->errors[(layer + 1) % 2];
    add_gradients(weight, in, error, count);
    ready(data, 2 * layer + 1);
    ready(data, 2 * layer);
    if (layer > 0) pass_error_down(weight, in, error, net->errors[layer % 2], count);
  }
  return loss;
}

int64_t count_correct(Network* net, const Digits* digits, const size_t* images, size_t count) {
  int64_t correct = 0;
  size_t b, j;
  take_images(net, digits, images, count);
  forward(net, count);
  for (b = 0; b < count; ++b) {
    const float* const logits = net->activations[kLayers] + b * kClasses;
    size_t best = 0;
    for (j = 1; j < kClasses; ++j) best = logits[j] > logits[best] ? j : best;
    correct += best == (size_t)digits->labels[images[b]];
  }
  return correct;
}

void take_step(Network* net, float learning_rate) {
  size_t j;
  int i;
  for (i = 0; i < kParameters; ++i) {
    const Parameter* const one = &net->parameters[i];
    for (j = 0; j < one->count; ++j) {
      one->momentum[j] = 0.9F * one->momentum[j] + one->gradient[j];
      one->value[j] -= learning_rate * one->momentum[j];
      one->gradient[j] = 0;
    }
  }
}
