// SPDX-License-Identifier: Apache-2.0

/// @file
/// The end of a membership that does not wait for the other ranks.
#ifndef KOLO_DETAIL_LEAVING_HPP
#define KOLO_DETAIL_LEAVING_HPP

#include <string>

#include <kolo/context.hpp>
#include <kolo/export.hpp>

namespace kolo::detail {

/// `Context::shutdown`, which waits for this rank's own operations as long as ever, but for the other ranks a second at
/// most. It is for a process that is about to end, whether it does so at once or not. A later operation that needs this
/// rank fails at once, with an error that names it: every operation if this is rank 0, every one of the node's ranks if
/// it is the first of a node. Nobody's `shutdown` waits for it.
KOLO_API void leave_early(Context& context);

/// For a process that goes on without this context, and perhaps in another: `leave_early` where this rank has nothing
/// open. Else `Context::abandon`: what is open fails at once, here and where it needs this rank.
KOLO_API void leave_now(Context& context, const std::string& reason);

}  // namespace kolo::detail

#endif
