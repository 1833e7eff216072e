// SPDX-License-Identifier: Apache-2.0
#include "transport/threads/thread_region.hpp"

#include <fcntl.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/system_error.hpp"
#include "base/text.hpp"
#include "transport/shm/gathering.hpp"
#include "transport/shm/region.hpp"

namespace kolo::threads {

namespace {

/// Another mapping of the same pages, for the peers.
std::shared_ptr<shm::Segment> second_mapping(const shm::Segment& part) {
  base::UniqueFd file(::fcntl(part.fd(), F_DUPFD_CLOEXEC, 0));
  if (!file.valid()) base::throw_errno("sharing memory between threads", errno);
  auto mapping = std::make_shared<shm::Segment>(shm::Segment::map(std::move(file), part.bytes()));
  mapping->prefer_huge_pages();
  mapping->close_file();
  return mapping;
}

}  // namespace

PartExchange::Ticket PartExchange::offer(std::shared_ptr<shm::Segment> part) {
  const base::MutexLock lock(mutex_);
  parts_.emplace(++next_, std::move(part));
  return next_;
}

std::shared_ptr<shm::Segment> PartExchange::get(Ticket ticket) {
  const base::MutexLock lock(mutex_);
  return parts_.at(ticket);
}

void PartExchange::withdraw(Ticket ticket) {
  const base::MutexLock lock(mutex_);
  parts_.erase(ticket);
}

std::shared_ptr<transport::SharedRegion> share_between_threads(PartExchange& exchange,
                                                               const transport::Sharers& sharers, int local_size,
                                                               std::size_t bytes, const transport::Meeting& meet) {
  const core::Topology& topology = sharers.topology;
  std::optional<shm::Segment> own;
  PartExchange::Ticket ticket = 0;
  const std::vector<std::string> tickets = shm::together(meet, [&] {
    own.emplace(shm::Segment::create(bytes)).prefer_huge_pages();
    ticket = exchange.offer(second_mapping(*own));
    return std::to_string(ticket);
  });
  std::vector<std::shared_ptr<shm::Segment>> parts(static_cast<std::size_t>(local_size));
  const std::vector<int>& ranks = topology.nodes[static_cast<std::size_t>(topology.node)];
  for (std::size_t peer = 0; peer < ranks.size(); ++peer) {
    if (static_cast<int>(peer) == topology.local_rank) continue;
    parts[static_cast<std::size_t>(sharers.local_ranks[peer])] =
        exchange.get(base::parse_number<PartExchange::Ticket>(tickets[static_cast<std::size_t>(ranks[peer])]).value());
  }
  shm::together(meet, [] { return std::string(); });
  exchange.withdraw(ticket);
  return std::make_shared<shm::Region>(std::move(*own), std::move(parts));
}

}  // namespace kolo::threads
