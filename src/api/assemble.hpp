// SPDX-License-Identifier: Apache-2.0
//
// From a bootstrap and a configuration to a running engine: the only place that names concrete transports and backends.
#pragma once

#include <memory>

#include <kolo/options.hpp>

#include "api/context_impl.hpp"
#include "base/clock.hpp"
#include "bootstrap/bootstrap.hpp"

namespace kolo::api {

/// How long a step of the start waits for other ranks (KOLO_CONNECT_TIMEOUT_S); the default if the settings are
/// invalid.
base::Duration connect_patience(const Options& options);

/// Makes CUDA show the devices of `Options::visible_devices`; does nothing if that is not set. Throws Error.
void show_devices(const Options& options);

/// Collective over the ranks of `bootstrap`. Throws Error on every rank alike when any rank fails: invalid_setting
/// for a bad value, else mostly transport. The sentence names the rank.
std::shared_ptr<detail::ContextImpl> assemble(std::unique_ptr<bootstrap::Bootstrap> bootstrap, const Options& options);

}  // namespace kolo::api
