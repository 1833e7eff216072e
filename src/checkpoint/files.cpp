// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/files.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include <kolo/error.hpp>
#include <kolo/parameters.hpp>

namespace kolo::checkpoint {
namespace {

constexpr std::string_view kPrefix = ".kolo-saving-";
constexpr std::string_view kLockSuffix = ".lock";
// write(2) and read(2) take at most 2 GiB less a page.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30U;

void check_system(bool good, const std::string& path, const char* call) {
  if (!good) throw_system_error(path, call, errno);
}

/// The file's status; nothing where there is no such file. Symbolic links are not followed.
std::optional<struct stat> status_of(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return status;
  check_system(errno == ENOENT, path, "lstat");
  return std::nullopt;
}

std::string random_name() {
  constexpr std::string_view digits = "0123456789abcdef";
  std::random_device source;
  std::string name(kPrefix);
  for (int i = 0; i < 16; ++i) name += digits[source() % 16];
  return name;
}

void remove_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw_system_error(path, "remove_all", error.value());
}

enum class Lock { taken, held_by_another, unknown };

Lock try_lock(const Descriptor& file) {
  int result = 0;
  do {
    result = ::flock(file.fd(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return errno == EWOULDBLOCK ? Lock::held_by_another : Lock::unknown;
  // Whoever removes a leftover takes its lock first, and may have done so between our open and our lock.
  struct stat status {};
  return ::fstat(file.fd(), &status) == 0 && status.st_nlink > 0 ? Lock::taken : Lock::held_by_another;
}

/// Removes what killed processes have left in the folder. Does what it can: a save does not fail for it.
void remove_leftovers(const std::string& parent) {
  std::vector<std::string> locks;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.size() == kPrefix.size() + 16 + kLockSuffix.size() && name.substr(0, kPrefix.size()) == kPrefix &&
        name.substr(name.size() - kLockSuffix.size()) == kLockSuffix) {
      locks.push_back(std::string(parent).append(1, '/').append(name));
    }
  }
  for (const std::string& path : locks) {
    try {
      const Descriptor lock(path, O_RDWR);
      if (try_lock(lock) != Lock::taken) continue;
      remove_tree(path.substr(0, path.size() - kLockSuffix.size()));
      static_cast<void>(::unlink(path.c_str()));
    } catch (const Error&) {  // another user's, or another process removes it
    }
  }
}

}  // namespace

void throw_system_error(const std::string& path, const char* call, int cause) {
  throw Error(ErrorCode::io, path + ": " + call + ": " + std::generic_category().message(cause));
}

Descriptor::Descriptor(std::string path, int flags) : path_(std::move(path)) {
  do {
    fd_ = ::open(path_.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EINTR);
  check_system(fd_ >= 0, path_, "open");
}
Descriptor::Descriptor(Descriptor&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}
Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void Descriptor::write(const void* data, std::size_t bytes) const {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd_, next, std::min(bytes, kMostAtOnce));
    if (written < 0 && errno == EINTR) continue;
    check_system(written >= 0, path_, "write");
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void Descriptor::read_at(std::int64_t offset, void* data, std::size_t bytes) const {
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_, next, std::min(bytes, kMostAtOnce), offset);
    if (got < 0 && errno == EINTR) continue;
    check_system(got >= 0, path_, "read");
    if (got == 0) throw Error(ErrorCode::io, path_ + ": is cut off at byte " + std::to_string(offset));
    next += got;
    offset += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

std::int64_t Descriptor::size() const {
  struct stat status {};
  check_system(::fstat(fd_, &status) == 0, path_, "fstat");
  return status.st_size;
}

void Descriptor::sync() const { check_system(::fsync(fd_) == 0, path_, "fsync"); }

void Descriptor::close() { check_system(::close(std::exchange(fd_, -1)) == 0, path_, "close"); }

void sync_folder(const std::string& path) { Descriptor(path, O_RDONLY | O_DIRECTORY).sync(); }

std::string read_file(const std::string& path, std::int64_t limit) {
  const Descriptor file(path, O_RDONLY);
  const std::int64_t bytes = file.size();
  if (bytes > limit) {
    throw Error(ErrorCode::io,
                path + ": has " + std::to_string(bytes) + " bytes; at most " + std::to_string(limit) + " are expected");
  }
  std::string content(static_cast<std::size_t>(bytes), '\0');
  file.read_at(0, content.data(), content.size());
  return content;
}

void write_file(const std::string& path, std::string_view content) {
  Descriptor file(path, O_WRONLY | O_CREAT | O_EXCL);
  file.write(content.data(), content.size());
  file.sync();
  file.close();
}

NewFolder::NewFolder(std::string path, std::string marker) : path_(std::move(path)), marker_(std::move(marker)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  const std::filesystem::path split(path_);
  const std::string name = split.filename().string();
  if (name.empty() || name == "." || name == "..") {
    throw Error(ErrorCode::invalid_argument, quoted_name(path_) + " is no name for a folder");
  }
  parent_ = split.has_parent_path() ? split.parent_path().string() : ".";
  std::error_code error;
  std::filesystem::create_directories(parent_, error);
  if (error) throw_system_error(parent_, "mkdir", error.value());
  static_cast<void>(has_predecessor());
  remove_leftovers(parent_);
  Lock lock = Lock::held_by_another;
  while (lock == Lock::held_by_another) {
    folder_ = parent_ + '/' + random_name();
    lock_ = Descriptor(folder_ + std::string(kLockSuffix), O_RDWR | O_CREAT | O_EXCL);
    lock = try_lock(lock_);
  }
  if (::mkdir(folder_.c_str(), 0777) != 0) {
    const int cause = errno;
    static_cast<void>(::unlink(lock_.path().c_str()));
    throw_system_error(folder_, "mkdir", cause);
  }
}

// The folder goes first: as long as the lock's file is there, the next save finds both.
NewFolder::~NewFolder() {
  try {
    remove_tree(folder_);
    static_cast<void>(::unlink(lock_.path().c_str()));
  } catch (const Error&) {  // the next save removes it
  }
}

bool NewFolder::has_predecessor() const {
  const std::optional<struct stat> status = status_of(path_);
  if (!status) return false;
  if (S_ISDIR(status->st_mode) && status_of(path_ + '/' + marker_)) return true;
  std::error_code error;
  if (S_ISDIR(status->st_mode) && std::filesystem::is_empty(path_, error) && !error) return false;
  throw Error(ErrorCode::io, path_ + ": is there already, and is no checkpoint; it is not replaced");
}

void NewFolder::commit() {
  sync_folder(folder_);
  if (!has_predecessor()) {
    check_system(::rename(folder_.c_str(), path_.c_str()) == 0, path_, "rename");
  } else if (::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) throw_system_error(path_, "rename", errno);
    throw Error(ErrorCode::io, path_ + ": this file system cannot replace a folder atomically; save under a new path, "
                                       "and remove the old checkpoint afterwards");
  }
  sync_folder(parent_);
}

}  // namespace kolo::checkpoint
