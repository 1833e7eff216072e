// SPDX-License-Identifier: Apache-2.0
//
// KOLO_CHECK_NAN: refuses inputs of reductions that contain a NaN, before they spread to all ranks.
#pragma once

#include <string_view>

#include <kolo/call.hpp>
#include <kolo/types.hpp>

#include "api/checks.hpp"
#include "engine/engine.hpp"

namespace kolo::api {

/// Throws Error (invalid_argument): `name` (empty: an unnamed call) has a NaN in this input. The sentence names tensor,
/// rank, step and the first such element. Of a device that can be used, it waits until the input's stream has come to
/// here, and throws what DeviceBackend::read does.
void refuse_nan(const engine::Engine& engine, const Subject& subject, const ConstTensorView& input);
/// The same where the input comes behind these streams.
void refuse_nan(const engine::Engine& engine, const Subject& subject, const ConstTensorView& input,
                Span<const Stream> streams);
void refuse_nan(const engine::Engine& engine, std::string_view name, const detail::CallParts& call);

/// The same if the setting asks for it. Behind `prepare_device`.
inline void check_for_nan(const engine::Engine& engine, std::string_view name, const detail::CallParts& call) {
  if (engine.settings().check_nan) refuse_nan(engine, name, call);
}

}  // namespace kolo::api
