// SPDX-License-Identifier: Apache-2.0
#include "launch/reception.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "base/system_error.hpp"
#include "launch/sockets.hpp"

namespace kolo::launch {
namespace {

constexpr std::chrono::seconds kStrangersPatience{5};

/// Sends all or fails: for a few bytes on a new socket, whose buffer is empty.
template <class Bytes>
bool send_all(int fd, const Bytes& bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

/// Whether the error belongs to one connection, which ended before it was accepted, and not to the listener.
bool is_of_one_connection(int error) {
  return error == ECONNABORTED || error == EPROTO || error == ENETDOWN || error == EHOSTDOWN || error == EHOSTUNREACH ||
         error == ENETUNREACH || error == ENONET || error == EPERM;
}

bool is_lack(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

bool is_readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

void Reception::add_sockets(std::vector<pollfd>& sockets) const {
  for (const base::UniqueFd& listener : listening_.sockets) sockets.push_back({listener.get(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) sockets.push_back({stranger.socket.get(), POLLIN, 0});
}

void Reception::close() noexcept {
  listening_.sockets.clear();
  strangers_.clear();
}

std::vector<Newcomer> Reception::serve() {
  std::vector<Newcomer> known;
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    stranger = serve(*stranger, known) == Progress::goes_on ? std::next(stranger) : strangers_.erase(stranger);
  }
  for (const base::UniqueFd& listener : listening_.sockets) let_in(listener.get());
  return known;
}

void Reception::let_in(int listener) {
  // Accepts at most `most_` at once, so that connections that wait for an answer do not wait for all new ones.
  for (std::size_t i = 0; i < most_; ++i) {
    base::UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      const int error = errno;
      if (error == EAGAIN) return;
      if (error == EINTR || is_of_one_connection(error)) continue;
      if (is_lack(error) && !is_readable(listener)) return;  // accept reports the lack even if no connection waits
      if (!is_lack(error) || strangers_.empty()) base::throw_errno("accepting the connection of a rank", error);
      make_room();
      continue;
    }
    if (strangers_.size() == most_) make_room();
    hurry(socket.get());
    std::string address = peer_text(socket.get());
    std::string host = host_of(address);
    Stranger stranger{std::move(socket), std::move(address), std::move(host), base::now(), base::random_word()};
    if (send_all(stranger.socket.get(), base::make_greeting(stranger.greeted)))
      strangers_.push_back(std::move(stranger));
  }
}

void Reception::make_room() {
  std::map<std::string_view, std::size_t> counts;
  for (const Stranger& stranger : strangers_) ++counts[stranger.host];
  const auto busiest =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::size_t which = std::random_device()() % busiest->second;
  const auto goes = std::find_if(strangers_.begin(), strangers_.end(), [&](const Stranger& stranger) {
    return stranger.host == busiest->first && which-- == 0;
  });
  turn_away(*goes, "had to make room for others");
  strangers_.erase(goes);
}

Reception::Progress Reception::serve(Stranger& stranger, std::vector<Newcomer>& known) {
  const ssize_t got = ::recv(stranger.socket.get(), stranger.hello.data() + stranger.received,
                             stranger.hello.size() - stranger.received, 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    return Progress::goes_away;  // a rank that has found rank 0 at another address also closes this connection
  }
  if (got > 0) stranger.received += static_cast<std::size_t>(got);
  if (stranger.received < stranger.hello.size()) {
    if (base::now() - stranger.since < kStrangersPatience) return Progress::goes_on;
    turn_away(stranger, "said nothing");
    return Progress::goes_away;
  }
  std::string wrong;
  const std::optional<base::Hello> hello = base::judge_hello(listening_.key, stranger.greeted, stranger.hello, wrong);
  if (!hello) {
    turn_away(stranger, wrong, true);
    return Progress::goes_away;
  }
  if (send_all(stranger.socket.get(), base::make_welcome(listening_.key, stranger.greeted, hello->word))) {
    known.push_back({*hello, base::session_key(listening_.key, stranger.greeted, hello->word),
                     std::move(stranger.socket), std::move(stranger.address)});
  }
  return Progress::is_known;
}

void Reception::turn_away(const Stranger& stranger, const std::string& why, bool wrong) {
  ++turned_away_;
  if (wrong || !somebody_spoke_) last_turned_away_ = stranger.address + " " + why;
  somebody_spoke_ = somebody_spoke_ || wrong;
}

}  // namespace kolo::launch
