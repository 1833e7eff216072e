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

}  // namespace

// ---------------------------------------------------------------- who waits for what

void Questions::on(const Overdue& message, Time now) {
  Set* const set = sets_.find(message.set);
  if (set == nullptr) return;
  // A later question gets the same answer as the first, also if other ranks have left since.
  if (message.join) return on_late_join(*set, message, now);
  const Request request = request_of(message);
  if (failures_.is_hopeless(request)) return failures_.fail_hopeless(request);
  if (message.running) return ask(message, now);
  if (is_call(request)) return on_late_call(*set, message, now);
  if (any_gone(request)) return failures_.fail_without_members(request);
  if (is_complete(request)) {
    plans_.unblock(*set, tensors_.find(message.set, message.name));
    if (message.deadline) ask(message, now);
    return;
  }
  if (!message.deadline && !message.asked && !any_left(request) && reported(request)) return;
  ask(message, now);
}

void Questions::on_late_call(Set& set, const Overdue& message, Time now) {
  if (set.has_left) calls_.note_asked(set, message.round);
  if (message.round > set.sequence.last() || message.waited_s == 0) return;
  const Request request = request_of(message);
  if (!message.deadline && (is_complete(request) || (!message.asked && reported(request)))) return;
  ask(message, now);
}

/// The sequencer knows which ranks have not joined. For a deadline it asks them all the same, because one may be
/// stopped.
void Questions::on_late_join(Set& set, const Overdue& message, Time now) {
  if (!set.absent.has(message.rank) || message.round != set.joins + 1) return;
  if (set.absent.size() == set.members.size()) return;
  if (message.deadline) return ask(message, now);
  const Request request = join_in(set);
  if (reported(request)) return;
  std::vector<std::int32_t> missing;
  for (const std::int32_t member : set.members) {
    if (!set.absent.has(member)) missing.push_back(member);
  }
  stalls_[request.key()] = request.round;
  ++log_.counters().stalls;
  log_.append(Stalled{set.number, "", message.waited_s, missing, {}, true});
}

bool Questions::any_left(const Request& request) const {
  return request.members.empty() ? sets_.at(request.set).has_left : departures_.any_left(request.members);
}

bool Questions::any_gone(const Request& request) const {
  return request.members.empty() ? sets_.at(request.set).has_gone : departures_.any_gone(request.members);
}

bool Questions::is_complete(const Request& request) const {
  if (request.join) return sets_.at(request.set).joins >= request.round;
  if (is_call(request)) return sets_.at(request.set).sequence.heard() >= request.round;
  const TensorId id = request.members.empty() ? tensors_.find(request.set, request.name) : kNoTensor;
  return id != kNoTensor && tensors_[id].round >= request.round;
}

bool Questions::is_over(const Question& question, const std::vector<std::int32_t>& missing) {
  return !question.request.members.empty() &&
         std::find(missing.begin(), missing.end(), question.asker) != missing.end();
}

bool Questions::reported(const Request& request) const {
  const auto found = stalls_.find(request.key());
  return found != stalls_.end() && found->second == request.round;
}

void Questions::ask(const Overdue& message, Time now) {
  const auto due =
      message.deadline
          ? now + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(options_.latch_timeout_s))
          : Time::max();
  for (auto& [number, question] : questions_) {
    const Request& request = question.request;
    if (request.set != message.set || request.name != message.name || request.round != message.round) continue;
    if (request.members != message.members || question.deadline != message.deadline) continue;
    if (request.join != message.join) continue;
    if (!request.members.empty() && question.asker != message.rank) continue;
    question.running = question.running || message.running;
    question.warns = question.warns || is_warning(message);
    question.waited_s = std::max(question.waited_s, message.waited_s);
    question.due = std::min(question.due, due);
    return;
  }
  Question question;
  question.request = request_of(message);
  question.request.join = message.join;
  question.asker = message.rank;
  question.deadline = message.deadline;
  question.running = message.running;
  question.kind = message.kind;
  question.warns = is_warning(message);
  question.waited_s = message.waited_s;
  question.due = due;
  ask(std::move(question));
}

void Questions::ask(Question question) {
  const std::uint64_t number = next_question_++;
  const Request& request = question.request;
  const Round round = question.running ? 0 : request.round;  // the name may have been evicted meanwhile
  log_.append(Query{number, request.set, request.name, round, question.deadline, request.members, request.join});
  questions_[number] = std::move(question);
}

void Questions::forget(const Key& key) {
  std::erase_if(questions_, [&key](const auto& item) { return item.second.request.key() == key; });
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
    const bool has_failed = any_gone(request) && !question.running && !request.join && !is_call(request);
    it = has_failed ? questions_.erase(it) : std::next(it);
    if (has_failed) failures_.fail_without_members(question.request);
  }
}

// ---------------------------------------------------------------- warnings

void Questions::on(const Missing& message) {
  const auto found = questions_.find(message.query);
  if (found == questions_.end()) return;
  Question& question = found->second;
  question.missing.insert(question.missing.end(), message.ranks.begin(), message.ranks.end());
  std::copy_if(message.ranks.begin(), message.ranks.end(), std::back_inserter(question.gone),
               [this](std::int32_t rank) { return departures_.has_left(rank); });
  if (const Set& world = sets_.at(core::kGlobalSet); !question.request.members.empty()) {
    if (question.absent.empty()) question.joins = world.joins;
    std::copy_if(message.ranks.begin(), message.ranks.end(), std::back_inserter(question.absent),
                 [&world](std::int32_t rank) { return world.absent.has(rank); });
  }
  if (++question.answers < options_.nodes) return;
  Question answered = std::move(question);
  questions_.erase(found);
  conclude_warning(std::move(answered));
}

