// SPDX-License-Identifier: Apache-2.0
//
// Named tensors in a file. A checkpoint is written whole or not at all: into a file of another name, flushed to the
// disk, then renamed; a reader sees the old one or the new one. It is read whole or not at all too: nothing is copied
// into the tensors before everything has been checked.
//
// Format, in this machine's byte order: the line kFormat, then per tensor
//     name length (u64), name, type (u8), dimensions (u8), extents (i64 each), elements
// after their number (u64), and at the end the FNV-1a hash (u64) of all bytes before it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/types.hpp>

namespace train_digits {

constexpr std::string_view kFormat = "kolo train_digits checkpoint 1\n";

/// FNV-1a, 64 bits; `hash` is that of what came before.
inline std::uint64_t fnv1a(const void* data, std::size_t bytes, std::uint64_t hash = 14695981039346656037U) {
  for (std::size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211U;
  }
  return hash;
}

namespace detail {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Takes the next bytes off the front of a checkpoint; throws where it ends too early.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest_.size()) {
      throw std::runtime_error("a tensor's description does not fit the file");
    }
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  [[nodiscard]] bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// "layer0.weight float32 [64, 64]"
inline std::string describe(std::string_view name, kolo::DType dtype, const kolo::Shape& shape) {
  return std::string(name) + ' ' + std::string(kolo::to_string(dtype)) + ' ' + kolo::to_string(shape);
}

/// Reads one tensor's header, which must be `wanted`'s, and returns its elements.
inline std::string_view take_tensor(Reader& reader, const kolo::NamedView& wanted) {
  const std::string_view name = reader.take(reader.get<std::uint64_t>());
  const auto dtype = static_cast<kolo::DType>(reader.get<std::uint8_t>());
  std::vector<std::int64_t> extents(reader.get<std::uint8_t>());
  for (std::int64_t& extent : extents) {
    extent = reader.get<std::int64_t>();
  }
  const kolo::Shape shape(extents);
  if (name != wanted.name || dtype != wanted.view.dtype() || shape != wanted.view.shape()) {
    throw std::runtime_error("holds '" + describe(name, dtype, shape) + "' where this program has '" +
                             describe(wanted.name, wanted.view.dtype(), wanted.view.shape()) + "'");
  }
  return reader.take(static_cast<std::uint64_t>(wanted.view.bytes()));
}

/// Closes a file, and removes it unless it was kept.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    check(fd_ >= 0, "open");
  }
  ~TemporaryFile() {
    if (fd_ >= 0) {
      ::close(fd_);
      ::unlink(path_.c_str());
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) {
        continue;
      }
      check(written >= 0, "write");
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  void keep_as(const std::string& path) {
    check(::fsync(fd_) == 0, "fsync");
    check(::rename(path_.c_str(), path.c_str()) == 0, "rename");
    ::close(fd_);
    fd_ = -1;
  }

 private:
  void check(bool good, const char* call) const {
    if (!good) {
      throw std::runtime_error(path_ + ": " + call + ": " + std::strerror(errno));
    }
  }

  std::string path_;
  int fd_;
};

/// Makes a rename in this file's folder survive a power cut.
inline void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int cause = errno;
  if (fd >= 0) {
    ::close(fd);
  }
  if (!synced) {
    throw std::runtime_error(folder + ": fsync: " + std::strerror(cause));
  }
}

}  // namespace detail

/// The tensors as a checkpoint's bytes.
inline std::string encode(const std::vector<kolo::NamedView>& tensors) {
  std::string out(kFormat);
  detail::put<std::uint64_t>(out, tensors.size());
  for (const kolo::NamedView& tensor : tensors) {
    const kolo::TensorView& view = tensor.view;
    detail::put<std::uint64_t>(out, tensor.name.size());
    out += tensor.name;
    detail::put(out, static_cast<std::uint8_t>(view.dtype()));
    detail::put(out, static_cast<std::uint8_t>(view.shape().rank()));
    for (const std::int64_t extent : view.shape()) {
      detail::put(out, extent);
    }
    out.append(static_cast<const char*>(view.data()), static_cast<std::size_t>(view.bytes()));
  }
  detail::put(out, fnv1a(out.data(), out.size()));
  return out;
}

/// Copies a checkpoint's bytes into the tensors, which must be those that were encoded: same names, types, shapes and
/// order. Throws std::runtime_error that says what does not fit; the tensors are then as before.
inline void decode(std::string_view bytes, const std::vector<kolo::NamedView>& tensors) {
  if (bytes.substr(0, kFormat.size()) != kFormat) {
    throw std::runtime_error("is not a checkpoint of this program and version ('" +
                             std::string(kFormat.substr(0, kFormat.size() - 1)) + "')");
  }
  std::uint64_t hash = 0;
  if (bytes.size() < kFormat.size() + 2 * sizeof hash) {
    throw std::runtime_error("is cut off");
  }
  const std::string_view content = bytes.substr(0, bytes.size() - sizeof hash);
  std::memcpy(&hash, bytes.data() + content.size(), sizeof hash);
  if (hash != fnv1a(content.data(), content.size())) {
    throw std::runtime_error("is damaged or cut off: its checksum is wrong");
  }

  detail::Reader reader(content.substr(kFormat.size()));
  const auto count = reader.get<std::uint64_t>();
  if (count != tensors.size()) {
    throw std::runtime_error("holds " + std::to_string(count) + " tensors; this program has " +
                             std::to_string(tensors.size()) + " (another --optimizer?)");
  }
  std::vector<std::string_view> contents;
  for (const kolo::NamedView& tensor : tensors) {
    contents.push_back(detail::take_tensor(reader, tensor));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!contents[i].empty()) {
      std::memcpy(tensors[i].view.data(), contents[i].data(), contents[i].size());
    }
  }
}

/// Writes `path` whole or not at all. Throws std::runtime_error that names the file and the system's reason.
inline void write_whole(const std::string& path, std::string_view bytes) {
  detail::TemporaryFile file(path + ".partial-" + std::to_string(::getpid()));
  file.write(bytes);
  file.keep_as(path);
  detail::sync_folder_of(path);
}

inline void save_checkpoint(const std::string& path, const std::vector<kolo::NamedView>& tensors) {
  write_whole(path, encode(tensors));
}

/// Throws std::runtime_error that names the file and what does not fit; the tensors are then as before.
inline void load_checkpoint(const std::string& path, const std::vector<kolo::NamedView>& tensors) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (!file || !(bytes << file.rdbuf())) {
    throw std::runtime_error(path + ": cannot be read");
  }
  try {
    decode(bytes.str(), tensors);
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

}  // namespace train_digits
