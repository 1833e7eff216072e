// SPDX-License-Identifier: Apache-2.0
//
// The job that strangers attack: all-reduces of several sizes, every element compared, until a file is there.
//
//     hostile_job STOP_FILE      rank 0 prints "step 100", "step 200", ...
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

namespace {

/// Whether rank 0 wants another one.
bool step(std::size_t number, bool wants_more) {
  const auto n = static_cast<float>(kolo::size());
  for (const std::size_t elements : {std::size_t{1}, std::size_t{2000}, std::size_t{100000}}) {
    std::vector<float> x(elements);
    for (std::size_t i = 0; i < elements; ++i) x[i] = static_cast<float>((number + i) % 100) + 1;
    std::vector<float> expected(elements);
    for (std::size_t i = 0; i < elements; ++i) expected[i] = n * x[i];
    kolo::allreduce("x" + std::to_string(elements), kolo::view(x));
    if (x != expected) throw std::runtime_error("a wrong sum in step " + std::to_string(number));
  }
  return kolo::broadcast_object(wants_more ? 1 : 0, 0) == 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const kolo::Session session;
    std::size_t steps = 0;
    while (step(steps, kolo::rank() != 0 || !std::filesystem::exists(argv[1]))) {
      ++steps;
      if (kolo::rank() == 0 && steps % 100 == 0) {
        std::printf("step %zu\n", steps);
        std::fflush(stdout);
      }
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
