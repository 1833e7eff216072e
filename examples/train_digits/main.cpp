// SPDX-License-Identifier: Apache-2.0
//
// Trains a small network to read handwritten digits, on as many ranks as there are:
//
//     train_digits               one rank
//     mpirun -np 4 train_digits  four processes
//     train_digits --local 4     four threads
//
// The training loop is in trainer.hpp, the model in network.hpp; here is what surrounds them.
#include <exception>
#include <iostream>
#include <optional>

#include <kolo/kolo.hpp>

#include "digits.hpp"
#include "flags.hpp"
#include "report.hpp"
#include "trainer.hpp"

namespace {

using namespace train_digits;

// The body of one rank.
void train_and_report(const Digits& digits, const Flags& flags) {
  const Progress progress(flags.train.epochs, flags.quiet || kolo::rank() != 0);
  const OnEpoch on_epoch = [&](int epoch, double loss) { progress.show(epoch, loss); };
  const TrainResult result = flags.dtype == "float64" ? train<double>(digits, flags.train, on_epoch)
                                                      : train<float>(digits, flags.train, on_epoch);
  on_rank_0([&] {
    if (!flags.json.empty()) {
      write_json(flags.json, result, flags);
    }
    print_summary(result);
  });
}

void run(const Flags& flags) {
  const Digits digits = load_digits(flags.data);
  check_against(flags, digits.size());
  if (flags.local > 0) {
    kolo::run_local(flags.local, [&] { train_and_report(digits, flags); });
  } else {
    const kolo::Session session;
    train_and_report(digits, flags);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<Flags> flags = parse_flags(argc, argv);
    if (flags) {
      run(*flags);
    }
    return 0;
  } catch (const BadFlags& error) {
    std::cerr << "train_digits: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "train_digits: " << error.what() << '\n';
    return 1;
  }
}
