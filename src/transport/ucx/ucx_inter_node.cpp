// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/ucx_inter_node.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"

namespace kolo::ucx {
namespace {

constexpr int kIndexBits = 32;
/// How many receives listen at a time.
constexpr std::size_t kEars = 4;
/// The most calls of UCX's progress in one pass: the engine has other work, too.
constexpr int kMostMoves = 64;
/// How long the end waits for cancelled calls, which need no other rank.
constexpr std::chrono::seconds kPatienceAtTheEnd{1};
/// How long `meet` sleeps at most before it looks at the time.
constexpr std::chrono::milliseconds kLongestSleep{1000};
/// The tag of `meet`. All other tags are not negative.
constexpr int kMeetingTag = -1;

constexpr int kRankShift = 32;
constexpr std::uint64_t kTagMask = (std::uint64_t{1} << kRankShift) - 1;
constexpr std::uint64_t kWholeMask = ~std::uint64_t{0};

std::uint64_t tag_of(int sender, int tag) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(sender)} << kRankShift | static_cast<std::uint32_t>(tag);
}

}  // namespace

UcxInterNode::UcxInterNode(std::unique_ptr<Worker> worker, int rank, const std::vector<std::string>& addresses)
    : worker_(std::move(worker)), rank_(rank), peers_(addresses.size()) {
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    peers_[i].address = addresses[i];
    peers_[i].connected = addresses[i].empty();
  }
  failed_.reserve(addresses.size());  // the code that appends to it must not throw
}

UcxInterNode::~UcxInterNode() {
  const bool in_peace = transfers_.size() == free_.size() && !abandoned_.load(std::memory_order_relaxed);
  const bool all_ended = (in_peace || are_connected()) && end();
  if (!in_peace || !all_ended) staging_.keep();
  if (!all_ended) static_cast<void>(worker_.release());  // UCX may still complete calls
}

/// Whether no connection is being made, in either direction.
bool UcxInterNode::are_connected() const noexcept {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank)
    if (static_cast<int>(rank) != rank_ && !peers_[rank].connected) return false;
  return true;
}

/// Whether all started calls have ended.
bool UcxInterNode::have_ended() noexcept {
  bool all = true;
  for (Transfer& transfer : transfers_)
    if (transfer.claimed) all &= worker_->has_ended(transfer.call);
  for (Ear& ear : listener_.ears) all &= worker_->has_ended(ear.call);
  for (Peer& peer : peers_) all &= worker_->has_ended(peer.closing);
  return all;
}

/// Closes the connections, and cancels open calls. Returns whether all have ended. A receive that a message has begun
/// to fill cannot be cancelled: it ends with the connection.
bool UcxInterNode::end() noexcept {
  for (Peer& peer : peers_)
    if (peer.endpoint != nullptr) peer.closing = worker_->close(peer.endpoint);
  move();
  for (const Transfer& transfer : transfers_)
    if (transfer.claimed && transfer.call.receives) worker_->cancel(transfer.call);
  for (const Ear& ear : listener_.ears) worker_->cancel(ear.call);
  const base::Time until = base::now() + kPatienceAtTheEnd;
  try {
    while (!have_ended()) {
      if (base::now() >= until) return false;
      if (move() || !worker_->arm()) continue;
      ::pollfd ready{worker_->event_fd(), POLLIN, 0};
      static_cast<void>(::poll(&ready, 1, 1));  // its result does not matter: the next turn looks again
    }
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::vector<int> UcxInterNode::meet(const std::vector<int>& ranks, base::Time until) {
  std::byte* const memory = staging(2 * ranks.size());
  std::vector<Operation> open;
  for (const int rank : ranks) {
    open.push_back(receive(rank, kMeetingTag, memory + open.size(), 1));
    open.push_back(send(rank, kMeetingTag, memory + open.size(), 1));
  }
  const auto waits_for = [&](std::size_t i) { return open[2 * i] != 0 || open[2 * i + 1] != 0; };
  for (;;) {
    move();
    bool waits = false;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      for (Operation* each : {&open[2 * i], &open[2 * i + 1]})
        if (*each != 0 && test(*each)) *each = 0;
      waits = waits || (waits_for(i) && peers_[static_cast<std::size_t>(ranks[i])].failure == UCS_OK);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - base::now());
    if (!waits || left.count() <= 0) break;
    if (!worker_->arm()) continue;
    ::pollfd ready{worker_->event_fd(), POLLIN, 0};
    static_cast<void>(::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left.count(), kLongestSleep.count()))));
  }
  std::vector<int> missing;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (waits_for(i)) missing.push_back(ranks[i]);
  if (missing.empty()) give_back(memory);
  return missing;
}

