// SPDX-License-Identifier: Apache-2.0
#include "launch/exchange.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/fields.hpp"
#include "base/system_error.hpp"
#include "base/text.hpp"
#include "bootstrap/bootstrap.hpp"
#include "core/signature.hpp"
#include "launch/connection.hpp"
#include "launch/reception.hpp"
#include "launch/search.hpp"

namespace kolo::launch {
namespace {

/// A rank sends a few hundred bytes in a step.
constexpr std::size_t kLongestContribution = std::size_t{16} << 20;
/// How long rank 0 waits until its last message has been sent.
constexpr std::chrono::seconds kFarewell{1};
/// How long rank 0 checks whether the process at its address is a second rank 0 of this job, and how long it then waits
/// for the reason of the failure.
constexpr std::chrono::seconds kRivalPatience{1};
constexpr std::chrono::seconds kRivalsWord{3};

std::string seconds_text(base::Duration duration) { return base::spell(base::to_seconds(duration), 4) + " s"; }

void check_watched(const Directions& directions) {
  const WatchedStore* const watched = directions.watched();
  const std::string why = watched == nullptr ? std::string() : watched->why_over();
  if (!why.empty()) throw Error(ErrorCode::transport, "this start cannot succeed any more: " + why);
}

/// Wakes up for that.
void add_watched(const Directions& directions, std::vector<pollfd>& sockets) {
  if (const WatchedStore* const watched = directions.watched()) sockets.push_back({watched->fd(), POLLIN, 0});
}

[[noreturn]] void throw_failure(const std::string& body) {
  const Status why = base::split_status(body);
  if (why.ok()) base::throw_unreadable();
  throw Error(why);
}

// ---------------------------------------------------------------- rank 0

/// A rank that has come.
struct Member {
  Connection connection;
  base::Hello hello;
  std::string name;                                   ///< "process 12 at 10.0.0.2:4711"
  std::optional<std::string> brought = std::nullopt;  ///< for the current step
};

/// Another rank 0 of this job may listen already. A Hello tells it of this one, and it tells all ranks what is wrong.
void challenge(const Place& place, const NetworkRoute& rival) {
  Search search(place);
  std::optional<Connection> other = search.try_all(rival, base::now() + kRivalPatience);
  if (!other) return;
  const base::Time deadline = base::now() + kRivalsWord;
  while (other->lost().empty() && base::now() < deadline) {
    other->pump();
    while (std::optional<Frame> frame = other->take()) {
      if (frame->type == FrameType::failure) throw_failure(frame->body);
    }
    std::vector<pollfd> sockets{{other->fd(), other->events(), 0}};
    if (other->lost().empty()) wait_until(sockets, deadline);
  }
  throw Error(ErrorCode::transport,
              "rank 0 came twice: another process of this job is rank 0, too; give every process a rank of its own (" +
                  place.rank_name + ")");
}

Listening begin_to_listen(const Place& place, Directions& directions) {
  Listening listening = directions.open();
  challenge(place, listening.rival);
  if (listening.sockets.empty()) throw Error(ErrorCode::transport, listening.wrong);
  return listening;
}

class Root final : public Exchange {
 public:
  Root(Place place, std::unique_ptr<Directions> directions)
      : place_(std::move(place)), directions_(std::move(directions)),
        reception_(begin_to_listen(place_, *directions_),
                   static_cast<std::size_t>(place_.size) + Reception::kStrangers),
        members_(static_cast<std::size_t>(place_.size)) {}

  void check() const override { check_watched(*directions_); }

  [[nodiscard]] std::vector<std::string> exchange(std::string_view label, const std::string& mine,
                                                  base::Duration patience, base::Time begun) override {
    if (failure_) throw Error(*failure_);
    try {
      return run(label, mine, patience, begun);
    } catch (const Error& error) {
      give_up(error.status());
      throw;
    }
  }

 private:
  std::vector<std::string> run(std::string_view label, const std::string& mine, base::Duration patience,
                               base::Time begun) {
    ++step_;
    for (std::optional<Member>& member : members_) {
      if (member) member->connection.send({FrameType::waiting, step_, {}});
    }
    while (true) {
      const std::vector<int> missing = serve(label);
      if (missing.empty()) break;
      check();
      if (base::now() >= begun + patience) {
        throw Error(ErrorCode::transport,
                    bootstrap::missing_ranks(missing, label, patience) + describe_strangers() + remark());
      }
      wait(begun + patience);
    }
    reception_.close();
    std::vector<std::string> all{mine};
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      all.push_back(std::move(*std::exchange(members_[rank]->brought, std::nullopt)));
    }
    // (One that came at its last moment gets its result all the same.)
    tell_all({FrameType::result, step_, base::join_fields(all)},
             std::max<base::Time>(begun + patience, base::now() + kFarewell));
    return all;
  }

