// SPDX-License-Identifier: Apache-2.0
//
// What threads put into the engine's mailbox, as one word each. What an operation begins with takes no memory: it owns
// itself meanwhile, unless it is lent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/signature.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

enum class Command : std::uint8_t {
  submit,
  make_set,
  join,
  join_counted,
  copy,
  end_step,
  drop_set,
  run_ahead,  ///< this rank has left an unnamed call of the set, for the first time
  ask,
  leave
};

struct Mail {
  Command command = Command::submit;
  OperationPtr operation;
  core::SetId set = core::kGlobalSet;
};

namespace mail {

/// The lowest bits of a word; 1 is that of all (base/mailbox.hpp).
enum Form : std::uint64_t {
  kSubmit = 1,  ///< above them the address of the operation; so in the next three
  kMakeSet = 3,
  kJoin = 5,
  kJoinCounted = 7,
  kPlain = 9,   ///< above them the command and the set
  kBoxed = 11,  ///< above them the address of a Mail on the heap: the operation has begun earlier, and may end before
  kForm = 15
};

/// The form of an operation's beginning; 0: it is none.
[[nodiscard]] constexpr std::uint64_t form_of(Command command) noexcept {
  switch (command) {
  case Command::submit:
    return kSubmit;
  case Command::make_set:
    return kMakeSet;
  case Command::join:
    return kJoin;
  case Command::join_counted:
    return kJoinCounted;
  default:
    return 0;
  }
}

/// The operation of a word, if it is a submission: for a hint.
[[nodiscard]] inline const Operation* submission(std::uint64_t word) noexcept {
  return (word & kForm) == kSubmit ? reinterpret_cast<const Operation*>(word & ~std::uint64_t{kForm}) : nullptr;
}

/// It must be given to `take_out`, once. Throws std::bad_alloc for what is boxed.
[[nodiscard]] inline std::uint64_t to_word(Mail&& mail) {
  static_assert(alignof(Operation) > kForm && alignof(std::max_align_t) > kForm);
  if (mail.operation == nullptr) {
    return (std::uint64_t{mail.set} << 16) | (static_cast<std::uint64_t>(mail.command) << 8) | kPlain;
  }
  if (const std::uint64_t form = form_of(mail.command); form != 0) {
    Operation* const operation = mail.operation.get();
    if (!operation->is_lent) operation->self = std::move(mail.operation);
    return reinterpret_cast<std::uintptr_t>(operation) | form;
  }
  return reinterpret_cast<std::uintptr_t>(std::make_unique<Mail>(std::move(mail)).release()) | kBoxed;
}

[[nodiscard]] inline Mail take_out(std::uint64_t word) noexcept {
  const std::uint64_t form = word & kForm;
  if (form == kPlain) return {static_cast<Command>((word >> 8) & 0xff), nullptr, static_cast<core::SetId>(word >> 16)};
  const std::uintptr_t address = word & ~std::uint64_t{kForm};
  if (form == kBoxed) {
    const std::unique_ptr<Mail> box(reinterpret_cast<Mail*>(address));
    return std::move(*box);
  }
  const Command command = form == kSubmit    ? Command::submit
                          : form == kMakeSet ? Command::make_set
                          : form == kJoin    ? Command::join
                                             : Command::join_counted;
  auto* const operation = reinterpret_cast<Operation*>(address);
  if (operation->is_lent) return {command, OperationPtr(OperationPtr(), operation)};
  return {command, std::move(operation->self)};
}

}  // namespace mail

}  // namespace kolo::engine
