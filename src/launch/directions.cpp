// SPDX-License-Identifier: Apache-2.0
#include "launch/directions.hpp"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include <kolo/error.hpp>

#include "base/proof.hpp"
#include "base/system_error.hpp"
#include "base/text.hpp"
#include "control/tcp/interfaces.hpp"

namespace kolo::launch {
namespace {

constexpr const char* kEntry = "kolo/rank-0";
/// A `get` that takes this much longer than it may is mentioned in the error.
constexpr std::chrono::seconds kMostLate{1};

std::string seconds_of(base::Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count()) + " s";
}

/// A key that only ranks of this job know.
std::string key_of(const JobKey& key, std::string_view word) {
  return std::string(base::bytes_of(base::prove(key.secret, "job " + key.job + "\n" + std::string(word))));
}

/// Listens at all addresses, IPv6 and IPv4 by one socket if the system has both.
base::UniqueFd listen_everywhere(std::uint16_t port, int& error) {
  const auto address = [port](const char* text) {
    std::string wrong;
    const std::vector<Endpoint> found = resolve(text, port, wrong);
    if (found.empty()) throw Error(ErrorCode::transport, wrong);  // no memory
    return found.front();
  };
  base::UniqueFd fd = listen_at(address("::"), error);
  if (!fd.valid() && error != EADDRINUSE) fd = listen_at(address("0.0.0.0"), error);
  return fd;
}

bool has_loopback(const std::vector<tcp::LocalAddress>& all) {
  return std::any_of(all.begin(), all.end(), [](const auto& each) { return each.address.is_loopback(); });
}

constexpr const char* kLoopbackIsDown = "the loopback interface is down, over which the processes of one machine reach "
                                        "each other: bring it up (ip link set "
                                        "lo up)";

class FixedDirections final : public Directions {
 public:
  FixedDirections(std::string host, std::vector<std::uint16_t> ports, const JobKey& key)
      : host_(std::move(host)), ports_(std::move(ports)), key_(key_of(key, {})) {}

  [[nodiscard]] Listening open() override {
    int error = 0;
    Listening listening;
    listening.key = listening.rival.key = key_;
    std::string unresolved;
    if (const std::string why = why_unreachable(fixed_addresses(0)); !why.empty()) {
      listening.wrong = "rank 0 cannot be reached at " + describe() + ": " + why;
      return listening;
    }
    for (const std::uint16_t port : ports_) {
      listening.sockets = listen(port, error);
      if (!listening.sockets.empty()) return listening;
      if (error != EADDRINUSE) continue;
      for (const Endpoint& one : resolve(host_, port, unresolved)) listening.rival.endpoints.push_back(one);
    }
    listening.wrong = "rank 0 cannot listen at " + describe() + ": " + base::errno_text(error) + base::remedy(error);
    if (error == EADDRINUSE) {
      listening.wrong += "; another job, or another program, listens there: choose another port";
      if (ports_.size() > 1) listening.wrong += " (MASTER_PORT; a job's own ports follow from it)";
    }
    return listening;
  }

  [[nodiscard]] std::string remark() override {
    std::string unresolved;
    const std::vector<Endpoint> all = resolve(host_, 0, unresolved);
    if (all.empty()) return "; " + unresolved;
    int error = 0;
    for (const Endpoint& one : all) {
      if (bind_socket(one, error).valid()) return {};
    }
    return "; " + host_ +
           (tcp::parse_address(host_) ? " is no address of this machine"
                                      : " is another machine than this one, by its name") +
           ": rank 0 must run there, or be reached through it";
  }

  [[nodiscard]] NetworkRoute look(base::Time /*deadline*/) override {
    NetworkRoute route;
    route.key = key_;
    const std::vector<Endpoint> hosts = resolve(host_, 0, route.wrong);
    for (const std::uint16_t port : ports_) {
      for (const Endpoint& one : hosts) route.endpoints.push_back(one.with_port(port));
    }
    return route;
  }

  [[nodiscard]] std::string describe() const override {
    std::string text = "tcp://" + at_port(host_, ports_.front());
    if (ports_.size() > 1) text += " (or the next free one of " + std::to_string(ports_.size()) + ")";
    return text;
  }

