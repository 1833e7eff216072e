// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/machine.hpp"
#include "base/system_error.hpp"

namespace kolo::shm {

namespace {

std::string of_size(const char* what, std::size_t bytes) {
  return std::string(what) + std::to_string(bytes) + " bytes";
}

/// Beyond this limit the system would end the process by a signal. Batch systems set it.
void check_file_limit(std::size_t bytes) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) base::throw_errno("getrlimit(RLIMIT_FSIZE)", errno);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes) return;
  throw Error(ErrorCode::transport, of_size("sizing a shared segment to ", bytes) + ": files may have " +
                                        std::to_string(limit.rlim_cur) +
                                        " bytes at most, shared memory too: raise that limit (ulimit -f)");
}

}  // namespace

Segment Segment::create(std::size_t bytes) {
  Segment segment;
  segment.file_.reset(::memfd_create("kolo", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!segment.file_.valid()) base::throw_errno(of_size("making a shared segment of ", bytes), errno);
  check_file_limit(bytes);
  if (::ftruncate(segment.fd(), static_cast<off_t>(bytes)) != 0)
    base::throw_errno(of_size("sizing a shared segment to ", bytes), errno);
  // If a peer shrank the file, SIGBUS would kill this process.
  if (::fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    base::throw_errno(of_size("sealing a shared segment of ", bytes), errno);
  segment.bytes_ = bytes;
  segment.map_pages(MAP_SHARED);
  return segment;
}

Segment Segment::map(base::UniqueFd file, std::size_t bytes) {
  Segment segment;
  segment.file_ = std::move(file);
  struct stat status = {};
  if (::fstat(segment.fd(), &status) != 0) base::throw_errno(of_size("opening a shared segment of ", bytes), errno);
  if (static_cast<std::size_t>(status.st_size) != bytes) {
    throw Error(ErrorCode::transport, "the shared segment that the node's leader sent has " +
                                          std::to_string(status.st_size) + " bytes, expected " + std::to_string(bytes));
  }
  segment.bytes_ = bytes;
  segment.map_pages(MAP_SHARED);
  return segment;
}

Segment Segment::anonymous(std::size_t bytes) {
  Segment segment;
  segment.bytes_ = bytes;
  segment.map_pages(MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  return segment;
}

void Segment::make_private() noexcept {
  void* pages = ::mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file_.get(), 0);
  if (pages == MAP_FAILED) return;
  [[maybe_unused]] const int advised = ::madvise(pages, bytes_, MADV_DONTFORK);  // it has succeeded for this memory
                                                                                 // before, so it does not fail now
  // A private page shows what others write until this process writes it. Write every page without changing it, also if
  // another thread of this process writes at the same time. Skip pages that the file does not have, because a write
  // would allocate them.
  const auto detach = [this](off_t at, off_t end) {
    for (; at < end; at += static_cast<off_t>(base::kPageBytes))
      std::atomic_ref(*reinterpret_cast<std::uint64_t*>(data_ + at)).fetch_or(0, std::memory_order_relaxed);
  };
  off_t at = ::lseek(fd(), 0, SEEK_DATA);
  if (at < 0 && errno != ENXIO)
    return detach(0, static_cast<off_t>(bytes_));  // the system cannot tell which pages the
                                                   // file has
  while (at >= 0) {
    const off_t end = ::lseek(fd(), at, SEEK_HOLE);
    detach(at, end);
    at = ::lseek(fd(), end, SEEK_DATA);
  }
}

void Segment::discard() noexcept {
  if (data_ == nullptr) return;
  const int punched = ::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes_));
  KOLO_CHECK(punched == 0) << base::errno_text(errno);
  unmap();
  close_file();
}

void Segment::map_pages(int flags) {
  if (bytes_ == 0) return;
  void* pages = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, fd(), 0);
  if (pages == MAP_FAILED) base::throw_errno(of_size("mapping ", bytes_), errno);
  data_ = static_cast<std::byte*>(pages);
  // A forked child must not write into the peers' results as if it were this rank, so it does not get the segment.
  if (::madvise(pages, bytes_, MADV_DONTFORK) != 0)
    base::throw_errno(of_size("madvise(MADV_DONTFORK) of ", bytes_), errno);
}

/// Only advice: it may fail if the system has no huge pages for shared memory. A small segment would only become
/// larger.
void Segment::prefer_huge_pages() noexcept {
  constexpr std::size_t kWorthHugePages = std::size_t{16} << 20;
  if (bytes_ >= kWorthHugePages) static_cast<void>(::madvise(data_, bytes_, MADV_HUGEPAGE));
}

void Segment::unmap() noexcept {
  if (data_ != nullptr) KOLO_CHECK(::munmap(data_, bytes_) == 0) << base::errno_text(errno);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace kolo::shm
