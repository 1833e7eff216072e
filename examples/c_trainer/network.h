/* SPDX-License-Identifier: Apache-2.0 */
/* The model: a multilayer perceptron with ReLU between its layers and softmax cross-entropy at its end. It knows
   nothing of ranks. */
#ifndef KOLO_EXAMPLES_C_TRAINER_NETWORK_H
#define KOLO_EXAMPLES_C_TRAINER_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#include "digits.h"

enum { kLayers = 3, kParameters = 2 * kLayers, kMostImages = 64, kMostWidth = 64 };

/* A weight [inputs, outputs] or a bias [outputs]. Its memory is the program's. */
typedef struct Parameter {
  size_t inputs, outputs; /* of a bias inputs is 0 */
  size_t count;           /* elements */
  float *value, *gradient, *momentum;
} Parameter;

typedef struct Network {
  Parameter parameters[kParameters];                                /* weight and bias of each layer in turn */
  float activations[kLayers + 1][(size_t)kMostImages * kMostWidth]; /* the images, and what each layer makes of them */
  float errors[2][(size_t)kMostImages * kMostWidth];
} Network;

/* Sets the sizes; the memory comes next. */
void set_sizes(Network* net);
/* He's initialisation: weights uniform in +-sqrt(6 / inputs), biases 0. */
void initialise(Network* net, uint64_t seed);
/* Adds the gradient of the images' mean loss to every gradient, from the last layer to the first, and calls
   `ready(data, i)` when that of parameter i is complete. Returns the mean loss. */
double forward_backward(Network* net, const Digits* digits, const size_t* images, size_t count,
                        void (*ready)(void* data, int i), void* data);
/* How many of these images the network takes for what they are. */
int64_t count_correct(Network* net, const Digits* digits, const size_t* images, size_t count);
/* Stochastic gradient descent with momentum 0.9; sets the gradients to 0. */
void take_step(Network* net, float learning_rate);

#endif