// ---------------------------------------------------------------- messages

UcxInterNode::Peer& UcxInterNode::connect(int rank) {
  KOLO_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < peers_.size() && rank != rank_) << "rank " << rank;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.endpoint == nullptr) {
    try {
      peer.endpoint = worker_->connect(peer.address, &UcxInterNode::on_error, this);
    } catch (const Error& error) {
      throw Error(ErrorCode::transport, "UCX finds no way to rank " + std::to_string(rank) + " (" +
                                            error.status().message() + "): set KOLO_INTERFACE or UCX_NET_DEVICES to " +
                                            "one network on all hosts, and UCX_TLS alike");
    }
    peer.address = {};
  }
  return peer;
}

transport::InterNode::Operation UcxInterNode::note(int rank, std::size_t due, const Call& call) {
  if (free_.empty()) {
    free_.push_back(transfers_.size());
    transfers_.emplace_back();
  }
  const std::size_t index = free_.back();
  free_.pop_back();
  Transfer& transfer = transfers_[index];
  transfer = {call, due, transfer.generation + 1, rank, true, false};
  ++peers_[static_cast<std::size_t>(rank)].open;
  return Operation{transfer.generation} << kIndexBits | (index + 1);
}

transport::InterNode::Operation UcxInterNode::send(int rank, int tag, const std::byte* data, std::size_t bytes) {
  const Peer& peer = connect(rank);
  return note(rank, 0, worker_->send(peer.endpoint, tag_of(rank_, tag), data, bytes));
}

/// The receive needs no connection, but without one the sender's death would not be noticed.
transport::InterNode::Operation UcxInterNode::receive(int rank, int tag, std::byte* data, std::size_t bytes) {
  static_cast<void>(connect(rank));
  ++receives_;
  return note(rank, bytes, worker_->receive(tag_of(rank, tag), kWholeMask, data, bytes));
}

/// Throws if the call failed for a reason other than a peer's end.
void UcxInterNode::check_own(const Call& call) const {
  const bool is_own = call.status == UCS_ERR_NO_MEMORY || (call.receives && !call.began);
  if (call.status == UCS_OK || !is_own) return;
  throw Error(ErrorCode::transport, std::string("UCX could not ") + (call.receives ? "receive" : "send") + ": " +
                                        worker_->library().describe(call.status));
}

bool UcxInterNode::test(Operation operation) {
  const std::size_t index = (operation & ((Operation{1} << kIndexBits) - 1)) - 1;
  KOLO_CHECK(operation != 0 && index < transfers_.size() && transfers_[index].claimed &&
             transfers_[index].generation == operation >> kIndexBits)
      << "operation " << operation << " is not open";
  Transfer& transfer = transfers_[index];
  if (transfer.failed || !worker_->has_ended(transfer.call)) return false;
  const Call& call = transfer.call;
  check_own(call);
  if (call.receives &&
      (call.status == UCS_ERR_MESSAGE_TRUNCATED || (call.status == UCS_OK && call.bytes != transfer.due))) {
    const bool is_longer = call.status != UCS_OK;
    throw Error(ErrorCode::transport, "rank " + std::to_string(transfer.rank) + " sent " +
                                          (is_longer ? "more" : std::to_string(call.bytes)) + " bytes where " +
                                          std::to_string(transfer.due) + " were due");
  }
  if (call.status != UCS_OK) {
    transfer.failed = true;
    fail(transfer.rank, call.status);
    return false;
  }
  if (call.receives) {
    --receives_;
    pace_.receive();
  }
  Peer& peer = peers_[static_cast<std::size_t>(transfer.rank)];
  --peer.open;
  peer.connected = true;
  transfer.claimed = false;
  free_.push_back(index);
  return true;
}

