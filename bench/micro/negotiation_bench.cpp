// SPDX-License-Identifier: Apache-2.0
//
// What negotiation costs: messages and bytes a step against the number of ranks, in the simulated world (8 ranks a
// node, a tree of fanout 4), for the first step and for a step whose plan is frozen; and the time of a submission.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "control/participant.hpp"
#include "tests/simulator/programs.hpp"
#include "tests/simulator/world.hpp"

namespace kolo {
namespace {

constexpr int kTensors = 161;  // as many gradients as ResNet-50 has

simulator::Traffic difference(const simulator::Traffic& a, const simulator::Traffic& b) {
  simulator::Traffic d;
  d.counts = b.counts - a.counts;
  d.declarations = b.declarations - a.declarations;
  d.sequencer = b.sequencer - a.sequencer;
  d.link_messages = b.link_messages - a.link_messages;
  d.link_bytes = b.link_bytes - a.link_bytes;
  d.entries = b.entries - a.entries;
  d.entry_bytes = b.entry_bytes - a.entry_bytes;
  return d;
}

/// `link_*` is for each link between two nodes, up; `log_*` is what comes down every link.
void report(benchmark::State& state, const std::string& step, const simulator::Traffic& traffic, int links) {
  const auto set = [&](const char* what, std::uint64_t value, int per = 1) {
    state.counters[step + what] = static_cast<double>(value) / per;
  };
  set("_rank_whole", traffic.declarations, static_cast<int>(state.range(0)));
  set("_rank_counts", traffic.counts, static_cast<int>(state.range(0)));
  set("_sequencer_messages", traffic.sequencer);
  set("_link_messages", traffic.link_messages, std::max(links, 1));
  set("_link_bytes", traffic.link_bytes, std::max(links, 1));
  set("_log_entries", traffic.entries);
  set("_log_bytes", traffic.entry_bytes);
}

void Step(benchmark::State& state) {
  constexpr int kSteps = 5;  // the plan runs from the third on; the last one is disturbed by ranks that leave
  simulator::Options options;
  options.ranks = static_cast<int>(state.range(0));
  options.ranks_per_node = 8;
  options.fanout = 4;
  options.fusion_threshold = 8 << 10;
  for (auto _ : state) {
    simulator::World world(options, simulator::allreduces(kTensors));
    const simulator::Training training{kTensors, kSteps, 0, false, true};
    for (int rank = 0; rank < options.ranks; ++rank) {
      world.set_program(rank, simulator::training_program(training, static_cast<std::uint64_t>(rank)));
    }
    std::vector<simulator::Traffic> after;  // each step, as rank 0 ends it
    world.on_end_step = [&](int rank) {
      if (rank == 0) after.push_back(world.traffic());
    };
    const std::string broken = world.run();
    KOLO_CHECK(broken.empty()) << broken;
    const int links = world.topology().node_count() - 1;
    report(state, "first", after[0], links);
    report(state, "frozen", difference(after[kSteps - 3], after[kSteps - 2]), links);
  }
}
BENCHMARK(Step)->RangeMultiplier(2)->Range(2, 1024)->Iterations(1)->Unit(benchmark::kMillisecond);

/// A steady step of one rank: every tensor submitted by its number, one planned batch run.
void Submit(benchmark::State& state) {
  const auto tensors = static_cast<core::TensorId>(state.range(0));
  core::Signature signature;
  signature.tensors.push_back({DType::float32, Shape{1024}});
  const auto shared = std::make_shared<const core::Signature>(signature);
  control::Participant participant(0, 2);
  std::vector<control::Action> actions;
  std::vector<control::NameId> name_ids;
  control::PlanDefined plan{0, 0, {{}}};
  for (core::TensorId i = 0; i < tensors; ++i) {
    const core::TensorId id = core::kReservedIds + i;
    const std::string name = "gradient." + std::to_string(i);
    name_ids.push_back(participant.open(0, name));
    participant.submit(name_ids.back(), shared);
    participant.on_log(control::Assigned{id, 1, 0, name, signature}, actions);
    participant.on_log(control::BatchAppended{0, {id}}, actions);
    plan.batches[0].push_back(id);
  }
  participant.on_log(plan, actions);
  const control::LogEntry batch = control::PlannedBatch{0, 0};
  for (auto _ : state) {
    for (const control::NameId name_id : name_ids) participant.submit(name_id, shared);
    control::Outbox& out = participant.outbox();
    benchmark::DoNotOptimize(out.counts.data());
    out.messages.clear();
    out.counts.clear();
    actions.clear();
    participant.on_log(batch, actions);
    benchmark::DoNotOptimize(actions.data());
  }
  state.SetItemsProcessed(state.iterations() * tensors);
}
BENCHMARK(Submit)->Arg(1)->Arg(161)->Arg(1000);

}  // namespace
}  // namespace kolo
