// SPDX-License-Identifier: Apache-2.0
//
// Programs for the simulated ranks: a training loop, and random programs that are free of deadlocks of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/simulator/world.hpp"

namespace kolo::simulator {

/// Goes on with these.
inline void add(Program& program, std::initializer_list<Op> ops) { program.insert(program.end(), ops); }

/// All of a kind that the log has.
template <class Entry>
std::vector<Entry> entries_of(const World& world) {
  std::vector<Entry> found;
  for (const control::LogEntry& entry : world.log()) {
    if (const auto* match = std::get_if<Entry>(&entry)) found.push_back(*match);
  }
  return found;
}

/// Allreduces of float32, each of another length, so that no two are equal.
inline std::vector<core::Signature> allreduces(int count) {
  std::vector<core::Signature> signatures;
  for (int i = 0; i < count; ++i) {
    core::Signature signature;
    signature.tensors.push_back({DType::float32, Shape{16 + i}});
    signatures.push_back(std::move(signature));
  }
  return signatures;
}

/// The same with priorities: `priorities` different ones, as many of each.
inline std::vector<core::Signature> allreduces(int count, int priorities) {
  std::vector<core::Signature> signatures = allreduces(count);
  for (int i = 0; i < count; ++i) signatures[static_cast<std::size_t>(i)].priority = i % priorities - 1;
  return signatures;
}

struct Training {
  int tensors = 20;
  int steps = 6;
  int metric_every = 0;   ///< an unplanned tensor each so many steps; 0: never
  bool shuffled = true;   ///< every rank submits in an order of its own, another in every step
  bool end_steps = true;  ///< calls end_step
};

/// Signature i is tensor i's, the next one the metric's.
inline Program training_program(const Training& training, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> order;
  for (int i = training.tensors - 1; i >= 0; --i) order.push_back(i);
  Program program;
  for (int step = 0; step < training.steps; ++step) {
    if (training.shuffled) std::shuffle(order.begin(), order.end(), random);
    for (const int i : order) program.push_back(submit("grad" + std::to_string(i), i));
    program.push_back(wait_all());
    if (training.metric_every > 0 && step % training.metric_every == 0) {
      program.push_back(submit("loss", training.tensors));
      program.push_back(wait("loss"));
    }
    if (training.end_steps) program.push_back(end_step());
  }
  program.push_back(leave());
  return program;
}

struct Random {
  int phases = 12;
  int names = 12;
  int sets = 2;       ///< made in the beginning, besides the world's
  bool churn = true;  ///< sets are made and dropped while the others run
  bool mismatches = true;
  bool changes = true;  ///< of signatures
  bool end_steps = true;
  bool joins = true;
  bool unnamed = true;  ///< calls without a name
};

/// One program a rank. Sets are made by their members at the end of a phase, in one order; and dropped there, by each
/// member when it comes by. In some phases all ranks submit in one order, with waits where each likes; in the others
/// each submits in an order of its own and waits for nothing but what is still in flight from an earlier phase, or for
/// everything at the end. In between all members of a set join: each has come to another place of one list of calls by
/// then, and submits some more, for which nobody need come.
class RandomPrograms {
 public:
  RandomPrograms(const Random& random, int ranks, std::uint64_t seed)
      : shape_(random), random_(seed), programs_(static_cast<std::size_t>(ranks)) {
    std::vector<std::int32_t> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
    add_members(all);
    for (int i = 0; i < shape_.sets; ++i) make_set();
    for (int phase = 0; phase < shape_.phases; ++phase) {
      make_phase();
      if (shape_.joins && draw(3) == 0) make_join();
      if (shape_.churn && draw(3) == 0) drop_set();
      if (shape_.churn && draw(2) == 0) make_set();
    }
    for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
      Program& program = programs_[rank];
      program.push_back(wait_all());
      if (shape_.sets > 0 && is_alive_[1] && is_member(rank, 1)) program.push_back(simulator::drop_set(1));
      program.push_back(leave());
    }
  }
  [[nodiscard]] std::vector<Program>& programs() { return programs_; }
  static constexpr int kSignatures = 8;

