// SPDX-License-Identifier: Apache-2.0
#include "membership/keeper.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace kolo::membership {
namespace {

constexpr int kMostEarlyEnds = 2;
/// So often a process is asked within the time that it has to answer.
constexpr int kQuestions = 4;

std::string seconds_of(base::Duration duration) { return base::spell(base::to_seconds(duration), 4) + " s"; }

}  // namespace

// ---------------------------------------------------------------- what is so

bool Keeper::is_member(Process process) const {
  return std::find(members_.begin(), members_.end(), process) != members_.end();
}

/// Whether a member may still use the memory and the connections of its generation.
bool Keeper::is_inside(const Life& life) {
  return life.state == State::starting || life.state == State::member || life.state == State::finished;
}

bool Keeper::is_pressed(const Life& life) const {
  const bool is_awaited = life.state == State::starting || (somebody_waits_ && ended_.empty() && is_inside(life));
  return is_awaited && !life.killed && !life.silent;
}

bool Keeper::may_come() const {
  const bool respawns = respawned_ < limits_.respawns;
  return unborn_ > 0 || std::any_of(lives_.begin(), lives_.end(), [&](const auto& each) {
           const Life& life = each.second;
           return life.silent ? respawns && life.state != State::dismissed : life.state == State::building;
         });
}

std::vector<Process> Keeper::candidates() const {
  std::vector<Process> all;
  for (const Process member : members_) {
    if (!lives_.at(member).silent) all.push_back(member);
  }
  std::map<std::uint64_t, Process> waiting;
  for (const auto& [process, life] : lives_) {
    if (life.state == State::waiting && !life.silent) waiting.emplace(life.arrival, process);
  }
  for (const auto& [arrival, process] : waiting) all.push_back(process);
  all.resize(std::min(all.size(), static_cast<std::size_t>(limits_.most)));
  return all;
}

std::string Keeper::describe(Process process) const {
  const auto found = lives_.find(process);
  if (found == lives_.end() || found->second.place.size == 0) return "a process that was no rank yet";
  const Notice& place = found->second.place;
  return "rank " + std::to_string(place.rank) + " of " + std::to_string(place.size) + " (generation " +
         std::to_string(place.generation) + ")";
}

// ---------------------------------------------------------------- what happens

void Keeper::born(Process process, Slot slot, Parent parent, base::Time now) {
  Life& life = lives_[process];
  life.slot = slot;
  life.parent = parent;
  unborn_ = std::max(unborn_ - 1, 0);
  form(now);
}

void Keeper::heard(Process process, const Notice& notice, base::Time now) {
  const auto found = lives_.find(process);
  if (found == lives_.end() || found->second.killed || found->second.state == State::dismissed) return;
  Life& life = found->second;
  const bool is_current = notice.generation == generation_ && is_member(process) && is_inside(life);
  switch (notice.topic) {
  case Topic::ready:
    on_ready(process, life, notice.generation, now);
    break;
  case Topic::leaving:
    on_leaving(process, life, now);
    break;
  case Topic::alive:
    life.asked.reset();
    life.asks_next = now + limits_.unanswered / kQuestions;
    break;
  case Topic::started:
    if (is_current && life.state == State::starting) life.state = State::member;
    break;
  case Topic::done:
    if (is_current) on_done(life);
    break;
  case Topic::entry:
    if (is_current) pass_on(process, notice);
    break;
  default:
    break;  // the keeper's own topics
  }
  form(now);
}

void Keeper::on_ready(Process process, Life& life, std::uint64_t generation, base::Time now) {
  if (generation == 0) {
    if (life.state != State::building) return;
    life.arrival = ++arrivals_;
    life.state = State::waiting;
    if (members_.size() < static_cast<std::size_t>(limits_.most)) change({}, now);
  } else {
    if (generation != generation_ || !is_member(process) || !is_inside(life)) return;
    life.state = State::ready;
    life.asked.reset();
    change(describe(process) + " has left", now);
  }
  if (!ended_.empty()) {
    dismiss(process, life, ended_);
  } else if (life.wants_out) {
    dismiss(process, life, "it wanted to leave");
  }
}

