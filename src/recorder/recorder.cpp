// SPDX-License-Identifier: Apache-2.0
#include "recorder/recorder.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include <kolo/error.hpp>

#include "base/cpu.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/machine.hpp"
#include "base/quote.hpp"
#include "base/system_error.hpp"
#include "base/unique_fd.hpp"
#include "recorder/process.hpp"

namespace kolo::recorder {
namespace {

constexpr std::uint64_t kNameBytes = kTextBytes - (16 << 10);  // the rest is for sentences alone
/// Of a text that is kept.
constexpr std::size_t kLongestText = 1000;
/// Of one that lists ranks: no rank may be missing there.
constexpr std::size_t kLongestList = 8 << 10;

template <std::size_t kSize>
void copy_text(std::array<char, kSize>& to, const std::string& from) {
  std::memcpy(to.data(), from.data(), std::min(from.size(), kSize - 1));
}

Part take(std::uint64_t& end, std::uint64_t count, std::size_t bytes) {
  const Part part{end, count};
  end = base::round_up(end + count * bytes, std::uint64_t{64});
  return part;
}

/// How many of `ranks` from `begin` on ascend by the same step.
std::size_t run_at(const std::vector<int>& ranks, std::size_t begin) noexcept {
  if (begin + 1 == ranks.size()) return 1;
  const int step = ranks[begin + 1] - ranks[begin];
  std::size_t end = begin + 1;
  while (step > 0 && end < ranks.size() && ranks[end] - ranks[end - 1] == step) ++end;
  return end - begin;
}

/// As format.hpp says.
std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    const std::size_t run = run_at(ranks, i);
    text += (text.empty() ? "" : " ") + std::to_string(ranks[i]);
    if (run < 3) {
      ++i;
      continue;
    }
    const int step = ranks[i + 1] - ranks[i];
    i += run;
    text += "-" + std::to_string(ranks[i - 1]);
    if (step > 1) text += "/" + std::to_string(step);
  }
  return text;
}

std::int64_t ns_of(std::chrono::nanoseconds since) { return since.count(); }

}  // namespace

Recorder::Recorder(std::string path, const Identity& identity) : path_(std::move(path)) {
  std::uint64_t end = kHeaderBytes;
  for (const std::size_t bytes :
       {identity.nodes.size() * sizeof(std::int32_t), kSetRows * sizeof(SetRow), std::size_t{kTextBytes},
        kDriverEvents * sizeof(Event), kCallersEvents * sizeof(Event)}) {
    take(end, 1, bytes);
  }
  if (identity.size > kMostRanks) {
    throw Error(ErrorCode::transport, "a job of " + std::to_string(identity.size) + " ranks is not recorded; at most " +
                                          std::to_string(kMostRanks) + " are");
  }
  // Read-only for later openers: a shell's ">" or a copy over it would cut off memory that is mapped here.
  const base::UniqueFd file = base::create_file(path_, 0400);
  const auto give_up = [this](const char* what, int error) {
    ::unlink(path_.c_str());
    throw Error(ErrorCode::transport,
                base::escaped(path_) + ": " + what + ": " + base::errno_text(error) +
                    (error == EFBIG ? "; the limit of a file's size is too low (ulimit -f)" : ""));
  };
  // All of it now: a disk that is full later must not end the process.
  if (const int error = base::reserve(file.get(), end)) give_up("no space for the recorder", error);
  void* const memory = ::mmap(nullptr, end, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) give_up("mmap", errno);
  lay_out(static_cast<std::byte*>(memory), end, identity);
}

Recorder::~Recorder() {
  if (header_ == nullptr) return;
  header_->has_ended.store(1, std::memory_order_release);
  ::munmap(header_, bytes_);
}

void Recorder::lay_out(std::byte* memory, std::size_t bytes, const Identity& identity) {
  bytes_ = bytes;
  auto* const header = new (memory) Header;
  header->rank = identity.rank;
  header->size = identity.size;
  header->node = identity.node;
  header->file_bytes = bytes;
  std::uint64_t end = kHeaderBytes;
  header->nodes = take(end, identity.nodes.size(), sizeof(std::int32_t));
  header->sets = take(end, kSetRows, sizeof(SetRow));
  header->texts = take(end, kTextBytes, 1);
  header->driver = take(end, kDriverEvents, sizeof(Event));
  header->callers = take(end, kCallersEvents, sizeof(Event));
  const Process self = Process::self();
  header->pid = self.pid;
  header->process_start = self.start;
  header->pid_namespace = self.pid_namespace;
  header->monotonic_ns = ns_of(base::Clock::now().time_since_epoch());
  header->wall_ns = ns_of(std::chrono::system_clock::now().time_since_epoch());
  copy_text(header->boot, base::system_name());
  copy_text(header->host, identity.host);
  copy_text(header->job, identity.job);
  copy_text(header->release, KOLO_VERSION_STRING);
  header->state.store(static_cast<std::uint64_t>(State::starting));
  std::memcpy(memory + header->nodes.offset, identity.nodes.data(), identity.nodes.size() * sizeof(std::int32_t));
  header->version = kVersion;
  header->magic = kMagic;
  sets_ = reinterpret_cast<SetRow*>(memory + header->sets.offset);
  texts_ = memory + header->texts.offset;
  driver_ = {reinterpret_cast<Event*>(memory + header->driver.offset), kDriverEvents - 1};
  callers_ = {reinterpret_cast<Event*>(memory + header->callers.offset), kCallersEvents - 1};
  now_ = static_cast<std::uint64_t>(header->monotonic_ns);
  header_ = header;
}