  /// Receives from all ranks. Returns the ranks that have not contributed.
  std::vector<int> serve(std::string_view label) {
    for (std::optional<Member>& member : members_) {
      if (member) hear(*member, label);
    }
    std::string wrong;
    for (Newcomer& newcomer : reception_.serve()) receive(std::move(newcomer), label, wrong);
    if (!wrong.empty()) throw Error(ErrorCode::transport, wrong);
    std::vector<int> missing;
    for (int rank = 1; rank < place_.size; ++rank) {
      const std::optional<Member>& member = members_[static_cast<std::size_t>(rank)];
      if (!member || !member->brought) missing.push_back(rank);
    }
    return missing;
  }

  void hear(Member& member, std::string_view label) {
    member.connection.pump();
    while (std::optional<Frame> frame = member.connection.take()) {
      if (frame->type != FrameType::contribution || frame->step != step_ || member.brought) {
        throw Error(ErrorCode::transport, "rank " + std::to_string(member.hello.rank) +
                                              " is in another step of the start than rank 0; all ranks must run the "
                                              "same release of Kolo and make their contexts in the same order");
      }
      member.brought = std::move(frame->body);
    }
    if (!member.brought && !member.connection.lost().empty()) {
      throw Error(ErrorCode::transport, "rank " + std::to_string(member.hello.rank) + " (" + member.name +
                                            ") ended, or left the start, before the step \"" + std::string(label) +
                                            "\"");
    }
  }

  /// Sets `wrong` for the first rank that cannot be in this job; all ranks then get the reason.
  void receive(Newcomer newcomer, std::string_view label, std::string& wrong) {
    const base::Hello hello = newcomer.hello;
    const std::string name = "process " + std::to_string(hello.number) + " at " + newcomer.address;
    Session session{newcomer.session, true, "rank " + std::to_string(hello.rank) + " (" + name + ")"};
    Member member{Connection(std::move(newcomer.socket), std::move(session), kLongestContribution), hello, name};
    if (wrong.empty()) wrong = judge(member);
    if (!wrong.empty()) {
      refused_.push_back(std::move(member));
      return;
    }
    Member& kept = members_[static_cast<std::size_t>(hello.rank)].emplace(std::move(member));
    kept.connection.send({FrameType::waiting, step_, {}});
    hear(kept, label);
  }

  /// Empty, or why the rank cannot be in this job.
  [[nodiscard]] std::string judge(const Member& member) const {
    const base::Hello& hello = member.hello;
    const std::string rank = "rank " + std::to_string(hello.rank);
    if (hello.rank == 0) {
      return rank + " came twice: process " + std::to_string(::getpid()) + ", which listens, and " + member.name +
             "; give every process a rank of its own (" + place_.rank_name + "), and every job a place of its own";
    }
    if (hello.size != place_.size) {
      return rank + " (" + member.name + ") was told that the job has " + std::to_string(hello.size) +
             " ranks, and rank 0 that it has " + std::to_string(place_.size) + ": give all ranks the same size (" +
             place_.size_name + ")";
    }
    if (hello.rank < 0 || hello.rank >= place_.size) {
      return rank + " (" + member.name + ") is none of this job's: its ranks are 0 to " +
             std::to_string(place_.size - 1) + " (" + place_.rank_name + ")";
    }
    const std::optional<Member>& there = members_[static_cast<std::size_t>(hello.rank)];
    if (!there) return {};
    return rank + " came twice: " + there->name + " and " + member.name + "; give every process a rank of its own (" +
           place_.rank_name + ")";
  }

  /// The directions' possible reason why others are missing.
  [[nodiscard]] std::string remark() const {
    try {
      return directions_->remark();
    } catch (const Error&) {
      return {};  // the error is that others are missing
    }
  }

  [[nodiscard]] std::string describe_strangers() const {
    if (reception_.turned_away() == 0) return {};
    return "; " + std::to_string(reception_.turned_away()) +
           (reception_.turned_away() == 1 ? " connection was refused: " : " connections were refused, the last: ") +
           reception_.last_turned_away();
  }

  void wait(base::Time deadline) {
    std::vector<pollfd> sockets;
    reception_.add_sockets(sockets);
    for (const std::optional<Member>& member : members_) {
      if (member && member->connection.lost().empty()) {
        sockets.push_back({member->connection.fd(), member->connection.events(), 0});
      }
    }
    add_watched(*directions_, sockets);
    wait_until(sockets, deadline);
  }

  /// Sends the frame to all, and waits until the system has taken it. Ranks that are gone are skipped.
  void tell_all(const Frame& frame, base::Time deadline) {
    std::vector<Connection*> open;
    for (std::optional<Member>& member : members_) {
      if (member) open.push_back(&member->connection);
    }
    for (Member& member : refused_) open.push_back(&member.connection);
    const EncodedFrame encoded(frame);
    for (Connection* one : open) one->send(encoded);
    while (true) {
      std::vector<pollfd> sockets;
      for (const Connection* one : open) {
        if (one->lost().empty() && !one->flushed()) sockets.push_back({one->fd(), POLLOUT, 0});
      }
      if (sockets.empty() || base::now() >= deadline) return;
      wait_until(sockets, deadline);
      for (Connection* one : open) {
        if (!one->flushed()) one->pump();
      }
    }
  }

