// SPDX-License-Identifier: Apache-2.0
//
// A simulated elastic job: a keeper, processes that behave as ranks of Kolo do, and queues of notices between them. A
// world says what may happen next, and makes one of these things happen. It checks after each what keeper.hpp promises.
// It is a value: a copy goes on by itself, and two worlds in the same state are equal.
#pragma once

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "membership/keeper.hpp"
#include "membership/member_side.hpp"

namespace kolo::membership {

/// How often something may go wrong, or change, in a world.
struct Faults {
  int deaths = 0;    ///< a process is killed; the next one may die before anybody has heard of it
  int stops = 0;     ///< a process is stopped for ever
  int frozen = 0;    ///< the same, and the system cannot end it
  int pauses = 0;    ///< a process is stopped, and goes on before anybody loses patience
  int joins = 0;     ///< a process comes from elsewhere
  int leaves = 0;    ///< a process wants out
  int errors = 0;    ///< a fatal error of its own ends a process's part in its generation
  int silences = 0;  ///< a process closes its connection, and runs on
  int losses = 0;    ///< a kolo-run is lost, and its processes with it
  int exits = 0;     ///< a process ends with status 0 in the middle of its work
  int ends = 0;      ///< the job is ended from outside
  int times = 1000;  ///< time passes

  auto operator<=>(const Faults&) const = default;
};

class World {
 public:
  enum class What : std::uint8_t {
    hear,  ///< the keeper hears the process's next notice, or of its end
    tell,  ///< the process hears the keeper's next notice
    want_in,
    start,
    fail_to_start,
    go_out,
    finish,
    exit,
    go_on,  // by the process itself
    die,
    stop,
    freeze,
    pause,
    join,
    leave,
    err,
    fall_silent,
    lose_parent,
    exit_early,
    end_job,  // faults
    time,
    live_long,
  };
  struct Choice {
    What what;
    std::size_t process;
  };

  /// `finishes`: the processes finish their work sooner or later.
  World(const JobLimits& limits, int processes, int per_parent, const Faults& faults, bool finishes)
      : limits_(limits), keeper_(limits), faults_(faults), per_parent_(per_parent), finishes_(finishes) {
    for (int slot = 0; slot < processes; ++slot) add(slot);
    obey();
  }

  /// What happens by itself.
  [[nodiscard]] std::vector<Choice> steps() const {
    std::vector<Choice> all;
    for (std::size_t i = 0; i < actors_.size(); ++i) add_steps(i, all);
    return all;
  }
  /// What goes wrong, or changes.
  [[nodiscard]] std::vector<Choice> faults() const {
    std::vector<Choice> all;
    for (std::size_t i = 0; i < actors_.size(); ++i) add_faults(i, all);
    if (faults_.joins > 0) all.push_back({What::join, 0});
    if (faults_.ends > 0) all.push_back({What::end_job, 0});
    return all;
  }
  /// Time may pass if no process that runs owes an answer.
  [[nodiscard]] std::vector<Choice> times() const {
    const auto is_question = [](const Item& item) {
      return item.notice.topic == Topic::ask || (item.end == End::none && item.notice.topic == Topic::alive);
    };
    const bool is_owed = std::any_of(actors_.begin(), actors_.end(), [&](const Actor& one) {
      return !one.dead && (!one.stopped || one.paused) &&
             (one.paused || std::any_of(one.down.begin(), one.down.end(), is_question) ||
              std::any_of(one.up.begin(), one.up.end(), is_question));
    });
    if (faults_.times <= 0 || is_owed) return {};
    return {{is_awaited() ? What::time : What::live_long, 0}};
  }
  [[nodiscard]] bool somebody_is_stopped() const {
    return std::any_of(actors_.begin(), actors_.end(), [](const Actor& one) { return one.stopped && !one.dead; });
  }
  /// The keeper waits for a time.
  [[nodiscard]] bool is_awaited() const { return keeper_.due() != base::Time::max(); }

