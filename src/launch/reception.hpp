// SPDX-License-Identifier: Apache-2.0
//
// Accepts connections to rank 0 while the ranks meet. A connection is a *stranger* until it has proven that it knows
// the job's key (handshake.hpp).
//
// The cost of strangers is bounded. Each takes one descriptor and 136 bytes, for kPatience at most, and there are never
// more than `most` of them, or more than the system has descriptors for. When another one comes, one is closed: any of
// those from the address with the most strangers. (Closing the oldest would be wrong: a fast attacker could push out
// every rank before its answer has come. A rank needs one round trip, and connects again if it was closed.) After
// `close`, when all ranks are here, no connection is accepted.
#pragma once

#include <poll.h>

#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/handshake.hpp"
#include "base/unique_fd.hpp"
#include "launch/directions.hpp"

namespace kolo::launch {

/// A connection that has proven the key.
struct Newcomer {
  base::Hello hello;
  base::Word session{};  ///< the key of its frames
  base::UniqueFd socket;
  std::string address;  ///< "10.0.0.2:40404"
};

/// One thread at a time.
class Reception {
 public:
  /// Strangers beyond the number of ranks that may come at once.
  static constexpr std::size_t kStrangers = 128;

  Reception(Listening listening, std::size_t most) : listening_(std::move(listening)), most_(most) {}

  /// Adds what to wait for.
  void add_sockets(std::vector<pollfd>& sockets) const;
  /// Serves all strangers; never blocks. Throws Error (transport) if the system has no more descriptors although there
  /// is no stranger.
  [[nodiscard]] std::vector<Newcomer> serve();
  /// Closes all strangers, and accepts no more.
  void close() noexcept;

  [[nodiscard]] std::size_t turned_away() const noexcept { return turned_away_; }
  /// The last stranger that was closed because of what it sent; else the last that was closed: "10.0.0.9:1234 does not
  /// speak Kolo's protocol".
  [[nodiscard]] const std::string& last_turned_away() const noexcept { return last_turned_away_; }

 private:
  struct Stranger {
    base::UniqueFd socket;
    std::string address;
    std::string host;  // of that
    base::Time since;
    base::Word greeted{};
    base::HelloBytes hello{};
    std::size_t received = 0;
  };
  enum class Progress { goes_on, goes_away, is_known };

  void let_in(int listener);
  void make_room();
  [[nodiscard]] Progress serve(Stranger& stranger, std::vector<Newcomer>& known);
  /// `wrong`: because of what it has sent.
  void turn_away(const Stranger& stranger, const std::string& why, bool wrong = false);

  Listening listening_;
  const std::size_t most_;
  std::list<Stranger> strangers_;
  std::size_t turned_away_ = 0;
  std::string last_turned_away_;
  bool somebody_spoke_ = false;
};

}  // namespace kolo::launch
