// SPDX-License-Identifier: Apache-2.0
//
// How a program of several processes reports: a FAIL line for each check that fails, and at the end one PASS or FAIL
// line a rank. Any failure makes mpirun's status non-zero.
#pragma once

#include <cstdint>
#include <cstdlib>
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
