// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/ucx_inter_node.hpp"

#include <algorithm>
#include <chrono>

#include <kolo/error.hpp>

#include "base/check.hpp"

namespace kolo::ucx {
namespace {

constexpr int kIndexBits = 32;
/// Receives that listen at a time.
constexpr std::size_t kEars = 4;
/// Calls of UCX's progress in one pass, at most: others of the engine's want their turn.
constexpr int kMostMoves = 64;
/// For how long cancelled calls are waited for at the end. They need nobody else.
constexpr std::chrono::seconds kPatienceAtTheEnd{1};

constexpr int kRankShift = 32;
constexpr std::uint64_t kTagMask = (std::uint64_t{1} << kRankShift) - 1;
constexpr std::uint64_t kWholeMask = ~std::uint64_t{0};

std::uint64_t tag_of(int sender, int tag) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(sender)} << kRankShift | static_cast<std::uint32_t>(tag);
}

}  // namespace

UcxInterNode::UcxInterNode(std::unique_ptr<Worker> worker, int rank, const std::vector<std::string>& addresses)
    : worker_(std::move(worker)), rank_(rank), peers_(addresses.size()) {
  for (std::size_t i = 0; i < addresses.size(); ++i) peers_[i].address = addresses[i];
}

UcxInterNode::~UcxInterNode() {
  const bool all_completed = transfers_.size() == free_.size();
  const bool all_ended = end();
  if (!all_completed || !all_ended) staging_.keep();
  if (!all_ended) static_cast<void>(worker_.release());  // UCX still has calls that it would complete
}

/// Cancels what is open, and closes the connections; whether all of that has ended.
bool UcxInterNode::end() noexcept {
  std::vector<Call> calls;
  for (const Transfer& transfer : transfers_)
    if (transfer.claimed && transfer.call.request != nullptr) calls.push_back(transfer.call);
  for (const Ear& ear : listener_.ears)
    if (ear.call.request != nullptr) calls.push_back(ear.call);
  for (const Call& call : calls)
    if (call.receives) worker_->cancel(call);
  for (const Peer& peer : peers_)
    if (peer.endpoint != nullptr) calls.push_back(worker_->close(peer.endpoint));  // ends the sends
  const auto has_ended = [this](Call& call) { return worker_->has_ended(call); };
  const base::Time until = base::now() + kPatienceAtTheEnd;
  while (true) {
    calls.erase(std::remove_if(calls.begin(), calls.end(), has_ended), calls.end());
    if (calls.empty()) return true;
    if (base::now() >= until) return false;
    worker_->progress();
  }
}

// ---------------------------------------------------------------- messages

UcxInterNode::Peer& UcxInterNode::connect(int rank) {
  KOLO_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < peers_.size() && rank != rank_) << "rank " << rank;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.endpoint == nullptr) {
    peer.endpoint = worker_->connect(peer.address, &UcxInterNode::on_error, this);
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
  return note(rank, bytes, worker_->receive(tag_of(rank, tag), kWholeMask, data, bytes));
}

bool UcxInterNode::test(Operation operation) {
  const std::size_t index = (operation & ((Operation{1} << kIndexBits) - 1)) - 1;
  KOLO_CHECK(operation != 0 && index < transfers_.size() && transfers_[index].claimed &&
             transfers_[index].generation == operation >> kIndexBits)
      << "operation " << operation << " is not open";
  Transfer& transfer = transfers_[index];
  if (transfer.failed || !worker_->has_ended(transfer.call)) return false;
  const Call& call = transfer.call;
  Peer& peer = peers_[static_cast<std::size_t>(transfer.rank)];
  if (call.receives &&
      (call.status == UCS_ERR_MESSAGE_TRUNCATED || (call.status == UCS_OK && call.bytes != transfer.due))) {
    const bool is_longer = call.status != UCS_OK;
    throw Error(ErrorCode::transport, "rank " + std::to_string(transfer.rank) + " sent " +
                                          (is_longer ? "more" : std::to_string(call.bytes)) + " bytes where " +
                                          std::to_string(transfer.due) + " were due");
  }
  if (call.status != UCS_OK) {
    transfer.failed = true;
    fail(peer, call.status);
    return false;
  }
  --peer.open;
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

/// UCX matches messages with receives in the order in which they were opened, so the oldest is looked at alone.
std::optional<transport::InterNode::Heard> UcxInterNode::hear() {
  std::vector<Ear>& ears = listener_.ears;
  if (ears.empty()) return std::nullopt;
  if (std::exchange(listener_.heard, false)) open(ears[(listener_.next + ears.size() - 1) % ears.size()]);
  Ear& ear = ears[listener_.next];
  if (!worker_->has_ended(ear.call)) return std::nullopt;
  const int from = static_cast<int>(ear.call.tag >> kRankShift);
  if (ear.call.status == UCS_ERR_MESSAGE_TRUNCATED) {
    throw Error(ErrorCode::transport, "a rank sent more than the " + std::to_string(listener_.bytes) +
                                          " bytes that a message of this kind may have");
  }
  listener_.heard = true;
  listener_.next = (listener_.next + 1) % ears.size();
  if (ear.call.status != UCS_OK) {  // it was on its way, and its sender is gone
    KOLO_CHECK(from >= 0 && static_cast<std::size_t>(from) < peers_.size()) << from;
    fail(peers_[static_cast<std::size_t>(from)], ear.call.status);
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

void UcxInterNode::progress(base::Time /*now*/) {
  if (abandoned_.load(std::memory_order_relaxed)) return;
  has_news_ |= move();
  if (has_failures_) report();
}

/// What the last `progress` moved may have come after the driver had tested for it.
bool UcxInterNode::arm() {
  if (abandoned_.load(std::memory_order_relaxed)) return true;
  has_news_ |= move();
  has_news_ |= has_failures_ && report();
  return !std::exchange(has_news_, false) && worker_->arm();
}

/// Inside UCX's progress: the engine is told afterwards.
void UcxInterNode::on_error(void* self, ucp_ep_h endpoint, ucs_status_t status) noexcept {
  auto& node = *static_cast<UcxInterNode*>(self);
  for (Peer& peer : node.peers_)
    if (peer.endpoint == endpoint) node.fail(peer, status);
}

void UcxInterNode::fail(Peer& peer, ucs_status_t status) noexcept {
  if (peer.failure != UCS_OK) return;
  peer.failure = status;
  has_failures_ = true;
}

/// Whether there was anything to tell.
bool UcxInterNode::report() {
  bool is_any_left = false;
  bool told = false;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (peer.failure == UCS_OK || peer.told) continue;
    if (peer.open == 0 && !expects_) {
      is_any_left = true;
      continue;
    }
    peer.told = told = true;
    if (reports_.peer_lost) {
      reports_.peer_lost(static_cast<int>(rank),
                         "the connection to it has failed (UCX: " + worker_->library().describe(peer.failure) + ")");
    }
  }
  has_failures_ = is_any_left;
  return told;
}

}  // namespace kolo::ucx