  void take(const Choice& choice) {
    Actor& actor = actors_[choice.process];
    switch (choice.what) {
    case What::hear:
      hear(choice.process);
      break;
    case What::tell:
      tell(actor);
      break;
    case What::want_in:
      go_out(actor);
      break;
    case What::start:
      go_to(actor, Phase::running, actor.member.started());
      break;
    case What::fail_to_start:
    case What::go_out:
      go_out(actor);
      break;
    case What::finish:
      go_to(actor, Phase::finished, actor.member.done());
      break;
    case What::exit:
      die(actor, End::well);
      break;
    case What::go_on:
      actor.paused = actor.stopped = false;
      break;
    case What::die:
      --faults_.deaths, die(actor, End::badly);
      break;
    case What::stop:
      --faults_.stops, actor.stopped = true;
      break;
    case What::freeze:
      --faults_.frozen, actor.stopped = actor.frozen = true;
      break;
    case What::pause:
      --faults_.pauses, actor.paused = actor.stopped = true;
      break;
    case What::join:
      --faults_.joins, add(100 + static_cast<Slot>(actors_.size()));
      break;
    case What::leave:
      --faults_.leaves, actor.wants_out = true, say(actor, actor.member.leaving());
      break;
    case What::err:
      --faults_.errors, go_out(actor);
      break;
    case What::fall_silent:
      --faults_.silences, fall_silent(actor);
      break;
    case What::lose_parent:
      --faults_.losses, lose(actor.parent);
      break;
    case What::exit_early:
      --faults_.exits, die(actor, End::well);
      break;
    case What::end_job:
      --faults_.ends, keeper_.end("somebody has ended the job", now_);
      break;
    case What::time:
      pass(std::max(now_, keeper_.due()));
      break;
    case What::live_long:
      pass(now_ + 2 * kEarly);
      break;
    }
    obey();
  }

  /// The first promise that was broken; empty: none was.
  [[nodiscard]] const std::string& broken() const noexcept { return broken_; }

  /// When nothing happens any more: empty, or what is wrong with that.
  [[nodiscard]] std::string verdict() const {
    if (!broken_.empty()) return broken_;
    const bool has_ended = !keeper_.ended().empty();
    int ranks = 0;
    int waiting = 0;
    int deaf = 0;
    for (std::size_t i = 0; i < actors_.size(); ++i) {
      const Actor& actor = actors_[i];
      if (actor.dead) continue;
      if (actor.stopped || actor.silent) ++deaf;
      if (actor.stopped || actor.silent) continue;
      if (actor.phase == Phase::waiting) ++waiting;
      if (actor.phase == Phase::starting) return name(i) + " starts for ever";
      if (actor.phase != Phase::running && actor.phase != Phase::finished) continue;
      if (!has_ended && actor.member.generation() != generation_) return name(i) + " was left behind";
      ++ranks;
    }
    if (waiting > 0 && (has_ended || ranks + deaf < limits_.most)) return "a process waits, and nothing comes";
    if (has_ended || (ranks == 0 && deaf > 0)) return "";  // nobody is left who could notice
    if (finishes_) return "the work is never done";
    return ranks < limits_.least ? "too few go on" : "";
  }

  [[nodiscard]] const Keeper& keeper() const noexcept { return keeper_; }
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  [[nodiscard]] int kills() const noexcept { return kills_; }
  [[nodiscard]] int respawns() const noexcept { return respawns_; }

  auto operator<=>(const World&) const = default;

 private:
  enum class Phase : std::uint8_t { building, waiting, starting, running, finished };
  enum class End : std::uint8_t { none, silent, well, badly };
  /// A notice, or the news of an end.
  struct Item {
    Notice notice;
    End end = End::none;
    auto operator<=>(const Item&) const = default;
  };
  struct Actor {
    Slot slot = 0;
    Parent parent = 0;
    Phase phase = Phase::building;
    bool dead = false;
    bool stopped = false;
    bool paused = false;  // stopped, and goes on
    bool frozen = false;
    bool silent = false;
    bool wants_out = false;
    bool is_reaped = false;  // and the keeper knows
    base::Time taken_in = base::Time::max();
    base::Time silent_since = base::Time::min();  // so that the keeper knows
    MemberSide member;
    std::deque<Item> up;
    std::deque<Item> down;
    auto operator<=>(const Actor&) const = default;
  };

