// SPDX-License-Identifier: Apache-2.0
//
// Sequences of calls without a name (messages.hpp), as they pass over one link and meet in a relay. Plain data, one
// owner, no threads. Calls that have avoided the log are passed over: between two messages numbers may be missing.
//
// A link's two ends number signatures alike. The sender gives a new signature the next number, round and round, and
// says with its first call what the number means; the receiver has kept what the numbers before mean. Links keep their
// order, so nothing else is needed, and nobody has to know when a number may be given again.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "control/messages.hpp"

namespace kolo::control {

/// So many signatures of a set have a number on a link at once.
inline constexpr std::uint32_t kLinkSignatures = 256;
/// So many calls stand together in a message at most.
inline constexpr std::uint64_t kLongestRepeat = 1 << 16;

/// Calls of one signature, one after another; or one on which ranks disagree.
struct Calls {
  std::shared_ptr<const core::Signature> signature;  ///< null: disputed
  std::uint64_t count = 0;
  std::vector<Declared::Variant> variants = {};
};

/// Whether both are undisputed calls of the same signature.
inline bool are_alike(const Calls& a, const Calls& b) {
  return a.signature && b.signature && (a.signature == b.signature || *a.signature == *b.signature);
}

/// The sender's end of a link, for one set.
class SequenceSender {
 public:
  explicit SequenceSender(core::SetId set) { message_.set = set; }

  /// The number of the last call that was said or is about to be said.
  [[nodiscard]] core::Round calls() const noexcept { return calls_; }
  void add(Calls calls);
  /// One more call; its number.
  core::Round add(const std::shared_ptr<const core::Signature>& signature) {
    add(Calls{signature, 1});
    return calls_;
  }
  /// Whether there is something to say.
  [[nodiscard]] bool has_news() const noexcept { return !message_.repeats.empty(); }
  /// What there is to say.
  [[nodiscard]] SequenceGrown take();
  /// The next call follows this one. Not while there is something to say.
  void go_on_from(core::Round call);

 private:
  [[nodiscard]] std::uint32_t number_of(const std::shared_ptr<const core::Signature>& signature, bool& is_new);

  core::Round calls_ = 0;
  SequenceGrown message_;
  std::vector<std::shared_ptr<const core::Signature>> signatures_;  ///< by number
  std::unordered_multimap<std::uint64_t, std::uint32_t> numbers_;   ///< by the signature's hash
  std::uint32_t last_ = 0;                                          ///< the number of the call before
  std::uint32_t oldest_ = 0;                                        ///< the number that is given next, once all are
};

/// The receiver's end.
class SequenceReceiver {
 public:
  /// What the message says. Throws Error (transport): it does not follow the last one, or means nothing.
  [[nodiscard]] std::vector<Calls> take(SequenceGrown&& message);
  /// The number of the last call that was heard of.
  [[nodiscard]] core::Round calls() const noexcept { return calls_; }

 private:
  core::Round calls_ = 0;
  std::vector<std::shared_ptr<const core::Signature>> signatures_;  ///< by number
};

/// What the children of a relay have said of one set's sequence.
class SequenceMerger {
 public:
  /// `ranks`: of the set, below each child.
  SequenceMerger(core::SetId set, std::vector<std::vector<std::int32_t>> ranks);

  void hear(std::size_t child, SequenceGrown&& message);
  /// This child must say the calls up to this number, whether it is waited for or not: a rank below it had made them
  /// when it joined.
  void expect(std::size_t child, core::Round calls);
  /// Passes on what all have said that are waited for, to `up()`: these children for whatever comes, all others for
  /// what is expected of them.
  void merge(const std::vector<std::size_t>& speakers);
  [[nodiscard]] SequenceSender& up() noexcept { return up_; }
  /// The number of the last call that the child has made, of those that it gave to the log.
  [[nodiscard]] core::Round calls_of(std::size_t child) const { return children_[child].link.calls(); }

 private:
  struct Child {
    SequenceReceiver link;
    std::deque<Calls> queue;  ///< said, and not passed on:
    core::Round next = 1;     ///< the number of the first of them
    core::Round expected = 0;
    std::vector<std::int32_t> ranks;
    void pop(std::uint64_t count);
  };

  std::vector<Child> children_;
  SequenceSender up_;
};

}  // namespace kolo::control
