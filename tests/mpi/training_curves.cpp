// SPDX-License-Identifier: Apache-2.0
//
// The example's training job under mpirun, against the same job on a single rank (the loss curves agree) and on as
// many threads (the weights are the same, bit for bit, on one or two nodes: over more, the order in which nodes are
// added depends on where an element lies in its batch, and batches on time).
#include <cmath>
#include <cstdio>
#include <string>

#include <kolo/kolo.hpp>

#include "examples/train_digits/trainer.hpp"
#include "tests/optimizer/digits_csv.hpp"

namespace {

using namespace train_digits;

int failures = 0;

void expect(bool condition, const std::string& what) {
  if (condition) {
    return;
  }
  ++failures;
  std::printf("FAIL %s\n", what.c_str());
}

TrainOptions options_for(const std::string& optimizer) {
  TrainOptions options;
  options.epochs = 3;
  options.train_rows = 1408;  // 44 batches of 32, whole on 1, 2, 4 and 8 ranks
  options.optimizer = optimizer;
  options.learning_rate = optimizer == "sgd" ? 0.02 : 0.001;
  options.seed = 3;
  return options;
}

template <class T>
TrainResult train_here(const Digits& digits, const std::string& optimizer) {
  return train<T>(digits, options_for(optimizer), [](int, double) {});
}

struct Results {
  TrainResult floats, doubles, adamw;
};

Results train_all(const Digits& digits) {
  return {train_here<float>(digits, "sgd"), train_here<double>(digits, "sgd"), train_here<double>(digits, "adamw")};
}

void compare(const std::string& what, const TrainResult& here, const TrainResult& alone, const TrainResult& threads,
             bool ordered, double tolerance) {
  expect(here.all_ranks_equal, what + ": ranks hold different weights");
  expect(here.losses.size() == alone.losses.size(), what + ": another number of epochs");
  for (std::size_t i = 0; i < here.losses.size(); ++i) {
    const double difference = std::abs(here.losses[i] / alone.losses.at(i) - 1);
    expect(difference <= tolerance, what + ": the loss of epoch " + std::to_string(i) +
                                        " differs from a single rank's by " + std::to_string(difference / tolerance) +
                                        " tolerances");
  }
  expect(here.losses.back() < 0.7 * here.losses.front(), what + ": it does not learn");
  expect(!ordered || here.weights_hash == threads.weights_hash, what + ": threads train other weights");
}

}  // namespace

int main() {
  const Digits digits = load_digits(kolo::test::digits_csv());
  int rank = 0;
  int size = 0;
  bool ordered = false;
  Results here;
  {
    const kolo::Session session;
    rank = kolo::rank();
    size = kolo::size();
    ordered = kolo::cross_size() <= 2;
    here = train_all(digits);
  }
  if (rank != 0) {
    return 0;
  }
  Results alone, threads;
  {
    kolo::Context context;
    const kolo::ContextGuard guard(context);
    alone = train_all(digits);
  }
  kolo::run_local(size, [&] {
    Results mine = train_all(digits);
    if (kolo::rank() == 0) {
      threads = std::move(mine);
    }
  });
  compare("float32", here.floats, alone.floats, threads.floats, ordered, 1e-5);
  compare("float64", here.doubles, alone.doubles, threads.doubles, ordered, 1e-12);
  compare("float64 with adamw", here.adamw, alone.adamw, threads.adamw, ordered, 1e-12);
  std::printf("%s %d ranks, %d failures\n", failures == 0 ? "PASS" : "FAIL", size, failures);
  return failures == 0 ? 0 : 1;
}
