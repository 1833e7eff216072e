// SPDX-License-Identifier: Apache-2.0
//
// Batches of tensors that lie on a GPU.
//
// Words. A *portion* is what one buffer holds: it is packed, carried around the ranks, unpacked (portions.hpp). A
// *buffer* is a fusion buffer on the device. A *carrier* is NCCL, or the CPU by way of pinned memory.
//
// Streams. Each has one task, so that neighbouring portions overlap, and events hold back one behind another:
//
//     caller's stream  ..backward..|event|..backward..                         |wait_on|..optimizer..
//                                     \                                        /
//     pack                             [pack k][pack k+1]  [pack k+3 when unpack k has ended: the same buffer]
//                                              \                             /
//     carrier's                                 [NCCL k][NCCL k+1]          /
//                                                       \                  /
//     unpack                                             [unpack k][unpack k+1]
//     bell                                                         [ring, if the host waits]
//
// A small batch, and one that is reduced where it lies, has all its work on the carrier's stream: to change streams
// three times takes longer than what it could overlap with. What is not scaled there needs neither pack nor unpack.
//
// The host blocks nowhere; it gives a portion's work to the streams as soon as that is known, in one pass where nothing
// has to be waited for. Whoever drives the engine does it: a thread that submits, waits, or the background thread.
// Calls into NCCL that may wait for other ranks have a thread of their own (nccl_carrier.hpp). While batches are open
// the communicators are asked whether something went wrong: a peer may be lost while its kernel is waited for.
//
// Completion. A thread that drives looks at the end of the first batch in every pass. Where none does, a batch for
// whose end somebody sleeps on the host gets a ring: a stream of its own is held back behind the batch's last event and
// then rings the engine's bell from a host function. A stream of its own, because a host function would hold up the
// next portion on any other. Other batches are found to be over by the engine's naps of a millisecond, which are a
// safeguard for the first, too: a host function is not called after an error.
//
// The beginning. Nothing is done before a tensor on a device is submitted, or `bind` is called. The first batch of any
// process set makes this rank allocate and load what it needs: later both could deadlock against a running collective.
// That takes up to seconds, so it has a thread of its own: the driver, and with it the tensors of the CPU, go on
// meanwhile. The first batch of a set (the world is one) - every rank of it comes to it, at the same place of the log -
// makes its ranks tell each other, over a data plane of the CPU that the set has for this alone, on which device they
// are, whether they have what they need, and NCCL's unique id (set_on_device.hpp), and, once NCCL has connected them,
// whether that has succeeded. What one of them lacks fails every batch of the set on all its ranks with the same
// sentence, and the job goes on.
//
// Process sets. Buffers, streams and tables are the rank's, a data plane and a communicator the set's. The batches of
// all sets go through one pipeline, in the order of the log. No two sets can therefore wait for each other: the oldest
// unfinished batch heads every member's queue, on the host and on each stream, so its ranks wait only for each other. A
// set makes or ends its communicator like a batch, at its place in the log, and with nothing else of Kolo's on the
// device: otherwise it could wait there for a kernel whose peer has not reached it yet.
//
// What blocks under the driver's lock after that: the memory of an arena, milliseconds, while nothing of ours is on the
// device; what a set's communicator takes to be destroyed; and the end. A launch would, if a stream were full: so
// batches wait here while so many are with the device.
//
// Arenas. A GradientArena's memory is allocated by the driver while no work of ours is on the device, and registered
// with NCCL. Tensors that lie at the same place of it on all ranks - which is part of what ranks must agree on - are
// neither packed nor unpacked; where tensors of a batch are neighbours there, one collective reduces all of them.
//
// Messages. One from device to device is a batch of the pair's process set (`DeviceSet::is_pair`). Else the tensor is
// copied between the device and memory of the host (copies.hpp), and the message is the CPU's: it is in no log, and no
// kernel waits for a peer.
//
// The end. A set that all its ranks have dropped gives back its data plane and its communicator. `abort` ends the
// kernels of all communicators, which may wait for a rank that is dead, lets the streams run dry, and returns when no
// kernel of ours can touch a caller's memory any more. Vendors' calls that do not come back cannot be ended: after some
// seconds they are left to a thread of their own, with all that they use (`Leftovers`).
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "data/cuda/beginning.hpp"
#include "data/cuda/carrier.hpp"
#include "data/cuda/chosen_device.hpp"
#include "data/cuda/cuda_api.hpp"
#include "data/cuda/device_region.hpp"
#include "data/cuda/device_times.hpp"
#include "data/cuda/events.hpp"
#include "data/cuda/known_regions.hpp"
#include "data/cuda/memory_limit.hpp"
#include "data/cuda/nvtx.hpp"
#include "data/cuda/portions.hpp"
#include "data/cuda/set_on_device.hpp"
#include "data/cuda/tables.hpp"
#include "data/cuda/tenants.hpp"
#include "data/device.hpp"