 private:
  /// The addresses of `host_`, unless it is a name that must be looked up.
  [[nodiscard]] std::vector<Endpoint> fixed_addresses(std::uint16_t port) const {
    std::string unresolved;
    const bool is_fixed = host_ == "localhost" || tcp::parse_address(host_);
    return is_fixed ? resolve(host_, port, unresolved) : std::vector<Endpoint>();
  }

  [[nodiscard]] std::vector<base::UniqueFd> listen(std::uint16_t port, int& error) const {
    std::vector<base::UniqueFd> sockets;
    for (const Endpoint& endpoint : fixed_addresses(port)) {
      base::UniqueFd fd = listen_at(endpoint, error);
      if (fd.valid()) sockets.push_back(std::move(fd));
      if (error == EADDRINUSE) return {};
    }
    if (!sockets.empty()) return sockets;
    base::UniqueFd fd = listen_everywhere(port, error);
    if (fd.valid()) sockets.push_back(std::move(fd));
    return sockets;
  }

  const std::string host_;
  const std::vector<std::uint16_t> ports_;
  const std::string key_;
};

class StoreDirections final : public Directions {
 public:
  StoreDirections(std::shared_ptr<Store> store, std::string name, std::string interface, const JobKey& key)
      : store_(std::move(store)), name_(std::move(name)), interface_(std::move(interface)), key_(key) {}

  [[nodiscard]] Listening open() override {
    Listening listening;
    listening.rival = route_by(get(base::now()));
    StoreEntry entry;
    entry.word = base::hex_of(base::random_word());
    if (interface_.empty()) {
      listen_at_all(listening, entry);
    } else {
      listen_at_some(listening, entry);
    }
    listening.key = key_of(key_, entry.word);
    written_ = encode(entry, key_);
    call("set", [&] { store_->set(kEntry, written_); });
    return listening;
  }

  [[nodiscard]] NetworkRoute look(base::Time deadline) override {
    const base::Time begun = base::now();
    const std::optional<std::string> text = get(deadline);
    const base::Duration late = base::now() - std::max(deadline, begun);
    NetworkRoute route = route_by(text);
    if (late > kMostLate) {
      route.wrong = "get of " + name_ + " came back later than it was asked to, by " + seconds_of(late);
    }
    return route;
  }

  [[nodiscard]] std::string remark() override {
    const std::optional<std::string> text = get(base::now());
    if (!text) return "; " + name_ + " does not hold what rank 0 has written there";
    if (*text == written_) return has_loopback(tcp::local_addresses()) ? "" : std::string("; ") + kLoopbackIsDown;
    return "; another process has written to " + name_ +
           " since: two processes have rank 0, or two jobs meet there; give every job a place of its own";
  }

  [[nodiscard]] std::string describe() const override { return name_; }

  [[nodiscard]] const WatchedStore* watched() const noexcept override {
    return dynamic_cast<const WatchedStore*>(store_.get());
  }

 private:
  /// A store of the program's may throw any exception.
  template <class Action>
  auto call(const char* what, Action action) -> decltype(action()) {
    try {
      return action();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(ErrorCode::user_exception, std::string(what) + " of " + name_ + " threw: " + error.what());
    }
  }

  std::optional<std::string> get(base::Time deadline) {
    const auto left = std::max<base::Duration>(deadline - base::now(), base::Duration::zero());
    return call("get", [&] { return store_->get(kEntry, std::chrono::duration_cast<std::chrono::nanoseconds>(left)); });
  }

  /// To where the text says. No endpoints, and `wrong` says why, if it is not of this job.
  [[nodiscard]] NetworkRoute route_by(const std::optional<std::string>& text) const {
    NetworkRoute route;
    std::string proof;
    const std::optional<StoreEntry> entry = text ? decode_entry(*text, proof) : std::nullopt;
    if (!text) {
      route.wrong = "rank 0 has left no address in " + name_;
    } else if (!entry) {
      route.wrong = name_ + " holds something that is not of Kolo, or of another release";
    } else if (proof != proof_of(*entry, key_)) {
      route.wrong = name_ + " is stale, or of another job: what it holds was made with another KOLO_JOB_KEY";
    } else {
      route.key = key_of(key_, entry->word);
      route.doubt = " (what " + name_ + " holds may be an earlier job's)";
      for (const auto& [address, port] : entry->addresses) {
        for (Endpoint& one : resolve(address, port, route.wrong)) route.endpoints.push_back(one);
      }
    }
    return route;
  }