void UcxInterNode::open(Ear& ear) noexcept {
  ear.call = worker_->receive(tag_of(0, listener_.tag), kTagMask, ear.data, listener_.bytes);
}

void UcxInterNode::listen(int tag, std::size_t bytes) {
  KOLO_CHECK(listener_.ears.empty()) << "tag " << tag << ", though tag " << listener_.tag << " is listened for";
  listener_.tag = tag;
  listener_.bytes = bytes;
  for (std::size_t i = 0; i < kEars; ++i) {
    listener_.ears.emplace_back().data = staging(bytes);
    open(listener_.ears.back());
  }
}

/// UCX matches messages with receives in the order in which they were opened, so only the oldest is tested.
std::optional<transport::InterNode::Heard> UcxInterNode::hear() {
  std::vector<Ear>& ears = listener_.ears;
  if (ears.empty()) return std::nullopt;
  if (std::exchange(listener_.heard, false)) open(ears[(listener_.next + ears.size() - 1) % ears.size()]);
  Ear& ear = ears[listener_.next];
  if (!worker_->has_ended(ear.call)) return std::nullopt;
  check_own(ear.call);
  const int from = static_cast<int>(ear.call.tag >> kRankShift);
  if (ear.call.status == UCS_ERR_MESSAGE_TRUNCATED) {
    throw Error(ErrorCode::transport, "a rank sent more than the " + std::to_string(listener_.bytes) +
                                          " bytes that a message of this kind may have");
  }
  listener_.heard = true;
  listener_.next = (listener_.next + 1) % ears.size();
  if (ear.call.status != UCS_OK) {  // the message was under way, and its sender is gone
    KOLO_CHECK(from >= 0 && static_cast<std::size_t>(from) < peers_.size()) << from;
    fail(from, ear.call.status);
    return std::nullopt;
  }
  return Heard{from, ear.data, ear.call.bytes};
}

// ---------------------------------------------------------------- the engine's

bool UcxInterNode::move() noexcept {
  int moves = 0;
  while (moves < kMostMoves && worker_->progress()) ++moves;
  return moves > 0;
}

void UcxInterNode::progress(base::Time now) {
  if (abandoned_.load(std::memory_order_relaxed)) return;
  move();
  report();
  pace_.look(now, transfers_.size() - free_.size());
}

/// A failure that was kept may have to be reported now. UCX itself says whether something has come.
bool UcxInterNode::arm() {
  if (abandoned_.load(std::memory_order_relaxed)) return true;
  return !report() && worker_->arm();
}

/// Runs inside UCX's progress; the engine gets the report afterwards.
void UcxInterNode::on_error(void* self, ucp_ep_h endpoint, ucs_status_t status) noexcept {
  auto& node = *static_cast<UcxInterNode*>(self);
  for (std::size_t rank = 0; rank < node.peers_.size(); ++rank)
    if (node.peers_[rank].endpoint == endpoint) node.fail(static_cast<int>(rank), status);
}

void UcxInterNode::fail(int rank, ucs_status_t status) noexcept {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.failure != UCS_OK) return;
  peer.failure = status;
  failed_.push_back(rank);
}

/// Reports failures to the engine. Returns whether there was one.
bool UcxInterNode::report() {
  if (failed_.empty()) return false;
  const auto concerns = [this](int rank) { return expects_ || peers_[static_cast<std::size_t>(rank)].open > 0; };
  const auto told = std::stable_partition(failed_.begin(), failed_.end(), [&](int rank) { return !concerns(rank); });
  const std::vector<int> ranks(told, failed_.end());
  failed_.erase(told, failed_.end());
  for (const int rank : ranks) {
    const ucs_status_t failure = peers_[static_cast<std::size_t>(rank)].failure;
    if (reports_.peer_lost) {
      reports_.peer_lost(rank, "the connection to it has failed (UCX: " + worker_->library().describe(failure) + ")");
    }
  }
  return !ranks.empty();
}

}  // namespace kolo::ucx
