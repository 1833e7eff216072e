// SPDX-License-Identifier: Apache-2.0
#include "recorder/reader.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "base/files.hpp"
#include "base/text.hpp"

namespace kolo::recorder {
namespace {

/// Members of all groups of a file together.
constexpr std::size_t kMostMembers = std::size_t{1} << 20U;

template <std::size_t kSize>
std::string text_of(const std::array<char, kSize>& text) {
  return {text.data(), ::strnlen(text.data(), kSize)};
}

/// Where a copy's header is. The copy is this process's own, so what is checked stays as it is.
const Header& header_of(Bytes bytes) noexcept { return *reinterpret_cast<const Header*>(bytes.data()); }

bool is_recorder(Bytes bytes) noexcept {
  return bytes.size() >= kHeaderBytes && header_of(bytes).magic == kMagic && header_of(bytes).version == kVersion;
}

bool holds(const Part& part, std::size_t element, std::uint64_t most, std::size_t size) noexcept {
  return part.offset >= kHeaderBytes && part.offset <= size && part.offset % alignof(Event) == 0 &&
         part.count <= most && part.count <= (size - part.offset) / element;
}

bool is_sound(Bytes bytes) noexcept {
  if (!is_recorder(bytes)) return false;
  const Header& header = header_of(bytes);
  const std::size_t size = bytes.size();
  const auto state = static_cast<State>(header.state.load(std::memory_order_relaxed));
  return header.file_bytes == size && header.size >= 1 && header.size <= kMostRanks && header.rank >= 0 &&
         header.rank < header.size && header.nodes.count == static_cast<std::uint64_t>(header.size) &&
         holds(header.nodes, sizeof(std::int32_t), kMostRanks, size) &&
         holds(header.sets, sizeof(SetRow), kSetRows, size) && holds(header.texts, 1, kTextBytes, size) &&
         holds(header.driver, sizeof(Event), kDriverEvents, size) && header.driver.count > 0 &&
         holds(header.callers, sizeof(Event), kCallersEvents, size) && header.callers.count > 0 &&
         state >= State::starting && state <= State::closed;
}

/// Whether both copies are of one file of one rank: all that is constant is equal.
bool are_of_one_file(Bytes first, Bytes second) noexcept {
  return first.size() == second.size() && std::memcmp(first.data(), second.data(), offsetof(Header, state)) == 0;
}

Record record_of(const Event& event) noexcept {
  Record record;
  const std::uint64_t what = event.what.load(std::memory_order_relaxed);
  const std::uint64_t counts = event.counts.load(std::memory_order_relaxed);
  record.time = event.time.load(std::memory_order_relaxed);
  record.id = event.id.load(std::memory_order_relaxed);
  record.round = static_cast<std::uint32_t>(counts);
  record.amount = static_cast<std::uint32_t>(counts >> 32);
  record.set = static_cast<std::uint32_t>(what);
  record.kind = static_cast<Kind>(static_cast<std::uint8_t>(what >> 32));
  record.detail = static_cast<std::uint8_t>(what >> 40);
  record.last = short_rank(static_cast<std::int32_t>(what >> 48) - 1);
  if (record.kind > Kind::stopped) record.kind = Kind::none;
  return record;
}

/// One ring in both copies.
struct Ring {
  const std::byte* first = nullptr;
  const std::byte* second = nullptr;
  std::uint64_t capacity = 0;
  std::uint64_t begin = 0;  ///< number of the first event that is whole in the first copy
  std::uint64_t end = 0;    ///< and of that behind the last one
  bool is_whole = true;     ///< none has been overwritten

