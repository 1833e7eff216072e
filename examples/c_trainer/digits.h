/* SPDX-License-Identifier: Apache-2.0 */
/* The data: images of handwritten digits. */
#ifndef KOLO_EXAMPLES_C_TRAINER_DIGITS_H
#define KOLO_EXAMPLES_C_TRAINER_DIGITS_H

#include <stddef.h>

enum { kPixels = 64, kClasses = 10 };

typedef struct Digits {
  float* pixels; /* kPixels an image, 0 (paper) to 1 (ink) */
  int* labels;   /* one an image, 0 to 9 */
  size_t count;
} Digits;

/* Reads lines of 64 pixels of 0 to 16 and a label, separated by commas. Returns 0, or prints what is wrong and returns
   1. */
int read_digits(const char* path, Digits* digits);
void free_digits(Digits* digits);

#endif
