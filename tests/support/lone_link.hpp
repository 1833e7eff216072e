// SPDX-License-Identifier: Apache-2.0
//
// What a rank holds of a node in which nobody else does anything: memory, and its own bell.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "base/poller.hpp"
#include "transport/node_link.hpp"
#include "transport/shm/segment.hpp"

namespace kolo::testing {

class LoneLink final : public transport::NodeLink {
 public:
  explicit LoneLink(std::size_t bytes) : memory_(shm::Segment::anonymous(bytes)) {}
  [[nodiscard]] std::byte* memory() const noexcept override { return memory_.data(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return memory_.bytes(); }
  void wake(int) noexcept override { bell_.signal(); }
  [[nodiscard]] int wake_fd() const noexcept override { return bell_.fd(); }
  [[nodiscard]] bool was_rung() const noexcept { return bell_.drain(); }
  [[nodiscard]] std::vector<Liveness> liveness() const override { return {}; }
  std::shared_ptr<transport::SharedRegion> share(const transport::Sharers&, std::size_t, const transport::Meeting&,
                                                 const std::function<void()>&) override {
    std::abort();
  }
  std::shared_ptr<transport::PeerMemory> peer_memory(const transport::Meeting&) override { std::abort(); }

 private:
  shm::Segment memory_;
  base::EventFd bell_;
};

}  // namespace kolo::testing
