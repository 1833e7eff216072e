// SPDX-License-Identifier: Apache-2.0
#include "mpi/mpi_inter_node.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {
namespace {

constexpr int kIndexBits = 32;
/// How many receives listen at a time.
constexpr std::size_t kEars = 4;

}  // namespace

MpiInterNode::MpiInterNode(Communicator communicator, std::size_t piece_bytes)
    : communicator_(std::move(communicator)), piece_bytes_(piece_bytes),
      tags_(std::int64_t{communicator_.tag_limit()} + 1) {
  KOLO_CHECK(piece_bytes > 0 && piece_bytes <= std::size_t{std::numeric_limits<int>::max()}) << piece_bytes;
  KOLO_CHECK(thread_level() >= ThreadLevel::serialized || is_main_thread()) << "made on a thread that may not call MPI";
}

MpiInterNode::~MpiInterNode() {
  if (end_listening() && transfers_.size() == free_.size()) return;
  communicator_.abandon();
  staging_.keep();
}

std::size_t MpiInterNode::claim(int rank) {
  if (free_.empty()) {
    free_.push_back(transfers_.size());
    transfers_.emplace_back();
  }
  const std::size_t index = free_.back();
  free_.pop_back();
  Transfer& transfer = transfers_[index];
  transfer = {0, 0, transfer.generation + 1, rank, true};
  return index;
}

transport::InterNode::Operation MpiInterNode::name_of(std::size_t index) const noexcept {
  return Operation{transfers_[index].generation} << kIndexBits | (index + 1);
}

int MpiInterNode::mapped(int tag) const {
  KOLO_CHECK(tag >= 0) << "tag " << tag;
  return static_cast<int>(tag % tags_);
}

template <class OpenPiece>
transport::InterNode::Operation MpiInterNode::in_pieces(int rank, std::size_t bytes, bool receives,
                                                        OpenPiece open_piece) {
  // Claimed first: if a piece fails, the pieces before it stay open, and so does the transfer.
  const std::size_t index = claim(rank);
  std::size_t begin = 0;
  do {
    const std::size_t piece = std::min(bytes - begin, piece_bytes_);
    requests_.add(open_piece(begin, static_cast<int>(piece)), {index, /*due=*/receives ? piece : 0});
    ++transfers_[index].open_pieces;
    begin += piece;
  } while (begin < bytes);
  return name_of(index);
}

transport::InterNode::Operation MpiInterNode::send(int rank, int tag, const std::byte* data, std::size_t bytes) {
  return in_pieces(rank, bytes, false, [&](std::size_t begin, int piece) {
    return communicator_.send(rank, mapped(tag), data + begin, piece);
  });
}

transport::InterNode::Operation MpiInterNode::receive(int rank, int tag, std::byte* data, std::size_t bytes) {
  return in_pieces(rank, bytes, true, [&](std::size_t begin, int piece) {
    return communicator_.receive(rank, mapped(tag), data + begin, piece);
  });
}

bool MpiInterNode::test(Operation operation) {
  const std::size_t index = (operation & ((Operation{1} << kIndexBits) - 1)) - 1;
  KOLO_CHECK(operation != 0 && index < transfers_.size() && name_of(index) == operation && transfers_[index].claimed)
      << "operation " << operation << " is not open";
  if (transfers_[index].open_pieces > 0 && transfers_[index].looked_at == looks_) look();
  Transfer& transfer = transfers_[index];
  transfer.looked_at = looks_;
  if (transfer.open_pieces > 0) return false;
  transfer.claimed = false;
  free_.push_back(index);
  return true;
}

void MpiInterNode::open(Listener::Ear& ear) {
  ear.request = communicator_.receive(MPI_ANY_SOURCE, listener_.tag, ear.data, static_cast<int>(listener_.bytes));
}

void MpiInterNode::listen(int tag, std::size_t bytes) {
  KOLO_CHECK(listener_.ears.empty() && bytes <= piece_bytes_) << bytes;
  listener_.tag = mapped(tag);
  listener_.bytes = bytes;
  for (std::size_t i = 0; i < kEars; ++i) {
    listener_.ears.emplace_back().data = staging(bytes);
    open(listener_.ears.back());
  }
}

/// MPI matches messages with receives in the order in which they were opened, so only the oldest is tested.
std::optional<transport::InterNode::Heard> MpiInterNode::hear() {
  std::vector<Listener::Ear>& ears = listener_.ears;
  if (ears.empty()) return std::nullopt;
  if (std::exchange(listener_.heard, false)) open(ears[(listener_.next + ears.size() - 1) % ears.size()]);
  Listener::Ear& ear = ears[listener_.next];
  const std::optional<Origin> origin = test_receive(ear.request);
  if (!origin) return std::nullopt;
  listener_.heard = true;
  listener_.next = (listener_.next + 1) % ears.size();
  return Heard{origin->rank, ear.data, origin->bytes};
}

/// Whether MPI does not use the receives' memory any more.
bool MpiInterNode::end_listening() noexcept {
  if (listener_.ears.empty()) return true;
  try {
    if (is_finalized()) return false;
  } catch (const Error&) {
    return false;  // MPI cannot even say whether it is alive
  }
  bool all = true;
  for (Listener::Ear& ear : listener_.ears) {
    if (ear.request != MPI_REQUEST_NULL) all = cancel_receive(ear.request) && all;
  }
  return all;
}

void MpiInterNode::look() {
  ++looks_;
  // MPI moves data only if nothing had completed before, and then does not report what has completed by that.
  const std::vector<Requests::Completed>* completed = &requests_.test();
  if (completed->empty()) completed = &requests_.test();
  for (const Requests::Completed& one : *completed) {
    Transfer& transfer = transfers_[one.note.owner];
    --transfer.open_pieces;
    if (one.note.due != 0 && one.received != one.note.due) {
      throw Error(ErrorCode::transport, "rank " + std::to_string(transfer.rank) + " sent " +
                                            std::to_string(one.received) + " bytes where " +
                                            std::to_string(one.note.due) + " were due");
    }
  }
}

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
