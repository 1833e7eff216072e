// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include <kolo/kolo.hpp>

#include "data.hpp"
#include "modes.hpp"
#include "mpi_peer.hpp"

namespace kolo_bench {
namespace {

using kolo::DType;
using kolo::ReduceOp;

/// One row's setting.
struct Case {
  Job& job;
  const Flags& flags;
  DType dtype;
  ReduceOp op;
  std::int64_t count;  ///< elements of the result
  bool in_place;
};

bool has_peer(const Flags& flags) { return !flags.baselines.empty(); }

/// The contestants in their order: Kolo unless only the peer is wanted, then the peer if one is wanted.
std::vector<Contestant> line_up(const Flags& flags, Contestant kolo, Contestant peer) {
  std::vector<Contestant> contestants;
  if (!flags.peer_only) contestants.push_back(std::move(kolo));
  if (has_peer(flags)) contestants.push_back(std::move(peer));
  return contestants;
}

std::vector<Contestant> allreduce(const Case& c) {
  const int rank = c.job.rank();
  const int ranks = c.job.size();
  auto in = std::make_shared<Buffer>(c.dtype, c.count);
  auto out = c.in_place ? in : std::make_shared<Buffer>(c.dtype, c.count);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=, op = c.op] {
    out->poison();
    fill_input(*in, op, rank, ranks);
  };
  kolo.check = [=, op = c.op] { return count_wrong_reduction(*out, op, ranks); };
  Contestant peer = kolo;
  peer.name = "mpi";
  const kolo::AllreduceOptions options = kolo::AllreduceOptions{}.with_op(c.op);
  if (c.in_place) {
    kolo.call = [=] { kolo::allreduce(in->view(), options); };
    peer.call = [=, op = c.op] { mpi_allreduce_in_place(*in, op, ranks); };
  } else {
    kolo.call = [=] { kolo::allreduce_into(in->view(), out->view(), options); };
    peer.call = [=, op = c.op] { mpi_allreduce(*in, *out, op, ranks); };
  }
  return line_up(c.flags, std::move(kolo), std::move(peer));
}

std::vector<Contestant> broadcast(const Case& c) {
  const int rank = c.job.rank();
  const int root = c.flags.root;
  auto buffer = std::make_shared<Buffer>(c.dtype, c.count);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=] {
    buffer->poison();
    if (rank == root) fill_input(*buffer, ReduceOp::sum, root, 1);
  };
  kolo.check = [=, count = c.count] { return count_wrong_copy(*buffer, root, 0, count); };
  Contestant peer = kolo;
  peer.name = "mpi";
  kolo.call = [=] { kolo::broadcast(buffer->view(), root); };
  peer.call = [=] { mpi_broadcast(*buffer, root); };
  return line_up(c.flags, std::move(kolo), std::move(peer));
}

std::vector<Contestant> allgather(const Case& c) {
  const int rank = c.job.rank();
  const int ranks = c.job.size();
  const std::int64_t part = c.count / ranks;
  auto in = std::make_shared<Buffer>(c.dtype, part);
  auto out = std::make_shared<Buffer>(c.dtype, part * ranks);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=] {
    out->poison();
    fill_input(*in, ReduceOp::sum, rank, 1);
  };
  kolo.check = [=] {
    std::int64_t wrong = 0;
    for (int other = 0; other < ranks; ++other) wrong += count_wrong_copy(*out, other, other * part, part);
    return wrong;
  };
  Contestant peer = kolo;
  peer.name = "mpi";
  kolo.call = [=] { kolo::allgather_into_async("kolo-bench", in->view(), out->view()).wait(); };
  peer.call = [=] { mpi_allgather(*in, *out); };
  return line_up(c.flags, std::move(kolo), std::move(peer));
}

std::vector<Contestant> alltoall(const Case& c) {
  const int rank = c.job.rank();
  const int ranks = c.job.size();
  const std::int64_t part = c.count / ranks;
  auto in = std::make_shared<Buffer>(c.dtype, c.count);
  auto out = std::make_shared<Buffer>(c.dtype, c.count);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=] {
    out->poison();
    for (int to = 0; to < ranks; ++to) fill_part(*in, rank * ranks + to, to * part, part);
  };
  kolo.check = [=] {
    std::int64_t wrong = 0;
    for (int from = 0; from < ranks; ++from) wrong += count_wrong_copy(*out, from * ranks + rank, from * part, part);
    return wrong;
  };
  Contestant peer = kolo;
  peer.name = "mpi";
  kolo.call = [=] { kolo::alltoall_into(in->view(), out->view()); };
  peer.call = [=] { mpi_alltoall(*in, *out, ranks); };
  return line_up(c.flags, std::move(kolo), std::move(peer));
}