void Keeper::on_done(Life& life) {
  life.state = State::finished;
  somebody_waits_ = true;
  const bool all = std::all_of(members_.begin(), members_.end(),
                               [&](Process one) { return lives_.at(one).state == State::finished; });
  if (all) end_with("the work is done");
}

void Keeper::on_leaving(Process process, Life& life, base::Time now) {
  life.wants_out = true;
  if (is_inside(life)) {
    change({}, now);
  } else if (life.state != State::building) {
    dismiss(process, life, "it wanted to leave");
  }
}

void Keeper::pass_on(Process process, const Notice& entry) {
  if (lives_.at(process).place.rank != 0) return;
  for (const Process member : members_) {
    if (member != process) send(member, entry);
  }
}

void Keeper::silent(Process process, base::Time now) {
  const auto found = lives_.find(process);
  if (found == lives_.end() || found->second.silent) return;
  found->second.silent = now;
  form(now);
}

void Keeper::died(Process process, bool well, base::Time now) {
  const auto found = lives_.find(process);
  if (found == lives_.end()) return;
  const Life life = found->second;
  const bool was_member = is_member(process);
  const std::string name = describe(process);
  remove(process);
  lives_.erase(found);
  if (well && was_member && is_inside(life) && life.state != State::starting) {
    end_with(name + " has ended with exit status 0, so the work is done");
  }
  if (!well) respawn(life, now);
  if (was_member) change(name + " has ended", now);
  form(now);
}

void Keeper::lost(Parent parent, base::Time now) {
  for (auto one = lives_.begin(); one != lives_.end();) {
    if (one->second.parent != parent) {
      ++one;
      continue;
    }
    if (is_member(one->first)) change(describe(one->first) + " is lost", now);
    remove(one->first);
    one = lives_.erase(one);
  }
  form(now);
}

void Keeper::end(const std::string& why, base::Time now) {
  change({}, now);
  end_with(why);
}

void Keeper::end_with(const std::string& why) {
  if (!ended_.empty()) return;
  ended_ = why;
  for (auto& [process, life] : lives_) {
    if (life.state == State::ready || life.state == State::waiting || life.state == State::finished) {
      dismiss(process, life, why);
    }
  }
}

// ---------------------------------------------------------------- what follows

void Keeper::change(const std::string& gone, base::Time now) {
  if (generation_ == 0) return;
  somebody_waits_ = true;
  const bool is_first_gone = !gone.empty() && !held_up_;
  if (is_first_gone) held_up_ = now;
  const bool was_due = std::exchange(change_due_, true);
  for (const Process member : members_) {
    const State state = lives_.at(member).state;
    const bool is_news = is_first_gone && state == State::starting;
    if (is_inside(lives_.at(member)) && (!was_due || is_news)) send(member, {Topic::change, generation_, 0, 0, gone});
  }
}

void Keeper::remove(Process process) {
  members_.erase(std::remove(members_.begin(), members_.end(), process), members_.end());
}

void Keeper::dismiss(Process process, Life& life, const std::string& why) {
  remove(process);
  life.state = State::dismissed;
  if (!life.silent) send(process, {Topic::farewell, 0, 0, 0, why});
}

void Keeper::form(base::Time now) {
  if (!ended_.empty() || (generation_ > 0 && !change_due_)) return;
  if (std::any_of(members_.begin(), members_.end(), [&](Process one) { return is_inside(lives_.at(one)); })) return;
  const std::vector<Process> all = candidates();
  const auto wanted = static_cast<std::size_t>(generation_ == 0 ? limits_.first : limits_.least);
  if (all.size() < wanted && may_come()) {
    if (!short_) short_ = now;
    if (now < base::after(*short_, limits_.wait)) return;
  }
  if (all.size() < static_cast<std::size_t>(limits_.least)) return give_up(all.size());
  begin(all, now);
}

