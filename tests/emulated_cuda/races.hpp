// SPDX-License-Identifier: Apache-2.0
//
// Who touched which bytes of one allocation, and whether two conflicting accesses (one of them a write) are ordered.
// For every byte the last write is kept, and the reads since: what is older is ordered before that write, or was
// reported. So each pair of neighbouring conflicts is seen, whatever the order in which the two happened to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clock.hpp"

namespace kolo::emulated {

/// What reports name: an operation of a stream, or an access of a host thread. All its accesses share it.
struct Operation {
  std::string what;   ///< "cudaMemcpyAsync", "kernel pack"
  std::string where;  ///< "stream 2 of device 0", "host thread 1"
  std::string site;   ///< "src/data/cuda/queue.cpp:120", or empty
};
using OperationPtr = std::shared_ptr<const Operation>;

std::string to_string(const Operation& operation);

struct Access {
  ActorId actor = 0;
  std::uint64_t time = 0;
  OperationPtr operation;
  bool write = false;
};

/// Not locked: the machine's mutex guards it.
class AccessHistory {
 public:
  /// Called with the earlier access and the range in which the two conflict, in bytes of the allocation.
  using Conflict = std::function<void(const Access& earlier, std::size_t begin, std::size_t end)>;

  /// Enters an access to [begin, end) whose owner has the clock `clock`, its own time included.
  void enter(const Access& access, std::size_t begin, std::size_t end, const VectorClock& clock,
             const Conflict& conflict);

 private:
  struct Segment {
    std::size_t end = 0;
    std::optional<Access> write;
    std::vector<Access> reads;  // since the write
  };
  using Segments = std::map<std::size_t, Segment>;

  void split(std::size_t offset);
  void fill_gaps(std::size_t begin, std::size_t end);

  Segments segments_;  // by their first byte; they do not overlap
};

}  // namespace kolo::emulated
