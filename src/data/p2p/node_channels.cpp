// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/node_channels.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/machine.hpp"

namespace kolo::p2p {
namespace {

/// Records that are taken before others have their turn, and how much may be read before the writer is told.
constexpr int kRecordsPerTurn = 16;

constexpr std::uint32_t kPermits = 64;
constexpr int kPermitBits = 6;
constexpr int kGenerationBits = 32 - kPermitBits;
constexpr std::uint64_t kGenerationMask = (std::uint64_t{1} << kGenerationBits) - 1;
enum : std::uint64_t { kOpen = 0, kReading = 1, kClosed = 2, kStates = 4 };
/// Shorter messages leave half of the permits to longer ones.
constexpr std::size_t kLong = 64 << 10;
/// Pieces of 1 MiB cost messages of 4 MiB and more a tenth. Who shares its CPU reads up to 64 MiB, 10 ms, at once: the
/// system does not interrupt that for another rank, which would read by turns with this one, so that both end late.
/// With pieces of 8 MiB, messages of 64 MiB to and fro between 2 pairs of ranks on 2 CPUs took a quarter longer.
constexpr std::uint64_t kPiece = 8 << 20;
constexpr std::uint64_t kPieceOfShared = 64 << 20;
/// So much of the ring is asked for ahead of the next record.
constexpr std::size_t kMostClaimed = 1 << 10;

}  // namespace

struct NodeChannels::Head {
  alignas(kLine) std::atomic<std::uint32_t> bell;
  alignas(kLine) std::atomic<std::int32_t> wait;  // the rank that is waited for, and 1
  alignas(kLine) std::array<std::atomic<std::uint64_t>, kPermits> permits;
};

// Of a rank: the head, the words of who has opened a ring, then the rings, by local rank of the sender.
std::size_t NodeChannels::bytes(int local_size) noexcept {
  if (local_size == 1) return 0;
  const auto ranks = static_cast<std::size_t>(local_size);
  const std::size_t opened = base::round_up((ranks + 63) / 64 * sizeof(std::uint64_t), kLine);
  return ranks * base::round_up(sizeof(Head) + opened + ranks * sizeof(Ring), base::kPageBytes);
}

NodeChannels::NodeChannels(const core::Topology& topology, std::byte* memory, transport::NodeLink& link,
                           std::shared_ptr<transport::PeerMemory> peers, std::uint64_t read_above, bool cpu_of_its_own,
                           kernels::PeerCopy to_peers)
    : topology_(topology), here_(topology.nodes[static_cast<std::size_t>(topology.node)]), memory_(memory), link_(link),
      peers_(std::move(peers)), part_bytes_(bytes(topology.local_size()) / here_.size()), writing_(here_.size()),
      seen_((here_.size() + 63) / 64), generations_(kPermits), read_above_(read_above), cpu_of_its_own_(cpu_of_its_own),
      to_peers_(to_peers) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  for (std::uint32_t permit = kPermits; permit-- > 0;) free_permits_.push_back(permit);
}

std::byte* NodeChannels::part(int local_rank) const noexcept {
  return memory_ + static_cast<std::size_t>(local_rank) * part_bytes_;
}

NodeChannels::Head& NodeChannels::head(int local_rank) const noexcept {
  return *reinterpret_cast<Head*>(part(local_rank));
}

std::atomic<std::uint64_t>& NodeChannels::opened(int local_rank, int word) const noexcept {
  return reinterpret_cast<std::atomic<std::uint64_t>*>(part(local_rank) + sizeof(Head))[word];
}

Ring& NodeChannels::ring(int receiver, int sender) const noexcept {
  const std::size_t words = base::round_up(seen_.size() * sizeof(std::uint64_t), kLine);
  return reinterpret_cast<Ring*>(part(receiver) + sizeof(Head) + words)[sender];
}

int NodeChannels::local(int rank) const noexcept { return topology_.local_rank_of[static_cast<std::size_t>(rank)]; }

// ---------------------------------------------------------------- bells

void NodeChannels::arm() noexcept {
  armed_ = true;
  if (part_bytes_ > 0) head(topology_.local_rank).bell.store(1, std::memory_order_seq_cst);
}

void NodeChannels::disarm() noexcept {
  if (!std::exchange(armed_, false) || part_bytes_ == 0) return;
  head(topology_.local_rank).bell.store(0, std::memory_order_relaxed);
}

/// After a sequentially consistent store of what there is.
void NodeChannels::ring_bell(int local_rank) noexcept {
  std::atomic<std::uint32_t>& bell = head(local_rank).bell;
  if (bell.load(std::memory_order_seq_cst) != 0 && bell.exchange(0) != 0) link_.wake(local_rank);
}

