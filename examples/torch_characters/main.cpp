// SPDX-License-Identifier: Apache-2.0
//
// Trains a language model of single characters on the pages of Kolo's documentation, or of another folder:
//
//     torch_characters                                  one process
//     mpirun -np 2 torch_characters --wire int8         two, whose gradients travel as 8 bits
//     torch_characters --until 0.5 --steps 2000         until it foretells half of the held-out characters
//
// Flags: --wire float32|bfloat16|int8, --until PART, --steps N, --seed N, --width N, --text FOLDER.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include <kolo/kolo.hpp>

#include "examples/torch_characters/trainer.hpp"

namespace {

using torch_characters::Options;
using torch_characters::Result;

void set_wire(const std::string& name, Options& options) {
  if (name == "bfloat16") {
    options.reduction.send_gradients_as = kolo::DType::bfloat16;
  } else if (name == "int8") {
    options.reduction.compression = kolo::Compression::int8_blocks;
  } else if (name != "float32") {
    throw std::invalid_argument("--wire is \"" + name + "\"; it must be float32, bfloat16 or int8");
  }
}

void run(int argc, char** argv) {
  Options options;
  std::string wire = "float32", text = PAGES;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--wire") {
      set_wire(wire = value, options);
    } else if (flag == "--until") {
      options.until = std::stod(value);
    } else if (flag == "--steps") {
      options.steps = std::stoi(value);
    } else if (flag == "--seed") {
      options.seed = std::stoull(value);
    } else if (flag == "--width") {
      options.width = std::stoll(value);
    } else if (flag == "--text") {
      text = value;
    } else {
      throw std::invalid_argument("there is no flag " + flag);
    }
  }
  if (argc % 2 == 0) throw std::invalid_argument(std::string(argv[argc - 1]) + " needs a value");

  const kolo::Session session;
  const Result result = train(torch_characters::Text(text), options, [](const Result& now) {
    if (kolo::rank() == 0) std::printf("step %d  %.2f %%  %.1f s\n", now.steps, 100 * now.accuracy, now.seconds);
  });
  if (kolo::rank() == 0) {
    std::printf("%s  %d rank%s  seed %llu: %.2f %% of the held-out characters after %d steps and %.1f s\n",
                wire.c_str(), kolo::size(), kolo::size() == 1 ? "" : "s", static_cast<unsigned long long>(options.seed),
                100 * result.accuracy, result.steps, result.seconds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torch_characters: %s\n", error.what());
    return 1;
  }
}
