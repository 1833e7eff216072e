// SPDX-License-Identifier: Apache-2.0
//
// The environment that launchers, scripts and people prepare: a way to start, or an Error that says what is wrong.
#include "fuzz.hpp"

#include <map>

#include <kolo/error.hpp>

#include "launch/notice_link.hpp"
#include "launch/start.hpp"

namespace kolo::fuzz {
namespace {

using Variables = std::map<std::string, std::string>;

/// Lines of "NAME=value"; a value may hold anything but a line's end.
Variables variables_of(std::string_view text) {
  Variables variables;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  return variables;
}

}  // namespace

void run(std::string_view input) {
  const Variables variables = variables_of(input);
  launch::Situation situation;
  situation.environment = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  situation.alone = variables.count("KOLO_ALONE") > 0;
  situation.mpi = variables.count("OMPI_COMM_WORLD_SIZE") > 0;
  try {
    const launch::Start start = launch::choose_start(situation);
    if (start.kind == launch::StartKind::meeting) {
      KOLO_CHECK(start.place.rank >= 0 && start.place.rank < start.place.size);
      KOLO_CHECK(start.where.has_value() && !start.where->describe().empty());
    }
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::invalid_setting || error.code() == ErrorCode::transport ||
               (error.code() == ErrorCode::unsupported && variables.count("KOLO_KEEPER") > 0));
  }
  try {
    const std::string parent = situation.environment("KOLO_KEEPER").value_or(std::string(input));
    KOLO_CHECK(launch::encode(launch::decode_parent(parent)) == parent);
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::invalid_setting);
  }
  KOLO_CHECK(!launch::explain_start(situation).empty());
  if (const auto host = launch::first_host(input)) KOLO_CHECK(!host->empty() && host->size() <= input.size());
}

std::vector<std::string> seeds() {
  const std::string torchrun = "RANK=1\nWORLD_SIZE=4\nMASTER_ADDR=10.0.0.1\nMASTER_PORT=29500\n";
  const std::string slurm = "SLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=4\nSLURM_JOB_ID=12\nSLURM_STEP_ID=0\n";
  return {"KOLO_STORE=tcp://10.0.0.1:29500\nKOLO_RANK=1\nKOLO_SIZE=4\n",
          "KOLO_STORE=tcp://[::1]:1\nKOLO_RANK=0\nKOLO_SIZE=2\n",
          "KOLO_STORE=file:///shared/job7\nKOLO_RANK=1\nKOLO_SIZE=4\n",
          "KOLO_SIZE=4\n",
          "KOLO_ALONE=1\n",
          "KOLO_KEEPER=local:0a1b2/" + std::string(64, 'c') + "\n",
          "OMPI_COMM_WORLD_SIZE=2\n",
          torchrun,
          torchrun + "TORCHELASTIC_RUN_ID=none\n",
          slurm + "SLURM_STEP_NODELIST=node[01-03,7],other\n",
          slurm + "SLURM_STEP_NODELIST=rack[1-2]n[5]x\n",
          "a[01-03]b[2,4],c"};
}

}  // namespace kolo::fuzz
