// SPDX-License-Identifier: Apache-2.0
//
// The cases of the matrix test: every collective x how it is called x where its result lies x dtype x operation x
// conversion x root x rows x group x ranks x nodes. Each combination of values of three of these is in some case, and
// in all sizes of worlds each collective is called in each form in each group; or a reason says why it cannot be.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/handle.hpp>

#include "tests/support/covering.hpp"

namespace kolo::testing {

class Accelerator;  // operation.hpp

/// The factors, in the order of a row.
enum class Factor { collective, dtype, ranks, group, nodes, form, output, op, conversion, root, rows };
constexpr std::size_t kFactors = 11;

enum class Collective {
  allreduce,
  grouped_allreduce,
  broadcast,
  reduce,
  allgather,
  gather,
  scatter,
  reduce_scatter,
  alltoall,
  alltoall_splits,
  barrier
};
enum class Nodes { one, even, uneven };
enum class InGroup {
  world,
  all,         ///< in another order
  some,        ///< not all, in another order
  overlapping  ///< the same call by the same name in two groups at once
};
enum class Way { unnamed, named, async_unnamed, async_named, prepared, grouped, grouped_async, prepared_group };
enum class Output { in_place, apart, returned };
enum class Conversion { none, scaled, as_float16, as_bfloat16 };
enum class Rows {
  none,     ///< no row, of five elements
  one,      ///< of one element
  several,  ///< of three elements
  gaps,     ///< where ranks have rows of their own, every second has none
  many      ///< many times what a slot holds
};

/// Where tensors lie: in the CPU's memory, or on devices, by a KOLO_GPU_BACKEND.
enum class On { cpu, nccl, staged };
struct Worlds {
  std::vector<int> ranks{1, 2, 3, 4, 8};
  bool has_virtual_nodes = true;  ///< else the nodes are not the test's to choose: `Nodes` has one value
  On on = On::cpu;
  /// In each group of several ranks the last one joins, and the cases are what the others do then.
  bool last_joins = false;
};

struct Cases {
  Worlds worlds;
  Covering covering;
};
/// Why there is no such case, or null.
const char* why_excluded(const Worlds& worlds, const Row& row);
/// How many values each factor has.
std::vector<int> values_of(const Worlds& worlds);
/// With all combinations of so many factors, and the full product of collective, form, group and ranks.
Cases cases_of(const Worlds& worlds, std::size_t strength);
/// For a person: how many cases there are, and how many combinations are excluded and why.
std::string describe(const Cases& cases);
/// Those of a world.
std::vector<Row> rows_of(const Cases& cases, int ranks, Nodes nodes);

/// `KOLO_RANKS_PER_NODE` of a world.
int ranks_per_node(int ranks, Nodes nodes);

/// One rank's groups of the cases, made by all ranks of the world together.
class CaseGroups {
 public:
  CaseGroups(const Group& world, bool last_joins);
  /// Those of the case that this rank is in, and has not joined.
  [[nodiscard]] const std::vector<Group>& of(InGroup which) const { return groups_[static_cast<std::size_t>(which)]; }
  /// How many of the group's last ranks have joined.
  [[nodiscard]] int absent_from(const Group& group) const { return last_joins_ && size(group) > 1 ? 1 : 0; }
  /// In all of them.
  void end_step() const;
  /// Joins those that others have joined, and returns when all ranks have.
  void end_joins();

 private:
  const bool last_joins_;
  std::vector<std::vector<Group>> groups_;
  std::vector<Future<int>> joins_;
};

/// Runs this rank's part of these rows, each twice, several at a time; `wrong` is told of each result that is wrong.
/// Throws what the calls throw. `last_joins`: as of the rows' `Worlds`.
void run_cases(const Group& world, const std::vector<Row>& rows, const std::function<void(const std::string&)>& wrong,
               Accelerator* accelerator = nullptr, bool last_joins = false);

}  // namespace kolo::testing