std::uint64_t Recorder::text(std::string_view text) noexcept {
  const std::uint64_t id = base::hash_string(text);
  this->text(id, text);
  return id;
}

void Recorder::text(std::uint64_t id, std::string_view text) noexcept {
  keep(id, text.substr(0, kLongestText), kNameBytes);
}

void Recorder::list(std::uint64_t id, std::string_view text) noexcept {
  if (text.size() > kLongestList) text = text.substr(0, text.rfind(' ', kLongestList));  // of a number, all digits
  keep(id, text, kNameBytes);
}

void Recorder::sentence(std::string_view text) noexcept {
  if (!is_on()) return;
  const std::uint64_t id = base::hash_string(text);
  keep(id, text.substr(0, kLongestText), kTextBytes);
  record(Kind::sentence, 0, id);
}

void Recorder::keep(std::uint64_t id, std::string_view text, std::uint64_t limit) noexcept {
  if (!is_on()) return;
  try {
    const auto [known, is_new] = known_.try_emplace(id, text);
    if (!is_new) return;
    if (Sink* const sink = sink_.load(std::memory_order_acquire)) sink->name(id, text);
    if (header_ == nullptr) return;
    const std::uint64_t used = header_->texts_used.load(std::memory_order_relaxed);
    const std::uint64_t size = base::round_up(kTextHead + text.size(), std::size_t{8});
    if (used + size > limit) {
      known_.erase(known);  // so that names without end take no memory
      return;
    }
    const auto length = static_cast<std::uint32_t>(text.size());
    std::memcpy(texts_ + used, &id, sizeof id);
    std::memcpy(texts_ + used + sizeof id, &length, sizeof length);
    std::memcpy(texts_ + used + kTextHead, text.data(), text.size());
    header_->texts_used.store(used + size, std::memory_order_release);
  } catch (const std::bad_alloc&) {
    // The events have an id without a text.
  }
}

void Recorder::add_set(std::uint32_t set, std::uint64_t serial, std::string_view words,
                       const std::vector<int>& members) noexcept {
  if (header_ == nullptr) return;
  for (SetRow* row = sets_; row != sets_ + kSetRows; ++row) {
    if (row->set.load(std::memory_order_relaxed) != 0) continue;
    const std::string ranks = list_of(members);
    const bool fits = ranks.size() <= kLongestList;
    if (fits) list(base::hash_string(ranks), ranks);
    row->words.store(text(words), std::memory_order_relaxed);
    row->members.store(fits ? base::hash_string(ranks) : 0, std::memory_order_relaxed);
    row->serial.store(serial, std::memory_order_relaxed);
    row->set.store(set, std::memory_order_release);
    return;
  }
}

void Recorder::remove_set(std::uint32_t set) noexcept {
  if (header_ == nullptr) return;
  for (SetRow* row = sets_; row != sets_ + kSetRows; ++row) {
    if (row->set.load(std::memory_order_relaxed) == set) row->set.store(0, std::memory_order_release);
  }
}

void Recorder::add_sink(std::shared_ptr<Sink> sink) {
  for (const auto& [id, text] : known_) sink->name(id, text);
  sinks_.push_back(std::move(sink));
  sink_.store(sinks_.back().get(), std::memory_order_release);
}

void Recorder::close(bool is_clean) noexcept {
  if (header_ == nullptr) return;
  if (state() != State::faulted) set_state(State::closed);
  if (!is_clean) return;
  ::unlink(path_.c_str());
  ::rmdir(path_.substr(0, path_.rfind('/')).c_str());  // of the job: the last rank succeeds
}

void Recorder::record_caller_at(base::Time now, Kind kind, std::uint32_t set, std::uint64_t id, std::uint32_t round,
                                std::uint32_t amount, std::uint8_t detail) noexcept {
  if (!is_on()) return;
  const Record record{to_ns(now), id, round, amount, set, kind, detail};
  if (header_ != nullptr) {
    Event& event = callers_.events[header_->callers_head.fetch_add(1, std::memory_order_relaxed) & callers_.mask];
    event.what.store(0, std::memory_order_relaxed);
    base::process_fence(std::memory_order_release);  // no other word changes before
    write(event, record);
  }
  if (Sink* const sink = sink_.load(std::memory_order_acquire)) sink->take(record);
}

void Recorder::hand(Sink& sink, Record record) noexcept {
  record.time = to_ns(base::now());
  sink.take(record);
}

}  // namespace kolo::recorder
