// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/region.hpp"

#include <fcntl.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/system_error.hpp"
#include "base/text.hpp"
#include "transport/shm/gathering.hpp"
#include "transport/shm/segment.hpp"

namespace kolo::shm {

namespace {

/// The leader: collects all ranks' files, by local rank.
std::vector<base::UniqueFd> collect(LocalListener& listener, int own, const Gathering& gathering) {
  std::vector<Member> members = accept_members(listener, gathering);
  std::vector<int> files(members.size() + 1, own);
  for (const Member& member : members) files[static_cast<std::size_t>(member.local_rank)] = member.brought.get();
  send_descriptors(members, files, gathering);
  std::vector<base::UniqueFd> collected(files.size());
  for (Member& member : members) collected[static_cast<std::size_t>(member.local_rank)] = std::move(member.brought);
  return collected;
}

/// Another mapping of a part, for the peers.
std::shared_ptr<Segment> map_part(base::UniqueFd file, std::size_t bytes) {
  auto part = std::make_shared<Segment>(Segment::map(std::move(file), bytes));
  part->prefer_huge_pages();
  part->close_file();
  return part;
}

/// The descriptors that a rank opens before other ranks wait for it.
struct RegionParts {
  RegionParts(const core::Topology& topology, std::size_t bytes) : own(Segment::create(bytes)) {
    own.prefer_huge_pages();
    const auto ranks = static_cast<std::size_t>(topology.local_size());
    if (topology.is_leader()) {
      listener.emplace(topology.local_size());
      require_descriptors(2 * (ranks - 1));  // for each other rank its socket and its file
    } else {
      socket.emplace();
      require_descriptors(ranks);
    }
  }
  Segment own;
  std::optional<LocalListener> listener;  // only on the leader
  std::optional<LocalSocket> socket;      // only on the others
};

}  // namespace

std::shared_ptr<transport::SharedRegion> share_between_processes(const transport::Sharers& sharers, int local_size,
                                                                 std::size_t bytes, const std::string& job_key,
                                                                 const transport::Meeting& meet,
                                                                 const std::function<void()>& check,
                                                                 base::Duration patience) {
  const core::Topology& topology = sharers.topology;
  std::optional<RegionParts> opened;
  const std::vector<std::string> names = together(meet, [&] {
    opened.emplace(topology, bytes);
    return opened->listener ? opened->listener->name() : std::string();
  });
  std::vector<std::shared_ptr<Segment>> parts(static_cast<std::size_t>(local_size));
  together(meet, [&]() -> std::string {
    const Gathering gathering(topology, job_key, patience, check, sharers.members);
    std::vector<base::UniqueFd> files;
    if (opened->listener) {
      files = collect(*opened->listener, opened->own.fd(), gathering);
    } else {
      const std::string& leader = names[static_cast<std::size_t>(topology.leader_of(topology.node))];
      connect_to_leader(*opened->socket, leader, opened->own.fd(), gathering);
      files = receive_descriptors(*opened->socket, static_cast<std::size_t>(topology.local_size()), gathering);
    }
    for (std::size_t peer = 0; peer < files.size(); ++peer) {
      if (static_cast<int>(peer) == topology.local_rank) continue;
      parts[static_cast<std::size_t>(sharers.local_ranks[peer])] = map_part(std::move(files[peer]), bytes);
    }
    return {};
  });
  return std::make_shared<Region>(std::move(opened->own), std::move(parts));
}

std::shared_ptr<transport::SharedRegion> share_between_threads(const transport::Sharers& sharers, int local_size,
                                                               std::size_t bytes, const transport::Meeting& meet) {
  std::optional<Segment> own;
  const std::vector<std::string> files = together(meet, [&] {
    own.emplace(Segment::create(bytes)).prefer_huge_pages();
    return std::to_string(own->fd());
  });
  std::vector<std::shared_ptr<Segment>> parts(static_cast<std::size_t>(local_size));
  together(meet, [&]() -> std::string {
    const std::vector<int>& ranks = sharers.topology.nodes[static_cast<std::size_t>(sharers.topology.node)];
    for (std::size_t peer = 0; peer < ranks.size(); ++peer) {
      if (static_cast<int>(peer) == sharers.topology.local_rank) continue;
      const int theirs = base::parse_number<int>(files[static_cast<std::size_t>(ranks[peer])]).value();
      base::UniqueFd file(::fcntl(theirs, F_DUPFD_CLOEXEC, 0));
      if (!file.valid()) base::throw_errno("sharing memory between threads", errno);
      parts[static_cast<std::size_t>(sharers.local_ranks[peer])] = map_part(std::move(file), bytes);
    }
    return {};
  });
  return std::make_shared<Region>(std::move(*own), std::move(parts));
}

}  // namespace kolo::shm
