// SPDX-License-Identifier: Apache-2.0
#include "shm/process_region.hpp"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "shm/gathering.hpp"
#include "shm/region.hpp"
#include "shm/segment.hpp"

namespace kolo::shm {

namespace {

/// Everybody's file, by local rank; as the leader.
std::vector<base::UniqueFd> collect(LocalListener& listener, int own, int local_size, const std::string& job_key,
                                    base::Time deadline) {
  std::vector<Guest> guests = welcome(listener, local_size, job_key, deadline);
  std::vector<int> files(static_cast<std::size_t>(local_size), own);
  for (const Guest& guest : guests) files[static_cast<std::size_t>(guest.local_rank)] = guest.brought.get();
  hand_out(guests, files, job_key, deadline);
  std::vector<base::UniqueFd> collected(files.size());
  for (Guest& guest : guests) collected[static_cast<std::size_t>(guest.local_rank)] = std::move(guest.brought);
  return collected;
}

}  // namespace

std::shared_ptr<core::SharedRegion> share_between_processes(const core::Topology& topology, std::size_t bytes,
                                                            const std::string& job_key, const core::Meeting& meet,
                                                            base::Duration patience) {
  std::optional<Segment> own;
  std::optional<LocalListener> listener;
  const std::vector<std::string> names = together(meet, [&]() -> std::string {
    own.emplace(Segment::create(bytes));
    if (!topology.is_leader()) return {};
    listener.emplace(topology.local_size());
    return listener->name();
  });
  std::vector<std::shared_ptr<Segment>> parts(static_cast<std::size_t>(topology.local_size()));
  together(meet, [&]() -> std::string {
    const base::Time deadline = base::now() + patience;
    std::vector<base::UniqueFd> files;
    if (listener) {
      files = collect(*listener, own->fd(), topology.local_size(), job_key, deadline);
    } else {
      const std::string& leader = names[static_cast<std::size_t>(topology.leader_of(topology.node))];
      LocalSocket socket = visit(leader, topology.local_rank, own->fd(), job_key, deadline);
      files = take_home(socket, parts.size(), job_key, deadline);
    }
    for (std::size_t peer = 0; peer < parts.size(); ++peer) {
      if (static_cast<int>(peer) == topology.local_rank) continue;
      parts[peer] = std::make_shared<Segment>(Segment::map(std::move(files[peer]), bytes));
      parts[peer]->close_file();
    }
    return {};
  });
  return std::make_shared<Region>(std::move(*own), std::move(parts));
}

}  // namespace kolo::shm
