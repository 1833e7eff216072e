// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cases.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include <kolo/join.hpp>

#include "tests/support/exact_values.hpp"
#include "tests/support/operation.hpp"
#include "tests/support/random.hpp"

namespace kolo::testing {
namespace {

constexpr int kCollectives = 11, kGroups = 4, kNodes = 3, kWays = 8, kOutputs = 3, kConversions = 4, kRoots = 8;
constexpr int kRows = 5;

int raw(const Row& row, Factor factor) { return row[static_cast<std::size_t>(factor)]; }
template <class T>
T value(const Row& row, Factor factor) {
  return static_cast<T>(raw(row, factor));
}

/// The members of the groups of a case, of which an InGroup may have two.
std::vector<std::vector<int>> members_of(InGroup which, int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  switch (which) {
  case InGroup::world:
    return {all};
  case InGroup::all:
    return {{all.rbegin(), all.rend()}};
  case InGroup::some: {
    std::vector<int> some;
    for (int rank = ranks - 1; rank >= 0; --rank)
      if (rank % 3 != 0) some.push_back(rank);
    return {some};
  }
  case InGroup::overlapping:
    // All but the last, and all but the first; of two ranks both, and the second.
    return {{all.begin(), ranks > 2 ? all.end() - 1 : all.end()}, {all.rbegin(), all.rend() - 1}};
  }
  return {};
}

/// Of the smaller one.
int size_of_group(InGroup which, int ranks) {
  std::size_t smallest = static_cast<std::size_t>(ranks);
  for (const std::vector<int>& members : members_of(which, ranks)) smallest = std::min(smallest, members.size());
  return static_cast<int>(smallest);
}

/// Of a group of a case, without the last, which has joined; of the smaller one.
int present_of_group(InGroup which, int ranks) { return std::max(size_of_group(which, ranks) - 1, 1); }

bool reduces(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::grouped_allreduce ||
         collective == Collective::reduce || collective == Collective::reduce_scatter;
}
bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}
bool is_group(Way way) { return way == Way::grouped || way == Way::grouped_async || way == Way::prepared_group; }

/// Asks about values only where all of them are set.
template <class A, class Test>
bool says(const Row& row, Factor a, Test&& test) {
  return raw(row, a) != kUnset && test(value<A>(row, a));
}
template <class A, class B, class Test>
bool says(const Row& row, Factor a, Factor b, Test&& test) {
  return raw(row, a) != kUnset && raw(row, b) != kUnset && test(value<A>(row, a), value<B>(row, b));
}

const char* why_world_excluded(const Worlds& worlds, const Row& row) {
  const auto ranks = [&](int at) { return worlds.ranks[static_cast<std::size_t>(at)]; };
  if (says<int, Nodes>(row, Factor::ranks, Factor::nodes,
                       [&](int at, Nodes nodes) { return ranks(at) == 1 && nodes != Nodes::one; })) {
    return "one rank has one node";
  }
  if (says<int, Nodes>(row, Factor::ranks, Factor::nodes,
                       [&](int at, Nodes nodes) { return ranks(at) == 2 && nodes == Nodes::uneven; })) {
    return "two ranks have no nodes of different sizes";
  }
  if (says<int, InGroup>(row, Factor::ranks, Factor::group, [&](int at, InGroup group) {
        return ranks(at) == 1 && (group == InGroup::some || group == InGroup::overlapping);
      })) {
    return "one rank has no group of some, and no two groups";
  }
  if (says<int, int>(row, Factor::ranks, Factor::root, [&](int at, int root) { return root >= ranks(at); })) {
    return "there is no such root";
  }
  if (raw(row, Factor::ranks) != kUnset &&
      says<InGroup, int>(row, Factor::group, Factor::root, [&](InGroup group, int root) {
        return root >= size_of_group(group, ranks(raw(row, Factor::ranks)));
      })) {
    return "there is no such root";
  }
  return nullptr;
}

/// Of what the others do when the last rank of a group has joined.
const char* why_join_excluded(const Worlds& worlds, const Row& row) {
  if (!worlds.last_joins) return nullptr;
  if (says<Collective>(row, Factor::collective, [](Collective collective) {
        return collective == Collective::scatter || collective == Collective::alltoall ||
               collective == Collective::alltoall_splits;
      })) {
    return "it needs a rank that has joined";
  }
  if (raw(row, Factor::ranks) != kUnset &&
      says<InGroup, int>(row, Factor::group, Factor::root, [&](InGroup group, int root) {
        return root >= present_of_group(group, worlds.ranks[static_cast<std::size_t>(raw(row, Factor::ranks))]);
      })) {
    return "the root has joined";
  }
  return nullptr;
}

const char* why_call_excluded(const Row& row) {
  if (says<Collective, Way>(row, Factor::collective, Factor::form, [](Collective collective, Way way) {
        return collective == Collective::grouped_allreduce && (way == Way::unnamed || is_group(way));
      })) {
    return "grouped_allreduce is made by name or asynchronously, and is no member of a group";
  }
  if (says<Collective, Way>(row, Factor::collective, Factor::form, [](Collective collective, Way way) {
        return collective == Collective::barrier && (way == Way::named || way == Way::prepared || is_group(way));
      })) {
    return "a barrier is not prepared, grouped, or waited for by name";
  }
  if (says<Way, Output>(row, Factor::form, Factor::output, [](Way way, Output output) {
        return output == Output::returned && (way == Way::prepared || is_group(way));
      })) {
    return "what is prepared or grouped writes into memory of the caller";
  }
  if (says<Collective, Output>(row, Factor::collective, Factor::output, [](Collective collective, Output output) {
        const bool gives = collective == Collective::allgather || collective == Collective::gather ||
                           collective == Collective::reduce_scatter || collective == Collective::alltoall ||
                           collective == Collective::alltoall_splits;
        return output == Output::returned && !gives;
      })) {
    return "it returns no tensor";
  }
  if (says<Collective, Output>(row, Factor::collective, Factor::output, [](Collective collective, Output output) {
        return output == Output::in_place &&
               (collective == Collective::alltoall || collective == Collective::alltoall_splits ||
                collective == Collective::barrier);
      })) {
    return "it does not work in place";
  }
  if (says<Collective, Output>(row, Factor::collective, Factor::output, [](Collective collective, Output output) {
        return collective == Collective::grouped_allreduce && output == Output::apart;
      })) {
    return "grouped_allreduce works in place";
  }
  return nullptr;
}

const char* why_device_excluded(On on, const Row& row) {
  if (on == On::cpu) return nullptr;
  if (says<Output>(row, Factor::output, [](Output output) { return output == Output::returned; })) {
    return "what is returned lies in memory of the CPU";
  }
  if (on == On::staged) return nullptr;
  if (says<Collective, DType>(row, Factor::collective, Factor::dtype, [](Collective collective, DType dtype) {
        return reduces(collective) && (dtype == DType::int16 || dtype == DType::uint16);
      })) {
    return "NCCL does not reduce integers of 16 bits";
  }
  if (says<DType, int>(row, Factor::dtype, Factor::op, [](DType dtype, int op) {
        return is_bitwise(kReduceOps[op]) && (dtype != DType::boolean || kReduceOps[op] == ReduceOp::bit_xor);
      })) {
    return "NCCL has no bitwise operations";
  }
  return nullptr;
}

const char* why_values_excluded(const Row& row) {
  if (says<Collective, int>(row, Factor::collective, Factor::op,
                            [](Collective collective, int op) { return op != 0 && !reduces(collective); })) {
    return "it does not reduce";
  }
  if (says<DType, int>(row, Factor::dtype, Factor::op,
                       [](DType dtype, int op) { return !is_defined(dtype, kReduceOps[op]); })) {
    return "the operation is not defined for the dtype";
  }
  if (says<Collective, Conversion>(row, Factor::collective, Factor::conversion,
                                   [](Collective collective, Conversion conversion) {
                                     return conversion != Conversion::none && !reduces(collective);
                                   })) {
    return "it does not convert";
  }
  if (says<DType, Conversion>(row, Factor::dtype, Factor::conversion, [](DType dtype, Conversion conversion) {
        return conversion != Conversion::none && !is_floating_point(dtype);
      })) {
    return "only floating-point elements are scaled, or sent as others";
  }
  if (says<int, Conversion>(row, Factor::op, Factor::conversion, [](int op, Conversion conversion) {
        return conversion == Conversion::scaled && kReduceOps[op] == ReduceOp::product;
      })) {
    return "the product of scaled numbers is not what the test computes";
  }
  if (says<int, Conversion>(row, Factor::op, Factor::conversion, [](int op, Conversion conversion) {
        return conversion != Conversion::none && is_bitwise(kReduceOps[op]);
      })) {
    return "only floating-point elements are scaled, or sent as others";
  }
  if (says<Collective, int>(row, Factor::collective, Factor::root,
                            [](Collective collective, int root) { return root != 0 && !has_root(collective); })) {
    return "it has no root";
  }
  // A barrier has no elements: one value of each factor of theirs will do.
  const auto is_barrier = [](Collective collective) { return collective == Collective::barrier; };
  if (says<Collective>(row, Factor::collective, is_barrier) &&
      (raw(row, Factor::dtype) > 0 || raw(row, Factor::rows) > 0)) {
    return "a barrier has no elements";
  }
  return nullptr;
}

Kind kind_of(Collective collective, Output output) {
  const auto one_of = [&](Kind in_place, Kind apart, Kind returned) {
    return output == Output::in_place ? in_place : output == Output::apart ? apart : returned;
  };
  switch (collective) {
  case Collective::allreduce:
    return one_of(Kind::allreduce, Kind::allreduce_into, Kind::allreduce_into);
  case Collective::grouped_allreduce:
    return Kind::grouped;
  case Collective::broadcast:
    return one_of(Kind::broadcast, Kind::broadcast_into, Kind::broadcast_into);
  case Collective::reduce:
    return one_of(Kind::reduce, Kind::reduce_into, Kind::reduce_into);
  case Collective::allgather:
    return one_of(Kind::allgather_into, Kind::allgather_into, Kind::allgather);
  case Collective::gather:
    return one_of(Kind::gather_into, Kind::gather_into, Kind::gather);
  case Collective::scatter:
    return Kind::scatter_into;
  case Collective::reduce_scatter:
    return one_of(Kind::reduce_scatter_into, Kind::reduce_scatter_into, Kind::reduce_scatter);
  case Collective::alltoall:
    return one_of(Kind::alltoall_into, Kind::alltoall_into, Kind::alltoall);
  case Collective::alltoall_splits:
    return one_of(Kind::alltoall_splits_into, Kind::alltoall_splits_into, Kind::alltoall);
  case Collective::barrier:
    break;
  }
  return Kind::barrier;
}

Form form_of(Way way) {
  switch (way) {
  case Way::unnamed:
  case Way::named:
    return Form::synchronous;
  case Way::async_unnamed:
  case Way::async_named:
    return Form::asynchronous;
  case Way::prepared:
    return Form::prepared;
  case Way::grouped:
    return Form::grouped;
  case Way::grouped_async:
    return Form::grouped_async;
  case Way::prepared_group:
    break;
  }
  return Form::prepared_group;
}

/// Rows of a tensor; of member, rank or pair `i` where each has its own.
std::int64_t rows_of(Rows rows, bool own, int i) {
  switch (rows) {
  case Rows::none:
    return 0;
  case Rows::one:
    return 1;
  case Rows::several:
    return own ? 7 + i % 5 : 7;
  case Rows::gaps:
    return !own ? 9 : i % 2 == 0 ? 0 : 9 + i % 4;
  case Rows::many:
    break;
  }
  return own ? 300 + i % 7 : 1001;
}

std::vector<std::int64_t> lengths_of(Collective collective, Kind kind, Rows rows, int ranks) {
  int parts = 1;
  if (kind == Kind::grouped) parts = 3;
  if (differs_by_rank(kind)) parts = ranks;
  if (differs_by_pair(kind)) parts = ranks * ranks;
  const bool own = parts > 1 && collective != Collective::alltoall;
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < parts; ++i) lengths.push_back(rows_of(rows, own, i));
  return lengths;
}

