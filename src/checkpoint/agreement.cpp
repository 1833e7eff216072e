// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agreement.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#include <kolo/collectives.hpp>
#include <kolo/objects.hpp>
#include <kolo/parameters.hpp>

namespace kolo::checkpoint {

Ranks::Ranks(const Group& group, std::string caller, std::chrono::nanoseconds timeout)
    : group_(group), caller_(std::move(caller)), timeout_(timeout), rank_(kolo::rank(group)), size_(kolo::size(group)) {
}

void Ranks::agree(const Status& mine) const {
  std::uint8_t failed = mine.ok() ? 0 : 1;
  AllreduceOptions options;
  options.op = ReduceOp::max;
  options.timeout = timeout_;
  allreduce(group_, caller_ + " (done)", view(&failed, 1), options);
  if (failed == 0) return;
  const std::vector<std::string> all =
      allgather_bytes(group_, mine.ok() ? std::string() : static_cast<char>(mine.code()) + mine.message());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].empty()) continue;
    throw Error(static_cast<ErrorCode>(all[i].front()),
                caller_ + ": " + (size_ > 1 ? "rank " + std::to_string(i) + ": " : "") + all[i].substr(1));
  }
}

std::string Ranks::from_root(const std::string& text) const { return broadcast_bytes(group_, text, 0); }

std::vector<std::string> Ranks::at_root(const std::string& text) const {
  const std::uint64_t length = text.size();
  GatherOptions options;
  options.timeout = timeout_;
  const Tensor lengths = gather(group_, caller_ + " (lengths)", const_view(&length, 1), 0, options);
  const Tensor all = gather(group_, caller_ + " (parts)", const_view(text.data(), text.size()), 0, options);
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
  allreduce(group_, caller_ + " (known)", view(conditions), options);
}

void Ranks::compare(const std::vector<std::string>& entries) const { check_agreement(group_, caller_, entries); }

}  // namespace kolo::checkpoint
