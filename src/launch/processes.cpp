// SPDX-License-Identifier: Apache-2.0
#include "launch/processes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <set>
#include <utility>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/system_error.hpp"
#include "base/unique_fd.hpp"
#include "launch/children.hpp"
#include "launch/output.hpp"
#include "launch/sockets.hpp"

namespace kolo::launch {
namespace {

constexpr std::chrono::seconds kGrace{5};
constexpr std::chrono::seconds kSignalGrace{30};
constexpr std::chrono::seconds kLastGrace{2};
/// Some programs send a signal to a process and to its group (timeout(1)): a second one within this time counts as the
/// same.
constexpr std::chrono::seconds kSameSignal{1};

/// Raises the limit of open files for this process, which has four for each rank, and for rank 0, which has as many and
/// its own. Only as far as needed, because some programs loop over all possible descriptors.
class RaisedLimit {
 public:
  explicit RaisedLimit(int ranks) {
    if (::getrlimit(RLIMIT_NOFILE, &before_) != 0) base::throw_errno("getrlimit", errno);
    rlimit raised = before_;
    const rlim_t wanted = 1024 + 8 * static_cast<rlim_t>(ranks);
    raised.rlim_cur = std::max(before_.rlim_cur, std::min(before_.rlim_max, wanted));
    static_cast<void>(::setrlimit(RLIMIT_NOFILE, &raised));  // if it fails, the error comes when a descriptor is
                                                             // missing
  }
  ~RaisedLimit() { static_cast<void>(::setrlimit(RLIMIT_NOFILE, &before_)); }
  RaisedLimit(const RaisedLimit&) = delete;
  RaisedLimit& operator=(const RaisedLimit&) = delete;

 private:
  rlimit before_ = {};
};

struct Child {
  int rank = 0;
  pid_t pid = -1;
  base::UniqueFd process;            // not valid where the system does not give any
  std::vector<ChildOutput> outputs;  // standard output, standard error, the report
  std::optional<int> status = std::nullopt;
};

class Family {
 public:
  Family(Descendants descendants, int lifeline) : signals_(descendants == Descendants::ended), lifeline_(lifeline) {
    if (descendants == Descendants::ended) adopted_.emplace();
  }
  ~Family() {
    for (Child& child : children_) {
      if (child.status) continue;
      ::kill(child.pid, SIGKILL);
      int status = 0;
      while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
      }
    }
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  void start(int rank, const std::function<int(int, int)>& body) {
    std::array<Pipe, 3> pipes{Pipe::make(), Pipe::make(), Pipe::make()};
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) {
      const int error = errno;
      throw Error(ErrorCode::transport, "forking the process of rank " + std::to_string(rank) + ": " +
                                            base::errno_text(error) + base::start_remedy(error));
    }
    if (pid == 0) be_child(rank, parent, pipes, body);
    Child& child = children_.emplace_back();
    child.rank = rank;
    child.pid = pid;
    child.process.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    const std::array<Target*, 3> targets = {&output_, &errors_, nullptr};
    for (std::size_t i = 0; i < pipes.size(); ++i) child.outputs.emplace_back(std::move(pipes[i].read), targets[i]);
  }

  Outcome watch() {
    while (goes_on()) {
      wait();
      const auto seen = static_cast<std::ptrdiff_t>(outcome_.endings.size());
      for (Child& child : children_) serve(child);
      // The order of endings that were seen together is not known; a killed process is more likely the cause, so it
      // comes first.
      std::stable_partition(outcome_.endings.begin() + seen, outcome_.endings.end(),
                            [](const ProcessEnd& ending) { return WIFSIGNALED(ending.status); });
      output_.write_some();
      errors_.write_some();
      while (const auto taken = signals_.take()) hear(*taken);
      if (lifeline_ >= 0 && readable_.count(lifeline_) != 0) kill_all();
      end_all();
    }
    outcome_.output_error = output_.error() != 0 ? output_.error() : errors_.error();
    return std::move(outcome_);
  }

 private:
  [[noreturn]] void be_child(int rank, pid_t parent, std::array<Pipe, 3>& pipes,
                             const std::function<int(int, int)>& body) noexcept {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(EXIT_FAILURE);
    signals_.restore();
    if (rank != 0) {
      const base::UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!nothing.valid() || ::dup2(nothing.get(), STDIN_FILENO) < 0) ::_exit(EXIT_FAILURE);
    }
    if (::dup2(pipes[0].write.get(), STDOUT_FILENO) < 0 || ::dup2(pipes[1].write.get(), STDERR_FILENO) < 0) {
      ::_exit(EXIT_FAILURE);
    }
    const base::UniqueFd report = std::move(pipes[2].write);
    for (Pipe& pipe : pipes) pipe = {};
    for (Child& other : children_) {  // the parent's descriptors: a copy that stays open here would hide an end from
                                      // the parent
      other.process.reset();
      other.outputs.clear();
    }
    const int status = body(rank, report.get());
    flush_streams();
    ::_exit(status);
  }

