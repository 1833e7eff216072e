// SPDX-License-Identifier: Apache-2.0
//
// How ranks find one another at the start. Implementations: MPI (`mpi/`), TCP (`src/launch/process_bootstrap.hpp`), and
// memory of the process for ranks as threads (`thread_world.hpp`).
//
// A start is a list of steps, the same on all ranks. A step runs this rank's part, which may fail, and ends with an
// exchange of "ok" or "failed, because". If a rank fails, all ranks therefore fail with the same error, and no rank
// waits for one that has given up. A rank that does not answer is missing when the others' patience ends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "core/topology.hpp"
#include "transport/inter_node.hpp"
#include "transport/node_link.hpp"

namespace kolo::bootstrap {

/// Calls are collective: every rank makes the same calls in the same order, from one thread. All of them block for
/// `patience` at most, or little more. A failure is an `Error` (transport); after it no call works any more. Once the
/// engine runs, the bootstrap is not used any more; destroy it after the engine.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// Exchanges bytes. Returns all ranks' bytes, by rank. `label` names the step in errors. Throws if not all ranks have
  /// come within `patience` after `begun`, the time at which the step began here; the sentence is `missing_ranks`.
  virtual std::vector<std::string> exchange(std::string_view label, const std::string& mine, base::Duration patience,
                                            base::Time begun = base::now()) = 0;
  /// The node's shared memory (`bytes` of it, zeroed), wake-ups and liveness, among the ranks of one node of
  /// `topology`. `job_key` is the same random string on every rank and authenticates the handover. If it fails on one
  /// rank, it fails on all. By default: between processes (handover.hpp).
  virtual std::shared_ptr<transport::NodeLink> join_node(const core::Topology& topology, std::size_t bytes,
                                                         const std::string& job_key, base::Duration patience);
  /// Bulk transport between nodes; called only when there is more than one node. Throws Error (unsupported), on every
  /// rank, if this start has none; UCX must then carry the data.
  virtual std::shared_ptr<transport::InterNode> inter_node(const core::Topology& topology, base::Duration patience) = 0;
  /// The job's key, made from a random word that rank 0 has sent to all: the same on all ranks, 1 to 64 bytes. If the
  /// ranks have proven that they share a secret, the key also depends on the secret; else it is the word.
  [[nodiscard]] virtual std::string key_from(const std::string& word) const { return word; }
  /// "MPI (Open MPI 4.1.4, thread level MULTIPLE)": for describe() and kolo-info.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Throws Error (transport) if this start cannot succeed any more. Called several times a second while a step waits.
  virtual void check() const {}
  /// The start is over on this rank: closes connections that only a start needs. No `exchange` may follow.
  virtual void close() noexcept {}
};

/// One step of a start: runs this rank's part and exchanges what it returns. Returns what all parts returned, by rank.
/// When the part of any rank throws, this throws on every rank the same Error: that rank's code, and a sentence that
/// begins with "rank N: " (in a world of one, only the reason).
std::vector<std::string> take_step(Bootstrap& bootstrap, std::string_view label, base::Duration patience,
                                   const std::function<std::string()>& part);

/// The patience of a step whose part itself waits for others for up to `patience`. It is longer, so that a rank whose
/// part gives up can still report why.
base::Duration after_waiting(base::Duration patience) noexcept;

/// "ranks 1, 3 did not reach the step "settings" of the start within 60 s (KOLO_CONNECT_TIMEOUT_S); ...".
std::string missing_ranks(const std::vector<int>& ranks, std::string_view label, base::Duration patience);

}  // namespace kolo::bootstrap
