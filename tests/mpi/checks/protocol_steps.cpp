// SPDX-License-Identifier: Apache-2.0
//
// Steady steps between processes, looked at through metrics(): no signature, no message to the leader, one short log
// entry a batch, the same batches in step 10 and step 100; frames between nodes bounded by tensors and nodes.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <kolo/detail/counters.hpp>
#include <kolo/kolo.hpp>
#include <kolo/objects.hpp>

#include "tests/mpi/checks/check.hpp"

namespace {

using kolo::testing::Report;

constexpr std::size_t kTensors = 30;
constexpr int kLearnt = 10;
constexpr int kLast = 100;
/// Where the machine stands still for a tenth of a second ranks say that they are starved: a message now and then.
constexpr std::uint64_t kStalls = 9;

/// Every rank submits in an order of its own.
void step(Report& report, std::vector<std::vector<float>>& tensors, int number) {
  std::vector<kolo::Handle> handles;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    const std::size_t which = (k * 7 + static_cast<std::size_t>(kolo::rank()) * 11) % tensors.size();
    std::vector<float>& tensor = tensors[which];
    std::fill(tensor.begin(), tensor.end(), static_cast<float>(number + kolo::rank()) + static_cast<float>(which));
    handles.push_back(kolo::allreduce_async("t" + std::to_string(which), kolo::view(tensor)));
  }
  kolo::wait_all(handles);
  const int size = kolo::size();
  for (std::size_t which = 0; which < tensors.size(); ++which) {
    const float wanted = static_cast<float>(size * number + size * (size - 1) / 2) +
                         static_cast<float>(size) * static_cast<float>(which);
    const auto right = std::count(tensors[which].begin(), tensors[which].end(), wanted);
    if (right != static_cast<std::ptrdiff_t>(tensors[which].size())) {
      report.equal(right, static_cast<std::ptrdiff_t>(tensors[which].size()),
                   "right elements of t" + std::to_string(which));
    }
  }
  kolo::end_step();
}

/// Everything done and drained, and nobody has left.
kolo::detail::Counters settled() {
  kolo::barrier();
  kolo::detail::Counters metrics = kolo::detail::counters();
  kolo::barrier();
  return metrics;
}

void check_negotiation(Report& report, const kolo::detail::Counters& early, const kolo::detail::Counters& late) {
  const std::uint64_t steps = kLast - kLearnt;
  const std::uint64_t batches = late.batches - early.batches;
  report.equal(late.signatures_sent - early.signatures_sent, 0U, "signatures of steady steps");
  const std::uint64_t messages = late.messages_posted - early.messages_posted;
  report.check(messages <= kStalls + 2, std::to_string(messages) + " messages of steady steps, two of barriers");
  report.equal(late.counts_published - early.counts_published, steps * kTensors, "counts");
  report.equal(late.plans, 1U, "plans");
  report.equal(late.plans_voided, 0U, "plans voided");
  report.equal(late.planned_batches - early.planned_batches, batches - 2, "planned batches, all but the barriers");
  const std::uint64_t pushes = late.pushes - early.pushes;  // where the machine stands still, somebody asks for them
  report.equal(late.log_entries - early.log_entries, batches + pushes, "log entries");
  report.equal(batches - 2, steps * late.last_step_batches, "batches of steady steps");
  report.equal(late.last_step_digest, early.last_step_digest, "the batches of step 100");
  report.equal(late.failures, 0U, "failures");
  for (const std::uint64_t digest : kolo::allgather_object(late.last_step_digest)) {
    report.equal(digest, late.last_step_digest, "another rank's batches");
  }
}

void check_frames(Report& report, const kolo::detail::Counters& early, const kolo::detail::Counters& late) {
  const bool alone = kolo::local_size() == kolo::size();
  const std::uint64_t frames = late.control_frames_sent - early.control_frames_sent;
  if (alone || kolo::local_rank() != 0) return report.equal(frames, 0U, "frames of who is no leader");
  const std::uint64_t steps = kLast - kLearnt;
  const std::uint64_t up = steps * (kTensors + 1 + late.last_step_batches) + 4;
  const std::uint64_t down = steps * late.last_step_batches + 2;
  const auto nodes = static_cast<std::uint64_t>(kolo::size());  // at most
  report.check(frames >= steps && frames <= up + nodes * down, std::to_string(frames) + " frames");
}

void check_protocol_steps(Report& report) {
  std::vector<std::vector<float>> tensors(kTensors);
  for (std::size_t i = 0; i < kTensors; ++i) tensors[i].resize(1 + i * 37 % 300);
  kolo::detail::Counters early;
  for (int number = 1; number <= kLast; ++number) {
    step(report, tensors, number);
    if (number == kLearnt) early = settled();
  }
  const kolo::detail::Counters late = settled();
  check_negotiation(report, early, late);
  check_frames(report, early, late);
}

// Barriers stand in the log as well.
const kolo::testing::Registered registered(
    {.name = "protocol_steps",
     .run = check_protocol_steps,
     .options = {
         kolo::Options{}.with_setting("KOLO_FUSION_THRESHOLD", "4K").with_setting("KOLO_ROUTES", "*:none=small")}});

}  // namespace
