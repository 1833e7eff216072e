// SPDX-License-Identifier: Apache-2.0
//
// One collective at all sizes. What is measured of each stands in one table, kCollectives.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "data.hpp"
#include "modes.hpp"
#include "mpi_peer.hpp"
#include "peer.hpp"
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
  std::shared_ptr<Device> device;            ///< null: the host
  std::shared_ptr<Peer> peer;                ///< may be null
  std::shared_ptr<const kolo::Group> group;  ///< null: Kolo is not measured
  std::string name;                          ///< of what is asynchronous
};

std::shared_ptr<Buffer> make_buffer(const Case& c, std::int64_t elements) {
  return std::make_shared<Buffer>(c.dtype, elements, c.device);
}

/// The same preparation, the peer's call, and the same check where that is exact.
Contestant beside(const Case& c, const Contestant& kolo, std::function<void()> call) {
  Contestant peer = kolo;
  if (!c.peer) return peer;
  peer.name = c.peer->name();
  peer.call = std::move(call);
  if (!c.peer->is_exact(c.op)) peer.check = nullptr;
  return peer;
}

/// Kolo and its peer, in this order.
using Pair = std::pair<Contestant, Contestant>;

/// Asynchronous calls that the device's stream waits for, and the host does not: up to kInFlight of them, each under a
/// name of its own, as names are free again only when the host knows that the call has completed.
std::function<void()> on_device(const Case& c, std::function<kolo::Handle(const std::string& name)> start) {
  constexpr std::size_t kInFlight = 8;
  struct Calls {
    std::vector<kolo::Handle> handles;
    std::size_t next = 0;
  };
  auto calls = std::make_shared<Calls>();
  return [=, device = c.device, base = c.name] {
    const std::size_t at = calls->next++ % kInFlight;
    if (at == calls->handles.size()) {
      calls->handles.emplace_back();
    } else {
      calls->handles[at].wait();
    }
    calls->handles[at] = start(base + " " + std::to_string(at));
    device->follow(calls->handles[at]);
  };
}

Pair allreduce(const Case& c) {
  const auto group = c.group;
  const int rank = c.rank;
  const int ranks = c.ranks;
  std::shared_ptr<kolo::GradientArena> arena;
  if (c.arena) {
    const std::size_t room = kolo::GradientArena::room_for(c.dtype, kolo::Shape{c.count});
    arena = make_arena(c.in_place ? room : 2 * room, c.device);
  }
  const auto make = [&] {
    return arena ? std::make_shared<Buffer>(c.dtype, c.count, arena, c.device) : make_buffer(c, c.count);
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
  const kolo::AllreduceOptions options = kolo::AllreduceOptions{}.with_op(c.op);
  if (c.device && c.in_place) {
    kolo.call = on_device(c, [=](const std::string& name) {
      return kolo::allreduce_async({*group, name}, in->view(), options);
    });
  } else if (c.device) {
    kolo.call = on_device(c, [=](const std::string& name) {
      return kolo::allreduce_into_async({*group, name}, in->view(), out->view(), options);
    });
  } else if (c.in_place) {
    kolo.call = [=] { kolo::allreduce(*group, in->view(), options); };
  } else {
    kolo.call = [=] { kolo::allreduce_into(*group, in->view(), out->view(), options); };
  }
  return {kolo, beside(c, kolo, [=, peer = c.peer, op = c.op] { peer->allreduce(*in, *out, op); })};
}

/// In a loop with one root the others run ahead, and small calls are then measured as nothing: of those each has the
/// next rank as its root.
constexpr std::int64_t kRootGoesRoundBelow = 1024;

/// The roots of a case's calls.
class Roots {
 public:
  explicit Roots(const Case& c)
      : first_(c.root), ranks_(c.ranks),
        step_(c.count * static_cast<std::int64_t>(size_of(c.dtype)) < kRootGoesRoundBelow ? 1 : 0),
        next_(std::make_shared<int>(c.root)) {}
  void begin() const { *next_ = first_; }
  int next() const { return std::exchange(*next_, (*next_ + step_) % ranks_); }

 private:
  int first_;
  int ranks_;
  int step_;
  std::shared_ptr<int> next_;  // of all copies
};

Pair reduce(const Case& c) {
  const auto group = c.group;
  const int rank = c.rank;
  const int ranks = c.ranks;
  const Roots roots(c);
  auto in = make_buffer(c, c.count);
  auto out = c.in_place ? in : make_buffer(c, c.count);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=, op = c.op] {
    roots.begin();
    out->poison();
    fill_input(*in, op, rank, ranks);
  };
  kolo.check = [=, op = c.op, first = c.root] {  // after the first call
    return rank == first ? count_wrong_reduction(*out, op, ranks) : std::int64_t{0};
  };
  const kolo::ReduceOptions options(c.op);
  if (c.device && c.in_place) {
    kolo.call = on_device(c, [=](const std::string& name) {
      return kolo::reduce_async({*group, name}, in->view(), roots.next(), options);
    });
  } else if (c.device) {
    kolo.call = on_device(c, [=](const std::string& name) {
      return kolo::reduce_into_async({*group, name}, in->view(), out->view(), roots.next(), options);
    });
  } else if (c.in_place) {
    kolo.call = [=] { kolo::reduce(*group, in->view(), roots.next(), options); };
  } else {
    kolo.call = [=] { kolo::reduce_into(*group, in->view(), out->view(), roots.next(), options); };
  }
  return {kolo, beside(c, kolo, [=, peer = c.peer, op = c.op] { peer->reduce(*in, *out, op, roots.next()); })};
}

