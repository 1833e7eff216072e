// SPDX-License-Identifier: Apache-2.0
//
// A world whose ranks are threads of one process: for programs without a launcher, and for tests under the thread
// sanitizer. Plain memory replaces MPI and shared memory.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"

namespace kolo::bootstrap {

class ThreadWorldState;

/// Thread-safe. Bootstraps, and what they have made, stay valid when the world object is destroyed.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size);
  ~ThreadWorld();

  /// The bootstrap of rank `rank`; only that rank's thread uses it. All ranks are on one machine, so several nodes are
  /// virtual nodes.
  [[nodiscard]] std::unique_ptr<Bootstrap> bootstrap(int rank);

  /// Ends every blocked or later call of a bootstrap, and every later use of an InterNode, with Error(transport,
  /// reason), because a rank has left and must not be waited for. The first reason stays.
  void abort(const std::string& reason);

 private:
  std::shared_ptr<ThreadWorldState> state_;
};

}  // namespace kolo::bootstrap