/// The operation that a row says, of so many ranks.
Operation operation_of(const Row& row, std::string name, int ranks) {
  const auto collective = value<Collective>(row, Factor::collective);
  const auto way = value<Way>(row, Factor::form);
  const auto output = value<Output>(row, Factor::output);
  const auto conversion = value<Conversion>(row, Factor::conversion);
  const auto rows = value<Rows>(row, Factor::rows);
  Operation operation;
  operation.kind = kind_of(collective, output);
  operation.form = form_of(way);
  if (way != Way::unnamed && way != Way::async_unnamed) operation.name = std::move(name);
  operation.dtype = value<DType>(row, Factor::dtype);
  operation.op = kReduceOps[raw(row, Factor::op)];
  operation.scaled = conversion == Conversion::scaled;
  if (conversion == Conversion::as_float16) operation.send_as = DType::float16;
  if (conversion == Conversion::as_bfloat16) operation.send_as = DType::bfloat16;
  operation.root = raw(row, Factor::root);
  operation.lengths = lengths_of(collective, operation.kind, rows, ranks);
  operation.width = rows == Rows::none ? 5 : rows == Rows::several ? 3 : rows == Rows::gaps ? 2 : 1;
  operation.in_place = output == Output::in_place;
  return operation;
}

/// Does it, and says of what an exception was.
void doing(const InFlight& call, const std::function<void()>& part) {
  try {
    part();
  } catch (const std::exception& error) {
    throw std::runtime_error(describe(call.operation()) + ": " + error.what());
  }
}