// ---------------------------------------------------------------- rings

void NodeChannels::open(int receiver) noexcept {
  const int own = topology_.local_rank;
  opened(receiver, own / 64).fetch_or(std::uint64_t{1} << (own % 64), std::memory_order_seq_cst);
}

/// Room for the records and the word behind them. Says that it waits where there is none, and looks once more.
bool NodeChannels::has_room(Ring& ring, Writing& writing, std::size_t need) noexcept {
  const auto fits = [&] { return writing.written + need + kLine - writing.read <= Ring::kBytes; };
  if (!fits()) {
    writing.read = ring.read.load(std::memory_order_acquire);
    if (!fits() && !std::exchange(writing.waits, true)) {
      ring.waits.store(1, std::memory_order_seq_cst);
      writing.read = ring.read.load(std::memory_order_seq_cst);
    }
    if (!fits()) return false;
  }
  if (std::exchange(writing.waits, false)) ring.waits.store(0, std::memory_order_relaxed);
  return true;
}

bool NodeChannels::put(int rank, const Frame& frame, const std::byte* data, std::size_t bytes) {
  const int receiver = local(rank);
  Ring& to = ring(receiver, topology_.local_rank);
  Writing& writing = writing_[static_cast<std::size_t>(receiver)];
  const std::size_t record = record_bytes(bytes);
  const std::size_t filler = filler_before(writing.written, record);
  if (!has_room(to, writing, filler + record)) return false;
  const std::uint64_t at = writing.written + filler;
  std::byte* const begin = to.data + at % Ring::kBytes;
  std::memcpy(begin + sizeof(std::uint64_t), &frame, sizeof frame);
  to_peers_(begin + data_offset(bytes), data, static_cast<std::int64_t>(bytes));
  to.word(at + record).store(0, std::memory_order_relaxed);
  const std::uint64_t word = record_word(bytes);
  if (filler > 0) {
    to.word(at).store(word, std::memory_order_relaxed);
    to.word(writing.written).store(filler_word(filler), std::memory_order_seq_cst);
  } else {
    to.word(at).store(word, std::memory_order_seq_cst);
  }
  writing.written = at + record;
  if (bytes < kernels::PeerCopy::kLeastBytes) {  // the next one may be as long
    const std::size_t behind = (at + record) % Ring::kBytes + kLine;
    const std::size_t ahead = std::min({bytes, kMostClaimed, Ring::kBytes - behind});
    if (at + record + kLine + ahead - writing.read <= Ring::kBytes) base::claim_lines(to.data + behind, ahead);
  }
  if (!std::exchange(writing.used, true)) open(receiver);
  ring_bell(receiver);
  return true;
}

void NodeChannels::find_opened() {
  for (std::size_t word = 0; word < seen_.size(); ++word) {
    const std::uint64_t bits = opened(topology_.local_rank, static_cast<int>(word)).load(std::memory_order_seq_cst);
    for (std::uint64_t news = bits & ~seen_[word]; news != 0; news &= news - 1) {
      const int sender = static_cast<int>(word) * 64 + std::countr_zero(news);
      if (static_cast<std::size_t>(sender) >= here_.size()) {
        throw Error(ErrorCode::transport, "local rank " + std::to_string(sender) + " of a node of " +
                                              std::to_string(here_.size()) + " ranks uses a ring of messages");
      }
      reading_.push_back({sender, 0});
    }
    seen_[word] = bits;
  }
}

bool NodeChannels::take_from(Reading& reading, FrameHandler& handler) {
  Ring& from = ring(topology_.local_rank, reading.local_rank);
  const int source = here_[static_cast<std::size_t>(reading.local_rank)];
  const std::uint64_t before = reading.read;
  for (int records = 0; records < kRecordsPerTurn; ++records) {
    const Record record = read_record(from, reading.read, source);
    if (record.bytes == 0) break;
    reading.read += record.bytes;  // first: what the handler throws does not bring the frame again
    if (record.is_filler) continue;
    handler.on_frame(source, record.frame, record.data, record.data_bytes);
    if (reading.read - before >= Ring::kBytes / 4) break;
  }
  if (reading.read == before) return false;
  from.read.store(reading.read, std::memory_order_seq_cst);
  if (from.waits.load(std::memory_order_seq_cst) != 0) ring_bell(reading.local_rank);
  return true;
}

