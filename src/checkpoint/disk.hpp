// SPDX-License-Identifier: Apache-2.0
//
// Files and folders, opened as base/files.hpp says. All errors are `Error` (io): the path, the call, the system's
// reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "checkpoint/index.hpp"

namespace kolo::checkpoint {

/// Throws `Error` (io): "<path>: <call>: <the system's reason>".
[[noreturn]] void throw_system_error(const std::string& path, const char* call, int cause);

/// A file of a checkpoint.
class File {
 public:
  File() noexcept = default;
  /// A new one, to be written.
  [[nodiscard]] static File create(const std::string& path);
  /// One that is there, to be read: a regular file.
  [[nodiscard]] static File open(const std::string& path);

  [[nodiscard]] bool is_open() const noexcept { return fd_.valid(); }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// When it was opened.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  void write(const void* data, std::size_t bytes) const;
  /// All of the bytes at `offset`, or an error.
  void read_at(std::int64_t offset, void* data, std::size_t bytes) const;
  /// What was written is on the disk when this returns.
  void sync() const;
  /// close(2), whose error some file systems use to tell of a full disk.
  void close();

 private:
  std::string path_;
  base::UniqueFd fd_;
  std::int64_t bytes_ = 0;
};

/// A new file, on the disk when this returns.
void write_file(const std::string& path, std::string_view content);

/// A folder in the making, which becomes `path` at once, or never.
///
/// Beside `path` lie the folder, ".kolo-saving-<random>", and a file ".kolo-saving-<random>.lock" that this process has
/// locked (flock) for as long as it lives. A folder whose lock nobody holds is what a killed process has left. The next
/// one that is made removes it, whatever its own path is. On a file system without locks nothing is removed.
///
/// Of any folder only those files are removed whose names a checkpoint's files have, and then the folder, if it is
/// empty.
class NewFolder {
 public:
  /// Lists the names of the files of a checkpoint in the folder. Throws `Error` if it is none.
  using Lists = std::function<std::vector<std::string>(const std::string& folder)>;

  /// Makes the folder, and those above `path` that are missing. Throws if `path` is there and is neither an empty
  /// folder nor one that holds nothing but what `lists` lists.
  NewFolder(std::string path, Lists lists);
  /// Removes the folder, if it has not become `path`, and else what was there.
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// Where to put the files.
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  /// Takes the place of `path`, atomically. What was there is removed afterwards. An error leaves it there.
  void commit();

 private:
  /// Whether there is something that must be exchanged, not replaced.
  [[nodiscard]] bool has_predecessor() const;

  std::string path_;
  Lists lists_;
  std::string parent_;
  std::string folder_;
  File lock_;
};

/// Reads, decodes and checks the index of a checkpoint, in its folder. Memory is taken once its beginning has been
/// checked. Throws `Error` (io) with the path of the file. `text`: what was read.
[[nodiscard]] Index read_index(const std::string& folder, std::string& text);

/// The names of all files of the checkpoint. Throws as `read_index`.
[[nodiscard]] std::vector<std::string> files_of(const std::string& folder);

}  // namespace kolo::checkpoint
