// SPDX-License-Identifier: Apache-2.0
//
// Random programs of messages whose ranks die, leave the job, and drop groups, while channels deliver when they like.
//
// The data of some sends comes after their calls, piece by piece.
//
// What a rank hears of the others apart from frames it reads from the job's log, at its own pace: that a group has been
// made (`on_set`), that all its members have dropped it (`on_set_gone`), that a rank has left (`on_departed`), that one
// has died (`close`). The rest is as the engine does it: a rank with nothing open takes no frames; a rank that leaves
// first waits until its frames are in their channels, but not for ever, and goes on to move what it has open; a rank
// that has died does nothing any more.
//
// The checker:
//   - what is received is whole, is what was sent, and fits the receive; nobody touches a buffer once its message is
//     done;
//   - messages of a pair, group and tag come in order, each once;
//   - when nothing moves any more, and nobody has died, what is still open waits for something that may come: there is
//     no receive with a message that fits it, none from a rank that has left, no message under way half, and no send
//     whose receiver has left, has dropped the group, or has had it;
//   - when a rank has died, nothing is open.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "data/p2p/message_sentences.hpp"
#include "network.hpp"
#include "tests/support/random.hpp"
#include "tests/support/schedules.hpp"

namespace kolo::p2p::departures {
namespace {

constexpr auto kSend = Message::Role::send;
constexpr auto kReceive = Message::Role::receive;
constexpr std::byte kUsedAgain{0xDD};
constexpr std::byte kNotThere{0xAA};
constexpr std::size_t kLongest = 30000;

/// Which bytes a message begins with.
struct Stamp {
  int source, to, tag, number;  ///< the how-manieth of that source, receiver, group and tag
  std::uint64_t group, bytes;
};
static_assert(std::has_unique_object_representations_v<Stamp>);

struct Operation {
  enum class Kind { message, drop, leave, die };
  Kind kind = Kind::message;
  std::uint64_t group = 0;  ///< 0: the world
  std::unique_ptr<Letter> letter;
  bool is_started = false;
  bool is_seen = false;          ///< done, and its buffer has been used for something else
  int number = -1;               ///< of the message that was received
  std::vector<std::byte> later;  ///< of a late send: its data
};

struct Entry {
  enum class Kind { made, gone, left, died };
  Kind kind = Kind::made;
  std::uint64_t which = 0;  ///< group or rank
};

class Job {
 public:
  explicit Job(std::uint64_t seed)
      : random_(kolo::testing::random_of(92, seed)), ranks_(2 + below(4)),
        network_({ranks_, static_cast<std::size_t>(1 + below(3)), 5000, below(2) == 0}), places_(ranks_) {
    network_.memory_fails = below(8) == 0;
    network_.permits_reading = below(4) > 0;
    for (Place& place : places_) place.node = below(2);
    make_groups();
    write_programs();
  }

  /// Empty: all is as promised.
  std::string run() {
    while (violation_.empty() && !all_ended()) turn(below(ranks_));
    settle();
    for (int rank = 0; rank < ranks_; ++rank) {
      if (is_up(rank)) network_[rank].expire(begin_ + std::chrono::seconds(2));
      for (Operation& operation : place(rank).program) {
        if (is_up(rank) && operation.is_started && operation.letter && !operation.letter->done() &&
            operation.letter->message.role == kReceive) {
          network_[rank].await(operation.letter->message);
        }
      }
      see(rank);
    }
    settle();
    for (int rank = 0; rank < ranks_; ++rank) {
      if (is_up(rank)) check_open(rank);
    }
    end_all();
    for (int rank = 0; rank < ranks_; ++rank) check_end(rank);
    return violation_;
  }

 private:
  struct Place {
    int node = 0;
    std::vector<Operation> program;
    std::size_t at = 0;
    std::size_t heard = 0;  ///< of the log
    int patience = 50;      ///< for what has to be sent before it leaves
    bool dead = false, left = false, closed = false;
  };

  int below(int n) { return static_cast<int>(kolo::testing::draw(random_, n)); }
  Place& place(int rank) { return places_[static_cast<std::size_t>(rank)]; }
  bool is_up(int rank) { return !place(rank).dead && !place(rank).closed; }
  bool is_member(std::uint64_t group, int rank) const {
    const auto& members = members_[group];
    return std::find(members.begin(), members.end(), rank) != members.end();
  }
  void expect(bool is_so, int rank, const Message& message, const std::string& otherwise) {
    if (is_so || !violation_.empty()) return;
    violation_ = "rank " + std::to_string(rank) + ", " + describe(message) + " (message " + std::to_string(message.id) +
                 ", group " + std::to_string(message.set) + "): " + otherwise;
  }