/// Runs `part(0)` ... `part(count - 1)`, each on a thread of its own; the first exception is rethrown.
void side_by_side(std::size_t count, const std::function<void(std::size_t)>& part) {
  std::vector<std::exception_ptr> thrown(count);
  std::vector<std::thread> threads;
  const auto guarded = [&](std::size_t i) {
    try {
      part(i);
    } catch (...) {
      thrown[i] = std::current_exception();
    }
  };
  for (std::size_t i = 1; i < count; ++i) threads.emplace_back(guarded, i);
  if (count > 0) guarded(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& one : thrown)
    if (one) std::rethrow_exception(one);
}

}  // namespace

const char* why_excluded(const Worlds& worlds, const Row& row) {
  if (const char* reason = why_world_excluded(worlds, row)) return reason;
  if (const char* reason = why_join_excluded(worlds, row)) return reason;
  if (const char* reason = why_call_excluded(row)) return reason;
  if (const char* reason = why_device_excluded(worlds.on, row)) return reason;
  return why_values_excluded(row);
}

std::vector<int> values_of(const Worlds& worlds) {
  return {kCollectives,
          kDTypeCount,
          static_cast<int>(worlds.ranks.size()),
          kGroups,
          worlds.has_virtual_nodes ? kNodes : 1,
          kWays,
          kOutputs,
          static_cast<int>(std::size(kReduceOps)),
          kConversions,
          kRoots,
          kRows};
}

