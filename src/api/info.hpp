// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <kolo/detail/counters.hpp>

#include "engine/engine.hpp"

namespace kolo::api {

/// The engine's counters, with those of its device.
[[nodiscard]] detail::Counters counters_of(engine::Engine& engine);
/// As Prometheus reads them (kolo/info.hpp).
[[nodiscard]] std::string prometheus_of(const detail::Counters& counters, int rank);

}  // namespace kolo::api
