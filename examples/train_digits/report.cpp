// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace train_digits {
namespace {

// As many digits as tell every double from its neighbours.
std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

std::string list(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) {
    text += (text.empty() ? "" : ", ") + number(value);
  }
  return "[" + text + "]";
}

const char* truth(bool value) { return value ? "true" : "false"; }

}  // namespace

// Open MPI gives rank 0 a terminal of its own for standard output, whatever mpirun writes to; not for standard error.
Progress::Progress(int epochs, bool quiet)
    : epochs_(epochs), quiet_(quiet), terminal_(::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1) {}

void Progress::show(int epoch, double loss) const {
  if (quiet_) {
    return;
  }
  if (!terminal_) {
    std::printf("epoch %d/%d  loss %.6f\n", epoch, epochs_, loss);
  } else {
    constexpr int kWidth = 40;
    const int done = kWidth * epoch / epochs_;
    const std::string bar =
        std::string(static_cast<std::size_t>(done), '#') + std::string(static_cast<std::size_t>(kWidth - done), '.');
    std::printf("\r[%s] epoch %d/%d  loss %.6f%s", bar.c_str(), epoch, epochs_, loss, epoch == epochs_ ? "\n" : "");
  }
  std::fflush(stdout);
}

void print_summary(const TrainResult& result) {
  std::printf("accuracy %.1f %%  %.2f s  %.0f images/s  %d rank%s  weights %s (%s)\n", 100 * result.accuracy,
              result.seconds, result.images_per_second, result.ranks, result.ranks == 1 ? "" : "s",
              hex(result.weights_hash).c_str(),
              result.all_ranks_equal ? "the same on every rank" : "NOT THE SAME ON EVERY RANK");
  std::fflush(stdout);
}

void write_json(const std::string& path, const TrainResult& result, const Flags& flags) {
  std::string text = "{\n";
  const auto field = [&](std::string_view name, const std::string& value, bool last = false) {
    text += "  \"" + std::string(name) + "\": " + value + (last ? "\n" : ",\n");
  };
  field("accuracy", number(result.accuracy));
  field("loss", result.losses.empty() ? "null" : number(result.losses.back()));
  field("losses", list(result.losses));
  field("seconds", number(result.seconds));
  field("images_per_second", number(result.images_per_second));
  field("weights_hash", '"' + hex(result.weights_hash) + '"');
  field("all_ranks_equal", truth(result.all_ranks_equal));
  field("ranks", std::to_string(result.ranks));
  field("local", truth(flags.local > 0));
  field("epochs", std::to_string(flags.train.epochs));
  field("batch_size", std::to_string(result.batch_size));
  field("optimizer", '"' + flags.train.optimizer + '"');
  field("seed", std::to_string(flags.train.seed));
  field("dtype", '"' + flags.dtype + '"', true);
  std::ofstream file(path, std::ios::binary);
  if (!(file << text << "}\n" << std::flush)) {
    throw std::runtime_error(path + ": cannot be written");
  }
}

}  // namespace train_digits