void Keeper::begin(const std::vector<Process>& members, base::Time now) {
  ++generation_;
  change_due_ = somebody_waits_ = false;
  held_up_.reset();
  short_.reset();
  members_ = members;
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    Life& life = lives_.at(members_[rank]);
    if (life.state == State::waiting) life.taken_in = now;
    life.state = State::starting;
    life.asks_next = now + limits_.unanswered / kQuestions;
    life.place = {Topic::next, generation_, static_cast<int>(rank), static_cast<int>(members_.size()), {}};
    send(members_[rank], life.place);
  }
}

void Keeper::give_up(std::size_t there) {
  gave_up_ = true;
  const std::string why =
      "the job has " + std::to_string(there) + (there == 1 ? " process" : " processes") + ", and needs at least " +
      std::to_string(limits_.least) + " (--min-np): " +
      (may_come() ? "no other has come within " + seconds_of(limits_.wait) + " (--wait)" : "no other can come");
  report(why);
  end_with(why);
}

void Keeper::respawn(const Life& life, base::Time now) {
  if (limits_.respawns == 0 || !ended_.empty()) return;
  int& ends = early_ends_[life.slot];
  ends = life.taken_in && now >= *life.taken_in + kEarly ? 0 : ends + 1;
  if (ends >= kMostEarlyEnds) {
    report("slot " + std::to_string(life.slot) + " stays empty: two of its processes in a row have ended within " +
           seconds_of(kEarly) + " of being taken in, or before");
    return;
  }
  if (respawned_ == limits_.respawns) {
    report("slot " + std::to_string(life.slot) + " stays empty: " + std::to_string(respawned_) +
           (respawned_ == 1 ? " process has" : " processes have") +
           " been started again, and no more may be (--restarts)");
    return;
  }
  ++respawned_;
  ++unborn_;
  acts_.push_back({Act::Kind::spawn, 0, life.slot, {}});
}

// ---------------------------------------------------------------- time

void Keeper::tick(base::Time now) {
  for (auto& [process, life] : lives_) {
    if (now < due(life)) continue;
    if (!life.killed && !life.silent) {
      press(process, life, now);
      continue;
    }
    report(describe(process) + " is left out: " +
           (life.killed ? "it was killed, and the system has not ended it" : "it runs, but its connection has ended"));
    const bool was_member = is_member(process);
    remove(process);
    life.state = State::dismissed;
    if (was_member) change(describe(process) + " is left out", now);
  }
  form(now);
}

void Keeper::press(Process process, Life& life, base::Time now) {
  if (life.asked && now >= *life.asked + limits_.unanswered) {
    kill(process, life, "has not answered for " + seconds_of(limits_.unanswered) + " (KOLO_LATCH_TIMEOUT_S)", now);
  } else if (held_up_ && now >= base::after(*held_up_, limits_.patience)) {
    kill(process, life,
         "answers, but has not come to the next generation within " + seconds_of(limits_.patience) +
             " (KOLO_TIMEOUT_S)",
         now);
  } else if (!life.asked && now >= life.asks_next) {
    life.asked = now;
    send(process, {Topic::ask, 0, 0, 0, {}});
  }
}

void Keeper::kill(Process process, Life& life, const std::string& why, base::Time now) {
  report(describe(process) + " " + why + ": it is killed");
  life.killed = now;
  acts_.push_back({Act::Kind::kill, process, life.slot, {}});
}

base::Time Keeper::due(const Life& life) const {
  if (life.state == State::dismissed) return base::Time::max();
  if (life.killed || life.silent) return base::after(life.killed ? *life.killed : *life.silent, limits_.unanswered);
  if (!is_pressed(life)) return base::Time::max();
  const base::Time answer = life.asked ? *life.asked + limits_.unanswered : life.asks_next;
  return held_up_ ? std::min(answer, base::after(*held_up_, limits_.patience)) : answer;
}

base::Time Keeper::due() const {
  base::Time first = short_ && ended_.empty() ? base::after(*short_, limits_.wait) : base::Time::max();
  for (const auto& [process, life] : lives_) first = std::min(first, due(life));
  return first;
}

}  // namespace kolo::membership
