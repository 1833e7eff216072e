// SPDX-License-Identifier: Apache-2.0
//
// Forked processes that end together: their output, the signals that come meanwhile, and what they leave behind. What
// it means that one of them has ended is a job's to say: of a fixed one (processes.cpp), or of an elastic one
// (elastic_job.hpp).
//
// The end. A job begins it (`begin_to_end`): the processes have a grace, then get SIGTERM, then SIGKILL. A signal that
// ends a job is passed on, and the processes have kSignalGrace to save their work; a second one kills them at once.
// Once all have ended, the processes that they have started get the signal that ended the job, or SIGTERM; then
// SIGKILL.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"
#include "launch/children.hpp"
#include "launch/output.hpp"
#include "launch/processes.hpp"

namespace kolo::launch {

/// Where the end of one process ends the others.
constexpr std::chrono::seconds kGrace{5};
/// What is killed needs no longer, unless the system holds it up.
constexpr std::chrono::seconds kLastGrace{2};
constexpr std::chrono::seconds kSignalGrace{30};

/// A forked process.
struct Child {
  int number = 0;  ///< its rank, or its slot
  pid_t pid = -1;
  base::UniqueFd process;            ///< not valid where the system does not give any
  std::vector<ChildOutput> outputs;  ///< standard output, standard error, the report
  std::optional<int> status = std::nullopt;
  std::string report = {};  ///< once it has ended
};

/// One thread.
class Family {
 public:
  Family(Descendants descendants, int lifeline);
  /// Kills and reaps those that are left.
  virtual ~Family();
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  /// Forks a process that runs `body(number, report)`. Number 0 has this process's standard input. The child stays
  /// where it is until `forget`.
  Child& start(int number, const std::function<int(int number, int report)>& body);
  /// Returns when all have ended, and what they wrote is passed on.
  void watch();
  /// Of one that has ended. Its output goes on being read, as long as others hold its pipes.
  void forget(const Child& child);

  /// That this process got: it was passed on.
  [[nodiscard]] const std::optional<int>& signal() const noexcept { return ended_by_; }
  /// Why output of theirs could not be passed on; 0: it was.
  [[nodiscard]] int output_error() const noexcept { return output_.error() != 0 ? output_.error() : errors_.error(); }

 protected:
  /// These have ended: those that were killed first, because they are more likely the cause.
  virtual void on_ends(const std::vector<Child*>& ended) = 0;
  /// A job's own part: descriptors to wait for, a time to wake up at the latest, what it does after each wait.
  virtual void add_sockets(std::vector<pollfd>& /*sockets*/) const {}
  [[nodiscard]] virtual base::Time due() const { return base::Time::max(); }
  virtual void act() {}
  /// Although all have ended, another one may follow.
  [[nodiscard]] virtual bool expects_more() const { return false; }
  /// The first signal that ends the job has come; it is passed on behind this.
  virtual void on_signal(int /*signal*/) {}

  /// The others are ended when this time is over, unless their end has begun.
  void begin_to_end(base::Duration grace);
  [[nodiscard]] bool is_ending() const noexcept { return ending_; }
  /// Processes that have lost their parent, which was one of these or below one.
  [[nodiscard]] std::vector<pid_t> adopted() const;

 private:
  [[noreturn]] void be_child(int number, pid_t parent, std::vector<Pipe>& pipes,
                             const std::function<int(int, int)>& body) noexcept;
  [[nodiscard]] bool goes_on();
  void wait();
  void serve_output();
  [[nodiscard]] std::vector<Child*> reap();
  void hear(const TakenSignals::Taken& taken);
  void kill_all();
  void end_all();
  void tell(const TakenSignals::Taken& what);
  void end_after(base::Duration grace);

  TakenSignals signals_;
  int lifeline_;
  std::optional<AdoptedProcesses> adopted_;
  Target output_;
  Target errors_;
  std::list<Child> children_;
  std::set<int> readable_;
  std::optional<int> ended_by_;
  base::Time signalled_{};  // when the first one came
  bool ending_ = false;
  bool adopted_told_ = false;
  int signal_ = SIGTERM;  // the signal with which the others are ended next
  base::Time next_ = base::Time::max();
};

}  // namespace kolo::launch
