// SPDX-License-Identifier: Apache-2.0
#include "bench/kolo_bench/flags.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "bench/kolo_bench/sizes.hpp"

namespace kolo_bench {
namespace {

Flags parse(std::vector<const char*> words) {
  words.insert(words.begin(), "kolo-bench");
  const std::optional<Flags> flags = parse_flags(static_cast<int>(words.size()), words.data());
  if (!flags) throw std::logic_error("nothing to do");
  return *flags;
}

std::string complaint(std::vector<const char*> words) {
  try {
    (void)parse(std::move(words));
  } catch (const BadFlags& bad) {
    return bad.what();
  }
  return "";
}

TEST(Sizes, BinarySuffixes) {
  EXPECT_EQ(parse_size("4"), 4);
  EXPECT_EQ(parse_size("48K"), 49152);
  EXPECT_EQ(parse_size("3m"), 3 << 20);
  EXPECT_EQ(parse_size("2G"), std::int64_t{2} << 30);
  EXPECT_EQ(parse_size("1T"), std::int64_t{1} << 40);
  EXPECT_EQ(format_size(49152), "48K");
  EXPECT_EQ(format_size(49153), "49153");
  EXPECT_EQ(format_size(0), "0");
  for (const char* bad : {"", "K", "4KB", "1.5M", "-4", "4X", "9999999999999999999", "999999999999T"}) {
    EXPECT_THROW((void)parse_size(bad), std::invalid_argument) << bad;
  }
}

TEST(Flags, AsInNcclTests) {
  const Flags flags = parse({"allreduce", "-b", "48K", "-e", "3M", "-f", "8", "-n", "7", "-w", "2", "-c", "0", "-d",
                             "float32,int8", "-o", "sum,max", "-r", "3"});
  EXPECT_EQ(flags.mode, Mode::allreduce);
  EXPECT_EQ(flags.begin, 49152);
  EXPECT_EQ(flags.end, 3 << 20);
  EXPECT_EQ(flags.factor, 8);
  EXPECT_FALSE(flags.increment);
  EXPECT_EQ(flags.iterations, 7);
  EXPECT_EQ(flags.warmup, 2);
  EXPECT_FALSE(flags.check);
  EXPECT_EQ(flags.dtypes, (std::vector<kolo::DType>{kolo::DType::float32, kolo::DType::int8}));
  EXPECT_EQ(flags.ops, (std::vector<kolo::ReduceOp>{kolo::ReduceOp::sum, kolo::ReduceOp::max}));
  EXPECT_EQ(flags.root, 3);
  EXPECT_TRUE(flags.in_place && flags.out_of_place);
  EXPECT_EQ(parse({"broadcast", "-i", "1K"}).increment, 1024);
  EXPECT_EQ(parse({"allgather", "-d", "all"}).dtypes.size(), static_cast<std::size_t>(kolo::kDTypeCount));
  EXPECT_EQ(parse({"allreduce", "-o", "all"}).ops.size(), 5U);
  EXPECT_FALSE(parse({"allreduce", "--place", "in"}).out_of_place);
  EXPECT_EQ(parse({"allreduce"}).split, 0);
  EXPECT_EQ(parse({"allreduce", "--split", "2"}).split, 2);
}

TEST(Flags, OfSteps) {
  const Flags flags = parse({"step", "--model", "many-small", "--baseline", "mpi-per-tensor,mpi-packed", "--submit",
                             "grouped,by-name,unnamed"});
  EXPECT_EQ(flags.model.tensors, std::vector<std::int64_t>(1000, 256));
  EXPECT_EQ(flags.baselines, (std::vector<Baseline>{Baseline::mpi_per_tensor, Baseline::mpi_packed}));
  EXPECT_EQ(flags.submissions,
            (std::vector<Submission>{Submission::grouped, Submission::by_name, Submission::unnamed}));
  EXPECT_EQ(flags.ops, std::vector<kolo::ReduceOp>{kolo::ReduceOp::average});
  EXPECT_EQ(parse({"step", "-o", "sum"}).ops, std::vector<kolo::ReduceOp>{kolo::ReduceOp::sum});
  const Flags turn = parse({"step", "--turn", "1/3:/tmp/turns"});
  EXPECT_EQ(turn.turn.index, 1);
  EXPECT_EQ(turn.turn.jobs, 3);
  EXPECT_EQ(turn.turn.folder, "/tmp/turns");
}

TEST(Flags, OnAGpu) {
  const Flags flags = parse({"allreduce", "--device", "cuda", "--baseline", "nccl", "-d", "all"});
  EXPECT_TRUE(flags.cuda);
  EXPECT_EQ(flags.baselines, std::vector<Baseline>{Baseline::nccl});
  EXPECT_EQ(flags.dtypes.size(), static_cast<std::size_t>(kolo::kDTypeCount) - 2) << "NCCL has no 16-bit integers";
  EXPECT_FALSE(parse({"allreduce", "--device", "cpu"}).cuda);
}

TEST(Flags, WrongOnesSayWhatWouldBeRight) {
  const struct {
    std::vector<const char*> words;
    const char* advice;
  } cases[] = {
      {{}, "allreduce, reduce, broadcast"},
      {{"alreduce"}, "allreduce, reduce, broadcast"},
      {{"allreduce", "-b", "3X"}, "48K"},
      {{"allreduce", "-b", "4", "-e", "2"}, "not less than -b"},
      {{"allreduce", "-f", "1"}, "-i"},
      {{"allreduce", "-n", "many"}, "samples a row"},
      {{"allreduce", "-d", "float31"}, "float32"},
      {{"allreduce", "-o", "mean"}, "average"},
      {{"allreduce", "--place", "above"}, "in, out or both"},
      {{"allreduce", "--split", "-2"}, "--split is a number of ranks"},
      {{"step", "--split", "2"}, "--split is a number of ranks, for a collective"},
      {{"allreduce", "--iter", "4"}, "did you mean --iters?"},
      {{"allreduce", "--jsn", "x"}, "did you mean --json?"},
      {{"allreduce", "--baseline", "gloo"}, "mpi-per-tensor"},
      {{"allreduce", "--baseline", "mpi-packed"}, "has the baseline mpi"},
      {{"allreduce", "--baseline", "mpi,mpi"}, "twice"},
      {{"allreduce", "--peer-only"}, "--baseline"},
      {{"allgather", "--arena"}, "for allreduce"},
      {{"step", "--arena", "--peer-only", "--baseline", "mpi-packed"}, "leave out --peer-only"},
      {{"step", "--baseline", "mpi"}, "mpi-per-tensor"},
      {{"step", "--model", "vgg"}, "resnet50"},
      {{"step", "--submit", "shouting"}, "by-name"},
      {{"step", "-o", "max"}, "average"},
      {{"step", "--turn", "3/3:/tmp"}, "0/3:"},
      {{"overlap", "--baseline", "mpi-packed"}, "mpi-per-tensor"},
      {{"step", "--timeline", "--json", "x"}, "--timeline is for overlap"},
      {{"overlap", "--timeline"}, "--timeline needs --json: the times go into the record"},
      {{"latency", "--baseline", "mpi"}, "leave"},
      {{"join", "--baseline", "mpi"}, "join has no baseline: leave --baseline out"},
      {{"allreduce", "--device", "gpu"}, "cpu or cuda"},
      {{"allreduce", "--baseline", "nccl"}, "needs --device cuda"},
      {{"allreduce", "--device", "cuda", "--baseline", "mpi"}, "nccl, nccl-per-tensor"},
      {{"allreduce", "--device", "cuda", "--baseline", "nccl-grouped"}, "has the baseline nccl"},
      {{"step", "--device", "cuda", "--baseline", "nccl"}, "nccl-per-tensor and nccl-grouped"},
      {{"barrier", "--device", "cuda", "--baseline", "nccl"}, "no barrier"},
      {{"overlap", "--device", "cuda"}, "collectives and step"},
      {{"join", "--device", "cuda"}, "collectives and step"},
      {{"broadcast", "--device", "cuda", "--arena"}, "for allreduce"},
      {{"allreduce", "--device", "cuda", "--baseline", "nccl", "--peer-only"}, "--peer-only"},
  };
  for (const auto& wrong : cases) {
    EXPECT_NE(complaint(wrong.words).find(wrong.advice), std::string::npos)
        << complaint(wrong.words) << " does not say " << wrong.advice;
  }
}

TEST(Flags, AnUnknownOneIsNoReasonToListThemAll) {
  EXPECT_EQ(complaint({"allreduce", "--nonsense"}), "unrecognised option '--nonsense'");
}

TEST(Models, AreThoseOfThePapers) {
  const struct {
    const char* name;
    std::size_t tensors;
    std::int64_t elements;
  } models[] = {
      {"resnet50", 161, 25'557'032},
      {"bert-base", 199, 109'482'240},
      {"gpt2-small", 148, 124'439'808},
      {"many-small", 1000, 256'000},
  };
  for (const auto& wanted : models) {
    std::int64_t elements = 0;
    const Model model = find_model(wanted.name);
    for (const std::int64_t tensor : model.tensors) elements += tensor;
    EXPECT_EQ(model.tensors.size(), wanted.tensors) << wanted.name;
    EXPECT_EQ(elements, wanted.elements) << wanted.name;
  }
}

TEST(Models, FromAFileOfShapes) {
  const std::string file = testing::TempDir() + "shapes";
  std::ofstream(file) << "# convolution\n64 3 7 7\n\n64\n1000 64\n";
  EXPECT_EQ(read_shapes(file).tensors, (std::vector<std::int64_t>{64 * 147, 64, 64000}));
  for (const char* bad : {"64 x\n", "64 0\n", "# nothing\n"}) {
    std::ofstream(file) << bad;
    EXPECT_THROW((void)read_shapes(file), std::invalid_argument) << bad;
  }
  EXPECT_EQ(std::remove(file.c_str()), 0);
  EXPECT_THROW((void)read_shapes(file), std::invalid_argument);
}

}  // namespace
}  // namespace kolo_bench
