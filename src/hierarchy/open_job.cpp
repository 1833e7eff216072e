// SPDX-License-Identifier: Apache-2.0
#include "hierarchy/open_job.hpp"

#include <algorithm>
#include <exception>
#include <string>

#include "base/check.hpp"

namespace kolo::hierarchy {

void OpenJob::open(core::Job& job, const SetPlace& place) {
  job_ = &job;
  place_ = place;
  next_run_ = current_ = 0;
  offset_ = 0;
  lengths_due_ = cut_ = false;
  streams_.clear();
  gathers_.clear();
  std::size_t streams = 0, gathers = 0;
  for (const core::Run& run : job.runs) {
    const bool gather = run.kind == core::CollectiveKind::allgather;
    gathers += gather ? 1 : 0;
    streams += gather ? 1 + static_cast<std::size_t>(place.size) : 1;
  }
  streams_.reserve(streams);
  gathers_.reserve(gathers);
}

const Stream* OpenJob::next_stream(std::uint64_t filled, std::uint64_t taken) {
  while (true) {
    if (current_ < streams_.size()) {
      if (offset_ < streams_[current_].elements) return &streams_[current_];
      ++current_;
      offset_ = 0;
      lengths_end_ = filled;
    } else if (lengths_due_) {
      if (taken < lengths_end_) return nullptr;
      open_broadcasts();
    } else if (next_run_ < job_->runs.size()) {
      open_run(job_->runs[next_run_++]);
    } else {
      cut_ = true;
      end_ = filled;
      return nullptr;
    }
  }
}

void OpenJob::open_run(const core::Run& run) {
  if (run.kind == core::CollectiveKind::allgather) return open_gather(run);
  const bool reduces = run.kind == core::CollectiveKind::allreduce;
  KOLO_CHECK(reduces || run.kind == core::CollectiveKind::broadcast) << core::to_string(run.kind) << " moves no data";
  Stream stream;
  stream.kind = reduces ? Stream::Kind::reduce : Stream::Kind::broadcast;
  stream.reduction = {run.dtype, run.op, {run.prescale, run.postscale, run.divisor}};
  stream.element_bytes = size_of(run.dtype);
  stream.root = reduces ? 0 : set_rank_of(run.root);
  stream.pieces = run.pieces.data();
  stream.piece_count = run.pieces.size();
  stream.elements = run.elements;
  streams_.push_back(stream);
}

void OpenJob::open_gather(const core::Run& run) {
  Gather& gather = gathers_.emplace_back();
  gather.run = &run;
  gather.bytes.assign(static_cast<std::size_t>(place_.size), 0);
  gather.bytes[static_cast<std::size_t>(place_.rank)] = run.elements * static_cast<std::int64_t>(size_of(run.dtype));
  auto* bytes = reinterpret_cast<std::byte*>(gather.bytes.data());
  gather.bytes_piece = {bytes, bytes, place_.size};
  Stream stream;
  stream.reduction.dtype = DType::int64;
  stream.element_bytes = sizeof(std::int64_t);
  stream.pieces = &gather.bytes_piece;
  stream.piece_count = 1;
  stream.elements = place_.size;
  streams_.push_back(stream);
  lengths_due_ = true;
}

void OpenJob::open_broadcasts() {
  lengths_due_ = false;
  Gather& gather = gathers_.back();
  const auto width = static_cast<std::int64_t>(size_of(gather.run->dtype));
  std::byte* output = allocate_output(gather);
  const auto place = [&](const std::byte* input, std::int64_t elements) {
    gather.pieces.push_back({input, output, elements});
    if (output != nullptr) output += elements * width;
  };
  gather.pieces.reserve(gather.run->pieces.size() + static_cast<std::size_t>(place_.size));
  for (int rank = 0; rank < place_.size; ++rank) {
    const std::size_t first = gather.pieces.size();
    const std::int64_t bytes = gather.bytes[static_cast<std::size_t>(rank)];
    if (rank == place_.rank) {
      for (const core::Piece& piece : gather.run->pieces) place(piece.input, piece.elements);
    } else {
      place(nullptr, bytes / width);
    }
    Stream stream;
    stream.kind = Stream::Kind::broadcast;
    stream.reduction.dtype = gather.run->dtype;
    stream.element_bytes = static_cast<std::size_t>(width);
    stream.root = rank;
    stream.pieces = gather.pieces.data() + first;
    stream.piece_count = gather.pieces.size() - first;
    stream.elements = bytes / width;
    streams_.push_back(stream);
  }
}

/// Null when the caller has no room: the others still expect this rank to pass their bytes on, so it goes on without.
std::byte* OpenJob::allocate_output(const Gather& gather) {
  std::int64_t bytes = 0;
  for (const std::int64_t part : gather.bytes) bytes += part;
  try {
    return gather.run->allocate(gather.bytes);
  } catch (const Error& error) {
    job_->status = error.status();
  } catch (const std::exception& error) {
    job_->status = Status(ErrorCode::invalid_argument, "no memory for the result of an allgather, " +
                                                           std::to_string(bytes) + " bytes: " + error.what());
  }
  return nullptr;
}

int OpenJob::set_rank_of(int world_rank) const {
  if (place_.members->empty()) {
    KOLO_CHECK(world_rank >= 0 && world_rank < place_.size) << "root " << world_rank << " of " << place_.size;
    return world_rank;
  }
  const auto found = std::lower_bound(place_.members->begin(), place_.members->end(), world_rank);
  KOLO_CHECK(found != place_.members->end() && *found == world_rank) << "root " << world_rank << " is not in the set";
  return static_cast<int>(found - place_.members->begin());
}

}  // namespace kolo::hierarchy
