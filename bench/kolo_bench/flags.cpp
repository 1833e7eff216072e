// SPDX-License-Identifier: Apache-2.0
#include "flags.hpp"

#include <algorithm>
#include <cctype>
#include <iostream>
#include <numeric>
#include <sstream>
#include <utility>

#include <boost/program_options.hpp>

#include <kolo/info.hpp>

#include "sizes.hpp"

namespace kolo_bench {
namespace {

namespace po = boost::program_options;

constexpr std::pair<const char*, Mode> kModes[] = {
    {"allreduce", Mode::allreduce}, {"reduce", Mode::reduce},
    {"broadcast", Mode::broadcast}, {"allgather", Mode::allgather},
    {"gather", Mode::gather},       {"scatter", Mode::scatter},
    {"alltoall", Mode::alltoall},   {"reduce_scatter", Mode::reduce_scatter},
    {"barrier", Mode::barrier},     {"sendrecv", Mode::sendrecv},
    {"pingpong", Mode::pingpong},   {"join", Mode::join},
    {"step", Mode::step},           {"overlap", Mode::overlap},
    {"latency", Mode::latency},     {"memory", Mode::memory}};
constexpr std::pair<const char*, Baseline> kBaselines[] = {
    {"mpi", Baseline::mpi},   {"mpi-per-tensor", Baseline::mpi_per_tensor},   {"mpi-packed", Baseline::mpi_packed},
    {"nccl", Baseline::nccl}, {"nccl-per-tensor", Baseline::nccl_per_tensor}, {"nccl-grouped", Baseline::nccl_grouped}};
constexpr std::pair<const char*, Submission> kSubmissions[] = {{"by-name", Submission::by_name},
                                                               {"unnamed", Submission::unnamed},
                                                               {"prepared", Submission::prepared},
                                                               {"grouped", Submission::grouped}};

constexpr const char* kUsage =
    R"(kolo-bench MODE [flags]: measures Kolo's collectives, and their peers in the same job.

