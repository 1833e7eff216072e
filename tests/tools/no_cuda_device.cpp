// SPDX-License-Identifier: Apache-2.0
//
// What a program with CUDA in its library meets where there is no device: tensors of the CPU are reduced as ever, and
// every way of saying "on the GPU" is refused. Prints each refusal; exit status 0 when all was as it should be.
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <kolo/cuda.hpp>
#include <kolo/kolo.hpp>

namespace {

bool refuses(const char* what, const std::function<void()>& call) {
  try {
    call();
  } catch (const kolo::Error& error) {
    std::printf("%s: %s\n", what, error.what());
    return error.code() == kolo::ErrorCode::unsupported;
  }
  std::printf("%s: not refused\n", what);
  return false;
}

bool cpu_tensors_work() {
  std::vector<float> values{1, 2, 3};
  kolo::allreduce(kolo::view(values));
  kolo::allreduce_async("named", kolo::view(values)).wait();
  return values == std::vector<float>{1, 2, 3};
}

}  // namespace

int main() {
  kolo::Session session;
  float somewhere[3] = {};
  const kolo::TensorView claimed(somewhere, kolo::DType::float32, kolo::Shape{3}, {kolo::DeviceKind::cuda, 0});
  bool good = cpu_tensors_work();
  good &= refuses("bind", [] { kolo::cuda::bind(); });
  good &= refuses("view", [&] { static_cast<void>(kolo::cuda::view(somewhere, 3, nullptr)); });
  good &= refuses("allreduce", [&] { kolo::allreduce(claimed); });
  good &= refuses("allreduce_async", [&] { kolo::allreduce_async("claimed", claimed).wait(); });
  good &= refuses("broadcast", [&] { kolo::broadcast("claimed", claimed, 0); });
  good &= cpu_tensors_work();  // a refusal breaks nothing
  return good ? 0 : 1;
}
