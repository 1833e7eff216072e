// SPDX-License-Identifier: Apache-2.0
#include "launch/file_store.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/files.hpp"
#include "base/system_error.hpp"
#include "launch/sockets.hpp"

namespace kolo::launch {
namespace {

constexpr std::chrono::milliseconds kLook{20};
/// The entry of a host with many addresses. A longer one was not written by rank 0.
constexpr std::size_t kLongest = std::size_t{64} << 10;

class FileStore final : public Store {
 public:
  FileStore(std::string path, Owner believed) : path_(std::move(path)), believed_(believed) {}

  void set(const std::string& key, const std::string& value) override {
    try {
      base::replace_file(path_of(key), value, S_IRUSR | S_IWUSR);
    } catch (const Error& error) {
      throw Error(ErrorCode::transport, "rank 0 cannot write its address to " + error.status().message());
    }
  }

  std::optional<std::string> get(const std::string& key, std::chrono::nanoseconds timeout) override {
    const base::Time deadline = base::after(base::now(), timeout);
    while (true) {
      std::optional<std::string> value = read(path_of(key));
      if (value || base::now() >= deadline) return value;
      std::vector<pollfd> nothing;  // a shared file system does not report changes
      wait_until(nothing, std::min<base::Time>(deadline, base::now() + kLook));
    }
  }

 private:
  [[nodiscard]] std::string path_of(const std::string& key) const {
    std::error_code none;
    if (!std::filesystem::is_directory(path_, none)) return path_;
    std::string name = key;
    std::replace(name.begin(), name.end(), '/', '-');
    return path_ + "/" + name;
  }

  void check(int fd, const std::string& path) const {
    struct stat file = {};
    if (::fstat(fd, &file) != 0) base::throw_errno("cannot read where rank 0 is from " + path, errno);
    if (believed_ == Owner::any || file.st_uid == ::geteuid() || file.st_uid == 0) return;
    throw Error(
        ErrorCode::transport,
        path + " belongs to another user (number " + std::to_string(file.st_uid) +
            "), and without KOLO_JOB_KEY nothing else proves who wrote it: take a file of your own, or give all "
            "ranks the same KOLO_JOB_KEY");
  }

  static std::optional<base::NamedFile> find(const std::string& path) {
    try {
      return base::find_named(path);
    } catch (const Error& error) {
      throw Error(ErrorCode::transport, "cannot read where rank 0 is from " + error.status().message() +
                                            ": give the job a path at which a file can be written");
    }
  }

  [[nodiscard]] std::optional<std::string> read(const std::string& path) const {
    const std::optional<base::NamedFile> file = find(path);
    if (!file) return std::nullopt;
    check(file->fd.get(), path);
    std::string value;
    std::array<char, 4096> piece;
    while (value.size() < kLongest) {
      const ssize_t got = ::read(file->fd.get(), piece.data(), piece.size());
      if (got == 0) return value;
      if (got < 0 && errno == ESTALE) return std::nullopt;  // replaced meanwhile, on another host
      if (got < 0) base::throw_errno("cannot read where rank 0 is from " + path, errno);
      value.append(piece.data(), static_cast<std::size_t>(got));
    }
    return value;
  }

  const std::string path_;
  const Owner believed_;
};

}  // namespace

std::shared_ptr<Store> file_store(std::string path, Owner believed) {
  return std::make_shared<FileStore>(std::move(path), believed);
}

}  // namespace kolo::launch