  mpirun -np 4 kolo-bench allreduce -b 4 -e 256M -f 4 --baseline mpi --json out.json
  mpirun -np 4 kolo-bench step --model resnet50 --baseline mpi-per-tensor,mpi-packed
  mpirun -np 4 kolo-bench allreduce --device cuda --baseline nccl

Modes: allreduce, reduce, broadcast, allgather, gather, scatter, alltoall, reduce_scatter, barrier
                 one collective, size by size
       sendrecv  every rank sends to the next one and receives from the one before, all at once
       pingpong  ranks 2i and 2i+1 send a message to and fro: a time is there and back
       join      all ranks join, and come back
       step      all gradients of a model, submitted in backward order, all handles open at once
       overlap   the same while the backward pass computes: what of the communication is hidden
       latency   one small allreduce at a time, asynchronously, on an engine that was idle
       memory    what a rank's resident memory grows by when it joins and runs such steps

Sizes are bytes with binary suffixes, of the whole result (allgather, gather, scatter: of everybody's parts together;
alltoall and reduce_scatter: of what one rank gives). A time is the median of the slowest rank's, p10 and p90 are
percentiles; algbw = bytes / time, busbw = algbw x 2(n-1)/n for allreduce, 1 for reduce, broadcast and messages,
(n-1)/n for the others; GB = 1e9 bytes. Of a reduce, gather or scatter below 1 KiB every call has the next rank as its
root, because ranks that are never the root would run ahead; from there on all have the same. Peers take turns with
Kolo, sample by sample; a ratio is the peer's median over Kolo's (above 1, Kolo is faster), and beside it stand the 10th
and the 90th percentile of the ratios of neighbouring samples. #wrong counts elements that differ from the exact result,
on all ranks, into poisoned memory.

Exit codes: 0 done, 1 something was wrong or failed, 2 wrong flags, 130 interrupted (what was measured is told).

Flags)";

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

template <class Value, std::size_t N>
std::string names_of(const std::pair<const char*, Value> (&table)[N]) {
  std::string known;
  for (const auto& [spelling, value] : table) known += (known.empty() ? "" : ", ") + std::string(spelling);
  return known;
}

template <class Value, std::size_t N>
Value find(const std::pair<const char*, Value> (&table)[N], const std::string& name, const std::string& what) {
  for (const auto& [spelling, value] : table) {
    if (name == spelling) return value;
  }
  throw BadFlags("there is no " + what + " '" + name + "'; give one of " + names_of(table));
}

template <class Value, std::size_t N>
std::string name_of(const std::pair<const char*, Value> (&table)[N], Value wanted) {
  return std::find_if(std::begin(table), std::end(table), [&](const auto& row) { return row.second == wanted; })->first;
}

template <class Value, std::size_t N>
std::vector<Value> find_all(const std::pair<const char*, Value> (&table)[N], const std::string& list,
                            const std::string& what) {
  std::vector<Value> found;
  for (const std::string& name : split(list)) {
    found.push_back(find(table, name, what));
    if (std::count(found.begin(), found.end(), found.back()) > 1) throw BadFlags(name + " stands there twice");
  }
  return found;
}

std::vector<kolo::DType> parse_dtypes(const std::string& list) {
  std::vector<kolo::DType> dtypes;
  if (list == "all") {
    for (int i = 0; i < kolo::kDTypeCount; ++i) dtypes.push_back(static_cast<kolo::DType>(i));
    return dtypes;
  }
  for (const std::string& name : split(list)) {
    const std::optional<kolo::DType> dtype = kolo::parse_dtype(name);
    if (!dtype) {
      throw BadFlags("there is no dtype '" + name +
                     "'; give float32, float16, bfloat16, float64, int8 ... uint64, bool, or all");
    }
    dtypes.push_back(*dtype);
  }
  return dtypes;
}

std::vector<kolo::ReduceOp> parse_ops(const std::string& list) {
  using kolo::ReduceOp;
  if (list == "all") return {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max, ReduceOp::average};
  std::vector<ReduceOp> ops;
  for (const std::string& name : split(list)) {
    const std::optional<ReduceOp> op = kolo::parse_reduce_op(name);
    if (!op)
      throw BadFlags("there is no operation '" + name +
                     "'; give sum, average, min, max, product, bit_and, bit_or, bit_xor, or all");
    ops.push_back(*op);
  }
  return ops;
}

/// What is given as text and turned into values afterwards.
struct Texts {
  std::string begin, end, increment, dtypes, ops, place, baselines, model, shapes, submissions, turn, device;
};

po::options_description describe(Flags& flags, Texts& texts) {
  po::options_description description(kUsage);
  auto add = description.add_options();
  add("help,h", "this text")("version", "the library's version");
  add("minbytes,b", po::value(&texts.begin)->default_value("4"), "the first size");
  add("maxbytes,e", po::value(&texts.end)->default_value("64M"), "the last size");
  add("stepfactor,f", po::value(&flags.factor)->default_value(4), "from size to size, as a factor");
  add("stepbytes,i", po::value(&texts.increment), "from size to size, in bytes (instead of -f)");
  add("iters,n", po::value(&flags.iterations)->default_value(20), "samples a row, at least");
  add("warmup_iters,w", po::value(&flags.warmup)->default_value(5), "calls before the first sample");
  add("check,c", po::value(&flags.check)->default_value(true), "compare results with the exact ones");
  add("datatype,d", po::value(&texts.dtypes)->default_value("float32"), "dtypes, separated by commas, or all");
  add("op,o", po::value(&texts.ops), "operations, separated by commas, or all (sum; a step: average)");
  add("root,r", po::value(&flags.root)->default_value(0),
      "of what has one (of a small reduce, gather or scatter the first)");
  add("split", po::value(&flags.split)->default_value(0),
      "a collective in groups of so many neighbours, all at once (a peer in communicators); 0: in all ranks");
  add("place", po::value(&texts.place)->default_value("both"), "in, out or both: in place or into another buffer");
  add("seconds,t", po::value(&flags.seconds)->default_value(1.0),
      "a row goes on sampling until its median is stable, at most so long");
  add("baseline", po::value(&texts.baselines)->default_value(""),
      "peers, separated by commas: mpi; for step and overlap mpi-per-tensor, mpi-packed; on a GPU nccl, for step "
      "nccl-per-tensor, nccl-grouped");
  add("device", po::value(&texts.device)->default_value("cpu"),
      "cpu or cuda: where buffers lie; on cuda times are taken by the device's events");
  add("peer-only", po::bool_switch(&flags.peer_only), "only the peer, with MPI at MPI_THREAD_SINGLE and without Kolo");
  add("model", po::value(&texts.model)->default_value("resnet50"),
      "the gradients of resnet50, bert-base, gpt2-small or many-small (1000 of 1 KiB)");
  add("shapes", po::value(&texts.shapes), "a file instead, one tensor a line, dimensions separated by spaces");
  add("list", "print the elements of these tensors, one a line, and end");
  add("submit", po::value(&texts.submissions)->default_value("by-name"),
      "step: by-name, unnamed, prepared, grouped, or several separated by commas, in turns");
  add("arena", po::bool_switch(&flags.arena), "buffers lie in a GradientArena (allreduce, step, overlap)");
  add("compute-ms", po::value(&flags.compute_ms)->default_value(0),
      "overlap: how long the backward pass computes (0: as long as the reduction alone takes)");
  add("timeline", po::bool_switch(&flags.timeline),
      "overlap: the record of --json also has one step, gradient by gradient");
  add("turn", po::value(&texts.turn),
      "I/N:FOLDER: this is job I of N that measure in turns through FOLDER (see bench/README.md)");
  add("json", po::value(&flags.json), "write the records there, too");
  return description;
}

bool measures_model(Mode mode) { return mode == Mode::step || mode == Mode::overlap || mode == Mode::memory; }

void check_cuda(const Flags& flags) {
  if (flags.mode == Mode::overlap || flags.mode == Mode::latency || flags.mode == Mode::memory ||
      flags.mode == Mode::join) {
    throw BadFlags("--device cuda is for the collectives and step");
  }
  if (flags.peer_only) throw BadFlags("--peer-only is not for --device cuda: Kolo says which device is whose");
}

void check_baselines(const Flags& flags) {
  for (const Baseline baseline : flags.baselines) {
    if (flags.mode == Mode::latency || flags.mode == Mode::memory || flags.mode == Mode::join) {
      throw BadFlags(flags.mode_name + " has no baseline: leave --baseline out");
    }
    if (is_nccl(baseline) != flags.cuda) {
      throw BadFlags(flags.cuda ? "the baselines of --device cuda are NCCL's: nccl, nccl-per-tensor, nccl-grouped"
                                : to_string(baseline) + " needs --device cuda");
    }
    if (flags.cuda) {
      if ((baseline == Baseline::nccl) == (flags.mode == Mode::step)) {
        throw BadFlags(flags.mode == Mode::step ? "step on a GPU has the baselines nccl-per-tensor and nccl-grouped"
                                                : flags.mode_name + " on a GPU has the baseline nccl");
      }
      if (flags.mode == Mode::barrier) throw BadFlags("NCCL has no barrier: leave --baseline out");
      continue;
    }
    if ((baseline == Baseline::mpi) == measures_model(flags.mode)) {
      throw BadFlags(measures_model(flags.mode) ? flags.mode_name + " has the baselines mpi-per-tensor and mpi-packed"
                                                : flags.mode_name + " has the baseline mpi");
    }
    if (flags.mode == Mode::overlap && baseline == Baseline::mpi_packed) {
      throw BadFlags("overlap has the baseline mpi-per-tensor: what is packed waits for the last gradient");
    }
  }
  if (flags.peer_only && flags.baselines.empty()) throw BadFlags("--peer-only needs a --baseline: the peer to run");
  if (flags.peer_only && flags.mode == Mode::overlap) throw BadFlags("--peer-only is for collectives and step");
}

void check_ranges(const Flags& flags) {
  if (flags.begin < 1 || flags.end < flags.begin) throw BadFlags("-b is at least 1 and -e not less than -b");
  if (flags.factor < 2) throw BadFlags("-f is at least 2 (use -i for steps in bytes)");
  if (flags.increment && *flags.increment < 1) throw BadFlags("-i is at least 1 byte");
  if (flags.iterations < 1 || flags.warmup < 0) throw BadFlags("-n is at least 1 and -w not negative");
  if (!(flags.seconds > 0)) throw BadFlags("-t is more than 0 seconds");
  if (!(flags.compute_ms >= 0)) throw BadFlags("--compute-ms is not negative");
  if (flags.dtypes.empty() || flags.ops.empty()) throw BadFlags("-d and -o name at least one each");
  if (flags.submissions.empty()) throw BadFlags("--submit is one or more of " + names_of(kSubmissions));
  if (measures_model(flags.mode)) {
    const bool good = std::all_of(flags.ops.begin(), flags.ops.end(), [](kolo::ReduceOp op) {
      return op == kolo::ReduceOp::sum || op == kolo::ReduceOp::average;
    });
    if (!good || flags.ops.size() != 1) throw BadFlags("-o of " + flags.mode_name + " is sum or average");
  }
  if (flags.arena && flags.mode != Mode::allreduce && flags.mode != Mode::step && flags.mode != Mode::overlap) {
    throw BadFlags("--arena is for allreduce, step and overlap");
  }
  if (flags.timeline && flags.mode != Mode::overlap) throw BadFlags("--timeline is for overlap");
  if (flags.timeline && flags.json.empty()) throw BadFlags("--timeline needs --json: the times go into the record");
  if (flags.arena && flags.peer_only) throw BadFlags("--arena is Kolo's: leave out --peer-only");
  if (flags.split != 0 &&
      (flags.split < 0 || flags.arena || flags.cuda || measures_model(flags.mode) || flags.mode == Mode::latency)) {
    throw BadFlags("--split is a number of ranks, for a collective in the host's memory, without --arena");
  }
  if (flags.cuda) check_cuda(flags);
  check_baselines(flags);
}

void parse_place(const std::string& place, Flags& flags) {
  if (place != "in" && place != "out" && place != "both")
    throw BadFlags("--place is in, out or both, not '" + place + "'");
  flags.in_place = place != "out";
  flags.out_of_place = place != "in";
}

void convert(const Texts& texts, Flags& flags) {
  if (flags.mode_name.empty()) throw BadFlags("give a mode: one of " + names_of(kModes));
  flags.mode = find(kModes, flags.mode_name, "mode");
  flags.begin = parse_size(texts.begin);
  flags.end = parse_size(texts.end);
  if (!texts.increment.empty()) flags.increment = parse_size(texts.increment);
  if (texts.device != "cpu" && texts.device != "cuda") {
    throw BadFlags("--device is cpu or cuda, not '" + texts.device + "'");
  }
  flags.cuda = texts.device == "cuda";
  flags.dtypes = parse_dtypes(texts.dtypes);
  if (flags.cuda && texts.dtypes == "all") {  // those that NCCL reduces
    const auto last = std::remove_if(flags.dtypes.begin(), flags.dtypes.end(), [](kolo::DType dtype) {
      return dtype == kolo::DType::int16 || dtype == kolo::DType::uint16;
    });
    flags.dtypes.erase(last, flags.dtypes.end());
  }
  const char* usual = measures_model(flags.mode) ? "average" : "sum";
  flags.ops = parse_ops(texts.ops.empty() ? usual : texts.ops);
  flags.baselines = find_all(kBaselines, texts.baselines, "baseline");
  flags.submissions = find_all(kSubmissions, texts.submissions, "--submit");
  parse_place(texts.place, flags);
  flags.model = texts.shapes.empty() ? find_model(texts.model) : read_shapes(texts.shapes);
  if (!texts.turn.empty()) flags.turn = parse_turn(texts.turn);
}

void print_tensors(const Model& model) {
  for (const std::int64_t elements : model.tensors) std::cout << elements << "\n";
}

/// How many letters must be changed, put in or left out to make one word of the other.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

/// The flag that was probably meant, as it is written; empty where none is alike.
std::string nearest(const std::string& name, const po::options_description& known) {
  std::string best;
  std::size_t least = std::max<std::size_t>(name.size() / 3, 1) + 1;
  for (const auto& option : known.options()) {
    const std::string& spelling = option->long_name();
    const bool begins = name.size() >= 3 && spelling.rfind(name, 0) == 0;
    const std::size_t off = begins ? 0 : distance(name, spelling);
    if (off >= least) continue;
    least = off;
    best = "--" + spelling;
  }
  return best;
}

/// What program_options says of a wrong flag, and what would be right.
[[noreturn]] void refuse(const po::error& error, const po::options_description& known) {
  std::string advice;
  if (const auto* flag = dynamic_cast<const po::error_with_option_name*>(&error)) {
    std::string name = flag->get_option_name();
    name.erase(0, name.find_first_not_of('-'));
    if (const po::option_description* option = known.find_nothrow(name, false)) {
      advice = "; " + option->format_name() + ": " + option->description();
    } else if (const std::string meant = nearest(name, known); !meant.empty()) {
      advice = "; did you mean " + meant + "?";
    }
  }
  throw BadFlags(error.what() + advice);
}

}  // namespace