Pair gather(const Case& c) {
  const auto group = c.group;
  const int rank = c.rank;
  const int ranks = c.ranks;
  const std::int64_t part = c.count / ranks;
  const Roots roots(c);
  auto in = make_buffer(c, part);
  auto out = make_buffer(c, part * ranks);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=] {
    roots.begin();
    out->poison();
    fill_input(*in, ReduceOp::sum, rank, 1);
  };
  kolo.check = [=, first = c.root] {  // after the first call
    std::int64_t wrong = 0;
    for (int other = 0; rank == first && other < ranks; ++other)
      wrong += count_wrong_copy(*out, other, other * part, part);
    return wrong;
  };
  if (c.device) {
    kolo.call = on_device(c, [=](const std::string& name) {
      return kolo::gather_into_async({*group, name}, in->view(), out->view(), roots.next());
    });
  } else {
    kolo.call = [=] { kolo::gather_into(*group, in->view(), out->view(), roots.next()); };
  }
  return {kolo, beside(c, kolo, [=, peer = c.peer] { peer->gather(*in, *out, roots.next()); })};
}

Pair scatter(const Case& c) {
  const auto group = c.group;
  const int rank = c.rank;
  const int ranks = c.ranks;
  const std::int64_t part = c.count / ranks;
  const Roots roots(c);
  auto in = make_buffer(c, part * ranks);
  auto out = make_buffer(c, part);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=] {
    roots.begin();
    out->poison();
    for (int to = 0; to < ranks; ++to) fill_part(*in, rank * ranks + to, to * part, part);
  };
  kolo.check = [=, first = c.root] { return count_wrong_copy(*out, first * ranks + rank, 0, part); };
  if (c.device) {
    kolo.call = on_device(c, [=](const std::string& name) {
      return kolo::scatter_into_async({*group, name}, in->view(), out->view(), roots.next());
    });
  } else {
    kolo.call = [=] { kolo::scatter_into(*group, in->view(), out->view(), roots.next()); };
  }
  return {kolo, beside(c, kolo, [=, peer = c.peer] { peer->scatter(*in, *out, roots.next()); })};
}

Pair broadcast(const Case& c) {
  const auto group = c.group;
  const int rank = c.rank;
  const int root = c.root;
  auto in = make_buffer(c, c.count);
  auto out = c.in_place ? in : make_buffer(c, c.count);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=] {
    in->poison();
    out->poison();
    if (rank == root) fill_input(*in, ReduceOp::sum, root, 1);
  };
  kolo.check = [=, count = c.count] { return count_wrong_copy(*out, root, 0, count); };
  if (c.device && c.in_place) {
    kolo.call = on_device(c, [=](const std::string& name) {
      return kolo::broadcast_async({*group, name}, in->view(), root);
    });
  } else if (c.device) {
    kolo.call = on_device(c, [=](const std::string& name) {
      return kolo::broadcast_into_async({*group, name}, in->view(), out->view(), root);
    });
  } else if (c.in_place) {
    kolo.call = [=] { kolo::broadcast(*group, in->view(), root); };
  } else {
    kolo.call = [=] { kolo::broadcast_into(*group, in->view(), out->view(), root); };
  }
  return {kolo, beside(c, kolo, [=, peer = c.peer] { peer->broadcast(*in, *out, root); })};
}

