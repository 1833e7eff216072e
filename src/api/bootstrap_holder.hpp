// SPDX-License-Identifier: Apache-2.0
//
// The state of the public `kolo::Bootstrap`.
#pragma once

#include <memory>
#include <utility>

#include "bootstrap/bootstrap.hpp"

namespace kolo::detail {

struct BootstrapHolder {
  explicit BootstrapHolder(std::unique_ptr<bootstrap::Bootstrap> its) : bootstrap(std::move(its)) {}
  std::unique_ptr<bootstrap::Bootstrap> bootstrap;
};

}  // namespace kolo::detail
