// SPDX-License-Identifier: Apache-2.0
#include "launch/family.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <kolo/error.hpp>

#include "base/system_error.hpp"
#include "launch/sockets.hpp"

namespace kolo::launch {
namespace {

/// Some programs send a signal to a process and to its group (timeout(1)): a second one within this time counts as the
/// same.
constexpr std::chrono::seconds kSameSignal{1};

}  // namespace

Family::Family(Descendants descendants, int lifeline)
    : signals_(descendants == Descendants::ended), lifeline_(lifeline), output_(STDOUT_FILENO), errors_(STDERR_FILENO) {
  if (descendants == Descendants::ended) adopted_.emplace();
}

Family::~Family() {
  for (Child& child : children_) {
    if (child.status) continue;
    ::kill(child.pid, SIGKILL);
    int status = 0;
    while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
}

Child& Family::start(int number, const std::function<int(int, int)>& body) {
  std::vector<Pipe> pipes(3);
  for (Pipe& pipe : pipes) pipe = Pipe::make();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    const int error = errno;
    throw Error(ErrorCode::transport, "forking the process of rank " + std::to_string(number) + ": " +
                                          base::errno_text(error) + base::start_remedy(error));
  }
  if (pid == 0) be_child(number, parent, pipes, body);
  Child& child = children_.emplace_back();
  child.number = number;
  child.pid = pid;
  child.process.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  Target* const targets[] = {&output_, &errors_, nullptr};
  for (std::size_t i = 0; i < pipes.size(); ++i) child.outputs.emplace_back(std::move(pipes[i].read), targets[i]);
  return child;
}

void Family::be_child(int number, pid_t parent, std::vector<Pipe>& pipes,
                      const std::function<int(int, int)>& body) noexcept {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(EXIT_FAILURE);
  signals_.restore();
  if (number != 0) {
    const base::UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!nothing.valid() || ::dup2(nothing.get(), STDIN_FILENO) < 0) ::_exit(EXIT_FAILURE);
  }
  if (::dup2(pipes[0].write.get(), STDOUT_FILENO) < 0 || ::dup2(pipes[1].write.get(), STDERR_FILENO) < 0) {
    ::_exit(EXIT_FAILURE);
  }
  const base::UniqueFd report = std::move(pipes[2].write);
  for (Pipe& pipe : pipes) pipe = {};
  // The parent's descriptors: a copy that stays open here would hide an end from the parent.
  for (Child& other : children_) {
    other.process.reset();
    other.outputs.clear();
  }
  const int status = body(number, report.get());
  flush_streams();
  ::_exit(status);
}

void Family::watch() {
  while (goes_on()) {
    wait();
    serve_output();
    const std::vector<Child*> ended = reap();
    if (!ended.empty()) on_ends(ended);
    output_.write_some();
    errors_.write_some();
    while (const auto taken = signals_.take()) hear(*taken);
    if (lifeline_ >= 0 && readable_.count(lifeline_) != 0) kill_all();
    act();
    end_all();
  }
}

void Family::forget(const Child& child) {
  const auto same = [&](const Child& one) { return &one == &child; };
  const auto found = std::find_if(children_.begin(), children_.end(), same);
  for (ChildOutput& output : found->outputs) output.finish();
  children_.erase(found);
}

/// Waits for the processes; then ends the processes that they have left running; then waits for the reader of the
/// output.
bool Family::goes_on() {
  const auto runs = [](const Child& child) { return !child.status; };
  if (expects_more() || std::any_of(children_.begin(), children_.end(), runs)) return true;
  if (!adopted().empty()) {
    if (!std::exchange(adopted_told_, true)) {
      if (!ended_by_) end_after(kLastGrace);
      tell({ended_by_.value_or(SIGTERM), false});
      signal_ = SIGKILL;
    }
    return true;
  }
  for (Child& child : children_) {
    for (ChildOutput& output : child.outputs) output.finish();
    child.outputs.clear();
  }
  return (output_.waits() || errors_.waits()) && !ended_by_;
}

void Family::wait() {
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
  add_sockets(all);
  wait_until(all, std::min(next_, due()));
  readable_.clear();
  for (const pollfd& one : all) {
    if (one.revents != 0) readable_.insert(one.fd);
  }
}

void Family::serve_output() {
  for (Child& child : children_) {
    for (ChildOutput& output : child.outputs) {
      if (output.wants_more() && readable_.count(output.fd()) != 0) output.serve();
    }
  }
}

/// The order of endings that are seen together is not known.
std::vector<Child*> Family::reap() {
  std::vector<Child*> ended;
  for (Child& child : children_) {
    int status = 0;
    if (child.status || (child.process.valid() && readable_.count(child.process.get()) == 0) ||
        ::waitpid(child.pid, &status, WNOHANG) != child.pid) {
      continue;
    }
    child.status = status;
    child.outputs.back().finish();
    child.report = child.outputs.back().take();
    child.outputs.pop_back();
    if (!adopted_) {  // a child of the process may hold the pipes; do not wait for it
      for (ChildOutput& output : child.outputs) output.finish();
      child.outputs.clear();
    }
    ended.push_back(&child);
  }
  std::stable_partition(ended.begin(), ended.end(), [](const Child* child) { return WIFSIGNALED(*child->status); });
  return ended;
}

void Family::begin_to_end(base::Duration grace) {
  if (!ending_) end_after(grace);
}

void Family::end_after(base::Duration grace) {
  ending_ = true;
  next_ = base::now() + grace;
}

void Family::hear(const TakenSignals::Taken& taken) {
  if (!is_end(taken.signal)) {
    tell(taken);
    return;
  }
  const bool is_second = ended_by_.has_value();
  if (is_second && base::now() < signalled_ + kSameSignal) return;
  if (!is_second) {
    ended_by_ = taken.signal;
    signalled_ = base::now();
    on_signal(taken.signal);
  }
  tell(is_second ? TakenSignals::Taken{SIGKILL, false} : taken);
  signal_ = SIGKILL;
  end_after(is_second ? kLastGrace : kSignalGrace);
}

/// Whoever waits for this process is gone.
void Family::kill_all() {
  lifeline_ = -1;
  ended_by_ = SIGKILL;
  signal_ = SIGKILL;
  tell({SIGKILL, false});
  end_after(kLastGrace);
}

void Family::end_all() {
  if (!ending_ || base::now() < next_) return;
  tell({signal_, false});
  signal_ = SIGKILL;
  next_ = base::now() + kLastGrace;
}

std::vector<pid_t> Family::adopted() const {
  if (!adopted_) return {};
  std::set<pid_t> own;
  for (const Child& child : children_) own.insert(child.pid);
  return adopted_->find(own);
}

void Family::tell(const TakenSignals::Taken& what) {
  std::vector<pid_t> all = adopted();
  for (const Child& child : children_) {
    if (!child.status) all.push_back(child.pid);
  }
  for (const pid_t one : all) {
    if (what.by_terminal && ::getpgid(one) == ::getpgrp()) continue;  // the process has received the signal itself
    ::kill(one, what.signal);
  }
}

}  // namespace kolo::launch
