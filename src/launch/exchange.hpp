// SPDX-License-Identifier: Apache-2.0
//
// The one exchange of a start without MPI: everybody's bytes, by rank, over TCP by way of rank 0.
//
// Who connects to whom. Rank 0 listens (directions.hpp); every other rank connects to it, once, and proves that it is
// of this job (reception.hpp, handshake.hpp). n ranks are n - 1 connections, and each exchange is one frame up and one
// frame down on each. No rank connects to any other but rank 0. When all have come, rank 0 stops listening: from then
// on no stranger can reach anything of this job by this door.
//
//   rank r -> rank 0   contribution   this rank's bytes for step k
//   rank 0 -> rank r   waiting        rank 0 is in step k itself
//   rank 0 -> rank r   result         everybody's bytes for step k
//   rank 0 -> rank r   failure        why the start has failed; the connection is closed behind it
//
// Who waits for whom. In a step every rank waits for rank 0's frame, and rank 0 for everybody's. Rank 0 works on the
// connections only while it is in a step itself: it needs no thread. It leaves a step when the system has taken all
// results, so that it may end at once without taking them along.
//
// Deadlines. A step has `patience` from when a rank began it. Rank 0's deadline decides: it names all ranks that did
// not come, and tells everybody. A rank whose own deadline passes first cannot know who is missing. It gives up only if
// rank 0 has not said that it is in the step; then rank 0 is the one that is missing. Else it waits for rank 0's
// decision, for a patience (and a little) more.
//
// What if a rank dies right here. Its connection ends, and rank 0 hears it: the step fails at once and everywhere with
// its name, unless its bytes were there already; then the next step does. If rank 0 dies, the connections of all others
// end, and each says so. A host that vanishes without a word is missed at the deadline.
//
// Why not by the store alone, as one key for each rank and step (`set`, `get`)? Then nobody hears a death, every rank
// polls for it, a store must be cleaned of the steps, and rank 0 cannot tell when all have read its last word. So a
// store holds one entry: where rank 0 listens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "launch/directions.hpp"

namespace kolo::launch {

/// This rank's place, and what its job calls it in sentences.
struct Place {
  int rank = 0;
  int size = 1;
  std::string rank_name;  ///< what gave the rank: "KOLO_RANK"
  std::string size_name;
};

/// Calls are collective, and all from one thread. After a failure every call fails with the same Error (transport).
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// As bootstrap::Bootstrap::exchange. The first one also finds rank 0.
  [[nodiscard]] virtual std::vector<std::string> exchange(std::string_view label, const std::string& mine,
                                                          base::Duration patience, base::Time begun) = 0;
};

/// Rank 0 listens when this returns. Throws Error (transport) when it cannot.
[[nodiscard]] std::unique_ptr<Exchange> make_exchange(const Place& place, std::unique_ptr<Directions> directions);

}  // namespace kolo::launch
