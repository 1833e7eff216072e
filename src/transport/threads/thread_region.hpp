// SPDX-License-Identifier: Apache-2.0
//
// Regions (transport/regions.hpp) of ranks that are threads of one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.hpp"
#include "transport/node_link.hpp"
#include "transport/regions.hpp"
#include "transport/shm/segment.hpp"

namespace kolo::threads {

/// Passes parts between the threads of a node: each part's second mapping, for the peers. Thread-safe.
class PartExchange {
 public:
  using Ticket = std::uint64_t;

  [[nodiscard]] Ticket offer(std::shared_ptr<shm::Segment> part);
  [[nodiscard]] std::shared_ptr<shm::Segment> get(Ticket ticket);
  void withdraw(Ticket ticket);

 private:
  base::Mutex mutex_;
  std::map<Ticket, std::shared_ptr<shm::Segment>> parts_ KOLO_GUARDED_BY(mutex_);
  Ticket next_ KOLO_GUARDED_BY(mutex_) = 0;
};

/// NodeLink::share between threads. `local_size`: of the node in the world.
std::shared_ptr<transport::SharedRegion> share_between_threads(PartExchange& exchange,
                                                               const transport::Sharers& sharers, int local_size,
                                                               std::size_t bytes, const transport::Meeting& meet);

}  // namespace kolo::threads
