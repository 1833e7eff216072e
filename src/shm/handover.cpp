// SPDX-License-Identifier: Apache-2.0
#include "shm/handover.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/event_fd.hpp"
#include "shm/gathering.hpp"
#include "shm/local_socket.hpp"
#include "shm/peer_memory.hpp"
#include "shm/process_region.hpp"
#include "shm/segment.hpp"

namespace kolo::shm {

namespace {

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
  ProcessNodeLink(core::Topology topology, std::string job_key, Segment segment, base::EventFd own_bell,
                  std::vector<base::UniqueFd> bells, std::vector<Watched> watched)
      : topology_(std::move(topology)), job_key_(std::move(job_key)), segment_(std::move(segment)),
        own_bell_(std::move(own_bell)), bells_(std::move(bells)), watched_(std::move(watched)) {}

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

  std::shared_ptr<core::SharedRegion> share(std::size_t bytes, const core::Meeting& meet) override {
    return share_between_processes(topology_, bytes, job_key_, meet);
  }

  std::shared_ptr<core::PeerMemory> peer_memory(const core::Meeting& meet) override {
    return read_between_processes(topology_, meet);
  }

 private:
  const core::Topology topology_;
  const std::string job_key_;
  Segment segment_;
  base::EventFd own_bell_;
  std::vector<base::UniqueFd> bells_;  // by local rank; the own one is a copy
  std::vector<Watched> watched_;       // of the leader: all others; of the others: the leader
};

/// Where the leader waits, with what it will hand out.
struct Leading {
  explicit Leading(std::size_t bytes, int local_size) : segment(Segment::create(bytes)), listener(local_size) {}
  Segment segment;
  LocalListener listener;
};

std::shared_ptr<core::NodeLink> lead(Leading leading, const core::Topology& topology, const std::string& job_key,
                                     base::Time deadline) {
  base::EventFd bell;
  std::vector<Guest> guests = welcome(leading.listener, topology.local_size(), job_key, deadline);
  std::vector<base::UniqueFd> bells(static_cast<std::size_t>(topology.local_size()));
  bells.front().reset(::dup(bell.fd()));
  for (Guest& guest : guests) bells[static_cast<std::size_t>(guest.local_rank)] = std::move(guest.brought);
  std::vector<int> descriptors{leading.segment.fd()};
  for (const base::UniqueFd& each : bells) descriptors.push_back(each.get());
  hand_out(guests, descriptors, job_key, deadline);
  leading.segment.close_file();
  std::vector<Watched> watched;
  for (Guest& guest : guests) watched.push_back(watch(guest.local_rank, std::move(guest.socket)));
  return std::make_shared<ProcessNodeLink>(topology, job_key, std::move(leading.segment), std::move(bell),
                                           std::move(bells), std::move(watched));
}

std::shared_ptr<core::NodeLink> follow(const std::string& leader, const core::Topology& topology, std::size_t bytes,
                                       const std::string& job_key, base::Time deadline) {
  base::EventFd bell;
  LocalSocket socket = visit(leader, topology.local_rank, bell.fd(), job_key, deadline);
  std::vector<base::UniqueFd> descriptors =
      take_home(socket, 1 + static_cast<std::size_t>(topology.local_size()), job_key, deadline);
  Segment segment = Segment::map(std::move(descriptors.front()), bytes);
  segment.close_file();
  descriptors.erase(descriptors.begin());
  std::vector<Watched> watched;
  watched.push_back(watch(0, std::move(socket)));
  return std::make_shared<ProcessNodeLink>(topology, job_key, std::move(segment), std::move(bell),
                                           std::move(descriptors), std::move(watched));
}

}  // namespace

std::shared_ptr<core::NodeLink> join_node(core::Bootstrap& bootstrap, const core::Topology& topology, std::size_t bytes,
                                          const std::string& job_key, base::Duration patience) {
  const core::Meeting meet = [&](const std::string& mine) {
    return bootstrap.exchange("shared memory", mine, core::after_waiting(patience));
  };
  std::optional<Leading> leading;
  const std::vector<std::string> names = together(meet, [&]() -> std::string {
    if (!topology.is_leader()) return {};
    leading.emplace(bytes, topology.local_size());
    return leading->listener.name();
  });
  std::shared_ptr<core::NodeLink> link;
  together(meet, [&]() -> std::string {
    const base::Time deadline = base::now() + patience;
    const std::string& leader = names[static_cast<std::size_t>(topology.leader_of(topology.node))];
    link = leading ? lead(std::move(*leading), topology, job_key, deadline)
                   : follow(leader, topology, bytes, job_key, deadline);
    return {};
  });
  return link;
}

}  // namespace kolo::shm
