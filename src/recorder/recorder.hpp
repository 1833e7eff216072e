// SPDX-License-Identifier: Apache-2.0
//
// A rank's recorder: writes its events into a file (format.hpp) that outlives the process, however it ends. It makes no
// system call and takes no lock once it is made, but where texts come that it has not seen before.
//
// Most events are the driver's, whose pass has looked at the clock already: they have the time of that pass. Threads of
// the program record only that they sleep and when they are woken, and messages that have to wait. A short call that
// avoids the log is counted.
//
// A sink, if there is one, gets every event as well, at its own time (a timeline).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "recorder/format.hpp"

namespace kolo::recorder {

/// One event as a plain value.
struct Record {
  std::uint64_t time = 0;
  std::uint64_t id = 0;
  std::uint32_t round = 0;
  std::uint32_t amount = 0;
  std::uint32_t set = 0;
  Kind kind = Kind::none;
  std::uint8_t detail = 0;
  std::int16_t last = -1;  ///< a rank; -1: none, or it is too large
};

/// Gets the events of a rank. Any thread may call it.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void take(const Record& record) noexcept = 0;
  /// From now on this id stands for this text.
  virtual void name(std::uint64_t id, std::string_view text) noexcept = 0;
};

/// Whose events they are.
struct Identity {
  std::string job;
  int rank = 0;
  int size = 1;
  int node = 0;
  std::vector<std::int32_t> nodes;  ///< of each rank
  std::string host;
};

/// A quantity that an event has no space for becomes the largest.
[[nodiscard]] constexpr std::uint32_t saturated(std::uint64_t number) noexcept {
  return number > 0xffffffffU ? 0xffffffffU : static_cast<std::uint32_t>(number);
}

/// The same of a rank in `Record::last`: it becomes none.
[[nodiscard]] constexpr std::int16_t short_rank(std::int32_t rank) noexcept {
  return rank >= 0 && rank < 0x7fff ? static_cast<std::int16_t>(rank) : std::int16_t{-1};
}

class Recorder {
 public:
  /// Records nothing.
  Recorder() = default;
  /// Makes the file, and all of its space. Throws Error (transport, io).
  Recorder(std::string path, const Identity& identity);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // -- the driver; before there is one, the thread that starts
  /// The time of the events that follow.
  void at(base::Time now) noexcept { now_ = to_ns(now); }
  [[nodiscard]] base::Time time() const noexcept { return base::Time(std::chrono::nanoseconds(now_)); }
  void record(Kind kind, std::uint32_t set, std::uint64_t id, std::uint32_t round = 0, std::uint32_t amount = 0,
              std::uint8_t detail = 0, std::int32_t last = -1) noexcept {
    if (header_ == nullptr && sink_.load(std::memory_order_relaxed) == nullptr) return;
    store({now_, id, round, amount, set, kind, detail, short_rank(last)});
  }
  /// The id of a text, which events may have from now on.
  std::uint64_t text(std::string_view text) noexcept;
  /// The same for a text whose hash is known.
  void text(std::uint64_t id, std::string_view text) noexcept;
  /// The same for one that lists ranks, which may be longer.
  void list(std::uint64_t id, std::string_view text) noexcept;
  /// What was said of the event before. Other texts leave space for sentences.
  void sentence(std::string_view text) noexcept;
  void set_state(State state) noexcept {
    if (header_ != nullptr) header_->state.store(static_cast<std::uint64_t>(state), std::memory_order_relaxed);
  }
  [[nodiscard]] State state() const noexcept {
    return header_ == nullptr ? State::starting : static_cast<State>(header_->state.load(std::memory_order_relaxed));
  }
  void add_set(std::uint32_t set, std::uint64_t serial, std::string_view words,
               const std::vector<int>& members) noexcept;
  void remove_set(std::uint32_t set) noexcept;
  /// Events go there, too, from now on, with the texts that are known. It lives as long as this does, because a thread
  /// may be about to give it an event.
  void add_sink(std::shared_ptr<Sink> sink);
  void remove_sink() noexcept { sink_.store(nullptr, std::memory_order_release); }
  /// Which of all sinks it is that there is now; 0: none.
  [[nodiscard]] std::uint32_t sink_number() const noexcept {
    return sink_.load(std::memory_order_relaxed) == nullptr ? 0 : static_cast<std::uint32_t>(sinks_.size());
  }
  /// An event for the sink alone, at its own time.
  void tell_sink(const Record& record) noexcept {
    if (Sink* const sink = sink_.load(std::memory_order_acquire)) sink->take(record);
  }
  /// Clean: all have left together, and needed nobody who had left before. The file goes. Else it stays for a reader.
  /// Events may follow all the same.
  void close(bool is_clean) noexcept;

