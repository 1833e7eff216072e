/* SPDX-License-Identifier: Apache-2.0 */
#include "digits.h"

#include <stdio.h>
#include <stdlib.h>

/* Reads one number of a line, and what separates it from the next. Returns whether it is from 0 to `most`. */
static int read_number(FILE* file, int most, int* number) {
  return fscanf(file, "%d%*[,\r\n]", number) == 1 && *number >= 0 && *number <= most;
}

static int read_image(FILE* file, float* pixels, int* label) {
  int i, number;
  for (i = 0; i < kPixels; ++i) {
    if (!read_number(file, 16, &number)) return 0;
    pixels[i] = (float)number / 16.0F;
  }
  return read_number(file, kClasses - 1, label);
}

static int grow(Digits* digits, size_t room) {
  float* const pixels = realloc(digits->pixels, room * kPixels * sizeof *pixels);
  int* labels = NULL;
  if (pixels != NULL) {
    digits->pixels = pixels;
    labels = realloc(digits->labels, room * sizeof *labels);
  }
  if (labels != NULL) digits->labels = labels;
  return labels != NULL;
}

int read_digits(const char* path, Digits* digits) {
  FILE* const file = fopen(path, "r");
  size_t room = 0;
  int next;
  digits->pixels = NULL;
  digits->labels = NULL;
  digits->count = 0;
  if (file == NULL) {
    fprintf(stderr, "c_trainer: %s cannot be opened\n", path);
    return 1;
  }
  while ((next = getc(file)) != EOF) {
    ungetc(next, file);
    if (digits->count == room) {
      room = room == 0 ? 256 : 2 * room;
      if (!grow(digits, room)) break;
    }
    if (!read_image(file, digits->pixels + digits->count * kPixels, digits->labels + digits->count)) break;
    ++digits->count;
  }
  fclose(file);
  if (next == EOF) return 0;
  fprintf(stderr, "c_trainer: image %zu of %s is not 64 pixels and a label, or there is no memory for it\n",
          digits->count + 1, path);
  free_digits(digits);
  return 1;
}

void free_digits(Digits* digits) {
  free(digits->pixels);
  free(digits->labels);
}
