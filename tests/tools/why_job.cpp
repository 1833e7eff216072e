// SPDX-License-Identifier: Apache-2.0
//
// A job for kolo_why_test.py: a few steps, until rank 1 does what the argument says. And the ten failures of
// docs/troubleshooting.md.
//
// usage: why_job fine | kill | stop | hang | order | mismatch | throw | leave | group | message | deadline
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

namespace {

kolo::TensorView view(float* data, std::size_t elements) {
  return {data, kolo::DType::float32, kolo::Shape{static_cast<std::int64_t>(elements)}};
}

void step(std::vector<float>& first, std::vector<float>& second) {
  kolo::Handle a = kolo::allreduce_async("layer1.weight", view(first.data(), first.size()));
  kolo::Handle b = kolo::allreduce_async("layer2.weight", view(second.data(), second.size()));
  a.wait();
  b.wait();
  float loss = 0;
  kolo::allreduce(view(&loss, 1));
  kolo::end_step();
}

void hang() {
  while (true) ::pause();
}

/// Of rank 1; the others go on.
void misbehave(const std::string& what) {
  if (what == "kill") ::raise(SIGKILL);
  if (what == "stop") ::raise(SIGSTOP);
  if (what == "hang" || what == "deadline") hang();
  if (what == "throw") throw std::runtime_error("the program's own failure");
}

/// Of all ranks.
void disagree(const std::string& what) {
  std::array<float, 4> data{};
  const int rank = kolo::rank();
  if (what == "order") kolo::allreduce(rank == 1 ? "second" : "first", view(data.data(), 4));
  if (what == "mismatch") kolo::allreduce("layer3", view(data.data(), rank == 1 ? 3 : 4));
  if (what == "group" && rank == 0) {
    const kolo::Group group = kolo::Group::of(kolo::world(), {0, 1});
  }
  if (what == "message" && rank == 0) kolo::recv(view(data.data(), 4), 1);
}

int run(const std::string& what) {
  const kolo::Session session;
  std::vector<float> first(100, 1.F);
  std::vector<float> second(1000, 2.F);
  constexpr int kSteps = 5;
  for (int i = 0; i < kSteps; ++i) step(first, second);
  if (what == "leave" && kolo::rank() == 1) return 0;
  if (kolo::rank() == 1) misbehave(what);
  disagree(what);
  if (what == "group" && kolo::rank() != 0) hang();
  if (what == "message" && kolo::rank() == 1) hang();
  for (int i = 0; i < kSteps; ++i) step(first, second);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "fine");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
