// SPDX-License-Identifier: Apache-2.0
//
// What the engine and the calls know of devices other than the CPU. A build without any has no implementation.
//
// A caller's tensors are written and read by work that he has given to streams and that may run later. So a submission
// takes along an event, recorded on the caller's stream, behind which the batch's first portion is held back; and once
// all portions of the batch have been given to the device ("enqueued") there is an event behind which a caller can hold
// back a stream of his own. The host waits for neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <kolo/types.hpp>

#include "data/backend.hpp"

namespace kolo::data {

/// A point in a device's work. Any thread.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// What is given to `stream` (of the same device) from now on runs after this point. Does not block. Throws Error
  /// (transport; invalid_argument while the stream is being captured into a graph).
  virtual void hold_back(Stream stream) const = 0;
};

/// Memory of a rank's device for a GradientArena. All its members have one of the same number and size, and a tensor
/// that lies at the same place of it on all ranks of a collective is reduced there, without a copy.
class DeviceRegion {
 public:
  virtual ~DeviceRegion() = default;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
  /// For the thread that has waited for the collective (see `ask_region`): the memory, zeroed. Throws Error (transport)
  /// when it could not be had.
  [[nodiscard]] virtual std::byte* memory() const = 0;
  /// Says that a tensor ends at this offset, and that nothing lies between it and the next multiple of the arena's
  /// alignment. Any thread.
  virtual void note_end(std::size_t offset) = 0;
};

/// The memory that a device holds, and its work since its backend was made. `Count`: a number, or an atomic one.
template <class Count>
struct DeviceCounts {
  Count buffer_bytes{0};
  Count arena_bytes{0};
  Count batches{0};
  Count portions{0};
  Count bytes_packed{0};
  Count bytes_in_place{0};
  Count collective_calls{0};
  Count communicators{0};
  Count exchanges{0};  ///< on the host, of lengths and of who has room
};
using DeviceUsage = DeviceCounts<std::uint64_t>;

/// A process set that this rank is a member of, as its device needs it.
struct DeviceSet {
  core::SetId number = core::kGlobalSet;
  int rank = 0;  ///< this one's place in it
  int size = 1;
  std::vector<int> members;  ///< as ranks of the world, by rank of the set; empty for the world itself
  bool is_pair = false;      ///< for messages between two ranks: nothing of another set is behind them on the device
  /// Makes the data plane of the CPU that its tensors of a device have for themselves. The backend calls it in the
  /// set's first batch there, the driver's thread; never where there is none.
  std::function<std::unique_ptr<Backend>()> make_plane;
};

/// A message's tensor on its way between the device and memory of the host. Whoever starts it fills in what is
/// constant, and keeps the object and both memories where they are until it is over.
struct DeviceCopy {
  enum class Direction : std::uint8_t { to_host, to_device };

  // -- constant
  Direction direction = Direction::to_host;
  std::byte* on_device = nullptr;
  std::byte* on_host = nullptr;  ///< of any kind
  std::uint64_t bytes = 0;       ///< at least one
  DeviceEventPtr ready;          ///< it begins behind this; null: at once
  void* cookie = nullptr;        ///< the owner's

  // -- the outcome
  std::uint64_t copied = 0;  ///< so many bytes from the first on are where they are to be
  DeviceEventPtr end;        ///< once all of it has been given to the device: the point behind which it is complete
  Status status;
  bool over = false;  ///< neither memory is touched any more

  // -- the backend's
  std::uint64_t given = 0;  ///< so many bytes have been given to the device
  bool stopped = false;
};

/// Copies for messages, of one device. They wait for nobody but the streams of their own callers, and not for each
/// other: one that is not ready holds up none that is. The driver's.
class DeviceCopies {
 public:
  virtual ~DeviceCopies() = default;
  virtual void start(DeviceCopy& copy) = 0;
  /// The rest of it is not needed; it is over soon, if it is not at once.
  virtual void stop(DeviceCopy& copy) = 0;
  /// Moves what can move without blocking, and appends the copies of which more is known, each once; whether anything
  /// moved. Somebody rings the engine when there is something to see. Throws Error (transport): a fatal error. What the
  /// device lacks for all of this is the copies' own failure.
  virtual bool progress(std::vector<DeviceCopy*>& news) = 0;
};