void Questions::conclude_warning(Question question) {
  if (is_complete(question.request) || is_over(question, question.missing)) return;
  if (is_call(question.request)) {
    if (question.request.round > sets_.at(question.request.set).sequence.last()) return;  // it fails by itself
    question.gone.clear();
  }
  std::sort(question.missing.begin(), question.missing.end());
  std::sort(question.gone.begin(), question.gone.end());
  if (!question.gone.empty()) {
    failures_.give_up(question.request, question.gone);
  } else if (!question.absent.empty() && question.joins == sets_.at(core::kGlobalSet).joins) {
    refuse_set(question.request, question.absent);
  } else if (!question.absent.empty() || departures_.any_left(question.missing)) {
    question.answers = 0;  // it may have submitted after its node had answered
    question.missing.clear();
    question.absent.clear();
    ask(std::move(question));
  } else if (!question.missing.empty() && question.waited_s > 0) {
    const Request& request = question.request;
    if (question.warns) {
      stalls_[request.key()] = request.round;
      ++log_.counters().stalls;
    }
    log_.append(Stalled{request.set, request.name, question.waited_s, question.missing, request.members, false,
                        request.round, question.kind, !question.warns});
  }
}

void Questions::refuse_set(const Request& request, std::vector<std::int32_t> absent) {
  std::sort(absent.begin(), absent.end());
  forget(request.key());
  failures_.fail(request, ErrorCode::invalid_argument, absent_member(sets_.subject_of(request), absent));
}

// ---------------------------------------------------------------- deadlines

void Questions::on(const Answer& message) {
  const auto found = questions_.find(message.query);
  if (found == questions_.end()) return;
  Question& question = found->second;
  const auto same = [&message](const Answer& answer) { return answer.rank == message.rank; };
  if (std::any_of(question.heard.begin(), question.heard.end(), same)) return;
  question.heard.push_back(message);
  if (!silent_of(question).empty()) return;
  const Question answered = std::move(question);
  questions_.erase(found);
  conclude_deadline(answered);
}

void Questions::conclude_due(Time now) {
  for (auto it = questions_.begin(); it != questions_.end();) {
    const Question question = it->second;
    it = question.due <= now ? questions_.erase(it) : std::next(it);
    if (question.due <= now) conclude_deadline(question);
  }
}

Questions::Time Questions::next_deadline() const {
  Time next = Time::max();
  for (const auto& [number, question] : questions_) next = std::min(next, question.due);
  return next;
}

std::vector<std::int32_t> Questions::silent_of(const Question& question) const {
  std::vector<std::int32_t> silent;
  for (const std::int32_t member : sets_.members_of(question.request)) {
    const auto same = [member](const Answer& answer) { return answer.rank == member; };
    const bool answered = std::any_of(question.heard.begin(), question.heard.end(), same);
    if (!answered && !departures_.has_left(member)) silent.push_back(member);
  }
  return silent;
}

std::vector<std::int32_t> Questions::nearest(const std::vector<std::int32_t>& silent) const {
  std::vector<std::int32_t> ranks;
  const auto is_silent = [&silent](std::int32_t rank) {
    return std::binary_search(silent.begin(), silent.end(), rank);
  };
  for (const std::int32_t rank : silent) {
    std::int32_t on_the_way = speaker_of(rank);
    while (on_the_way >= 0 && !is_silent(on_the_way)) on_the_way = speaker_of(on_the_way);
    if (on_the_way < 0) ranks.push_back(rank);
  }
  return ranks;
}

std::int32_t Questions::speaker_of(std::int32_t rank) const {
  return options_.speaks_through.empty() ? -1 : options_.speaks_through[static_cast<std::size_t>(rank)];
}

void Questions::conclude_deadline(const Question& question) {
  std::vector<std::int32_t> absent;
  for (const Answer& answer : question.heard) {
    if (!answer.submitted) absent.push_back(answer.rank);
  }
  if (is_over(question, absent) || (question.request.join && is_complete(question.request))) return;
  Wait wait;
  wait.join = question.request.join;
  wait.group = !question.request.members.empty();
  wait.waited_s = question.waited_s;
  wait.silent = nearest(silent_of(question));
  wait.answers = question.heard;
  std::sort(wait.answers.begin(), wait.answers.end(), [](const Answer& a, const Answer& b) { return a.rank < b.rank; });
  if (!question.running && !is_complete(question.request)) {
    wait.left = departures_.left_of(sets_.members_of(question.request));
  }
  const bool has_run =
      wait.silent.empty() && std::all_of(wait.answers.begin(), wait.answers.end(), [](const Answer& answer) {
        return answer.submitted && answer.doing == Doing::nothing;
      });
  if (has_run && wait.left.empty()) return;
  const Verdict verdict =
      deadline_passed(sets_.subject_of(question.request), wait, [this](SetId set) { return sets_.words_of(set); });
  log_.fault(ErrorCode::timeout, verdict.rank, verdict.sentence);
}

}  // namespace kolo::control::sequencer
