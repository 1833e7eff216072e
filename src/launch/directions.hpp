// SPDX-License-Identifier: Apache-2.0
//
// How ranks find rank 0: it listens at an address that all ranks know (from variables), or it writes its address into a
// store (a file, or an object of the program's), where the others read it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/store.hpp>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"
#include "launch/sockets.hpp"
#include "launch/watched_store.hpp"

namespace kolo::launch {

/// A secret and the name of a job, which are both part of what a rank must prove.
struct JobKey {
  std::string secret;  ///< KOLO_JOB_KEY; empty: there is no secret
  std::string job;     ///< "Slurm's step 12.0": distinguishes jobs whose ports are computed from such names
};

/// The entry that rank 0 writes into a store for the others: a text, "kolo-1 <proof> <word> <address>|<port> ...".
struct StoreEntry {
  std::string word;  ///< random, in hex
  std::vector<std::pair<std::string, std::uint16_t>> addresses;
};

[[nodiscard]] std::string encode(const StoreEntry& entry, const JobKey& key);
/// Empty unless it is such a text. `proof` is the proof in the text; the caller compares it with `proof_of`.
[[nodiscard]] std::optional<StoreEntry> decode_entry(const std::string& text, std::string& proof);
[[nodiscard]] std::string proof_of(const StoreEntry& entry, const JobKey& key);

/// Addresses at which rank 0 may be, and the key that proves that it is.
struct NetworkRoute {
  std::vector<Endpoint> endpoints;  ///< the most promising first; empty: not known yet
  std::string key;
  std::string wrong;  ///< why there are none
  std::string doubt;  ///< added to the error if no process answers: "; file:///x may be an earlier job's"
};

/// Rank 0's side.
struct Listening {
  std::vector<base::UniqueFd> sockets;  ///< empty: it cannot listen, and `wrong` says why
  std::string key;
  std::string wrong;
  NetworkRoute rival;  ///< where another process listens or has listened, which may be a second rank 0 of this job
};

/// One thread at a time.
class Directions {
 public:
  virtual ~Directions() = default;
  /// Rank 0: begins to listen, and publishes where. Throws Error (transport; user_exception for what a program's own
  /// store throws, as `look`).
  [[nodiscard]] virtual Listening open() = 0;
  /// Others: may wait until the deadline for rank 0's address.
  [[nodiscard]] virtual NetworkRoute look(base::Time deadline) = 0;
  /// Rank 0, if others have not come: a possible reason, such as "; 10.0.0.1 is no address of this machine". May be
  /// empty.
  [[nodiscard]] virtual std::string remark() = 0;
  /// "tcp://10.0.0.1:29500": for sentences and `describe()`.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// The store, if it knows when this start cannot succeed any more; else null.
  [[nodiscard]] virtual const WatchedStore* watched() const noexcept { return nullptr; }
};

/// "the loopback interface is down: ...", if that is why processes of this machine cannot reach each other at these
/// addresses, which are all of this machine; else empty.
[[nodiscard]] std::string why_unreachable(const std::vector<Endpoint>& endpoints);

/// Rank 0 listens at the first of `ports` that is free on `host`; the others try all of them. If `host` is a name, or
/// no address of this machine (which may be behind a gateway), it listens at all addresses.
std::unique_ptr<Directions> fixed_directions(std::string host, std::vector<std::uint16_t> ports, const JobKey& key);

/// Rank 0 listens at a port that the system chooses, at all addresses or at those that `interface` (KOLO_INTERFACE)
/// names, and writes them and a random word into the store. If the others find an earlier job's entry, they cannot
/// connect, and look again.
std::unique_ptr<Directions> store_directions(std::shared_ptr<Store> store, std::string name, std::string interface,
                                             const JobKey& key);

}  // namespace kolo::launch
