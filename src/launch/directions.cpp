// SPDX-License-Identifier: Apache-2.0
#include "launch/directions.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <sstream>
#include <utility>

#include <kolo/error.hpp>

#include "base/system_error.hpp"
#include "control/tcp/interfaces.hpp"
#include "launch/proof.hpp"

namespace kolo::launch {
namespace {

constexpr const char* kEntry = "kolo/rank-0";
constexpr const char* kFormat = "kolo-1";

/// What ranks of the job know, and of no other.
std::string key_of(const JobKey& key, std::string_view word) {
  return std::string(bytes_of(prove(key.secret, "job " + key.job + "\n" + std::string(word))));
}

bool is_address(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  return ::inet_pton(AF_INET, host.c_str(), &v4) == 1 || ::inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

/// At all addresses, IPv6 and IPv4 where the system has both.
base::UniqueFd listen_everywhere(std::uint16_t port, int& error) {
  base::UniqueFd fd = listen_at(any_address(port, true), error);
  if (!fd.valid() && error != EADDRINUSE) fd = listen_at(any_address(port, false), error);
  return fd;
}

class FixedDirections final : public Directions {
 public:
  FixedDirections(std::string host, std::vector<std::uint16_t> ports, const JobKey& key)
      : host_(std::move(host)), ports_(std::move(ports)), key_(key_of(key, {})) {}

  [[nodiscard]] Listening open() override {
    int error = 0;
    for (const std::uint16_t port : ports_) {
      Listening listening{listen(port, error), key_};
      if (!listening.sockets.empty()) return listening;
    }
    std::string text = "rank 0 cannot listen at " + describe() + ": " + base::errno_text(error) + base::remedy(error);
    if (error == EADDRINUSE) text += "; another job, or another program, listens there: choose another port";
    throw Error(ErrorCode::transport, text);
  }

  [[nodiscard]] Route look(base::Time /*deadline*/) override {
    Route route;
    route.key = key_;
    const std::vector<Endpoint> hosts = resolve(host_, 0, route.wrong);
    for (const std::uint16_t port : ports_) {
      for (const Endpoint& one : hosts) route.endpoints.push_back(one.with_port(port));
    }
    return route;
  }

  [[nodiscard]] std::string describe() const override {
    const bool v6 = host_.find(':') != std::string::npos;
    std::string text = "tcp://" + (v6 ? "[" + host_ + "]" : host_) + ":" + std::to_string(ports_.front());
    if (ports_.size() > 1) text += " (or the next free one of " + std::to_string(ports_.size()) + ")";
    return text;
  }

 private:
  [[nodiscard]] std::vector<base::UniqueFd> listen(std::uint16_t port, int& error) const {
    std::vector<base::UniqueFd> sockets;
    std::string wrong;
    if (is_address(host_) || host_ == "localhost") {
      for (const Endpoint& endpoint : resolve(host_, port, wrong)) {
        base::UniqueFd fd = listen_at(endpoint, error);
        if (fd.valid()) sockets.push_back(std::move(fd));
        if (error == EADDRINUSE) return {};
      }
      if (!sockets.empty()) return sockets;
    }
    base::UniqueFd fd = listen_everywhere(port, error);
    if (fd.valid()) sockets.push_back(std::move(fd));
    return sockets;
  }

  const std::string host_;
  const std::vector<std::uint16_t> ports_;
  const std::string key_;
};

/// What rank 0 leaves in a store, as text: "kolo-1 <word> <proof> <address>|<port> ...".
struct Entry {
  std::string word;
  std::vector<std::pair<std::string, std::uint16_t>> addresses;
};

std::string body_of(const Entry& entry) {
  std::string text = entry.word;
  for (const auto& [address, port] : entry.addresses) text += " " + address + "|" + std::to_string(port);
  return text;
}

std::string proof_of(const JobKey& key, const Entry& entry) {
  return hex_of(prove(key.secret, "entry " + key.job + "\n" + body_of(entry)));
}

std::optional<Entry> parse_entry(const std::string& text, std::string& proof) {
  std::istringstream words(text);
  std::string format;
  Entry entry;
  Word word{};
  if (!(words >> format >> proof >> entry.word) || format != kFormat || !word_from_hex(entry.word, word)) return {};
  for (std::string one; words >> one;) {
    const std::size_t bar = one.find('|');
    std::uint16_t port = 0;
    const char* const end = one.data() + one.size();
    if (bar == std::string::npos) return {};
    const auto [at, error] = std::from_chars(one.data() + bar + 1, end, port);
    if (error != std::errc() || at != end || !is_address(one.substr(0, bar))) return {};
    entry.addresses.emplace_back(one.substr(0, bar), port);
  }
  return entry;
}

class StoreDirections final : public Directions {
 public:
  StoreDirections(std::shared_ptr<Store> store, std::string name, std::string interface, const JobKey& key)
      : store_(std::move(store)), name_(std::move(name)), interface_(std::move(interface)), key_(key) {}

  [[nodiscard]] Listening open() override {
    int error = 0;
    Listening listening;
    base::UniqueFd fd = listen_everywhere(0, error);
    if (!fd.valid()) base::throw_errno("rank 0 cannot listen for the other ranks", error);
    const std::uint16_t port = own_endpoint(fd.get()).port();
    Entry entry;
    entry.word = hex_of(random_word());
    std::vector<tcp::LocalAddress> addresses = tcp::local_addresses();
    if (!interface_.empty()) addresses = tcp::select_addresses(addresses, interface_);
    for (const tcp::LocalAddress& one : addresses) entry.addresses.emplace_back(one.address.to_string(), port);
    listening.sockets.push_back(std::move(fd));
    listening.key = key_of(key_, entry.word);
    store_->set(kEntry, std::string(kFormat) + " " + proof_of(key_, entry) + " " + body_of(entry));
    return listening;
  }

  [[nodiscard]] Route look(base::Time deadline) override {
    Route route;
    const auto left = std::max<base::Duration>(deadline - base::now(), base::Duration::zero());
    const std::optional<std::string> text =
        store_->get(kEntry, std::chrono::duration_cast<std::chrono::nanoseconds>(left));
    if (!text) {
      route.wrong = "rank 0 has left no address in " + name_;
      return route;
    }
    std::string proof;
    const std::optional<Entry> entry = parse_entry(*text, proof);
    if (!entry) {
      route.wrong = name_ + " holds something that is not of Kolo, or of another release";
    } else if (proof != proof_of(key_, *entry)) {
      route.wrong = name_ + " is stale, or of another job: what it holds was made with another KOLO_JOB_KEY";
    } else {
      route.key = key_of(key_, entry->word);
      for (const auto& [address, port] : entry->addresses) {
        for (Endpoint& one : resolve(address, port, route.wrong)) route.endpoints.push_back(one);
      }
    }
    return route;
  }

  [[nodiscard]] std::string describe() const override { return name_; }

 private:
  const std::shared_ptr<Store> store_;
  const std::string name_;
  const std::string interface_;
  const JobKey key_;
};

}  // namespace

std::unique_ptr<Directions> fixed_directions(std::string host, std::vector<std::uint16_t> ports, const JobKey& key) {
  return std::make_unique<FixedDirections>(std::move(host), std::move(ports), key);
}

std::unique_ptr<Directions> store_directions(std::shared_ptr<Store> store, std::string name, std::string interface,
                                             const JobKey& key) {
  return std::make_unique<StoreDirections>(std::move(store), std::move(name), std::move(interface), key);
}

}  // namespace kolo::launch
