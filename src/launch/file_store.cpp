// SPDX-License-Identifier: Apache-2.0
#include "launch/file_store.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/proof.hpp"
#include "base/system_error.hpp"
#include "base/unique_fd.hpp"
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
    const std::string path = path_of(key);
    const std::string beside = path + "." + base::hex_of(base::random_word()).substr(0, 16);
    base::UniqueFd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!fd.valid()) base::throw_errno("rank 0 cannot write its address to " + beside, errno);
    int error = write_all(fd.get(), value);
    // Some file systems report only here that there is no room; other hosts would then find an empty file.
    if (::close(fd.release()) != 0 && error == 0) error = errno;
    if (error == 0 && ::rename(beside.c_str(), path.c_str()) != 0) error = errno;
    if (error == 0) return;
    ::unlink(beside.c_str());
    base::throw_errno("rank 0 cannot write its address to " + path, error);
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

  /// 0, or why not.
  static int write_all(int fd, const std::string& value) noexcept {
    std::size_t written = 0;
    while (written < value.size()) {
      const ssize_t more = ::write(fd, value.data() + written, value.size() - written);
      if (more < 0 && errno != EINTR) return errno;
      if (more > 0) written += static_cast<std::size_t>(more);
    }
    return 0;
  }

  void check(int fd, const std::string& path) const {
    struct stat file = {};
    if (::fstat(fd, &file) != 0) base::throw_errno("cannot read where rank 0 is from " + path, errno);
    if (!S_ISREG(file.st_mode)) {
      throw Error(ErrorCode::transport, path + " is no file: give the job a path at which a file can be written");
    }
    if (believed_ == Owner::any || file.st_uid == ::geteuid() || file.st_uid == 0) return;
    throw Error(
        ErrorCode::transport,
        path + " belongs to another user (number " + std::to_string(file.st_uid) +
            "), and without KOLO_JOB_KEY nothing else proves who wrote it: take a file of your own, or give all "
            "ranks the same KOLO_JOB_KEY");
  }

  [[nodiscard]] std::optional<std::string> read(const std::string& path) const {
    const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid() && (errno == ENOENT || errno == ESTALE)) return std::nullopt;
    if (!fd.valid()) base::throw_errno("cannot read where rank 0 is from " + path, errno);
    check(fd.get(), path);
    std::string value;
    std::array<char, 4096> piece;
    while (value.size() < kLongest) {
      const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
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
