// SPDX-License-Identifier: Apache-2.0
//
// The library's way behind a group, a context, a bootstrap, a handle and a call.
#pragma once

#include <memory>
#include <utility>

#include <kolo/call.hpp>
#include <kolo/context.hpp>
#include <kolo/handle.hpp>
#include <kolo/point_to_point.hpp>

#include "bootstrap/bootstrap.hpp"

namespace kolo::engine {
class SetState;
}  // namespace kolo::engine

namespace kolo::detail {

struct GroupParts;

/// The state of the public `kolo::Bootstrap`.
struct BootstrapHolder {
  explicit BootstrapHolder(std::unique_ptr<bootstrap::Bootstrap> its) : bootstrap(std::move(its)) {}

  std::unique_ptr<bootstrap::Bootstrap> bootstrap;
};

struct HandleAccess {
  /// Throws Error (invalid_argument) for an empty handle.
  static HandleState& state(const Handle& handle) { return handle.state(); }
};

/// What the classes have as a friend. See the functions below.
struct Access {
  static ContextImpl& impl(const Group& group);
  static const Group& world(const Context& context) noexcept { return context.world_; }
  static GroupParts parts(const Group& group);
  static const CallParts& parts(const Call& call) noexcept { return call.parts_; }
  static std::unique_ptr<BootstrapHolder>& holder(Bootstrap& bootstrap) noexcept { return bootstrap.holder_; }
};

}  // namespace kolo::detail

namespace kolo::api {

/// Throws Error (not_initialized; in a forked process unsupported).
inline detail::ContextImpl& impl_of(const Group& group) { return detail::Access::impl(group); }
inline detail::ContextImpl& impl_of(const Context& context) { return impl_of(detail::Access::world(context)); }
/// Throws Error as `impl_of`, and invalid_argument if this rank is no member.
detail::GroupParts parts_of(const Group& group);
engine::SetState& set_of(const Group& group);

/// The result of a receive that has its message.
Received received(const detail::HandleState& receive);

inline const detail::CallParts& parts_of(const Call& call) noexcept { return detail::Access::parts(call); }

std::unique_ptr<detail::BootstrapHolder> holder_of(Bootstrap bootstrap) noexcept;

}  // namespace kolo::api
