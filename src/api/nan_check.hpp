// SPDX-License-Identifier: Apache-2.0
//
// KOLO_CHECK_NAN: refuses inputs of reductions that contain a NaN, before they spread to all ranks.
#pragma once

#include <string_view>

#include <kolo/call.hpp>
#include <kolo/types.hpp>

#include "engine/engine.hpp"

namespace kolo::api {

/// Throws Error (invalid_argument): `name` (empty: an unnamed call) has a NaN in this input. The sentence names tensor,
/// rank, step and the first such element. Memory of a device is not looked at.
void refuse_nan(const engine::Engine& engine, core::CollectiveKind kind, std::string_view name,
                const ConstTensorView& input);
void refuse_nan(const engine::Engine& engine, std::string_view name, const detail::CallParts& call);

/// The same if the setting asks for it.
inline void check_for_nan(const engine::Engine& engine, std::string_view name, const detail::CallParts& call) {
  if (engine.settings().check_nan) refuse_nan(engine, name, call);
}

}  // namespace kolo::api
