// SPDX-License-Identifier: Apache-2.0
#include "recorder/reader.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/fence.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace kolo::recorder {
namespace {

constexpr std::int32_t kMostRanks = 1 << 20;

template <std::size_t kSize>
std::string text_of(const std::array<char, kSize>& text) {
  return {text.data(), ::strnlen(text.data(), kSize)};
}

bool is_recorder(const std::byte* bytes, std::size_t size) noexcept {
  if (size < kHeaderBytes) return false;
  const auto& header = *reinterpret_cast<const Header*>(bytes);
  return header.magic == kMagic && header.version == kVersion && header.file_bytes <= size;
}

bool holds(const Part& part, std::size_t element, std::size_t size) noexcept {
  return part.offset >= kHeaderBytes && part.offset <= size && part.offset % alignof(Event) == 0 &&
         part.count <= (size - part.offset) / element;
}

Record record_of(const Event& event) noexcept {
  Record record;
  const std::uint64_t what = event.what.load(std::memory_order_acquire);
  const std::uint64_t counts = event.counts.load(std::memory_order_relaxed);
  record.time = event.time.load(std::memory_order_relaxed);
  record.id = event.id.load(std::memory_order_relaxed);
  record.round = static_cast<std::uint32_t>(counts);
  record.amount = static_cast<std::uint32_t>(counts >> 32);
  record.set = static_cast<std::uint32_t>(what);
  record.kind = static_cast<Kind>(static_cast<std::uint8_t>(what >> 32));
  record.detail = static_cast<std::uint8_t>(what >> 40);
  record.last = short_rank(static_cast<std::int32_t>(what >> 48) - 1);
  base::process_fence(std::memory_order_acquire);
  const bool is_whole = event.what.load(std::memory_order_relaxed) == what;
  if (!is_whole || record.kind > Kind::stopped) record.kind = Kind::none;
  return record;
}

/// The events of a ring, the oldest first; whether none is missing.
bool read_ring(const std::byte* bytes, const Part& part, const std::atomic<std::uint64_t>& head,
               std::vector<Record>& records) {
  const auto* const events = reinterpret_cast<const Event*>(bytes + part.offset);
  const std::uint64_t end = head.load(std::memory_order_acquire);
  const std::uint64_t capacity = part.count;
  std::uint64_t first = end > capacity ? end - capacity + 1 : 0;
  std::vector<Record> copied;
  for (std::uint64_t i = first; i < end; ++i) copied.push_back(record_of(events[i % capacity]));
  const std::uint64_t end_now = head.load(std::memory_order_acquire);
  const std::uint64_t whole = end_now > capacity ? end_now - capacity + 1 : 0;
  const std::uint64_t lost = std::min<std::uint64_t>(whole > first ? whole - first : 0, copied.size());
  copied.erase(copied.begin(), copied.begin() + static_cast<std::ptrdiff_t>(lost));
  std::copy_if(copied.begin(), copied.end(), std::back_inserter(records),
               [](const Record& record) { return record.kind != Kind::none; });
  return end_now <= capacity;
}

void read_texts(const std::byte* bytes, const Part& part, std::uint64_t used, Recording& recording) {
  used = std::min(used, part.count);
  const std::byte* at = bytes + part.offset;
  const std::byte* const end = at + used;
  while (static_cast<std::size_t>(end - at) >= kTextHead) {
    std::uint64_t id = 0;
    std::uint32_t length = 0;
    std::memcpy(&id, at, sizeof id);
    std::memcpy(&length, at + sizeof id, sizeof length);
    at += kTextHead;
    if (length > static_cast<std::size_t>(end - at)) return;
    recording.texts.emplace(id, std::string(reinterpret_cast<const char*>(at), length));
    const std::size_t padded = (length + std::size_t{7}) / 8 * 8;
    at += std::min(padded, static_cast<std::size_t>(end - at));
  }
}

void read_sets(const std::byte* bytes, const Part& part, Recording& recording) {
  const auto* const rows = reinterpret_cast<const SetRow*>(bytes + part.offset);
  for (std::uint64_t i = 0; i < part.count; ++i) {
    const auto set = static_cast<std::uint32_t>(rows[i].set.load(std::memory_order_acquire));
    if (set == 0) continue;
    RecordedSet found;
    found.serial = rows[i].serial.load(std::memory_order_relaxed);
    found.words = recording.text(rows[i].words.load(std::memory_order_relaxed));
    for (const std::string& word : base::words(recording.text(rows[i].members.load(std::memory_order_relaxed)))) {
      const std::optional<int> rank = base::parse_number<int>(word);
      if (rank && *rank >= 0 && *rank < recording.size) found.members.push_back(*rank);
    }
    recording.sets[set] = std::move(found);
  }
}

/// A file that is mapped to be read.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat about {};
    if (!file || ::fstat(file.get(), &about) != 0 || about.st_size < static_cast<off_t>(kHeaderBytes)) return;
    void* const memory = ::mmap(nullptr, static_cast<std::size_t>(about.st_size), PROT_READ, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) return;
    memory_ = static_cast<std::byte*>(memory);
    size_ = static_cast<std::size_t>(about.st_size);
  }
  ~Mapping() {
    if (memory_ != nullptr) ::munmap(memory_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] const std::byte* memory() const noexcept { return memory_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace

std::string Recording::text(std::uint64_t id) const {
  const auto found = texts.find(id);
  return found == texts.end() ? std::string() : found->second;
}

std::optional<Recording> parse(const std::byte* bytes, std::size_t size) {
  if (!is_recorder(bytes, size)) return std::nullopt;
  const auto& header = *reinterpret_cast<const Header*>(bytes);
  if (header.size < 1 || header.size > kMostRanks || header.rank < 0 || header.rank >= header.size) return std::nullopt;
  if (!holds(header.nodes, sizeof(std::int32_t), size) || !holds(header.sets, sizeof(SetRow), size) ||
      !holds(header.texts, 1, size) || !holds(header.driver, sizeof(Event), size) || header.driver.count == 0 ||
      !holds(header.callers, sizeof(Event), size) || header.callers.count == 0 ||
      header.nodes.count != static_cast<std::uint64_t>(header.size)) {
    return std::nullopt;
  }
  Recording recording;
  recording.job = text_of(header.job);
  recording.host = text_of(header.host);
  recording.boot = text_of(header.boot);
  recording.release = text_of(header.release);
  recording.rank = header.rank;
  recording.size = header.size;
  recording.node = header.node;
  recording.nodes.resize(header.nodes.count);
  std::memcpy(recording.nodes.data(), bytes + header.nodes.offset, header.nodes.count * sizeof(std::int32_t));
  recording.process = {header.pid, header.process_start};
  recording.wall_ns = header.wall_ns;
  recording.monotonic_ns = header.monotonic_ns;
  recording.state = static_cast<State>(header.state.load(std::memory_order_relaxed));
  if (recording.state < State::starting || recording.state > State::closed) return std::nullopt;
  recording.fast_calls = header.fast_calls.load(std::memory_order_relaxed);
  for (const FastCalls& row : header.fast) {
    const std::uint64_t number = row.number.load(std::memory_order_relaxed);
    if (number > 0) recording.last_fast[static_cast<std::uint32_t>(row.set.load(std::memory_order_relaxed))] = number;
  }
  recording.is_whole = read_ring(bytes, header.driver, header.driver_head, recording.events);
  read_ring(bytes, header.callers, header.callers_head, recording.events);
  std::stable_sort(recording.events.begin(), recording.events.end(),
                   [](const Record& a, const Record& b) { return a.time < b.time; });
  read_texts(bytes, header.texts, header.texts_used.load(std::memory_order_acquire), recording);
  read_sets(bytes, header.sets, recording);
  return recording;
}

std::optional<Recording> read_file(const std::string& path) {
  const Mapping mapping(path);
  if (mapping.memory() == nullptr) return std::nullopt;
  std::optional<Recording> recording = parse(mapping.memory(), mapping.size());
  if (recording) recording->path = path;
  return recording;
}

bool is_over(const std::string& path, const std::string& boot) {
  const Mapping mapping(path);
  if (mapping.memory() == nullptr || !is_recorder(mapping.memory(), mapping.size())) return false;
  const auto& header = *reinterpret_cast<const Header*>(mapping.memory());
  return header.has_ended.load(std::memory_order_relaxed) != 0 || text_of(header.boot) != boot ||
         Process{header.pid, header.process_start}.state() == 0;
}

}  // namespace kolo::recorder
