// SPDX-License-Identifier: Apache-2.0
#include "launch/search.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <kolo/error.hpp>

#include "base/handshake.hpp"
#include "base/system_error.hpp"

namespace kolo::launch {
namespace {

constexpr std::size_t kLongestResult = std::size_t{1} << 30;
/// The most addresses tried at once: a store's entry has the addresses of one machine.
constexpr std::size_t kMostAttempts = 64;
constexpr std::chrono::milliseconds kFirstPause{5};
constexpr std::chrono::milliseconds kLongestPause{200};
constexpr std::chrono::seconds kConnectPatience{3};
constexpr std::chrono::seconds kGreetingPatience{1};
/// The least time to wait for a Welcome. Rank 0 answers at once; another process must not delay the search for ever.
constexpr std::chrono::seconds kWelcomePatience{3};

/// The attempt at one address, from connecting to the end of the handshake.
class Attempt {
 public:
  enum class State : std::uint8_t { connecting, awaits_greeting, greeted, awaits_welcome, welcome, over };

  Attempt(const Endpoint& endpoint, base::Time deadline)
      : at_(to_text(endpoint)), last_(deadline), fd_(connect_to(endpoint, error_)) {
    until_ = std::min<base::Time>(last_, base::now() + kConnectPatience);
    if (!fd_.valid()) end(at_ + ": " + base::errno_text(error_));
  }

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool waits() const noexcept {
    return state_ == State::connecting || state_ == State::awaits_greeting || state_ == State::awaits_welcome;
  }
  [[nodiscard]] base::Time until() const noexcept { return until_; }
  [[nodiscard]] pollfd to_poll() const noexcept {
    return {fd_.get(), static_cast<short>(state_ == State::connecting ? POLLOUT : POLLIN), 0};
  }
  /// For a failed attempt: the reason, and whether a process was there.
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  [[nodiscard]] bool met_somebody() const noexcept { return met_somebody_; }

  /// Something has happened at its socket.
  void go_on(std::string_view key) {
    if (state_ == State::connecting) {
      error_ = connect_error(fd_.get());
      if (error_ != 0) return end(at_ + ": " + base::errno_text(error_));
      state_ = State::awaits_greeting;
      until_ = std::min<base::Time>(last_, base::now() + kGreetingPatience);
    } else if (state_ == State::awaits_greeting) {
      if (!receive(greeting_)) return;
      const std::string wrong = base::judge_greeting(greeting_, of_greeting_);
      if (!wrong.empty()) return end("what listens at " + at_ + " " + wrong, true);
      state_ = State::greeted;
    } else if (state_ == State::awaits_welcome) {
      if (!receive(welcome_)) return;
      if (!base::equal_words(welcome_, base::make_welcome(key, of_greeting_, hello_.word))) return refused();
      state_ = State::welcome;
    }
  }
  /// The attempt's time is up.
  void give_up() {
    if (base::now() >= last_ && state_ != State::awaits_welcome)
      return end({});  // cut short by the search's end:
                       // there is no reason to report
    if (state_ == State::connecting) return end(at_ + " does not answer");
    if (state_ == State::awaits_greeting) return end("what listens at " + at_ + " said nothing");
    refused();
  }
  void say_hello(std::string_view key, const Place& place) {
    hello_ = {place.rank, place.size, ::getpid(), base::random_word()};
    const base::HelloBytes bytes = base::make_hello(key, of_greeting_, hello_);
    state_ = State::awaits_welcome;
    received_ = 0;
    const base::Duration left = last_ - base::now();
    until_ = std::min(last_, base::now() + std::max<base::Duration>(left / 2, kWelcomePatience));
    if (::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) refused();
  }
  [[nodiscard]] Connection connection(std::string_view key) {
    return Connection(std::move(fd_), {base::session_key(key, of_greeting_, hello_.word), false, "rank 0"},
                      kLongestResult);
  }

