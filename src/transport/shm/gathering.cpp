// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/gathering.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include <kolo/error.hpp>

#include "base/system_error.hpp"
#include "base/text.hpp"
#include "core/signature.hpp"

namespace kolo::shm {

namespace {

constexpr char kGreeting[] = "kolo node ";
/// The time between two calls of Gathering::check.
constexpr std::chrono::milliseconds kCheckEvery{50};
/// How many connections, besides the ranks of the node, may be open without a greeting; then the oldest is closed.
constexpr std::size_t kMostStrangers = 64;

/// The first packet of a rank, and the leader's answer.
std::string greeting(int local_rank, const std::string& job_key) {
  return kGreeting + std::to_string(local_rank) + ' ' + job_key;
}

/// The local rank of a greeting with the right key; empty for any other packet.
std::optional<int> understand(const Packet& packet, const std::string& job_key) {
  int local_rank = 0;
  const std::size_t prefix = sizeof kGreeting - 1;
  if (packet.bytes.compare(0, prefix, kGreeting) != 0) return {};
  const char* end = packet.bytes.data() + packet.bytes.size();
  const auto parsed = std::from_chars(packet.bytes.data() + prefix, end, local_rank);
  if (parsed.ec != std::errc() || std::string(parsed.ptr, end) != ' ' + job_key) return {};
  return local_rank;
}

/// The leader's wait for its node: each connection is served when its packet has come, and delays no other.
class Reception {
 public:
  Reception(LocalListener& listener, const Gathering& gathering)
      : listener_(listener), gathering_(gathering),
        here_(static_cast<std::size_t>(gathering.topology.local_size()), false) {
    here_.front() = true;
  }

  std::vector<Member> run() {
    while (members_.size() + 1 < here_.size()) {
      wait();
      hear();
      accept();
    }
    return std::move(members_);
  }

