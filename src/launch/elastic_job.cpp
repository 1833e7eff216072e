// SPDX-License-Identifier: Apache-2.0
#include "launch/elastic_job.hpp"

#include <poll.h>

#include <csignal>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "launch/children.hpp"
#include "launch/family.hpp"
#include "launch/notice_link.hpp"
#include "launch/processes.hpp"

namespace kolo::launch {
namespace {

using membership::Act;
using membership::JobLimits;
using membership::Keeper;
using membership::Notice;
using membership::Process;
using membership::Topic;

/// The one parent of a job on one machine.
constexpr membership::Parent kHere = 0;
/// Between two looks at processes whose end the system reports to nobody here.
constexpr std::chrono::milliseconds kLeftoverLook{20};

void say(const std::string& sentence) { std::fprintf(stderr, "kolo-run: %s\n", sentence.c_str()); }

/// A process that was started in a slot.
struct Started {
  int slot = 0;
  const Child* child = nullptr;
  std::string keeper;                      // its KOLO_KEEPER
  std::optional<NoticeListener> listener;  // until it has connected
  std::optional<NoticeLink> link;          // until it says nothing more
  std::optional<base::Time> reaped;
  base::Time told = base::Time::min();  // when what it has left running was told to end
};

class ElasticJob final : public Family {
 public:
  ElasticJob(const JobLimits& limits, const std::function<int(int, const std::string&)>& body, int lifeline)
      : Family(Descendants::ended, lifeline), keeper_(limits), body_(body) {}

  ElasticOutcome run(int processes) {
    for (int slot = 0; slot < processes; ++slot) start_in(slot);
    obey();
    watch();
    if (keeper_.gave_up()) status_ = last_bad_ == 0 ? EXIT_FAILURE : exit_status_of(last_bad_);
    return {signal(), status_, output_error()};
  }

 private:
  // -------------------------------------------------------------- what happens

  void on_ends(const std::vector<Child*>& ended) override {
    for (auto& [process, started] : started_) {
      if (std::find(ended.begin(), ended.end(), started.child) != ended.end()) started.reaped = base::now();
    }
  }

  void on_signal(int signal) override { keeper_.end("kolo-run has got " + describe_signal(signal), base::now()); }

  void add_sockets(std::vector<pollfd>& sockets) const override {
    for (const auto& [process, started] : started_) {
      if (started.listener) sockets.push_back({started.listener->fd(), POLLIN, 0});
      if (started.link) sockets.push_back({started.link->fd(), started.link->events(), 0});
    }
  }

  [[nodiscard]] base::Time due() const override {
    base::Time first = keeper_.due();
    for (const auto& [process, started] : started_) {
      if (started.reaped) first = std::min<base::Time>(first, base::now() + kLeftoverLook);
    }
    return first;
  }

  /// The keeper has not heard of all ends: it may want a process started again.
  [[nodiscard]] bool expects_more() const override { return !started_.empty(); }

  void act() override {
    std::vector<Process> ended;
    for (auto& [process, started] : started_) {
      serve(process, started);
      if (started.reaped && has_ended(started)) ended.push_back(process);
    }
    for (const Process process : ended) bury(process);
    keeper_.tick(base::now());
    obey();
    if (keeper_.gave_up()) begin_to_end(kSignalGrace);
    if (!keeper_.ended().empty() && !is_ending() && !started_.empty() && have_all_stayed_away()) {
      say("the work is done, and " + std::to_string(started_.size()) +
          (started_.size() == 1 ? " process has" : " processes have") + " never come to it: ended");
      begin_to_end(kGrace);
    }
  }

  /// Nobody can tell such a process that the work is done: it may hang before it calls Kolo.
  [[nodiscard]] bool have_all_stayed_away() const {
    return std::all_of(started_.begin(), started_.end(),
                       [](const auto& one) { return one.second.listener.has_value(); });
  }

  void serve(Process process, Started& started) {
    if (started.listener) {
      started.link = started.listener->try_accept();
      if (started.link) started.listener.reset();
    }
    if (!started.link) return;
    try {
      started.link->pump();
      while (const std::optional<Notice> notice = started.link->take()) keeper_.heard(process, *notice, base::now());
    } catch (const Error& error) {
      fall_silent(process, started, error.status().message());
      return;
    }
    if (!started.link->lost().empty()) fall_silent(process, started, {});
  }

