// SPDX-License-Identifier: Apache-2.0
//
// What every transport between nodes must do (transport/inter_node.hpp): messages of all sizes between every pair of
// ranks, many at once, in the order of each tag; messages that are listened for; sizes that differ. Each rank of a
// world runs them, and returns what was wrong.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "transport/inter_node.hpp"

namespace kolo::testing::inter_node {

using Operation = transport::InterNode::Operation;
using Complaints = std::vector<std::string>;

/// Looks once, as an engine does in a pass.
inline bool look(transport::InterNode& transport, Operation operation) {
  transport.progress(base::now());
  return transport.test(operation);
}

inline void finish(transport::InterNode& transport, Operation operation) {
  while (!look(transport, operation)) {
  }
}

namespace detail {

inline constexpr std::byte kPoison{0xa5};

inline std::uint64_t mixed(std::uint64_t number) noexcept {
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
  number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
  return number ^ (number >> 31);
}

inline std::byte content(std::uint64_t message, std::size_t i) noexcept {
  return static_cast<std::byte>(message * 31 + i * 7 + (i >> 9));
}

/// The same on both sides: nothing, little, some thousand, or up to `most`.
inline std::size_t size_of(std::uint64_t message, std::size_t most) noexcept {
  const std::uint64_t random = mixed(message + 1);
  const std::size_t limits[] = {1, 64, 5000, most};
  return static_cast<std::size_t>(random >> 8) % limits[random % 4];
}

/// One pair, one direction, one tag: messages that are all in flight at once.
struct Stream {
  int peer;
  int tag;
  bool sending;
};

struct Open {
  Operation operation;
  std::uint64_t message;
  std::byte* memory;
  std::size_t bytes;
  bool sending;
};

inline std::uint64_t message_number(int from, int to, int tag, int i) noexcept {
  const auto number = [](int value) { return static_cast<std::uint64_t>(value); };
  return ((number(from) * 64 + number(to)) * 64 + number(tag)) * 1000 + number(i);
}

inline void judge(const Open& open, Complaints& complaints) {
  for (std::size_t i = 0; i < open.bytes; ++i) {
    if (open.memory[i] == content(open.message, i)) continue;
    complaints.push_back("byte " + std::to_string(i) + " of message " + std::to_string(open.message) + " is wrong");
    break;
  }
  if (open.memory[open.bytes] != kPoison)
    complaints.push_back("something is written behind message " + std::to_string(open.message));
}

}  // namespace detail

/// `count` messages of up to `most` bytes each way between each pair, with each of three tags, looked at in any order.
[[nodiscard]] inline Complaints exchange_all(transport::InterNode& transport, int rank, int size, std::size_t most,
                                             int count) {
  using namespace detail;  // NOLINT(google-build-using-namespace): this header's own
  Complaints complaints;
  std::vector<Stream> streams;
  for (int peer = 0; peer < size; ++peer) {
    for (const int tag : {0, 7, 63}) {
      if (peer == rank) continue;
      streams.push_back({peer, tag, true});
      streams.push_back({peer, tag, false});
    }
  }
  std::vector<Open> open;
  for (int i = 0; i < count; ++i) {
    for (const Stream& stream : streams) {
      const std::uint64_t message = stream.sending ? message_number(rank, stream.peer, stream.tag, i)
                                                   : message_number(stream.peer, rank, stream.tag, i);
      const std::size_t bytes = size_of(message, most);
      std::byte* memory = transport.staging(bytes + 1);
      if (reinterpret_cast<std::uintptr_t>(memory) % 64 != 0) complaints.push_back("staging memory is not aligned");
      std::fill(memory, memory + bytes + 1, kPoison);
      for (std::size_t b = 0; stream.sending && b < bytes; ++b) memory[b] = content(message, b);
      const Operation operation = stream.sending ? transport.send(stream.peer, stream.tag, memory, bytes)
                                                 : transport.receive(stream.peer, stream.tag, memory, bytes);
      if (operation == 0) complaints.push_back("an operation has no name");
      open.push_back({operation, message, memory, bytes, stream.sending});
    }
  }
  for (std::uint64_t turn = 0; !open.empty(); ++turn) {
    const std::size_t chosen = mixed(turn + static_cast<std::uint64_t>(rank) * 1000003) % open.size();
    if (!look(transport, open[chosen].operation)) continue;
    judge(open[chosen], complaints);
    transport.give_back(open[chosen].memory);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  return complaints;
}

/// Messages of any size from every rank, in the order of each; some of them were sent before anybody listened.
[[nodiscard]] inline Complaints listen_to_all(transport::InterNode& transport, int rank, int size) {
  constexpr std::size_t kMost = 70000;
  constexpr int kEach = 20;
  constexpr int kTag = 1000;
  const auto bytes_of = [](int from, int i) {
    return 8 + (static_cast<std::size_t>(from) * 7919 + static_cast<std::size_t>(i) * 104729) % (kMost - 8);
  };
  Complaints complaints;
  std::vector<Operation> sends;
  for (int i = 0; i < kEach; ++i) {
    for (int to = 0; to < size; ++to) {
      if (to == rank) continue;
      const std::size_t bytes = bytes_of(rank, i);
      std::byte* memory = transport.staging(kMost);
      std::fill(memory, memory + bytes, static_cast<std::byte>(rank * kEach + i));
      sends.push_back(transport.send(to, kTag, memory, bytes));
    }
  }
  transport.listen(kTag, kMost);
  transport.expect(true);
  std::vector<int> next(static_cast<std::size_t>(size));
  for (int left = kEach * (size - 1); left > 0;) {
    transport.progress(base::now());
    const std::optional<transport::InterNode::Heard> heard = transport.hear();
    if (!heard) continue;
    --left;
    int& number = next.at(static_cast<std::size_t>(heard->rank));
    const auto wanted = static_cast<std::byte>(heard->rank * kEach + number);
    if (heard->bytes != bytes_of(heard->rank, number)) complaints.emplace_back("what was heard has another size");
    if (!std::all_of(heard->data, heard->data + heard->bytes, [&](std::byte one) { return one == wanted; }))
      complaints.emplace_back("what was heard is not whole, or not in order");
    ++number;
  }
  if (transport.hear()) complaints.emplace_back("something else is heard");
  for (const Operation operation : sends) finish(transport, operation);
  transport.expect(false);
  return complaints;
}

/// A message that is shorter than asked for is an error at the receiver, not silence. Rank 0 sends, rank 1 receives.
[[nodiscard]] inline Complaints send_too_little(transport::InterNode& transport, int rank) {
  if (rank > 1) return {};
  std::byte* memory = transport.staging(200);
  if (rank == 0) {
    finish(transport, transport.send(1, 1, memory, 100));
    return {};
  }
  const Operation operation = transport.receive(0, 1, memory, 200);
  try {
    finish(transport, operation);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::transport &&
        std::string(error.what()).find("rank 0 sent 100 bytes where 200 were due") != std::string::npos)
      return {};
    return {"a message that is too short is told as: " + std::string(error.what())};
  }
  return {"a message that is too short is no error"};
}

}  // namespace kolo::testing::inter_node