 private:
  struct Call {
    int set = 0;
    std::string name;
    std::vector<int> signatures;  ///< by rank
    bool is_unnamed = false;      ///< these have one order on all ranks
    std::size_t waited_for = 0;   ///< of an unnamed one: on about so many of kAll ranks
  };
  static constexpr std::size_t kAll = 4;

  std::size_t draw(std::size_t below) { return random_() % below; }

  void add_members(const std::vector<std::int32_t>& members) {
    members_.push_back(members);
    is_alive_.push_back(true);
    signature_of_.resize(members_.size() * static_cast<std::size_t>(shape_.names), 0);
  }

  void make_set() {
    std::vector<std::int32_t> members;
    for (const std::int32_t rank : members_.front()) {
      if (draw(2) == 0) members.push_back(rank);
    }
    if (members.empty()) members.push_back(0);
    std::vector<std::int32_t> order = members;
    std::shuffle(order.begin(), order.end(), random_);
    const std::string name = draw(2) == 0 ? "" : "pair";
    const auto set = static_cast<int>(members_.size());
    add_members(members);
    is_alive_.back() = !shape_.mismatches || members.size() == 1 || draw(10) != 0;
    for (const std::int32_t rank : members) {
      Program& program = programs_[static_cast<std::size_t>(rank)];
      // One that gives another order: ranks disagree, and there is no such set.
      if (!is_alive_.back() && rank == members.front()) std::swap(order.front(), order.back());
      program.push_back(simulator::make_set(set, order, name));
      if (!is_alive_.back() && rank == members.front()) std::swap(order.front(), order.back());
    }
  }

  void drop_set() {
    const auto set = static_cast<int>(draw(members_.size()));
    if (set == 0 || !is_alive_[static_cast<std::size_t>(set)]) return;
    is_alive_[static_cast<std::size_t>(set)] = false;
    for (const std::int32_t rank : members_[static_cast<std::size_t>(set)]) {
      Program& program = programs_[static_cast<std::size_t>(rank)];
      if (draw(4) == 0) program.push_back(pause(draw(300)));
      program.push_back(simulator::drop_set(set));
    }
  }

  Op request(const Call& call, std::size_t rank) {
    const int signature = call.signatures[rank];
    if (!call.is_unnamed) return submit(call.name, signature, call.set);
    return draw(kAll) < call.waited_for ? simulator::call(signature, call.set) : launch(signature, call.set);
  }

  Call make_call(int set, int name) {
    Call call{set, "t" + std::to_string(name), {}};
    int& signature = signature_of_[static_cast<std::size_t>(set * shape_.names + name)];
    if (shape_.changes && draw(12) == 0) signature = static_cast<int>(draw(kSignatures));
    call.signatures.assign(programs_.size(), signature);
    if (shape_.mismatches && draw(25) == 0) {
      for (int& s : call.signatures) s = draw(2) == 0 ? signature : static_cast<int>(draw(kSignatures));
    }
    return call;
  }

  Call make_unnamed(int set) {
    Call call{set, "", {}, true, draw(kAll + 1)};
    const auto signature = static_cast<int>(draw(kSignatures));
    call.signatures.assign(programs_.size(), signature);
    if (shape_.mismatches && draw(25) == 0) {
      for (int& s : call.signatures) s = draw(2) == 0 ? signature : static_cast<int>(draw(kSignatures));
    }
    return call;
  }

  /// Often several of one signature, which all or no ranks wait for.
  void add_unnamed(std::vector<Call>& calls, int set) {
    if (!shape_.unnamed || draw(3) == 0) return;
    const std::size_t waited_for = draw(kAll + 1);
    for (std::size_t i = draw(12); i > 0; --i) {
      Call call = make_unnamed(set);
      if (draw(4) != 0) call.waited_for = waited_for;
      calls.push_back(call);
      for (std::size_t more = draw(3) == 0 ? draw(8) : 0; more > 0; --more) calls.push_back(call);
    }
  }

  /// In whatever order, but for those that have one.
  void shuffle(std::vector<Call>& calls) {
    std::vector<Call> ordered;
    for (const Call& call : calls) {
      if (call.is_unnamed) ordered.push_back(call);
    }
    std::shuffle(calls.begin(), calls.end(), random_);
    auto next = ordered.begin();
    for (Call& call : calls) {
      if (call.is_unnamed) call = *next++;
    }
  }

