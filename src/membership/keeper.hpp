// SPDX-License-Identifier: Apache-2.0
//
// The keeper of an elastic job: decides which processes are its ranks. A *generation* is a world of some of them: new
// memory, new connections, a new key, ranks from 0. Nothing of a generation can reach the next one, and a process is a
// member of one generation at a time. The keeper is no rank. Its end is the end of the job.
//
// Who talks to whom. A *process* talks to the kolo-run that has started it, its *parent*, and this one to the keeper. A
// process's notices arrive in order. Its parent alone says that it has died, after it was reaped: it then runs nothing
// more, and what it had said has been passed on before.
//
// The life of a process, as the keeper sees it:
//
//   building -- ready(0) --> waiting -- next(g) --> starting(g) -- started(g) --> member(g) -- done(g) --> finished(g)
//                               ^                        |                            |                        |
//                               +------ next(g + 1) -- ready(g) <---------------------+------------------------+
//
// A process says ready(g) when a call of its world has failed, when its start of g has failed, or when it has heard
// that g is to end and all members have come to the same place. Then it has shut its world down. Nothing else ends g:
//
//   - A change is due when a member dies, says ready or wants out, or when a process wants in for which there is a
//     place, or when the job is to end. The keeper says change(g) to all members. Where a member is gone, the notice
//     says so; those that still start are told even if they have had a change(g), because their start cannot succeed.
//     (A member in a collective that can never end learns that from Kolo, not from the keeper.)
//   - next(g + 1) is said when every member of g is ready, dead or dismissed: not before, so that no member can still
//     use memory or connections of g while g + 1 runs. Those that are ready come first, in their old order, then those
//     that want in, in the order in which they came, up to `most`. Rank 0 says where it listens (entry), and the keeper
//     passes that on to the other members. The key by which they meet is made from the job's and the generation's
//     number.
//   - The first generation waits for `first` processes, or for all that live if fewer do.
//
// Who holds the others up. While a generation starts, the keeper asks its members, and while a change is due, or
// some are done, it asks the others. A thread of each process answers, also while the program computes. A process that
// does not answer for `unanswered` is killed by its parent, with a sentence. So is one that answers, but is not ready
// `patience` after the first one is, or a member has died. One that its parent cannot reap within `unanswered` (a
// frozen container, a hung driver) is left out all the same, and so is one whose connection has ended that long ago,
// although it runs.
//
// Fewer than `least`. The keeper waits, `wait` at most, if a process may still come: one that is being started, or that
// may be started again once its parent has reaped it (its connection ends first). Then each gets one sentence.
//
// The end of the work. If all members of a generation are done, or one has ended with exit status 0 in it, no
// generation follows: whoever waits or gets ready is told so. From then on only those that start are killed if they do
// not answer: the others end by themselves.
//
// Respawn. A process that has ended badly is started again in its slot, unless that has happened twice in a row within
// kEarly of being taken in, or before.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "membership/notice.hpp"

namespace kolo::membership {

using Process = std::uint64_t;  ///< a number that never comes again
using Slot = int;               ///< a place for one process at a time, of one parent
using Parent = int;

constexpr std::chrono::seconds kEarly{10};
constexpr int kNoLimit = std::numeric_limits<int>::max();

struct JobLimits {
  int first = 1;     ///< how many processes the first generation waits for
  int least = 1;     ///< ranks of a generation
  int most = 1;      ///< ranks of a generation
  int respawns = 0;  ///< at most, of all slots together
  base::Duration wait = std::chrono::seconds(300);
  base::Duration unanswered = std::chrono::seconds(10);
  base::Duration patience = base::Duration::max();

  auto operator<=>(const JobLimits&) const = default;
};

/// What the keeper wants done. In order.
struct Act {
  enum class Kind : std::uint8_t {
    send,    ///< `notice` to `process`
    kill,    ///< `process`, and all that it has started
    spawn,   ///< a process in `slot`; `born` follows
    report,  ///< `notice.text`, a sentence for a person
  };
  Kind kind = Kind::send;
  Process process = 0;
  Slot slot = 0;
  Notice notice;

  auto operator<=>(const Act&) const = default;  // NOLINT(modernize-use-nullptr): it has none
};

/// A pure machine: what has happened in, acts out, time as an argument. A copy goes on by itself.
class Keeper {
 public:
  explicit Keeper(const JobLimits& limits) : limits_(limits) {}

