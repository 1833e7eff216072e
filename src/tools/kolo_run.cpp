// SPDX-License-Identifier: Apache-2.0
//
// kolo-run: runs a program as several processes of this machine, which meet without MPI.
//
//     kolo-run -np 4 build/release/bin/train_digits --epochs 3
#include <charconv>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

namespace {

constexpr const char* kHelp =
    "Runs a program as several processes of this machine, which meet without MPI.\n\n"
    "  kolo-run -np RANKS [FLAG ...] [--] PROGRAM [ARGUMENT ...]\n"
    "  kolo-run --version\n\n"
    "Output comes in whole lines; rank 0 alone has the standard input. A process that ends badly ends the others,\n"
    "5 s later. SIGINT (Ctrl-C), SIGTERM and SIGHUP are passed on; what runs 30 s later, or when such a signal comes\n"
    "again, is killed. SIGUSR1 and SIGUSR2 are passed on, too. What the processes have started ends with them, also\n"
    "when kolo-run itself is killed.\n"
    "Every process gets KOLO_STORE, KOLO_RANK, KOLO_SIZE and KOLO_JOB_KEY; where it is not set also OMP_NUM_THREADS,\n"
    "the number of CPUs for each rank.\n\n"
    "With one of these flags ranks may come and go, for programs that can meet again (docs/elastic.md). The end of\n"
    "one is not the end of the others then, and the processes get KOLO_KEEPER in place of their ranks.\n\n"
    "  --min-np N    go on with N ranks or more (RANKS)\n"
    "  --max-np N    never have more than N ranks (RANKS)\n"
    "  --start-np N  begin as soon as N processes have come (RANKS)\n"
    "  --respawn     start a process again that has ended badly, unless that has happened twice in a row within 10 s\n"
    "                of being taken in\n"
    "  --restarts N  do that at most N times\n"
    "  --wait S      with fewer processes than --min-np, or than --start-np at the beginning, wait for others for\n"
    "                S seconds (300), if some may come; then begin with --min-np or more, or give up\n\n"
    "A rank for which others wait is killed when it has not answered for KOLO_LATCH_TIMEOUT_S, or has answered and\n"
    "not come for KOLO_TIMEOUT_S.\n\n"
    "Exit status: that of the process that ended badly first (128 and the number of the signal for one that was\n"
    "killed; 127: there is no such program, 126: it cannot be run), else 0, or 1 if their output could not be "
    "written;\n"
    "128 and the number of a signal that ended all; 2 the flags are wrong. Where ranks may come and go: 0 if the work\n"
    "is done; if too few are left, that of the process that ended badly last, or 1.\n";

/// Prints what --help or --version asks for; the exit status.
int answer(const std::string& text) {
  std::cout << text << std::flush;
  if (std::cout) return 0;
  std::cerr << "kolo-run: standard output could not be written\n";
  return 1;
}

int complain(const std::string& what) {
  std::cerr << "kolo-run: " << what << " (see --help)\n";
  return 2;
}

constexpr int kMostRanks = 1 << 20;  // KOLO_SIZE takes no more

/// The flags, in front of the program.
struct Flags {
  int ranks = 0;
  std::optional<kolo::elastic::JobOptions> elastic;
  std::string wrong;
};

template <class Number>
std::optional<Number> number_of(const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || at != end || number < 0) return std::nullopt;
  return number;
}

std::string refuse(const std::string& flag, const std::string& value, const char* what) {
  return flag + " is \"" + value + "\", which is no " + what;
}

/// Takes the flags that say how ranks may come and go from the front of `words`.
void take_elastic(std::vector<std::string>& words, Flags& flags) {
  kolo::elastic::JobOptions options;
  std::optional<int> restarts;
  const std::map<std::string, int*> counts{
      {"--min-np", &options.least}, {"--max-np", &options.most}, {"--start-np", &options.first}};
  while (!words.empty() && words[0].rfind("--", 0) == 0 && words[0] != "--") {
    const std::string flag = words[0];
    const std::string value = words.size() < 2 ? "" : words[1];
    std::ptrdiff_t used = 2;
    if (flag == "--respawn") {
      used = 1;
      if (!restarts) restarts = kolo::elastic::JobOptions::kNoLimit;
    } else if (flag == "--wait") {
      const double seconds = number_of<double>(value).value_or(-1);
      const bool fits = seconds >= 0 && seconds <= 1e9;
      if (!fits) flags.wrong = refuse(flag, value, "number of seconds");
      options.wait =
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(fits ? seconds : 0));
    } else if (flag == "--restarts") {
      restarts = number_of<int>(value);
      if (!restarts) flags.wrong = refuse(flag, value, "number");
    } else if (const auto count = counts.find(flag); count != counts.end()) {
      *count->second = number_of<int>(value).value_or(0);
      if (*count->second == 0) flags.wrong = refuse(flag, value, "number of ranks");
    } else {
      flags.wrong = "there is no flag " + flag;
    }
    if (!flags.wrong.empty()) return;
    words.erase(words.begin(), words.begin() + used);
    options.respawns = restarts.value_or(0);
    flags.elastic = options;
  }
}

Flags take_flags(std::vector<std::string>& words) {
  Flags flags;
  if (words.size() < 2 || (words[0] != "-np" && words[0] != "-n")) {
    flags.wrong = "-np and the number of ranks come first";
    return flags;
  }
  flags.ranks = number_of<int>(words[1]).value_or(0);
  if (flags.ranks < 1 || flags.ranks > kMostRanks) {
    flags.wrong = refuse("-np", words[1], "number of ranks");
    return flags;
  }
  words.erase(words.begin(), words.begin() + 2);
  take_elastic(words, flags);
  if (!words.empty() && words[0] == "--") words.erase(words.begin());
  if (flags.wrong.empty() && words.empty()) flags.wrong = "no program is given";
  return flags;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) return answer(kHelp);
  if (!words.empty() && words[0] == "--version") return answer(std::string("kolo-run ") + kolo::version() + "\n");
  const Flags flags = take_flags(words);
  if (!flags.wrong.empty()) return complain(flags.wrong);
  try {
    return flags.elastic ? kolo::elastic::run_program(flags.ranks, words, *flags.elastic)
                         : kolo::run_program(flags.ranks, words);
  } catch (const kolo::Error& failure) {
    std::cerr << "kolo-run: " << failure.status().message() << "\n";
    return failure.code() == kolo::ErrorCode::invalid_argument ? 2 : 1;
  }
}
