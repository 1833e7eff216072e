// SPDX-License-Identifier: Apache-2.0
#include "flags.hpp"

#include <algorithm>
#include <iostream>
#include <sstream>
#include <utility>

#include <boost/program_options.hpp>

#include <kolo/info.hpp>

#include "sizes.hpp"

namespace kolo_bench {
namespace {

namespace po = boost::program_options;

constexpr std::pair<const char*, Mode> kModes[] = {{"allreduce", Mode::allreduce},
                                                   {"broadcast", Mode::broadcast},
                                                   {"allgather", Mode::allgather},
                                                   {"alltoall", Mode::alltoall},
                                                   {"reduce_scatter", Mode::reduce_scatter},
                                                   {"barrier", Mode::barrier},
                                                   {"step", Mode::step},
                                                   {"latency", Mode::latency}};
constexpr std::pair<const char*, Baseline> kBaselines[] = {
    {"mpi", Baseline::mpi}, {"mpi-per-tensor", Baseline::mpi_per_tensor}, {"mpi-packed", Baseline::mpi_packed}};
constexpr const char* kSubmissions[] = {"by-name", "prepared", "grouped"};

constexpr const char* kUsage =
    R"(kolo-bench MODE [flags]: measures Kolo's collectives, and their peers in the same job.

  mpirun -np 4 kolo-bench allreduce -b 4 -e 256M -f 4 --baseline mpi --json out.json
  mpirun -np 4 kolo-bench step --model resnet50 --baseline mpi-per-tensor,mpi-packed

Modes: allreduce, broadcast, allgather, alltoall, reduce_scatter, barrier   one collective, size by size
       step      all gradients of a model, submitted in backward order, all handles open at once
       latency   one small allreduce at a time, asynchronously, on an engine that was idle

Sizes are bytes with binary suffixes, of the whole result (allgather: of everybody's parts together; alltoall and
reduce_scatter: of what one rank gives). A time is the median of the slowest rank's; algbw = bytes / time, busbw =
algbw x 2(n-1)/n for allreduce, (n-1)/n for allgather, alltoall and reduce_scatter, 1 for broadcast; GB = 1e9 bytes.
#wrong counts elements that differ from the exact result, on all ranks, into poisoned memory.

Exit codes: 0 done, 1 something was wrong or failed, 2 wrong flags.

Flags)";

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

template <class Value, std::size_t N>
Value find(const std::pair<const char*, Value> (&table)[N], const std::string& name, const std::string& what) {
  std::string known;
  for (const auto& [spelling, value] : table) {
    if (name == spelling) return value;
    known += (known.empty() ? "" : ", ") + std::string(spelling);
  }
  throw BadFlags("there is no " + what + " '" + name + "'; give one of " + known);
}

std::vector<kolo::DType> parse_dtypes(const std::string& list) {
  std::vector<kolo::DType> dtypes;
  for (const std::string& name : split(list)) {
    const std::optional<kolo::DType> dtype = kolo::parse_dtype(name);
    if (!dtype)
      throw BadFlags("there is no dtype '" + name +
                     "'; give float32, float16, bfloat16, float64, int8 ... uint64 or bool");
    dtypes.push_back(*dtype);
  }
  return dtypes;
}

std::vector<kolo::ReduceOp> parse_ops(const std::string& list) {
  std::vector<kolo::ReduceOp> ops;
  for (const std::string& name : split(list)) {
    const std::optional<kolo::ReduceOp> op = kolo::parse_reduce_op(name);
    if (!op) throw BadFlags("there is no operation '" + name + "'; give sum, average, min, max or product");
    ops.push_back(*op);
  }
  return ops;
}

po::options_description describe(Flags& flags, std::string& begin, std::string& end, std::string& increment) {
  po::options_description description(kUsage);
  auto add = description.add_options();
  add("help,h", "this text")("version", "the library's version");
  add("minbytes,b", po::value(&begin)->default_value("4"), "the first size");
  add("maxbytes,e", po::value(&end)->default_value("64M"), "the last size");
  add("stepfactor,f", po::value(&flags.factor)->default_value(4), "from size to size, as a factor");
  add("stepbytes,i", po::value(&increment), "from size to size, in bytes (instead of -f)");
  add("iters,n", po::value(&flags.iterations)->default_value(20), "samples a row, at least");
  add("warmup_iters,w", po::value(&flags.warmup)->default_value(5), "calls before the first sample");
  add("check,c", po::value(&flags.check)->default_value(true), "compare results with the exact ones");
  add("datatype,d", po::value<std::string>()->default_value("float32"), "dtypes, separated by commas");
  add("op,o", po::value<std::string>()->default_value("sum"), "operations, separated by commas");
  add("root,r", po::value(&flags.root)->default_value(0), "of a broadcast");
  add("place", po::value<std::string>()->default_value("both"), "in, out or both: in place or into another buffer");
  add("seconds,t", po::value(&flags.seconds)->default_value(1.0),
      "a row goes on sampling until its median is stable, at most so long");
  add("baseline", po::value<std::string>()->default_value(""),
      "peers, in turns in the same job: mpi; for step mpi-per-tensor, mpi-packed");
  add("peer-only", po::bool_switch(&flags.peer_only), "only the peer, with MPI at MPI_THREAD_SINGLE and without Kolo");
  add("model", po::value<std::string>()->default_value("resnet50"),
      "step: resnet50, bert-base, gpt2-small, many-small");
  add("shapes", po::value<std::string>(), "step: a file, one tensor a line, dimensions separated by spaces");
  add("submit", po::value(&flags.submit)->default_value("by-name"), "step: by-name, prepared or grouped");
  add("json", po::value(&flags.json), "write the records there, too");
  return description;
}

void check_ranges(const Flags& flags) {
  if (flags.begin < 1 || flags.end < flags.begin) throw BadFlags("-b is at least 1 and -e not less than -b");
  if (flags.factor < 2) throw BadFlags("-f is at least 2 (use -i for steps in bytes)");
  if (flags.increment && *flags.increment < 1) throw BadFlags("-i is at least 1 byte");
  if (flags.iterations < 1 || flags.warmup < 0) throw BadFlags("-n is at least 1 and -w not negative");
  if (!(flags.seconds > 0)) throw BadFlags("-t is more than 0 seconds");
  if (std::find(std::begin(kSubmissions), std::end(kSubmissions), flags.submit) == std::end(kSubmissions)) {
    throw BadFlags("--submit is by-name, prepared or grouped, not '" + flags.submit + "'");
  }
  for (const Baseline baseline : flags.baselines) {
    if ((baseline == Baseline::mpi) == (flags.mode == Mode::step)) {
      throw BadFlags(flags.mode == Mode::step ? "step has the baselines mpi-per-tensor and mpi-packed"
                                              : flags.mode_name + " has the baseline mpi");
    }
  }
  if (flags.mode == Mode::latency && !flags.baselines.empty())
    throw BadFlags("latency has no baseline: MPI has no engine to be idle");
  if (flags.peer_only && flags.baselines.size() != 1)
    throw BadFlags("--peer-only needs one --baseline: the peer to run");
}

void parse_place(const std::string& place, Flags& flags) {
  if (place != "in" && place != "out" && place != "both")
    throw BadFlags("--place is in, out or both, not '" + place + "'");
  flags.in_place = place != "out";
  flags.out_of_place = place != "in";
}

}  // namespace