  // -- any thread
  [[nodiscard]] bool is_on() const noexcept {
    return header_ != nullptr || sink_.load(std::memory_order_relaxed) != nullptr;
  }
  /// A thread of the program; looks at the clock.
  void record_caller(Kind kind, std::uint32_t set, std::uint64_t id, std::uint32_t round = 0, std::uint32_t amount = 0,
                     std::uint8_t detail = 0) noexcept {
    if (is_on()) record_caller_at(base::now(), kind, set, id, round, amount, detail);
  }
  /// The same of one that has looked.
  void record_caller_at(base::Time now, Kind kind, std::uint32_t set, std::uint64_t id, std::uint32_t round = 0,
                        std::uint32_t amount = 0, std::uint8_t detail = 0) noexcept;
  /// A call without a name has avoided the log; in the order of the set's calls.
  void count_fast(std::uint32_t set, std::uint64_t number) noexcept {
    if (header_ == nullptr) return;
    FastCalls& row = header_->fast[set % kFastRows];
    row.set.store(set, std::memory_order_relaxed);
    row.number.store(number, std::memory_order_relaxed);
    header_->fast_calls.store(header_->fast_calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

 private:
  struct Ring {
    Event* events = nullptr;
    std::uint64_t mask = 0;  ///< capacity - 1
  };

  [[nodiscard]] static std::uint64_t to_ns(base::Time time) noexcept {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
  }
  /// Keeps a text if no more than `limit` bytes of texts are there then.
  void keep(std::uint64_t id, std::string_view text, std::uint64_t limit) noexcept;
  void lay_out(std::byte* memory, std::size_t bytes, const Identity& identity);
  static void write(Event& event, const Record& record) noexcept {
    event.time.store(record.time, std::memory_order_relaxed);
    event.id.store(record.id, std::memory_order_relaxed);
    event.counts.store(std::uint64_t{record.amount} << 32 | record.round, std::memory_order_relaxed);
    event.what.store(std::uint64_t{static_cast<std::uint16_t>(record.last + 1)} << 48 |
                         std::uint64_t{record.detail} << 40 |
                         std::uint64_t{static_cast<std::uint8_t>(record.kind)} << 32 | record.set,
                     std::memory_order_release);
  }
  void store(const Record& record) noexcept {
    if (header_ != nullptr) {
      write(driver_.events[head_ & driver_.mask], record);
      header_->driver_head.store(++head_, std::memory_order_release);
    }
    if (Sink* const sink = sink_.load(std::memory_order_acquire)) [[unlikely]]
      hand(*sink, record);
  }
  static void hand(Sink& sink, Record record) noexcept;

  std::string path_;
  Header* header_ = nullptr;  ///< null: no file
  std::size_t bytes_ = 0;
  Ring driver_;
  Ring callers_;
  SetRow* sets_ = nullptr;
  std::byte* texts_ = nullptr;
  std::uint64_t now_ = 0;
  std::uint64_t head_ = 0;
  std::atomic<Sink*> sink_{nullptr};
  std::vector<std::shared_ptr<Sink>> sinks_;              ///< all that there were
  std::unordered_map<std::uint64_t, std::string> known_;  ///< texts, by id
};

}  // namespace kolo::recorder