 private:
  void end(std::string why, bool met_somebody = false) {
    state_ = State::over;
    why_ = std::move(why);
    met_somebody_ = met_somebody;
    fd_.reset();
  }
  void refused() {
    end("what listens at " + at_ +
            " does not take this rank in: it is another job's rank 0, has another KOLO_JOB_KEY, or has too many "
            "connections at once",
        true);
  }
  /// Whether the message is complete.
  template <class Bytes>
  bool receive(Bytes& bytes) {
    const ssize_t got = ::recv(fd_.get(), bytes.data() + received_, bytes.size() - received_, 0);
    if (got > 0) received_ += static_cast<std::size_t>(got);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      if (state_ == State::awaits_welcome) {
        refused();
      } else {
        end("what listens at " + at_ + " said nothing");
      }
      return false;
    }
    return received_ == bytes.size();
  }

  const std::string at_;
  const base::Time last_;  // of the search
  int error_ = 0;
  base::UniqueFd fd_;
  State state_ = State::connecting;
  base::Time until_{};
  base::GreetingBytes greeting_{};
  base::WelcomeBytes welcome_{};
  base::Word of_greeting_{};
  base::Hello hello_;
  std::size_t received_ = 0;
  std::string why_;
  bool met_somebody_ = false;
};

using State = Attempt::State;

}  // namespace

std::optional<Connection> Search::run(Directions& directions, base::Time deadline) {
  auto pause = kFirstPause;
  while (true) {
    const NetworkRoute route = directions.look(deadline);
    if (route.endpoints.empty() && !route.wrong.empty()) nobody(route.wrong);
    if (const std::string why = why_unreachable(route.endpoints); !why.empty())
      throw Error(ErrorCode::transport, "rank " + std::to_string(place_.rank) + " cannot reach rank 0 at " +
                                            directions.describe() + ": " + why);
    if (auto connection = try_all(route, deadline)) return connection;
    if (base::now() >= deadline) return std::nullopt;
    std::vector<pollfd> nothing;
    wait_until(nothing, std::min(deadline, base::now() + pause));
    pause = std::min(pause * 2, kLongestPause);
  }
}

std::optional<Connection> Search::try_all(const NetworkRoute& route, base::Time deadline) {
  std::vector<Attempt> attempts;
  attempts.reserve(kMostAttempts);
  for (const Endpoint& endpoint : route.endpoints) {
    if (attempts.size() < kMostAttempts) attempts.emplace_back(endpoint, deadline);
  }
  const auto find = [&](State state) {
    return std::find_if(attempts.begin(), attempts.end(), [&](const Attempt& one) { return one.state() == state; });
  };
  while (true) {
    if (const auto done = find(State::welcome); done != attempts.end()) return done->connection(route.key);
    if (find(State::awaits_welcome) == attempts.end()) {
      if (const auto next = find(State::greeted); next != attempts.end()) next->say_hello(route.key, place_);
    }
    std::vector<pollfd> sockets;
    std::vector<Attempt*> waiting;
    base::Time soonest = base::Time::max();
    for (Attempt& one : attempts) {
      if (!one.waits()) continue;
      waiting.push_back(&one);
      sockets.push_back(one.to_poll());
      soonest = std::min(soonest, one.until());
    }
    if (waiting.empty() && find(State::greeted) == attempts.end()) break;
    if (waiting.empty()) continue;  // the attempt that was next is over already
    wait_until(sockets, soonest);
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (sockets[i].revents != 0) {
        waiting[i]->go_on(route.key);
      } else if (base::now() >= waiting[i]->until()) {
        waiting[i]->give_up();
      }
    }
  }
  for (const Attempt& one : attempts) {
    if (one.met_somebody()) {
      say(one.why());
    } else {
      nobody(one.why().empty() ? "" : one.why() + route.doubt);
    }
  }
  return std::nullopt;
}

void Search::say(std::string what) {
  said_ = std::move(what);
  somebody_ = true;
}

void Search::nobody(const std::string& what) {
  if (!somebody_ && !what.empty()) said_ = what;
}

}  // namespace kolo::launch
