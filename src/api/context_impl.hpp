// SPDX-License-Identifier: Apache-2.0
//
// The state of a `Context`: an engine, and what it was assembled from.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <kolo/context.hpp>

#include "api/forks.hpp"
#include "api/metrics_file.hpp"
#include "base/mutex.hpp"
#include "bootstrap/bootstrap.hpp"
#include "engine/engine.hpp"
#include "engine/sets.hpp"
#include "timeline/timeline.hpp"
#include "transport/node_link.hpp"
#include "transport/regions.hpp"

namespace kolo::detail {

/// The parts of a group that a call needs.
struct GroupParts {
  engine::Engine& engine;
  engine::SetState& set;
};

/// The state that all copies of a group of some ranks share.
class Membership {
 public:
  /// No member.
  Membership() noexcept = default;
  Membership(const std::shared_ptr<engine::Engine>& engine, engine::SetStatePtr state) noexcept
      : engine_(engine), state_(std::move(state)) {}
  /// Drops the set: the last copy of the group is destroyed.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// Null: no member.
  [[nodiscard]] const engine::SetStatePtr& state() const noexcept { return state_; }

 private:
  const api::Origin origin_ = {};
  const std::weak_ptr<engine::Engine> engine_ = {};
  const engine::SetStatePtr state_ = nullptr;
};

class ContextImpl {
 public:
  /// `connections`: descriptors by which others notice the end of this process. `carrier`: the description of the
  /// transport between nodes; empty with one node. `routes`: those inside a node, a line for each collective.
  ContextImpl(std::unique_ptr<bootstrap::Bootstrap> bootstrap, std::shared_ptr<engine::Engine> engine,
              std::shared_ptr<transport::NodeLink> link, std::shared_ptr<transport::Regions> regions,
              std::unique_ptr<const api::ClosedInChildren> connections, std::string carrier, std::string routes)
      : bootstrap_(std::move(bootstrap)), link_(std::move(link)), regions_(std::move(regions)),
        engine_(std::move(engine)), connections_(std::move(connections)), carrier_(std::move(carrier)),
        routes_(std::move(routes)) {}

  /// Releases everything, after `close`. Groups may still hold the rest.
  void dissolve() noexcept {
    connections_.reset();
    engine_.reset();
    regions_.reset();
    link_.reset();
    bootstrap_.reset();
  }
  [[nodiscard]] bool dissolved() const noexcept { return engine_ == nullptr; }

  [[nodiscard]] engine::Engine& engine() const noexcept { return *engine_; }
  [[nodiscard]] const std::shared_ptr<engine::Engine>& shared_engine() const noexcept { return engine_; }
  [[nodiscard]] transport::NodeLink& link() const noexcept { return *link_; }
  [[nodiscard]] const std::shared_ptr<transport::Regions>& regions() const noexcept { return regions_; }
  [[nodiscard]] std::string describe_bootstrap() const { return bootstrap_->describe(); }
  [[nodiscard]] const std::string& describe_carrier() const noexcept { return carrier_; }
  [[nodiscard]] const std::string& describe_routes() const noexcept { return routes_; }
  /// Ends the engine. If an exception ends the context (`reason` is not empty), or with `hurry`, it does not wait for
  /// the others. Not inside a callback of on_done.
  void close(const std::string& reason, bool hurry = false) noexcept;
  /// Processes that are forked from now on may be ranks. Call it after the end of the engine.
  void forget_connections() noexcept { connections_.reset(); }
  /// Whether this process is a fork of the one that made the context. Then the context's threads do not exist, and it
  /// can neither be used nor destroyed.
  [[nodiscard]] bool is_inherited() const noexcept { return !origin_.is_here(); }
  /// Notes that the context was made through the launcher's MPI, whose finalisation depends on how it ends.
  void belong_to_job() noexcept { of_job_ = true; }
  /// By rank: the number of its machine, and an address of it. Once, after the start.
  void know_machines(std::vector<int> machines, std::vector<std::string> addresses) {
    machines_ = std::move(machines);
    addresses_ = std::move(addresses);
  }
  [[nodiscard]] const std::vector<std::string>& addresses() const noexcept { return addresses_; }
  [[nodiscard]] const std::vector<int>& machines() const noexcept { return machines_; }
  /// Of this rank; null: none. A lock of its own.
  void set_timeline(std::shared_ptr<timeline::Timeline> timeline);
  /// Begins the file of KOLO_METRICS_FILE, if the setting asks for it. Once, after the start.
  void begin_metrics() noexcept;
  /// Writes it a last time. Before the engine's end.
  void end_metrics() noexcept { metrics_file_.reset(); }
  [[nodiscard]] bool of_job() const noexcept { return of_job_; }

 private:
  const api::Origin origin_ = {};
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;  // outlives what was made with it
  std::shared_ptr<transport::NodeLink> link_;
  std::shared_ptr<transport::Regions> regions_;
  std::shared_ptr<engine::Engine> engine_;
  std::unique_ptr<const api::ClosedInChildren> connections_;
  const std::string carrier_;
  const std::string routes_;
  bool of_job_ = false;
  std::vector<int> machines_;
  std::vector<std::string> addresses_;
  std::unique_ptr<api::MetricsFile> metrics_file_;
  base::Mutex timeline_mutex_;
  std::shared_ptr<timeline::Timeline> timeline_ KOLO_GUARDED_BY(timeline_mutex_);
};

}  // namespace kolo::detail
