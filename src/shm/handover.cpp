// SPDX-License-Identifier: Apache-2.0
#include "shm/handover.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/event_fd.hpp"
#include "shm/local_socket.hpp"
#include "shm/segment.hpp"

namespace kolo::shm {

namespace {

constexpr char kGreeting[] = "kolo node ";

/// A peer and the two ways to see it end.
struct Watched {
  int local_rank = 0;
  LocalSocket socket;
  base::UniqueFd process;  // not valid where the process cannot be seen
};

Watched watch(int local_rank, LocalSocket socket) {
  base::UniqueFd process;
  // A child of the peer may keep a copy of its socket open and so hide its end; the process itself cannot hide.
  const Peer peer = socket.peer();
  if (peer.pid > 0) process.reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  return {local_rank, std::move(socket), std::move(process)};
}

class ProcessNodeLink final : public core::NodeLink {
 public:
  ProcessNodeLink(Segment segment, base::EventFd own_bell, std::vector<base::UniqueFd> bells,
                  std::vector<Watched> watched)
      : segment_(std::move(segment)), own_bell_(std::move(own_bell)), bells_(std::move(bells)),
        watched_(std::move(watched)) {}

  [[nodiscard]] std::byte* memory() const noexcept override { return segment_.data(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return segment_.bytes(); }
  [[nodiscard]] int wake_fd() const noexcept override { return own_bell_.fd(); }

  void wake(int local_rank) noexcept override {
    // It fails only when 2^64-1 calls are still unheard, and then it is readable.
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written =
        ::write(bells_[static_cast<std::size_t>(local_rank)].get(), &one, sizeof one);
  }

  [[nodiscard]] std::vector<Liveness> liveness() const override {
    std::vector<Liveness> all;
    for (const Watched& peer : watched_) {
      all.push_back({peer.socket.fd(), peer.local_rank});
      if (peer.process.valid()) all.push_back({peer.process.get(), peer.local_rank});
    }
    return all;
  }

 private:
  Segment segment_;
  base::EventFd own_bell_;
  std::vector<base::UniqueFd> bells_;  // by local rank; the own one is a copy
  std::vector<Watched> watched_;       // of the leader: all others; of the others: the leader
};

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

/// Where the leader waits, with what it will hand out.
struct Leading {
  explicit Leading(std::size_t bytes, int local_size) : segment(Segment::create(bytes)), listener(local_size) {}
  Segment segment;
  LocalListener listener;
};

/// A rank of this node, or empty for somebody else who found the name.
std::optional<std::pair<Watched, base::UniqueFd>> admit(LocalSocket socket, const std::string& job_key,
                                                        base::Time deadline) {
  if (socket.peer().uid != ::geteuid()) return {};
  Packet hello = socket.receive(deadline);
  const std::optional<int> local_rank = understand(hello, job_key);
  if (!local_rank || hello.descriptors.size() != 1) return {};
  return std::pair(watch(*local_rank, std::move(socket)), std::move(hello.descriptors.front()));
}

std::shared_ptr<core::NodeLink> lead(Leading leading, int local_size, const std::string& job_key, base::Time deadline) {
  base::EventFd bell;
  std::vector<base::UniqueFd> bells(static_cast<std::size_t>(local_size));
  bells.front().reset(::dup(bell.fd()));
  std::vector<Watched> watched;
  while (watched.size() + 1 < bells.size()) {
    auto admitted = admit(leading.listener.accept(deadline), job_key, deadline);
    if (!admitted) continue;
    const int local_rank = admitted->first.local_rank;
    if (local_rank < 1 || local_rank >= local_size || bells[static_cast<std::size_t>(local_rank)].valid())
      throw Error(ErrorCode::transport, "two processes say that they are local rank " + std::to_string(local_rank));
    bells[static_cast<std::size_t>(local_rank)] = std::move(admitted->second);
    watched.push_back(std::move(admitted->first));
  }
  std::vector<int> descriptors{leading.segment.fd()};
  for (const base::UniqueFd& each : bells) descriptors.push_back(each.get());
  for (Watched& peer : watched) {
    for (auto first = descriptors.begin(); first != descriptors.end();) {
      const auto last = first + std::min<std::ptrdiff_t>(descriptors.end() - first, LocalSocket::kDescriptorsPerPacket);
      peer.socket.send(greeting(0, job_key), std::vector<int>(first, last), deadline);
      first = last;
    }
  }
  leading.segment.close_file();
  return std::make_shared<ProcessNodeLink>(std::move(leading.segment), std::move(bell), std::move(bells),
                                           std::move(watched));
}

std::shared_ptr<core::NodeLink> follow(const std::string& leader, const core::Topology& topology, std::size_t bytes,
                                       const std::string& job_key, base::Time deadline) {
  base::EventFd bell;
  LocalSocket socket = LocalSocket::connect(leader, deadline);
  if (socket.peer().uid != ::geteuid())
    throw Error(ErrorCode::transport, "the leader of this node belongs to another user");
  socket.send(greeting(topology.local_rank, job_key), {bell.fd()}, deadline);
  std::vector<base::UniqueFd> descriptors;
  const std::size_t expected = 1 + static_cast<std::size_t>(topology.local_size());
  while (descriptors.size() < expected) {
    Packet packet = socket.receive(deadline);
    if (understand(packet, job_key) != 0 || packet.descriptors.empty())
      throw Error(ErrorCode::transport, "the leader of this node belongs to another job");
    for (base::UniqueFd& each : packet.descriptors) descriptors.push_back(std::move(each));
  }
  Segment segment = Segment::map(std::move(descriptors.front()), bytes);
  segment.close_file();
  descriptors.erase(descriptors.begin());
  std::vector<Watched> watched;
  watched.push_back(watch(0, std::move(socket)));
  return std::make_shared<ProcessNodeLink>(std::move(segment), std::move(bell), std::move(descriptors),
                                           std::move(watched));
}

/// Runs a rank's part of a step, and lets the world hear of it: what it says, or why it failed. Throws on every rank
/// when it failed on one.
template <class Step>
std::vector<std::string> together(core::Bootstrap& bootstrap, Step&& step) {
  std::string said;
  try {
    said = '+' + step();
  } catch (const Error& error) {
    said = '-' + error.status().message();
  }
  std::vector<std::string> all = bootstrap.allgather(said);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty() || all[rank].front() != '+')
      throw Error(ErrorCode::transport, "rank " + std::to_string(rank) + " cannot share memory with its node: " +
                                            all[rank].substr(all[rank].empty() ? 0 : 1));
    all[rank].erase(0, 1);
  }
  return all;
}

}  // namespace

std::shared_ptr<core::NodeLink> join_node(core::Bootstrap& bootstrap, const core::Topology& topology, std::size_t bytes,
                                          const std::string& job_key, base::Duration patience) {
  const int local_size = topology.local_size();
  std::optional<Leading> leading;
  const std::vector<std::string> names = together(bootstrap, [&]() -> std::string {
    if (!topology.is_leader()) return {};
    leading.emplace(bytes, local_size);
    return leading->listener.name();
  });
  std::shared_ptr<core::NodeLink> link;
  together(bootstrap, [&]() -> std::string {
    const base::Time deadline = base::now() + patience;
    const std::string& leader = names[static_cast<std::size_t>(topology.leader_of(topology.node))];
    link = leading ? lead(std::move(*leading), local_size, job_key, deadline)
                   : follow(leader, topology, bytes, job_key, deadline);
    return {};
  });
  return link;
}

}  // namespace kolo::shm