  static Op wait_of(const Call& call) { return call.is_unnamed ? wait_launched(call.set) : wait(call.name, call.set); }

  void make_phase() {
    std::vector<Call> calls;
    for (std::size_t set = 0; set < members_.size(); ++set) {
      if (!is_alive_[set]) continue;
      std::vector<int> names;
      for (int name = 0; name < shape_.names; ++name) {
        if (draw(10) != 0) names.push_back(name);
      }
      for (const int name : names) calls.push_back(make_call(static_cast<int>(set), name));
      add_unnamed(calls, static_cast<int>(set));
    }
    std::shuffle(calls.begin(), calls.end(), random_);
    const bool one_order = draw(2) == 0;
    const bool wait_at_end = draw(2) == 0;
    for (std::size_t rank = 0; rank < programs_.size(); ++rank) write_phase(rank, calls, one_order, wait_at_end);
  }

  void make_join() {
    const std::size_t set = draw(members_.size());
    if (!is_alive_[set]) return;
    const auto draw_name = [this] { return static_cast<int>(draw(static_cast<std::size_t>(shape_.names))); };
    std::vector<Call> calls;
    std::vector<bool> ends_step;
    for (std::size_t i = draw(2 * static_cast<std::size_t>(shape_.names)); i > 0; --i) {
      const bool is_unnamed = shape_.unnamed && draw(3) == 0;
      calls.push_back(is_unnamed ? make_unnamed(static_cast<int>(set)) : make_call(static_cast<int>(set), draw_name()));
      ends_step.push_back(shape_.end_steps && draw(6) == 0);
    }
    for (const std::int32_t rank : members_[set]) {
      Program& program = programs_[static_cast<std::size_t>(rank)];
      if (draw(4) == 0) program.push_back(pause(draw(300)));
      const std::size_t end = draw(calls.size() + 1);
      for (std::size_t i = 0; i < end; ++i) {
        program.push_back(request(calls[i], static_cast<std::size_t>(rank)));
        if (draw(5) == 0) program.push_back(wait_of(calls[i]));
        if (ends_step[i]) program.push_back(end_step(calls[i].set));
      }
      std::vector<bool> is_there(static_cast<std::size_t>(shape_.names), false);
      for (std::size_t more = shape_.unnamed ? draw(4) : 0; more > 0; --more) {
        program.push_back(launch(static_cast<int>(draw(kSignatures)), static_cast<int>(set)));
      }
      for (std::size_t more = draw(3); more > 0; --more) {
        const int name = draw_name();
        if (is_there[static_cast<std::size_t>(name)]) continue;
        is_there[static_cast<std::size_t>(name)] = true;
        const Call call = make_call(static_cast<int>(set), name);
        program.push_back(submit(call.name, call.signatures[static_cast<std::size_t>(rank)], call.set));
      }
      program.push_back(simulator::join(static_cast<int>(set)));
    }
  }

  bool is_member(std::size_t rank, int set) const {
    const auto& members = members_[static_cast<std::size_t>(set)];
    return std::binary_search(members.begin(), members.end(), static_cast<std::int32_t>(rank));
  }

  void write_phase(std::size_t rank, std::vector<Call> calls, bool one_order, bool wait_at_end) {
    Program& program = programs_[rank];
    if (!one_order) shuffle(calls);
    if (draw(6) == 0) program.push_back(pause(draw(300)));  // a rank that is late
    for (const Call& call : calls) {
      if (!is_member(rank, call.set)) continue;
      program.push_back(request(call, rank));
      if (one_order && draw(5) == 0) program.push_back(wait_of(call));
      if (draw(15) == 0) program.push_back(poll());
    }
    if (wait_at_end) program.push_back(wait_all());
    for (std::size_t set = 0; shape_.end_steps && set < members_.size(); ++set) {
      if (is_alive_[set] && is_member(rank, static_cast<int>(set))) program.push_back(end_step(static_cast<int>(set)));
    }
  }

  const Random shape_;
  std::mt19937_64 random_;
  std::vector<Program> programs_;
  std::vector<std::vector<std::int32_t>> members_;  ///< by set
  std::vector<bool> is_alive_;                      ///< by set: made, and not dropped
  std::vector<int> signature_of_;                   ///< by set and name
};

}  // namespace kolo::simulator
