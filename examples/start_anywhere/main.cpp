// SPDX-License-Identifier: Apache-2.0
//
// One training program, and every way to start it (docs/start.md). A launcher finds it as it is:
//
//     start_anywhere                                one rank
//     mpirun -np 4 start_anywhere                   and so with kolo-run, torchrun --no-python, srun, KOLO_STORE
//
// and it can make its ranks itself, or bring the place where they meet:
//
//     start_anywhere --threads 4                    ranks as threads of this process
//     start_anywhere --forked 4                     ranks as processes that it forks
//     start_anywhere --own-store DIRECTORY RANK SIZE
//
// It prints how the ranks have met, and then a hash of the weights that they have trained. The hash depends on the
// number of ranks, and not on the way: scripts/test starts compares.
#include <charconv>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <kolo/kolo.hpp>

#include "examples/train_digits/digits.hpp"
#include "examples/train_digits/trainer.hpp"

namespace {

constexpr const char* kHelp =
    "Trains a small network, started in any way, and prints a hash of its weights.\n\n"
    "  start_anywhere [--epochs N]                                   as a launcher says, or one rank\n"
    "  start_anywhere [--epochs N] --threads N                       N threads of this process\n"
    "  start_anywhere [--epochs N] --forked N                        N processes that it forks\n"
    "  start_anywhere [--epochs N] --own-store DIRECTORY RANK SIZE   one of SIZE processes, which meet by a store of\n"
    "                                                                the program's own: files in DIRECTORY\n\n"
    "Exit status: 0 done, 1 the job failed, 2 the flags are wrong.\n";

/// What a program might have anyway: a service that keeps values under keys. Here each is a file of a directory.
class FolderStore final : public kolo::Store {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void set(const std::string& key, const std::string& value) override {
    const std::filesystem::path file = file_of(key);
    const std::filesystem::path unfinished = file.string() + ".new";
    std::ofstream out(unfinished, std::ios::binary);
    out << value;
    out.close();
    if (!out) throw std::runtime_error(unfinished.string() + " cannot be written");
    std::filesystem::rename(unfinished, file);  // there as a whole, or not at all
  }

  std::optional<std::string> get(const std::string& key, std::chrono::nanoseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      if (std::ifstream in(file_of(key), std::ios::binary); in) {
        std::ostringstream value;
        value << in.rdbuf();
        return value.str();
      }
      if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  /// "kolo/rank-0" is a key; a '/' is none of a file's name.
  [[nodiscard]] std::filesystem::path file_of(std::string key) const {
    for (char& c : key) c = c == '/' ? '.' : c;
    return folder_ / key;
  }

  const std::filesystem::path folder_;
};

struct Flags {
  int epochs = 3;
  int threads = 0;
  int forked = 0;
  std::string own_store;
  int rank = 0;
  int size = 0;
};

struct BadFlags : std::runtime_error {
  using std::runtime_error::runtime_error;
};

Flags parse(const std::vector<std::string>& words) {
  Flags flags;
  std::size_t at = 0;
  const auto next = [&](const std::string& flag) -> const std::string& {
    if (at == words.size()) throw BadFlags(flag + " needs more behind it");
    return words[at++];
  };
  const auto number = [&](const std::string& flag, int least) {
    const std::string& text = next(flag);
    int value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least) {
      throw BadFlags(flag + " is followed by \"" + text + "\"; expected a number from " + std::to_string(least));
    }
    return value;
  };
  while (at < words.size()) {
    const std::string flag = words[at++];
    if (flag == "--epochs") {
      flags.epochs = number(flag, 1);
    } else if (flag == "--threads") {
      flags.threads = number(flag, 1);
    } else if (flag == "--forked") {
      flags.forked = number(flag, 1);
    } else if (flag == "--own-store") {
      flags.own_store = next(flag);
      flags.rank = number(flag, 0);
      flags.size = number(flag, 1);
    } else {
      throw BadFlags("\"" + flag + "\" is no flag");
    }
  }
  return flags;
}

/// "bootstrap: MPI (...)" is a line of what Kolo says of itself.
std::string how_ranks_met() {
  const std::string all = kolo::describe();
  const std::string label = "bootstrap: ";
  const std::size_t begin = all.find(label) + label.size();
  return all.substr(begin, all.find('\n', begin) - begin);
}

/// The body of a rank: the same, however it was started.
void train(const train_digits::Digits& digits, const Flags& flags) {
  if (kolo::rank() == 0) {
    std::printf("%d rank%s: %s\n", kolo::size(), kolo::size() == 1 ? "" : "s", how_ranks_met().c_str());
    std::fflush(stdout);
  }
  train_digits::TrainOptions options;
  options.epochs = flags.epochs;
  const auto result = train_digits::train<float>(digits, options, [](int /*epoch*/, double /*loss*/) {});
  if (!result.all_ranks_equal) throw std::runtime_error("ranks have different weights");
  if (kolo::rank() == 0) std::printf("weights %016" PRIx64 "\n", result.weights_hash);
}

void run(const Flags& flags) {
  const train_digits::Digits digits = train_digits::load_digits(DIGITS_CSV);
  if (flags.threads > 0) return kolo::run_local(flags.threads, [&] { train(digits, flags); });
  if (flags.forked > 0) return kolo::run_forked(flags.forked, [&] { train(digits, flags); });
  kolo::Options options;
  if (!flags.own_store.empty()) {
    options.with_store(std::make_shared<FolderStore>(flags.own_store), flags.rank, flags.size);
  }
  const kolo::Session session(options);
  train(digits, flags);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
      std::cout << kHelp;
      return 0;
    }
    run(parse(words));
    return 0;
  } catch (const BadFlags& error) {
    std::cerr << "start_anywhere: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "start_anywhere: " << error.what() << "\n";
    return 1;
  }
}
