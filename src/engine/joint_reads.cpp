// SPDX-License-Identifier: Apache-2.0
#include "engine/joint_reads.hpp"

#include <chrono>

#include "base/clock.hpp"

namespace kolo::engine {
namespace {

/// How long a peer that writes is waited for before the system is asked whether it runs.
constexpr std::chrono::milliseconds kPatience{2};

constexpr int kBits = transport::JointCopy::kNumberBits;
constexpr std::uint64_t pack(std::uint64_t call, transport::JointCopy::Number number) noexcept {
  return call << kBits | number;
}

}  // namespace

JointReads::JointReads(control::Express& express, transport::PeerMemory* memory, const std::vector<int>& local_ranks)
    : express_(express), memory_(express.ranks() <= kMostRanks ? memory : nullptr), local_ranks_(local_ranks),
      own_(express.local_rank()) {}

JointReads::State& JointReads::state(int reader, int owner) const noexcept {
  return reinterpret_cast<State*>(express_.extra(reader))[owner];
}

bool JointReads::begin(int rank, std::byte* to, const std::byte* from, std::size_t bytes, std::size_t least,
                       transport::JointCopy::Cut cut) noexcept {
  if (memory_ == nullptr || !memory_->sees_writers() || bytes < least || unfit_[static_cast<std::size_t>(rank)])
    return false;
  State& one = state(own_, rank);
  const transport::JointCopy::Number number = one.copy.open(to, bytes, cut);
  if (number == 0) return false;
  open_[static_cast<std::size_t>(rank)] = true;
  one.to = to;
  one.from = from;
  one.bytes = bytes;
  one.opened.store(pack(express_.call(), number), std::memory_order_release);
  return true;
}

void JointReads::finish(int rank, const Read& read, const Await& await) {
  State& one = state(own_, rank);
  std::size_t done = 0;  // from the begin on
  try {
    for (;;) {
      transport::JointCopy::Piece piece = one.copy.take();
      if (piece.bytes == 0) {
        if (!await_owner(rank, await)) {
          close(rank);
          return read(one.to + done, one.from + done, one.bytes - done);
        }
        piece = one.copy.take();  // what the owner could not write comes back
        if (piece.bytes == 0) break;
      }
      read(one.to + piece.begin, one.from + piece.begin, piece.bytes);
      done = piece.begin + piece.bytes;
    }
  } catch (...) {
    end();
    throw;
  }
  close(rank);
}

/// Until the owner is not writing; false: it was stopped while it was.
bool JointReads::await_owner(int rank, const Await& await) {
  const transport::JointCopy& copy = state(own_, rank).copy;
  if (copy.is_idle()) return true;
  bool was_stopped = false;
  base::Time next_look = base::now() + kPatience;
  await([&] {
    if (copy.is_idle()) return true;
    if (base::now() >= next_look) {
      was_stopped = copy.is_stuck(*memory_, local_ranks_[static_cast<std::size_t>(rank)]);
      next_look = base::now() + kPatience;
    }
    return was_stopped;
  });
  return copy.is_idle();
}

void JointReads::close(int rank) noexcept {
  const auto place = static_cast<std::size_t>(rank);
  open_[place] = false;
  unfit_[place] = state(own_, rank).copy.revoke(*memory_, local_ranks_[place]) != transport::JointCopy::Revoked::free;
}

void JointReads::end() noexcept {
  for (int rank = 0; rank < kMostRanks; ++rank) {
    if (open_[static_cast<std::size_t>(rank)]) close(rank);
  }
}

void JointReads::help(int rank, const DataOf& data_of) {
  const auto place = static_cast<std::size_t>(rank);
  if (memory_ == nullptr || cannot_[place]) return;
  State& one = state(rank, own_);
  const std::uint64_t opened = one.opened.load(std::memory_order_acquire);
  const auto number = static_cast<transport::JointCopy::Number>(opened % (std::uint64_t{1} << kBits));
  if (opened == 0 || opened != pack(express_.call(), number)) return;
  using Help = transport::JointCopy::Help;
  const auto data = [&](const transport::JointCopy::Piece& piece) {
    return data_of(one.from, piece.begin, piece.bytes);
  };
  cannot_[place] = one.copy.help(*memory_, local_ranks_[place], number, data) == Help::failed;
}

}  // namespace kolo::engine
