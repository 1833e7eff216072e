// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/open_job.hpp"

#include <algorithm>
#include <exception>
#include <string>

#include "base/check.hpp"

namespace kolo::data::cpu {

std::byte* allocate_output(const data::Run& run, const std::vector<std::int64_t>& parts, Status& status) {
  const bool gathers = run.kind == core::CollectiveKind::allgather;
  try {
    return run.allocate(parts);
  } catch (const Error& error) {
    status = error.status();
  } catch (const std::exception& error) {
    const std::int64_t unit = gathers ? 1 : run.row_elements * static_cast<std::int64_t>(size_of(run.dtype));
    std::int64_t bytes = 0;
    for (const std::int64_t part : parts) bytes += part * unit;
    status = Status(ErrorCode::invalid_argument, std::string("no memory for the result of an ") +
                                                     (gathers ? "allgather, " : "alltoall, ") + std::to_string(bytes) +
                                                     " bytes: " + error.what());
  }
  return nullptr;
}

void OpenJob::open(data::Job& job, const SetPlace& place) {
  job_ = &job;
  place_ = place;
  next_run_ = current_ = 0;
  offset_ = 0;
  lengths_due_ = cut_ = false;
  streams_.clear();
  gathers_.clear();
  exchanges_.clear();
  scatters_.clear();
  std::size_t streams = 0, gathers = 0, exchanges = 0, scatters = 0;
  for (const data::Run& run : job.runs) {
    switch (run.kind) {
    case core::CollectiveKind::allgather:
      ++gathers;
      streams += 1 + static_cast<std::size_t>(place.size);
      break;
    case core::CollectiveKind::alltoall_splits:
      ++exchanges;
      streams += 3;
      break;
    case core::CollectiveKind::alltoall:
      ++exchanges;
      ++streams;
      break;
    case core::CollectiveKind::reduce_scatter:
      ++scatters;
      ++streams;
      break;
    default:
      ++streams;
    }
  }
  streams_.reserve(streams);
  gathers_.reserve(gathers);
  exchanges_.reserve(exchanges);
  scatters_.reserve(scatters);
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
      open_known_lengths();
    } else if (next_run_ < job_->runs.size()) {
      open_run(job_->runs[next_run_++]);
    } else {
      cut_ = true;
      end_ = filled;
      return nullptr;
    }
  }
}

void OpenJob::open_run(const data::Run& run) {
  switch (run.kind) {
  case core::CollectiveKind::allgather:
    return place_.one_node ? open_gather_here(run) : open_gather(run);
  case core::CollectiveKind::alltoall:
    return open_alltoall(run);
  case core::CollectiveKind::alltoall_splits:
    return open_splits(run);
  case core::CollectiveKind::reduce_scatter:
    return open_scatter(run);
  default:
    return open_plain(run);
  }
}

/// What comes after the lengths that are known now.
void OpenJob::open_known_lengths() {
  lengths_due_ = false;
  const bool gathers = job_->runs[next_run_ - 1].kind == core::CollectiveKind::allgather;
  if (!gathers) return open_known_splits();
  place_.one_node ? open_gather_rest() : open_broadcasts();
}

void OpenJob::open_gather_here(const data::Run& run) {
  Gather& gather = gathers_.emplace_back();
  gather.run = &run;
  gather.plan.make(run, *job_, place_.rank, place_.size, place_.slot_bytes, place_.past_cache_bytes);
  add_gather(run, gather.plan, true);
  lengths_due_ = true;
}

void OpenJob::open_gather_rest() {
  Gather& gather = gathers_.back();
  add_gather(*gather.run, gather.plan, false);
}

void OpenJob::add_gather(const data::Run& run, GatherPlan& plan, bool head) {
  Stream stream;
  stream.kind = Stream::Kind::gather;
  stream.element_bytes = size_of(run.dtype);
  stream.pieces = run.pieces.data();
  stream.piece_count = run.pieces.size();
  stream.gather = &plan;
  stream.gathers_head = head;
  stream.elements = head ? 1 : plan.rest_chunks();
  streams_.push_back(stream);
}

void OpenJob::open_scatter(const data::Run& run) {
  const ScatterPlan& plan =
      scatters_.emplace_back(run, place_.rank, place_.size, place_.slot_bytes, place_.past_cache_bytes);
  Stream stream;
  stream.kind = Stream::Kind::scatter;
  stream.scatter = &plan;
  stream.elements = plan.chunks();
  streams_.push_back(stream);
}

void OpenJob::add_alltoall(const AlltoallPlan& plan) {
  Stream stream;
  stream.kind = Stream::Kind::alltoall;
  stream.alltoall = &plan;
  stream.elements = plan.chunks();
  streams_.push_back(stream);
}

