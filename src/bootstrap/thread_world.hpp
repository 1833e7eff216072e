// SPDX-License-Identifier: Apache-2.0
//
// A world whose ranks are threads of one process: the same program without a launcher, and the tests' world, which a
// thread sanitizer sees whole. Everything that processes do with MPI and shared memory is done here in plain memory.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"

namespace kolo::bootstrap {

class ThreadWorldState;

/// Thread-safe. Bootstraps and what they made stay valid when the world object is gone.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size);
  ~ThreadWorld();

  /// Rank `rank`'s way in; used by that rank's thread alone. All ranks are on one machine, so a topology of several
  /// nodes is one of virtual nodes.
  [[nodiscard]] std::unique_ptr<Bootstrap> bootstrap(int rank);

  /// Ends every blocked or later call of a bootstrap with Error(transport, reason), and every later use of an InterNode
  /// likewise: a rank has left, and nobody shall wait for it. The first reason stays.
  void abort(const std::string& reason);

 private:
  std::shared_ptr<ThreadWorldState> state_;
};

}  // namespace kolo::bootstrap
