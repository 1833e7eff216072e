// SPDX-License-Identifier: Apache-2.0
//
// The example's training job, against the same job on a single rank (the loss curves agree) and on as
// many threads (the weights are the same, bit for bit, on one or two nodes: over more, the order in which nodes are
// added depends on where an element lies in its batch, and batches on time).
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include <kolo/kolo.hpp>

#include "examples/train_digits/trainer.hpp"
#include "tests/mpi/checks/check.hpp"
#include "tests/optimizer/digits_csv.hpp"

namespace {

using namespace train_digits;
using kolo::testing::Report;

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

void compare(Report& report, const std::string& what, const TrainResult& here, const TrainResult& alone,
             const TrainResult& threads, bool ordered, double tolerance) {
  report.check(here.losses.size() == alone.losses.size(), what + ": another number of epochs");
  for (std::size_t i = 0; i < here.losses.size(); ++i) {
    const double difference = std::abs(here.losses[i] / alone.losses.at(i) - 1);
    report.check(difference <= tolerance, what + ": the loss of epoch " + std::to_string(i) +
                                              " differs from a single rank's by " +
                                              std::to_string(difference / tolerance) + " tolerances");
  }
  report.check(here.losses.back() < 0.7 * here.losses.front(), what + ": it does not learn");
  report.check(!ordered || here.weights_hash == threads.weights_hash, what + ": threads train other weights");
}

const Results& on_one_rank(const Digits& digits) {
  static const Results results = [&] {
    kolo::Context context = kolo::Context::alone();
    const kolo::ContextGuard guard(context);
    return train_all(digits);
  }();
  return results;
}

/// On as many threads, cut into nodes like this world.
const Results& on_threads(const Digits& digits) {
  static std::map<std::pair<int, int>, Results> results;
  const std::pair shape(kolo::size(), kolo::local_size());
  if (results.count(shape) == 0) {
    kolo::run_local(
        shape.first,
        [&] {
          Results mine = train_all(digits);
          if (kolo::rank() == 0) {
            results[shape] = std::move(mine);
          }
        },
        kolo::Options{}.with_setting("KOLO_RANKS_PER_NODE", std::to_string(shape.second)));
  }
  return results.at(shape);
}

void check_training_curves(Report& report) {
  const Digits digits = load_digits(kolo::test::digits_csv());
  const Results here = train_all(digits);
  for (const TrainResult* result : {&here.floats, &here.doubles, &here.adamw}) {
    report.check(result->all_ranks_equal, "ranks hold different weights");
  }
  if (kolo::rank() != 0) {
    return;
  }
  const bool ordered = kolo::cross_size() <= 2;
  const Results& alone = on_one_rank(digits);
  const Results& threads = on_threads(digits);
  compare(report, "float32", here.floats, alone.floats, threads.floats, ordered, 1e-5);
  compare(report, "float64", here.doubles, alone.doubles, threads.doubles, ordered, 1e-12);
  compare(report, "float64 with adamw", here.adamw, alone.adamw, threads.adamw, ordered, 1e-12);
}

const kolo::testing::Registered
    registered({.name = "training_curves", .run = check_training_curves, .ranks = {2, 4}, .per_node = {0, 1, 2}});

}  // namespace
