// SPDX-License-Identifier: Apache-2.0
//
// A folder for files of a test.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include <unistd.h>

namespace kolo::testing {

/// Of this process, for `what`; gone with everything in it at the end. It lies in memory where there is such a place: a
/// checkpoint waits for the disk several times.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& what)
      : path_((std::filesystem::exists("/dev/shm") ? "/dev/shm/" : ::testing::TempDir()) + "kolo-tests-" + what + "-" +
              std::to_string(::getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string path(const std::string& name) const { return path_ + '/' + name; }

 private:
  std::string path_;
};

}  // namespace kolo::testing
