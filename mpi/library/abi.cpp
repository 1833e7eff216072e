// SPDX-License-Identifier: Apache-2.0
#include "mpi/library/abi.hpp"

#include <array>

#include <kolo/detail/names.hpp>

namespace kolo::mpi {
namespace {

constexpr std::array<std::string_view, 4> kThreadLevelNames{"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};

}  // namespace

std::string_view to_string(ThreadLevel level) noexcept { return detail::name_of(kThreadLevelNames, level); }

}  // namespace kolo::mpi
