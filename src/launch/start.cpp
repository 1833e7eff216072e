// SPDX-License-Identifier: Apache-2.0
#include "launch/start.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <kolo/error.hpp>

#include "base/hash.hpp"
#include "base/text.hpp"

namespace kolo::launch {
namespace {

constexpr std::size_t kPorts = 8;
constexpr std::uint64_t kFirstPort = 10000;
constexpr std::uint64_t kPortRange = 20000;
constexpr std::uint64_t kPortStride = 7919;  // coprime to the range, so that no port comes twice

/// More than any job has, so that a typing error does not allocate all memory.
constexpr int kMostRanks = 1 << 20;

constexpr const char* kOrAlone = ", or set KOLO_ALONE=1 if each process is to run alone";

using base::look_up;

std::optional<int> parse_count(const std::string& text) {
  const std::optional<int> number = base::parse_number<int>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

int count_of(const base::Lookup& environment, const char* name, const std::string& otherwise) {
  const std::optional<std::string> text = look_up(environment, name);
  if (!text) throw Error(ErrorCode::transport, otherwise);
  if (const std::optional<int> number = parse_count(*text)) return *number;
  throw Error(ErrorCode::invalid_setting,
              std::string(name) + " is \"" + *text + "\"; expected an integer of at least 0");
}

/// A variable that decides whether a way applies: its number, or 0 if it is not set or no number.
int said_size(const base::Lookup& environment, const char* name) {
  const std::optional<std::string> text = look_up(environment, name);
  return text ? parse_count(*text).value_or(0) : 0;
}

Place check_place(Place place) {
  const std::string rank = place.rank_name + " is " + std::to_string(place.rank);
  const std::string size = place.size_name + " is " + std::to_string(place.size);
  if (place.size < 1) throw Error(ErrorCode::invalid_setting, size + ": a job has at least one rank");
  if (place.size > kMostRanks) {
    throw Error(ErrorCode::invalid_setting, size + ": a job has at most " + std::to_string(kMostRanks) + " ranks");
  }
  if (place.rank < 0 || place.rank >= place.size) {
    throw Error(ErrorCode::invalid_setting,
                rank + ", but " + size + ": ranks are 0 to " + std::to_string(place.size - 1));
  }
  return place;
}

Start meeting(std::string reason, Place place, const MeetingPlace& where, std::string job = {}) {
  return {StartKind::meeting, std::move(reason), check_place(std::move(place)), where, std::move(job)};
}

std::optional<Start> by_option(const Situation& situation) {
  if (situation.options == nullptr || !situation.options->store) return std::nullopt;
  const Options& options = *situation.options;
  return meeting("the program says so (Options::with_store)",
                 {options.rank, options.size, "the rank given to with_store", "the size given to with_store"},
                 *options.store);
}

std::optional<Start> by_wish(const Situation& situation) {
  if (!situation.alone) return std::nullopt;
  return Start{StartKind::alone, "KOLO_ALONE is set"};
}

std::optional<Start> by_keeper(const Situation& situation) {
  if (!look_up(situation.environment, "KOLO_KEEPER")) return std::nullopt;
  throw Error(ErrorCode::unsupported,
              "kolo-run has started this process in a job whose ranks may come and go (--min-np, --max-np, --respawn), "
              "and this program makes a world that cannot change: start it by kolo-run with -np alone" +
                  std::string(kOrAlone));
}

std::optional<Start> by_store(const Situation& situation) {
  const base::Lookup& environment = situation.environment;
  const std::optional<std::string> store = look_up(environment, "KOLO_STORE");
  if (!store) {
    if (said_size(environment, "KOLO_SIZE") <= 1) return std::nullopt;
    throw Error(ErrorCode::transport, "KOLO_SIZE says that the job has " + *look_up(environment, "KOLO_SIZE") +
                                          " ranks, but KOLO_STORE does not say where they meet: set it "
                                          "(tcp://host:port, or file:///path)" +
                                          kOrAlone);
  }
  const auto count = [&](const char* name) {
    return count_of(environment, name,
                    std::string("KOLO_STORE is set, but ") + name +
                        " is not: give every process KOLO_RANK, its own number from 0, and KOLO_SIZE, how many "
                        "processes there are");
  };
  return meeting("KOLO_STORE is set", {count("KOLO_RANK"), count("KOLO_SIZE"), "KOLO_RANK", "KOLO_SIZE"},
                 parse_place(*store, "KOLO_STORE"));
}

/// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
Start by_pytorchs_variables(const base::Lookup& environment, std::string reason, const std::string& run) {
  const auto missing = [&](const char* name) {
    const std::optional<std::string> size = look_up(environment, "WORLD_SIZE");
    return (size ? "WORLD_SIZE says that the job has " + *size + " ranks" : std::string("RANK is set")) + ", but " +
           name + " is not set, so that the ranks cannot meet: set it, as torchrun does" + kOrAlone;
  };
  Place place{count_of(environment, "RANK", missing("RANK")),
              count_of(environment, "WORLD_SIZE", missing("WORLD_SIZE")), "RANK", "WORLD_SIZE"};
  const std::optional<std::string> host = look_up(environment, "MASTER_ADDR");
  if (!host) throw Error(ErrorCode::transport, missing("MASTER_ADDR"));
  const int port = count_of(environment, "MASTER_PORT", missing("MASTER_PORT"));
  std::string job = run + " at port " + std::to_string(port);
  std::vector<std::uint16_t> ports = ports_of(job);
  return meeting(std::move(reason), std::move(place), place_of_ports(*host, std::move(ports)), std::move(job));
}

std::optional<Start> by_torchrun(const Situation& situation) {
  const base::Lookup& environment = situation.environment;
  const std::optional<std::string> run = look_up(environment, "TORCHELASTIC_RUN_ID");
  if (!run || !look_up(environment, "RANK")) return std::nullopt;
  return by_pytorchs_variables(environment, "torchrun has started this process (TORCHELASTIC_RUN_ID)",
                               "torchrun's run " + *run);
}

std::optional<Start> by_mpi(const Situation& situation) {
  if (!situation.mpi) return std::nullopt;
  return Start{StartKind::mpi, "a launcher that MPI knows has started this process"};
}

std::optional<Start> by_world_size(const Situation& situation) {
  const base::Lookup& environment = situation.environment;
  const std::optional<std::string> size = look_up(environment, "WORLD_SIZE");
  if (!look_up(environment, "RANK") || !size) return std::nullopt;
  if (said_size(environment, "WORLD_SIZE") == 1 && !look_up(environment, "MASTER_ADDR")) return std::nullopt;
  return by_pytorchs_variables(environment, "RANK and WORLD_SIZE are set", "PyTorch's");
}

std::optional<Start> by_slurm(const Situation& situation) {
  const base::Lookup& environment = situation.environment;
  constexpr const char* kSize = "SLURM_STEP_NUM_TASKS";
  if (said_size(environment, kSize) <= 1 || !look_up(environment, "SLURM_PROCID")) return std::nullopt;
  const std::string says =
      std::string(kSize) + " says that the step has " + *look_up(environment, kSize) + " tasks, but ";
  const std::string list = look_up(environment, "SLURM_STEP_NODELIST").value_or("");
  const std::optional<std::string> host = first_host(list);
  if (!host) {
    throw Error(ErrorCode::transport, says + "SLURM_STEP_NODELIST (\"" + list +
                                          "\") does not say on which hosts: start them by srun" + kOrAlone);
  }
  const auto missing = [&](const char* name) { return says + name + " is not set: start them by srun" + kOrAlone; };
  Place place{count_of(environment, "SLURM_PROCID", missing("SLURM_PROCID")), said_size(environment, kSize),
              "SLURM_PROCID", kSize};
  const int number = count_of(environment, "SLURM_JOB_ID", missing("SLURM_JOB_ID"));
  const std::string step = look_up(environment, "SLURM_STEP_ID").value_or("0");
  std::string job = "Slurm's step " + std::to_string(number) + "." + step;
  std::vector<std::uint16_t> ports = ports_of(job);
  return meeting("srun has started this process (SLURM_STEP_NUM_TASKS)", std::move(place),
                 place_of_ports(*host, std::move(ports)), std::move(job));
}

struct Row {
  const char* what;
  std::optional<Start> (*find)(const Situation& situation);
};

constexpr std::array kRows = {Row{"Options::with_store", by_option},
                              Row{"KOLO_ALONE", by_wish},
                              Row{"KOLO_KEEPER (kolo-run --min-np)", by_keeper},
                              Row{"KOLO_STORE, KOLO_RANK, KOLO_SIZE", by_store},
                              Row{"torchrun (TORCHELASTIC_RUN_ID)", by_torchrun},
                              Row{"MPI (variables of mpirun, or of a PMI)", by_mpi},
                              Row{"RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT", by_world_size},
                              Row{"srun (SLURM_STEP_NUM_TASKS)", by_slurm}};

}  // namespace

Start choose_start(const Situation& situation) {
  for (const Row& row : kRows) {
    if (std::optional<Start> start = row.find(situation)) return std::move(*start);
  }
  return {StartKind::alone, "no launcher has started this process"};
}

std::vector<std::string> explain_start(const Situation& situation) {
  std::vector<std::string> lines;
  bool taken = false;
  for (const Row& row : kRows) {
    std::string found = "not there";
    try {
      if (row.find(situation)) found = taken ? "there, but an earlier one goes first" : "taken";
    } catch (const Error& error) {
      found = taken ? "not all there, and an earlier one goes first" : "an error: " + error.status().message();
    }
    taken = taken || found != "not there";
    lines.push_back(std::string(row.what) + ": " + found);
  }
  lines.emplace_back(taken ? "a world of one: not needed" : kAloneIsTaken);
  return lines;
}

std::vector<std::uint16_t> ports_of(const std::string& job) {
  std::vector<std::uint16_t> ports;
  const std::uint64_t first = base::hash_string(job);
  for (std::uint64_t i = 0; i < kPorts; ++i) {
    ports.push_back(static_cast<std::uint16_t>(kFirstPort + (first % kPortRange + i * kPortStride) % kPortRange));
  }
  return ports;
}

namespace {

/// "01" of "01-03,7", with its zeros.
std::optional<std::string_view> first_number(std::string_view range) {
  const std::string_view digits = range.substr(0, range.find_first_not_of("0123456789"));
  const bool ends = digits == range || range[digits.size()] == ',' || range[digits.size()] == '-';
  return digits.empty() || !ends ? std::nullopt : std::optional(digits);
}

}  // namespace

std::optional<std::string> first_host(std::string_view list) {
  std::string host;
  while (!list.empty() && list.front() != ',') {
    if (list.front() != '[') {
      host += list.front();
      list.remove_prefix(1);
      continue;
    }
    const std::size_t end = list.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    const auto number = first_number(list.substr(1, end - 1));
    if (!number) return std::nullopt;
    host += *number;
    list.remove_prefix(end + 1);
  }
  if (host.empty() || host.find(']') != std::string::npos) return std::nullopt;
  return host;
}

}  // namespace kolo::launch
