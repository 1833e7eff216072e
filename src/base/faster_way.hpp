// SPDX-License-Identifier: Apache-2.0
//
// Which of two ways to do the same is the faster one, found out by doing it.
//
// What is faster may depend on what no program is told: how far two CPUs lie from each other, which a virtual machine
// hides and changes while it runs. So both ways are timed as they are used. The one that is known to be faster is
// taken; now and then the other one is *tried*, a few times in a row, then the usual one as often, and the two are
// compared. (What the usual one cost before the tries does not count: it may have been a bad moment that led to them.)
// The other one is tried seldom where it has lost clearly, and soon where the usual way has begun to take longer than
// it did when the two were compared.
//
// Costs are compared by their medians of three, so that a call that was interrupted says nothing. The first tries of a
// row do not count: where calls follow each other without a pause their cost depends on the calls before. (Broadcasts
// of 16 KiB seemed cheaper whichever way they had just changed to, and changed every 20 calls.)
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace kolo::base {

/// One kind of work of about one size. One thread at a time.
class FasterWay {
 public:
  enum class Way : std::uint8_t { first, second };

  /// `usual`: what is taken until the other one has been tried.
  explicit FasterWay(Way usual) noexcept : usual_(usual) {}

  /// Whether the next one is part of a comparison.
  [[nodiscard]] bool is_comparing() const noexcept { return tries_left_ > 0 || checks_left_ > 0; }
  /// Which way the next one goes.
  [[nodiscard]] Way next() const noexcept { return tries_left_ > 0 ? other() : usual_; }
  /// One has been done this way; `cost` is in any unit that is the same for both, such as nanoseconds for a byte. Those
  /// that were begun before a change of mind may be told of after it.
  void note(Way way, double cost) noexcept {
    Costs& costs = costs_[static_cast<std::size_t>(way)];
    costs.add(cost);
    if (way != usual_) {
      if (tries_left_ > 0 && --tries_left_ == 0) checks_left_ = kUncounted + kTries;
      return;
    }
    if (tries_left_ > 0) return;  // it was begun before them
    if (checks_left_ > 0) {
      if (--checks_left_ == 0) compare();
      return;
    }
    ++since_;
    if (costs.count < kTries) return;
    const bool has_slowed = since_ >= pause_ / kPartOfPause && costs.median() > kSlowed * compared_;
    if (since_ >= pause_ || has_slowed) begin_tries();
  }

 private:
  static constexpr int kTries = 3;
  static constexpr int kUncounted = 3;  ///< before them
  /// How many are done the usual way between two rows of tries: twice as many after each that lost, or eight times as
  /// many where it lost by half.
  static constexpr std::int64_t kLeastPause = 16;
  static constexpr std::int64_t kMostPause = 1024;
  /// Where the usual way has slowed, a part of that pause is enough.
  static constexpr std::int64_t kPartOfPause = 4;
  /// The usual way has slowed when it costs so many times what the better one did when the two were compared.
  static constexpr double kSlowed = 1.5;
  /// The other way becomes the usual one when it costs less than this part of the usual one's cost.
  static constexpr double kGain = 0.92;

  struct Costs {
    std::array<double, kTries> last{};
    int count = 0;  // that were noted, kTries at most
    int at = 0;

    void add(double cost) noexcept {
      last[static_cast<std::size_t>(at)] = cost;
      at = (at + 1) % kTries;
      count = std::min(count + 1, kTries);
    }
    [[nodiscard]] double median() const noexcept {
      return std::max(std::min(last[0], last[1]), std::min(std::max(last[0], last[1]), last[2]));
    }
  };

  [[nodiscard]] Way other() const noexcept { return usual_ == Way::first ? Way::second : Way::first; }
  void begin_tries() noexcept { tries_left_ = kUncounted + kTries; }
  /// After a row of tries, and as many of the usual way.
  void compare() noexcept {
    const double usual = costs_[static_cast<std::size_t>(usual_)].median();
    const double tried = costs_[static_cast<std::size_t>(other())].median();
    if (tried < kGain * usual) {
      usual_ = other();
      pause_ = kLeastPause;
    } else {
      pause_ = std::clamp(pause_ * (tried > 2 * usual ? 8 : 2), kLeastPause, kMostPause);
    }
    compared_ = std::min(tried, usual);
    since_ = 0;
  }

  Way usual_;
  int tries_left_ = 0;           // of the other way
  int checks_left_ = 0;          // of the usual one, behind them
  std::int64_t since_ = 0;       // done the usual way since the last tries
  std::int64_t pause_ = kTries;  // until the first tries
  double compared_ = 0;          // what the usual way cost when the two were compared
  std::array<Costs, 2> costs_;
};

}  // namespace kolo::base
