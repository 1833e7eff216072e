// SPDX-License-Identifier: Apache-2.0
//
// What threads put into the engine's mailbox for the driver.
#pragma once

#include <cstdint>

#include "core/signature.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

enum class Command : std::uint8_t {
  // -- starts of operations
  submit,
  make_set,
  join,
  join_counted,
  // -- others
  copy,
  end_step,
  drop_set,
  ask,
  leave
};

struct Submission {
  Command command = Command::submit;
  OperationPtr operation;
  core::SetId set = core::kGlobalSet;

  [[nodiscard]] bool starts_operation() const noexcept { return command <= Command::join_counted; }
};

}  // namespace kolo::engine