  static std::string name(std::size_t process) { return "process " + std::to_string(process); }

  void add(Slot slot) {
    Actor actor;
    actor.slot = slot;
    actor.parent = slot / per_parent_;
    if (lost_.count(actor.parent) != 0) actor.parent = 1000 + slot;
    actors_.push_back(actor);
    keeper_.born(actors_.size() - 1, actor.slot, actor.parent, now_);
  }

  // -------------------------------------------------------------- what may happen

  /// A member of the generation is gone from it, so that a call or a start may fail.
  [[nodiscard]] bool is_troubled(std::uint64_t generation) const {
    const auto& members = generations_.at(generation);
    return std::any_of(members.begin(), members.end(), [&](std::size_t one) {
      const Actor& other = actors_[one];
      return other.dead || other.stopped || other.silent || has_left(other, generation);
    });
  }
  [[nodiscard]] static bool has_left(const Actor& actor, std::uint64_t generation) {
    return actor.member.generation() > generation || actor.member.farewell() ||
           (actor.member.generation() == generation && actor.phase == Phase::waiting);
  }
  [[nodiscard]] bool all_have_come(std::uint64_t generation) const {
    const auto& members = generations_.at(generation);
    return std::all_of(members.begin(), members.end(),
                       [&](std::size_t one) { return actors_[one].member.generation() >= generation; });
  }

  void add_steps(std::size_t i, std::vector<Choice>& all) const {
    const Actor& actor = actors_[i];
    if (!actor.up.empty()) all.push_back({What::hear, i});
    if (actor.paused && !actor.dead) all.push_back({What::go_on, i});
    if (actor.dead || actor.stopped) return;
    if (!actor.down.empty()) all.push_back({What::tell, i});
    if (actor.member.farewell()) all.push_back({What::exit, i});
    if (actor.member.farewell() || actor.silent) return;
    const std::uint64_t generation = actor.member.generation();
    const auto may = [&](What what, bool condition) {
      if (condition) all.push_back({what, i});
    };
    switch (actor.phase) {
    case Phase::building:
      may(What::want_in, true);
      break;
    case Phase::waiting:
      break;
    case Phase::starting:
      may(What::start,
          all_have_come(generation) && (actor.member.place().rank == 0 || actor.member.entry_of_rank_0().has_value()));
      may(What::fail_to_start, !actor.member.trouble().empty());  // nothing else tells it
      break;
    case Phase::running:
      may(What::go_out, is_troubled(generation) || actor.member.change_is_due());
      may(What::finish, finishes_ && !is_troubled(generation));
      break;
    case Phase::finished:
      may(What::go_out, actor.member.change_is_due());
      break;
    }
  }

  void add_faults(std::size_t i, std::vector<Choice>& all) const {
    const Actor& actor = actors_[i];
    if (actor.dead || actor.frozen) return;
    const auto may = [&](What what, int left, bool condition) {
      if (left > 0 && condition) all.push_back({what, i});
    };
    may(What::die, faults_.deaths, true);
    may(What::lose_parent, faults_.losses, true);
    if (actor.stopped || actor.silent || actor.member.farewell()) return;
    may(What::stop, faults_.stops, true);
    may(What::freeze, faults_.frozen, true);
    may(What::pause, faults_.pauses, true);
    may(What::fall_silent, faults_.silences, true);
    may(What::leave, faults_.leaves, !actor.wants_out);
    may(What::err, faults_.errors, actor.phase == Phase::starting || actor.phase == Phase::running);
    may(What::exit_early, faults_.exits, actor.phase == Phase::running);
  }

  // -------------------------------------------------------------- what happens

