// SPDX-License-Identifier: Apache-2.0
#include "control/tcp/rendezvous.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include <kolo/error.hpp>

#include "base/system_error.hpp"
#include "base/text.hpp"
#include "control/tcp/addresses.hpp"

namespace kolo::tcp {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// Between the first attempts at two addresses of the parent: the better one mostly answers before the next is tried.
constexpr milliseconds kStagger{100};
constexpr milliseconds kRetry{200};
/// Other processes may hold connections open without sending; the oldest is closed. Children are greeted within
/// moments.
constexpr std::size_t kMostConversations = 128;
/// When descriptors run out, connections that have had no hello for this long are closed.
constexpr milliseconds kMostSilence{500};

std::string to_text(const tcp::endpoint& endpoint) {
  base::Text text;
  text << endpoint;
  return text.str();
}

std::string name(const Neighbour& who) {
  return "node " + std::to_string(who.node) + " (rank " + std::to_string(who.leader_rank) + ")";
}

/// The state that all attempts share: the plan, and the leaders found so far.
struct Meeting {
  Meeting(asio::io_context& context, const RendezvousPlan& the_plan) : io(context), plan(the_plan) {}

  [[nodiscard]] bool complete() const { return found.size() == plan.children.size() + plan.parent.size(); }
  [[nodiscard]] std::optional<int> child_led_by(int rank) const {
    const auto child = std::find_if(plan.children.begin(), plan.children.end(),
                                    [&](const Neighbour& each) { return each.leader_rank == rank; });
    if (child == plan.children.end()) return std::nullopt;
    return child->node;
  }
  void turn_away(const std::string& who, const std::string& why) {
    ++turned_away;
    last_turned_away = who + " " + why;
  }

  asio::io_context& io;
  const RendezvousPlan& plan;
  bool over = false;  // handlers that still come do nothing
  std::map<int, tcp::socket> found;
  std::map<int, std::int64_t> hellos;  ///< by child: the highest number that it has said
  int turned_away = 0;
  std::string last_turned_away;
};

// ---------------------------------------------------------------- the side that listens

/// The handshake on one incoming connection, from the greeting to the welcome. Closing its socket ends it.
class Conversation : public std::enable_shared_from_this<Conversation> {
 public:
  Conversation(Meeting& meeting, tcp::socket socket, std::string who)
      : meeting_(meeting), socket_(std::move(socket)), who_(std::move(who)),
        greeting_(make_greeting(word_, meeting.plan.nonce)) {}

  void begin() {
    asio::async_write(socket_, asio::buffer(greeting_), [self = shared_from_this()](error_code error, std::size_t) {
      if (!error && !self->meeting_.over) self->await_hello();
    });
  }
  void end() {
    error_code ignored;  // it is given up either way
    socket_.close(ignored);
  }
  [[nodiscard]] Clock::duration age() const { return Clock::now() - begun_; }

 private:
  void await_hello() {
    asio::async_read(socket_, asio::buffer(hello_), [self = shared_from_this()](error_code error, std::size_t got) {
      if (self->meeting_.over) return;
      if (!error) return self->on_hello();
      // A child that has connected by another address closes this connection without a hello. It is not turned away.
      if (got > 0) self->meeting_.turn_away(self->who_, "hung up during the handshake");
    });
  }

  void on_hello() {
    std::string wrong;
    const std::optional<base::Hello> hello = base::judge_hello(meeting_.plan.job_key, word_, hello_, wrong);
    const std::optional<int> node = hello ? meeting_.child_led_by(hello->rank) : std::nullopt;
    if (hello && !node)
      wrong = "says it is rank " + std::to_string(hello->rank) + ", which leads no child of this node";
    if (!wrong.empty()) {
      meeting_.turn_away(who_, wrong);
      return end();
    }
    std::int64_t& latest = meeting_.hellos[*node];
    if (hello->number <= latest) return end();  // the hello of a connection that the child has given up since
    latest = hello->number;
    meeting_.found.erase(*node);
    welcome_ = base::make_welcome(meeting_.plan.job_key, word_, hello->word);
    asio::async_write(socket_, asio::buffer(welcome_),
                      [self = shared_from_this(), node = *node, number = latest](error_code error, std::size_t) {
                        if (error || self->meeting_.over || number < self->meeting_.hellos[node]) return;
                        self->meeting_.found.insert_or_assign(node, std::move(self->socket_));
                      });
  }

