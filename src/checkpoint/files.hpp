// SPDX-License-Identifier: Apache-2.0
//
// Files and folders. All errors are `Error` (io): the path, the call, the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kolo::checkpoint {

/// Throws `Error` (io): "<path>: <call>: <the system's reason>".
[[noreturn]] void throw_system_error(const std::string& path, const char* call, int cause);

/// Owns a descriptor.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  /// open(2), repeated where a signal interrupts it. `mode`: 0666, less the umask.
  Descriptor(std::string path, int flags);
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  void write(const void* data, std::size_t bytes) const;
  /// All of the bytes at `offset`, or an error.
  void read_at(std::int64_t offset, void* data, std::size_t bytes) const;
  [[nodiscard]] std::int64_t size() const;
  /// What was written is on the disk when this returns.
  void sync() const;
  /// close(2), whose error some file systems use to tell of a full disk.
  void close();

 private:
  std::string path_;
  int fd_ = -1;
};

/// Makes what was created in, renamed in and removed from a folder survive a loss of power.
void sync_folder(const std::string& path);

/// A whole file; at most `limit` bytes.
[[nodiscard]] std::string read_file(const std::string& path, std::int64_t limit);
/// A new file, on the disk when this returns.
void write_file(const std::string& path, std::string_view content);

/// A folder in the making, which becomes `path` at once, or never.
///
/// Beside `path` lie the folder, ".kolo-saving-<random>", and a file ".kolo-saving-<random>.lock" that this process has
/// locked (flock) for as long as it lives. A folder whose lock nobody holds is what a killed process has left. The next
/// one that is made removes it, whatever its own path is. On a file system without locks nothing is removed.
class NewFolder {
 public:
  /// Makes the folder, and those above `path` that are missing. Throws if `path` is something other than a folder with
  /// `marker` in it, or an empty one.
  NewFolder(std::string path, std::string marker);
  /// Removes the folder, if it has not become `path`.
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
  std::string marker_;
  std::string parent_;
  std::string folder_;
  Descriptor lock_;
};

}  // namespace kolo::checkpoint
