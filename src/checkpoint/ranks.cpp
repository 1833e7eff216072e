// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/ranks.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#include <kolo/collectives.hpp>
#include <kolo/objects.hpp>
#include <kolo/parameters.hpp>

namespace kolo::checkpoint {

Ranks::Ranks(const Group& group, std::string caller, std::optional<std::chrono::nanoseconds> timeout)
    : group_(group), caller_(std::move(caller)), timeout_(timeout), rank_(kolo::rank(group)), size_(kolo::size(group)) {
}

Ranks::Progress Ranks::latest(Progress mine) const {
  auto progress = static_cast<std::uint8_t>(mine);
  AllreduceOptions options;
  options.op = ReduceOp::max;
  options.timeout = timeout_;
  allreduce({group_, caller_ + " (done)"}, view(&progress, 1), options);
  return static_cast<Progress>(progress);
}

void Ranks::throw_first(const Status& mine) const {
  const std::vector<std::string> all =
      allgather_bytes(group_, mine.ok() ? std::string() : static_cast<char>(mine.code()) + mine.message());
  std::size_t i = 0;
  while (all[i].empty()) ++i;
  throw Error(static_cast<ErrorCode>(all[i].front()),
              caller_ + ": " + (size_ > 1 ? "rank " + std::to_string(i) + ": " : "") + all[i].substr(1));
}

void Ranks::agree(const Status& mine) const {
  if (latest(mine.ok() ? Progress::done : Progress::failed) == Progress::failed) throw_first(mine);
}

void Ranks::in_steps(const std::function<bool()>& step) const {
  constexpr std::chrono::seconds kBetweenMeetings(1);
  Progress mine = Progress::goes_on, all = Progress::goes_on;
  Status status;
  while (all == Progress::goes_on) {
    if (mine == Progress::goes_on) {
      const auto end = std::chrono::steady_clock::now() + kBetweenMeetings;
      bool goes_on = true;
      status = attempt([&] {
        do {
          goes_on = step();
        } while (goes_on && std::chrono::steady_clock::now() < end);
      });
      mine = !status.ok() ? Progress::failed : goes_on ? Progress::goes_on : Progress::done;
    }
    all = latest(mine);
  }
  if (all == Progress::failed) throw_first(status);
}

std::string Ranks::from_root(const std::string& text) const { return broadcast_bytes(group_, text, 0); }

std::vector<std::string> Ranks::at_root(const std::string& text) const {
  const std::uint64_t length = text.size();
  GatherOptions options;
  options.timeout = timeout_;
  const Tensor lengths = gather({group_, caller_ + " (lengths)"}, const_view(&length, 1), 0, options);
  const Tensor all = gather({group_, caller_ + " (parts)"}, const_view(text.data(), text.size()), 0, options);
  std::vector<std::string> texts;
  if (rank_ != 0) return texts;
  const char* next = static_cast<const char*>(all.data());
  for (const std::uint64_t one : lengths.as<std::uint64_t>()) {
    texts.emplace_back(next, one);
    next += one;
  }
  return texts;
}

void Ranks::all_of(std::vector<std::uint8_t>& conditions) const {
  AllreduceOptions options;
  options.op = ReduceOp::min;
  options.timeout = timeout_;
  allreduce({group_, caller_ + " (known)"}, view(conditions), options);
}

void Ranks::compare(const std::vector<std::string>& entries) const { check_agreement(group_, caller_, entries); }

}  // namespace kolo::checkpoint
