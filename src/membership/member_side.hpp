// SPDX-License-Identifier: Apache-2.0
//
// A process's part of the protocol of keeper.hpp: what it says, and what it has heard. A pure machine: a thread of the
// process passes on what comes, and sends what these functions return.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "membership/notice.hpp"

namespace kolo::membership {

class MemberSide {
 public:
  /// A notice has come. What must be answered at once, also while the program computes.
  [[nodiscard]] std::optional<Notice> hear(const Notice& notice);

  /// Takes part in nothing of its generation any more. From now on it waits: for `next()`, or a `farewell()`.
  [[nodiscard]] Notice ready();
  /// As rank 0 of a generation that starts: where the others find it.
  [[nodiscard]] Notice entry(std::string text) const { return {Topic::entry, generation_, 0, 0, std::move(text)}; }
  [[nodiscard]] Notice started() const { return {Topic::started, generation_, 0, 0, {}}; }
  [[nodiscard]] Notice done() const { return {Topic::done, generation_, 0, 0, {}}; }
  [[nodiscard]] Notice leaving() const { return {Topic::leaving, 0, 0, 0, {}}; }

  /// The generation of which it is a member, or was last; 0: it was never in one.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  /// It has said `ready`, and neither a generation nor a farewell has come.
  [[nodiscard]] bool waits() const noexcept { return waits_; }
  /// Its generation is to end: say `ready` at the next place where all members do.
  [[nodiscard]] bool change_is_due() const noexcept { return due_; }
  /// Why its generation cannot go on: a member is gone. Empty: it can.
  [[nodiscard]] const std::string& trouble() const noexcept { return trouble_; }
  /// Its place in its generation.
  [[nodiscard]] const Notice& place() const noexcept { return place_; }
  /// Where rank 0 of its generation listens, once that is known.
  [[nodiscard]] const std::optional<std::string>& entry_of_rank_0() const noexcept { return entry_; }
  /// Why no generation follows.
  [[nodiscard]] const std::optional<std::string>& farewell() const noexcept { return farewell_; }

  auto operator<=>(const MemberSide&) const = default;

 private:
  std::uint64_t generation_ = 0;
  bool waits_ = false;
  bool due_ = false;
  std::string trouble_;
  Notice place_;
  std::optional<std::string> entry_;
  std::optional<std::string> farewell_;
};

}  // namespace kolo::membership
