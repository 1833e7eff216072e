// SPDX-License-Identifier: Apache-2.0
#include "why/waits.hpp"

#include <algorithm>
#include <set>

#include "why/words.hpp"

namespace kolo::why {
namespace {

/// What has waited for less may be under way.
constexpr std::int64_t kLong = 500'000'000;
/// Of the requests, and of the batches, that are told.
constexpr std::size_t kMostTold = 4;
/// Of groups that are being made, whose members are looked for.
constexpr std::size_t kMostMakings = 64;

}  // namespace

Waits::Waits(const History& history) : history_(history) {
  collect_requests();
  collect_batches();
}

/// It is never freed: nothing of it runs at the process's exit.
const Waits::Group* Waits::none() {
  static const auto* const group = new Group;
  return group;
}

Waits::Group Waits::group_of(std::vector<int> members) const {
  Group group;
  std::sort(members.begin(), members.end());
  for (const int rank : members) (history_.has_file(rank) ? group.recorded : group.unknown).push_back(rank);
  return group;
}

const Waits::Group& Waits::group_of_set(std::uint32_t set) {
  const auto [known, is_new] = groups_.try_emplace(set);
  if (is_new) known->second = group_of(history_.members_of(set));
  return known->second;
}

// Of a rank that has ended nobody knows when it did: what it had open, it never got.
bool Waits::is_long(int rank, std::int64_t since) const {
  const Facts& facts = history_.of(rank);
  return history_.end_of(rank) >= since + kLong || facts.fault || facts.vanished();
}

void Waits::collect_requests() {
  for (const int rank : history_.recorded()) {
    for (const auto& [request, open] : history_.of(rank).work.requests) {
      const std::int64_t since = history_.time_of(rank, open.since);
      if (!is_long(rank, since)) continue;
      Waited& one = requests_[request];
      if (one.waiting.empty() || since < one.since) one.since = since;
      one.waiting.push_back(rank);
      one.open = open;
    }
  }
  for (auto& [request, one] : requests_) {
    if (!makes_set(one.open)) {
      find_missing(request, one, group_of_set(request.set));
    } else if (makings_.size() < kMostMakings) {
      find_missing(request, one,
                   makings_.emplace_back(group_of(ranks_in(history_.name_of(request.id), history_.size()))));
    }
  }
}

void Waits::find_missing(const Request& request, Waited& one, const Group& group) const {
  for (const int rank : group.recorded) {
    const Facts& facts = history_.of(rank);
    const bool may_be_forgotten = history_.time_of(rank, facts.first) > one.since;
    if (!std::binary_search(one.waiting.begin(), one.waiting.end(), rank) &&
        !facts.has_submitted(request, may_be_forgotten)) {
      one.missing.push_back(rank);
    }
  }
  one.group = &group;
}

void Waits::collect_batches() {
  for (const int rank : history_.recorded()) {
    for (const auto& [number, running] : history_.of(rank).work.batches) {
      const std::int64_t since = history_.time_of(rank, running.since);
      if (!is_long(rank, since)) continue;
      Batch& one = batches_[number];
      if (one.running.empty() || since < one.since) one.since = since;
      one.running.push_back(rank);
      one.what = running;
    }
  }
  for (auto& [number, one] : batches_) {
    const Group& group = group_of_set(number.first);
    one.group = &group;
    for (const int rank : group.recorded) {
      const auto& begun_by_set = history_.of(rank).batches_begun;
      const auto begun = begun_by_set.find(number.first);
      if (begun == begun_by_set.end() || begun->second < number.second) one.behind.push_back(rank);
    }
  }
}

std::vector<std::string> Waits::request_sentences() const {
  std::vector<std::string> sentences;
  std::size_t told = 0;
  for (const auto& [request, one] : requests_) {
    const std::vector<int>& lacking = one.missing.empty() ? one.group->unknown : one.missing;
    if (lacking.empty() || told++ >= kMostTold) continue;
    sentences.push_back(upper(ranks_text(lacking)) + (lacking.size() == 1 ? " has" : " have") + " not submitted " +
                        history_.text_of(request, one.open) + ", for which " + ranks_text(one.waiting) +
                        (one.waiting.size() == 1 ? " waits" : " wait") + " since " +
                        seconds_text(history_.seconds_since_begin(one.since)) + ".");
  }
  if (told > kMostTold) sentences.push_back("And " + std::to_string(told - kMostTold) + " more requests.");
  return sentences;
}

std::vector<std::string> Waits::flight_sentences() const {
  std::vector<std::string> sentences;
  std::size_t told = 0;
  for (const auto& [number, batch] : batches_) {
    if (told++ >= kMostTold) continue;
    sentences.push_back("In flight: " + history_.text_of(number.first, batch.what) + ", which " +
                        ranks_text(batch.running) + (batch.running.size() == 1 ? " runs" : " run") +
                        (batch.behind.empty() ? "." : ", and " + ranks_text(batch.behind) + " not yet."));
  }
  if (told > kMostTold) sentences.push_back("And " + std::to_string(told - kMostTold) + " more batches.");
  for (const int rank : history_.recorded()) {
    if (std::string sentence = message_sentence(rank); !sentence.empty()) sentences.push_back(std::move(sentence));
  }
  return sentences;
}

std::string Waits::message_sentence(int rank) const {
  for (const auto& [id, message] : history_.of(rank).work.messages) {
    const std::int64_t since = history_.time_of(rank, message.since);
    if (history_.end_of(rank) < since + kLong) continue;
    const std::string peer =
        message.peer == recorder::kAnyRank ? "any rank" : rank_text(static_cast<int>(message.peer));
    return upper(rank_text(rank)) + (message.sends ? " sends to " : " receives from ") + peer + " since " +
           seconds_text(history_.seconds_since_begin(since)) + " (tag " +
           std::to_string(static_cast<std::int32_t>(message.tag)) + ").";
  }
  return {};
}

std::vector<std::string> Waits::names() const {
  std::set<std::string> names;
  for (const auto& [request, one] : requests_) {
    if (request.id != 0 && !makes_set(one.open)) names.insert(history_.name_of(request.id));
  }
  for (const auto& [number, batch] : batches_) {
    for (const std::uint64_t id : batch.what.names) names.insert(history_.name_of(id));
  }
  return {names.begin(), names.end()};
}

}  // namespace kolo::why
