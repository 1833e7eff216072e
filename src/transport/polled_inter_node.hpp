// SPDX-License-Identifier: Apache-2.0
//
// Adapts a transport that has to be polled, and sometimes pushed (MPI), to an engine that sleeps.
//
// Naps. Such a transport does not signal that a message has come, so the engine polls again after a nap. A nap is as
// long as the time for which nothing has moved, at least 20 us and at most 1 ms, so naps double. With naps of 1 ms from
// the start, every round of chunks would take that long; with naps of 20 us throughout, waiting for a slow rank would
// take a CPU. If a peer of the node ends a nap early, the next one does not become longer.
//
// Starvation. A sender that has nothing more to do does not call its transport any more, and the transport may then
// hold a message back (InterNode::push). A rank that has received nothing for 100 ms asks all ranks to push, and asks
// again less and less often. A rank that is asked calls its transport for 100 ms.
//
// Calls that do not return. Open MPI may loop for ever inside a call when a rank has died that it was sending to. The
// thread that made the call is lost then, and with it the rank, which holds its node up: so the process ends
// (`limit_calls`).
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "base/thread.hpp"
#include "transport/inter_node.hpp"

namespace kolo::transport {

class PolledInterNode final : public InterNode {
 public:
  explicit PolledInterNode(std::shared_ptr<InterNode> transport);
  ~PolledInterNode() override;
  PolledInterNode(const PolledInterNode&) = delete;
  PolledInterNode& operator=(const PolledInterNode&) = delete;

  std::byte* staging(std::size_t bytes) override { return transport_->staging(bytes); }
  void give_back(std::byte* staging) noexcept override { transport_->give_back(staging); }
  Operation send(int rank, int tag, const std::byte* data, std::size_t bytes) override;
  Operation receive(int rank, int tag, std::byte* data, std::size_t bytes) override;
  bool test(Operation operation) override;
  void listen(int tag, std::size_t bytes) override;
  [[nodiscard]] std::optional<Heard> hear() override;
  void expect(bool expects) override;
  [[nodiscard]] const char* name() const noexcept override { return transport_->name(); }

  void progress(base::Time now) override;
  void report_to(Reports reports) override { reports_ = std::move(reports); }
  void limit_calls(base::Duration patience, const std::string& last_words) override;
  void push(base::Time now) override;
  [[nodiscard]] std::optional<std::chrono::nanoseconds> nap() noexcept override;

 private:
  [[nodiscard]] base::Watchdog* watched() noexcept { return watch_ ? &*watch_ : nullptr; }
  Operation note(Operation operation) noexcept;
  void watch(base::Time now);

  using Call = base::Watchdog::Call;

  std::optional<base::Watchdog> watch_;
  std::shared_ptr<InterNode> transport_;
  Reports reports_;
  std::size_t open_ = 0;  ///< open operations, plus 1 while messages are expected
  bool expects_ = false;
  bool moved_ = false;                          ///< something was started or has completed since the last `progress`
  base::Time starved_at_ = base::Time::max();   ///< when to report starvation, if nothing has come by then
  base::Duration starving_ = {};                ///< the time between two reports
  base::Time looked_at_ = base::Time::min();    ///< the last `progress`
  base::Time quiet_since_ = base::Time::min();  ///< the last `progress` that found something moved, or nothing open
  base::Time push_until_ = base::Time::min();
};

}  // namespace kolo::transport