  /// Waits for the processes; then ends the processes that they have left running; then waits for the reader of the
  /// output.
  bool goes_on() {
    if (std::any_of(children_.begin(), children_.end(), [](const Child& child) { return !child.status; })) return true;
    if (!adopted().empty()) {
      if (!std::exchange(adopted_told_, true)) {
        if (!outcome_.signal) begin_to_end(kLastGrace);
        tell({outcome_.signal.value_or(SIGTERM), false});
        signal_ = SIGKILL;
      }
      return true;
    }
    for (Child& child : children_) {
      for (ChildOutput& output : child.outputs) output.finish();
      child.outputs.clear();
    }
    return (output_.waits() || errors_.waits()) && !outcome_.signal;
  }

  void wait() {
    std::vector<pollfd> all{{signals_.fd(), POLLIN, 0}};
    if (lifeline_ >= 0) all.push_back({lifeline_, POLLIN, 0});
    for (const Child& child : children_) {
      if (!child.status && child.process.valid()) all.push_back({child.process.get(), POLLIN, 0});
      for (const ChildOutput& output : child.outputs) {
        if (output.wants_more()) all.push_back({output.fd(), POLLIN, 0});
      }
    }
    for (const Target* target : {&output_, &errors_}) {
      if (target->waits()) all.push_back({target->fd(), POLLOUT, 0});
    }
    wait_until(all, next_);
    readable_.clear();
    for (const pollfd& one : all) {
      if (one.revents != 0) readable_.insert(one.fd);
    }
  }

  void serve(Child& child) {
    for (ChildOutput& output : child.outputs) {
      if (output.wants_more() && readable_.count(output.fd()) != 0) output.serve();
    }
    int status = 0;
    if (child.status || (child.process.valid() && readable_.count(child.process.get()) == 0) ||
        ::waitpid(child.pid, &status, WNOHANG) != child.pid) {
      return;
    }
    child.status = status;
    ChildOutput& report = child.outputs.back();
    report.finish();
    outcome_.endings.push_back({child.rank, status, report.take()});
    child.outputs.pop_back();
    if (!adopted_) {  // a child of the process may hold the pipes; do not wait for it
      for (ChildOutput& output : child.outputs) output.finish();
      child.outputs.clear();
    }
    if (status != 0 && !ending_) begin_to_end(kGrace);
  }

  void begin_to_end(base::Duration grace) {
    ending_ = true;
    next_ = base::now() + grace;
  }

  void hear(const TakenSignals::Taken& taken) {
    if (!is_end(taken.signal)) {
      tell(taken);
      return;
    }
    const bool is_second = outcome_.signal.has_value();
    if (is_second && base::now() < signalled_ + kSameSignal) return;
    if (!is_second) {
      outcome_.signal = taken.signal;
      signalled_ = base::now();
    }
    tell(is_second ? TakenSignals::Taken{SIGKILL, false} : taken);
    signal_ = SIGKILL;
    begin_to_end(is_second ? kLastGrace : kSignalGrace);
  }

  /// Whoever waits for this process is gone.
  void kill_all() {
    lifeline_ = -1;
    outcome_.signal = SIGKILL;
    signal_ = SIGKILL;
    tell({SIGKILL, false});
    begin_to_end(kLastGrace);
  }

  void end_all() {
    if (!ending_ || base::now() < next_) return;
    tell({signal_, false});
    signal_ = SIGKILL;
    next_ = base::now() + kLastGrace;
  }

  [[nodiscard]] std::vector<pid_t> adopted() const {
    if (!adopted_) return {};
    std::set<pid_t> own;
    for (const Child& child : children_) own.insert(child.pid);
    return adopted_->find(own);
  }

  void tell(const TakenSignals::Taken& what) {
    std::vector<pid_t> all = adopted();
    for (const Child& child : children_) {
      if (!child.status) all.push_back(child.pid);
    }
    for (const pid_t one : all) {
      if (what.by_terminal && ::getpgid(one) == ::getpgrp()) continue;  // the process has received the signal itself
      ::kill(one, what.signal);
    }
  }

  TakenSignals signals_;
  int lifeline_;
  std::optional<AdoptedProcesses> adopted_;
  Target output_{STDOUT_FILENO};
  Target errors_{STDERR_FILENO};
  std::list<Child> children_;
  Outcome outcome_;
  std::set<int> readable_;
  base::Time signalled_{};  // when the first one came
  bool ending_ = false;
  bool adopted_told_ = false;
  int signal_ = SIGTERM;  // the signal with which the others are ended next
  base::Time next_ = base::Time::max();
};

}  // namespace

void open_standard_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd < 0) base::throw_errno("opening /dev/null", errno);
  ::close(fd);
}

Outcome run_processes(int count, const std::function<int(int rank, int report)>& body, Descendants descendants,
                      int lifeline) {
  const RaisedLimit limit(count);
  flush_streams();  // or each child would write the buffered text again
  Family family(descendants, lifeline);
  for (int rank = 0; rank < count; ++rank) family.start(rank, body);
  return family.watch();
}

std::string describe_status(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit status " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* const name = ::sigdescr_np(signal);  // null for a real-time signal
  return "was killed by signal " + std::to_string(signal) + (name == nullptr ? "" : " (" + std::string(name) + ")");
}

int exit_status_of(int status) noexcept { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace kolo::launch
