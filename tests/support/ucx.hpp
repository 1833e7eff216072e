// SPDX-License-Identifier: Apache-2.0
//
// A rank's transport over UCX, by any bootstrap. UCX does not work in forks of a process that has loaded it: tests that
// use it fork first, and load it there (`run_processes`).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "transport/ucx/ucx_api.hpp"
#include "transport/ucx/ucx_inter_node.hpp"

namespace kolo::testing {

inline const ucx::Library& ucx_library() {
  static const ucx::Library& instance = *new ucx::Library;
  return instance;
}

inline std::shared_ptr<ucx::UcxInterNode> ucx_between(bootstrap::Bootstrap& bootstrap,
                                                      const std::string& devices = {}) {
  auto worker = std::make_unique<ucx::Worker>(ucx_library(), devices);
  const std::vector<std::string> addresses = bootstrap.exchange("UCX", worker->address(), std::chrono::seconds(60));
  return std::make_shared<ucx::UcxInterNode>(std::move(worker), bootstrap.rank(), addresses);
}

}  // namespace kolo::testing
