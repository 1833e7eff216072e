// SPDX-License-Identifier: Apache-2.0
#include "base/files.hpp"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <kolo/error.hpp>

#include "base/quote.hpp"

namespace kolo::base {
namespace {

// write(2) and read(2) take at most 2 GiB less a page.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30U;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::io, escaped(path) + ": " + what);
}

[[noreturn]] void fail(const std::string& path, const char* call, int error) {
  fail(path, std::string(call) + ": " + std::generic_category().message(error));
}

const char* kind_of(mode_t mode) noexcept {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a symbolic link";
  return "a device";
}

int open_at(const std::string& path, int flags, mode_t mode = 0) noexcept {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

/// Its status. Throws unless it is a regular file.
struct stat regular(const std::string& path, const UniqueFd& file) {
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) fail(path, "fstat", errno);
  if (!S_ISREG(about.st_mode)) fail(path, std::string("is ") + kind_of(about.st_mode) + ", no regular file");
  return about;
}

/// How many bytes there were, up to `bytes`; less at the file's end. -1: errno says why not.
ssize_t read_up_to(int fd, void* to, std::size_t bytes) noexcept {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::read(fd, static_cast<char*>(to) + done, std::min(bytes - done, kMostAtOnce));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

/// While it lives, a write beyond the limit of a file's size gives this thread an error and no signal.
class NoSizeSignal {
 public:
  NoSizeSignal() noexcept {
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    was_pending_ = ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGXFSZ) == 1;
    is_blocked_ = ::pthread_sigmask(SIG_BLOCK, &signal_, &before_) == 0;
  }
  ~NoSizeSignal() {
    if (!is_blocked_) return;
    constexpr timespec kAtOnce{};
    while (!was_pending_ && ::sigtimedwait(&signal_, nullptr, &kAtOnce) < 0 && errno == EINTR) {
    }
    static_cast<void>(::pthread_sigmask(SIG_SETMASK, &before_, nullptr));
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_ = false;
  bool is_blocked_ = false;
};

}  // namespace

std::optional<std::vector<std::byte>> read_found(const std::string& path, std::size_t most, uid_t owner) {
  const UniqueFd file(open_at(path, O_RDONLY | O_NOFOLLOW));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != owner)
    return std::nullopt;
  std::vector<std::byte> content(std::min(most, static_cast<std::size_t>(about.st_size)));
  const ssize_t got = read_up_to(file.get(), content.data(), content.size());
  if (got < 0) return std::nullopt;
  content.resize(static_cast<std::size_t>(got));
  return content;
}

std::optional<NamedFile> find_named(const std::string& path) {
  UniqueFd file(open_at(path, O_RDONLY));
  if (!file && (errno == ENOENT || errno == ESTALE)) return std::nullopt;  // stale: replaced meanwhile, on another host
  if (!file) fail(path, "open", errno);
  const std::int64_t bytes = regular(path, file).st_size;
  return NamedFile{std::move(file), bytes};
}

NamedFile open_named(const std::string& path) {
  std::optional<NamedFile> file = find_named(path);
  if (!file) fail(path, "open", ENOENT);
  return std::move(*file);
}

std::string read_named(const std::string& path, std::size_t limit) {
  const NamedFile file = open_named(path);
  const auto bytes = static_cast<std::size_t>(file.bytes);
  if (bytes > limit) {
    fail(path, "has " + std::to_string(bytes) + " bytes; at most " + std::to_string(limit) + " are expected");
  }
  std::string content(bytes, '\0');
  const ssize_t got = read_up_to(file.fd.get(), content.data(), content.size());
  if (got < 0) fail(path, "read", errno);
  if (static_cast<std::size_t>(got) < bytes) fail(path, "is cut off at byte " + std::to_string(got));
  return content;
}

UniqueFd open_to_write(const std::string& path, Start start) {
  // O_TRUNC would empty what is then refused, and a FIFO without a reader would say ENXIO.
  UniqueFd file(open_at(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0666));
  if (!file) {
    const int error = errno;
    struct stat about {};
    if (::lstat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
      fail(path, std::string("is ") + kind_of(about.st_mode) + ", no regular file");
    }
    fail(path, "open", error);
  }
  const struct stat about = regular(path, file);
  if (start == Start::empty && about.st_size > 0 && ::ftruncate(file.get(), 0) != 0) fail(path, "ftruncate", errno);
  return file;
}

UniqueFd create_file(const std::string& path, mode_t mode) {
  UniqueFd file(open_at(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
  if (!file) fail(path, "open", errno);
  return file;
}

Replacement::Replacement(const std::string& path, mode_t mode) : path_(path) {
  struct stat about {};
  if (::lstat(path.c_str(), &about) == 0) {
    if (!S_ISREG(about.st_mode)) fail(path, std::string("is ") + kind_of(about.st_mode) + ", no regular file");
  } else if (errno != ENOENT) {
    fail(path, "lstat", errno);
  }
  // What others have put under such a name stays there: the next number is taken.
  constexpr int kAttempts = 100;
  for (int number = 0; !file_; ++number) {
    beside_ = path + "." + std::to_string(::getpid()) + "." + std::to_string(number) + ".new";
    file_.reset(open_at(beside_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
    if (!file_ && (errno != EEXIST || number == kAttempts)) fail(beside_, "open", errno);
  }
}

Replacement::~Replacement() {
  if (!beside_.empty()) static_cast<void>(::unlink(beside_.c_str()));
}

void Replacement::write(std::string_view content) {
  if (const int error = write_all(file_.get(), content); error != 0) fail(path_, "write", error);
}

void Replacement::commit(Lasts lasts) {
  if (lasts == Lasts::yes && ::fsync(file_.get()) != 0) fail(path_, "fsync", errno);
  if (::close(file_.release()) != 0) fail(path_, "close", errno);  // some file systems tell here of a full disk
  if (::rename(beside_.c_str(), path_.c_str()) != 0) fail(path_, "rename", errno);
  beside_.clear();
  if (lasts == Lasts::no) return;
  const std::size_t slash = path_.rfind('/');
  sync_folder(slash == std::string::npos ? "." : path_.substr(0, slash + 1));
}

void replace_file(const std::string& path, std::string_view content, mode_t mode) {
  Replacement file(path, mode);
  file.write(content);
  file.commit();
}

void sync_folder(const std::string& path) {
  const UniqueFd folder(open_at(path, O_RDONLY | O_DIRECTORY));
  if (!folder) fail(path, "open", errno);
  if (::fsync(folder.get()) != 0) fail(path, "fsync", errno);
}

int write_all(int fd, std::string_view content, std::size_t* written) noexcept {
  const NoSizeSignal guard;
  int error = 0;
  std::size_t done = 0;
  while (done < content.size() && error == 0) {
    const ssize_t more = ::write(fd, content.data() + done, std::min(content.size() - done, kMostAtOnce));
    if (more >= 0) {
      done += static_cast<std::size_t>(more);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (written != nullptr) *written = done;
  return error;
}

int reserve(int fd, std::size_t bytes) noexcept {
  const NoSizeSignal guard;
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  return error;
}

}  // namespace kolo::base