  Meeting& meeting_;
  tcp::socket socket_;
  const std::string who_;
  const base::Word word_ = base::random_word();
  const GreetingBytes greeting_;
  const Clock::time_point begun_ = Clock::now();
  base::HelloBytes hello_{};
  base::WelcomeBytes welcome_{};
};

class Reception {
 public:
  Reception(Meeting& meeting, std::vector<tcp::acceptor>& acceptors) : meeting_(meeting), acceptors_(acceptors) {
    if (meeting.plan.children.empty()) return;
    for (tcp::acceptor& acceptor : acceptors_) {
      pauses_.emplace_back(meeting.io);
      accept(acceptor, pauses_.back());
    }
  }
  void end() {
    error_code ignored;
    for (tcp::acceptor& acceptor : acceptors_) acceptor.close(ignored);
    for (asio::steady_timer& pause : pauses_) pause.cancel(ignored);
    for (const auto& weak : conversations_) {
      if (const auto conversation = weak.lock()) conversation->end();
    }
  }

 private:
  void accept(tcp::acceptor& acceptor, asio::steady_timer& pause) {
    acceptor.async_accept([this, &acceptor, &pause](error_code error, tcp::socket socket) {
      if (meeting_.over) return;
      if (!error) {
        converse(std::move(socket));
      } else if (is_shortage(error)) {
        meeting_.turn_away("the system", "refused a connection: " + error.message() + base::remedy(error.value()));
        return accept_later(acceptor, pause);
      }
      accept(acceptor, pause);
    });
  }

  [[nodiscard]] static bool is_shortage(const error_code& error) {
    return error == asio::error::no_descriptors || error == error_code(ENFILE, boost::system::system_category()) ||
           error == asio::error::no_memory || error == asio::error::no_buffer_space;
  }

  /// Without free descriptors, accepting again at once would spin. Connections of other processes are closed to free
  /// some.
  void accept_later(tcp::acceptor& acceptor, asio::steady_timer& pause) {
    end_oldest(kMostSilence);
    pause.expires_after(kRetry);
    pause.async_wait([this, &acceptor, &pause](error_code error) {
      if (!error && !meeting_.over) accept(acceptor, pause);
    });
  }

  /// Closes the oldest conversation if it is at least this old.
  void end_oldest(milliseconds age) {
    forget_ended();
    const auto oldest = conversations_.empty() ? nullptr : conversations_.front().lock();
    if (!oldest || oldest->age() < age) return;
    oldest->end();
    conversations_.pop_front();
  }
  void forget_ended() {
    std::erase_if(conversations_, [](const auto& weak) { return weak.expired(); });
  }

  void converse(tcp::socket socket) {
    error_code error;
    const tcp::endpoint from = socket.remote_endpoint(error);
    if (error) return;  // gone already
    close_on_exec(socket.native_handle());
    forget_ended();
    if (conversations_.size() >= kMostConversations) end_oldest(milliseconds(0));
    const auto conversation = std::make_shared<Conversation>(meeting_, std::move(socket), to_text(from));
    conversations_.push_back(conversation);
    conversation->begin();
  }

  Meeting& meeting_;
  std::vector<tcp::acceptor>& acceptors_;
  std::deque<asio::steady_timer> pauses_;                  // of each acceptor, before it tries again
  std::deque<std::weak_ptr<Conversation>> conversations_;  // each is owned by its own handlers
};

// ---------------------------------------------------------------- the side that connects

/// Tries all addresses of the parent. The first connection with a right greeting is chosen, and only it gets a hello.
/// If it breaks before the welcome, all attempts begin again.
class Search {
 public:
  explicit Search(Meeting& meeting) : meeting_(meeting) {
    milliseconds delay{0};
    for (const tcp::endpoint& endpoint : meeting.plan.parent_endpoints) {
      attempts_.push_back(std::make_unique<Attempt>(meeting.io, endpoint));
      begin_after(*attempts_.back(), delay);
      delay += kStagger;
    }
  }

