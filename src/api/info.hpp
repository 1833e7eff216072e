// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kolo/info.hpp>

#include "engine/engine.hpp"

namespace kolo::api {

/// The engine's metrics, with those of its device.
[[nodiscard]] Metrics metrics_of(engine::Engine& engine);

}  // namespace kolo::api
