// SPDX-License-Identifier: Apache-2.0
#include "launch/processes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <list>
#include <utility>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/system_error.hpp"
#include "base/unique_fd.hpp"
#include "launch/sockets.hpp"

namespace kolo::launch {
namespace {

constexpr std::chrono::seconds kGrace{5};
constexpr std::chrono::seconds kLastGrace{2};

struct Pipe {
  base::UniqueFd read;
  base::UniqueFd write;
};

Pipe make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) base::throw_errno("making a pipe for a rank's output", errno);
  Pipe pipe;
  pipe.read.reset(ends[0]);
  pipe.write.reset(ends[1]);
  return pipe;
}

/// Writes all of it; what cannot be written is lost, as it would be if the rank wrote it there.
void write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd wait{fd, POLLOUT, 0};
      static_cast<void>(::poll(&wait, 1, -1));
      continue;
    }
    if (written < 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// What comes out of one pipe of a process.
class Output {
 public:
  /// `target`: where whole lines go; -1: they are kept.
  Output(base::UniqueFd source, int target) : source_(std::move(source)), target_(target) {}

  [[nodiscard]] int fd() const noexcept { return source_.get(); }
  [[nodiscard]] bool over() const noexcept { return !source_.valid(); }
  [[nodiscard]] std::string take() noexcept { return std::move(text_); }

  /// Once there is something to read, or an end. One read: others wait, too.
  void serve() {
    std::array<char, 1 << 16> piece;
    const ssize_t got = ::read(source_.get(), piece.data(), piece.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got > 0) text_.append(piece.data(), static_cast<std::size_t>(got));
    if (got <= 0) source_.reset();
    if (target_ >= 0) pass_on(text_.rfind('\n') + 1);
  }
  /// The process has ended: reads what is there, and passes on what is no whole line, too.
  void finish() {
    pollfd one{source_.get(), POLLIN, 0};
    while (!over() && ::poll(&one, 1, 0) > 0) serve();
    if (target_ >= 0) pass_on(text_.size());
  }

 private:
  void pass_on(std::size_t bytes) {
    write_all(target_, std::string_view(text_).substr(0, bytes));
    text_.erase(0, bytes);
  }

  base::UniqueFd source_;
  int target_;
  std::string text_;
};

struct Child {
  int rank = 0;
  pid_t pid = -1;
  base::UniqueFd process;
  std::vector<Output> outputs;  // standard output, standard error, the report
  std::optional<int> status = std::nullopt;
};

/// The signals that a person or a system sends to end a job; taken by a descriptor while it lives.
class EndSignals {
 public:
  EndSignals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set, signal);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
    fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (fd_.valid()) return;
    const int error = errno;
    restore();
    base::throw_errno("signalfd", error);
  }
  ~EndSignals() { restore(); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] std::optional<int> take() const {
    signalfd_siginfo info;
    if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }
  void restore() const noexcept { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
  base::UniqueFd fd_;
};

class Family {
 public:
  ~Family() {
    for (Child& child : children_) {
      if (child.status) continue;
      ::kill(child.pid, SIGKILL);
      int status = 0;
      while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
      }
    }
  }
  Family() = default;
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  void start(int rank, const std::function<int(int, int)>& body) {
    std::array<Pipe, 3> pipes{make_pipe(), make_pipe(), make_pipe()};
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) base::throw_errno("forking the process of rank " + std::to_string(rank), errno);
    if (pid == 0) be_child(rank, parent, pipes, body);
    Child& child = children_.emplace_back();
    child.rank = rank;
    child.pid = pid;
    child.process.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!child.process.valid()) base::throw_errno("watching the process of rank " + std::to_string(rank), errno);
    constexpr std::array kTargets = {STDOUT_FILENO, STDERR_FILENO, -1};
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      child.outputs.emplace_back(std::move(pipes[i].read), kTargets[i]);
    }
  }

  Outcome watch() {
    while (std::any_of(children_.begin(), children_.end(), [](const Child& child) { return !child.status; })) {
      wait();
      for (Child& child : children_) serve(child);
      if (const auto signal = signals_.take()) end_by_signal(*signal);
      end_all();
    }
    return std::move(outcome_);
  }

 private:
  [[noreturn]] void be_child(int rank, pid_t parent, std::array<Pipe, 3>& pipes,
                             const std::function<int(int, int)>& body) noexcept {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(EXIT_FAILURE);
    signals_.restore();
    const int nothing = rank == 0 ? STDIN_FILENO : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || (rank != 0 && ::dup2(nothing, STDIN_FILENO) < 0) ||
        ::dup2(pipes[0].write.get(), STDOUT_FILENO) < 0 || ::dup2(pipes[1].write.get(), STDERR_FILENO) < 0) {
      ::_exit(EXIT_FAILURE);
    }
    const base::UniqueFd report = std::move(pipes[2].write);
    for (Pipe& pipe : pipes) pipe = {};
    for (Child& other : children_) {  // the parent's: what is not closed here would hide an end from it
      other.process.reset();
      other.outputs.clear();
    }
    const int status = body(rank, report.get());
    std::fflush(nullptr);
    ::_exit(status);
  }

  void wait() {
    std::vector<pollfd> all{{signals_.fd(), POLLIN, 0}};
    for (const Child& child : children_) {
      if (!child.status) all.push_back({child.process.get(), POLLIN, 0});
      for (const Output& output : child.outputs) {
        if (!output.over()) all.push_back({output.fd(), POLLIN, 0});
      }
    }
    wait_until(all, next_);
    readable_.clear();
    for (const pollfd& one : all) {
      if (one.revents != 0) readable_.push_back(one.fd);
    }
  }

  [[nodiscard]] bool is_readable(int fd) const {
    return std::find(readable_.begin(), readable_.end(), fd) != readable_.end();
  }

  void serve(Child& child) {
    for (Output& output : child.outputs) {
      if (!output.over() && is_readable(output.fd())) output.serve();
    }
    int status = 0;
    if (!child.status && is_readable(child.process.get()) && ::waitpid(child.pid, &status, WNOHANG) == child.pid) {
      child.status = status;
      // A child of its own may hold the pipes; it shall not hold us.
      for (Output& output : child.outputs) output.finish();
      outcome_.endings.push_back({child.rank, status, child.outputs.back().take()});
      child.outputs.clear();
      if (status != 0 && !ending_) begin_to_end(kGrace);
    }
  }

  void begin_to_end(base::Duration grace) {
    ending_ = true;
    next_ = base::now() + grace;
  }

  void end_by_signal(int signal) {
    if (outcome_.signal) return;
    outcome_.signal = signal;
    tell(signal);
    signal_ = SIGKILL;
    begin_to_end(kLastGrace);
  }

  void end_all() {
    if (!ending_ || base::now() < next_) return;
    tell(signal_);
    signal_ = SIGKILL;
    next_ = base::now() + kLastGrace;
  }

  void tell(int signal) {
    for (const Child& child : children_) {
      if (!child.status) ::kill(child.pid, signal);
    }
  }

  EndSignals signals_;
  std::list<Child> children_;
  Outcome outcome_;
  std::vector<int> readable_;
  bool ending_ = false;
  int signal_ = SIGTERM;  // with which the others are ended next
  base::Time next_ = base::Time::max();
};

}  // namespace

Outcome run_processes(int count, const std::function<int(int rank, int report)>& body) {
  std::fflush(nullptr);  // or each would write it once more
  Family family;
  for (int rank = 0; rank < count; ++rank) family.start(rank, body);
  return family.watch();
}

std::string describe_status(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit status " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  return "was killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
}

int exit_status_of(int status) noexcept { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace kolo::launch
