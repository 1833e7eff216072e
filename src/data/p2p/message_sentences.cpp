// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/message_sentences.hpp"

#include <algorithm>
#include <cstddef>

#include "base/text.hpp"

namespace kolo::p2p {
namespace {

/// A rank of the world, as the message's set calls it.
std::string rank_of(const Message& message, int rank) {
  if (message.members == nullptr) return "rank " + std::to_string(rank);
  const auto found = std::find(message.members->begin(), message.members->end(), rank);
  if (found == message.members->end()) return "rank " + std::to_string(rank) + " of the world";
  return "rank " + std::to_string(found - message.members->begin());
}

std::string count(std::uint64_t bytes, DType dtype) {
  const std::uint64_t elements = bytes / size_of(dtype);
  return std::to_string(elements) + (elements == 1 ? " element" : " elements");
}

std::string with_tag(std::int32_t tag) { return " with tag " + std::to_string(tag); }

std::string name(DType dtype) { return std::string(to_string(dtype)); }

std::string seconds(std::chrono::nanoseconds time) {
  base::Text text;
  text << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

/// Of the message that a receive got.
std::string origin(const Message& receive, int source, std::int32_t tag) {
  return "the message from " + rank_of(receive, source) + with_tag(tag);
}

/// Why it is not done.
std::string lack_of(const Message& message) {
  const bool sends = message.role == Message::Role::send;
  if (message.state == Message::State::moving) {
    return "its data has not " + std::string(sends ? "gone" : "come") + " whole";
  }
  return sends ? rank_of(message, message.peer) + " has not received it" : "no message that fits has come";
}

/// With what to do about it.
std::string cycle_text(const Message& message, const std::vector<int>& cycle) {
  std::string text = ". Ranks of the world wait for each other: ";
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    text += (i == 0 ? "rank " : ", rank ") + std::to_string(cycle[i]) + " for rank " +
            std::to_string(cycle[(i + 1) % cycle.size()]);
  }
  return text + (message.role == Message::Role::send ? "; let one of them receive first, or use sendrecv or send_async"
                                                     : "; let one of them send first, or use sendrecv or recv_async");
}

Status failed(ErrorCode code, const Message& message, const std::string& why) {
  return {code, describe(message) + ": " + why};
}

}  // namespace

std::string describe(const Message& message) {
  const bool sends = message.role == Message::Role::send;
  std::string text = sends ? "send of " : "recv of up to ";
  text += count(message.bytes, message.dtype) + " of " + name(message.dtype) + (sends ? " to " : " from ");
  text += message.peer == kAny ? "any rank" : rank_of(message, message.peer);
  text += message.tag == kAny ? " with any tag" : with_tag(message.tag);
  return message.group == nullptr ? text : text + " in " + *message.group;
}

Status too_long(const Message& receive, int source, std::int32_t tag, std::uint64_t bytes) {
  return failed(ErrorCode::mismatch, receive,
                origin(receive, source, tag) + " has " + count(bytes, receive.dtype) + "; give room for as many");
}

Status other_type(const Message& receive, int source, std::int32_t tag, DType dtype) {
  return failed(ErrorCode::mismatch, receive,
                origin(receive, source, tag) + " is of " + name(dtype) + "; send and receive the same type");
}

Status too_long_for(const Message& send, std::uint64_t room) {
  return failed(ErrorCode::mismatch, send,
                "its receive has room for " + count(room, send.dtype) + "; give room for as many as are sent");
}

Status other_type_there(const Message& send, DType dtype) {
  return failed(ErrorCode::mismatch, send, "its receive is of " + name(dtype) + "; send and receive the same type");
}

Status given_up_there(const Message& message, int because) {
  const bool sends = message.role == Message::Role::send;
  const std::string there =
      rank_of(message, sends ? message.peer : message.source) + " has given up its " + (sends ? "receive" : "send");
  if (because < 0) return failed(ErrorCode::cancelled, message, there + " before all the data had come");
  return failed(ErrorCode::rank_lost, message,
                rank_of(message, because) + " has left the job, and " + there + " because of that");
}

Status set_gone_there(const Message& send) {
  return failed(ErrorCode::cancelled, send, "all ranks have dropped the group, and none has received it");
}

Status cancelled(const Message& receive) { return failed(ErrorCode::cancelled, receive, "it was cancelled"); }

std::string waits_long(const Message& message, const std::vector<int>& cycle) {
  const bool sends = message.role == Message::Role::send;
  std::string text = describe(message) + " has waited for " + seconds(message.warn_at - message.begun) + ": ";
  text += lack_of(message);
  if (!cycle.empty()) return text + cycle_text(message, cycle) + ".";
  const int peer = message.source == kAny ? message.peer : message.source;
  text += ". Either " + (peer == kAny ? std::string("another rank") : rank_of(message, peer)) + " is slow, or ";
  if (message.state == Message::State::moving) return text + "its process is stopped.";
  return text + "the program does not " + (sends ? "receive it there." : peer == kAny ? "send it." : "send it there.");
}

Status expired(const Message& message, const std::vector<int>& cycle, const Departures& departures) {
  std::string why = lack_of(message) + " within " + seconds(message.patience);
  const int left = departures.first_of(message.members);
  if (left >= 0) why += "; meanwhile " + rank_of(message, departures.cause_of(left)) + " has left the job";
  return failed(ErrorCode::expired, message, cycle.empty() ? why : why + cycle_text(message, cycle));
}

Status has_departed(const Message& message, const Departures& departures) {
  const int rank = message.source == kAny ? message.peer : message.source;
  const int cause = departures.cause_of(rank == kAny ? departures.first_of(message.members) : rank);
  std::string text = rank_of(message, cause) + " has left the job";
  if (rank == kAny) text = "all other ranks have left the job; the first was " + rank_of(message, cause);
  if (rank != kAny && rank != cause) text += ", and " + rank_of(message, rank) + " because of that";
  return failed(ErrorCode::rank_lost, message, text);
}

Status keeps_too_much(int source, std::uint64_t messages, std::uint64_t bytes) {
  return {ErrorCode::transport,
          "rank " + std::to_string(source) + " has sent " + std::to_string(messages) +
              " messages for which this rank has no receive; with those of others they take " +
              std::to_string(bytes >> 20) +
              " MiB, which is the most that is kept: receive messages while they come, or have the sender wait for an "
              "answer now and then"};
}

}  // namespace kolo::p2p
