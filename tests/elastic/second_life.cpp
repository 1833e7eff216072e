// SPDX-License-Identifier: Apache-2.0
//
// Many lives in one process: in each, the last rank gives up amid a step, and all end their contexts and meet anew,
// with the ranks that the keeper gives them. In the end each process has as many descriptors, threads and mappings as
// after the first lives, and about as much memory.
//
//     kolo-run -np 3 --min-np 3 second_life LIVES [SETTING=VALUE ...]
//     second_life --threads LIVES [SETTING=VALUE ...]                   three ranks as threads, by run_local
#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "base/settings.hpp"
#include "launch/next_generation.hpp"

namespace {

using kolo::launch::Generation;
using kolo::launch::Generations;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "second_life: %s\n", what.c_str());
  std::exit(1);
}

std::size_t entries_of(const std::string& folder) {
  DIR* const open = ::opendir(folder.c_str());
  if (open == nullptr) return 0;
  std::size_t count = 0;
  while (const dirent* const entry = ::readdir(open)) count += entry->d_name[0] == '.' ? 0 : 1;
  ::closedir(open);
  return count;
}

std::size_t lines_of(const char* file) {
  std::ifstream in(file);
  std::size_t count = 0;
  for (std::string line; std::getline(in, line);) ++count;
  return count;
}

std::int64_t kib_of(const std::string& row) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(row + ":", 0) == 0) return std::atoll(line.c_str() + row.size() + 1);
  }
  fail("/proc/self/status has no " + row);
}

std::size_t heap_in_use() {
  const auto info = ::mallinfo2();
  return (info.uordblks + info.hblkhd) / 1024;
}

/// What the process has.
struct Holdings {
  std::size_t descriptors = entries_of("/proc/self/fd");
  std::size_t threads = entries_of("/proc/self/task");
  std::size_t mappings = lines_of("/proc/self/maps");
  std::int64_t memory = kib_of("VmRSS");
  std::size_t heap = heap_in_use();
};

void print(std::uint64_t lives, const Holdings& has) {
  std::printf("%5llu lives: %zu descriptors, %zu threads, %zu mappings, %lld KiB, %zu of the heap\n",
              static_cast<unsigned long long>(lives), has.descriptors, has.threads, has.mappings,
              static_cast<long long>(has.memory), has.heap);
  std::fflush(stdout);
}

constexpr std::size_t kElements = 100000;

/// Steps, of which the last rank makes three and gives up; the others' calls fail then.
void work(const std::function<void()>& give_up) {
  const int size = kolo::size();
  const auto expected = static_cast<float>(size * (size + 1) / 2);
  std::vector<float> values(kElements, static_cast<float>(kolo::rank() + 1));
  std::vector<float> sums(kElements, 0);
  kolo::Prepared sum = kolo::prepare("sum", kolo::Call::allreduce_into(kolo::const_view(values), kolo::view(sums)));
  const bool gives_up = kolo::rank() == size - 1;
  for (int step = 0; step < 3 || !gives_up; ++step) {
    sum.start().wait();
    if (sums.front() != expected || sums.back() != expected) fail("a sum is wrong");
  }
  give_up();
}

void expect_that_it_gave_up(const kolo::Error& error) {
  if (error.code() != kolo::ErrorCode::user_exception) fail(error.what());
}

/// Compares what the process has after a quarter of its lives with what it has in the end.
class Comparison {
 public:
  /// UCX may still write into staging memory when a world has failed; what it had not given back then is kept for good:
  /// 2.5 MB, seen once in 200 lives of three ranks.
  Comparison(std::uint64_t lives, const kolo::Options& options)
      : lives_(lives), more_kib_(options.settings.count("KOLO_TRANSPORT") != 0 ? 16384 : 256) {}

  void after(std::uint64_t life, bool prints) {
    if (life == lives_ / 4) early_.emplace();
    if (prints && life % std::max<std::uint64_t>(1, lives_ / 8) == 0) print(life, Holdings());
    if (life == lives_) late_.emplace();
  }
  void finish() const {
    if (!early_ || !late_) fail("it has ended too early");
    if (late_->descriptors > early_->descriptors || late_->threads > early_->threads) {
      fail("it has more descriptors or threads than before");
    }
    if (late_->mappings > early_->mappings + 8) fail("it has more mappings than before");
    if (late_->heap > early_->heap + more_kib_) fail("it has more memory than before");
  }

 private:
  const std::uint64_t lives_;
  const std::size_t more_kib_;
  std::optional<Holdings> early_;
  std::optional<Holdings> late_;
};

void live_as_threads(std::uint64_t lives, const kolo::Options& options) {
  Comparison comparison(lives, options);
  for (std::uint64_t life = 1; life <= lives; ++life) {
    try {
      kolo::run_local(
          3, [] { work([] { throw std::runtime_error("it gives up"); }); }, options);
      fail("nobody gave up");
    } catch (const kolo::Error& error) {
      expect_that_it_gave_up(error);
    }
    comparison.after(life, true);
  }
  comparison.finish();
}

void live(const Generation& generation, Generations& generations, const kolo::Options& options) {
  try {
    kolo::Context context(generation.options(options));
    generations.started();
    const kolo::ContextGuard guard(context);
    work([&] { context.abandon("it gives up"); });
  } catch (const kolo::Error& error) {
    expect_that_it_gave_up(error);
  }
}

void live_in_generations(std::uint64_t lives, const kolo::Options& options) {
  Comparison comparison(lives, options);
  Generations generations(kolo::base::process_environment());
  while (const std::optional<Generation> next = generations.next()) {
    if (next->number > lives) {
      if (generations.finish()) break;
      continue;
    }
    live(*next, generations, options);
    comparison.after(next->number, next->rank == 0);
  }
  comparison.finish();
}

}  // namespace

int main(int argc, char** argv) {
  const bool as_threads = argc > 2 && std::string(argv[1]) == "--threads";
  const int first = as_threads ? 2 : 1;
  if (argc <= first) fail("give a number of lives");
  const auto lives = static_cast<std::uint64_t>(std::atoll(argv[first]));
  kolo::Options options;
  options.log_sink = [](const kolo::LogRecord&) {};
  for (int i = first + 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    options.settings[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  as_threads ? live_as_threads(lives, options) : live_in_generations(lives, options);
  return 0;
}
