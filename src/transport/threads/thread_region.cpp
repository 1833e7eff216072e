// SPDX-License-Identifier: Apache-2.0
#include "transport/threads/thread_region.hpp"

#include <fcntl.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/system_error.hpp"
#include "transport/shm/gathering.hpp"
#include "transport/shm/region.hpp"

namespace kolo::shm {

namespace {

/// Another mapping of the same pages, for the peers.
std::shared_ptr<Segment> second_mapping(const Segment& part) {
  base::UniqueFd file(::fcntl(part.fd(), F_DUPFD_CLOEXEC, 0));
  if (!file.valid()) base::throw_errno("sharing memory between threads", errno);
  auto mapping = std::make_shared<Segment>(Segment::map(std::move(file), part.bytes()));
  mapping->close_file();
  return mapping;
}

}  // namespace

PartExchange::Ticket PartExchange::offer(std::shared_ptr<Segment> part) {
  const std::lock_guard lock(mutex_);
  parts_.emplace(++next_, std::move(part));
  return next_;
}

std::shared_ptr<Segment> PartExchange::get(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  return parts_.at(ticket);
}

void PartExchange::withdraw(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  parts_.erase(ticket);
}

std::shared_ptr<core::SharedRegion> share_between_threads(PartExchange& exchange, const core::Topology& topology,
                                                          std::size_t bytes, const core::Meeting& meet) {
  std::optional<Segment> own;
  PartExchange::Ticket ticket = 0;
  const std::vector<std::string> tickets = together(meet, [&] {
    own.emplace(Segment::create(bytes));
    ticket = exchange.offer(second_mapping(*own));
    return std::to_string(ticket);
  });
  std::vector<std::shared_ptr<Segment>> parts(static_cast<std::size_t>(topology.local_size()));
  const std::vector<int>& ranks = topology.nodes[static_cast<std::size_t>(topology.node)];
  for (std::size_t peer = 0; peer < parts.size(); ++peer) {
    if (static_cast<int>(peer) != topology.local_rank)
      parts[peer] = exchange.get(std::stoull(tickets[static_cast<std::size_t>(ranks[peer])]));
  }
  together(meet, [] { return std::string(); });
  exchange.withdraw(ticket);
  return std::make_shared<Region>(std::move(*own), std::move(parts));
}

}  // namespace kolo::shm