Pair allgather(const Case& c) {
  const auto group = c.group;
  const int rank = c.rank;
  const int ranks = c.ranks;
  const std::int64_t part = c.count / ranks;
  auto in = make_buffer(c, part);
  auto out = make_buffer(c, part * ranks);
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
  if (c.device) {
    kolo.call = on_device(c, [=](const std::string& name) {
      return kolo::allgather_into_async({*group, name}, in->view(), out->view());
    });
  } else {
    kolo.call = [=] { kolo::allgather_into(*group, in->view(), out->view()); };
  }
  return {kolo, beside(c, kolo, [=, peer = c.peer] { peer->allgather(*in, *out); })};
}

Pair alltoall(const Case& c) {
  const auto group = c.group;
  const int rank = c.rank;
  const int ranks = c.ranks;
  const std::int64_t part = c.count / ranks;
  auto in = make_buffer(c, c.count);
  auto out = make_buffer(c, c.count);
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
  if (c.device) {
    kolo.call = on_device(c, [=](const std::string& name) {
      return kolo::alltoall_into_async({*group, name}, in->view(), out->view());
    });
  } else {
    kolo.call = [=] { kolo::alltoall_into(*group, in->view(), out->view()); };
  }
  return {kolo, beside(c, kolo, [=, peer = c.peer] { peer->alltoall(*in, *out); })};
}

Pair reduce_scatter(const Case& c) {
  const auto group = c.group;
  const int rank = c.rank;
  const int ranks = c.ranks;
  const std::int64_t part = c.count / ranks;
  auto in = make_buffer(c, c.count);
  auto out = c.in_place ? in : make_buffer(c, part);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=, op = c.op] {
    out->poison();
    fill_input(*in, op, rank, ranks);
  };
  const auto check_at = [=, op = c.op](std::int64_t at) {
    return [=] { return count_wrong_reduction(*out, op, ranks, at, part, rank * part); };
  };
  const std::int64_t mine = c.in_place ? rank * part : 0;
  kolo.check = check_at(mine);
  const kolo::ReduceScatterOptions options = kolo::ReduceScatterOptions{}.with_op(c.op);
  const kolo::TensorView result = out->part(mine, part);
  if (c.device) {
    kolo.call = on_device(c, [=](const std::string& name) {
      return kolo::reduce_scatter_into_async({*group, name}, in->view(), result, options);
    });
  } else {
    kolo.call = [=] { kolo::reduce_scatter_into(*group, in->view(), result, options); };
  }
  Contestant peer = beside(c, kolo, [=, peer = c.peer, op = c.op] { peer->reduce_scatter(*in, *out, op); });
  if (c.peer && peer.check) peer.check = check_at(c.in_place ? c.peer->in_place_at(part) : 0);
  return {std::move(kolo), std::move(peer)};
}

Pair barrier(const Case& c) {
  const auto group = c.group;
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [] {};
  kolo.check = [] { return std::int64_t{0}; };
  kolo.call = [=] { kolo::barrier(*group); };
  return {kolo, beside(c, kolo, [peer = c.peer] { peer->barrier(); })};
}

/// A message's end: on a device its stream comes behind it, too.
void end_message(const std::shared_ptr<Device>& device, kolo::Handle message) {
  if (device) device->follow(message);
  message.wait();
}

/// On the host without a handle.
void send(const Case& c, const Buffer& in, int to) {
  if (!c.device) return kolo::send(*c.group, in.view(), to);
  end_message(c.device, kolo::send_async(*c.group, in.view(), to));
}
void receive(const Case& c, const Buffer& out, int from) {
  if (c.device) return end_message(c.device, kolo::recv_async(*c.group, out.view(), from));
  kolo::recv(*c.group, out.view(), from);
}

Pair sendrecv(const Case& c) {
  const int to = (c.rank + 1) % c.ranks;
  const int from = (c.rank + c.ranks - 1) % c.ranks;
  auto in = make_buffer(c, c.count);
  auto out = make_buffer(c, c.count);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=, rank = c.rank] {
    out->poison();
    fill_input(*in, ReduceOp::sum, rank, 1);
  };
  kolo.check = [=, count = c.count] { return count_wrong_copy(*out, from, 0, count); };
  kolo.call = [=] {
    if (!c.device) {
      kolo::sendrecv(*c.group, in->view(), to, out->view(), from);
      return;
    }
    kolo::Handle sent = kolo::send_async(*c.group, in->view(), to);
    receive(c, *out, from);
    end_message(c.device, std::move(sent));
  };
  return {kolo, beside(c, kolo, [=, peer = c.peer] { peer->exchange(*in, *out, to, from); })};
}

