// SPDX-License-Identifier: Apache-2.0
//
// Which way a process starts, and what is said when the variables do not go together.
#include "launch/start.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>

#include <kolo/error.hpp>

namespace kolo::launch {
namespace {

using Variables = std::map<std::string, std::string>;

base::Lookup lookup(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Variables operator+(Variables all, const Variables& more) {
  all.insert(more.begin(), more.end());
  return all;
}

const Variables kStore = {{"KOLO_STORE", "tcp://10.0.0.1:29500"}, {"KOLO_RANK", "1"}, {"KOLO_SIZE", "4"}};
const Variables kPyTorch = {
    {"RANK", "2"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "gpu1"}, {"MASTER_PORT", "29400"}, {"LOCAL_RANK", "0"}};
const Variables kTorchrun = kPyTorch + Variables{{"TORCHELASTIC_RUN_ID", "7"}, {"TORCHELASTIC_RESTART_COUNT", "1"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},
                          {"SLURM_STEP_NUM_TASKS", "6"},
                          {"SLURM_STEP_NODELIST", "gpu[07-09],login"},
                          {"SLURM_JOB_ID", "12"},
                          {"SLURM_STEP_ID", "0"}};

Start choose(const Variables& variables, bool mpi = false, const Options* options = nullptr, bool alone = false) {
  return choose_start({lookup(variables), options, alone, mpi});
}

std::string sentence(const Variables& variables) {
  try {
    choose(variables);
  } catch (const Error& error) {
    return error.status().message();
  }
  return "no error";
}

TEST(StartChoice, NothingIsAWorldOfOne) {
  const Start start = choose({});
  EXPECT_EQ(start.kind, StartKind::alone);
  EXPECT_EQ(start.reason, "no launcher has started this process");
}

TEST(StartChoice, EachWayHasItsPlaceAndReason) {
  const Start store = choose(kStore);
  EXPECT_EQ(store.kind, StartKind::meeting);
  EXPECT_EQ(store.reason, "KOLO_STORE is set");
  EXPECT_EQ(store.place.rank, 1);
  EXPECT_EQ(store.place.size, 4);
  EXPECT_EQ(store.where->describe(), "tcp://10.0.0.1:29500");
  EXPECT_EQ(store.job, "");

  const Start torchrun = choose(kTorchrun);
  EXPECT_EQ(torchrun.reason, "torchrun has started this process (TORCHELASTIC_RUN_ID)");
  EXPECT_EQ(torchrun.place.rank, 2);
  EXPECT_EQ(torchrun.place.size, 8);
  EXPECT_EQ(torchrun.job, "torchrun's run 7 at port 29400");
  EXPECT_EQ(torchrun.where->state().host, "gpu1");
  EXPECT_EQ(torchrun.where->state().ports, ports_of(torchrun.job));

  const Start pytorch = choose(kPyTorch);
  EXPECT_EQ(pytorch.reason, "RANK and WORLD_SIZE are set");
  EXPECT_EQ(pytorch.job, "PyTorch's at port 29400");

  const Start slurm = choose(kSlurm);
  EXPECT_EQ(slurm.reason, "srun has started this process (SLURM_STEP_NUM_TASKS)");
  EXPECT_EQ(slurm.place.rank, 3);
  EXPECT_EQ(slurm.place.size, 6);
  EXPECT_EQ(slurm.job, "Slurm's step 12.0");
  EXPECT_EQ(slurm.where->state().host, "gpu07");

  EXPECT_EQ(choose({}, true).reason, "a launcher that MPI knows has started this process");
  EXPECT_EQ(choose({}, false, nullptr, true).reason, "KOLO_ALONE is set");
}

TEST(StartChoice, OneOrder) {
  const Options with_store = Options{}.with_store(store::file("/tmp/job"), 0, 2);
  const Variables all = kStore + kTorchrun + kSlurm;
  EXPECT_EQ(choose(all, true, &with_store, true).reason, "the program says so (Options::with_store)");
  EXPECT_EQ(choose(all, true, nullptr, true).reason, "KOLO_ALONE is set");
  EXPECT_EQ(choose(all, true).reason, "KOLO_STORE is set");
  EXPECT_EQ(choose(kTorchrun + kSlurm, true).reason, "torchrun has started this process (TORCHELASTIC_RUN_ID)");
  EXPECT_EQ(choose(kPyTorch + kSlurm, true).kind, StartKind::mpi);
  EXPECT_EQ(choose(kPyTorch + kSlurm).reason, "RANK and WORLD_SIZE are set");
  // A batch script has the job's variables, and is one process.
  EXPECT_EQ(choose({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "6"}, {"SLURM_JOB_NODELIST", "gpu1"}}).kind,
            StartKind::alone);
  EXPECT_EQ(choose({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}).kind, StartKind::alone);
}

TEST(StartChoice, TheOrderIsShownWithTheReasons) {
  EXPECT_EQ(explain_start({lookup(kPyTorch + kSlurm), nullptr, false, true}),
            (std::vector<std::string>{
                "Options::with_store: not there", "KOLO_ALONE: not there", "KOLO_KEEPER (kolo-run --min-np): not there",
                "KOLO_STORE, KOLO_RANK, KOLO_SIZE: not there", "torchrun (TORCHELASTIC_RUN_ID): not there",
                "MPI (variables of mpirun, or of a PMI): taken",
                "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: there, but an earlier one goes first",
                "srun (SLURM_STEP_NUM_TASKS): there, but an earlier one goes first", "a world of one: not needed"}));
  EXPECT_EQ(explain_start({lookup({}), nullptr, false, false}).back(), "a world of one: taken");
}

TEST(StartChoice, WhatIsMissingIsNamed) {
  EXPECT_EQ(sentence({{"KOLO_SIZE", "4"}}),
            "KOLO_SIZE says that the job has 4 ranks, but KOLO_STORE does not say where they meet: set it "
            "(tcp://host:port, or file:///path), or set KOLO_ALONE=1 if each process is to run alone");
  EXPECT_EQ(sentence({{"KOLO_STORE", "file:///tmp/x"}, {"KOLO_SIZE", "4"}}),
            "KOLO_STORE is set, but KOLO_RANK is not: give every process KOLO_RANK, its own number from 0, and "
            "KOLO_SIZE, how many processes there are");
  EXPECT_EQ(sentence({{"KOLO_STORE", "file:///tmp/x"}, {"KOLO_RANK", "4"}, {"KOLO_SIZE", "4"}}),
            "KOLO_RANK is 4, but KOLO_SIZE is 4: ranks are 0 to 3");
  EXPECT_EQ(sentence({{"KOLO_STORE", "file:///tmp/x"}, {"KOLO_RANK", "0"}, {"KOLO_SIZE", "0"}}),
            "KOLO_SIZE is 0: a job has at least one rank");
  EXPECT_EQ(sentence({{"KOLO_STORE", "file:///tmp/x"}, {"KOLO_RANK", "0"}, {"KOLO_SIZE", "2000000000"}}),
            "KOLO_SIZE is 2000000000: a job has at most 1048576 ranks");
  EXPECT_EQ(sentence({{"KOLO_STORE", "file:///tmp/x"}, {"KOLO_RANK", "one"}, {"KOLO_SIZE", "4"}}),
            "KOLO_RANK is \"one\"; expected an integer of at least 0");
  EXPECT_EQ(
      sentence({{"RANK", "0"}, {"WORLD_SIZE", "8"}}),
      "WORLD_SIZE says that the job has 8 ranks, but MASTER_ADDR is not set, so that the ranks cannot meet: set it, as "
      "torchrun does, or set KOLO_ALONE=1 if each process is to run alone");
  EXPECT_EQ(sentence({{"RANK", "0"}, {"WORLD_SIZE", "4x"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}),
            "WORLD_SIZE is \"4x\"; expected an integer of at least 0");
  EXPECT_EQ(sentence({{"RANK", "0"}, {"TORCHELASTIC_RUN_ID", "7"}}),
            "RANK is set, but WORLD_SIZE is not set, so that the ranks cannot meet: set it, as torchrun does, or set "
            "KOLO_ALONE=1 if each process is to run alone");
  EXPECT_EQ(sentence({{"RANK", "9"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}),
            "RANK is 9, but WORLD_SIZE is 8: ranks are 0 to 7");
  EXPECT_EQ(sentence({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_STEP_NODELIST", "gpu["}}),
            "SLURM_STEP_NUM_TASKS says that the step has 6 tasks, but SLURM_STEP_NODELIST (\"gpu[\") does not say on "
            "which hosts: start them by srun, or set KOLO_ALONE=1 if each process is to run alone");
}

/// Each agent counts its own restarts: they differ by node after one that an agent did not begin.
TEST(StartChoice, RestartsOfTorchrunMeetWhereverTheyAreCounted) {
  const Start here = choose(kPyTorch + Variables{{"TORCHELASTIC_RUN_ID", "7"}, {"TORCHELASTIC_RESTART_COUNT", "0"}});
  const Start there = choose(kPyTorch + Variables{{"TORCHELASTIC_RUN_ID", "7"}, {"TORCHELASTIC_RESTART_COUNT", "1"}});
  EXPECT_EQ(here.job, there.job);
  EXPECT_EQ(here.where->state().ports, there.where->state().ports);
}

TEST(StartChoice, PlacesAreSpelledOneWay) {
  const auto place = [](const std::string& text) {
    return choose({{"KOLO_STORE", text}, {"KOLO_RANK", "0"}, {"KOLO_SIZE", "2"}}).where->describe();
  };
  for (const char* text : {"tcp://10.0.0.1:29500", "tcp://[::1]:1", "tcp://host-1.example:65535", "file:///a b"}) {
    EXPECT_EQ(place(text), text);
  }
  for (const std::string text : {"tcp://", "tcp://:1", "tcp://host", "tcp://host:0", "tcp://host:65536", "tcp://::1:5",
                                 "tcp://host:5x", "file://", "file://relative", "10.0.0.1:5", "tcp:"}) {
    EXPECT_EQ(sentence({{"KOLO_STORE", text}, {"KOLO_RANK", "0"}, {"KOLO_SIZE", "2"}}),
              "KOLO_STORE is \"" + text +
                  "\"; expected where ranks meet: tcp://host:port (the port not 0), or file:///path");
  }
}

TEST(StartChoice, PortsOfAJobDifferAndAreNotThoseOfSystems) {
  const std::vector<std::uint16_t> ports = ports_of("a job");
  EXPECT_EQ(std::set<std::uint16_t>(ports.begin(), ports.end()).size(), 8U);
  for (const std::uint16_t port : ports) {
    EXPECT_GE(port, 10000);
    EXPECT_LT(port, 30000);
  }
  EXPECT_EQ(ports_of("a job"), ports);
  EXPECT_NE(ports_of("another"), ports);
}

TEST(NodeList, ItsFirstHost) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("gpu[01-03,7],login"), "gpu01");
  EXPECT_EQ(first_host("gpu[7]"), "gpu7");
  EXPECT_EQ(first_host("rack[1-2]n[0-1,5].site"), "rack1n0.site");
  EXPECT_EQ(first_host("a-b.c"), "a-b.c");
  for (const char* wrong : {"", ",", "gpu[", "gpu[]", "gpu[x]", "gpu[1", "gpu1]", "gpu[1x]"}) {
    EXPECT_EQ(first_host(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace kolo::launch
