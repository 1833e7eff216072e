// SPDX-License-Identifier: Apache-2.0
//
// Requests of calls with a root, in which the ranks of a group give and get different things.
#pragma once

#include <optional>
#include <string_view>

#include <kolo/options.hpp>
#include <kolo/types.hpp>

#include "api/request.hpp"

namespace kolo::api {

// Each checks its arguments and throws Error, as those of request.hpp do.
/// `out`: every rank but the root may leave it out, and its buffer has none.
Request reduce_request(std::string_view name, const ConstTensorView& in, const std::optional<TensorView>& out,
                       bool in_place, int root, const Group& group, const ReduceOptions& options);
/// Into memory of our own.
Request gather_request(std::string_view name, const ConstTensorView& in, int root, const Group& group,
                       const GatherOptions& options);
Request gather_into_request(std::string_view name, const ConstTensorView& in, const std::optional<TensorView>& out,
                            int root, const Group& group, const GatherOptions& options);
Request scatter_request(std::string_view name, const std::optional<ConstTensorView>& in, const TensorView& out,
                        int root, Span<const std::int64_t> splits, const Group& group, const ScatterOptions& options);

}  // namespace kolo::api
