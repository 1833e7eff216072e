// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/staged_carrier.hpp"

#include <utility>

#include "base/check.hpp"
#include "data/cuda/device.hpp"

namespace kolo::cuda {

namespace {

/// Of what is planned where no call can work on callers' tensors.
core::CollectiveKind kind_of(Call::Kind kind) {
  switch (kind) {
  case Call::Kind::all_reduce:
    return core::CollectiveKind::allreduce;
  case Call::Kind::reduce:
    return core::CollectiveKind::reduce;
  case Call::Kind::broadcast:
    return core::CollectiveKind::broadcast;
  default:
    KOLO_UNREACHABLE("a call on callers' tensors");
  }
}

}  // namespace

StagedCarrier::StagedCarrier(std::size_t buffers, std::size_t buffer_bytes, const Bell& bell)
    : bell_(bell), collected_(buffers), jobs_(buffers), under_way_(buffers, false) {
  memory_.reserve(buffers);
  pinned_.reserve(buffers);
  for (std::size_t i = 0; i < buffers; ++i) {
    memory_.emplace_back(buffer_bytes);
    pinned_.emplace_back(buffer_bytes);
  }
}

void StagedCarrier::collect(const Load& load, const OwnStream& stream) {
  if (load.stamps != nullptr) load.stamps->begin(stream.raw());
  if (load.portion->buffer_bytes > 0) {
    copy_async(pinned_[load.buffer].data(), load.memory, load.portion->buffer_bytes, stream.raw());
  }
  collected_[load.buffer].record(stream.raw());
  bell_.ring_behind(collected_[load.buffer]);
}

bool StagedCarrier::may_carry(const Load& load) { return collected_[load.buffer].reached(); }

void StagedCarrier::carry(const Load& load) {
  if (load.portion->calls.empty()) return;
  data::Job& job = jobs_[load.buffer];
  job.runs.clear();
  job.status = Status();
  for (const Call& call : load.portion->calls) {
    KOLO_CHECK(call.from == nullptr && call.to == nullptr) << "the CPU cannot reach a caller's tensor on a device";
    data::Run run;
    run.kind = kind_of(call.kind);
    run.dtype = call.dtype;
    run.op = call.op;
    run.prescale = call.scaling.prescale;
    run.divisor = static_cast<std::int64_t>(call.scaling.divisor);
    run.postscale = call.scaling.postscale;
    run.root = call.peer;
    run.elements = static_cast<std::int64_t>(call.count);
    std::byte* data = pinned_[load.buffer].data() + call.offset;
    run.pieces = {{data, data, run.elements}};
    job.runs.push_back(std::move(run));
  }
  host_touches(pinned_[load.buffer].data(), load.portion->buffer_bytes, true, "the CPU's data plane");
  under_way_[load.buffer] = true;
  load.set->plane->start(job, [this, buffer = load.buffer] { under_way_[buffer] = false; });
}

void StagedCarrier::deliver(const Load& load, const OwnStream& stream) {
  if (load.portion->buffer_bytes > 0) {
    copy_async(load.memory, pinned_[load.buffer].data(), load.portion->buffer_bytes, stream.raw());
  }
  if (load.stamps != nullptr) load.stamps->end(stream.raw());
}

}  // namespace kolo::cuda
