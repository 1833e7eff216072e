// SPDX-License-Identifier: Apache-2.0
//
// Makes a transport that one can sleep on out of one that tells nothing by itself, and that may have to be pushed: MPI.
// With a CallRule it may be called by some threads only (gated_inter_node.hpp).
//
// How long to sleep. Nothing rings when a message comes, so who sleeps looks again after a nap: as long as nothing has
// moved so far, so that naps double, but 20 us at least and 1 ms at most. With the longest from the start, every round
// of chunks would take that long; with the shortest throughout, a rank that waits for a slow one would take a CPU.
// Peers of the node may end naps early, for what does not move the transport: that makes the next one no longer.
//
// Who is starved says so. A message may be held back by a sender that has nothing more to do and calls its transport no
// more (InterNode::push). A rank for which nothing has come for 100 ms says so, then less and less often; for each time
// that all ranks hear of it they call their transports for 100 ms. Where this process holds itself up (no thread
// that may has called the transport) it is not said.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "transport/gated_inter_node.hpp"
#include "transport/inter_node.hpp"

namespace kolo::transport {

class PolledInterNode final : public InterNode {
 public:
  /// `rule`: who may call the transport; empty: any thread.
  explicit PolledInterNode(std::shared_ptr<InterNode> transport, std::optional<CallRule> rule = std::nullopt);

  std::byte* staging(std::size_t bytes) override { return transport_->staging(bytes); }
  Operation send(int rank, int tag, const std::byte* data, std::size_t bytes) override;
  Operation receive(int rank, int tag, std::byte* data, std::size_t bytes) override;
  bool test(Operation operation) override;
  [[nodiscard]] const char* name() const noexcept override { return transport_->name(); }

  void progress(base::Time now) override;
  void report_to(Reports reports) override { reports_ = std::move(reports); }
  void push(base::Time now) override;
  void abandon() noexcept override { transport_->abandon(); }
  [[nodiscard]] Callers* callers() noexcept override { return transport_->callers(); }
  [[nodiscard]] std::optional<std::chrono::nanoseconds> nap() noexcept override;

 private:
  Operation note(Operation operation) noexcept;
  void watch(base::Time now);

  const std::shared_ptr<InterNode> transport_;
  Reports reports_;
  std::size_t open_ = 0;
  bool moved_ = false;                          ///< something was started or has completed since the last `progress`
  base::Time starved_at_ = base::Time::max();   ///< when to say so, should nothing have come by then
  base::Duration starving_ = {};                ///< how long it takes from one time that this is said to the next
  base::Time looked_at_ = base::Time::min();    ///< the last `progress`
  base::Time quiet_since_ = base::Time::min();  ///< the last one that found something moved, or nothing open
  base::Time push_until_ = base::Time::min();
};

}  // namespace kolo::transport
