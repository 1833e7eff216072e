// SPDX-License-Identifier: Apache-2.0
//
// The file in which a rank records what it does: version 2. It is mapped memory that the rank writes with plain stores,
// so it is complete at every moment, whatever ends the process. A reader takes two copies of it, one after the other,
// also while the rank runs (reader.hpp), and maps nothing: another process may change the file, or cut it off.
//
//   Header            kHeaderBytes; what is constant, and a few words that change
//   nodes             the node of each rank of the world: 4 bytes each
//   sets              SetRow, of the groups that this rank is a member of
//   texts             one behind another, each padded to 8 bytes: id (8 bytes), length (4), 4 unused, the bytes
//   driver's ring     Event, of the thread that drives the engine: one writer at a time
//   callers' ring     Event, of threads of the program: many writers
//
// Where each part begins and how long it is stands in the header. Numbers have the machine's own byte order.
//
// Rings. Event number n lies at place n mod capacity. `head` is the number of the next event. The driver writes an
// event and then raises `head`, so all events below `head` are whole, except those that are overwritten while they are
// copied: those below head - capacity + 1 of a `head` that was copied afterwards. A caller raises `head` first, then
// writes its event; the kind of an event that is being written is `none`.
//
// Texts. An event has the id of a text, which is its hash (base::hash_string). When there is no space for more texts,
// events have ids without a text. The text of a group's members is a list of ranks, in which a run of three or more is
// "first-last" or "first-last/step": "0 2 5-9 16-1016/8".
//
// Nothing of a tensor's contents is recorded: names, sizes, times and sentences only.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kolo::recorder {

inline constexpr std::array<char, 8> kMagic{'K', 'O', 'L', 'O', 'R', 'E', 'C', '\n'};
inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::size_t kHeaderBytes = 4096;
// No file has more than this.
inline constexpr std::int32_t kMostRanks = 1 << 16;
inline constexpr std::uint64_t kSetRows = 256;
inline constexpr std::uint64_t kTextBytes = 128 << 10;
inline constexpr std::uint64_t kDriverEvents = 8192;
inline constexpr std::uint64_t kCallersEvents = 1024;
inline constexpr std::size_t kTextHead = 16;  ///< bytes before each text: its id and its length

/// What happened. A new kind is added at the end. "Name" is the id of a tensor's name, "number" that of a call without
/// a name in its set's sequence.
enum class Kind : std::uint8_t {
  none,         ///< no event: it is being written
  start_step,   ///< a step of the start begins. id: its text
  started,      ///< the start is over
  submitted,    ///< id: name; round; amount: bytes; detail: the collective's kind
  called,       ///< a call without a name goes by the log. round: its number; amount: bytes; detail: the kind
  batch_begun,  ///< agreed by all, and handed to the data plane. round: the batch's number in its set; amount: members;
  ///< id: the first member's name, or the number of its first call; detail: BatchFlags; last: the rank for
  ///< which it waited (control/messages.hpp, "Waiting")
  batch_member,  ///< id: name of another member of the batch that has just begun
  batch_ended,   ///< round: the batch's number; detail: BatchRoutes
  failed,        ///< an operation. id: name, or 0; round: as of `submitted` or `called`; detail: the error's code
  sentence,      ///< id: the text of the event before
  wait_begun,    ///< a thread of the program sleeps. id: name, or 0; round: who sleeps, as in its `wait_ended`
  wait_ended,
  message_open,   ///< a message between two ranks waits. id: which; round: the tag; amount: bytes; detail: 1 a send;
                  ///< set: the peer's rank in the world, or kAnyRank
  message_ended,  ///< id: as of `message_open`; detail: the error's code
  warned,         ///< an operation has waited for KOLO_STALL_WARNING_S. As `failed`
  overdue,        ///< its deadline has passed. As `failed`
  late,           ///< the log says that a rank had not submitted. id: name, or 0; amount: the rank
  answered,       ///< this rank answered a question about an overdue operation. detail: as control::Doing;
                  ///< amount: 1: it has submitted the operation
  awaits,         ///< the data plane waits for a rank. amount: the rank
  death_seen,     ///< the end of a process of this node, or of a link. amount: the rank
  rank_left,      ///< a rank has called shutdown. amount: the rank
  reported,       ///< this rank cannot go on. amount: the rank at fault; detail: the error's code; a sentence follows
  fault,          ///< a fatal error is recorded. detail: its code; a sentence follows
  blamed,         ///< the log's fatal error is because of a rank. amount: the rank, or kAnyRank
  group_made,     ///< id: the text of the group
  group_gone,
  join_begun,
  join_ended,
  step_ended,   ///< amount: how many so far
  leaving,      ///< this rank has called shutdown
  closed,       ///< all ranks have left, or nobody is left to go on with
  stopped,      ///< the engine has ended
  device_span,  ///< for sinks alone. id: the end's time; round: the batch's number; amount: bytes; detail:
                ///< core::DeviceSpan::code
};
inline constexpr std::uint32_t kAnyRank = ~std::uint32_t{0};

