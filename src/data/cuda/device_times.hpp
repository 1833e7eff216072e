// SPDX-License-Identifier: Apache-2.0
//
// When the device did what, for timelines: events with timing around what is given to a stream. They are read when the
// batch is over, which is found out without them; nothing waits for them. Without a timeline there are none.
//
// The device's clock. In a timeline's first batch an event is recorded on a stream that has nothing to do, and the host
// looks when it is reached: both clocks are then known to agree within that time, some microseconds. From then on they
// may drift. But nothing begins on the device before the host has given it, nor ends after the host has seen its end:
// where a batch says otherwise, the device's clock is set right.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "core/device_span.hpp"
#include "data/cuda/cuda_api.hpp"
#include "data/cuda/portions.hpp"

namespace kolo::cuda {

/// Around one piece of work on a stream. Whoever gives that work calls `begin` before it, and `end` after it.
class Stamps {
 public:
  void begin(cudaStream_t stream) noexcept;
  void end(cudaStream_t stream) noexcept { stamp(end_, stream); }

 private:
  friend class DeviceTimes;
  void stamp(const TimedEvent& event, cudaStream_t stream) noexcept;

  TimedEvent begin_;
  TimedEvent end_;
  cudaStream_t stream_ = nullptr;  // where it begins
  base::Time given_{};             // by the host
  std::exception_ptr failure_;
};

/// Their `begin`, and their `end` when this is destroyed. Null: neither.
class StampsAround {
 public:
  StampsAround(Stamps* stamps, cudaStream_t stream) noexcept : stamps_(stamps), stream_(stream) {
    if (stamps_ != nullptr) stamps_->begin(stream_);
  }
  ~StampsAround() {
    if (stamps_ != nullptr) stamps_->end(stream_);
  }
  StampsAround(const StampsAround&) = delete;
  StampsAround& operator=(const StampsAround&) = delete;

 private:
  Stamps* const stamps_;
  const cudaStream_t stream_;
};

/// A portion's; null where it has no such part, or is not timed.
struct PortionStamps {
  std::unique_ptr<Stamps> pack;
  std::unique_ptr<Stamps> carry;
  std::unique_ptr<Stamps> unpack;
};

/// The driver's; the device is current.
class DeviceTimes {
 public:
  struct Streams {
    cudaStream_t pack = nullptr;
    cudaStream_t unpack = nullptr;  // others are NCCL's
    bool staged = false;            // the carrier is the CPU
  };

  /// Whether batches of this timeline (0: none) are timed. The first call for a timeline waits for some microseconds,
  /// until `idle`, a stream that has nothing to do for long, has come to an event.
  [[nodiscard]] bool are_wanted(std::uint32_t timeline, cudaStream_t idle);
  [[nodiscard]] PortionStamps take(const Portion& portion);
  /// What a batch that is over has done. `stamps`: by portion; they are used again. Empty where that cannot be told.
  [[nodiscard]] std::vector<core::DeviceSpan> read(const std::vector<Portion>& portions,
                                                   std::vector<PortionStamps> stamps, const Streams& streams);
  /// Why no batch of this timeline is timed any more: once, then empty.
  [[nodiscard]] std::string take_failure() noexcept { return std::exchange(failure_, {}); }

 private:
  /// A piece of work, and when it was done, from the base on.
  struct Timed {
    std::unique_ptr<Stamps> stamps;
    core::DeviceSpan span;
    base::Duration begin{};
    base::Duration end{};
  };

  void tie(cudaStream_t idle);
  void fail(const Error& error);
  [[nodiscard]] std::unique_ptr<Stamps> take_one();
  [[nodiscard]] core::DeviceSpan::Row row_of(const Stamps& stamps, const Streams& streams);
  void look_when(std::vector<Timed>& all);
  void correct(const std::vector<Timed>& all, base::Time seen);

  std::uint32_t timeline_ = 0;
  bool works_ = false;  // for this timeline
  std::string failure_;
  std::optional<TimedEvent> base_;
  base::Time base_time_{};  // when it was reached, by the host's clock
  std::vector<std::unique_ptr<Stamps>> free_;
  std::vector<cudaStream_t> nccl_;  // as they were first seen
};

}  // namespace kolo::cuda