TurnFlags parse_turn(const std::string& text) {
  TurnFlags turn;
  char slash = 0;
  char colon = 0;
  std::istringstream stream(text);
  stream >> turn.index >> slash >> turn.jobs >> colon >> turn.folder;
  if (!stream || slash != '/' || colon != ':' || turn.index < 0 || turn.index >= turn.jobs) {
    throw BadFlags("--turn is I/N:FOLDER with I from 0 to N-1, as in 0/3:/tmp/turns, not '" + text + "'");
  }
  return turn;
}

std::string to_string(Baseline baseline) { return name_of(kBaselines, baseline); }
bool is_nccl(Baseline baseline) { return to_string(baseline).rfind("nccl", 0) == 0; }
std::string to_string(Submission submission) { return name_of(kSubmissions, submission); }

std::optional<Flags> parse_flags(int argc, const char* const* argv) {
  Flags flags;
  Texts texts;
  const po::options_description visible = describe(flags, texts);
  po::options_description all;
  all.add(visible).add_options()("mode", po::value(&flags.mode_name));
  const auto style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  try {
    po::variables_map values;
    po::store(po::command_line_parser(argc, argv)
                  .options(all)
                  .style(style)
                  .positional(po::positional_options_description().add("mode", 1))
                  .run(),
              values);
    if (values.count("help") != 0) return std::cout << visible << "\n", std::nullopt;
    if (values.count("version") != 0) return std::cout << "kolo-bench " << kolo::version() << "\n", std::nullopt;
    po::notify(values);
    convert(texts, flags);
    if (values.count("list") != 0) return print_tensors(flags.model), std::nullopt;
  } catch (const BadFlags&) {
    throw;
  } catch (const po::error& error) {
    refuse(error, visible);
  } catch (const std::invalid_argument& error) {
    throw BadFlags(error.what());
  }
  check_ranges(flags);
  return flags;
}

}  // namespace kolo_bench
