// SPDX-License-Identifier: Apache-2.0
//
// What a `Call` is: who makes its request, once group and name are there.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include <kolo/call.hpp>

#include "api/request.hpp"

namespace kolo {

class Call::Impl {
 public:
  using Make = std::function<api::Request(std::string_view name, const Group& group)>;
  explicit Impl(Make make) noexcept : make_(std::move(make)) {}
  [[nodiscard]] api::Request request(std::string_view name, const Group& group) const { return make_(name, group); }

 private:
  const Make make_;
};

}  // namespace kolo
