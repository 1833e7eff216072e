// SPDX-License-Identifier: Apache-2.0
//
// A timeline: the recorder's events as a file for Perfetto or chrome://tracing (Chrome's trace events, as an array of
// JSON). All ranks of a machine append whole lines to one file, so it opens whatever becomes of a rank: the format
// allows the end of the array to be missing. The rank that ends last writes it. (Each holds a lock of its own on the
// file; where the file system has none, the end stays missing.)
//
//   process     a rank
//   row         a tensor; in it `waiting for rank R` from when the engine took the request until its batch began, if R
//               was the last to submit, else `negotiate`; then the collective until its batch is done
//   `program`   when threads of the program slept inside Kolo
//   `unnamed`   calls without a name: the batches in which they ran
//   `messages`  messages between two ranks that had to wait
//   `device: ...`  a stream of the device: what it did for which batch
//   marks       ends of steps, errors
//
// `take` puts an event into a buffer. A thread turns events into text and writes them, so that a slow disk holds nobody
// up. If the buffer is full, events are lost. If a write fails, as on a full disk, or does not return before the
// timeline's end is over, the timeline ends there. The log says all that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/thread.hpp"
#include "base/unique_fd.hpp"
#include "recorder/recorder.hpp"

namespace kolo::timeline {

/// Where a rank's events go, and under which clock.
struct Place {
  std::string path;
  int rank = 0;
  std::string host;
  std::int64_t shift_ns = 0;                      ///< from this rank's clock to rank 0's
  std::string clock;                              ///< how well: a word or two
  base::Duration patience = base::kFilePatience;  ///< how long its beginning and its end wait for the file
};

/// So many events wait for the file at most.
inline constexpr std::size_t kMostWaiting = std::size_t{1} << 18U;

/// Makes the file anew, for the ranks of this machine. One of them does, before the others open it. Throws Error (io).
void create(const std::string& path);

/// Turns events into lines of JSON. One thread at a time.
class Writer {
 public:
  explicit Writer(Place place) : place_(std::move(place)) {}

  /// What a viewer shows of the rank itself; the first lines.
  [[nodiscard]] std::string head() const;
  /// The end of the array, for the last rank.
  [[nodiscard]] std::string tail() const;
  void name(std::uint64_t id, std::string_view text) { names_.emplace(id, text); }
  /// Appends what follows from the event: often nothing yet.
  void add(const recorder::Record& record, std::string& lines);

 private:
  struct Request {
    std::uint64_t time = 0;
    std::uint32_t round = 0;
    std::uint32_t bytes = 0;
    std::uint8_t kind = 0;
  };
  struct Batch {
    std::uint64_t time = 0;
    std::uint32_t members = 0;
    std::uint8_t flags = 0;
    int last = -1;            ///< the rank for which it waited
    std::string calls = {};   ///< of calls without a name: their collective
    std::uint64_t bytes = 0;  ///< likewise
    std::vector<std::uint64_t> names = {};
  };
  using InSet = std::pair<std::uint32_t, std::uint64_t>;  ///< a set, and a name or a number there

  void begin_batch(const recorder::Record& record);
  void take_call(Batch& batch, const InSet& number);
  void agree(const recorder::Record& record, std::string& lines);
  void end_batch(const recorder::Record& record, std::string& lines);
  void add_device_span(const recorder::Record& record, std::string& lines);
  [[nodiscard]] std::string name_of(std::uint64_t id) const;
  [[nodiscard]] int row_of(std::uint32_t set, std::uint64_t id, std::string& lines);
  /// `row` 0: of the process.
  [[nodiscard]] std::string metadata(std::string_view what, const std::string& arguments, int row = 0) const;
  [[nodiscard]] std::string sort_index() const;
  [[nodiscard]] std::string row_name(int row, std::string_view name) const;
  [[nodiscard]] std::string begin_of(std::string_view phase, std::string_view name, int row, std::uint64_t time) const;
  void span(std::string& lines, std::string_view name, int row, std::uint64_t from, std::uint64_t to,
            const std::string& arguments) const;
  void mark(std::string& lines, std::string_view name, std::uint64_t time) const;

  const Place place_;
  std::unordered_map<std::uint64_t, std::string> names_;
  std::map<InSet, int> rows_;
  std::array<bool, 5> device_rows_{};  ///< those that have a name in the file
  std::map<InSet, Request> requests_;
  std::map<InSet, Request> agreed_;  ///< the same, once their batch has begun
  std::map<InSet, Request> calls_;   ///< without a name, by number, until their batch begins
  std::map<InSet, Batch> batches_;   ///< by number
  std::map<std::uint64_t, recorder::Record> messages_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> waits_;  ///< by name and number: since when
};

class TimelineFile;

class Timeline final : public recorder::Sink {
 public:
  using Report = std::function<void(const std::string&)>;

  /// `report` gets a sentence for everything that the timeline lacks. Throws Error: the file cannot be opened (io), or
  /// there is no thread (transport). All ranks of the file have made theirs before one ends.
  Timeline(const Place& place, Report report);
  /// The same with an open file.
  Timeline(const Place& place, base::UniqueFd file, Report report);
  ~Timeline() override { end(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// Writes what is there, if the file takes it in time, and takes nothing more.
  void end() noexcept;

  void take(const recorder::Record& record) noexcept override;
  void name(std::uint64_t id, std::string_view text) noexcept override;

 private:
  const base::Duration patience_;
  const std::shared_ptr<TimelineFile> output_;  ///< the thread's, too, which may outlive this
  base::LeavableThread thread_;
  bool has_ended_ = false;
};

}  // namespace kolo::timeline
