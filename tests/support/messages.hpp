// SPDX-License-Identifier: Apache-2.0
//
// Random exchanges of messages between the ranks of a group, and whether all of them came whole and in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

namespace kolo::testing {

/// One round: every rank sends as many messages as `each` says, of up to `most` elements, to any ranks of the group,
/// itself included. A rank takes all of them from any rank with any tag, or names rank and tag each time. All ranks
/// call it with the same numbers. Empty: all is well.
inline std::string exchange_messages(const Group& group, std::uint64_t seed, int each, std::int64_t most) {
  struct Planned {
    int from = 0;
    int to = 0;
    int tag = 0;
    std::int64_t elements = 0;
    int number = 0;
  };
  const int ranks = size(group), own = rank(group);
  const auto draw = [](std::mt19937_64& random, std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  std::mt19937_64 random(seed * 64 + static_cast<std::uint64_t>(ranks));
  std::vector<bool> names(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = draw(random, 100) < 60;
  std::vector<Planned> plan;
  for (int from = 0; from < ranks; ++from) {
    for (int i = 0; i < each; ++i) {
      const std::int64_t scale = std::int64_t{1}
                                 << draw(random, 63 - __builtin_clzll(static_cast<std::uint64_t>(most)) + 1);
      plan.push_back({from, static_cast<int>(draw(random, ranks)), static_cast<int>(draw(random, 3)),
                      2 + draw(random, std::min(scale, most)), static_cast<int>(plan.size())});
    }
  }
  std::mt19937_64 mine(seed * 64 + static_cast<std::uint64_t>(own) + 32);
  struct Incoming {
    std::vector<std::int32_t> memory;
    Future<Received> future;
    const Planned* named = nullptr;
  };
  std::vector<std::unique_ptr<Incoming>> incoming;
  std::vector<std::vector<std::int32_t>> outgoing;
  std::vector<Handle> sends;
  std::vector<const Planned*> to_send, to_receive;
  for (const Planned& one : plan) {
    if (one.from == own) to_send.push_back(&one);
    if (one.to == own) to_receive.push_back(&one);
  }
  std::size_t sent = 0, received = 0;
  while (sent < to_send.size() || received < to_receive.size()) {
    const bool sends_now = received == to_receive.size() || (sent < to_send.size() && draw(mine, 2) == 0);
    if (sends_now) {
      const Planned& one = *to_send[sent++];
      outgoing.emplace_back(static_cast<std::size_t>(one.elements), one.number);
      outgoing.back()[1] = one.tag;
      const ConstTensorView view = const_view(outgoing.back());
      if (one.elements <= 100 && draw(mine, 2) == 0) {
        send(group, view, one.to, one.tag);
        std::fill(outgoing.back().begin(), outgoing.back().end(), -5);
      } else {
        sends.push_back(send_async(group, view, one.to, one.tag));
      }
    } else {
      const Planned& one = *to_receive[received++];
      auto next = std::make_unique<Incoming>();
      const bool is_named = names[static_cast<std::size_t>(own)];
      next->named = is_named ? &one : nullptr;
      next->memory.assign(static_cast<std::size_t>(is_named ? one.elements + 3 : most + 2), -9);
      next->future =
          is_named ? recv_async(group, view(next->memory), one.from, one.tag) : recv_async(group, view(next->memory));
      incoming.push_back(std::move(next));
    }
  }
  wait_all(sends);
  for (const auto& one : incoming) one->future.wait();
  barrier(group);  // a receive from any must not get what is sent in the next round
  std::vector<int> last(static_cast<std::size_t>(ranks) * 3, -1);
  for (const auto& one : incoming) {
    const Received got = one->future.get();
    const int number = one->memory[0];
    const std::string where = "message " + std::to_string(number) + " at rank " + std::to_string(own) + ": ";
    if (number < 0 || static_cast<std::size_t>(number) >= plan.size()) return where + "no such message";
    const Planned& planned = plan[static_cast<std::size_t>(number)];
    if (planned.to != own || planned.from != got.source || planned.tag != got.tag || one->memory[1] != got.tag)
      return where + "it is another's";
    if (one->named != nullptr && one->named != &planned) return where + "it is not the one that was due";
    if (got.elements != planned.elements) return where + "it has another length";
    const auto end = one->memory.begin() + static_cast<std::ptrdiff_t>(got.elements);
    if (!std::all_of(one->memory.begin() + 2, end, [&](std::int32_t x) { return x == number; }))
      return where + "it is not whole";
    if (!std::all_of(end, one->memory.end(), [](std::int32_t x) { return x == -9; }))
      return where + "more was written than it has";
    int& before = last[static_cast<std::size_t>(got.source) * 3 + static_cast<std::size_t>(got.tag)];
    if (number <= before) return where + "it comes after a later one";
    before = number;
  }
  return {};
}

}  // namespace kolo::testing
