// SPDX-License-Identifier: Apache-2.0
//
// A rank with two threads and two contexts: both threads submit random collectives to both contexts and wait for them
// in every manner that there is. Whoever may not wait polls. The public API alone, so that real jobs use it, too.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>

#include "tests/support/sanitized.hpp"

namespace kolo::testing {

/// What a thread found.
struct Findings {
  std::int64_t operations = 0;
  std::int64_t wrong = 0;         ///< elements
  std::string first_wrong;        ///< or the first unexpected error
  double longest_s = 0;           ///< from a submission to its end, when nobody computes
  std::string longest_operation;  ///< that took so long

  void add(const Findings& other) {
    operations += other.operations;
    wrong += other.wrong;
    if (first_wrong.empty()) first_wrong = other.first_wrong;
    if (other.longest_s > longest_s) {
      longest_s = other.longest_s;
      longest_operation = other.longest_operation;
    }
  }
};

/// One of the two threads of a rank. Which operations it starts follows from the seed, the same on all ranks; how it
/// waits for them does not.
class RandomCaller {
 public:
  using Contexts = std::array<Context*, 2>;

  RandomCaller(Contexts contexts, std::string name, bool may_wait, std::uint32_t seed)
      : contexts_(contexts), name_(std::move(name)), may_wait_(may_wait), agreed_(seed),
        own_(seed * 977U + static_cast<std::uint32_t>(contexts.front()->rank()) + 1U) {}

  /// One to four operations at once, on one of the contexts.
  void step() {
    context_ = contexts_[agreed_() % 2];
    const auto count = static_cast<std::size_t>(1 + (agreed_() % 3 == 0 ? agreed_() % 4 : 0));
    std::vector<Open> open;
    open.reserve(count);
    for (std::size_t i = 0; i < count; ++i) open.push_back(start(i));
    for (std::uint32_t pause = own_() % 4; pause > 0; --pause) std::this_thread::yield();
    if (may_wait_ && count > 1 && own_() % 2 == 0) {
      std::vector<Handle> handles;
      for (Open& one : open) handles.push_back(std::move(one.handle));
      wait_all(handles);
      for (Open& one : open) finish(one);
      return;
    }
    for (Open& one : open) {
      wait(one.handle);
      finish(one);
    }
  }

  /// Whether every rank says so: an all-reduce that waits.
  bool all_say(bool yes) {
    std::int32_t all = yes ? 1 : 0;
    allreduce(*contexts_.front(), name_ + "/end", view(&all, 1), AllreduceOptions{}.with_op(ReduceOp::min));
    return all == 1;
  }

  [[nodiscard]] const Findings& findings() const { return findings_; }

 private:
  enum class Kind : std::uint8_t { sum, broadcast, gather, barrier };
  struct Open {
    Kind kind = Kind::sum;
    std::string name;
    std::uint32_t salt = 0;
    int root = 0;
    std::vector<std::int32_t> data;
    std::vector<std::int32_t> gathered;
    Handle handle;
    std::chrono::steady_clock::time_point begin;
  };
  using Elements = std::vector<std::int32_t>;

  static std::int32_t term(const Open& open, std::size_t i, int rank) {
    return static_cast<std::int32_t>((open.salt + i * 7) % 1009) * (rank + 1);
  }

  Open start(std::size_t which) {
    constexpr std::array<std::size_t, 5> kLengths{1, 60, 2000, 30000, unless_sanitized<std::size_t>(150000, 50000)};
    Open open;
    open.kind = static_cast<Kind>(agreed_() % 4);
    open.salt = agreed_() % 100000;
    open.root = static_cast<int>(agreed_() % static_cast<std::uint32_t>(context_->size()));
    open.data.resize(kLengths[agreed_() % kLengths.size()] + agreed_() % 50);
    std::int32_t* const data = open.data.data();
    const int rank = context_->rank();
    for (std::size_t i = 0, count = open.data.size(); i < count; ++i) data[i] = term(open, i, rank);
    // A name is one kind's: with another it would be another signature every time.
    open.name = name_ + "/" + std::to_string(which) + "." + std::to_string(static_cast<int>(open.kind));
    open.begin = std::chrono::steady_clock::now();
    switch (open.kind) {
    case Kind::sum:
      open.handle = allreduce_async(*context_, open.name, view(open.data));
      break;
    case Kind::broadcast:
      open.handle = broadcast_async(*context_, open.name, view(open.data), open.root);
      break;
    case Kind::gather:
      open.gathered.assign(open.data.size() * static_cast<std::size_t>(context_->size()), -1);
      open.handle = allgather_into_async(*context_, open.name, const_view(open.data), view(open.gathered));
      break;
    case Kind::barrier:
      open.handle = barrier_async(*context_, open.name);
      break;
    }
    return open;
  }

