// SPDX-License-Identifier: Apache-2.0
//
// Which MPI is chosen (mpi/library/opening.hpp), in processes that are made up.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "mpi/library/opening.hpp"

namespace kolo::mpi {
namespace {

using Variables = std::map<std::string, std::string>;

const Variables kMpirun{{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}};
const Variables kHydra{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"HYDI_CONTROL_FD", "7"}};
const Variables kSlurm{{"SLURM_PROCID", "0"}, {"PMIX_RANK", "0"}};

class MpiOpening : public ::testing::Test {
 protected:
  /// Makes a file that can be opened; null: of no ABI that is known.
  Loaded install(const std::string& file, const Abi* abi, bool is_initialized = false) {
    files_.push_back(std::make_unique<Loaded>());
    *files_.back() = {files_.back().get(), file, abi, is_initialized};
    return *files_.back();
  }
  void load(const Loaded& mpi) { loaded_.push_back(mpi); }

  Loaded chosen(const Variables& variables, const Abi* communicators = nullptr) {
    const Linker linker{[this] { return loaded_; },
                        [this](const char* file) {
                          for (const auto& one : files_) {
                            if (one->file == file) return *one;
                          }
                          return Loaded{nullptr, std::string(file) + ": not there", nullptr, false};
                        }};
    return choose(
        linker,
        [&](const char* name) {
          const auto found = variables.find(name);
          return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
        },
        communicators);
  }
  std::string file_for(const Variables& variables, const Abi* communicators = nullptr) {
    return chosen(variables, communicators).file;
  }
  std::string told(const Variables& variables, const Abi* communicators = nullptr) {
    try {
      return "chosen: " + file_for(variables, communicators);
    } catch (const Error& error) {
      return std::string(to_string(error.code())) + ": " + error.status().message();
    }
  }

