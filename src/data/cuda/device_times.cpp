// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/device_times.hpp"

#include <algorithm>
#include <chrono>

#include <kolo/error.hpp>

namespace kolo::cuda {
namespace {

using core::DeviceSpan;

/// Of some tries to tie the clocks the one counts that took the least time.
constexpr int kTries = 4;
/// What an idle stream may take at most to come to an event.
constexpr std::chrono::seconds kPatience{1};
/// CUDA gives times as float32, in milliseconds: so long after the base they are exact to ten nanoseconds.
constexpr std::chrono::milliseconds kBaseAge{100};

std::uint64_t nanoseconds(base::Time time) noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

std::uint64_t bytes_of(const std::vector<Segment>& segments, bool Segment::*takes_part) {
  std::uint64_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.*takes_part ? segment.bytes : 0;
  return bytes;
}

std::uint64_t bytes_of(const std::vector<Call>& calls) {
  std::uint64_t bytes = 0;
  for (const Call& call : calls) bytes += call.count * size_of(call.dtype);
  return bytes;
}

}  // namespace

void Stamps::begin(cudaStream_t stream) noexcept {
  failure_ = nullptr;
  stream_ = stream;
  given_ = base::now();
  stamp(begin_, stream);
}

void Stamps::stamp(const TimedEvent& event, cudaStream_t stream) noexcept {
  try {
    event.stamp(stream);
  } catch (const std::exception&) {
    failure_ = std::current_exception();
  }
}

bool DeviceTimes::are_wanted(std::uint32_t timeline, cudaStream_t idle) {
  if (timeline == 0) return false;
  if (std::exchange(timeline_, timeline) == timeline) return works_;
  works_ = true;
  failure_.clear();
  nccl_.clear();
  try {
    tie(idle);
  } catch (const Error& error) {
    fail(error);
  }
  return works_;
}

void DeviceTimes::tie(cudaStream_t idle) {
  base::Duration least = base::Duration::max();
  for (int i = 0; i < kTries; ++i) {
    TimedEvent event;
    const base::Time before = base::now();
    event.stamp(idle);
    while (!event.is_reached()) {
      if (base::now() - before > kPatience)
        throw Error(ErrorCode::transport, "the device has not come to an event on an idle stream within a second");
    }
    const base::Duration took = base::now() - before;
    if (took >= least) continue;
    least = took;
    base_ = std::move(event);
    base_time_ = before + took / 2;
  }
}

void DeviceTimes::fail(const Error& error) {
  works_ = false;
  failure_ = error.status().message();
}

std::unique_ptr<Stamps> DeviceTimes::take_one() {
  if (free_.empty()) return std::make_unique<Stamps>();
  std::unique_ptr<Stamps> one = std::move(free_.back());
  free_.pop_back();
  return one;
}

PortionStamps DeviceTimes::take(const Portion& portion) {
  PortionStamps stamps;
  if (!works_) return stamps;
  try {
    if (portion.packs()) stamps.pack = take_one();
    if (!portion.calls.empty()) stamps.carry = take_one();
    if (portion.unpacks()) stamps.unpack = take_one();
  } catch (const Error& error) {
    fail(error);
  }
  return stamps;
}

std::vector<DeviceSpan> DeviceTimes::read(const std::vector<Portion>& portions, std::vector<PortionStamps> stamps,
                                          const Streams& streams) {
  const base::Time seen = base::now();
  std::vector<Timed> all;
  const auto add = [&](std::unique_ptr<Stamps>& one, DeviceSpan::What what, std::uint64_t bytes, bool in_place) {
    if (one == nullptr) return;
    Timed& timed = all.emplace_back();
    timed.span.what = what;
    timed.span.row = what == DeviceSpan::What::staged ? DeviceSpan::Row::staged : row_of(*one, streams);
    timed.span.in_place = in_place;
    timed.span.bytes = bytes;
    timed.stamps = std::move(one);
  };
  for (std::size_t i = 0; i < portions.size(); ++i) {
    const Portion& portion = portions[i];
    const bool in_place = std::all_of(portion.calls.begin(), portion.calls.end(),
                                      [](const Call& call) { return call.from != nullptr || call.to != nullptr; });
    add(stamps[i].pack, DeviceSpan::What::pack, bytes_of(portion.segments, &Segment::packs), false);
    add(stamps[i].carry, streams.staged ? DeviceSpan::What::staged : DeviceSpan::What::nccl, bytes_of(portion.calls),
        in_place);
    add(stamps[i].unpack, DeviceSpan::What::unpack, bytes_of(portion.segments, &Segment::unpacks), false);
  }
  if (all.empty() || !works_) return {};
  try {
    look_when(all);
  } catch (const Error& error) {
    fail(error);
    return {};
  }
  correct(all, seen);
  std::vector<DeviceSpan> spans;
  for (Timed& timed : all) {
    const auto placed = [&](base::Duration at) { return std::clamp(base_time_ + at, timed.stamps->given_, seen); };
    timed.span.begin_ns = nanoseconds(placed(timed.begin));
    timed.span.end_ns = nanoseconds(placed(timed.end));
    spans.push_back(timed.span);
  }
  if (all.front().begin > kBaseAge) {
    base_time_ += all.front().begin;
    std::swap(*base_, all.front().stamps->begin_);
  }
  for (Timed& timed : all) free_.push_back(std::move(timed.stamps));
  return spans;
}

DeviceSpan::Row DeviceTimes::row_of(const Stamps& stamps, const Streams& streams) {
  if (stamps.stream_ == streams.pack) return DeviceSpan::Row::pack;
  if (stamps.stream_ == streams.unpack) return DeviceSpan::Row::unpack;
  const auto known = std::find(nccl_.begin(), nccl_.end(), stamps.stream_);
  const bool is_first = known == nccl_.begin();
  if (known == nccl_.end()) nccl_.push_back(stamps.stream_);
  return is_first ? DeviceSpan::Row::nccl : DeviceSpan::Row::second_nccl;
}

void DeviceTimes::look_when(std::vector<Timed>& all) {
  for (Timed& timed : all) {
    if (timed.stamps->failure_) std::rethrow_exception(timed.stamps->failure_);
    timed.begin = timed.stamps->begin_.since(*base_);
    timed.end = timed.stamps->end_.since(*base_);
  }
}

void DeviceTimes::correct(const std::vector<Timed>& all, base::Time seen) {
  base::Duration least = base::Duration::min();
  base::Duration most = base::Duration::max();
  for (const Timed& timed : all) {
    least = std::max(least, timed.stamps->given_ - (base_time_ + timed.begin));
    most = std::min(most, seen - (base_time_ + timed.end));
  }
  base_time_ += std::max(least, std::min(most, base::Duration::zero()));
}

}  // namespace kolo::cuda
