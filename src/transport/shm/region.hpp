// SPDX-License-Identifier: Apache-2.0
//
// A region (transport/regions.hpp) whose parts are segments, between processes and between threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "transport/node_link.hpp"
#include "transport/regions.hpp"
#include "transport/shm/segment.hpp"

namespace kolo::shm {

class Region final : public transport::SharedRegion {
 public:
  /// `parts`: by local rank in the world; null for this rank, and for ranks that are no members.
  Region(Segment own, std::vector<std::shared_ptr<Segment>> parts)
      : bytes_(own.bytes()), own_(std::move(own)), parts_(std::move(parts)) {}

  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] std::byte* own() const noexcept override { return own_.data(); }
  [[nodiscard]] std::byte* of(int local_rank) const noexcept override {
    const std::shared_ptr<Segment>& part = parts_[static_cast<std::size_t>(local_rank)];
    return part ? part->data() : own_.data();
  }
  void detach() noexcept override {
    // Only once: a second time the private pages would be lost.
    if (own_.data() != nullptr && parts_.size() > 1 && !std::exchange(is_detached_, true)) own_.make_private();
  }
  void release_own() noexcept override { own_.discard(); }

 private:
  const std::size_t bytes_;
  Segment own_;
  const std::vector<std::shared_ptr<Segment>> parts_;
  bool is_detached_ = false;
};

/// NodeLink::share between processes, by an anonymous file for each rank's part, which its peers map. `local_size`: of
/// the node in the world; `patience`: how long a rank waits for its node.
std::shared_ptr<transport::SharedRegion> share_between_processes(const transport::Sharers& sharers, int local_size,
                                                                 std::size_t bytes, const std::string& job_key,
                                                                 const transport::Meeting& meet,
                                                                 const std::function<void()>& check,
                                                                 base::Duration patience);

/// The same between threads, which see each other's descriptors.
std::shared_ptr<transport::SharedRegion> share_between_threads(const transport::Sharers& sharers, int local_size,
                                                               std::size_t bytes, const transport::Meeting& meet);

}  // namespace kolo::shm