  static void rest() { std::this_thread::yield(); }

  void wait(Handle& handle) {
    switch (own_() % (may_wait_ ? 6 : 4)) {
    case 0:
      while (!handle.done()) rest();
      break;
    case 1:
      while (!handle.status()) rest();
      break;
    case 2:
      while (!handle.wait_for(std::chrono::nanoseconds(0))) rest();
      break;
    case 3: {
      const auto called = std::make_shared<std::atomic<bool>>(false);  // the callback outlives a failed wait
      handle.on_done([called](const Status&) { called->store(true); });
      while (!called->load()) {
        static_cast<void>(handle.done());
        rest();
      }
      break;
    }
    case 4:
      while (!handle.wait_for(std::chrono::microseconds(200))) rest();
      break;
    default:
      handle.wait();
      break;
    }
  }

  void finish(const Open& open) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - open.begin;
    ++findings_.operations;
    if (took.count() > findings_.longest_s) {
      findings_.longest_s = took.count();
      findings_.longest_operation = describe(open);
    }
    if (open.handle.valid()) {
      if (const std::optional<Status> status = open.handle.status(); status && !status->ok()) throw Error(*status);
    }
    const auto size = static_cast<std::int32_t>(context_->size());
    switch (open.kind) {
    case Kind::sum:
      check(open, open.data, [&](std::size_t i) { return term(open, i, 0) * (size * (size + 1) / 2); });
      break;
    case Kind::broadcast:
      check(open, open.data, [&](std::size_t i) { return term(open, i, open.root); });
      break;
    case Kind::gather:
      check(open, open.gathered,
            [&, each = open.data.size()](std::size_t i) { return term(open, i % each, static_cast<int>(i / each)); });
      break;
    case Kind::barrier:
      break;
    }
  }

  template <class Wanted>
  void check(const Open& open, const Elements& elements, Wanted wanted) {
    const std::int32_t* const got = elements.data();
    for (std::size_t i = 0, count = elements.size(); i < count; ++i) {
      if (got[i] == wanted(i)) continue;
      if (findings_.wrong++ == 0) {
        findings_.first_wrong = describe(open) + ": element " + std::to_string(i) + " is " + std::to_string(got[i]) +
                                ", not " + std::to_string(wanted(i));
      }
    }
  }

  [[nodiscard]] std::string describe(const Open& open) const {
    return "\"" + open.name + "\" of " + std::to_string(open.data.size()) + " elements on rank " +
           std::to_string(context_->rank());
  }

  const Contexts contexts_;
  const std::string name_;
  const bool may_wait_;
  std::mt19937 agreed_;  // the same draws on all ranks
  std::mt19937 own_;
  Context* context_ = nullptr;
  Findings findings_;
};

struct TwoThreads {
  bool both_wait = true;  ///< any thread may wait; else only the calling one
  int steps = 100;
  std::uint32_t seed = 1;
};

/// What the two threads of a rank do. The calling one goes on until the other one has done its steps on all ranks,
/// which begin with `at_first`.
template <class AtFirst>
Findings run_two_threads(Context& first, Context& second, const TwoThreads& what, AtFirst at_first) {
  Findings of_other;
  std::atomic<bool> other_is_done{false};
  std::thread other([&] {
    RandomCaller caller({&first, &second}, "other", what.both_wait, what.seed);
    try {
      at_first(of_other);
      for (int step = 0; step < what.steps; ++step) caller.step();
    } catch (const std::exception& error) {
      of_other.first_wrong = error.what();
    }
    of_other.add(caller.findings());
    other_is_done.store(true);
  });
  RandomCaller caller({&first, &second}, "own", true, what.seed + 1);
  Findings findings;
  try {
    for (int step = 0; step < what.steps; ++step) caller.step();
    while (!caller.all_say(other_is_done.load())) caller.step();
  } catch (const std::exception& error) {
    findings.first_wrong = error.what();
  }
  other.join();
  findings.add(caller.findings());
  findings.add(of_other);
  return findings;
}

}  // namespace kolo::testing
