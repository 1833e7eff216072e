// SPDX-License-Identifier: Apache-2.0
//
// What the parts of an engine share: what is constant, what any thread may use, and what the driver's place guards.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/buckets.hpp"
#include "base/cpu.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "base/settings.hpp"
#include "control/board.hpp"
#include "control/control_channel.hpp"
#include "control/leader.hpp"
#include "control/participant.hpp"
#include "core/topology.hpp"
#include "data/device.hpp"
#include "data/kernels/copy.hpp"
#include "data/p2p/messenger.hpp"
#include "data/small_calls.hpp"
#include "engine/deferred.hpp"
#include "engine/driver.hpp"
#include "engine/ending.hpp"
#include "engine/executor.hpp"
#include "engine/node_memory.hpp"
#include "engine/open_operations.hpp"
#include "engine/sets.hpp"
#include "engine/tally.hpp"
#include "recorder/recorder.hpp"
#include "transport/inter_node.hpp"
#include "transport/node_link.hpp"

namespace kolo::engine {

/// What an engine is assembled from (by src/api).
struct EngineParts {
  core::Topology topology;
  base::Settings settings;
  std::shared_ptr<base::Logger> logger;
  std::shared_ptr<recorder::Recorder> recorder = std::make_shared<recorder::Recorder>();
  std::shared_ptr<transport::NodeLink> link;
  NodeLayout layout;                                 ///< of its memory
  std::unique_ptr<control::ControlChannel> control;  ///< leaders, with more than one node
  MakePlane make_plane;                              ///< the CPU's
  data::MakeSmallCalls make_small_calls;             ///< likewise; empty: no call avoids the log
  std::unique_ptr<data::DeviceBackend> device;       ///< null: no tensors but the CPU's
  MakeLatePlane make_device_plane;                   ///< for sets but the world; with a device
  std::shared_ptr<transport::PeerMemory> peers;      ///< for messages; null: ranks cannot read each other's memory
  std::uint64_t read_above = 0;                      ///< messages of more bytes are read there
  kernels::PeerCopy to_peers;                        ///< how what peers of the node read is written
  base::WaitPolicy wait_policy;
  std::shared_ptr<transport::InterNode> inter;  ///< the backends' transport; null: there is one node
  bool has_barriers = false;                    ///< all ranks of the world take part in process barriers
};

/// How the node's memory is cut under these settings, for a world of this topology, whose data planes (`rings` of them)
/// take `ring_bytes` of a column each. `longest_small`: what a small call gives at most; nothing: no call avoids the
/// log.
NodeLayout node_layout(const base::Settings& settings, const core::Topology& topology, std::size_t ring_bytes,
                       std::size_t rings, std::optional<std::size_t> longest_small = {});

struct EngineState {
  /// Throws Error (transport) where the system lacks descriptors.
  explicit EngineState(EngineParts parts);
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;

  /// Whether a transport wakes the background thread. Any thread.
  [[nodiscard]] bool is_rung() const noexcept { return inter != nullptr && inter->event_fd() >= 0; }

  /// An operation is about to fail because that rank has left. The node's leader hears of it before the program does,
  /// and so before this rank's process may end because of that.
  void note_desertion(int by) KOLO_REQUIRES(kDriving) {
    ending.note_desertion(by);
    to_leader.post(board);
  }

  // -- constant
  const core::Topology topology;
  const base::Settings settings;
  const std::shared_ptr<base::Logger> logger;
  const std::shared_ptr<transport::NodeLink> link;
  const std::unique_ptr<control::ControlChannel> channel;  ///< null: this rank leads no node, or there is one
  const std::unique_ptr<data::DeviceBackend> device;       ///< null: no tensors but the CPU's
  const std::shared_ptr<transport::InterNode> inter;       ///< null: there is one node
  const base::WaitPolicy wait_policy;
  const bool has_barriers;                             ///< process barriers reach all ranks of the node
  const std::shared_ptr<recorder::Recorder> recorder;  ///< says itself which thread may call what; never null

  // -- say themselves which thread may call what
  Deferred deferred;
  control::Board board;
  Driver driver;

  // -- the driver's
  control::Participant participant KOLO_GUARDED_BY(kDriving);
  control::ToLeader to_leader KOLO_GUARDED_BY(kDriving);
  const std::unique_ptr<control::Leader> leader KOLO_PT_GUARDED_BY(kDriving);  ///< null: this rank leads no node
  Tally tally KOLO_GUARDED_BY(kDriving);
  Sets sets KOLO_GUARDED_BY(kDriving);
  const SetStatePtr world;  ///< of these

  // -- any thread
  base::DurationBuckets<std::atomic<std::uint64_t>> sleeps_of_callers;

  // -- say themselves which thread may call what
  OpenOperations open;
  Ending ending;
  p2p::Messenger messenger;

  // -- the driver's
  Executor executor KOLO_GUARDED_BY(kDriving);
};

}  // namespace kolo::engine
