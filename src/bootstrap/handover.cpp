// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/handover.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/poller.hpp"
#include "base/system_error.hpp"
#include "transport/shm/gathering.hpp"
#include "transport/shm/local_socket.hpp"
#include "transport/shm/peer_memory.hpp"
#include "transport/shm/region.hpp"
#include "transport/shm/segment.hpp"

namespace kolo::bootstrap {

namespace {

/// A peer and the two ways to see it end.
struct Watched {
  int local_rank = 0;
  shm::LocalSocket socket;
  base::UniqueFd process;  // not valid if the process cannot be seen
};

Watched watch(int local_rank, shm::LocalSocket socket) {
  base::UniqueFd process;
  // A child of the peer may keep a copy of its socket open, which hides the peer's end. Its process is therefore
  // watched, too.
  const shm::Peer peer = socket.peer();
  if (peer.pid > 0) process.reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  return {local_rank, std::move(socket), std::move(process)};
}

class ProcessNodeLink final : public transport::NodeLink {
 public:
  ProcessNodeLink(const shm::Gathering& gathering, shm::Segment segment, base::EventFd own_bell,
                  std::vector<base::UniqueFd> bells, std::vector<Watched> watched)
      : topology_(gathering.topology), job_key_(gathering.job_key), patience_(gathering.patience),
        segment_(std::move(segment)), own_bell_(std::move(own_bell)), bells_(std::move(bells)),
        watched_(std::move(watched)) {}

  [[nodiscard]] std::byte* memory() const noexcept override { return segment_.data(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return segment_.bytes(); }
  [[nodiscard]] int wake_fd() const noexcept override { return own_bell_.fd(); }

  void wake(int local_rank) noexcept override {
    // It fails only if the counter is full, and then the descriptor is readable.
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

  std::shared_ptr<transport::SharedRegion> share(const transport::Sharers& sharers, std::size_t bytes,
                                                 const transport::Meeting& meet,
                                                 const std::function<void()>& check) override {
    return shm::share_between_processes(sharers, topology_.local_size(), bytes, job_key_, meet, check, patience_);
  }

  std::shared_ptr<transport::PeerMemory> peer_memory(const transport::Meeting& meet) override {
    return shm::read_between_processes(topology_, meet);
  }

 private:
  const core::Topology topology_;
  const std::string job_key_;
  const base::Duration patience_;
  shm::Segment segment_;
  base::EventFd own_bell_;
  std::vector<base::UniqueFd> bells_;  // by local rank; the own one is a copy
  std::vector<Watched> watched_;       // on the leader: all others; on the others: the leader
};

/// The descriptors that a rank opens before other ranks wait for it.
struct NodeParts {
  NodeParts(const core::Topology& topology, std::size_t bytes) {
    const auto ranks = static_cast<std::size_t>(topology.local_size());
    if (topology.is_leader()) {
      segment.emplace(shm::Segment::create(bytes));
      listener.emplace(topology.local_size());
      shm::require_descriptors(3 * (ranks - 1) +
                               1);  // socket, bell and process of each other rank; a copy of the own bell
    } else {
      socket.emplace();
      shm::require_descriptors(ranks + 2);  // all bells, the segment, the leader's process
    }
  }
  base::EventFd bell;
  std::optional<shm::Segment> segment;         // the leader's
  std::optional<shm::LocalListener> listener;  // the leader's
  std::optional<shm::LocalSocket> socket;      // the others'
};

std::shared_ptr<transport::NodeLink> lead(NodeParts parts, const shm::Gathering& gathering) {
  std::vector<shm::Member> members = accept_members(*parts.listener, gathering);
  std::vector<base::UniqueFd> bells(members.size() + 1);
  bells.front().reset(::dup(parts.bell.fd()));
  if (!bells.front().valid()) base::throw_errno("copying the descriptor of a bell", errno);
  for (shm::Member& member : members) bells[static_cast<std::size_t>(member.local_rank)] = std::move(member.brought);
  std::vector<int> descriptors{parts.segment->fd()};
  for (const base::UniqueFd& each : bells) descriptors.push_back(each.get());
  send_descriptors(members, descriptors, gathering);
  parts.segment->close_file();
  std::vector<Watched> watched;
  watched.reserve(members.size());
  for (shm::Member& member : members) watched.push_back(watch(member.local_rank, std::move(member.socket)));
  return std::make_shared<ProcessNodeLink>(gathering, std::move(*parts.segment), std::move(parts.bell),
                                           std::move(bells), std::move(watched));
}

std::shared_ptr<transport::NodeLink> follow(NodeParts parts, const std::string& leader, std::size_t bytes,
                                            const shm::Gathering& gathering) {
  connect_to_leader(*parts.socket, leader, parts.bell.fd(), gathering);
  std::vector<base::UniqueFd> descriptors =
      receive_descriptors(*parts.socket, 1 + static_cast<std::size_t>(gathering.topology.local_size()), gathering);
  shm::Segment segment = shm::Segment::map(std::move(descriptors.front()), bytes);
  segment.close_file();
  descriptors.erase(descriptors.begin());
  std::vector<Watched> watched;
  watched.push_back(watch(0, std::move(*parts.socket)));
  return std::make_shared<ProcessNodeLink>(gathering, std::move(segment), std::move(parts.bell), std::move(descriptors),
                                           std::move(watched));
}

}  // namespace

std::shared_ptr<transport::NodeLink> join_node(Bootstrap& bootstrap, const core::Topology& topology, std::size_t bytes,
                                               const std::string& job_key, base::Duration patience) {
  base::Time begun = base::now();
  const transport::Meeting meet = [&](const std::string& mine) {
    return bootstrap.exchange("shared memory", mine, after_waiting(patience), begun);
  };
  std::optional<NodeParts> parts;
  const std::vector<std::string> names = shm::together(meet, [&] {
    parts.emplace(topology, bytes);
    return parts->listener ? parts->listener->name() : std::string();
  });
  std::shared_ptr<transport::NodeLink> link;
  begun = base::now();
  shm::together(meet, [&]() -> std::string {
    const shm::Gathering gathering(topology, job_key, patience,
                                   [&] { bootstrap.check(); });  // until the engine runs, it reports no failures
    const std::string& leader = names[static_cast<std::size_t>(topology.leader_of(topology.node))];
    link = parts->listener ? lead(std::move(*parts), gathering) : follow(std::move(*parts), leader, bytes, gathering);
    return {};
  });
  return link;
}

std::shared_ptr<transport::NodeLink> Bootstrap::join_node(const core::Topology& topology, std::size_t bytes,
                                                          const std::string& job_key, base::Duration patience) {
  return bootstrap::join_node(*this, topology, bytes, job_key, patience);
}

}  // namespace kolo::bootstrap
