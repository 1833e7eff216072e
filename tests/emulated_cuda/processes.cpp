// SPDX-License-Identifier: Apache-2.0
#include "processes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.hpp"
#include "base/hash.hpp"

namespace kolo::emulated {
namespace {

constexpr std::size_t kHeader = 64 << 10;

std::string said(int rank, const Signature& signature) {
  return "\n  rank " + std::to_string(rank) + ": " + to_string(signature);
}

std::string name_of(const std::string& id) { return "/kolo-emulated-" + std::to_string(base::hash_string(id)); }

}  // namespace

ProcessRounds::ProcessRounds(const std::string& id, int size)
    : name_(name_of(id)), size_(size),
      bytes_(kHeader +
             static_cast<std::size_t>(size) * (kMostBytes + static_cast<std::size_t>(size) * kMostMessageBytes)) {
  static_assert(sizeof(Shared) <= kHeader);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  KOLO_CHECK(size <= kMostRanks) << size << " ranks in processes";
  const int file = ::shm_open(name_.c_str(), O_RDWR | O_CREAT, 0600);
  KOLO_CHECK(file >= 0) << "shm_open: " << std::strerror(errno);
  KOLO_CHECK(::ftruncate(file, static_cast<off_t>(bytes_)) == 0) << "ftruncate: " << std::strerror(errno);
  void* const at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  KOLO_CHECK(at != MAP_FAILED) << "mmap: " << std::strerror(errno);
  ::close(file);
  shared_ = static_cast<Shared*>(at);  // zeroes are a valid beginning, whoever comes first
}

ProcessRounds::~ProcessRounds() {
  if (!complete()) ::shm_unlink(name_.c_str());
  KOLO_CHECK(::munmap(shared_, bytes_) == 0) << "munmap: " << std::strerror(errno);
}

void ProcessRounds::join(int /*rank*/) {
  // The last one takes the name away: nobody needs it any more.
  if (shared_->joined.fetch_add(1) + 1 == size_) ::shm_unlink(name_.c_str());
}

std::byte* ProcessRounds::input_of(int rank) const noexcept {
  return reinterpret_cast<std::byte*>(shared_) + kHeader + static_cast<std::size_t>(rank) * kMostBytes;
}

std::byte* ProcessRounds::message_of(int from, int to) const noexcept {
  return input_of(size_) + static_cast<std::size_t>(from * size_ + to) * kMostMessageBytes;
}

bool ProcessRounds::wait(const std::function<bool()>& until, const std::function<bool()>& ended) const {
  while (!until()) {
    if (ended()) return false;
    std::this_thread::yield();
  }
  return true;
}

bool ProcessRounds::run(int rank, const Signature& signature, const Buffers& own, const std::function<bool()>& ended,
                        std::string& dispute) {
  Seat* const seats = shared_->seats;
  const auto all = [&](std::atomic<std::uint64_t> Seat::*count, std::uint64_t least) {
    return std::all_of(seats, seats + size_, [&](const Seat& seat) { return (seat.*count).load() >= least; });
  };
  const std::uint64_t number = seats[rank].brought.load();
  if (!wait([&] { return all(&Seat::taken, number); }, ended)) return false;
  const std::size_t given = input_bytes(signature, rank, size_);
  KOLO_CHECK(given <= kMostBytes) << given << " bytes of one rank between processes";
  if (given > 0) std::memcpy(input_of(rank), own.input, given);
  seats[rank].signature = signature;
  seats[rank].brought.store(number + 1);
  if (!wait([&] { return all(&Seat::brought, number + 1); }, ended)) return false;

  std::vector<Buffers> buffers;
  std::vector<std::vector<std::byte>> others(static_cast<std::size_t>(size_));
  for (int other = 0; other < size_; ++other) {
    if (!agree(seats[other].signature, signature)) {
      dispute = said(rank, signature) + said(other, seats[other].signature);
      return false;
    }
    // What the others get they compute themselves.
    std::vector<std::byte>& unused = others[static_cast<std::size_t>(other)];
    if (other != rank) unused.resize(output_bytes(signature, other, size_));
    buffers.push_back({input_of(other), other == rank ? own.output : unused.data()});
  }
  compute(signature, buffers);
  seats[rank].taken.store(number + 1);
  return true;
}

/// Both return whether something moved.
bool ProcessRounds::send(int rank, Message& message, std::string& dispute) {
  const int to = message.signature.root;
  Channel& line = channel(rank, to);
  if (line.taken.load() > message.number) {
    message.done = true;
    line.over = message.number + 1;
    if (!agree(message.signature, line.wanted)) dispute = said(rank, message.signature) + said(to, line.wanted);
    return true;
  }
  if (line.over != message.number || line.brought.load() != message.number) return false;
  const std::size_t bytes = input_bytes(message.signature, rank, size_);
  KOLO_CHECK(bytes <= kMostMessageBytes) << bytes << " bytes of one message between processes";
  if (bytes > 0) std::memcpy(message_of(rank, to), message.own.input, bytes);
  line.sent = message.signature;
  line.brought.store(message.number + 1);
  return true;
}

bool ProcessRounds::receive(int rank, Message& message, std::string& dispute) {
  const int from = message.signature.root;
  Channel& line = channel(from, rank);
  if (line.taken.load() != message.number || line.brought.load() <= message.number) return false;
  if (agree(message.signature, line.sent)) {
    const std::size_t bytes = output_bytes(message.signature, rank, size_);
    if (bytes > 0) std::memcpy(message.own.output, message_of(from, rank), bytes);
    message.done = true;
  } else {
    dispute = said(from, line.sent) + said(rank, message.signature);
  }
  line.wanted = message.signature;
  line.taken.store(message.number + 1);
  return true;
}

bool ProcessRounds::pass(int rank, std::vector<Message>& messages, const std::function<bool()>& ended,
                         std::string& dispute) {
  for (;;) {
    bool moved = false;
    bool all = true;
    for (Message& message : messages) {
      if (message.done) continue;
      const bool sends = message.signature.kind == Collective::send;
      moved |= sends ? send(rank, message, dispute) : receive(rank, message, dispute);
      if (!dispute.empty()) return false;
      all = all && message.done;
    }
    if (all) return true;
    if (ended()) return false;
    if (!moved) std::this_thread::yield();
  }
}

}  // namespace kolo::emulated