std::string to_string(Baseline baseline) {
  for (const auto& [name, value] : kBaselines) {
    if (value == baseline) return name;
  }
  return "?";
}

std::optional<Flags> parse_flags(int argc, char** argv) {
  Flags flags;
  std::string begin;
  std::string end;
  std::string increment;
  const po::options_description visible = describe(flags, begin, end, increment);
  po::options_description all;
  all.add(visible).add_options()("mode", po::value(&flags.mode_name));
  try {
    po::variables_map values;
    po::store(po::command_line_parser(argc, argv)
                  .options(all)
                  .positional(po::positional_options_description().add("mode", 1))
                  .run(),
              values);
    if (values.count("help") != 0) return std::cout << visible << "\n", std::nullopt;
    if (values.count("version") != 0) return std::cout << "kolo-bench " << kolo::version() << "\n", std::nullopt;
    po::notify(values);
    if (flags.mode_name.empty())
      throw BadFlags(
          "give a mode: allreduce, broadcast, allgather, alltoall, reduce_scatter, barrier, step or latency");
    flags.mode = find(kModes, flags.mode_name, "mode");
    flags.begin = parse_size(begin);
    flags.end = parse_size(end);
    if (!increment.empty()) flags.increment = parse_size(increment);
    flags.dtypes = parse_dtypes(values["datatype"].as<std::string>());
    flags.ops = parse_ops(values["op"].as<std::string>());
    for (const std::string& name : split(values["baseline"].as<std::string>())) {
      flags.baselines.push_back(find(kBaselines, name, "baseline"));
    }
    parse_place(values["place"].as<std::string>(), flags);
    flags.model = values.count("shapes") != 0 ? read_shapes(values["shapes"].as<std::string>())
                                              : find_model(values["model"].as<std::string>());
  } catch (const BadFlags&) {
    throw;
  } catch (const po::error& error) {
    throw BadFlags(error.what());
  } catch (const std::invalid_argument& error) {
    throw BadFlags(error.what());
  }
  check_ranges(flags);
  return flags;
}

}  // namespace kolo_bench