  static void listen_at_all(Listening& listening, StoreEntry& entry) {
    int error = 0;
    base::UniqueFd fd = listen_everywhere(0, error);
    if (!fd.valid()) base::throw_errno("rank 0 cannot listen for the other ranks", error);
    const std::uint16_t port = own_endpoint(fd.get()).port();
    const std::vector<tcp::LocalAddress> all = tcp::local_addresses();
    if (all.empty())
      throw Error(ErrorCode::transport, std::string("this machine has no network address; ") + kLoopbackIsDown);
    for (const tcp::LocalAddress& one : all) {
      entry.addresses.emplace_back(one.address.to_string(), port);
    }
    listening.sockets.push_back(std::move(fd));
  }

  void listen_at_some(Listening& listening, StoreEntry& entry) const {
    for (const tcp::LocalAddress& one : tcp::select_addresses(tcp::local_addresses(), interface_)) {
      int error = 0;
      std::string wrong;
      const std::string address = one.address.to_string();
      base::UniqueFd fd = listen_at(resolve(address, 0, wrong).at(0), error);
      if (!fd.valid()) base::throw_errno("rank 0 cannot listen at " + address + " (KOLO_INTERFACE)", error);
      entry.addresses.emplace_back(address, own_endpoint(fd.get()).port());
      listening.sockets.push_back(std::move(fd));
    }
  }

  const std::shared_ptr<Store> store_;
  const std::string name_;
  const std::string interface_;
  const JobKey key_;
  std::string written_;  // by rank 0
};

}  // namespace

std::string why_unreachable(const std::vector<Endpoint>& endpoints) {
  const std::vector<tcp::LocalAddress> ours = tcp::local_addresses();
  if (endpoints.empty() || has_loopback(ours)) return {};
  const auto is_ours = [&](const Endpoint& endpoint) {
    const std::string text = address_text(endpoint);
    return text == "::1" || text.rfind("127.", 0) == 0 ||
           std::any_of(ours.begin(), ours.end(), [&](const auto& each) { return each.address.to_string() == text; });
  };
  return std::all_of(endpoints.begin(), endpoints.end(), is_ours) ? kLoopbackIsDown : "";
}

std::unique_ptr<Directions> fixed_directions(std::string host, std::vector<std::uint16_t> ports, const JobKey& key) {
  return std::make_unique<FixedDirections>(std::move(host), std::move(ports), key);
}

std::unique_ptr<Directions> store_directions(std::shared_ptr<Store> store, std::string name, std::string interface,
                                             const JobKey& key) {
  return std::make_unique<StoreDirections>(std::move(store), std::move(name), std::move(interface), key);
}

namespace {

constexpr const char* kEntryFormat = "kolo-1";

std::string body_of(const StoreEntry& entry) {
  std::string text = entry.word;
  for (const auto& [address, port] : entry.addresses) text += " " + address + "|" + std::to_string(port);
  return text;
}

}  // namespace

std::string proof_of(const StoreEntry& entry, const JobKey& key) {
  return base::hex_of(base::prove(key.secret, "entry " + key.job + "\n" + body_of(entry)));
}

std::string encode(const StoreEntry& entry, const JobKey& key) {
  return std::string(kEntryFormat) + " " + proof_of(entry, key) + " " + body_of(entry);
}

std::optional<StoreEntry> decode_entry(const std::string& text, std::string& proof) {
  const std::vector<std::string> words = base::words(text);
  StoreEntry entry;
  base::Word word{};
  if (words.size() < 3 || words[0] != kEntryFormat || !base::word_from_hex(words[2], word)) return {};
  proof = words[1];
  entry.word = words[2];
  for (std::size_t i = 3; i < words.size(); ++i) {
    const std::string& one = words[i];
    const std::size_t bar = one.find('|');
    if (bar == std::string::npos) return {};
    const auto port = base::parse_number<std::uint16_t>(std::string_view(one).substr(bar + 1));
    if (!port || !tcp::parse_address(one.substr(0, bar))) return {};
    entry.addresses.emplace_back(one.substr(0, bar), *port);
  }
  return entry;
}

}  // namespace kolo::launch