 private:
  void wait() {
    gathering_.check();
    const base::Time now = base::now();
    if (now >= gathering_.deadline) throw PeerError(describe_missing());
    std::vector<pollfd> entries{{listener_.fd(), POLLIN, 0}};
    for (const LocalSocket& socket : silent_) entries.push_back({socket.fd(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(gathering_.deadline - now);
    if (::poll(entries.data(), entries.size(), static_cast<int>(std::min(left, kCheckEvery).count())) < 0 &&
        errno != EINTR)
      base::throw_errno("waiting for the ranks of this node", errno);
  }

  /// Connections whose packet has come become members, or are closed.
  void hear() {
    for (std::size_t i = 0; i < silent_.size();) {
      if (!silent_[i].has_packet()) {
        ++i;
        continue;
      }
      LocalSocket socket = std::move(silent_[i]);
      silent_.erase(silent_.begin() + static_cast<std::ptrdiff_t>(i));
      take_spare();
      spare_.reset();  // for the descriptor that it brings
      hear(std::move(socket));
    }
  }

  void hear(LocalSocket socket) {
    std::optional<Packet> hello;
    try {
      hello = socket.try_receive();
    } catch (const PeerError&) {
      return;  // a rank that closes its socket reports the reason by itself
    }
    const std::optional<int> local_rank = hello ? understand(*hello, gathering_.job_key) : std::nullopt;
    if (!local_rank) return;
    if (hello->descriptors_lost) base::throw_errno("receiving a descriptor from a rank of this node", EMFILE);
    if (hello->descriptors.size() == 1) admit(*local_rank, std::move(socket), std::move(hello->descriptors.front()));
  }

  void admit(int local_rank, LocalSocket socket, base::UniqueFd brought) {
    const auto place = static_cast<std::size_t>(local_rank);
    if (local_rank < 0 || place >= here_.size() || here_[place])
      throw Error(ErrorCode::transport, "two processes say that they are local rank " + std::to_string(local_rank));
    here_[place] = true;
    socket.call_peer(gathering_.name_of(local_rank));
    members_.push_back({local_rank, std::move(socket), std::move(brought)});
  }

  void accept() {
    while (true) {
      take_spare();
      std::optional<LocalSocket> socket;
      try {
        socket = listener_.try_accept();
      } catch (const Error&) {
        if (silent_.empty()) throw;
        if (drop_one()) continue;
      }
      if (!socket) return;
      if (socket->peer().uid != ::geteuid()) continue;
      silent_.push_back(std::move(*socket));
      if (silent_.size() > here_.size() + kMostStrangers) drop_one();
    }
  }

  /// A descriptor that comes with a packet is lost if the process can open no more, so one is kept in reserve.
  void take_spare() {
    while (!spare_.valid()) {
      spare_.reset(::fcntl(listener_.fd(), F_DUPFD_CLOEXEC, 0));
      const int error = errno;
      if (!spare_.valid() && !drop_one()) base::throw_errno("keeping a descriptor for a rank of this node", error);
    }
  }

  /// Closes the oldest connection without a greeting; false if there is none.
  bool drop_one() {
    const auto oldest =
        std::find_if(silent_.begin(), silent_.end(), [](const LocalSocket& socket) { return !socket.has_packet(); });
    if (oldest == silent_.end()) return false;
    silent_.erase(oldest);
    return true;
  }

  [[nodiscard]] std::string describe_missing() const {
    std::vector<std::int32_t> missing;
    for (std::size_t i = 0; i < gathering_.ranks.size(); ++i) {
      if (!here_[i]) missing.push_back(gathering_.ranks[i]);
    }
    base::Text text;
    text << core::describe_ranks(missing) << " did not join the node's shared memory within "
         << base::to_seconds(gathering_.patience) << " s";
    return text.str();
  }

  LocalListener& listener_;
  const Gathering& gathering_;
  std::vector<bool> here_;  // by local rank
  std::vector<Member> members_;
  std::deque<LocalSocket> silent_;  // connected, without a greeting yet
  base::UniqueFd spare_;
};

}  // namespace

std::string Gathering::name_of(int local_rank) const {
  return "rank " + std::to_string(ranks[static_cast<std::size_t>(local_rank)]);
}

std::vector<std::string> together(const transport::Meeting& meet, const std::function<std::string()>& step) {
  constexpr char kDone = '+', kNoMemory = '0', kFailed = '-', kFailedByPeer = '?';
  std::string said;
  try {
    said = kDone + step();
  } catch (const PeerError& error) {
    said = kFailedByPeer + error.status().message();
  } catch (const Error& error) {
    said = (error.code() == ErrorCode::out_of_memory ? kNoMemory : kFailed) + error.status().message();
  }
  std::vector<std::string> all = meet(said);
  for (const char how : {kFailed, kNoMemory, kFailedByPeer}) {
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].empty() || all[rank].front() != how) continue;
      const std::string who = "rank " + std::to_string(rank) + " cannot share memory with its node: ";
      throw Error(how == kNoMemory ? ErrorCode::out_of_memory : ErrorCode::transport,
                  (how == kFailedByPeer ? "sharing memory: " : who) + all[rank].substr(1));
    }
  }
  for (std::string& one : all) one.erase(0, 1);
  return all;
}

void require_descriptors(std::size_t count) {
  std::vector<base::UniqueFd> opened;
  base::UniqueFd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  while (opened.size() + 1 < count && first.valid()) {
    base::UniqueFd next(::fcntl(first.get(), F_DUPFD_CLOEXEC, 0));
    if (!next.valid()) break;
    opened.push_back(std::move(next));
  }
  const int error = errno;
  if (first.valid() && opened.size() + 1 >= count) return;
  base::throw_errno("opening " + std::to_string(count) + " more descriptors", error);
}

std::vector<Member> accept_members(LocalListener& listener, const Gathering& gathering) {
  return Reception(listener, gathering).run();
}

void send_descriptors(std::vector<Member>& members, const std::vector<int>& descriptors, const Gathering& gathering) {
  for (Member& member : members) {
    for (auto first = descriptors.begin(); first != descriptors.end();) {
      const auto last = first + std::min<std::ptrdiff_t>(descriptors.end() - first, LocalSocket::kDescriptorsPerPacket);
      member.socket.send(greeting(0, gathering.job_key), std::vector<int>(first, last), gathering.deadline);
      first = last;
    }
    if (understand(member.socket.receive(gathering.deadline, gathering.check), gathering.job_key) != member.local_rank)
      throw Error(ErrorCode::transport, gathering.name_of(member.local_rank) + " answered as another process");
  }
}

void connect_to_leader(LocalSocket& socket, const std::string& leader, int brought, const Gathering& gathering) {
  socket.call_peer(gathering.name_of(0));
  socket.connect(leader, gathering.deadline);
  if (socket.peer().uid != ::geteuid())
    throw Error(ErrorCode::transport, "the leader of this node belongs to another user");
  socket.send(greeting(gathering.topology.local_rank, gathering.job_key), {brought}, gathering.deadline);
}

std::vector<base::UniqueFd> receive_descriptors(LocalSocket& leader, std::size_t expected, const Gathering& gathering) {
  std::vector<base::UniqueFd> descriptors;
  while (descriptors.size() < expected) {
    Packet packet = leader.receive(gathering.deadline, gathering.check);
    if (packet.descriptors_lost) base::throw_errno("receiving descriptors from the leader of this node", EMFILE);
    if (understand(packet, gathering.job_key) != 0 || packet.descriptors.empty())
      throw Error(ErrorCode::transport, "the leader of this node belongs to another job");
    for (base::UniqueFd& each : packet.descriptors) descriptors.push_back(std::move(each));
  }
  leader.send(greeting(gathering.topology.local_rank, gathering.job_key), {}, gathering.deadline);
  return descriptors;
}

}  // namespace kolo::shm
