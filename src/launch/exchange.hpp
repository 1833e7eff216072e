// SPDX-License-Identifier: Apache-2.0
//
// The exchange of a start without MPI: all ranks' bytes, by rank, over TCP through rank 0.
//
// Connections. Rank 0 listens (directions.hpp). Every other rank connects to it once, and proves that it belongs to
// this job (reception.hpp, handshake.hpp). n ranks make n - 1 connections, and an exchange is one frame up and one
// frame down on each. When all ranks have come, rank 0 stops listening, so that no other process can connect any more.
//
//   rank r -> rank 0   contribution   this rank's bytes for step k
//   rank 0 -> rank r   waiting        rank 0 is in step k itself
//   rank 0 -> rank r   result all ranks' bytes for step k
//   rank 0 -> rank r   failure        why the start has failed; the connection is closed behind it
//
// Waiting. In a step every rank waits for rank 0's frame, and rank 0 for all others'. Rank 0 serves the connections
// only while it is in a step itself, so it needs no thread. It leaves a step when the system has taken all results, so
// that they arrive even if it ends at once.
//
// Deadlines. A rank has `patience` from the time at which it began the step. Rank 0's deadline decides: rank 0 names
// all ranks that did not come, and tells all others. A rank whose own deadline passes first cannot know which ranks are
// missing. It gives up only if rank 0 has not sent `waiting`; then rank 0 is missing. Else it waits for rank 0's
// decision for another patience and a little more. Where the ranks meet by a store that learns of deaths
// (watched_store.hpp), a step ends when the store says so.
//
// Death of a rank. Its connection ends, and rank 0 notices: the step fails at once on all ranks with its name. If its
// bytes had come already, the next step fails. If rank 0 dies, the connections of all others end, and each reports
// that. A host that vanishes without closing its connections is missing at the deadline.
//
// The alternative was a store with a key for each rank and step (`set`, `get`). Then ranks would have to poll for
// deaths, old steps would have to be removed, and rank 0 could not know when all have read its last message. A store
// therefore holds one entry: where rank 0 listens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "launch/directions.hpp"

namespace kolo::launch {

/// This rank's place in the job, and the names for error messages.
struct Place {
  int rank = 0;
  int size = 1;
  std::string rank_name;  ///< the source of the rank: "KOLO_RANK"
  std::string size_name;
};

/// Calls are collective, and all from one thread. After a failure every call fails with the same Error (transport).
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// As bootstrap::Bootstrap::exchange. The first one also finds rank 0.
  [[nodiscard]] virtual std::vector<std::string> exchange(std::string_view label, const std::string& mine,
                                                          base::Duration patience, base::Time begun) = 0;
  /// Throws Error (transport) if this start cannot succeed any more (watched_store.hpp).
  virtual void check() const {}
};

/// Rank 0 listens when this returns. Throws Error (transport) when it cannot.
[[nodiscard]] std::unique_ptr<Exchange> make_exchange(const Place& place, std::unique_ptr<Directions> directions);

}  // namespace kolo::launch
