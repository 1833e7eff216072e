// SPDX-License-Identifier: Apache-2.0
//
// The items of the engine's mailbox. Each is one word there (base/mailbox.hpp). The start of an operation allocates
// nothing: while it lies in the mailbox the operation owns itself, unless it is lent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/signature.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

enum class Command : std::uint8_t {
  // -- starts of operations (mail::starts)
  submit,
  make_set,
  join,
  join_counted,
  // -- others
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

/// Whether the command starts an operation.
[[nodiscard]] constexpr bool starts(Command command) noexcept { return command <= Command::join_counted; }

/// The lowest four bits of a word. The lowest one is always set, as the mailbox wants it. A start has twice its command
/// more, and the address of its operation above.
enum Form : std::uint64_t {
  kSubmit = 1,
  kPlain = 9,   ///< above: the command and the set
  kBoxed = 11,  ///< above: the address of a Mail on the heap. Its operation has started before, and may end first
  kForm = 15    ///< all of them
};
static_assert(2 * static_cast<int>(Command::join_counted) + 1 < kPlain);
static_assert(alignof(Operation) > kForm && alignof(std::max_align_t) > kForm);

/// The word must be given to `take_out`, once. Throws std::bad_alloc for what is boxed.
[[nodiscard]] inline std::uint64_t to_word(Mail&& mail) {
  const auto command = static_cast<std::uint64_t>(mail.command);
  if (mail.operation == nullptr) return (std::uint64_t{mail.set} << 16) | (command << 8) | kPlain;
  if (starts(mail.command)) {
    Operation* const operation = mail.operation.get();
    if (!operation->is_lent) operation->self = std::move(mail.operation);
    return reinterpret_cast<std::uintptr_t>(operation) | (2 * command + 1);
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
  const auto command = static_cast<Command>(form / 2);
  auto* const operation = reinterpret_cast<Operation*>(address);
  if (operation->is_lent) return {command, OperationPtr(OperationPtr(), operation)};
  return {command, std::move(operation->self)};
}

}  // namespace mail

}  // namespace kolo::engine
