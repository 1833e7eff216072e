// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_state.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "core/shortcut_memory.hpp"
#include "engine/records.hpp"

namespace kolo::engine {
namespace {

/// In seconds.
constexpr double kLeastPatienceWithCalls = 5;

}  // namespace

NodeLayout node_layout(const base::Settings& settings, const core::Topology& topology, std::size_t ring_bytes,
                       std::size_t rings, std::optional<std::size_t> longest_small) {
  NodeLayout layout;
  layout.ranks = topology.local_size();
  layout.blocks = static_cast<std::size_t>(settings.groups) + 1;
  layout.board_bytes = control::board_shape(settings, topology.local_size()).bytes();
  if (longest_small) layout.shortcut_bytes = core::ShortcutMemory::column_bytes(*longest_small);
  layout.longest_small = longest_small.value_or(0);
  layout.ring_bytes = ring_bytes;
  layout.rings = rings;
  layout.message_bytes = p2p::NodeChannels::bytes(topology.local_size());
  return layout;
}

EngineState::EngineState(EngineParts parts)
    : topology(std::move(parts.topology)), settings(std::move(parts.settings)), logger(std::move(parts.logger)),
      link(std::move(parts.link)), channel(std::move(parts.control)), device(std::move(parts.device)),
      inter(std::move(parts.inter)), wait_policy(parts.wait_policy), has_barriers(parts.has_barriers),
      recorder(std::move(parts.recorder)), deferred(*logger),
      board(link->memory(), control::board_shape(settings, topology.local_size()), topology.local_rank),
      driver(board, *link),
      participant(topology.rank, topology.size, static_cast<std::uint32_t>(settings.cache_capacity)),
      leader(!topology.is_leader()
                 ? nullptr
                 : std::make_unique<control::Leader>(
                       topology, settings, board, [this](int local_rank) { link->wake(local_rank); }, channel.get(),
                       [this](std::string record) { deferred.log(LogLevel::debug, std::move(record)); })),
      sets(topology, {parts.layout, link->memory(), std::move(parts.make_plane), std::move(parts.make_device_plane),
                      std::move(parts.make_small_calls)}),
      world(sets.world()), open({base::from_seconds(settings.timeout_s), base::from_seconds(settings.stall_warning_s)},
                                driver, sets, deferred, tally, *recorder),
      ending(topology.rank, base::from_seconds(settings.latch_timeout_s), to_leader, leader.get(), sets, open,
             inter.get(), deferred, *recorder),
      messenger(topology, parts.layout.messages(link->memory()), *link, std::move(parts.peers), parts.read_above,
                wait_policy.pauses > 0, parts.to_peers, inter),
      executor(sets.make_world_plane(), device.get(), topology.size) {
  executor.record_to(*recorder, tally);
  executor.set_enqueued([this](Operation& operation, const data::DeviceEventPtr& event) {
    open.note_given(operation);
    for (auto& callback : operation.set_enqueued(event)) deferred.call(std::move(callback), Status());
  });
  if (logger->enabled(LogLevel::debug) || settings.log_placement) {
    executor.set_started(
        [this, routes = std::make_shared<TensorRoutes>()](const Batch& batch, const data::Layout& layout,
                                                          std::uint32_t plan_key, data::Backend& backend) {
          deferred.log(LogLevel::debug, record_of(batch, plan_key, backend));
          if (!settings.log_placement) return;
          for (std::string& record : routes->records_of(batch, layout, backend)) deferred.write(std::move(record));
        });
  }
  if (inter) {
    inter->report_to({[this](int rank, const std::string& reason) {
                        Driver::assert_held();
                        ending.losses.push_back({rank, reason});  // a pass judges them
                      },
                      [this] {
                        Driver::assert_held();
                        participant.starved();
                      }});
    // Later than the errors of a wait's own deadline, and late enough for a thread that gets no CPU for a while.
    const double patience = std::max(settings.timeout_s + settings.latch_timeout_s, kLeastPatienceWithCalls);
    inter->limit_calls(base::from_seconds(patience),
                       "kolo: rank " + std::to_string(topology.rank) + ": a call of " + inter->name() +
                           " has not returned within " + base::spell(patience, 4) +
                           " s (KOLO_TIMEOUT_S and KOLO_LATCH_TIMEOUT_S, 5 s at least): Open MPI can loop for ever "
                           "when a rank has died that it was sending to. This process ends.");
  }
  if (channel) channel->attach(driver.poller(), kControlTag);
  for (const transport::NodeLink::Liveness& peer : link->liveness()) {
    driver.poller().add(peer.fd, kLivenessTag + static_cast<std::uint64_t>(peer.local_rank));
  }
}

}  // namespace kolo::engine
