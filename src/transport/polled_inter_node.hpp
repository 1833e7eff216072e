// SPDX-License-Identifier: Apache-2.0
//
// Adapts a transport that has to be polled, and sometimes pushed (MPI), to an engine that sleeps.
//
// Naps. Such a transport does not ring when a message comes, so the engine looks again after a nap. A nap is as long as
// nothing has moved so far, at least 20 us and at most 1 ms: naps that nobody ends early double. Naps of 1 ms from the
// start would make every round of chunks take that long; naps of 20 us throughout would take a CPU while a slow rank is
// waited for. A peer of the node that ends a nap early does not make the next one longer.
//
// Starvation. A sender with nothing more to do no longer calls its transport, which may then hold a message back
// (InterNode::push). A rank for which nothing has come for 100 ms asks all ranks to push, and asks again less and less
// often. Ranks that are asked call their transports for 100 ms.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "transport/inter_node.hpp"

namespace kolo::transport {

class PolledInterNode final : public InterNode {
 public:
  explicit PolledInterNode(std::shared_ptr<InterNode> transport);

  std::byte* staging(std::size_t bytes) override { return transport_->staging(bytes); }
  void give_back(std::byte* staging) noexcept override { transport_->give_back(staging); }
  Operation send(int rank, int tag, const std::byte* data, std::size_t bytes) override;
  Operation receive(int rank, int tag, std::byte* data, std::size_t bytes) override;
  bool test(Operation operation) override;
  void listen(int tag, std::size_t bytes) override { transport_->listen(tag, bytes); }
  [[nodiscard]] std::optional<Heard> hear() override;
  void expect(bool expects) override;
  [[nodiscard]] const char* name() const noexcept override { return transport_->name(); }

  void progress(base::Time now) override;
  void report_to(Reports reports) override { reports_ = std::move(reports); }
  void push(base::Time now) override;
  [[nodiscard]] std::optional<std::chrono::nanoseconds> nap() noexcept override;

 private:
  Operation note(Operation operation) noexcept;
  void watch(base::Time now);

  const std::shared_ptr<InterNode> transport_;
  Reports reports_;
  std::size_t open_ = 0;  ///< operations, and 1 while messages are expected
  bool expects_ = false;
  bool moved_ = false;                          ///< something was started or has completed since the last `progress`
  base::Time starved_at_ = base::Time::max();   ///< when to say so, should nothing have come by then
  base::Duration starving_ = {};                ///< how long it takes from one time that this is said to the next
  base::Time looked_at_ = base::Time::min();    ///< the last `progress`
  base::Time quiet_since_ = base::Time::min();  ///< the last one that found something moved, or nothing open
  base::Time push_until_ = base::Time::min();
};

}  // namespace kolo::transport
