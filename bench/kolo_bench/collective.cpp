// SPDX-License-Identifier: Apache-2.0
//
// One collective at all sizes. What is measured of each stands in one table, kCollectives.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "data.hpp"
#include "modes.hpp"
#include "mpi_peer.hpp"
#include "sizes.hpp"

namespace kolo_bench {
namespace {

using kolo::DType;
using kolo::ReduceOp;

/// One row's setting.
struct Case {
  int rank;
  int ranks;
  DType dtype;
  ReduceOp op;
  int root;
  std::int64_t count;  ///< elements of the result
  bool in_place;
  bool arena;
};

/// Kolo and its peer, in this order.
using Pair = std::pair<Contestant, Contestant>;

Pair allreduce(const Case& c) {
  const int rank = c.rank;
  const int ranks = c.ranks;
  std::shared_ptr<kolo::GradientArena> arena;
  if (c.arena) {
    const std::size_t room = kolo::GradientArena::room_for(c.dtype, kolo::Shape{c.count});
    arena = std::make_shared<kolo::GradientArena>(c.in_place ? room : 2 * room);
  }
  const auto make = [&] {
    return arena ? std::make_shared<Buffer>(c.dtype, c.count, arena) : std::make_shared<Buffer>(c.dtype, c.count);
  };
  auto in = make();
  auto out = c.in_place ? in : make();
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
  return {std::move(kolo), std::move(peer)};
}

Pair broadcast(const Case& c) {
  const int rank = c.rank;
  const int root = c.root;
  auto in = std::make_shared<Buffer>(c.dtype, c.count);
  auto out = c.in_place ? in : std::make_shared<Buffer>(c.dtype, c.count);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=] {
    in->poison();
    out->poison();
    if (rank == root) fill_input(*in, ReduceOp::sum, root, 1);
  };
  kolo.check = [=, count = c.count] { return count_wrong_copy(*out, root, 0, count); };
  Contestant peer = kolo;
  peer.name = "mpi";
  if (c.in_place) {
    kolo.call = [=] { kolo::broadcast(in->view(), root); };
    peer.call = [=] { mpi_broadcast(*in, root); };
  } else {
    kolo.call = [=] { kolo::broadcast_into(in->view(), out->view(), root); };
    peer.call = [=] {  // MPI has no such call: its user copies
      if (rank == root) std::memcpy(out->data(), in->data(), static_cast<std::size_t>(in->bytes()));
      mpi_broadcast(*out, root);
    };
  }
  return {std::move(kolo), std::move(peer)};
}

Pair allgather(const Case& c) {
  const int rank = c.rank;
  const int ranks = c.ranks;
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
  kolo.call = [=] { kolo::allgather_into(in->view(), out->view()); };
  peer.call = [=] { mpi_allgather(*in, *out); };
  return {std::move(kolo), std::move(peer)};
}

Pair alltoall(const Case& c) {
  const int rank = c.rank;
  const int ranks = c.ranks;
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
  return {std::move(kolo), std::move(peer)};
}

Pair reduce_scatter(const Case& c) {
  const int rank = c.rank;
  const int ranks = c.ranks;
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
  return {std::move(kolo), std::move(peer)};
}

Pair barrier(const Case&) {
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [] {};
  kolo.check = [] { return std::int64_t{0}; };
  Contestant peer = kolo;
  peer.name = "mpi";
  kolo.call = [] { kolo::barrier(); };
  peer.call = [] { mpi_barrier(); };
  return {std::move(kolo), std::move(peer)};
}

/// What is to be known of a collective to measure it at all sizes.
struct Collective {
  Mode mode;
  Pair (*pair)(const Case&);
  double (*bus_factor)(double ranks);
  bool reduces;  ///< for every operation
  bool has_root;
  bool has_size;
  bool by_part;       ///< consists of as many equal parts as there are ranks
  bool in_place;      ///< can be
  bool out_of_place;  ///< can be
};

double one(double) { return 1; }
double twice_the_rest(double ranks) { return 2 * (ranks - 1) / ranks; }
double the_rest(double ranks) { return (ranks - 1) / ranks; }

constexpr Collective kCollectives[] = {
    // mode, contestants, busbw/algbw, reduces, has_root, has_size, by_part, in_place, out_of_place
    {Mode::allreduce, allreduce, twice_the_rest, true, false, true, false, true, true},
    {Mode::broadcast, broadcast, one, false, true, true, false, true, true},
    {Mode::allgather, allgather, the_rest, false, false, true, true, false, true},
    {Mode::alltoall, alltoall, the_rest, false, false, true, true, false, true},
    {Mode::reduce_scatter, reduce_scatter, the_rest, true, false, true, true, true, true},
    {Mode::barrier, barrier, one, false, false, false, false, true, false},
};

const Collective& collective_of(Mode mode) {
  return *std::find_if(std::begin(kCollectives), std::end(kCollectives),
                       [mode](const Collective& collective) { return collective.mode == mode; });
}

/// Kolo unless only the peer is wanted, then the peer if one is wanted.
std::vector<Contestant> line_up(const Flags& flags, Pair pair) {
  std::vector<Contestant> contestants;
  if (!flags.peer_only) contestants.push_back(std::move(pair.first));
  if (!flags.baselines.empty()) contestants.push_back(std::move(pair.second));
  return contestants;
}

void run_row(Bench& bench, Report& report, const Collective& collective, const Case& setting) {
  const Flags& flags = bench.flags;
  if (!flags.baselines.empty()) check_mpi_can(setting.dtype, setting.op, setting.count);
  Row row;
  row.collective = flags.mode_name;
  row.count = setting.count;
  row.bytes = setting.count * static_cast<std::int64_t>(size_of(setting.dtype));
  row.dtype = collective.has_size ? std::string(to_string(setting.dtype)) : "none";
  row.op = collective.reduces ? std::string(to_string(setting.op)) : "none";
  row.root = collective.has_root ? setting.root : -1;
  row.in_place = setting.in_place;
  row.bus_factor = collective.bus_factor(setting.ranks);
  bench.progress.begin(flags.mode_name + " " + format_size(row.bytes) + " " + row.dtype);
  report.add(row, measure(bench, line_up(flags, collective.pair(setting))));
}

/// A size in bytes as a whole number of elements, on every rank the same number where everybody gives a part.
std::int64_t elements_of(std::int64_t bytes, DType dtype, const Collective& collective, int ranks) {
  if (!collective.has_size) return 0;
  const std::int64_t unit = collective.by_part ? ranks : 1;
  const std::int64_t count = bytes / static_cast<std::int64_t>(size_of(dtype)) / unit * unit;
  return std::max(count, unit);
}

std::vector<std::int64_t> sizes_of(const Flags& flags, const Collective& collective) {
  if (!collective.has_size) return {0};
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = flags.begin; bytes <= flags.end;
       bytes = flags.increment ? bytes + *flags.increment : bytes * flags.factor) {
    sizes.push_back(bytes);
  }
  return sizes;
}

}  // namespace

void run_collective(Bench& bench, Report& report) {
  const Flags& flags = bench.flags;
  const Collective& collective = collective_of(flags.mode);
  const int ranks = bench.job.size();
  const std::vector<DType> dtypes = collective.has_size ? flags.dtypes : std::vector<DType>{DType::float32};
  const std::vector<ReduceOp> ops = collective.reduces ? flags.ops : std::vector<ReduceOp>{ReduceOp::sum};
  for (const DType dtype : dtypes) {
    for (const ReduceOp op : ops) {
      if (op == ReduceOp::average && !kolo::is_floating_point(dtype)) continue;  // there is none (kolo::ReduceOp)
      for (const std::int64_t bytes : sizes_of(flags, collective)) {
        Case setting{
            bench.job.rank(), ranks, dtype, op, flags.root, elements_of(bytes, dtype, collective, ranks), false,
            flags.arena};
        if (collective.out_of_place && (flags.out_of_place || !collective.in_place)) {
          run_row(bench, report, collective, setting);
        }
        setting.in_place = true;
        if (collective.in_place && (flags.in_place || !collective.out_of_place)) {
          run_row(bench, report, collective, setting);
        }
      }
    }
  }
}

}  // namespace kolo_bench