  Ring(const Copies& copies, const Part& part, std::atomic<std::uint64_t> Header::*head)
      : first(copies.first.data() + part.offset), second(copies.second.data() + part.offset), capacity(part.count) {
    end = (header_of(copies.first).*head).load(std::memory_order_relaxed);
    const std::uint64_t later = (header_of(copies.second).*head).load(std::memory_order_relaxed);
    // One more than is overwritten: the writer may be writing the next one.
    begin = later > capacity ? later - capacity + 1 : 0;
    is_whole = later <= capacity;
    begin = std::max(begin, end > capacity ? end - capacity : 0);  // a broken file's heads say anything
  }
  /// An event that is not the same in both copies was being written: it is left out.
  void read(bool has_many_writers, std::vector<Record>& records) const {
    for (std::uint64_t i = begin; i < end; ++i) {
      const std::size_t at = i % capacity * sizeof(Event);
      if (has_many_writers && std::memcmp(first + at, second + at, sizeof(Event)) != 0) continue;
      const Record record = record_of(*reinterpret_cast<const Event*>(first + at));
      if (record.kind != Kind::none) records.push_back(record);
    }
  }
};

void read_texts(Bytes bytes, Recording& recording) {
  const Part& part = header_of(bytes).texts;
  std::uint64_t used = header_of(bytes).texts_used.load(std::memory_order_relaxed);
  used = std::min(used, part.count);
  const std::byte* at = bytes.data() + part.offset;
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

/// Adds the ranks that a word of a list says (format.hpp). False: it says none of `size` ranks.
bool add_run(std::string_view word, int size, std::vector<int>& ranks) {
  const std::size_t slash = std::min(word.find('/'), word.size());
  const std::size_t dash = std::min(word.find('-'), slash);
  const std::optional<int> first = base::parse_number<int>(word.substr(0, dash));
  std::optional<int> last = first;
  std::optional<int> step = 1;
  if (dash < slash) last = base::parse_number<int>(word.substr(dash + 1, slash - dash - 1));
  if (slash < word.size()) step = base::parse_number<int>(word.substr(slash + 1));
  if (!first || !last || !step || *first < 0 || *last >= size || *last < *first || *step < 1 || *step > size)
    return false;
  for (int rank = *first; rank <= *last; rank += *step) ranks.push_back(rank);
  return true;
}

/// Empty: not known.
std::vector<int> members_of(const std::string& list, int size) {
  std::vector<int> ranks;
  for (const std::string& word : base::words(list)) {
    // A group has no rank twice.
    if (!add_run(word, size, ranks) || ranks.size() > static_cast<std::size_t>(size)) return {};
  }
  return ranks;
}

void read_sets(const Copies& copies, Recording& recording) {
  const Part& part = header_of(copies.first).sets;
  const auto* const rows = reinterpret_cast<const SetRow*>(copies.first.data() + part.offset);
  std::size_t members = 0;
  for (std::uint64_t i = 0; i < part.count; ++i) {
    const SetRow& row = rows[i];
    const auto set = static_cast<std::uint32_t>(row.set.load(std::memory_order_relaxed));
    const std::size_t at = part.offset + i * sizeof(SetRow);
    if (set == 0 || std::memcmp(&row, copies.second.data() + at, sizeof row) != 0) continue;  // it comes, or goes
    RecordedSet found;
    found.words = recording.text(row.words.load(std::memory_order_relaxed));
    if (members < kMostMembers) {
      found.members = members_of(recording.text(row.members.load(std::memory_order_relaxed)), recording.size);
    }
    members += found.members.size();
    recording.sets[set] = std::move(found);
  }
}

/// When the rank did something last, by the clock of the day: as its newest event, or its beginning, says.
std::chrono::nanoseconds last_deed(const Recording& recording) {
  std::uint64_t last = static_cast<std::uint64_t>(recording.monotonic_ns);
  for (const Record& record : recording.events) last = std::max(last, record.time);
  // Of numbers that stand in a file: they wrap.
  return std::chrono::nanoseconds(static_cast<std::int64_t>(static_cast<std::uint64_t>(recording.wall_ns) + last -
                                                            static_cast<std::uint64_t>(recording.monotonic_ns)));
}

bool is_old(std::chrono::nanoseconds time) {
  const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  return time < now - kForgottenAfter;
}

bool is_old_file(const std::string& path) {
  struct stat about {};
  return ::lstat(path.c_str(), &about) == 0 && is_old(std::chrono::seconds(about.st_mtim.tv_sec));
}

}  // namespace

std::string Recording::text(std::uint64_t id) const {
  const auto found = texts.find(id);
  return found == texts.end() ? std::string() : found->second;
}

std::optional<Recording> parse(const Copies& copies) {
  if (!is_sound(copies.first) || !is_sound(copies.second) || !are_of_one_file(copies.first, copies.second))
    return std::nullopt;
  const Header& header = header_of(copies.first);
  Recording recording;
  recording.job = text_of(header.job);
  recording.host = text_of(header.host);
  recording.boot = text_of(header.boot);
  recording.rank = header.rank;
  recording.size = header.size;
  recording.process = {header.pid, header.process_start, header.pid_namespace};
  recording.wall_ns = header.wall_ns;
  recording.monotonic_ns = header.monotonic_ns;
  recording.state = static_cast<State>(header.state.load(std::memory_order_relaxed));
  recording.fast_calls = header.fast_calls.load(std::memory_order_relaxed);
  for (const FastCalls& row : header.fast) {
    const std::uint64_t number = row.number.load(std::memory_order_relaxed);
    if (number > 0) recording.last_fast[static_cast<std::uint32_t>(row.set.load(std::memory_order_relaxed))] = number;
  }
  const Ring driver(copies, header.driver, &Header::driver_head);
  driver.read(false, recording.events);
  recording.is_whole = driver.is_whole;
  Ring(copies, header.callers, &Header::callers_head).read(true, recording.events);
  std::stable_sort(recording.events.begin(), recording.events.end(),
                   [](const Record& a, const Record& b) { return a.time < b.time; });
  read_texts(copies.second, recording);
  read_sets(copies, recording);
  return recording;
}

std::optional<Recording> read_file(const std::string& path, uid_t owner) {
  const std::optional<std::vector<std::byte>> first = base::read_found(path, kMostBytes, owner);
  if (!first || !is_recorder(*first)) return std::nullopt;
  const std::optional<std::vector<std::byte>> second = base::read_found(path, kMostBytes, owner);
  if (!second) return std::nullopt;
  return parse({*first, *second});
}

bool is_over(const std::string& path) {
  const auto beginning = base::read_found(path, kHeaderBytes);
  if (!beginning || beginning->size() < kHeaderBytes || header_of(*beginning).magic != kMagic) return false;
  if (!is_recorder(*beginning)) return is_old_file(path);  // of another version
  const Header& header = header_of(*beginning);
  if (header.has_ended.load(std::memory_order_relaxed) != 0) return true;
  const Process process{header.pid, header.process_start, header.pid_namespace};
  if (process.is_in_sight(text_of(header.boot))) return process.state() == 0;
  const std::optional<Recording> recording = read_file(path, ::geteuid());
  return recording ? is_old(last_deed(*recording)) : is_old_file(path);
}

}  // namespace kolo::recorder
