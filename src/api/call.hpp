// SPDX-License-Identifier: Apache-2.0
//
// What a `Call` is: who makes its request, once group and name are there, and which memory it uses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include <kolo/call.hpp>

#include "api/request.hpp"

namespace kolo {

class Call::Impl {
 public:
  using Make = std::function<api::Request(std::string_view name, const Group& group)>;
  /// Memory that the call reads, or writes; perhaps none.
  struct Use {
    const std::byte* begin = nullptr;
    std::int64_t bytes = 0;
    bool written = false;
  };

  using Uses = std::array<Use, 2>;

  Impl(Make make, const Uses& uses) noexcept : make_(std::move(make)), uses_(uses) {}
  [[nodiscard]] api::Request request(std::string_view name, const Group& group) const { return make_(name, group); }
  [[nodiscard]] const Uses& uses() const noexcept { return uses_; }

 private:
  const Make make_;
  const Uses uses_;
};

namespace api {

/// Of several calls as one operation. Throws Error (invalid_argument).
Request grouped_request(std::string_view name, Span<const Call> calls, const Group& group);

}  // namespace api

}  // namespace kolo