namespace kolo::cuda {

class Equipment;

struct CudaBackendOptions {
  int machine_rank = 0;  ///< its place among the ranks of its machine, whatever nodes that is cut into
  bool staged = false;
  bool share_device = false;
  std::size_t buffers = 3;
  std::size_t buffer_bytes = std::size_t{16} << 20;
  std::size_t direct_bytes = std::size_t{8} << 20;
  std::uint64_t memory_limit = 0;  ///< of what is allocated on the device; 0: none
  /// How long `close` waits for peers to leave, too.
  std::chrono::nanoseconds patience = std::chrono::seconds(5);
  /// How long NCCL may take to connect the ranks of a set.
  std::chrono::nanoseconds connecting = std::chrono::minutes(5);
  std::function<void()> ring;  ///< wakes the engine; any thread, also after the backend's end
  /// How long `abort` waits for NCCL and the device.
  std::chrono::nanoseconds abort_patience = std::chrono::seconds(10);
  /// Takes what the device may still use when that is over, for as long as the process lasts, and why.
  std::function<void(std::shared_ptr<void>, const std::string& sentence)> leave_behind;
  std::shared_ptr<Tenants> tenants = std::make_shared<Tenants>();  ///< the process's
};

/// How large buffers are: a batch fits into one, with the gaps between its tensors. Staged they are smaller, because it
/// is their number under way that makes the copies overlap.
[[nodiscard]] std::size_t buffer_bytes_for(std::int64_t fusion_threshold_bytes, int size, bool staged) noexcept;

/// The driver counts, any thread reads.
struct DeviceCounters : data::DeviceCounts<std::atomic<std::uint64_t>> {
  void count(const Portion& portion) {
    ++portions;
    for (const Segment& segment : portion.segments) {
      if (segment.packs && segment.input != nullptr) bytes_packed += segment.bytes;
    }
    collective_calls += portion.calls.size();
    for (const Call& call : portion.calls) {
      if (call.to != nullptr) bytes_in_place += call.count * size_of(call.dtype);
    }
  }
  /// But for the arenas.
  [[nodiscard]] data::DeviceUsage usage() const {
    return {buffer_bytes,   arena_bytes,      batches,       portions, bytes_packed,
            bytes_in_place, collective_calls, communicators, exchanges};
  }
};

class CudaBackend final : public data::DeviceBackend {
 public:
  CudaBackend(CudaBackendOptions options, data::DeviceSet world);
  ~CudaBackend() override;

  // data::DeviceBackend
  int bind() override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string explain_route(const data::Job& job, const data::Run& run,
                                          const data::Piece& piece) override;
  void check_usable(Device device, const core::Signature& signature) override;
  void check_usable(Device device) override;
  [[nodiscard]] bool passes_messages() const noexcept override { return !options_.staged; }
  [[nodiscard]] data::DeviceEventPtr record(Device device, Stream stream) override;
  void refuse_capture(Stream stream) const override;
  void read(Device device, Span<const Stream> streams, const std::byte* data, std::size_t bytes,
            const Taken& taken) override;
  [[nodiscard]] std::shared_ptr<data::DeviceRegion> ask_region(std::uint16_t number, std::size_t bytes,
                                                               std::vector<int> members) override;
  void retire(const data::DeviceRegion& region, bool release) noexcept override { regions_.retire(region, release); }
  [[nodiscard]] std::uint64_t place_of(const std::byte* data, std::size_t bytes,
                                       const std::vector<int>& ranks) const override {
    return regions_.place_of(data, bytes, ranks);
  }
  [[nodiscard]] data::DeviceUsage usage() const override;
  [[nodiscard]] bool wants_labels() const noexcept override { return profiler_listens(); }
  void note_submission(const std::string& name) const noexcept override { mark_for_profiler("submit", name); }
  void add_set(data::DeviceSet set) override;
  [[nodiscard]] bool remove_set(data::Job& end) override;
  void set_enqueued(Enqueued enqueued) override { enqueued_ = std::move(enqueued); }
  void ring_at_end(const data::Job& job) override;
  [[nodiscard]] data::DeviceCopies& copies() noexcept override;
  [[nodiscard]] bool expects_soon() const noexcept override;
  void start(data::Job& job) override;
  data::Progress progress(std::vector<data::Job*>& finished) override;
  void abort() noexcept override;
  void close() noexcept override;

 private:
  struct OpenJob;
  struct Flight;
  struct Leftovers;
  class Copies;

  // The beginning and the end of a set; each true when something moved.
  bool make_ready(OpenJob& open);
  void let_go_of_equipment() noexcept;
  bool end_set(OpenJob& open);

  // The pipeline; likewise.
  bool move_planes();
  bool serve_regions();
  bool plan_one();
  [[nodiscard]] PortionLimits limits_of(const SetOnDevice& set, const data::Job& job) const noexcept;
  bool plan(OpenJob& open);
  bool plan_uneven(OpenJob& open, std::size_t end);
  static void plan_known(OpenJob& open, data::Run& run);
  bool pack_one();
  bool carry_one();
  bool unpack_one();
  bool finish_one(std::vector<data::Job*>& finished);
  [[nodiscard]] bool choose_buffer(Load& load) const;
  void take_buffer(Load& load, const OwnStream& on);
  void enqueue_end(OpenJob& open, const OwnStream& last);
  static void run_dry(const Equipment& with) noexcept;
  [[nodiscard]] bool end_by_force(const std::shared_ptr<Leftovers>& held) noexcept;

  const CudaBackendOptions options_;
  const int world_size_;
  const std::shared_ptr<MemoryLimit> memory_;
  Enqueued enqueued_;

  ChosenDevice device_;
  KnownRegions regions_;
  DeviceCounters counters_;  // written by the driver

  // -- the driver's
  bool closed_ = false;
  std::map<core::SetId, std::shared_ptr<SetOnDevice>> sets_;
  Beginning beginning_;
  std::deque<std::unique_ptr<OpenJob>> jobs_;  // of all sets, in the order of the log
  std::deque<Flight> flights_;
  DeviceTimes times_;
  const std::unique_ptr<Copies> copies_;
  std::uint64_t looks_ = 0;  // for batches that are over
  std::size_t given_ = 0;    // of the jobs, those whose work is all with the device
  base::Time moved_at_{};
};

}  // namespace kolo::cuda