  // ---------------------------------------------------------------- programs

  void make_groups() {
    members_.resize(static_cast<std::size_t>(1 + below(4)));
    drops_.resize(members_.size());
    for (int rank = 0; rank < ranks_; ++rank) members_[0].push_back(rank);
    for (std::uint64_t group = 1; group < members_.size(); ++group) {
      for (const int rank : members_[0]) {
        if (below(2) == 0) members_[group].push_back(rank);
      }
      if (members_[group].empty()) members_[group].push_back(below(ranks_));
      log_.push_back({Entry::Kind::made, group});
    }
  }

  void add(int rank, std::uint64_t group, Message::Role role, int peer, int tag, std::size_t bytes) {
    Operation operation;
    operation.group = group;
    operation.letter = std::make_unique<Letter>(role, peer, tag, bytes);
    operation.letter->message.set = group;
    if (group != 0) operation.letter->message.members = &members_[group];
    place(rank).program.push_back(std::move(operation));
  }

  void write_programs() {
    std::vector<bool> exact;
    for (int rank = 0; rank < ranks_; ++rank) exact.push_back(below(2) == 0);
    const std::array<std::size_t, 5> sizes{sizeof(Stamp), 100, kWholeBytes, kWholeBytes + 1, kLongest};
    for (int source = 0; source < ranks_; ++source) {
      for (int i = 0; i < 8; ++i) {
        auto group = static_cast<std::uint64_t>(below(static_cast<int>(members_.size())));
        if (!is_member(group, source)) group = 0;
        const int to = members_[group][static_cast<std::size_t>(below(static_cast<int>(members_[group].size())))];
        const int tag = below(3);
        const int kind = below(8);  // some are not received, and some receives get nothing
        if (kind != 0) add(source, group, kSend, to, tag, sizes[static_cast<std::size_t>(below(5))]);
        const bool one = exact[static_cast<std::size_t>(to)];
        if (kind != 1) add(to, group, kReceive, one ? source : kAny, one ? tag : kAny, kLongest);
      }
    }
    for (Place& one : places_) std::shuffle(one.program.begin(), one.program.end(), random_);
    for (std::uint64_t group = 1; group < members_.size(); ++group) {
      for (const int rank : members_[group]) {
        if (below(8) != 0) add_drop(place(rank).program, group);
      }
    }
    for (Place& one : places_) {
      const int fate = below(8);
      if (fate < 2) one.program.resize(static_cast<std::size_t>(below(static_cast<int>(one.program.size()) + 1)));
      if (fate > 4) continue;
      one.program.emplace_back();
      one.program.back().kind = fate == 0 ? Operation::Kind::die : Operation::Kind::leave;
    }
  }

  /// After the last message of the group.
  static void add_drop(std::vector<Operation>& program, std::uint64_t group) {
    const auto last = std::find_if(program.rbegin(), program.rend(),
                                   [&](const Operation& one) { return one.letter && one.group == group; });
    Operation drop;
    drop.kind = Operation::Kind::drop;
    drop.group = group;
    program.insert(last.base(), std::move(drop));
  }

  // ---------------------------------------------------------------- what happens

  bool all_ended() {
    return std::all_of(places_.begin(), places_.end(),
                       [](const Place& one) { return one.dead || one.at == one.program.size(); });
  }

  void turn(int rank) {
    if (place(rank).dead) return;
    const int what = below(16);
    if (what < 3) {
      hear(rank);
    } else if (what < 7) {
      go_on(rank);
    } else if (what == 7 && !place(rank).program.empty() && below(2) == 0) {
      disturb(rank);
    } else if (what == 8 && !place(rank).program.empty()) {
      std::vector<Operation>& program = place(rank).program;
      provide(rank, program[static_cast<std::size_t>(below(static_cast<int>(program.size())))], false);
    } else {
      step(rank);
    }
    see(rank);
  }

  bool step(int rank) { return is_up(rank) && network_[rank].is_busy() && network_.step(rank); }

  bool hear(int rank) {
    Place& own = place(rank);
    if (!is_up(rank) || own.heard == log_.size()) return false;
    const Entry entry = log_[own.heard++];
    const int other = static_cast<int>(entry.which);
    switch (entry.kind) {
    case Entry::Kind::made:
      if (is_member(entry.which, rank)) network_[rank].on_set(entry.which);
      break;
    case Entry::Kind::gone:
      if (is_member(entry.which, rank)) network_[rank].on_set_gone(entry.which);
      break;
    case Entry::Kind::left:
      network_[rank].on_departed(other,
                                 place(other).node == own.node ? base::Time::min() : begin_ + std::chrono::seconds(1));
      break;
    case Entry::Kind::died:
      network_[rank].close(Status(ErrorCode::rank_lost, "a rank has died"));
      own.closed = true;
      break;
    }
    return true;
  }