void OpenJob::open_alltoall(const data::Run& run) {
  Exchange& exchange = exchanges_.emplace_back();
  const auto width = static_cast<std::int64_t>(size_of(run.dtype));
  exchange.sent.assign(static_cast<std::size_t>(place_.size), run.elements / place_.size * width);
  const data::Piece& piece = run.pieces.front();
  exchange.plan.make(place_.rank, piece.input, piece.output, exchange.sent, exchange.sent, exchange.sent,
                     place_.slot_bytes, place_.past_cache_bytes);
  add_alltoall(exchange.plan);
}

void OpenJob::open_splits(const data::Run& run) {
  Exchange& exchange = exchanges_.emplace_back();
  exchange.run = &run;
  exchange.sent.assign(run.splits.begin(), run.splits.end());
  const std::size_t size = exchange.sent.size();
  KOLO_CHECK(size == static_cast<std::size_t>(place_.size)) << size << " splits for " << place_.size << " ranks";
  exchange.received.assign(size, 0);
  const std::vector<std::int64_t> widths(size, sizeof(std::int64_t));
  exchange.splits_plan.make(place_.rank, reinterpret_cast<const std::byte*>(exchange.sent.data()),
                            reinterpret_cast<std::byte*>(exchange.received.data()), widths, widths, widths,
                            place_.slot_bytes, place_.past_cache_bytes);
  add_alltoall(exchange.splits_plan);
  for (std::size_t distance = 0; distance < size; ++distance)
    exchange.largest.push_back(exchange.sent[(static_cast<std::size_t>(place_.rank) + distance) % size]);
  auto* bytes = reinterpret_cast<std::byte*>(exchange.largest.data());
  exchange.largest_piece = {bytes, bytes, place_.size};
  Stream stream;
  stream.reduction = {DType::int64, ReduceOp::max, {}};
  stream.element_bytes = sizeof(std::int64_t);
  stream.pieces = &exchange.largest_piece;
  stream.piece_count = 1;
  stream.elements = place_.size;
  streams_.push_back(stream);
  lengths_due_ = true;
}

void OpenJob::open_known_splits() {
  Exchange& exchange = exchanges_.back();
  const data::Run& run = *exchange.run;
  std::byte* output = allocate_output(run, exchange.received);
  const std::int64_t row_bytes = run.row_elements * static_cast<std::int64_t>(size_of(run.dtype));
  for (std::vector<std::int64_t>* rows : {&exchange.sent, &exchange.received, &exchange.largest})
    for (std::int64_t& count : *rows) count *= row_bytes;
  exchange.plan.make(place_.rank, run.pieces.front().input, output, exchange.sent, exchange.received, exchange.largest,
                     place_.slot_bytes, place_.past_cache_bytes);
  add_alltoall(exchange.plan);
}

void OpenJob::open_plain(const data::Run& run) {
  const bool reduces = run.kind == core::CollectiveKind::allreduce;
  KOLO_CHECK(reduces || run.kind == core::CollectiveKind::broadcast) << core::to_string(run.kind) << " moves no data";
  Stream stream;
  stream.kind = reduces ? Stream::Kind::reduce : Stream::Kind::broadcast;
  stream.reduction = {run.dtype, run.op, {run.prescale, run.postscale, run.divisor}};
  stream.element_bytes = size_of(run.dtype);
  if (run.sent_as) {
    stream.cast = Cast{run.dtype, static_cast<std::int64_t>(stream.element_bytes), run.prescale};
    stream.reduction = {*run.sent_as, run.op, {1, run.postscale, run.divisor}};
    stream.element_bytes = size_of(*run.sent_as);
  }
  stream.root = reduces ? 0 : set_rank_of(run.root);
  stream.pieces = run.pieces.data();
  stream.piece_count = run.pieces.size();
  stream.elements = run.elements;
  streams_.push_back(stream);
}

void OpenJob::open_gather(const data::Run& run) {
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
  Gather& gather = gathers_.back();
  const auto width = static_cast<std::int64_t>(size_of(gather.run->dtype));
  std::byte* output = allocate_output(*gather.run, gather.bytes);
  const auto place = [&](const std::byte* input, std::int64_t elements) {
    gather.pieces.push_back({input, output, elements});
    if (output != nullptr) output += elements * width;
  };
  gather.pieces.reserve(gather.run->pieces.size() + static_cast<std::size_t>(place_.size));
  for (int rank = 0; rank < place_.size; ++rank) {
    const std::size_t first = gather.pieces.size();
    const std::int64_t bytes = gather.bytes[static_cast<std::size_t>(rank)];
    if (rank == place_.rank) {
      for (const data::Piece& piece : gather.run->pieces) place(piece.input, piece.elements);
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
std::byte* OpenJob::allocate_output(const data::Run& run, const std::vector<std::int64_t>& parts) {
  return cpu::allocate_output(run, parts, job_->status);
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

}  // namespace kolo::data::cpu
