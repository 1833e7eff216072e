// SPDX-License-Identifier: Apache-2.0
#include "why/why.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/quote.hpp"
#include "why/history.hpp"
#include "why/testimony.hpp"
#include "why/waits.hpp"
#include "why/words.hpp"

namespace kolo::why {
namespace {

/// By Life.
constexpr std::array<const char*, 4> kStates{"runs", "is stopped", "has ended", "cannot be seen from here"};

std::string joined(const std::set<std::string>& hosts) {
  std::string text;
  for (const std::string& host : hosts) text += (text.empty() ? "" : ", ") + host;
  return text;
}

/// Finds the suspects, and writes the sentences.
class Judge {
 public:
  Judge(const std::vector<Observed>& observed, std::int64_t now_ns)
      : history_(observed, now_ns), waits_(history_), testimony_(history_) {}

  JobReport judge() {
    tell_files();
    tell_errors();
    find();
    if (!has_told_requests_) tell_requests();
    for (const std::string& sentence : waits_.flight_sentences()) say(sentence);
    result_.tensors = waits_.names();
    for (int rank = 0; rank < history_.size(); ++rank) result_.ranks.push_back(line_of(rank));
    return std::move(result_);
  }

 private:
  [[nodiscard]] const Facts& of(int rank) const { return history_.of(rank); }

  void suspect(const char* verdict, std::vector<int> ranks) {
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    result_.verdict = verdict;
    result_.suspects = std::move(ranks);
  }
  /// One sentence is one line, whatever a recorder's texts are.
  void say(const std::string& sentence) { result_.sentences.push_back(base::on_one_line(sentence)); }

  // -- the suspects

  void find() {
    const std::vector<Facts>& all = history_.facts();
    const bool is_ended_by_mismatch = std::any_of(all.begin(), all.end(), [](const Facts& facts) {
      return facts.life == Life::gone && facts.ends_with_failure() && !facts.mismatches.empty() &&
             facts.mismatches.back().time == facts.failed_last;
    });
    if (find_ended() || (is_ended_by_mismatch && find_mismatch()) || find_told() || find_waited_for()) return;
    if (find_mismatch()) return;
    if (std::any_of(all.begin(), all.end(), [](const Facts& facts) { return facts.fault.has_value(); })) {
      suspect("failed", {});
      say("No rank is known to have caused that.");
    } else if (waits_.requests().empty() && waits_.batches().empty()) {
      suspect("healthy", {});
      say("Nothing waits for long: no rank holds the others up.");
    } else {
      suspect("unclear", {});
      say("The recorders do not say which rank holds the others up.");
    }
  }

  /// Processes that ended or are stopped.
  bool find_ended() {
    std::vector<int> gone = history_.ranks_where([](const Facts& facts, int) { return facts.vanished(); });
    const std::vector<int> stopped =
        history_.ranks_where([](const Facts& facts, int) { return facts.life == Life::stopped; });
    if (gone.empty() && stopped.empty()) return false;
    if (stopped.empty() && may_have_followed(gone)) return tell_followers(gone);
    if (tell_end_of_all(gone)) return true;
    // All may have been ended because of one: the others say which one, if they saw it.
    const int named = testimony_.named();
    if (gone.size() > 1 && std::binary_search(gone.begin(), gone.end(), named)) {
      say(upper(ranks_text(gone)) + " ended without a word; the others named " + ranks_text({named}) + " before that.");
      gone = {named};
    }
    for (const int rank : gone) {
      say(upper(rank_text(rank)) + " was killed: its process (" + history_.process_text(rank) +
          ") has ended without shutdown and without an error of Kolo's, as by a signal; " + history_.last_text(rank) +
          ".");
    }
    for (const int rank : stopped) {
      say(upper(rank_text(rank)) + " is stopped, by a signal or a debugger: process " + history_.process_text(rank) +
          "; " + history_.last_text(rank) + ".");
    }
    const char* const verdict = stopped.empty() ? "killed" : "stopped";
    gone.insert(gone.end(), stopped.begin(), stopped.end());
    suspect(verdict, std::move(gone));
    return true;
  }

  /// All were ended, and none of them before the others, as by a scheduler or by Ctrl-C: whom they waited for then is
  /// told. If the log had called that rank late, it is the suspect: the job hung, and was ended because of it.
  bool tell_end_of_all(const std::vector<int>& gone) {
    if (gone.size() < 2 || gone.size() < history_.recorded().size()) return false;
    const bool is_late = std::any_of(waits_.requests().begin(), waits_.requests().end(), [this](const auto& request) {
      return std::any_of(request.second.missing.begin(), request.second.missing.end(),
                         [this](int rank) { return testimony_.is_called_late(rank); });
    });
    if (!is_late) return false;
    say(upper(ranks_text(gone)) + " were ended together, as by a signal.");
    return find_late();
  }