  void end() {
    error_code ignored;
    for (const auto& attempt : attempts_) {
      attempt->timer.cancel(ignored);
      attempt->socket.close(ignored);
    }
  }

  [[nodiscard]] std::string report() const {
    std::string text;
    for (const auto& attempt : attempts_) {
      text += (text.empty() ? "" : "; ") + to_text(attempt->endpoint) + ": " + attempt->said;
    }
    return text.empty() ? "it announced no address that can be reached from here" : text;
  }

 private:
  struct Attempt {
    Attempt(asio::io_context& io, tcp::endpoint where) : endpoint(std::move(where)), socket(io), timer(io) {}
    const tcp::endpoint endpoint;
    tcp::socket socket;
    asio::steady_timer timer;
    GreetingBytes greeting{};
    base::Word of_greeting{};
    base::Word of_hello{};
    base::HelloBytes hello{};
    base::WelcomeBytes welcome{};
    std::string said = "not tried yet";
    int turn = 0;  // counts its connections, so that handlers of earlier ones are ignored
  };

  [[nodiscard]] bool is_stale(const Attempt& attempt, int turn) const {
    return meeting_.over || attempt.turn != turn || (chosen_ != nullptr && chosen_ != &attempt);
  }

  void begin_after(Attempt& attempt, milliseconds delay) {
    attempt.timer.expires_after(delay);
    attempt.timer.async_wait([this, &attempt](error_code error) {
      if (!error && !meeting_.over && chosen_ == nullptr) connect(attempt);
    });
  }

  void connect(Attempt& attempt) {
    const int turn = ++attempt.turn;
    error_code error;
    attempt.socket.close(error);
    attempt.socket.open(attempt.endpoint.protocol(), error);
    if (error) return fail(attempt, error.message() + base::remedy(error.value()));
    close_on_exec(attempt.socket.native_handle());
    if (attempt.said == "not tried yet") attempt.said = "no answer";
    attempt.socket.async_connect(attempt.endpoint, [this, &attempt, turn](error_code failure) {
      if (is_stale(attempt, turn)) return;
      if (failure) return fail(attempt, failure.message());
      attempt.said = "connected, but sent no greeting";
      await_greeting(attempt, turn);
    });
  }

  void await_greeting(Attempt& attempt, int turn) {
    const auto buffer = asio::buffer(attempt.greeting);
    asio::async_read(attempt.socket, buffer, [this, &attempt, turn](error_code error, std::size_t) {
      if (is_stale(attempt, turn)) return;
      if (error) return fail(attempt, "hung up before its greeting (" + error.message() + ")");
      const std::string wrong = judge_greeting(attempt.greeting, meeting_.plan.parent_nonce, attempt.of_greeting);
      if (!wrong.empty()) return fail(attempt, "what answers " + wrong);
      chosen_ = &attempt;
      say_hello(attempt, turn);
    });
  }

  void say_hello(Attempt& attempt, int turn) {
    attempt.said = "greeted, but did not accept this node";
    attempt.of_hello = base::random_word();
    attempt.hello = base::make_hello(meeting_.plan.job_key, attempt.of_greeting,
                                     {meeting_.plan.rank, meeting_.plan.ranks, ++hellos_, attempt.of_hello});
    const auto buffer = asio::buffer(attempt.hello);
    asio::async_write(attempt.socket, buffer, [this, &attempt, turn](error_code error, std::size_t) {
      if (is_stale(attempt, turn)) return;
      if (error) return fail(attempt, "hung up during the handshake (" + error.message() + ")");
      await_welcome(attempt, turn);
    });
  }

  void await_welcome(Attempt& attempt, int turn) {
    const auto buffer = asio::buffer(attempt.welcome);
    asio::async_read(attempt.socket, buffer, [this, &attempt, turn](error_code error, std::size_t) {
      if (is_stale(attempt, turn)) return;
      if (error) return fail(attempt, "refused this node");
      if (!base::equal_words(attempt.welcome,
                             base::make_welcome(meeting_.plan.job_key, attempt.of_greeting, attempt.of_hello)))
        return fail(attempt, "does not know the job's key");
      meeting_.found.insert_or_assign(meeting_.plan.parent.front().node, std::move(attempt.socket));
    });
  }