  /// A process has been started in the slot.
  void born(Process process, Slot slot, Parent parent, base::Time now);
  void heard(Process process, const Notice& notice, base::Time now);
  /// It will say nothing more: its connection has ended. It may still run; mostly `died` follows, and then a respawn.
  void silent(Process process, base::Time now);
  /// Its parent has reaped it. `well`: with exit status 0.
  void died(Process process, bool well, base::Time now);
  /// A parent is lost, and its processes with it: they have been killed, or will be before anybody could notice.
  void lost(Parent parent, base::Time now);
  /// No generation follows, and nothing is respawned; `why` is what the processes are told. Members leave in order.
  void end(const std::string& why, base::Time now);

  /// Does what is due at a time. Call it then, or before.
  void tick(base::Time now);
  [[nodiscard]] base::Time due() const;
  [[nodiscard]] std::vector<Act> take() { return std::exchange(acts_, {}); }

  /// Why no generation follows; empty: one may.
  [[nodiscard]] const std::string& ended() const noexcept { return ended_; }
  /// Too few processes were left: the work is not done.
  [[nodiscard]] bool gave_up() const noexcept { return gave_up_; }
  /// "rank 2 of 4 (generation 3)", "a process that was no rank yet".
  [[nodiscard]] std::string describe(Process process) const;

  auto operator<=>(const Keeper&) const = default;

 private:
  enum class State : std::uint8_t { building, waiting, starting, member, finished, ready, dismissed };
  struct Life {
    Slot slot = 0;
    Parent parent = 0;
    State state = State::building;
    std::uint64_t arrival = 0;  // of those that wait: the order in which they came
    bool wants_out = false;
    Notice place;  // of its last generation: `next`
    std::optional<base::Time> taken_in;
    std::optional<base::Time> asked;  // and not answered
    base::Time asks_next = base::Time::min();
    std::optional<base::Time> killed;
    std::optional<base::Time> silent;

    auto operator<=>(const Life&) const = default;  // NOLINT(modernize-use-nullptr): it has none
  };

  [[nodiscard]] bool is_member(Process process) const;
  [[nodiscard]] static bool is_inside(const Life& life);
  [[nodiscard]] bool is_pressed(const Life& life) const;
  [[nodiscard]] bool may_come() const;
  /// Who would be in the next generation, by rank.
  [[nodiscard]] std::vector<Process> candidates() const;
  /// When something is due with this process.
  [[nodiscard]] base::Time due(const Life& life) const;

  void on_ready(Process process, Life& life, std::uint64_t generation, base::Time now);
  void on_done(Life& life);
  void on_leaving(Process process, Life& life, base::Time now);
  void pass_on(Process process, const Notice& entry);
  /// `gone`: a member is, by this sentence, and the others cannot go on. Empty: none is.
  void change(const std::string& gone, base::Time now);
  void press(Process process, Life& life, base::Time now);
  void kill(Process process, Life& life, const std::string& why, base::Time now);
  void remove(Process process);
  void dismiss(Process process, Life& life, const std::string& why);
  void form(base::Time now);
  void begin(const std::vector<Process>& members, base::Time now);
  void give_up(std::size_t there);
  void end_with(const std::string& why);
  void respawn(const Life& life, base::Time now);
  void send(Process process, Notice notice) { acts_.push_back({Act::Kind::send, process, 0, std::move(notice)}); }
  void report(std::string sentence) {
    acts_.push_back({Act::Kind::report, 0, 0, {Topic::alive, 0, 0, 0, std::move(sentence)}});
  }

  JobLimits limits_;
  std::map<Process, Life> lives_;
  std::vector<Process> members_;  // by rank; without those that have died or been dismissed
  std::uint64_t generation_ = 0;
  std::uint64_t arrivals_ = 0;
  bool change_due_ = false;
  bool somebody_waits_ = false;        // for all members
  std::optional<base::Time> held_up_;  // since when somebody waits for members that are not ready
  std::optional<base::Time> short_;    // since when processes are missing
  std::map<Slot, int> early_ends_;     // in a row
  int respawned_ = 0;
  int unborn_ = 0;  // asked for by `spawn`
  std::string ended_;
  bool gave_up_ = false;
  std::vector<Act> acts_;
};

}  // namespace kolo::membership