/// Of an odd number of ranks the last one has nobody.
Pair pingpong(const Case& c) {
  const int other = c.rank ^ 1;
  const bool plays = other < c.ranks;
  const bool sends_first = c.rank < other;
  auto in = make_buffer(c, c.count);
  auto out = make_buffer(c, c.count);
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [=, rank = c.rank] {
    out->poison();
    fill_input(*in, ReduceOp::sum, rank, 1);
  };
  kolo.check = [=, count = c.count] { return plays ? count_wrong_copy(*out, other, 0, count) : std::int64_t{0}; };
  kolo.call = [=] {
    if (!plays) return;
    if (sends_first) send(c, *in, other);
    receive(c, *out, other);
    if (!sends_first) send(c, *in, other);
  };
  return {kolo, beside(c, kolo, [=, peer = c.peer] {
            if (plays) peer->bounce(*in, *out, other, sends_first);
          })};
}

/// MPI has none.
Pair join(const Case& c) {
  const auto group = c.group;
  Contestant kolo;
  kolo.name = "kolo";
  kolo.prepare = [] {};
  kolo.check = [] { return std::int64_t{0}; };
  kolo.call = [=] { static_cast<void>(kolo::join(*group)); };
  return {kolo, {}};
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
    {Mode::reduce, reduce, one, true, true, true, false, true, true},
    {Mode::broadcast, broadcast, one, false, true, true, false, true, true},
    {Mode::allgather, allgather, the_rest, false, false, true, true, false, true},
    {Mode::gather, gather, the_rest, false, true, true, true, false, true},
    {Mode::scatter, scatter, the_rest, false, true, true, true, false, true},
    {Mode::alltoall, alltoall, the_rest, false, false, true, true, false, true},
    {Mode::reduce_scatter, reduce_scatter, the_rest, true, false, true, true, true, true},
    {Mode::barrier, barrier, one, false, false, false, false, true, false},
    {Mode::sendrecv, sendrecv, one, false, false, true, false, false, true},
    {Mode::pingpong, pingpong, one, false, false, true, false, false, true},
    {Mode::join, join, one, false, false, false, false, true, false},
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
  if (setting.peer) setting.peer->check_can(setting.dtype, setting.op, setting.count);
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

/// As kolo::ReduceOp says.
bool is_defined(ReduceOp op, DType dtype) {
  const bool of_bits = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  return op == ReduceOp::average ? kolo::is_floating_point(dtype) : !of_bits || !kolo::is_floating_point(dtype);
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
  const int split = flags.split;
  const int rank = split == 0 ? bench.job.rank() : bench.job.rank() % split;
  const int ranks = split == 0 ? bench.job.size() : split;
  std::shared_ptr<Peer> peer;
  if (!flags.baselines.empty()) {
    peer = flags.cuda ? bench.device->nccl(bench.job) : make_mpi_peer(bench.job.rank(), bench.job.size(), split);
  }
  std::shared_ptr<const kolo::Group> group;
  if (!flags.peer_only) {
    group = std::make_shared<kolo::Group>(split == 0 ? kolo::world() : kolo::world().split(bench.job.rank() / split));
  }
  const std::vector<DType> dtypes = collective.has_size ? flags.dtypes : std::vector<DType>{DType::float32};
  const std::vector<ReduceOp> ops = collective.reduces ? flags.ops : std::vector<ReduceOp>{ReduceOp::sum};
  for (const DType dtype : dtypes) {
    for (const ReduceOp op : ops) {
      if (!is_defined(op, dtype)) continue;
      for (const std::int64_t bytes : sizes_of(flags, collective)) {
        Case setting{rank,  ranks,       dtype,        op,   flags.root, elements_of(bytes, dtype, collective, ranks),
                     false, flags.arena, bench.device, peer, group,      {}};
        const std::string name =
            std::string(to_string(dtype)) + " " + std::string(to_string(op)) + " " + std::to_string(setting.count);
        setting.name = name + " apart";
        if (collective.out_of_place && (flags.out_of_place || !collective.in_place)) {
          run_row(bench, report, collective, setting);
        }
        setting.in_place = true;
        setting.name = name;
        if (collective.in_place && (flags.in_place || !collective.out_of_place)) {
          run_row(bench, report, collective, setting);
        }
      }
    }
  }
}

}  // namespace kolo_bench
