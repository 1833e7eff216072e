// SPDX-License-Identifier: Apache-2.0
//
// From a bootstrap and a configuration to a running engine: the only place that names concrete transports and backends.
#pragma once

#include <memory>

#include <kolo/options.hpp>

#include "api/context_impl.hpp"
#include "core/bootstrap.hpp"

namespace kolo::api {

/// Collective over the ranks of `bootstrap`. Throws Error: invalid_setting (on every rank, when any rank has a bad
/// value), transport.
std::shared_ptr<detail::ContextImpl> assemble(std::unique_ptr<core::Bootstrap> bootstrap, const Options& options);

}  // namespace kolo::api