Cases cases_of(const Worlds& worlds, std::size_t strength) {
  const auto number = [](Factor factor) { return static_cast<std::size_t>(factor); };
  std::vector<FactorSet> sets = sets_of(kFactors, strength);
  sets.push_back({number(Factor::collective), number(Factor::ranks), number(Factor::group), number(Factor::form)});
  const Factors factors{values_of(worlds), [&](const Row& row) { return why_excluded(worlds, row); }};
  return {worlds, cover(factors, sets)};
}

std::string describe(const Cases& cases) {
  std::string text = std::to_string(cases.covering.rows.size()) + " cases with " +
                     std::to_string(cases.covering.combinations) + " combinations; excluded";
  for (const auto& [reason, count] : cases.covering.excluded) text += "\n  " + std::to_string(count) + ": " + reason;
  return text;
}

std::vector<Row> rows_of(const Cases& cases, int ranks, Nodes nodes) {
  std::vector<Row> rows;
  for (const Row& row : cases.covering.rows) {
    const int its_ranks = cases.worlds.ranks[static_cast<std::size_t>(raw(row, Factor::ranks))];
    if (its_ranks == ranks && value<Nodes>(row, Factor::nodes) == nodes) rows.push_back(row);
  }
  return rows;
}

int ranks_per_node(int ranks, Nodes nodes) {
  if (nodes == Nodes::one) return 0;
  if (nodes == Nodes::even) return ranks % 2 == 0 ? ranks / 2 : 1;
  return ranks == 3 ? 2 : 3;
}

