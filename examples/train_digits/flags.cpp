// SPDX-License-Identifier: Apache-2.0
#include "flags.hpp"

#include <boost/program_options.hpp>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>

namespace train_digits {
namespace {

namespace po = boost::program_options;

// Numbers are read as signed and checked here: read as unsigned, -1 would be a large number.
struct RawFlags {
  std::int64_t local = 0, epochs = 30, batch_size = 32, seed = 0, train_rows = 1437;
  double learning_rate = 0;
};

po::options_description describe(Flags& flags, RawFlags& raw) {
  po::options_description options("flags", 110);
  auto add = options.add_options();
  add("help,h", "print this");
  add("local", po::value(&raw.local)->value_name("N"), "run N ranks as threads of this process, without mpirun");
  add("epochs", po::value(&raw.epochs)->value_name("N")->default_value(raw.epochs),
      "passes over the training images in all, those of a loaded checkpoint included");
  add("batch-size", po::value(&raw.batch_size)->value_name("N")->default_value(raw.batch_size),
      "images a step over all ranks; rounded up to a multiple of the ranks");
  add("learning-rate", po::value(&raw.learning_rate)->value_name("X"),
      "default: 0.05 for sgd, 0.005 for adamw, or the loaded checkpoint's");
  add("optimizer", po::value(&flags.train.optimizer)->value_name("NAME")->default_value(flags.train.optimizer),
      "sgd (momentum 0.9) or adamw");
  add("seed", po::value(&raw.seed)->value_name("N")->default_value(raw.seed),
      "of the initial weights and the order of images");
  add("train-rows", po::value(&raw.train_rows)->value_name("N")->default_value(raw.train_rows),
      "images to train on; the others are held out");
  add("dtype", po::value(&flags.dtype)->value_name("TYPE")->default_value(flags.dtype), "float32 or float64");
  add("save", po::value(&flags.train.save)->value_name("FOLDER"), "write a checkpoint at the end");
  add("load", po::value(&flags.train.load)->value_name("FOLDER"), "go on from a checkpoint");
  add("json", po::value(&flags.json)->value_name("FILE"), "write the result");
  add("data", po::value(&flags.data)->value_name("FILE")->default_value(DIGITS_CSV), "the images");
  add("quiet,q", po::bool_switch(&flags.quiet), "print the summary only");
  return options;
}

void check_range(const std::string& flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    throw BadFlags("--" + flag + " is " + std::to_string(value) + "; it must be from " + std::to_string(least) +
                   " to " + std::to_string(most));
  }
}

void check_choice(const std::string& flag, const std::string& value, const std::string& one, const std::string& other) {
  if (value != one && value != other) {
    throw BadFlags("--" + flag + " is '" + value + "'; it must be " + one + " or " + other);
  }
}

void take(const RawFlags& raw, const po::variables_map& given, Flags& flags) {
  constexpr std::int64_t kMany = 1'000'000'000;
  check_range("epochs", raw.epochs, 0, kMany);
  check_range("batch-size", raw.batch_size, 1, kMany);
  check_range("seed", raw.seed, 0, std::numeric_limits<std::int64_t>::max());
  check_range("train-rows", raw.train_rows, 1, kMany);
  check_choice("optimizer", flags.train.optimizer, "sgd", "adamw");
  check_choice("dtype", flags.dtype, "float32", "float64");
  if (given.count("local") != 0) {
    check_range("local", raw.local, 1, 1024);
  }
  if (given.count("learning-rate") != 0) {
    if (!(raw.learning_rate >= 0) || std::isinf(raw.learning_rate)) {
      throw BadFlags("--learning-rate must be a number from 0");
    }
    flags.train.learning_rate = raw.learning_rate;
  }
  flags.local = static_cast<int>(raw.local);
  flags.train.epochs = static_cast<int>(raw.epochs);
  flags.train.batch_size = static_cast<std::size_t>(raw.batch_size);
  flags.train.seed = static_cast<std::uint64_t>(raw.seed);
  flags.train.train_rows = static_cast<std::size_t>(raw.train_rows);
}

}  // namespace

std::optional<Flags> parse_flags(int argc, char** argv) {
  Flags flags;
  RawFlags raw;
  const po::options_description options = describe(flags, raw);
  po::variables_map given;
  try {
    // No positional words, and no guessing: --epoch is a mistake, not --epochs.
    const auto style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(argc, argv).options(options).positional({}).style(style).run(), given);
    po::notify(given);
  } catch (const po::error& error) {
    throw BadFlags(error.what());
  }
  if (given.count("help") != 0) {
    std::cout << "Trains a small network to read handwritten digits, on as many ranks as there are.\n\n"
                 "  train_digits               on one rank\n"
                 "  mpirun -np 4 train_digits  on four processes\n"
                 "  train_digits --local 4     on four threads\n\n"
              << options << "\nExit status: 0 done, 1 the training or a file failed, 2 the flags are wrong.\n";
    return std::nullopt;
  }
  take(raw, given, flags);
  return flags;
}

void check_against(const Flags& flags, std::size_t images) {
  if (flags.train.train_rows >= images) {
    throw BadFlags("--train-rows is " + std::to_string(flags.train.train_rows) + ", but " + flags.data + " has " +
                   std::to_string(images) + " images; some must be held out");
  }
}

}  // namespace train_digits
