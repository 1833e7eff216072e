// SPDX-License-Identifier: Apache-2.0
//
// What libFuzzer calls. With --seeds=DIR a fuzzer writes its seeds to that folder, and ends.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

#include "fuzz.hpp"

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  constexpr std::string_view kFlag = "--seeds=";
  for (int i = 1; i < *count; ++i) {
    const std::string_view argument = (*arguments)[i];
    if (argument.substr(0, kFlag.size()) != kFlag) continue;
    const std::string folder(argument.substr(kFlag.size()));
    int number = 0;
    for (const std::string& seed : kolo::fuzz::seeds()) {
      std::ofstream file(folder + "/seed-" + std::to_string(++number), std::ios::binary);
      if (!(file << seed).flush()) {
        std::cerr << "cannot write to " << folder << "\n";
        std::exit(1);
      }
    }
    std::exit(number == 0 ? 1 : 0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kolo::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