  void go_on(int rank) {
    Place& own = place(rank);
    if (own.at == own.program.size()) return;
    Operation& next = own.program[own.at];
    if (next.group > own.heard) return;  // the group is not made yet: log_[group - 1] says so
    switch (next.kind) {
    case Operation::Kind::message:
      start(rank, next);
      break;
    case Operation::Kind::drop:
      if (++drops_[next.group] == members_[next.group].size()) log_.push_back({Entry::Kind::gone, next.group});
      break;
    case Operation::Kind::leave:
      if (is_up(rank) && network_[rank].has_unsent() && --own.patience > 0) return;
      own.left = true;
      log_.push_back({Entry::Kind::left, static_cast<std::uint64_t>(rank)});
      break;
    case Operation::Kind::die:
      own.dead = true;
      network_.kill(rank);
      log_.push_back({Entry::Kind::died, static_cast<std::uint64_t>(rank)});
      break;
    }
    ++own.at;
  }

  void start(int rank, Operation& operation) {
    Letter& letter = *operation.letter;
    const Message& message = letter.message;
    if (message.role == kSend) {
      const int number = numbers_[{rank, message.peer, operation.group, message.tag}]++;
      const Stamp stamp{rank, message.peer, message.tag, number, operation.group, message.bytes};
      std::fill(letter.memory.begin(), letter.memory.end(), static_cast<std::byte>(number));
      std::memcpy(letter.memory.data(), &stamp, sizeof stamp);
    }
    operation.is_started = true;
    if (message.role == kSend && below(3) == 0) {
      letter.message.is_late = true;
      operation.later = letter.memory;
      std::fill(letter.memory.begin(), letter.memory.end(), kNotThere);
    }
    network_[rank].start(letter.message);
  }

  /// More of a late send's data, or as much as before, or all the rest; whether there was any.
  bool provide(int rank, Operation& operation, bool all) {
    if (!is_up(rank) || !operation.is_started || operation.later.empty()) return false;
    Message& send = operation.letter->message;
    if (send.done() || send.there == send.bytes) return false;
    const auto left = static_cast<int>(send.bytes - send.there);
    const auto more = static_cast<std::size_t>(all ? left : below(3) == 0 ? 0 : 1 + below(left));
    std::copy_n(operation.later.begin() + static_cast<std::ptrdiff_t>(send.there), more,
                operation.letter->memory.begin() + static_cast<std::ptrdiff_t>(send.there));
    network_[rank].provide(send, send.there + more);
    return true;
  }

  /// Somebody cancels a message, or its handle is destroyed.
  void disturb(int rank) {
    Place& own = place(rank);
    Operation& one = own.program[static_cast<std::size_t>(below(static_cast<int>(own.program.size())))];
    if (!one.is_started || one.letter->message.done()) return;
    if (one.letter->message.role == kReceive && below(2) == 0) {
      static_cast<void>(network_[rank].cancel(one.letter->message));
    } else {
      network_[rank].give_up(one.letter->message, Status(ErrorCode::expired, "given up"));
    }
  }