CaseGroups::CaseGroups(const Group& world, bool last_joins) : last_joins_(last_joins) {
  const int own = rank(world);
  const int size = kolo::size(world);
  for (const InGroup which : {InGroup::world, InGroup::all, InGroup::some, InGroup::overlapping}) {
    groups_.emplace_back();
    if (which == InGroup::world) {
      groups_.back().push_back(world);
      continue;
    }
    if (size == 1 && which != InGroup::all) continue;
    for (const std::vector<int>& members : members_of(which, size)) {
      if (std::find(members.begin(), members.end(), own) == members.end()) continue;
      groups_.back().push_back(Group::of(world, members, "case"));
    }
  }
  for (std::vector<Group>& groups : groups_) {
    const auto joined = std::stable_partition(groups.begin(), groups.end(), [&](const Group& group) {
      return absent_from(group) == 0 || rank(group) < kolo::size(group) - 1;
    });
    for (auto group = joined; group != groups.end(); ++group) joins_.push_back(join_async(*group));
    groups.erase(joined, groups.end());
  }
}

void CaseGroups::end_step() const {
  for (const std::vector<Group>& groups : groups_)
    for (const Group& group : groups) kolo::end_step(group);
}

void CaseGroups::end_joins() {
  for (const std::vector<Group>& groups : groups_) {
    for (const Group& group : groups)
      if (absent_from(group) > 0) joins_.push_back(join_async(group));
  }
  for (Future<int>& join : joins_) join.wait();
}

void run_cases(const Group& world, const std::vector<Row>& rows, const std::function<void(const std::string&)>& wrong,
               Accelerator* accelerator, bool last_joins) {
  constexpr std::size_t kTogether = 24;
  constexpr int kRounds = 2;
  CaseGroups groups(world, last_joins);
  Random own = random_of(7, static_cast<std::uint64_t>(rank(world)));
  for (std::size_t begin = 0; begin < rows.size(); begin += kTogether) {
    const std::size_t end = std::min(begin + kTogether, rows.size());
    std::vector<std::vector<std::unique_ptr<InFlight>>> open;
    for (std::size_t i = begin; i < end; ++i) {
      open.emplace_back();
      for (const Group& group : groups.of(value<InGroup>(rows[i], Factor::group))) {
        const int absent = groups.absent_from(group);
        Operation operation = operation_of(rows[i], "case " + std::to_string(i - begin), size(group) - absent);
        operation.absent = absent;
        const bool is_prepared = operation.form == Form::prepared || operation.form == Form::prepared_group;
        open.back().push_back(std::make_unique<InFlight>(group, std::move(operation), own, nullptr, accelerator));
        InFlight& call = *open.back().back();
        if (is_prepared) doing(call, [&] { call.prepare(); });
      }
    }
    for (int round = 0; round < kRounds; ++round) {
      const std::int64_t salt = static_cast<std::int64_t>(begin) + round;
      for (const auto& calls : open) {
        // Two synchronous ones are at once if two threads make them.
        const bool waits = !calls.empty() && (calls[0]->operation().form == Form::synchronous ||
                                              calls[0]->operation().form == Form::grouped);
        if (waits) {
          side_by_side(calls.size(), [&](std::size_t i) { doing(*calls[i], [&] { calls[i]->submit(salt); }); });
        } else {
          for (const auto& call : calls) doing(*call, [&] { call->submit(salt); });
        }
      }
      for (const auto& calls : open) {
        for (const auto& call : calls) {
          doing(*call, [&] { call->wait(); });
          try {
            call->check();
          } catch (const Wrong& error) {
            wrong(describe(call->operation()) + ": " + error.what());
          }
        }
      }
      groups.end_step();
    }
  }
  groups.end_joins();
}

}  // namespace kolo::testing