  /// Whether these ended because of a rank that has no file: in the start, which that rank may not have survived for
  /// long enough to have one, or as their errors say.
  [[nodiscard]] bool may_have_followed(const std::vector<int>& gone) const {
    if (testimony_.silent_ranks().empty()) return false;
    if (const int named = testimony_.named(); named >= 0) return !history_.has_file(named);
    return std::all_of(gone.begin(), gone.end(), [this](int rank) { return !of(rank).start_step.empty(); });
  }
  /// Nobody is the suspect then, unless others say who: which is looked for next (false).
  bool tell_followers(const std::vector<int>& gone) {
    const bool is_told = testimony_.named() >= 0;
    say(upper(ranks_text(gone)) + " ended without a word" +
        (is_told ? "." : " in the start, perhaps because of a rank that has no file."));
    if (!is_told) suspect("unclear", {});
    return !is_told;
  }

  /// Ranks of which others, or they themselves, say that they ended the job.
  bool find_told() {
    if (!testimony_.is_decided()) {
      if (const int rank = testimony_.first_to_give_up(); rank >= 0) return tell_giving_up(rank);
    }
    if (const int rank = testimony_.named(); rank >= 0) return tell_named(rank);
    if (const int rank = testimony_.deserter(); rank >= 0) return tell_left(rank);
    return false;
  }
  bool tell_named(int rank) {
    const Facts& facts = of(rank);
    if (facts.reported && facts.reported->rank == rank) return tell_giving_up(rank);
    if (testimony_.has_left(rank)) return tell_left(rank);
    const bool is_late = testimony_.is_late(rank);
    say(upper(rank_text(rank)) +
        (is_late ? " kept the others waiting until a deadline passed" : " was lost, as other ranks say") +
        (history_.has_file(rank) ? "; " + history_.last_text(rank) : "; it has no file here") + ".");
    suspect(is_late ? "late" : "lost", {rank});
    return true;
  }
  /// It said itself that it cannot go on.
  bool tell_giving_up(int rank) {
    const Heard& said = *of(rank).reported;
    say(upper(rank_text(rank)) + " gave up " + history_.at(rank, said.time) + ": " + said.sentence);
    suspect("gave up", {rank});
    return true;
  }
  bool tell_left(int rank) {
    const Facts& facts = of(rank);
    say(upper(rank_text(rank)) + " left (kolo::shutdown, or the end of its program)" +
        (facts.leaving != 0 ? " " + history_.at(rank, facts.leaving) : std::string()) +
        " while other ranks had operations that need it" +
        (history_.has_file(rank) ? "; before, " + history_.last_words(facts) : "") + ".");
    suspect("left", {rank});
    return true;
  }

  bool find_waited_for() {
    if (!waits_.requests().empty()) return find_late();
    for (const auto& [number, batch] : waits_.batches()) {
      const std::vector<int>& ranks = !batch.behind.empty() ? batch.behind : batch.group->unknown;
      if (ranks.empty() || batch.running.size() + ranks.size() > static_cast<std::size_t>(history_.size())) continue;
      suspect("slow", ranks);
      say(upper(ranks_text(ranks)) + (ranks.size() == 1 ? " has" : " have") + " not come to " +
          history_.text_of(number.first, batch.what) + ", which " + ranks_text(batch.running) +
          (batch.running.size() == 1 ? " runs" : " run") + ".");
      return true;
    }
    return false;
  }

  /// From requests to those whom they wait for, and on from these.
  bool find_late() {
    std::set<int> waiting;
    for (const auto& [request, one] : waits_.requests()) waiting.insert(one.waiting.begin(), one.waiting.end());
    for (const int rank : history_.recorded()) {
      if (!of(rank).work.messages.empty()) waiting.insert(rank);
    }
    std::set<int> late;
    std::set<int> circle;
    std::set<const Waits::Group*> groups;
    for (const auto& [request, one] : waits_.requests()) {
      for (const int rank : one.missing) (waiting.count(rank) > 0 ? circle : late).insert(rank);
      groups.insert(one.group);
    }
    for (const Waits::Group* const group : groups) late.insert(group->unknown.begin(), group->unknown.end());
    if (late.empty() && circle.empty()) return false;
    tell_requests();
    for (const int rank : late) {
      if (history_.has_file(rank))
        say(upper(rank_text(rank)) + ": " + history_.last_text(rank) + doing_text(of(rank)) + ".");
    }
    if (late.empty()) {
      say("These ranks wait for each other: they make their calls in different orders.");
      suspect("order", {circle.begin(), circle.end()});
    } else {
      suspect("late", {late.begin(), late.end()});
    }
    return true;
  }
  [[nodiscard]] static std::string doing_text(const Facts& facts) {
    if (facts.life != Life::runs || facts.sleeping != 0 || !facts.work.requests.empty() || !facts.work.messages.empty())
      return {};
    return ", and no thread of it waits inside Kolo: it computes, or hangs in the program";
  }

