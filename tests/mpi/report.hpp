// SPDX-License-Identifier: Apache-2.0
//
// How a program of several processes reports: a FAIL line for each check that fails, and at the end one PASS or FAIL
// line a rank. Any failure makes mpirun's status non-zero.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>

#include <kolo/error.hpp>

namespace kolo::testing {

/// One thread at a time.
class Report {
 public:
  explicit Report(std::string program) : program_(std::move(program)) {}
  void set_place(int rank, int size) { place_ = " rank " + std::to_string(rank) + " of " + std::to_string(size); }

  void check(bool ok, const std::string& what) {
    ++checks_;
    if (ok) return;
    ++failures_;
    print("FAIL " + program_ + place_ + ": " + what);
  }
  template <class A, class B>
  void equal(const A& is, const B& should, const std::string& what) {
    std::ostringstream text;
    text << what << " is " << is << ", not " << should;
    check(is == should, text.str());
  }
  /// Expects an Error of this code whose text has this part.
  void throws(ErrorCode code, const std::string& part, const std::function<void()>& call) {
    try {
      call();
      check(false, "no error '" + part + "'");
    } catch (const Error& error) {
      check(error.code() == code && std::string(error.what()).find(part) != std::string::npos,
            "instead of '" + part + "': " + error.what());
    }
  }
  [[nodiscard]] bool is_good() const noexcept { return failures_ == 0; }
  /// The last line and the exit status.
  [[nodiscard]] int finish() const {
    print((failures_ == 0 ? "PASS " : "FAIL ") + program_ + place_ + ": " + std::to_string(checks_) + " checks, " +
          std::to_string(failures_) + " failed");
    return failures_ == 0 && checks_ > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }

 private:
  /// One write a line, so that ranks do not mix theirs.
  static void print(const std::string& line) { std::cout << line + "\n" << std::flush; }

  std::string program_;
  std::string place_;
  int checks_ = 0;
  int failures_ = 0;
};

/// Runs a rank's part. An exception ends all ranks: the others would wait for this one.
inline int run(Report& report, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    report.check(false, std::string("an exception: ") + error.what());
    static_cast<void>(report.finish());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
  return report.finish();
}

/// Cuts the job into worlds of 8, 4, 3, 2 ranks and one, of those that it is large enough for, and into one of all
/// ranks; worlds of the same size work side by side, and the last has what is left.
inline void for_worlds_within_job(const std::function<void(MPI_Comm world)>& body) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  body(MPI_COMM_WORLD);
  for (const int size : {8, 4, 3, 2, 1}) {
    if (size >= ranks) continue;
    MPI_Comm world = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank / size, rank, &world);
    body(world);
    MPI_Comm_free(&world);
  }
}

/// The same numbers on every rank and machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() % limit); }

 private:
  std::uint64_t state_;
};

}  // namespace kolo::testing
