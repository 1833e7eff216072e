// SPDX-License-Identifier: Apache-2.0
//
// A step's gradients, all at once. Each way of submission is a row; all of them and the peers take turns.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradients.hpp"
#include "modes.hpp"
#include "mpi_peer.hpp"

namespace kolo_bench {
namespace {

Row row_of(const Bench& bench, const Gradients& gradients) {
  Row row;
  row.collective = "step";
  row.count = gradients.elements();
  row.bytes = row.count * static_cast<std::int64_t>(sizeof(float));
  row.dtype = "float32";
  row.op = std::string(to_string(gradients.op()));
  row.bus_factor = 2.0 * (bench.job.size() - 1) / bench.job.size();
  row.more["model"] = bench.flags.model.name;
  row.more["tensors"] = gradients.size();
  return row;
}

/// Of the rank that reports.
void note_host_times(Row& row, const HostTimes& times, std::size_t tensors) {
  const double submitted = summarize(times.submitted).median;
  row.more["host_submit_us"] = submitted;
  row.more["host_submit_one_us"] = submitted / static_cast<double>(tensors);
  row.more["host_step_us"] = summarize(times.step).median;
}

}  // namespace

void run_step(Bench& bench, Report& report) {
  const Flags& flags = bench.flags;
  auto gradients = std::make_shared<Gradients>(flags, bench.job.rank(), bench.job.size(), bench.device);
  std::vector<Contestant> contestants;
  const auto add = [&](const std::string& name, std::function<void()> call) {
    contestants.push_back(
        {name, [gradients] { gradients->fill(); }, std::move(call), [gradients] { return gradients->count_wrong(); }});
  };
  const std::vector<Submission> submissions = flags.peer_only ? std::vector<Submission>{} : flags.submissions;
  std::vector<std::shared_ptr<HostTimes>> times;
  for (const Submission submission : submissions) {
    times.push_back(flags.cuda ? std::make_shared<HostTimes>() : nullptr);
    add("kolo", step_by_kolo(gradients, submission, times.back()));
  }
  std::shared_ptr<Peer> nccl;
  if (flags.cuda && !flags.baselines.empty()) nccl = bench.device->nccl(bench.job);
  for (const Baseline baseline : flags.baselines) {
    if (nccl) {
      add(to_string(baseline), step_by_nccl(gradients, baseline, nccl));
      if (!nccl->is_exact(gradients->op())) contestants.back().check = nullptr;
      continue;
    }
    if (baseline == Baseline::mpi_packed) check_mpi_can(kolo::DType::float32, gradients->op(), gradients->elements());
    add(to_string(baseline), step_by_mpi(gradients, baseline));
  }
  bench.progress.begin("step " + flags.model.name);
  const std::vector<Measured> measured = measure(bench, contestants);
  const auto peers = measured.begin() + static_cast<std::ptrdiff_t>(submissions.size());
  if (flags.peer_only) report.add(row_of(bench, *gradients), measured);
  for (std::size_t i = 0; i < submissions.size(); ++i) {
    Row row = row_of(bench, *gradients);
    row.more["submit"] = to_string(submissions[i]);
    if (times[i]) note_host_times(row, *times[i], gradients->size());
    std::vector<Measured> own_and_peers{measured[i]};
    own_and_peers.insert(own_and_peers.end(), peers, measured.end());
    report.add(row, own_and_peers);
  }
}

}  // namespace kolo_bench
