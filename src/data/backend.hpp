// SPDX-License-Identifier: Apache-2.0
//
// What runs a batch. The engine hands over jobs in log order and asks for progress; the backend moves the bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/error.hpp>

#include "core/device_span.hpp"
#include "core/signature.hpp"

namespace kolo::data {

/// One tensor's part of a run. `input == output` is in place; otherwise they are disjoint.
struct Piece {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t elements = 0;
  std::uint64_t place = 0;  ///< TensorSignature::place
};

/// A homogeneous stretch of a batch: one collective over the concatenation of its pieces, the same number of elements
/// on every rank, unless rows differ by rank (core/collectives.hpp). Those have one piece, as alltoall and
/// reduce_scatter have.
struct Run {
  core::CollectiveKind kind = core::CollectiveKind::allreduce;
  DType dtype = DType::float32;
  /// What every rank's input is encoded as, times prescale, before it is reduced, and the result before it is handed
  /// out in `dtype`; where there is only one rank nothing is.
  core::Wire wire = core::Wire::own;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::int64_t divisor = 1;  ///< of an average the number of ranks that it is over, else 1
  int root = 0;              ///< where the kind is rooted (core/collectives.hpp); as a rank of the set
  std::vector<Piece> pieces;
  std::int64_t elements = 0;  ///< of all pieces
  std::int64_t rows = 0;      ///< reduce_scatter: the first dimension; see `RowsOf` for who gets how many
  /// Alltoall with splits: how many rows each rank gets, and the elements of a row. The caller's memory.
  Span<const std::int64_t> splits;
  /// Likewise: how many rows each rank has for this one; empty: not known. A backend may ask the ranks all the same.
  Span<const std::int64_t> received_splits;
  std::int64_t row_elements = 0;
  /// Where rows differ by rank (core/collectives.hpp): called once, by the driver, when every rank's contribution is
  /// known (bytes by rank of the set); returns the output, which has room for their sum, null where this rank gets no
  /// result, or throws (std::bad_alloc becomes the handle's error and the bytes are discarded). Alltoall with splits:
  /// the same with the rows that each rank sends here, in place of bytes.
  std::function<std::byte*(const std::vector<std::int64_t>& parts)> allocate;
  /// Where rows differ by rank: set by the backend before the run is over, if this rank has no result of it. Its
  /// neighbours in the job are none the worse.
  Status status;
};

/// Which of `rows` rows are `rank`'s after a reduce_scatter over `ranks` ranks: the same number for all, one more for
/// the first `rows % ranks`.
struct RowsOf {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  RowsOf(std::int64_t rows, int rank, int ranks) noexcept
      : begin(rows / ranks * rank + std::min<std::int64_t>(rank, rows % ranks)),
        count(rows / ranks + (rank < rows % ranks ? 1 : 0)) {}
};

class DeviceEvent;
using DeviceEventPtr = std::shared_ptr<const DeviceEvent>;

/// A batch as a backend sees it: runs one after another. Owned by the engine; must stay alive and unmoved from `start`
/// until it is reported finished or `abort` has returned.
struct Job {
  core::SetId set = core::kGlobalSet;
  std::vector<Run> runs;
  /// A rank that is absent gives neutral elements and keeps nothing. On a device it has no memory for that: its pieces
  /// have neither input nor output there.
  bool some_are_absent = false;
  bool is_absent = false;             ///< this rank
  std::vector<DeviceEventPtr> ready;  ///< on a device: when the callers' streams have come to where they submitted
  std::string label;                  ///< for profilers, where one listens: the first tensor's name, and how many more
  void* cookie = nullptr;             ///< the engine's own
  Status status;                      ///< set by the backend before the job is reported finished: of all runs
  /// Where rows differ by rank a backend may call this, from `progress`, when one of the runs is over on this rank: its
  /// memory is not touched any more. At most once a run, and not for the last one, which is over when the job is
  /// finished. Empty: nobody wants to know.
  std::function<void(Job& job, std::size_t run)> run_over;
  std::uint64_t bytes_in_place = 0;  ///< of this rank's tensors, not copied: added to by the backend

  // -- on a device, for timelines
  std::uint32_t timeline = 0;           ///< the number of the one that runs; 0: none, and nothing is timed
  std::vector<core::DeviceSpan> spans;  ///< set by the backend before the job is reported finished
  std::string untimed;                  ///< likewise: why this timeline gets no more of them; said once
};

enum class Progress : std::uint8_t {
  idle,      ///< nothing to do: no job is open
  waiting,   ///< jobs are open, and all of them wait for somebody else
  advanced,  ///< something moved
};

/// By which route a run goes (docs/tuning.md).
enum class RunRoute : std::uint8_t {
  device,  ///< one of a device's own, which says more of it in `explain_route`
  alone,   ///< there is one rank
  flat,    ///< each rank that wants the result reduces all inputs by itself
  slots,   ///< chunk by chunk through the memory of the node
  between_nodes,
};
constexpr std::string_view to_string(RunRoute route) noexcept {
  constexpr std::string_view kNames[] = {"on the device", "in place", "flat", "slots", "between nodes"};
  return kNames[static_cast<std::size_t>(route)];
}

/// Calls come from the engine's driver, one thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string describe() const = 0;
  /// By which route it runs such a run, for counters and the log.
  [[nodiscard]] virtual RunRoute route(const Run& /*run*/) const { return RunRoute::device; }
  /// Where a piece of a run of such a job is reduced, by what, and why, for the log: "on the CPU, through slots,
  /// because ...". Not where a job has been started already.
  [[nodiscard]] virtual std::string explain_route(const Job& /*job*/, const Run& /*run*/, const Piece& /*piece*/) {
    return {};
  }
  /// Queues a job. Jobs of one set run in the order they were started, on every rank the same; several may overlap.
  virtual void start(Job& job) = 0;
  /// Moves whatever can move without blocking; appends jobs that have finished, in order. Throws `Error` (transport): a
  /// fatal error.
  virtual Progress progress(std::vector<Job*>& finished) = 0;
  /// The other ranks of the world that open jobs wait for, ascending; empty: the next move is this rank's own. Nothing:
  /// the backend cannot say.
  [[nodiscard]] virtual std::optional<std::vector<int>> awaited() const { return std::nullopt; }
  /// Forgets all jobs. After it returns nothing touches a caller's memory any more. Only `describe` and destruction may
  /// follow.
  virtual void abort() noexcept = 0;
};

}  // namespace kolo::data
