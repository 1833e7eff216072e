// SPDX-License-Identifier: Apache-2.0
//
// Which route the data of a call takes inside a node: one table, the same on all ranks of the node.
//
// A row says which sizes of a collective may take a route, among so many ranks. A call takes the first route, in the
// order of `Route`, that its size may take, and that is there for it: each route says below for which calls. A batch of
// a group of several nodes takes slots inside each of them (`Site::takes`).
//
// A size is what one rank gives, in bytes: of a broadcast or a scatter what the root gives. Where ranks give different
// amounts, each asks for its own. A "message" goes from one rank to another.
//
// Between nodes each collective has one route (lane.hpp, mesh.hpp).
//
// The text of KOLO_ROUTES gives rows of its own:
//
//   allreduce:0-1K=small,none=flat;reduce@2-4:0-1M=flat;*:none=small
//
// An entry names a collective, or all that offer the route (*), perhaps for some numbers of ranks, and then the sizes,
// both ends included, of some routes. What it does not name stays as it is. Of two rows for the same the later one
// counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/collectives.hpp"

namespace kolo::data::cpu {

enum class Route : std::uint8_t {
  small,  ///< only calls that take the shortcut: through cache lines, without the log (small.hpp)
  flat,   ///< each rank that wants the result reduces all inputs by itself: one meeting (allreduce.hpp)
  peers,  ///< messages alone: read in the memory of the sender, where the system permits it (data/p2p/)
  slots,  ///< chunk by chunk, through shared memory (cpu_backend.hpp): what takes none of the others
};
constexpr std::string_view to_string(Route route) noexcept {
  constexpr std::string_view kNames[] = {"small", "flat", "peers", "slots"};
  return kNames[static_cast<std::size_t>(route)];
}

/// From the first to the last, both included. None: `least` is greater than `most`.
template <class Number>
struct Limits {
  static constexpr Number kAll = std::numeric_limits<Number>::max();
  Number least = 0;
  Number most = kAll;
  [[nodiscard]] constexpr bool hold(Number number) const noexcept { return number >= least && number <= most; }
  [[nodiscard]] constexpr bool are_none() const noexcept { return least > most; }
};
using ByteRange = Limits<std::uint64_t>;
inline constexpr ByteRange kNoSizes{1, 0};

struct RouteRow {
  std::string_view subject;  ///< a collective, "message", or, in the text of KOLO_ROUTES, "*"
  Route route;
  Limits<int> ranks;
  ByteRange sizes;
};
inline constexpr std::string_view kMessage = "message";

/// A collective offers the routes that have rows here.
///
/// small: up to 64 KiB the log costs more than the copies that peers save each other. In an all-reduce each rank reads
/// all inputs: 512 KiB at most.
///
/// flat: every rank reads all of every other's input, which crosses cores n - 1 times instead of twice, but ranks meet
/// once instead of twice. A meeting costs some hundred nanoseconds, the time in which 8 KiB cross. The root of a reduce
/// reads a line of each rank and writes one; through slots it reads and writes about two.
///
/// peers: a read costs a call of the system, which copies page by page. The ring costs a second copy, and lines that
/// come from another CPU.
inline constexpr RouteRow kDefaultRoutes[] = {
    {"allreduce", Route::small, {0, 8}, {0, 64 << 10}},
    {"allreduce", Route::small, {9, 16}, {0, 32 << 10}},
    {"allreduce", Route::small, {17, 32}, {0, 16 << 10}},
    {"allreduce", Route::small, {33, 64}, {0, 8 << 10}},
    {"allreduce", Route::small, {65, Limits<int>::kAll}, {0, 1 << 10}},
    {"allreduce", Route::flat, {}, {0, 8 << 10}},
    {"allgather", Route::small, {}, {0, 64 << 10}},
    {"broadcast", Route::small, {}, {0, 64 << 10}},
    {"barrier", Route::small, {}, {0, 0}},
    {"alltoall", Route::small, {}, {0, 64 << 10}},
    {"reduce_scatter", Route::small, {}, {0, 64 << 10}},
    {"reduce", Route::small, {}, {0, 64 << 10}},
    {"reduce", Route::flat, {0, 3}, {}},
    {"reduce", Route::flat, {4, Limits<int>::kAll}, {0, 8 << 10}},
    {"gather", Route::small, {}, {0, 64 << 10}},
    {"scatter", Route::small, {}, {0, 64 << 10}},
    {kMessage, Route::peers, {}, {8 << 10, ByteRange::kAll}},
};

/// The table: the defaults, and what KOLO_ROUTES says.
class RouteTable {
 public:
  /// `changes`: the text of KOLO_ROUTES. `shared_cache`: the bytes of the cache that the CPUs of the node's ranks
  /// share; 0: they share none, or nobody knows (cpu_distance.hpp). Throws Error (invalid_setting), which says what is
  /// wrong, and what is right.
  explicit RouteTable(std::string_view changes = {}, std::size_t shared_cache = 0);
  /// The sizes of one route among so many ranks.
  [[nodiscard]] ByteRange sizes(std::string_view subject, Route route, int ranks) const noexcept;
  /// The most that a small call gives among up to so many ranks. Nothing: there are no small calls.
  [[nodiscard]] std::optional<std::size_t> longest_small(int ranks) const;
  /// Messages of more bytes are read in the sender's memory. Nothing: none is.
  [[nodiscard]] std::optional<std::uint64_t> messages_read_above(int ranks) const noexcept;
  /// All that holds among so many ranks, as KOLO_ROUTES would give it: an entry for each collective. `reads_peers`:
  /// whether they may read one another's memory.
  [[nodiscard]] std::vector<std::string> describe(int ranks, bool reads_peers) const;

 private:
  void change(std::string_view entry);

  std::vector<RouteRow> rows_;  // of two for the same the later one counts
};

/// What the table says for a set.
class Routes {
 public:
  /// `ranks`: of the set.
  Routes(const RouteTable& table, int ranks);
  [[nodiscard]] bool may_take(core::CollectiveKind kind, Route route, std::size_t bytes) const noexcept {
    return sizes_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(route)].hold(bytes);
  }

 private:
  std::array<std::array<ByteRange, static_cast<std::size_t>(Route::slots)>, core::kCollectiveCount> sizes_;  // by kind
};

}  // namespace kolo::data::cpu
