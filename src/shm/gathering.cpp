// SPDX-License-Identifier: Apache-2.0
#include "shm/gathering.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <kolo/error.hpp>

namespace kolo::shm {

namespace {

constexpr char kGreeting[] = "kolo node ";

/// What a rank of the node says first, and what the leader answers.
std::string greeting(int local_rank, const std::string& job_key) {
  return kGreeting + std::to_string(local_rank) + ' ' + job_key;
}

/// The local rank of a greeting that knows the key; empty for a stranger's.
std::optional<int> understand(const Packet& packet, const std::string& job_key) {
  int local_rank = 0;
  const std::size_t prefix = sizeof kGreeting - 1;
  if (packet.bytes.compare(0, prefix, kGreeting) != 0) return {};
  const char* end = packet.bytes.data() + packet.bytes.size();
  const auto parsed = std::from_chars(packet.bytes.data() + prefix, end, local_rank);
  if (parsed.ec != std::errc() || std::string(parsed.ptr, end) != ' ' + job_key) return {};
  return local_rank;
}

/// A rank of this node, or empty for somebody else who found the name.
std::optional<Guest> admit(LocalSocket socket, const std::string& job_key, base::Time deadline) {
  if (socket.peer().uid != ::geteuid()) return {};
  Packet hello = socket.receive(deadline);
  const std::optional<int> local_rank = understand(hello, job_key);
  if (!local_rank || hello.descriptors.size() != 1) return {};
  return Guest{*local_rank, std::move(socket), std::move(hello.descriptors.front())};
}

}  // namespace

std::vector<std::string> together(const core::Meeting& meet, const std::function<std::string()>& step) {
  std::string said;
  try {
    said = '+' + step();
  } catch (const Error& error) {
    said = '-' + error.status().message();
  }
  std::vector<std::string> all = meet(said);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty() || all[rank].front() != '+')
      throw Error(ErrorCode::transport, "rank " + std::to_string(rank) + " cannot share memory with its node: " +
                                            all[rank].substr(all[rank].empty() ? 0 : 1));
    all[rank].erase(0, 1);
  }
  return all;
}

std::vector<Guest> welcome(LocalListener& listener, int local_size, const std::string& job_key, base::Time deadline) {
  std::vector<Guest> guests;
  std::vector<bool> here(static_cast<std::size_t>(local_size));
  while (guests.size() + 1 < here.size()) {
    std::optional<Guest> guest = admit(listener.accept(deadline), job_key, deadline);
    if (!guest) continue;
    const int rank = guest->local_rank;
    if (rank < 1 || rank >= local_size || here[static_cast<std::size_t>(rank)])
      throw Error(ErrorCode::transport, "two processes say that they are local rank " + std::to_string(rank));
    here[static_cast<std::size_t>(rank)] = true;
    guests.push_back(std::move(*guest));
  }
  return guests;
}

void hand_out(std::vector<Guest>& guests, const std::vector<int>& descriptors, const std::string& job_key,
              base::Time deadline) {
  for (Guest& guest : guests) {
    for (auto first = descriptors.begin(); first != descriptors.end();) {
      const auto last = first + std::min<std::ptrdiff_t>(descriptors.end() - first, LocalSocket::kDescriptorsPerPacket);
      guest.socket.send(greeting(0, job_key), std::vector<int>(first, last), deadline);
      first = last;
    }
  }
}

LocalSocket visit(const std::string& leader, int local_rank, int brought, const std::string& job_key,
                  base::Time deadline) {
  LocalSocket socket = LocalSocket::connect(leader, deadline);
  if (socket.peer().uid != ::geteuid())
    throw Error(ErrorCode::transport, "the leader of this node belongs to another user");
  socket.send(greeting(local_rank, job_key), {brought}, deadline);
  return socket;
}

std::vector<base::UniqueFd> take_home(LocalSocket& leader, std::size_t expected, const std::string& job_key,
                                      base::Time deadline) {
  std::vector<base::UniqueFd> descriptors;
  while (descriptors.size() < expected) {
    Packet packet = leader.receive(deadline);
    if (understand(packet, job_key) != 0 || packet.descriptors.empty())
      throw Error(ErrorCode::transport, "the leader of this node belongs to another job");
    for (base::UniqueFd& each : packet.descriptors) descriptors.push_back(std::move(each));
  }
  return descriptors;
}

}  // namespace kolo::shm