  static void say(Actor& actor, Notice notice) {
    if (!actor.silent) actor.up.push_back({std::move(notice), End::none});
  }
  static void go_to(Actor& actor, Phase phase, Notice notice) {
    say(actor, std::move(notice));
    actor.phase = phase;
  }
  static void go_out(Actor& actor) { go_to(actor, Phase::waiting, actor.member.ready()); }
  /// Its connection ends before its parent has reaped it.
  static void die(Actor& actor, End end) {
    actor.dead = true;
    if (!actor.silent) actor.up.push_back({{}, End::silent});
    actor.up.push_back({{}, end});
  }
  static void fall_silent(Actor& actor) {
    actor.up.push_back({{}, End::silent});
    actor.silent = true;
  }
  void lose(Parent parent) {
    lost_.insert(parent);
    for (Actor& actor : actors_) {
      if (actor.parent != parent || actor.frozen) continue;
      actor.dead = actor.is_reaped = true;
      actor.up.clear();
    }
    keeper_.lost(parent, now_);
  }
  void pass(base::Time until) {
    --faults_.times;
    now_ = until;
    keeper_.tick(now_);
  }

  void hear(std::size_t process) {
    Actor& actor = actors_[process];
    const Item item = actor.up.front();
    actor.up.pop_front();
    if (item.end == End::none) {
      keeper_.heard(process, item.notice, now_);
    } else if (item.end == End::silent) {
      actor.silent_since = now_;
      keeper_.silent(process, now_);
    } else {
      actor.is_reaped = true;
      keeper_.died(process, item.end == End::well, now_);
    }
  }

  static void tell(Actor& actor) {
    const Notice notice = actor.down.front().notice;
    actor.down.pop_front();
    if (actor.silent) return;
    if (const std::optional<Notice> answer = actor.member.hear(notice)) say(actor, *answer);
    if (notice.topic != Topic::next) return;
    actor.phase = Phase::starting;
    if (notice.rank == 0) say(actor, actor.member.entry(entry_of(notice.generation)));
  }
  static std::string entry_of(std::uint64_t generation) { return "of generation " + std::to_string(generation); }

  void obey() {
    for (const Act& act : keeper_.take()) {
      switch (act.kind) {
      case Act::Kind::send:
        deliver(act);
        break;
      case Act::Kind::kill:
        kill(act.process);
        break;
      case Act::Kind::spawn:
        respawn(act.slot);
        break;
      case Act::Kind::report:
        break;
      }
    }
    if (std::exchange(began_, false)) check_generation();
    if (!std::exchange(has_given_up_, keeper_.gave_up()) && has_given_up_) check_end();
  }

  void deliver(const Act& act) {
    const Notice& notice = act.notice;
    if (notice.topic == Topic::next) take_in(act);
    if (notice.topic == Topic::entry) check_entry(act);
    if (!notice.text.empty() && notice.topic == Topic::change && !is_troubled(notice.generation)) {
      complain("nobody is gone from generation " + std::to_string(notice.generation));
    }
    Actor& actor = actors_[act.process];
    if (!actor.dead) actor.down.push_back({notice, End::none});
  }

  void take_in(const Act& act) {
    const Notice& notice = act.notice;
    generation_ = notice.generation;
    began_ = true;
    auto& members = generations_[generation_];
    if (notice.rank != static_cast<int>(members.size())) complain("ranks are not given in order");
    members.push_back(static_cast<std::size_t>(act.process));
    sizes_.insert({generation_, notice.size});
    base::Time& taken_in = actors_[act.process].taken_in;
    taken_in = std::min(taken_in, now_);
  }

  void kill(Process process) {
    Actor& actor = actors_[process];
    ++kills_;
    const bool answers = !actor.dead && !actor.silent && (!actor.stopped || actor.paused);
    if (answers) complain(name(process) + " was killed although it answers");
    if (!actor.frozen && !actor.dead) die(actor, End::badly);
  }

  // -------------------------------------------------------------- promises

  void complain(const std::string& what) {
    if (broken_.empty()) broken_ = what;
  }