std::vector<Contestant> reduce_scatter(const Case& c) {
  const int rank = c.job.rank();
  const int ranks = c.job.size();
  const std::int64_t part = c.count / ranks;
  auto in = std::make_shared<Buffer>(c.dtype, c.count);
  auto out = c.in_place ? in : std::make_shared<Buffer>(c.dtype, part);
  const auto contestant = [=, op = c.op](const char* name, std::int64_t at) {
    Contestant one;
    one.name = name;
    one.prepare = [=] {
      out->poison();
      fill_input(*in, op, rank, ranks);
    };
    one.check = [=] { return count_wrong_reduction(*out, op, ranks, at, part, rank * part); };
    return one;
  };
  Contestant kolo = contestant("kolo", c.in_place ? rank * part : 0);
  Contestant peer = contestant("mpi", 0);
  const kolo::AllreduceOptions options = kolo::AllreduceOptions{}.with_op(c.op);
  auto* const first = static_cast<std::byte*>(out->data());
  auto* const mine = first + (c.in_place ? static_cast<std::size_t>(rank * part) * size_of(c.dtype) : 0);
  const kolo::TensorView result(mine, c.dtype, kolo::Shape{part});
  kolo.call = [=] { kolo::reduce_scatter_into(in->view(), result, options); };
  if (c.in_place) {
    peer.call = [=, op = c.op] { mpi_reduce_scatter_in_place(*in, op, ranks); };
  } else {
    peer.call = [=, op = c.op] { mpi_reduce_scatter(*in, *out, op, ranks); };
  }
  return line_up(c.flags, std::move(kolo), std::move(peer));
}

std::vector<Contestant> barrier(const Flags& flags) {
  const auto nothing = [] {};
  const auto right = [] { return std::int64_t{0}; };
  return line_up(flags, {"kolo", nothing, [] { kolo::barrier(); }, right},
                 {"mpi", nothing, [] { mpi_barrier(); }, right});
}

bool reduces(Mode mode) { return mode == Mode::allreduce || mode == Mode::reduce_scatter; }

double bus_factor(Mode mode, int ranks) {
  const double n = ranks;
  switch (mode) {
  case Mode::allreduce:
    return 2 * (n - 1) / n;
  case Mode::allgather:
  case Mode::alltoall:
  case Mode::reduce_scatter:
    return (n - 1) / n;
  default:
    return 1;
  }
}

void run_size(Job& job, const Flags& flags, Report& report, DType dtype, ReduceOp op, std::int64_t count,
              bool in_place) {
  if (has_peer(flags)) check_mpi_can(dtype, op, count);
  const Case setting{job, flags, dtype, op, count, in_place};
  std::vector<Contestant> contestants;
  Row row;
  row.collective = flags.mode_name;
  row.count = count;
  row.dtype = std::string(to_string(dtype));
  row.op = reduces(flags.mode) ? std::string(to_string(op)) : "none";
  row.in_place = in_place;
  row.bus_factor = bus_factor(flags.mode, job.size());
  if (flags.mode == Mode::allreduce) {
    contestants = allreduce(setting);
  } else if (flags.mode == Mode::broadcast) {
    contestants = broadcast(setting);
  } else if (flags.mode == Mode::allgather) {
    contestants = allgather(setting);
  } else if (flags.mode == Mode::alltoall) {
    contestants = alltoall(setting);
  } else {
    contestants = reduce_scatter(setting);
  }
  row.bytes = count * static_cast<std::int64_t>(size_of(dtype));
  report.add(row, measure(job, flags, std::move(contestants)));
}

/// A size in bytes as a whole number of elements, on every rank the same number where everybody gives a part.
std::int64_t elements_of(std::int64_t bytes, DType dtype, Mode mode, int ranks) {
  const bool in_parts = mode == Mode::allgather || mode == Mode::alltoall || mode == Mode::reduce_scatter;
  const std::int64_t unit = in_parts ? ranks : 1;
  const std::int64_t count = bytes / static_cast<std::int64_t>(size_of(dtype)) / unit * unit;
  return std::max(count, unit);
}

}  // namespace

void run_collective(Job& job, const Flags& flags, Report& report) {
  if (flags.mode == Mode::barrier) {
    Row row;
    row.collective = flags.mode_name;
    row.dtype = row.op = "none";
    report.add(row, measure(job, flags, barrier(flags)));
    return;
  }
  const bool reducing = reduces(flags.mode);
  const std::vector<ReduceOp> ops = reducing ? flags.ops : std::vector<ReduceOp>{ReduceOp::sum};
  const bool in_place = flags.mode == Mode::broadcast || (reducing && flags.in_place);
  const bool out_of_place =
      flags.mode == Mode::allgather || flags.mode == Mode::alltoall || (reducing && flags.out_of_place);
  for (const DType dtype : flags.dtypes) {
    for (const ReduceOp op : ops) {
      for (std::int64_t bytes = flags.begin; bytes <= flags.end;
           bytes = flags.increment ? bytes + *flags.increment : bytes * flags.factor) {
        const std::int64_t count = elements_of(bytes, dtype, flags.mode, job.size());
        if (out_of_place) run_size(job, flags, report, dtype, op, count, false);
        if (in_place) run_size(job, flags, report, dtype, op, count, true);
      }
    }
  }
}

}  // namespace kolo_bench