  void fail(Attempt& attempt, std::string what) {
    attempt.said = std::move(what);
    if (chosen_ == &attempt) {
      chosen_ = nullptr;
      for (const auto& other : attempts_) begin_after(*other, kRetry);
    } else {
      begin_after(attempt, kRetry);
    }
  }

  Meeting& meeting_;
  std::vector<std::unique_ptr<Attempt>> attempts_;
  const Attempt* chosen_ = nullptr;
  std::int64_t hellos_ = 0;  // that were said
};

std::string list(const std::vector<tcp::endpoint>& endpoints) {
  std::string text;
  for (const tcp::endpoint& endpoint : endpoints) text += (text.empty() ? "" : ", ") + to_text(endpoint);
  return text;
}

/// Text: which leaders are missing, and what is known about each.
std::string describe_missing(const Meeting& meeting, const Search& search, milliseconds timeout) {
  const RendezvousPlan& plan = meeting.plan;
  base::Text text;
  text << "not all control connections were made within " << static_cast<double>(timeout.count()) / 1000 << " s";
  for (const Neighbour& parent : plan.parent) {
    if (meeting.found.count(parent.node) == 0) text << "; could not reach " << name(parent) << ": " << search.report();
  }
  std::string missing;
  for (const Neighbour& child : plan.children) {
    if (meeting.found.count(child.node) == 0) missing += (missing.empty() ? "" : ", ") + name(child);
  }
  if (!missing.empty()) text << "; " << missing << " did not connect to " << list(plan.listened_at);
  if (meeting.turned_away > 0) {
    text << "; " << meeting.turned_away << " other connections were refused, the last: " << meeting.last_turned_away;
  }
  text << ". Check for a firewall between the hosts, or set KOLO_INTERFACE.";
  return text.str();
}

int promise(const tcp::endpoint& endpoint, const std::vector<LocalAddress>& ours) {
  if (endpoint.address().is_loopback()) return 2;
  const bool near = std::any_of(ours.begin(), ours.end(),
                                [&](const LocalAddress& mine) { return same_subnet(mine, endpoint.address()); });
  return near ? 0 : 1;
}

/// Handlers refer to the meeting, so none may be left when it ends, by return or by exception.
class Ending {
 public:
  Ending(Meeting& meeting, Reception& reception, Search& search)
      : meeting_(meeting), reception_(reception), search_(search) {}
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  ~Ending() {
    meeting_.over = true;
    reception_.end();
    search_.end();
    meeting_.io.restart();
    meeting_.io.run();  // returns when every handler has run with the error "cancelled"
  }

 private:
  Meeting& meeting_;
  Reception& reception_;
  Search& search_;
};

}  // namespace

std::map<int, tcp::socket> meet(asio::io_context& io, std::vector<tcp::acceptor>& acceptors, const RendezvousPlan& plan,
                                milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  Meeting meeting(io, plan);
  Reception reception(meeting, acceptors);
  Search search(meeting);
  const Ending ending(meeting, reception, search);
  while (!meeting.complete()) {
    if (io.run_one_until(deadline) == 0) {
      throw Error(ErrorCode::transport, describe_missing(meeting, search, timeout));
    }
  }
  return std::move(meeting.found);
}

std::vector<tcp::endpoint> by_promise(std::vector<tcp::endpoint> listening, const std::vector<LocalAddress>& ours) {
  const bool any_v6 = std::any_of(ours.begin(), ours.end(), [](const LocalAddress& a) { return a.address.is_v6(); });
  if (!any_v6) std::erase_if(listening, [](const tcp::endpoint& e) { return e.address().is_v6(); });
  std::stable_sort(listening.begin(), listening.end(),
                   [&](const tcp::endpoint& a, const tcp::endpoint& b) { return promise(a, ours) < promise(b, ours); });
  return listening;
}

void close_on_exec(int fd) {
  const int flags = ::fcntl(fd, F_GETFD);
  if (flags < 0 || ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC) != 0) base::throw_errno("fcntl(FD_CLOEXEC)", errno);
}

}  // namespace kolo::tcp