  void check_entry(const Act& act) {
    const auto& members = generations_[generation_];
    if (act.notice.text != entry_of(generation_)) complain("an entry of another generation, or not of rank 0");
    if (std::find(members.begin(), members.end(), act.process) == members.end()) complain("an entry for no member");
  }

  /// A generation has begun.
  void check_generation() {
    const auto& now = generations_[generation_];
    const int size = static_cast<int>(now.size());
    if (sizes_.size() != generations_.size() || sizes_.count({generation_, size}) == 0) {
      complain("the ranks of a generation have been told different sizes");
    }
    if (size < limits_.least || size > limits_.most) complain("a generation of " + std::to_string(size));
    if (std::set<std::size_t>(now.begin(), now.end()).size() != now.size()) complain("a process is two ranks");
    for (const std::size_t one : now) {
      if (actors_[one].is_reaped) complain(name(one) + " is dead, and a rank");
      if (!actors_[one].dead && actors_[one].phase != Phase::waiting) complain(name(one) + " was not ready");
    }
    if (generation_ == 1) return;
    const auto& before = generations_[generation_ - 1];
    for (const std::size_t one : before) {
      const Actor& actor = actors_[one];
      const bool is_out = actor.dead || actor.frozen || actor.silent || actor.phase == Phase::waiting;
      if (!is_out) complain(name(one) + " is still in generation " + std::to_string(generation_ - 1));
    }
    check_order(before, now);
  }

  /// Those of the generation before come first, in their order.
  void check_order(const std::vector<std::size_t>& before, const std::vector<std::size_t>& now) {
    std::vector<std::ptrdiff_t> places;
    for (const std::size_t one : now) places.push_back(std::find(before.begin(), before.end(), one) - before.begin());
    if (!std::is_sorted(places.begin(), places.end())) complain("the old ranks have not kept their order");
  }

  /// The keeper has given up.
  void check_end() {
    if (keeper_.ended().find("no other can come") == std::string::npos || limits_.respawns == 0) return;
    for (std::size_t i = 0; i < actors_.size(); ++i) {
      const Actor& actor = actors_[i];
      const bool is_news = actor.dead && !actor.is_reaped && actor.silent_since == now_;
      const bool is_left_out = actor.wants_out || actor.stopped;
      if (is_news && !is_left_out && actor.up.back().end == End::badly && !has_ended_early_twice(actor.slot)) {
        complain("the keeper gave up, and would have started " + name(i) + " again");
      }
    }
  }

  /// The last two processes of the slot.
  [[nodiscard]] bool has_ended_early_twice(Slot slot) const {
    const Actor* last[2] = {nullptr, nullptr};
    for (const Actor& actor : actors_) {
      if (actor.slot == slot) last[0] = std::exchange(last[1], &actor);
    }
    const auto is_early = [&](const Actor* one) {
      return one != nullptr && (one->taken_in == base::Time::max() || now_ < one->taken_in + kEarly);
    };
    return is_early(last[0]) && is_early(last[1]);
  }

  void respawn(Slot slot) {
    ++respawns_;
    const auto is_in_it = [&](const Actor& one) { return one.slot == slot && !one.is_reaped; };
    if (std::any_of(actors_.begin(), actors_.end(), is_in_it)) complain("two processes in one slot");
    if (has_ended_early_twice(slot)) complain("respawned after two early deaths");
    add(slot);
  }

  JobLimits limits_;
  Keeper keeper_;
  Faults faults_;
  int per_parent_;
  bool finishes_;
  base::Time now_{std::chrono::hours(1)};
  std::vector<Actor> actors_;
  std::set<Parent> lost_;
  std::map<std::uint64_t, std::vector<std::size_t>> generations_;  // members by rank
  std::set<std::pair<std::uint64_t, int>> sizes_;
  std::uint64_t generation_ = 0;
  bool began_ = false;
  bool has_given_up_ = false;
  int kills_ = 0;
  int respawns_ = 0;
  std::string broken_;
};

}  // namespace kolo::membership