/// One device of one rank. The world's batches and those of all its process sets run there in the order in which they
/// are started, which is the log's: as that is the same everywhere, no two sets can wait for each other.
class DeviceBackend : public Backend {
 public:
  // -- any thread
  /// Chooses this rank's device, unless that has been done: by the rank's place on its machine among those that are
  /// visible, or the one that the launcher left visible. Throws Error (unsupported).
  virtual int bind() = 0;
  /// Throws Error (unsupported) unless this can be done with tensors of this device: there is none, this rank uses
  /// another one already, or nothing there can reduce such elements. The sentence goes on after "..., but ".
  virtual void check_usable(Device device, const core::Signature& signature) = 0;
  /// The same for a message.
  virtual void check_usable(Device device) = 0;
  /// Whether it can run `CollectiveKind::message`: pass data to other ranks' devices.
  [[nodiscard]] virtual bool passes_messages() const noexcept = 0;
  /// The stream as it is now. Throws Error (invalid_argument) while it is being captured into a graph.
  [[nodiscard]] virtual DeviceEventPtr record(Device device, Stream stream) = 0;

  /// Throws Error (invalid_argument) while the stream is being captured into a graph.
  virtual void refuse_capture(Stream stream) const = 0;

  /// Takes `bytes` at `data`, the next ones of what is read; false: no more of them are wanted.
  using Taken = std::function<bool(const std::byte* data, std::size_t bytes)>;
  /// Reads memory of the device, as it is when the streams have come to here, in pieces of kReadBytes and a last one.
  /// Blocks until all has been taken. Throws Error (transport; invalid_argument while a stream is being captured into a
  /// graph).
  virtual void read(Device device, Span<const Stream> streams, const std::byte* data, std::size_t bytes,
                    const Taken& taken) = 0;
  static constexpr std::size_t kReadBytes = std::size_t{1} << 20;

  /// Asks for memory of the device. It is there, or known not to be, when a collective of this device is done that was
  /// submitted after this call: memory is allocated by the driver, while no work of ours is there,
  /// because that could deadlock against a collective that runs. The region stays the backend's, too, until `retire`.
  /// `members`: as ranks of the world.
  [[nodiscard]] virtual std::shared_ptr<DeviceRegion> ask_region(std::uint16_t number, std::size_t bytes,
                                                                 std::vector<int> members) = 0;
  /// No tensor is found there any more. With `release` the memory goes with the last who holds the region; else it
  /// stays until the backend's end.
  virtual void retire(const DeviceRegion& region, bool release) noexcept = 0;
  /// TensorSignature::place of these bytes for a collective of these ranks of the world: 0 unless all are members.
  [[nodiscard]] virtual std::uint64_t place_of(const std::byte* data, std::size_t bytes,
                                               const std::vector<int>& ranks) const = 0;
  [[nodiscard]] virtual DeviceUsage usage() const = 0;

  /// Whether a profiler listens: then jobs have labels, and `note_submission` says when a tensor was submitted.
  [[nodiscard]] virtual bool wants_labels() const noexcept = 0;
  virtual void note_submission(const std::string& name) const noexcept = 0;

  // -- the driver
  /// The set exists from now on. (The world does from the beginning.)
  virtual void add_set(DeviceSet set) = 0;
  /// The set `end.set` has no open batch and gets none any more. True: what it had on the device is given back, by all
  /// its members at the same place of the log, and `end` is reported finished as a job is. False: there was nothing.
  [[nodiscard]] virtual bool remove_set(Job& end) = 0;
  using Enqueued = std::function<void(Job&, const DeviceEventPtr&)>;
  /// `enqueued` is called once a job, by `progress`, when all its work has been given to the device; the event is
  /// reached when the outputs are complete.
  virtual void set_enqueued(Enqueued enqueued) = 0;
  /// After `enqueued`: somebody waits on the host for the end of this job. Rings the engine when that is reached.
  virtual void ring_at_end(const Job& job) = 0;
  /// Lives as long as the backend; `abort` forgets what it has.
  [[nodiscard]] virtual DeviceCopies& copies() noexcept = 0;
  /// Whether something of its own doing should move within microseconds: then it is worth looking again at once. At
  /// other times somebody rings the engine when there is something to see, but for the end of a job, which is found
  /// when it is looked for.
  [[nodiscard]] virtual bool expects_soon() const noexcept = 0;

  /// The end, on any thread, after the last job has finished or `abort`: gives everything back, in peace with the other
  /// ranks where there was no fault. Only `describe` and destruction may follow.
  virtual void close() noexcept = 0;
};

}  // namespace kolo::data