bool NodeChannels::has_come() const noexcept {
  if (part_bytes_ == 0) return false;
  for (std::size_t word = 0; word < seen_.size(); ++word) {
    const auto& bits = opened(topology_.local_rank, static_cast<int>(word));
    if (bits.load(std::memory_order_relaxed) != seen_[word]) return true;
  }
  return std::any_of(reading_.begin(), reading_.end(), [this](const Reading& reading) {
    const auto& word = ring(topology_.local_rank, reading.local_rank).word(reading.read);
    return word.load(std::memory_order_relaxed) != 0;
  });
}

bool NodeChannels::take(FrameHandler& handler) {
  if (part_bytes_ == 0) return false;
  find_opened();
  bool moved = false;
  for (Reading& reading : reading_) {
    if (handler.wants(here_[static_cast<std::size_t>(reading.local_rank)])) moved |= take_from(reading, handler);
  }
  return moved;
}

// ---------------------------------------------------------------- memory that peers read

/// Whether the memory can be read is not asked, which takes a system call: who tries to in vain has it sent.
std::uint32_t NodeChannels::permit(int /*rank*/, std::size_t bytes) {
  const std::size_t kept = bytes < kLong ? kPermits / 2 : 0;
  if (peers_ == nullptr || bytes <= read_above_ || free_permits_.size() <= kept) return 0;
  const std::uint32_t index = free_permits_.back();
  free_permits_.pop_back();
  std::uint64_t& generation = generations_[index];
  generation = (generation & kGenerationMask) == kGenerationMask ? 1 : generation + 1;
  head(topology_.local_rank).permits[index].store(generation * kStates + kOpen, std::memory_order_release);
  return static_cast<std::uint32_t>(generation << kPermitBits | index);
}

void NodeChannels::end(std::uint32_t permit) noexcept {
  const std::uint32_t index = permit % kPermits;
  std::atomic<std::uint64_t>& word = head(topology_.local_rank).permits[index];
  const std::uint64_t closed = generations_[index] * kStates + kClosed;
  free_permits_.push_back(index);
  if (peers_->reads_by_system()) {
    word.store(closed, std::memory_order_relaxed);
    // Before whatever the caller writes there. Stores past the cache could still be earlier; that the Messenger's lock
    // is given back before the caller goes on orders those.
    base::process_fence(std::memory_order_release);
  } else if (word.exchange(closed) % kStates == kReading) {
    while (word.load(std::memory_order_acquire) == closed) std::this_thread::yield();
  }
}

std::uint64_t NodeChannels::read_bytes() const noexcept { return cpu_of_its_own_ ? kPiece : kPieceOfShared; }

/// The piece was read while the permit was open: what was read is what the sender's caller gave.
Channels::Read NodeChannels::read(int source, std::uint32_t permit, std::byte* to, std::uint64_t from,
                                  std::size_t bytes) {
  if (peers_ == nullptr) return Read::failed;
  const int sender = local(source);
  std::atomic<std::uint64_t>& word = head(sender).permits[permit % kPermits];
  const std::uint64_t generation = permit >> kPermitBits;
  if (peers_->reads_by_system()) {
    const Status status = peers_->read(sender, to, reinterpret_cast<const void*>(from), bytes);
    base::process_fence(std::memory_order_acquire);
    if (word.load(std::memory_order_relaxed) != generation * kStates + kOpen) return Read::withdrawn;
    return status.ok() ? Read::done : Read::failed;
  }
  std::uint64_t expected = generation * kStates + kOpen;
  if (!word.compare_exchange_strong(expected, generation * kStates + kReading)) return Read::withdrawn;
  const Status status = peers_->read(sender, to, reinterpret_cast<const void*>(from), bytes);
  expected = generation * kStates + kReading;
  if (!word.compare_exchange_strong(expected, generation * kStates + kOpen)) {
    expected = generation * kStates + kClosed;
    word.compare_exchange_strong(expected, 0);  // a sender that waits for this goes on
    return Read::withdrawn;
  }
  return status.ok() ? Read::done : Read::failed;
}

// ---------------------------------------------------------------- who waits for whom

void NodeChannels::note_wait(int rank) noexcept {
  if (part_bytes_ > 0) head(topology_.local_rank).wait.store(rank + 1, std::memory_order_release);
}

int NodeChannels::wait_of(int rank) const noexcept {
  if (part_bytes_ == 0 || topology_.node_of[static_cast<std::size_t>(rank)] != topology_.node) return kNobody;
  const std::int32_t said = head(local(rank)).wait.load(std::memory_order_acquire);
  return said > 0 && said <= topology_.size ? said - 1 : kNobody;
}

}  // namespace kolo::p2p