  /// Until all have heard everything, and nobody moves.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < ranks_; ++rank) {
        moved |= hear(rank) || step(rank);
        for (Operation& one : place(rank).program) moved |= provide(rank, one, true);
        see(rank);
      }
    }
  }

  void end_all() {
    for (int rank = 0; rank < ranks_; ++rank) {
      for (Operation& one : place(rank).program) {
        if (!is_up(rank) || !one.is_started) continue;
        network_[rank].give_up(one.letter->message, Status(ErrorCode::expired, "given up"));
      }
      see(rank);
    }
    settle();
  }

  // ---------------------------------------------------------------- the checker

  /// Looks at what is done, and uses its memory again.
  void see(int rank) {
    if (place(rank).dead) return;
    for (Operation& one : place(rank).program) {
      if (!one.is_started || one.is_seen || !one.letter->message.done()) continue;
      one.is_seen = true;
      if (one.letter->message.role == kReceive && one.letter->message.status.ok()) check_received(rank, one);
      std::fill(one.letter->memory.begin(), one.letter->memory.end(), kUsedAgain);
    }
  }

  void check_received(int rank, Operation& operation) {
    const Message& message = operation.letter->message;
    const std::vector<std::byte>& memory = operation.letter->memory;
    Stamp stamp{};
    std::memcpy(&stamp, memory.data(), sizeof stamp);
    expect(stamp.source == message.source && stamp.to == rank && stamp.group == operation.group &&
               stamp.tag == message.received_tag && stamp.bytes == message.received_bytes,
           rank, message, "it has got something else than was sent to it");
    expect((message.peer == kAny || message.peer == stamp.source) && (message.tag == kAny || message.tag == stamp.tag),
           rank, message, "it has got a message that does not fit it");
    expect(std::all_of(memory.begin() + sizeof stamp, memory.begin() + static_cast<std::ptrdiff_t>(stamp.bytes),
                       [&](std::byte byte) { return byte == static_cast<std::byte>(stamp.number); }),
           rank, message, "it is not whole");
    operation.number = stamp.number;
  }

  bool is_taken(int sender, const Message& send) {
    const std::vector<Operation>& theirs = place(send.peer).program;
    return std::any_of(theirs.begin(), theirs.end(), [&](const Operation& one) {
      return one.is_started && one.letter->message.role == kReceive && one.letter->message.source == sender &&
             one.letter->message.id == send.id;
    });
  }

  /// Where nobody has died, and nothing moves.
  void check_open(int rank) {
    for (const Operation& one : place(rank).program) {
      if (!one.is_started || one.letter->message.done()) continue;
      const Message& message = one.letter->message;
      if (place(rank).left) continue;  // what it has left open ends with its engine
      expect(message.state != Message::State::moving, rank, message, "it stays half done for ever");
      if (message.role == kSend) {
        check_open_send(rank, message);
      } else {
        check_open_receive(rank, message);
      }
    }
  }

  void check_open_send(int rank, const Message& send) {
    expect(!place(send.peer).left, rank, send, "its receiver has left");
    if (!network_[send.peer].is_busy()) return;  // who takes no frames
    expect(send.state == Message::State::announced, rank, send, "there is room for it");
    expect(!is_taken(rank, send), rank, send, "its receiver has had it");
    expect(send.set == 0 || drops_[send.set] < members_[send.set].size(), rank, send, "the group is gone");
  }

  void check_open_receive(int rank, const Message& receive) {
    if (receive.peer != kAny) {
      expect(!place(receive.peer).left, rank, receive, "its sender has left");
    } else {
      const std::vector<int>& members = members_[receive.set];
      expect(members.size() == 1 || std::any_of(members.begin(), members.end(),
                                                [&](int member) { return member != rank && !place(member).left; }),
             rank, receive, "all who could send have left");
    }
    for (const int source : members_[receive.set]) {
      if (receive.peer != kAny && receive.peer != source) continue;
      for (const Operation& one : place(source).program) {
        if (!one.is_started || one.letter->message.role != kSend) continue;
        const Message& send = one.letter->message;
        if (send.peer != rank || send.set != receive.set || (receive.tag != kAny && receive.tag != send.tag)) continue;
        if (send.done() && !send.status.ok()) continue;
        expect(is_taken(source, send), rank, receive, "there is message " + std::to_string(send.id) + " for it");
      }
    }
  }

  void check_end(int rank) {
    if (place(rank).dead) return;
    std::map<std::tuple<int, std::uint64_t, int>, int> last;
    for (const Operation& one : place(rank).program) {
      if (!one.is_started) continue;
      const Message& message = one.letter->message;
      expect(message.done(), rank, message, "it has no end");
      if (message.role != kReceive) continue;
      expect(std::all_of(one.letter->memory.begin(), one.letter->memory.end(),
                         [](std::byte byte) { return byte == kUsedAgain; }),
             rank, message, "its buffer was written when it was done");
      if (!message.status.ok()) continue;
      const auto [before, is_first] = last.try_emplace({message.source, one.group, message.received_tag}, one.number);
      expect(is_first || before->second < one.number, rank, message, "messages do not come in order");
      before->second = one.number;
    }
    if (violation_.empty() && !network_[rank].open().empty()) violation_ = "a rank has messages that nobody made";
    if (violation_.empty() && network_.permits() > 0) violation_ = "memory may still be read";
  }

  kolo::testing::Random random_;
  const int ranks_;
  const base::Time begin_ = base::now();
  std::vector<std::vector<int>> members_;  ///< by group
  std::vector<std::size_t> drops_;         ///< how many members have dropped it
  std::vector<Entry> log_;
  std::map<std::tuple<int, int, std::uint64_t, int>, int> numbers_;
  Network network_;
  std::vector<Place> places_;
  std::string violation_;
};

TEST(RandomDepartures, LeaveNothingOpenThatCannotEnd) {
  const kolo::testing::Schedules seeds(1, 1500);
  for (std::uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    ASSERT_EQ(Job(seed).run(), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace kolo::p2p::departures
