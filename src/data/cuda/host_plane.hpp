// SPDX-License-Identifier: Apache-2.0
//
// The CPU's data plane, as used here: for what ranks must tell each other before a device can be used, for the
// lengths of uneven contributions, and, staged, for the tensors themselves. Each process set has a data plane of its
// own for that, not the one that runs its batches of CPU tensors, so that nothing depends on how the two interleave;
// what is started here is started in the same order on every rank of the set.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/backend.hpp"

namespace kolo::cuda {

class HostPlane {
 public:
  explicit HostPlane(std::unique_ptr<data::Backend> backend) : backend_(std::move(backend)) {}
  /// `job` stays where it is until `done` has been called, by `progress`. A failure is thrown there.
  void start(data::Job& job, std::function<void()> done);
  /// True when something moved. Throws Error.
  bool progress();
  [[nodiscard]] bool busy() const noexcept { return !open_.empty(); }
  void abort() noexcept;

 private:
  const std::unique_ptr<data::Backend> backend_;
  std::map<const data::Job*, std::function<void()>> open_;  // and what is called when it is done
  std::vector<data::Job*> finished_;
};

/// Everybody says something, and hears what all have said, by rank. Used again and again, one exchange at a time.
class Exchange {
 public:
  explicit Exchange(HostPlane& plane) : plane_(plane) {}
  void start(std::string mine);
  [[nodiscard]] bool started() const noexcept { return started_; }
  [[nodiscard]] bool done() const noexcept { return done_; }
  /// Once done; another may then be started.
  [[nodiscard]] std::vector<std::string> take();

 private:
  HostPlane& plane_;
  data::Job job_;
  std::string mine_;
  std::string all_;
  std::vector<std::int64_t> lengths_;
  bool started_ = false;
  bool done_ = false;
};

}  // namespace kolo::cuda
