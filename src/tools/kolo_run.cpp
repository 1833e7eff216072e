// SPDX-License-Identifier: Apache-2.0
//
// kolo-run: runs a program as several processes of this machine, which meet without MPI.
//
//     kolo-run -np 4 build/release/bin/train_digits --epochs 3
#include <charconv>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

namespace {

constexpr const char* kHelp =
    "Runs a program as several processes of this machine, which meet without MPI.\n\n"
    "  kolo-run -np RANKS [--] PROGRAM [ARGUMENT ...]\n\n"
    "Output comes in whole lines; rank 0 alone has the standard input. A process that ends badly ends the others,\n"
    "5 s later. SIGINT (Ctrl-C), SIGTERM and SIGHUP are passed on; what runs 30 s later, or when such a signal comes\n"
    "again, is killed. SIGUSR1 and SIGUSR2 are passed on, too. What the processes have started ends with them, also\n"
    "when kolo-run itself is killed.\n"
    "Every process gets KOLO_STORE, KOLO_RANK, KOLO_SIZE and KOLO_JOB_KEY.\n\n"
    "Exit status: that of the process that ended badly first (128 and the number of the signal for one that was\n"
    "killed; 127: there is no such program, 126: it cannot be run), else 0, or 1 if their output could not be "
    "written;\n"
    "128 and the number of a signal that ended all; 2 the flags are wrong.\n";

int complain(const std::string& what) {
  std::cerr << "kolo-run: " << what << " (see --help)\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    std::cout << kHelp << std::flush;
    if (std::cout) return 0;
    std::cerr << "kolo-run: standard output could not be written\n";
    return 1;
  }
  if (words.size() < 2 || (words[0] != "-np" && words[0] != "-n"))
    return complain("-np and the number of ranks come first");
  int ranks = 0;
  const char* const end = words[1].data() + words[1].size();
  const auto [at, error] = std::from_chars(words[1].data(), end, ranks);
  if (error != std::errc() || at != end || ranks < 1)
    return complain("-np is \"" + words[1] + "\", which is no number of ranks");
  words.erase(words.begin(), words.begin() + 2);
  if (!words.empty() && words[0] == "--") words.erase(words.begin());
  if (words.empty()) return complain("no program is given");
  try {
    return kolo::run_program(ranks, words);
  } catch (const kolo::Error& failure) {
    std::cerr << "kolo-run: " << failure.status().message() << "\n";
    return 1;
  }
}
