// SPDX-License-Identifier: Apache-2.0
#include "launch/processes.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/system_error.hpp"
#include "launch/children.hpp"
#include "launch/family.hpp"

namespace kolo::launch {
namespace {

/// A process that ends badly ends the others.
class FixedJob final : public Family {
 public:
  using Family::Family;

  Outcome run() {
    watch();
    outcome_.signal = signal();
    outcome_.output_error = output_error();
    return std::move(outcome_);
  }

 private:
  void on_ends(const std::vector<Child*>& ended) override {
    for (Child* child : ended) {
      outcome_.endings.push_back({child->number, *child->status, std::move(child->report)});
      if (*child->status != 0) begin_to_end(kGrace);
    }
  }

  Outcome outcome_;
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
  FixedJob job(descendants, lifeline);
  for (int rank = 0; rank < count; ++rank) job.start(rank, body);
  return job.run();
}

std::string describe_signal(int signal) {
  const char* const name = ::sigdescr_np(signal);  // null for a real-time signal
  return "signal " + std::to_string(signal) + (name == nullptr ? "" : " (" + std::string(name) + ")");
}

std::string describe_status(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit status " + std::to_string(WEXITSTATUS(status));
  return "was killed by " + describe_signal(WTERMSIG(status));
}

int exit_status_of(int status) noexcept { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace kolo::launch