/// Bits of `batch_begun`.
enum BatchFlags : std::uint8_t { kPlanned = 1, kOnDevice = 2, kUnnamed = 4, kAbsent = 8 };
/// Bits of `batch_ended`: by which routes its parts went.
enum BatchRoutes : std::uint8_t { kAlone = 1, kFlat = 2, kSlots = 4, kBetweenNodes = 8, kDevice = 16 };

/// What a rank does on the whole.
enum class State : std::uint64_t {
  starting = 1,
  running,
  faulted,  ///< a fatal error is recorded
  leaving,  ///< shutdown was called
  closed,   ///< the engine has ended, without all others having left in order
};

/// One event. The words are atomic because readers of other processes look while they are written.
struct Event {
  std::atomic<std::uint64_t> time;  ///< CLOCK_MONOTONIC, in nanoseconds
  std::atomic<std::uint64_t> id;
  std::atomic<std::uint64_t> counts;  ///< round (the lower half), amount (the upper)
  std::atomic<std::uint64_t> what;    ///< set (the lower half), kind, detail (a byte each), last (the rest: a rank and
                                      ///< 1; 0: none)
};
static_assert(sizeof(Event) == 32 && std::atomic<std::uint64_t>::is_always_lock_free);

/// A group. Rows are used again. `set` is written last, and first when it is removed; 0: an unused row.
struct SetRow {
  std::atomic<std::uint64_t> set;
  std::atomic<std::uint64_t> words;    ///< id of its text
  std::atomic<std::uint64_t> members;  ///< id of the text of its ranks of the world, in its order; 0: it is too long
  std::atomic<std::uint64_t> serial;   ///< its number among all groups of the world, from 1
};

/// Calls without a name that avoided the log: they are counted, not stamped. Of the sets with the same remainder the
/// last one that made a call.
struct FastCalls {
  std::atomic<std::uint64_t> set;
  std::atomic<std::uint64_t> number;  ///< of the last such call in the set's sequence
};
inline constexpr std::size_t kFastRows = 32;

struct Part {
  std::uint64_t offset = 0;  ///< in the file
  std::uint64_t count = 0;   ///< of its elements; of texts: of bytes
};

struct Header {
  // -- constant
  std::array<char, 8> magic{};
  std::uint32_t version = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int32_t node = 0;
  std::uint64_t file_bytes = 0;
  Part nodes, sets, texts, driver, callers;
  std::uint64_t pid = 0;
  std::uint64_t process_start = 0;  ///< field 22 of /proc/PID/stat: another process with this pid has another
  std::int64_t wall_ns = 0;         ///< CLOCK_REALTIME when CLOCK_MONOTONIC was
  std::int64_t monotonic_ns = 0;
  std::uint64_t pid_namespace = 0;  ///< in which `pid` is meant: the inode of /proc/self/ns/pid; 0: not known
  std::array<char, 64> boot{};      ///< the system's boot: clocks of two files with the same boot are one clock
  std::array<char, 256> host{};
  std::array<char, 128> job{};
  std::array<char, 32> release{};  ///< of Kolo
  // -- changing
  std::atomic<std::uint64_t> state;
  std::atomic<std::uint64_t> driver_head;
  std::atomic<std::uint64_t> callers_head;
  std::atomic<std::uint64_t> texts_used;  ///< bytes
  std::atomic<std::uint64_t> fast_calls;  ///< of all sets
  std::array<FastCalls, kFastRows> fast;
  std::atomic<std::uint64_t> has_ended;  ///< 1: the rank writes nothing more
};
static_assert(sizeof(Header) <= kHeaderBytes);

/// No file is longer. (Each part begins at a multiple of 64.)
inline constexpr std::size_t kMostBytes = kHeaderBytes + kMostRanks * sizeof(std::int32_t) + kSetRows * sizeof(SetRow) +
                                          kTextBytes + (kDriverEvents + kCallersEvents) * sizeof(Event) +
                                          std::size_t{5} * 64;

}  // namespace kolo::recorder
