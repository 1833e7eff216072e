// SPDX-License-Identifier: Apache-2.0
//
// A libcuda.so.1 that can be started, and asked whether it has been: for whoever loads it by its path.

namespace {
bool started = false;
}

extern "C" {

int cuInit(unsigned /*flags*/) {
  started = true;
  return 0;
}

int cuDeviceGetCount(int* count) {
  if (!started) return 3;  // CUDA_ERROR_NOT_INITIALIZED
  *count = 4;
  return 0;
}

}  // extern "C"