  bool find_mismatch() {
    for (const int rank : history_.recorded()) {
      if (of(rank).mismatches.empty()) continue;
      const Heard& first = of(rank).mismatches.front();
      say("Ranks disagreed " + history_.at(rank, first.time) + ": " + first.sentence);
      suspect("mismatch", {});
      return true;
    }
    return false;
  }

  // -- telling

  void tell_files() {
    const std::vector<int> silent = testimony_.silent_ranks();
    const std::vector<int> left = history_.ranks_where([&silent](const Facts& facts, int rank) {
      return facts.recording == nullptr && !std::binary_search(silent.begin(), silent.end(), rank);
    });
    if (!left.empty())
      say(upper(ranks_text(left)) + " left in order, and removed " + (left.size() == 1 ? "its file." : "their files."));
    if (!silent.empty()) {
      say("There is no file of " + ranks_text(silent) +
          ": their machine, or their directory, is another one, or they left in order, or ended before they had one.");
    }
    if (!history_.other_clocks().empty()) {
      say("Times of " + joined(history_.other_clocks()) +
          " are placed by the machines' clocks of the day, which may differ by some milliseconds.");
    }
    if (!history_.wrong_clocks().empty()) {
      say("The clock of the day of " + joined(history_.wrong_clocks()) +
          " differs by more than a minute; times there are placed by the start of the job.");
    }
    tell_unseen();
  }

  /// Nobody is called killed because his process is not to be seen from here.
  void tell_unseen() {
    const std::vector<int> unseen = history_.ranks_where(
        [](const Facts& facts, int) { return facts.recording != nullptr && facts.life == Life::unknown; });
    if (unseen.empty()) return;
    say("The " + std::string(unseen.size() == 1 ? "process" : "processes") + " of " + ranks_text(unseen) +
        " cannot be seen from here: another machine or container, or this one before it was started anew.");
  }

  /// What ranks were told, each sentence once.
  void tell_errors() {
    std::map<std::string, std::vector<int>> told;
    for (const int rank : history_.recorded()) {
      if (of(rank).fault) told[of(rank).fault->sentence].push_back(rank);
    }
    for (const auto& [sentence, ranks] : told) {
      const int first = ranks.front();
      say(upper(ranks_text(ranks)) + (ranks.size() == 1 ? " was" : " were") + " told " +
          history_.at(first, of(first).fault->time) + ": " + sentence);
    }
  }

  void tell_requests() {
    for (const std::string& sentence : waits_.request_sentences()) say(sentence);
    has_told_requests_ = true;
  }

  [[nodiscard]] RankReport line_of(int rank) const {
    RankReport line;
    line.rank = rank;
    const Facts& facts = of(rank);
    if (facts.recording == nullptr) {
      line.state = "no file";
      return line;
    }
    line.host = base::on_one_line(facts.recording->host);
    line.pid = facts.recording->process.pid;
    line.state = facts.vanished() ? "was killed" : kStates[static_cast<std::size_t>(facts.life)];
    if (facts.fault || (facts.life == Life::gone && facts.ends_with_failure())) line.state += " after an error";
    line.last = base::on_one_line(history_.last_text(rank));
    line.last_s = history_.seconds_since_begin(history_.time_of(rank, facts.last));
    line.batches = facts.batches;
    line.awaited_batches = facts.awaited;
    return line;
  }

  const History history_;
  const Waits waits_;
  const Testimony testimony_;
  bool has_told_requests_ = false;
  JobReport result_;
};

}  // namespace

JobReport judge(const std::vector<Observed>& observed, std::int64_t now_ns) {
  if (observed.empty()) return {{}, "unclear", {}, {}, {}, {}};
  return Judge(observed, now_ns).judge();
}

}  // namespace kolo::why