  void fall_silent(Process process, Started& started, const std::string& wrong) {
    if (!wrong.empty()) say(keeper_.describe(process) + ": " + wrong);
    started.link.reset();
    keeper_.silent(process, base::now());
  }

  /// Of a process that was reaped: whether nothing that it has started runs any more. Ends what does.
  [[nodiscard]] bool has_ended(Started& started) {
    if (is_ending()) return true;  // the end of the job ends these, too
    const std::string variable = "KOLO_KEEPER=" + started.keeper;
    std::vector<pid_t> left = adopted();
    left.erase(std::remove_if(left.begin(), left.end(), [&](pid_t one) { return !was_started_with(one, variable); }),
               left.end());
    const base::Time now = base::now();
    if (left.empty()) return true;
    const bool is_over = now >= *started.reaped + kLastGrace;
    if (now >= *started.reaped + 2 * kLastGrace)
      return true;  // the system cannot end them: the job's end waits for that
    const bool gets_time = *started.child->status == 0 && !is_over;
    if (gets_time && started.told != base::Time::min()) return false;
    started.told = now;
    for (const pid_t one : left) ::kill(one, gets_time ? SIGTERM : SIGKILL);
    return false;
  }

  void bury(Process process) {
    Started& started = started_.at(process);
    const int status = *started.child->status;
    if (status != 0) {
      const bool was_told_to_end = signal() || keeper_.gave_up() || (started.listener && is_ending());
      if (!was_told_to_end) {
        say(keeper_.describe(process) + ", process " + std::to_string(started.child->pid) + ", " +
            describe_status(status));
      }
      if (keeper_.ended().empty()) {
        last_bad_ = status;
      } else if (!started.listener) {  // else it had no part in the work
        if (status_ == 0) status_ = exit_status_of(status);
        begin_to_end(kGrace);
      }
    }
    forget(*started.child);
    started_.erase(process);
    keeper_.died(process, status == 0, base::now());
  }

  // -------------------------------------------------------------- what the keeper wants

  void obey() {
    for (std::vector<Act> acts = keeper_.take(); !acts.empty(); acts = keeper_.take()) {
      for (const Act& act : acts) obey(act);
    }
  }

  void obey(const Act& act) {
    const auto found = started_.find(act.process);
    switch (act.kind) {
    case Act::Kind::send:
      if (act.notice.topic == Topic::next && act.notice.rank == 0 && act.notice.generation > 1) {
        say("generation " + std::to_string(act.notice.generation) + " begins, with " + std::to_string(act.notice.size) +
            (act.notice.size == 1 ? " rank" : " ranks"));
      }
      if (found != started_.end() && found->second.link) found->second.link->send(act.notice);
      break;
    case Act::Kind::kill:
      if (found != started_.end() && !found->second.reaped) ::kill(found->second.child->pid, SIGKILL);
      break;
    case Act::Kind::spawn:
      start_again(act.slot);
      break;
    case Act::Kind::report:
      say(act.notice.text);
      break;
    }
  }

  /// The others go on where the system refuses that.
  void start_again(int slot) {
    try {
      start_in(slot);
    } catch (const Error& error) {
      say(error.status().message());
      keeper_.born(++processes_, slot, kHere, base::now());
      keeper_.died(processes_, false, base::now());
    }
  }

  void start_in(int slot) {
    NoticeListener listener;
    const std::string keeper = encode(listener.address());
    const Child& child = start(slot, [&](int its_slot, int /*report*/) { return body_(its_slot, keeper); });
    const Process process = ++processes_;
    Started& started = started_[process];
    started.slot = slot;
    started.child = &child;
    started.keeper = keeper;
    started.listener.emplace(std::move(listener));
    keeper_.born(process, slot, kHere, base::now());
  }

  Keeper keeper_;
  const std::function<int(int, const std::string&)>& body_;
  std::map<Process, Started> started_;
  Process processes_ = 0;
  int last_bad_ = 0;  // how a process ended badly last, while the job went on
  int status_ = 0;    // of the first that ended badly when its work was done
};

}  // namespace

ElasticOutcome run_elastic(int processes, const JobLimits& limits,
                           const std::function<int(int slot, const std::string& keeper)>& body, int lifeline) {
  const RaisedLimit limit(std::max(processes, limits.most));
  flush_streams();  // or each process would write the buffered text again
  return ElasticJob(limits, body, lifeline).run(processes);
}

}  // namespace kolo::launch