  void give_up(const Status& why) {
    if (failure_) return;
    failure_ = why;
    tell_all({FrameType::failure, step_, base::join_status(why)}, base::now() + kFarewell);
    reception_.close();
    // Reads what the ranks have sent: closing a socket with unread data would discard the last message.
    for (std::optional<Member>& member : members_) {
      if (member) ::shutdown(member->connection.fd(), SHUT_WR);
    }
    for (Member& member : refused_) ::shutdown(member.connection.fd(), SHUT_WR);
  }

  const Place place_;
  const std::unique_ptr<Directions> directions_;
  Reception reception_;
  std::vector<std::optional<Member>> members_;  // by rank; rank 0 itself is none
  std::vector<Member> refused_;
  std::uint32_t step_ = 0;
  std::optional<Status> failure_;
};

// ---------------------------------------------------------------- all others

class Leaf final : public Exchange {
 public:
  Leaf(Place place, std::unique_ptr<Directions> directions)
      : place_(std::move(place)), directions_(std::move(directions)) {}

  void check() const override { check_watched(*directions_); }

  [[nodiscard]] std::vector<std::string> exchange(std::string_view label, const std::string& mine,
                                                  base::Duration patience, base::Time begun) override {
    if (failure_) throw Error(*failure_);
    try {
      if (!root_) find_root(patience, begun);
      return run(label, mine, patience, begun);
    } catch (const Error& error) {
      failure_ = error.status();
      root_.reset();
      throw;
    }
  }

 private:
  void find_root(base::Duration patience, base::Time begun) {
    Search search(place_);
    root_ = search.run(*directions_, begun + patience);
    if (root_) return;
    throw Error(ErrorCode::transport, "rank " + std::to_string(place_.rank) + " did not find rank 0 by " +
                                          directions_->describe() + " within " + seconds_text(patience) +
                                          " (KOLO_CONNECT_TIMEOUT_S): " + search.said() +
                                          "; rank 0 has not started yet, has ended, or cannot be reached from here");
  }

  std::vector<std::string> run(std::string_view label, const std::string& mine, base::Duration patience,
                               base::Time begun) {
    ++step_;
    base::Time deadline = begun + patience;
    root_->send({FrameType::contribution, step_, mine});
    while (true) {
      root_->pump();
      while (std::optional<Frame> frame = root_->take()) {
        if (frame->type == FrameType::failure) throw_failure(frame->body);
        if (frame->type == FrameType::waiting && frame->step == step_) {
          deadline = base::now() + bootstrap::after_waiting(patience);  // rank 0 will name the missing ranks
        }
        if (frame->type == FrameType::result && frame->step == step_) return read_result(frame->body);
      }
      if (!root_->lost().empty()) {
        throw Error(ErrorCode::transport, "rank 0 ended, or left the start, before the step \"" + std::string(label) +
                                              "\" was over (its connection: " + root_->lost() + ")");
      }
      if (base::now() >= deadline) throw Error(ErrorCode::transport, bootstrap::missing_ranks({0}, label, patience));
      check();
      std::vector<pollfd> sockets{{root_->fd(), root_->events(), 0}};
      add_watched(*directions_, sockets);
      wait_until(sockets, deadline);
    }
  }

  [[nodiscard]] std::vector<std::string> read_result(const std::string& body) const {
    std::vector<std::string> all = base::split_fields(body);
    if (all.size() != static_cast<std::size_t>(place_.size)) {
      throw Error(ErrorCode::transport, "rank 0 sent the words of " + std::to_string(all.size()) + " ranks, not of " +
                                            std::to_string(place_.size));
    }
    return all;
  }

  const Place place_;
  const std::unique_ptr<Directions> directions_;
  std::optional<Connection> root_;
  std::uint32_t step_ = 0;
  std::optional<Status> failure_;
};

class Alone final : public Exchange {
 public:
  [[nodiscard]] std::vector<std::string> exchange(std::string_view /*label*/, const std::string& mine,
                                                  base::Duration /*patience*/, base::Time /*begun*/) override {
    return {mine};
  }
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(const Place& place, std::unique_ptr<Directions> directions) {
  KOLO_CHECK(place.rank >= 0 && place.rank < place.size) << "rank " << place.rank << " of " << place.size;
  if (place.size == 1) return std::make_unique<Alone>();
  if (place.rank == 0) return std::make_unique<Root>(place, std::move(directions));
  return std::make_unique<Leaf>(place, std::move(directions));
}

}  // namespace kolo::launch
