// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/disk.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kolo/error.hpp>
#include <kolo/parameters.hpp>

#include "base/files.hpp"
#include "base/proof.hpp"
#include "checkpoint/index.hpp"

namespace kolo::checkpoint {
namespace {

constexpr std::string_view kPrefix = ".kolo-saving-";
constexpr std::size_t kRandomDigits = 16;
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

/// The names in a folder.
std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) throw_system_error(path, "readdir", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

/// Removes a folder with a checkpoint's files. Other files stay, and the folder with them.
void remove_folder(const std::string& path) {
  if (!status_of(path)) return;
  for (const std::string& name : names_in(path)) {
    if (!is_file_name(name)) continue;
    const std::string file = std::string(path).append(1, '/').append(name);
    check_system(::unlink(file.c_str()) == 0, file, "unlink");
  }
  check_system(::rmdir(path.c_str()) == 0, path, "rmdir");
}

enum class Lock { taken, held_by_another, unknown };

Lock try_lock(int file) {
  int result = 0;
  do {
    result = ::flock(file, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return errno == EWOULDBLOCK ? Lock::held_by_another : Lock::unknown;
  // Whoever removes a leftover takes its lock first, and may have done so between our open and our lock.
  struct stat status {};
  return ::fstat(file, &status) == 0 && status.st_nlink > 0 ? Lock::taken : Lock::held_by_another;
}

/// Removes what killed processes have left in the folder. Does what it can: a save does not fail for it.
void remove_leftovers(const std::string& parent) {
  std::vector<std::string> names;
  try {
    names = names_in(parent);
  } catch (const Error&) {  // the save finds out what is wrong with the folder
  }
  for (const std::string& name : names) {
    if (name.size() != kPrefix.size() + kRandomDigits + kLockSuffix.size() || !name.starts_with(kPrefix) ||
        !name.ends_with(kLockSuffix))
      continue;
    const std::string path = std::string(parent).append(1, '/').append(name);
    try {
      const base::UniqueFd lock = base::open_to_write(path, base::Start::append);
      if (try_lock(lock.get()) != Lock::taken) continue;
      remove_folder(path.substr(0, path.size() - kLockSuffix.size()));
      static_cast<void>(::unlink(path.c_str()));
    } catch (const Error&) {  // another user's, another process removes it, or it holds what no save has written
    }
  }
}

}  // namespace

void throw_system_error(const std::string& path, const char* call, int cause) {
  throw Error(ErrorCode::io, path + ": " + call + ": " + std::generic_category().message(cause));
}

File File::create(const std::string& path) {
  File file;
  file.path_ = path;
  file.fd_ = base::create_file(path);
  return file;
}

File File::open(const std::string& path) {
  File file;
  file.path_ = path;
  base::NamedFile named = base::open_named(path);
  file.fd_ = std::move(named.fd);
  file.bytes_ = named.bytes;
  return file;
}

void File::write(const void* data, std::size_t bytes) const {
  const int error = base::write_all(fd(), {static_cast<const char*>(data), bytes});
  if (error != 0) throw_system_error(path_, "write", error);
}

void File::read_at(std::int64_t offset, void* data, std::size_t bytes) const {
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd(), next, std::min(bytes, kMostAtOnce), offset);
    if (got < 0 && errno == EINTR) continue;
    check_system(got >= 0, path_, "read");
    if (got == 0) throw Error(ErrorCode::io, path_ + ": is cut off at byte " + std::to_string(offset));
    next += got;
    offset += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

void File::sync() const { check_system(::fsync(fd()) == 0, path_, "fsync"); }

void File::close() { check_system(::close(fd_.release()) == 0, path_, "close"); }

void write_file(const std::string& path, std::string_view content) {
  File file = File::create(path);
  file.write(content.data(), content.size());
  file.sync();
  file.close();
}

NewFolder::NewFolder(std::string path, Lists lists) : path_(std::move(path)), lists_(std::move(lists)) {
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
    folder_ = parent_ + '/' + std::string(kPrefix) + base::hex_of(base::random_word()).substr(0, kRandomDigits);
    lock_ = File::create(folder_ + std::string(kLockSuffix));
    lock = try_lock(lock_.fd());
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
    remove_folder(folder_);
    static_cast<void>(::unlink(lock_.path().c_str()));
  } catch (const Error&) {  // the next save removes it, unless somebody has put a file there meanwhile
  }
}

bool NewFolder::has_predecessor() const {
  const std::optional<struct stat> status = status_of(path_);
  if (!status) return false;
  const auto refuse = [&](const std::string& why) { throw Error(ErrorCode::io, path_ + ": " + why); };
  if (S_ISLNK(status->st_mode)) {
    refuse("is not replaced: it is a symbolic link; save under the path that it leads to, or remove the link");
  }
  if (!S_ISDIR(status->st_mode)) refuse("is there already, and is not replaced: it is no folder");
  const std::vector<std::string> names = names_in(path_);
  if (names.empty()) return true;
  std::vector<std::string> listed;
  try {
    listed = lists_(path_);
  } catch (const Error& error) {
    refuse("is there already, and is not replaced: " + error.status().message());
  }
  for (const std::string& name : names) {
    if (std::find(listed.begin(), listed.end(), name) == listed.end()) {
      refuse("is not replaced: it holds " + quoted_name(name) + ", which is no file of the checkpoint that is there");
    }
  }
  return true;
}

void NewFolder::commit() {
  base::sync_folder(folder_);
  if (!has_predecessor()) {
    check_system(::rename(folder_.c_str(), path_.c_str()) == 0, path_, "rename");
  } else if (::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) throw_system_error(path_, "rename", errno);
    throw Error(ErrorCode::io, path_ + ": this file system cannot replace a folder atomically; save under a new path, "
                                       "and remove the old checkpoint afterwards");
  }
  base::sync_folder(parent_);
}

namespace {

/// Calls `body`, and puts the path before the sentence of the error that it throws.
template <class Body>
auto with_path(const std::string& path, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.code(), path + ": " + error.status().message());
  }
}

}  // namespace

Index read_index(const std::string& folder, std::string& text) {
  const std::string path = folder + '/' + kIndexName;
  const File file = File::open(path);
  text.assign(static_cast<std::size_t>(std::min(file.bytes(), static_cast<std::int64_t>(kBeginningBytes))), '\0');
  file.read_at(0, text.data(), text.size());
  with_path(path, [&] {
    check_beginning(text);
    if (file.bytes() > kLargestIndex) {
      throw Error(ErrorCode::io, "has " + std::to_string(file.bytes()) + " bytes; at most " +
                                     std::to_string(kLargestIndex) + " are expected");
    }
  });
  text.assign(static_cast<std::size_t>(file.bytes()), '\0');
  file.read_at(0, text.data(), text.size());
  return with_path(path, [&] {
    Index index = decode(text);
    check_whole(index, ErrorCode::io);
    return index;
  });
}

std::vector<std::string> files_of(const std::string& folder) {
  std::string text;
  std::vector<std::string> names{kIndexName};
  for (const IndexedFile& file : read_index(folder, text).files) names.push_back(file.name);
  return names;
}

}  // namespace kolo::checkpoint
