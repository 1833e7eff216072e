// SPDX-License-Identifier: Apache-2.0
#include "launch/exchange.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/fields.hpp"
#include "base/system_error.hpp"
#include "bootstrap/bootstrap.hpp"
#include "core/signature.hpp"
#include "launch/connection.hpp"
#include "launch/reception.hpp"

namespace kolo::launch {
namespace {

/// A rank says a few hundred bytes in a step.
constexpr std::size_t kLongestContribution = std::size_t{16} << 20;
constexpr std::size_t kLongestResult = std::size_t{1} << 30;
/// How long rank 0 stays to see that its word on a failure is sent.
constexpr std::chrono::seconds kFarewell{1};

std::string seconds_text(base::Duration duration) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.4g s", base::to_seconds(duration));
  return text.data();
}

std::string encode_failure(const Status& status) {
  return base::join_fields({std::to_string(static_cast<int>(status.code())), status.message()});
}

Error decode_failure(const std::string& body) {
  const std::vector<std::string> fields = base::split_fields(body);
  int code = static_cast<int>(ErrorCode::transport);
  if (fields.size() == 2) std::from_chars(fields[0].data(), fields[0].data() + fields[0].size(), code);
  return Error(static_cast<ErrorCode>(code), fields.size() == 2 ? fields[1] : "rank 0 ended the start");
}

// ---------------------------------------------------------------- rank 0

/// A rank that has come.
struct Member {
  Connection connection;
  Hello hello;
  std::string address;
  std::optional<std::string> brought = std::nullopt;  ///< for the step at hand
};

std::string name_of(const Member& member) {
  return "process " + std::to_string(member.hello.process) + " at " + member.address;
}

class Root final : public Exchange {
 public:
  Root(Place place, std::unique_ptr<Directions> directions)
      : place_(std::move(place)), directions_(std::move(directions)),
        reception_(directions_->open(), static_cast<std::size_t>(place_.size) + Reception::kStrangers),
        members_(static_cast<std::size_t>(place_.size)) {}

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
      if (base::now() >= begun + patience) {
        throw Error(ErrorCode::transport, bootstrap::missing_ranks(missing, label, patience) + describe_strangers());
      }
      wait(begun + patience);
    }
    reception_.close();
    std::vector<std::string> all{mine};
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      all.push_back(std::move(*std::exchange(members_[rank]->brought, std::nullopt)));
    }
    tell_all({FrameType::result, step_, base::join_fields(all)}, begun + patience);
    return all;
  }

  /// Hears everybody. Returns who has not contributed yet.
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
      throw Error(ErrorCode::transport, "rank " + std::to_string(member.hello.rank) + " (" + name_of(member) +
                                            ") ended, or left the start, before the step \"" + std::string(label) +
                                            "\"");
    }
  }

  /// Sets `wrong` for the first that cannot be in this job; it and those behind it hear why with the others.
  void receive(Newcomer newcomer, std::string_view label, std::string& wrong) {
    const Hello hello = newcomer.hello;
    Member member{Connection(std::move(newcomer.socket), kLongestContribution), hello, std::move(newcomer.address)};
    if (wrong.empty()) wrong = judge(member);
    if (!wrong.empty()) {
      refused_.push_back(std::move(member));
      return;
    }
    Member& kept = members_[static_cast<std::size_t>(hello.rank)].emplace(std::move(member));
    kept.connection.send({FrameType::waiting, step_, {}});
    hear(kept, label);
  }

  /// Empty, or why a rank of this job cannot be in it.
  [[nodiscard]] std::string judge(const Member& member) const {
    const Hello& hello = member.hello;
    const std::string rank = "rank " + std::to_string(hello.rank);
    if (hello.size != place_.size) {
      return rank + " (" + name_of(member) + ") was told that the job has " + std::to_string(hello.size) +
             " ranks, and rank 0 that it has " + std::to_string(place_.size) + ": give all ranks the same size (" +
             place_.size_name + ")";
    }
    if (hello.rank < 0 || hello.rank >= place_.size) {
      return rank + " (" + name_of(member) + ") is none of this job's: its ranks are 0 to " +
             std::to_string(place_.size - 1) + " (" + place_.rank_name + ")";
    }
    const std::optional<Member>& there = members_[static_cast<std::size_t>(hello.rank)];
    if (!there && hello.rank != 0) return {};
    return rank +
           " came twice: " + (there ? name_of(*there) : "process " + std::to_string(::getpid()) + ", which listens,") +
           " and " + name_of(member) + "; give every process a rank of its own (" + place_.rank_name + ")";
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
    wait_until(sockets, deadline);
  }

  /// Sends it, and waits until the system has taken it; who is gone needs nothing.
  void tell_all(const Frame& frame, base::Time deadline) {
    std::vector<Connection*> open;
    for (std::optional<Member>& member : members_) {
      if (member) open.push_back(&member->connection);
    }
    for (Member& member : refused_) open.push_back(&member.connection);
    for (Connection* one : open) one->send(frame);
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
    reception_.close();
    tell_all({FrameType::failure, step_, encode_failure(why)}, base::now() + kFarewell);
    // What they have sent and nobody has read would take the last word along, were the sockets closed now.
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

/// Looks for rank 0 until it has answered as only rank 0 can.
class Search {
 public:
  Search(const Place& place, Directions& directions) : place_(place), directions_(directions) {}

  /// Nothing at the deadline: `said` tells why.
  std::optional<Connection> run(base::Time deadline) {
    auto pause = kFirstPause;
    while (true) {
      const Route route = directions_.look(deadline);
      if (route.endpoints.empty() && !route.wrong.empty()) nobody(route.wrong);
      for (const Endpoint& endpoint : route.endpoints) {
        if (auto connection = attempt(endpoint, route.key, deadline)) return connection;
      }
      if (base::now() >= deadline) return std::nullopt;
      std::vector<pollfd> nothing;
      wait_until(nothing, std::min(deadline, base::now() + pause));
      pause = std::min(pause * 2, kLongestPause);
    }
  }
  [[nodiscard]] const std::string& said() const noexcept { return said_; }

 private:
  static constexpr std::chrono::milliseconds kFirstPause{5};
  static constexpr std::chrono::milliseconds kLongestPause{200};
  /// Of one address, so that the next one is tried.
  static constexpr std::chrono::seconds kPatience{3};
  static constexpr std::chrono::seconds kGreetingPatience{1};

  std::optional<Connection> attempt(const Endpoint& endpoint, const std::string& key, base::Time deadline) {
    const base::Time soon = std::min<base::Time>(deadline, base::now() + kPatience);
    const std::string at = to_text(endpoint);
    int error = 0;
    base::UniqueFd fd = connect_to(endpoint, error);
    if (fd.valid()) {
      // (Of an attempt that the deadline has cut short there is nothing to tell.)
      if (!wait_for(fd.get(), POLLOUT, soon)) return nobody(soon < deadline ? at + " does not answer" : "");
      error = connect_error(fd.get());
    }
    if (error != 0) return nobody(at + ": " + base::errno_text(error));
    GreetingBytes greeting{};
    if (!read_all(fd.get(), greeting, std::min<base::Time>(soon, base::now() + kGreetingPatience))) {
      return nobody("what listens at " + at + " said nothing");
    }
    Word of_greeting{};
    const std::string wrong = judge_greeting(greeting, of_greeting);
    if (!wrong.empty()) return say("what listens at " + at + " " + wrong);
    const Hello hello{place_.rank, place_.size, ::getpid(), random_word()};
    const HelloBytes bytes = make_hello(key, of_greeting, hello);
    WelcomeBytes welcome{};
    // It is rank 0, or wants to look like it; the one answers at once, the other shall not keep us for ever.
    const base::Time later = base::now() + std::max<base::Duration>((deadline - base::now()) / 2, kPatience);
    if (::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()) ||
        !read_all(fd.get(), welcome, std::min(deadline, later)) ||
        !equal_words(welcome, make_welcome(key, of_greeting, hello.word))) {
      return say("what listens at " + at +
                 " does not take this rank in: it is another job's rank 0, or has another KOLO_JOB_KEY");
    }
    return Connection(std::move(fd), kLongestResult);
  }

  /// Tells more than that nobody is there, and is kept.
  std::optional<Connection> say(std::string what) {
    said_ = std::move(what);
    somebody_ = true;
    return std::nullopt;
  }
  std::optional<Connection> nobody(std::string what) {
    if (!somebody_ && !what.empty()) said_ = std::move(what);
    return std::nullopt;
  }

  static bool wait_for(int fd, short events, base::Time deadline) {
    std::vector<pollfd> one{{fd, events, 0}};
    while (base::now() < deadline) {
      wait_until(one, deadline);
      if (one.front().revents != 0) return true;
    }
    return false;
  }

  template <class Bytes>
  static bool read_all(int fd, Bytes& bytes, base::Time deadline) {
    std::size_t received = 0;
    while (received < bytes.size()) {
      const ssize_t got = ::recv(fd, bytes.data() + received, bytes.size() - received, 0);
      if (got > 0) {
        received += static_cast<std::size_t>(got);
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR) || !wait_for(fd, POLLIN, deadline)) {
        return false;
      }
    }
    return true;
  }

  const Place& place_;
  Directions& directions_;
  std::string said_ = "nothing has answered there";
  bool somebody_ = false;
};

class Leaf final : public Exchange {
 public:
  Leaf(Place place, std::unique_ptr<Directions> directions)
      : place_(std::move(place)), directions_(std::move(directions)) {}

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
    Search search(place_, *directions_);
    root_ = search.run(begun + patience);
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
        if (frame->type == FrameType::failure) throw decode_failure(frame->body);
        if (frame->type == FrameType::waiting && frame->step == step_) {
          deadline = base::now() + bootstrap::after_waiting(patience);  // rank 0 will say who is missing
        }
        if (frame->type == FrameType::result && frame->step == step_) return read_result(frame->body);
      }
      if (!root_->lost().empty()) {
        throw Error(ErrorCode::transport, "rank 0 ended, or left the start, before the step \"" + std::string(label) +
                                              "\" was over (its connection: " + root_->lost() + ")");
      }
      if (base::now() >= deadline) throw Error(ErrorCode::transport, bootstrap::missing_ranks({0}, label, patience));
      std::vector<pollfd> sockets{{root_->fd(), root_->events(), 0}};
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