 private:
  std::vector<std::unique_ptr<Loaded>> files_;
  std::vector<Loaded> loaded_;
};

TEST_F(MpiOpening, TheLauncherSaysWhich) {
  install("libmpi.so.40", &openmpi::abi);
  install("libmpich.so.12", &mpich::abi);
  install("libmpi_abi.so.1", &standard::abi);
  EXPECT_EQ(file_for(kMpirun), "libmpi.so.40");
  EXPECT_EQ(file_for(kHydra), "libmpich.so.12");
  EXPECT_EQ(file_for({{"MV2_COMM_WORLD_SIZE", "2"}}), "libmpich.so.12");
  EXPECT_EQ(file_for({{"PMI_RANK", "0"}}), "libmpich.so.12");
  install("libmpi.so.12", &mpich::abi);
  EXPECT_EQ(file_for(kHydra), "libmpi.so.12");
  Variables in_slurm = kSlurm;  // both launchers run inside a job of Slurm's
  in_slurm.insert(kHydra.begin(), kHydra.end());
  EXPECT_EQ(file_for(in_slurm), "libmpi.so.12");
  in_slurm.insert(kMpirun.begin(), kMpirun.end());
  EXPECT_EQ(file_for(in_slurm), "libmpi.so.40");
}

TEST_F(MpiOpening, TheStandardsAbiIsTakenWhereTheLaunchersOwnIsNotThere) {
  install("libmpi_abi.so.1", &standard::abi);
  for (const Variables& variables : {kMpirun, kHydra, kSlurm}) {
    EXPECT_EQ(chosen(variables).abi, &standard::abi);
  }
}

TEST_F(MpiOpening, ALauncherOfAnyMpiNeedsTheSettingOnlyWhereSeveralAreInstalled) {
  install("libmpich.so.12", &mpich::abi);
  EXPECT_EQ(file_for(kSlurm), "libmpich.so.12");
  install("libmpi.so.40", &openmpi::abi);
  EXPECT_EQ(told(kSlurm),
            "invalid_setting: the launcher of this process starts programs of any MPI, and there are several "
            "(libmpi.so.40, Open MPI; libmpich.so.12, MPICH): say by KOLO_MPI which of these files it is");
  EXPECT_EQ(told({{"PMI_RANK", "0"}, {"SLURM_PROCID", "0"}}), told(kSlurm)) << "Slurm's pmi2";
  Variables with_setting = kSlurm;
  with_setting["KOLO_MPI"] = "libmpich.so.12";
  EXPECT_EQ(file_for(with_setting), "libmpich.so.12");
}

TEST_F(MpiOpening, NoneCanBeOpened) {
  EXPECT_EQ(told(kMpirun),
            "transport: a launcher of MPI has started this process, but no MPI can be opened (libmpi.so.40: not there; "
            "libmpi_abi.so.1: not there): install the launcher's MPI (Debian: libopenmpi3 or libmpich12), say by "
            "KOLO_MPI which file it is, or start without MPI, by kolo-run, torchrun or srun --mpi=none");
  Variables with_setting = kMpirun;
  with_setting["KOLO_MPI"] = "/opt/libmpi.so";
  EXPECT_EQ(told(with_setting),
            "invalid_setting: KOLO_MPI is \"/opt/libmpi.so\", which cannot be opened: /opt/libmpi.so: not there");
}

TEST_F(MpiOpening, WhatIsLoadedGoesFirst) {
  install("libmpi.so.40", &openmpi::abi);
  const Loaded mpich = install("/opt/libmpi.so.12", &mpich::abi);
  load(mpich);
  EXPECT_EQ(file_for(kMpirun), "/opt/libmpi.so.12");
  EXPECT_EQ(file_for({{"KOLO_MPI", "/opt/libmpi.so.12"}}), "/opt/libmpi.so.12");
  EXPECT_EQ(
      told({{"KOLO_MPI", "libmpi.so.40"}}),
      "invalid_setting: KOLO_MPI is \"libmpi.so.40\", but this process has loaded another MPI "
      "(/opt/libmpi.so.12, MPICH), and a process can have one: unset KOLO_MPI, or start the program with that MPI");
}

TEST_F(MpiOpening, OfSeveralThatAreLoadedTheInitialisedOneThenTheLaunchers) {
  load(install("/a/libmpi.so.40", &openmpi::abi));
  load(install("/b/libmpi.so.12", &mpich::abi));
  EXPECT_EQ(file_for(kHydra), "/b/libmpi.so.12");
  EXPECT_EQ(told(kSlurm),
            "invalid_setting: the launcher of this process starts programs of any MPI, and there are several "
            "(/a/libmpi.so.40, Open MPI; /b/libmpi.so.12, MPICH): say by KOLO_MPI which of these files it is");
  load(install("/c/libmpi_abi.so.1", &standard::abi, true));
  EXPECT_EQ(file_for(kHydra), "/c/libmpi_abi.so.1");
  EXPECT_EQ(file_for(kHydra, &openmpi::abi), "/a/libmpi.so.40") << "a communicator says which";
}

TEST_F(MpiOpening, AnAbiThatNobodyKnows) {
  load(install("/opt/hpc/libmpi.so", nullptr));
  EXPECT_EQ(told(kMpirun), "transport: /opt/hpc/libmpi.so is no MPI that Kolo can call: it has neither the ABI of Open "
                           "MPI 3 or newer, nor MPICH's, nor that of the MPI standard (5.0)");
  load(install("libmpi.so.40", &openmpi::abi));
  EXPECT_EQ(file_for(kMpirun), "libmpi.so.40");
}

TEST_F(MpiOpening, ACommunicatorOfAnMpiThatIsNotToBeSeen) {
  EXPECT_EQ(told(kMpirun, &openmpi::abi),
            "transport: a communicator was given, but this process has loaded no MPI that Kolo can see (a program that "
            "links MPI statically must be linked with -rdynamic)");
}

}  // namespace
}  // namespace kolo::mpi
