// SPDX-License-Identifier: Apache-2.0
#include "why/facts.hpp"

#include <algorithm>

#include <kolo/error.hpp>

namespace kolo::why {
namespace {

using recorder::Kind;
using recorder::Record;

/// Reads the events one by one.
class Reading {
 public:
  explicit Reading(Facts& facts) : facts_(facts), recording_(*facts.recording) {}

  void read() {
    for (const Record& record : recording_.events) {
      if (record.kind == Kind::sentence) {
        if (heard_ != nullptr) heard_->sentence = recording_.text(record.id);
        continue;
      }
      heard_ = nullptr;
      note(record);
    }
    if (!is_over_) facts_.work = std::move(work_);
    facts_.sleeping = sleepers_ > 0 ? slept_ : 0;
  }

 private:
  void note(const Record& record) {
    facts_.last = std::max(facts_.last, record.time);
    note_work(record);
    note_news(record);
  }

  void note_work(const Record& record) {
    switch (record.kind) {
    case Kind::submitted:
      facts_.rounds[{record.set, record.id}] = record.round;
      work_.requests[{record.set, record.id, record.round}] = {record.time, record.amount, record.detail};
      deed(record);
      break;
    case Kind::called:
      note_call(record.set, record.round);
      work_.requests[{record.set, 0, record.round}] = {record.time, record.amount, record.detail};
      deed(record);
      break;
    case Kind::batch_begun:
      begin(record);
      deed(record);
      break;
    case Kind::batch_member:
      agree(record.set, record.id);
      work_.batches[{record.set, record.round}].names.push_back(record.id);
      break;
    case Kind::batch_ended:
      work_.batches.erase({record.set, record.round});
      facts_.succeeded_last = record.time;
      deed(record);
      break;
    case Kind::failed:
      fail(record);
      break;
    case Kind::group_made:
      agree(0, record.id);
      break;
    case Kind::message_open:
      work_.messages[record.id] = {record.time, record.set, record.round, record.detail != 0};
      break;
    case Kind::message_ended:
      end_message(record);
      break;
    case Kind::wait_begun:
      slept_ = sleepers_++ == 0 ? record.time : std::min(slept_, record.time);
      break;
    case Kind::wait_ended:
      if (sleepers_ > 0) --sleepers_;
      break;
    case Kind::step_ended:
      facts_.steps = record.amount;
      deed(record);
      break;
    default:
      break;
    }
  }

  void note_news(const Record& record) {
    const Heard news{record.time, static_cast<int>(record.amount), record.detail, {}};
    switch (record.kind) {
    case Kind::start_step:
      facts_.start_step = recording_.text(record.id);
      break;
    case Kind::started:
      facts_.start_step.clear();
      break;
    case Kind::late:
      facts_.late.push_back(news);
      break;
    case Kind::death_seen:
      if (!is_over_) facts_.deaths.push_back(news);
      break;
    case Kind::rank_left:
      facts_.left.emplace(news.rank, record.time);
      break;
    case Kind::reported:
      if (facts_.reported) break;
      facts_.reported = news;
      heard_ = &*facts_.reported;
      break;
    case Kind::blamed:
      if (facts_.blamed < 0) facts_.blamed = news.rank;
      break;
    case Kind::fault:
      if (facts_.fault) break;
      facts_.fault = {record.time, -1, record.detail, {}};
      heard_ = &*facts_.fault;
      is_over_ = true;
      facts_.work = work_;
      break;
    case Kind::leaving:
      facts_.leaving = record.time;
      break;
    default:
      break;
    }
  }

  void deed(const Record& record) { facts_.last_deed = record; }

  void note_call(std::uint32_t set, std::uint64_t number) {
    std::uint64_t& last = facts_.calls[set];
    last = std::max(last, number);
  }

  /// A receive that began after a failure, and got its message, shows that the program has gone on.
  void end_message(const Record& record) {
    const auto message = work_.messages.find(record.id);
    if (message == work_.messages.end()) return;
    const bool received = record.detail == 0 && !message->second.sends;
    if (received && message->second.since > facts_.failed_last) facts_.succeeded_last = record.time;
    work_.messages.erase(message);
  }

  /// The name's request is in the log now, or has failed: it has one at a time. Of calls the first. Whether there is
  /// one.
  bool agree(std::uint32_t set, std::uint64_t id) {
    const auto first = work_.requests.lower_bound({set, id, 0});
    if (first == work_.requests.end() || first->first.set != set || first->first.id != id) return false;
    work_.requests.erase(first);
    return true;
  }

  void begin(const Record& record) {
    facts_.batches_begun[record.set] = record.round;
    facts_.batches += record.last >= 0 ? 1 : 0;
    facts_.awaited += record.last == recording_.rank ? 1 : 0;
    Running& batch = work_.batches[{record.set, record.round}];
    batch.since = record.time;
    batch.members = record.amount;
    if ((record.detail & recorder::kUnnamed) == 0) {
      batch.names.push_back(record.id);
      agree(record.set, record.id);
      return;
    }
    if (record.id == 0) return;  // this rank is absent
    note_call(record.set, record.id + record.amount - 1);
    for (std::uint32_t i = 0; i < record.amount && agree(record.set, 0); ++i) {
    }
  }

  void fail(const Record& record) {
    if (record.id != 0) {
      agree(record.set, record.id);
    } else {
      work_.requests.erase({record.set, 0, record.round});
    }
    if (is_over_) return;
    facts_.failed_last = record.time;
    const Heard news{record.time, -1, record.detail, {}};
    const bool is_mismatch = static_cast<ErrorCode>(record.detail) == ErrorCode::mismatch;
    std::vector<Heard>& all = is_mismatch ? facts_.mismatches : facts_.failures;
    all.push_back(news);
    heard_ = &all.back();
  }

  Facts& facts_;
  const recorder::Recording& recording_;
  Work work_;
  Heard* heard_ = nullptr;  ///< of which a sentence may follow
  bool is_over_ = false;
  int sleepers_ = 0;
  std::uint64_t slept_ = 0;
};

}  // namespace

bool Facts::has_submitted(const Request& request, bool may_be_forgotten) const {
  if (request.id == 0) {
    const auto called = calls.find(request.set);
    const auto fast = recording->last_fast.find(request.set);
    return (called != calls.end() && called->second >= request.round) ||
           (fast != recording->last_fast.end() && fast->second >= request.round);
  }
  const auto found = rounds.find({request.set, request.id});
  if (found != rounds.end()) return found->second >= request.round;
  return !recording->is_whole && may_be_forgotten;  // nobody knows: it may be forgotten
}

bool Facts::vanished() const noexcept {
  using recorder::State;
  return recording != nullptr && life == Life::gone && recording->state != State::faulted &&
         recording->state != State::closed && !reported && !ends_with_failure();
}

Facts facts_of(const recorder::Recording& recording, Life life) {
  Facts facts;
  facts.recording = &recording;
  facts.life = life;
  if (!recording.events.empty()) facts.first = recording.events.front().time;
  Reading(facts).read();
  return facts;
}

}  // namespace kolo::why
