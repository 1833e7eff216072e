// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/questions.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "control/sentences.hpp"

namespace kolo::control::sequencer {

using core::kNoTensor;
using core::Round;
using core::SetId;
using core::TensorId;

namespace {

/// Whether the message asks for a warning: it is not a program's question, and not asked because a rank has left.
bool is_warning(const Overdue& message) noexcept { return !message.asked && message.waited_s > 0; }

bool has(const std::vector<std::int32_t>& ranks, std::int32_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

const Answer* Questions::Question::answer_of(std::int32_t rank) const {
  const auto found =
      std::find_if(answers.begin(), answers.end(), [rank](const Answer& answer) { return answer.rank == rank; });
  return found == answers.end() ? nullptr : &*found;
}

std::vector<std::int32_t> Questions::Question::missing() const {
  std::vector<std::int32_t> ranks;
  for (const Answer& answer : answers) {
    if (!answer.submitted) ranks.push_back(answer.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

double Questions::Question::waited_s() const {
  double longest = 0;
  for (const Asker& asker : askers) longest = std::max(longest, asker.waited_s);
  return longest;
}

// ---------------------------------------------------------------- asking

void Questions::on(const Overdue& message, Time now) {
  Set* const set = sets_.find(message.request.set);
  if (set == nullptr) return;
  const Request& request = message.request;
  if (request.join) return on_late_join(*set, message, now);
  // A later question gets the same answer as the first, also if other ranks have left since.
  if (failures_.is_hopeless(request)) return failures_.fail_hopeless(request);
  if (message.running) return ask(message, now);
  if (request.is_call()) return on_late_call(*set, message, now);
  if (any_gone(request)) return failures_.fail_without_members(request);
  if (is_complete(request)) {
    plans_.unblock(*set, tensors_.find(request.set, request.name));
    if (message.deadline) ask(message, now);
    return;
  }
  if (!message.deadline && !message.asked && !any_departed(request) && reported(request)) return;
  ask(message, now);
}

void Questions::on_late_call(Set& set, const Overdue& message, Time now) {
  const Request& request = message.request;
  if (set.has_departed) calls_.note_asked(set, request.round);
  if (request.round > set.sequence.last() || message.waited_s == 0) return;
  if (!message.deadline && (is_complete(request) || (!message.asked && reported(request)))) return;
  ask(message, now);
}

void Questions::on_late_join(Set& set, const Overdue& message, Time now) {
  if (!set.absent.has(message.rank) || message.request.round != set.joins + 1) return;
  if (set.absent.size() == set.members.size()) return;
  if (message.deadline || !reported(message.request)) ask(message, now);
}

bool Questions::any_departed(const Request& request) const {
  return request.members.empty() ? sets_.at(request.set).has_departed : departures_.any_departed(request.members);
}

bool Questions::any_gone(const Request& request) const {
  return request.members.empty() ? sets_.at(request.set).has_gone : departures_.any_gone(request.members);
}

bool Questions::is_complete(const Request& request) const {
  if (request.join) return sets_.at(request.set).joins >= request.round;
  if (request.is_call()) return sets_.at(request.set).sequence.heard() >= request.round;
  const TensorId id = request.members.empty() ? tensors_.find(request.set, request.name) : kNoTensor;
  return id != kNoTensor && tensors_[id].round >= request.round;
}

bool Questions::reported(const Request& request) const {
  const auto found = stalls_.find(key_of(request));
  return found != stalls_.end() && found->second == request.round;
}

void Questions::ask(const Overdue& message, Time now) {
  const Asker asker{message.rank, message.request.serial, message.waited_s};
  for (auto& [number, question] : questions_) {
    if (question.deadline != message.deadline || question.alone != message.alone) continue;
    if (!are_same(question.request, message.request)) continue;
    question.running = question.running || message.running;
    question.warns = question.warns || is_warning(message);
    const auto same = std::find_if(question.askers.begin(), question.askers.end(), [&asker](const Asker& one) {
      return one.rank == asker.rank && one.serial == asker.serial;
    });
    if (same == question.askers.end()) {
      question.askers.push_back(asker);
    } else {
      same->waited_s = asker.waited_s;
    }
    return;
  }
  Question question;
  question.request = message.request;
  question.request.serial = 0;
  question.askers = {asker};
  question.deadline = message.deadline;
  question.alone = message.alone;
  question.warns = is_warning(message);
  question.running = message.running;
  question.kind = message.kind;
  ask(std::move(question), now);
}

void Questions::ask(Question question, Time now) {
  const std::uint64_t number = next_question_++;
  const auto patience = std::chrono::duration<double>(options_.latch_timeout_s);
  question.due = now + std::chrono::duration_cast<Time::duration>(patience);
  question.departed = departures_.departed_of(sets_.members_of(question.request));
  question.answers.clear();
  question.gone.clear();
  question.absent.clear();
  Query query{number, question.request, question.askers.front().rank};
  query.request.serial = question.askers.front().serial;
  if (question.running) query.request.round = 0;  // the name may have been evicted meanwhile
  log_.append(std::move(query));
  questions_[number] = std::move(question);
}

void Questions::forget(const Key& key) {
  std::erase_if(questions_, [&key](const auto& item) { return key_of(item.second.request) == key; });
  stalls_.erase(key);
}

void Questions::forget(SetId set) {
  std::erase_if(questions_, [set](const auto& item) { return item.second.request.set == set; });
  std::erase_if(stalls_, [set](const auto& item) { return std::get<SetId>(item.first) == set; });
}

void Questions::fail_questions() {
  for (auto it = questions_.begin(); it != questions_.end();) {
    const Question question = it->second;
    const Request& request = question.request;
    const bool has_failed = any_gone(request) && !question.running && !request.join && !request.is_call();
    it = has_failed ? questions_.erase(it) : std::next(it);
    if (has_failed) failures_.fail_without_members(question.request);
  }
}

// ---------------------------------------------------------------- answers

void Questions::on(const Answer& message, Time now) {
  const auto found = questions_.find(message.query);
  if (found == questions_.end()) return;
  Question& question = found->second;
  if (question.answer_of(message.rank) != nullptr) return;
  question.answers.push_back(message);
  const Set& world = sets_.world();
  if (!message.submitted && departures_.has_departed(message.rank)) question.gone.push_back(message.rank);
  if (!message.submitted && !question.request.members.empty() && world.absent.has(message.rank)) {
    if (question.absent.empty()) question.joins = world.joins;
    question.absent.push_back(message.rank);
  }
  if (!silent_of(question).empty()) return;
  Question answered = std::move(question);
  questions_.erase(found);
  conclude(std::move(answered), now);
}

void Questions::conclude_due(Time now) {
  std::vector<Question> due;
  for (auto it = questions_.begin(); it != questions_.end();) {
    const bool is_due = it->second.due <= now;
    if (is_due) due.push_back(std::move(it->second));
    it = is_due ? questions_.erase(it) : std::next(it);
  }
  for (Question& question : due) conclude(std::move(question), now);
}

Questions::Time Questions::earliest_due() const {
  Time next = Time::max();
  for (const auto& [number, question] : questions_) next = std::min(next, question.due);
  return next;
}

std::vector<std::int32_t> Questions::silent_of(const Question& question) const {
  std::vector<std::int32_t> silent;
  for (const std::int32_t member : sets_.members_of(question.request)) {
    const bool has_left_since = departures_.has_departed(member) && !has(question.departed, member);
    const bool is_beyond_reach = member == question.askers.front().rank ? departures_.has_gone(member) : has_left_since;
    if (question.answer_of(member) == nullptr && !is_beyond_reach) silent.push_back(member);
  }
  return silent;
}

bool Questions::has_lost_an_answer(const Question& question) const {
  const std::vector<std::int32_t>& members = sets_.members_of(question.request);
  return std::any_of(members.begin(), members.end(), [&](std::int32_t member) {
    if (!departures_.has_departed(member)) return false;
    const Answer* const answer = question.answer_of(member);
    return answer == nullptr || (!answer->submitted && !has(question.gone, member));
  });
}

std::vector<std::int32_t> Questions::present(std::vector<std::int32_t> ranks) const {
  std::erase_if(ranks, [this](std::int32_t rank) { return departures_.has_departed(rank); });
  return ranks;
}

std::vector<std::int32_t> Questions::nearest(const std::vector<std::int32_t>& silent) const {
  std::vector<std::int32_t> ranks;
  for (const std::int32_t rank : silent) {
    std::int32_t on_the_way = speaker_of(rank);
    while (on_the_way >= 0 && !has(silent, on_the_way)) on_the_way = speaker_of(on_the_way);
    if (on_the_way < 0) ranks.push_back(rank);
  }
  return ranks;
}

std::int32_t Questions::speaker_of(std::int32_t rank) const {
  return options_.speaks_through.empty() ? -1 : options_.speaks_through[static_cast<std::size_t>(rank)];
}

// ---------------------------------------------------------------- outcomes

bool Questions::is_over(const Question& question) const {
  const std::int32_t asker = question.askers.front().rank;
  const Answer* const answer = question.answer_of(asker);
  if (answer != nullptr) return !answer->submitted;
  // A request that fails alone must be the one that the asker made: after a silent one's, others have made their next.
  return question.alone || departures_.has_departed(asker);
}

void Questions::conclude(Question question, Time now) {
  if (is_over(question)) {
    question.askers.erase(question.askers.begin());
    if (!question.askers.empty()) ask(std::move(question), now);
    return;
  }
  const Request& request = question.request;
  const bool is_open = !question.running && !is_complete(request) && !request.join && !request.is_call();
  if (is_open && conclude_by_absence(question, now)) return;
  if (question.deadline) {
    conclude_deadline(question);
  } else {
    conclude_warning(question);
  }
}

bool Questions::conclude_by_absence(Question& question, Time now) {
  const Request& request = question.request;
  std::sort(question.gone.begin(), question.gone.end());
  if (!question.gone.empty()) {
    failures_.give_up(request, question.gone);
    return true;
  }
  if (!question.absent.empty() && question.joins == sets_.world().joins) {
    refuse_set(request, question.absent);
    return true;
  }
  if (!silent_of(question).empty()) return false;
  if (question.absent.empty() && !has_lost_an_answer(question)) return false;
  ask(std::move(question), now);
  return true;
}

void Questions::refuse_set(const Request& request, std::vector<std::int32_t> absent) {
  std::sort(absent.begin(), absent.end());
  forget(key_of(request));
  failures_.fail(request, ErrorCode::invalid_argument, absent_member(sets_.subject_of(request), absent));
}

void Questions::conclude_warning(const Question& question) {
  const Request& request = question.request;
  const double waited_s = question.waited_s();
  if (is_complete(request) || waited_s == 0) return;
  if (request.is_call() && request.round > sets_.at(request.set).sequence.last()) return;  // it fails by itself
  Stalled stalled{request, waited_s, question.missing(), question.kind, !question.warns};
  stalled.silent = nearest(present(silent_of(question)));
  if (stalled.missing.empty() && stalled.silent.empty()) return;
  if (question.warns) {
    note_reported(request);
    ++log_.counters().stalls;
  }
  log_.append(std::move(stalled));
}

void Questions::conclude_deadline(const Question& question) {
  const Request& request = question.request;
  const bool is_complete_now = question.running || is_complete(request);
  if (request.join && is_complete_now) return;
  Wait wait;
  wait.join = request.join;
  wait.group = !request.members.empty();
  wait.alone = question.alone;
  wait.waited_s = question.waited_s();
  wait.answers = question.answers;
  std::sort(wait.answers.begin(), wait.answers.end(), [](const Answer& a, const Answer& b) { return a.rank < b.rank; });
  wait.silent = nearest(present(silent_of(question)));
  for (const std::int32_t member : sets_.members_of(request)) {
    const Answer* const answer = question.answer_of(member);
    const bool has_submitted = is_complete_now || (answer != nullptr && answer->submitted);
    if (!has_submitted && departures_.has_departed(member)) wait.departed.push_back(member);
    if (departures_.cause_of(member) >= 0) wait.causes[member] = departures_.cause_of(member);
  }
  const bool has_run =
      wait.silent.empty() && std::all_of(wait.answers.begin(), wait.answers.end(), [](const Answer& answer) {
        return answer.submitted && answer.doing == Doing::nothing;
      });
  if (has_run && wait.departed.empty()) return;
  const Verdict verdict =
      deadline_passed(sets_.subject_of(request), wait, [this](SetId set) { return sets_.words_of(set); });
  if (!question.alone) return log_.fault(ErrorCode::timeout, verdict.rank, verdict.sentence);
  if (wait.silent.empty() && question.missing().empty()) return;
  forget(key_of(request));
  failures_.expire(request, verdict.sentence);
}

}  // namespace kolo::control::sequencer
