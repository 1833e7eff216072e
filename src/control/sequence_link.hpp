// SPDX-License-Identifier: Apache-2.0
//
// Sequences of calls without a name (messages.hpp) on one link, and their merging in a relay. Plain data, one owner, no
// threads. Calls that have avoided the log do not appear: between two messages numbers may be missing.
//
// Both ends of a link number signatures in the same way. The sender gives a new signature the next number, from 0 again
// after the last, and sends the signature with its first call. The receiver keeps the meaning of each number. Links
// keep their order, so no agreement is needed before a number is used again.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "control/messages.hpp"

namespace kolo::control {

/// The most signatures of a set that have a number on a link at once.
inline constexpr std::uint32_t kLinkSignatures = 256;
/// The most calls that one message has together.
inline constexpr std::uint64_t kLongestRepeat = 1 << 16;

/// Calls of one signature, one after another; or one on which ranks disagree.
struct Calls {
  std::shared_ptr<const core::Signature> signature;  ///< null: disputed
  std::uint64_t count = 0;
  std::vector<Declared::Variant> variants = {};
  std::int32_t last = -1;  ///< in the sequencer's queue: as the message said
};

/// Whether both are undisputed calls of the same signature.
inline bool are_alike(const Calls& a, const Calls& b) {
  return a.signature && b.signature && (a.signature == b.signature || *a.signature == *b.signature);
}

/// The sender's end of a link, for one set.
class SequenceSender {
 public:
  explicit SequenceSender(core::SetId set) { message_.set = set; }

  /// The number of the last call that was sent or added.
  [[nodiscard]] core::Round calls() const noexcept { return calls_; }
  void add(Calls calls);
  /// Adds a call. Returns its number.
  core::Round add(const std::shared_ptr<const core::Signature>& signature) {
    add(Calls{signature, 1});
    return calls_;
  }
  /// Whether there are calls to send.
  [[nodiscard]] bool has_news() const noexcept { return !message_.repeats.empty(); }
  /// The message with the calls to send.
  [[nodiscard]] SequenceGrown next_message();
  /// The next call follows this one. Not while there are calls to send.
  void go_on_from(core::Round call);

 private:
  [[nodiscard]] std::uint32_t number_of(const std::shared_ptr<const core::Signature>& signature, bool& is_new);

  core::Round calls_ = 0;
  SequenceGrown message_;
  std::vector<std::shared_ptr<const core::Signature>> signatures_;  ///< by number
  std::unordered_multimap<std::uint64_t, std::uint32_t> numbers_;   ///< by the signature's hash
  std::uint32_t last_ = 0;                                          ///< the number of the call before
  std::uint32_t oldest_ = 0;                                        ///< the number that is given to the next signature,
                                                                    ///< once all numbers are in use
};

/// The receiver's end.
class SequenceReceiver {
 public:
  /// The message's calls. Throws Error (transport) if it does not follow the last one, or has an unknown signature.
  [[nodiscard]] std::vector<Calls> receive(SequenceGrown&& message);
  /// The number of the last call received.
  [[nodiscard]] core::Round calls() const noexcept { return calls_; }

 private:
  core::Round calls_ = 0;
  std::vector<std::shared_ptr<const core::Signature>> signatures_;  ///< by number
};

/// Merges the calls of a relay's children in one set's sequence.
class SequenceMerger {
 public:
  /// `ranks`: of the set, below each child.
  SequenceMerger(core::SetId set, std::vector<std::vector<std::int32_t>> ranks);

  void hear(std::size_t child, SequenceGrown&& message);
  /// This child will send the calls up to this number, and is waited for up to there: a rank below it had made them
  /// when it joined.
  void expect(std::size_t child, core::Round calls);
  /// Moves the calls to `up()` that all children have made for which it waits: these children for all calls, the others
  /// only for what `expect` says.
  void merge(const std::vector<std::size_t>& speakers);
  [[nodiscard]] SequenceSender& up() noexcept { return up_; }
  /// The number of the last call that the child has made, of those that it gave to the log.
  [[nodiscard]] core::Round calls_of(std::size_t child) const { return children_[child].link.calls(); }

 private:
  struct Child {
    SequenceReceiver link;
    std::deque<Calls> queue;  ///< received, and not sent up:
    core::Round next = 1;     ///< the number of the first of them
    core::Round expected = 0;
    std::vector<std::int32_t> ranks;
    void pop(std::uint64_t count);
  };

  std::vector<Child> children_;
  SequenceSender up_;
};

}  // namespace kolo::control
