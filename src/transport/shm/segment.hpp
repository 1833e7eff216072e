// SPDX-License-Identifier: Apache-2.0
//
// Memory that ranks share: between processes through an anonymous file (memfd), which has no name in any file system,
// needs no room in /dev/shm, and vanishes with the last process that maps it; between threads through plain pages.
#pragma once

#include <cstddef>
#include <utility>

#include "base/unique_fd.hpp"

namespace kolo::shm {

/// Zeroed, page aligned, unmapped by the destructor. All makers throw Error(transport), naming the size.
class Segment {
 public:
  /// A new anonymous file of `bytes`, whose size cannot be changed any more, mapped. Not inherited by fork or exec.
  static Segment create(std::size_t bytes);
  /// The mapping of another process's file, which must have this size.
  static Segment map(base::UniqueFd file, std::size_t bytes);
  /// Pages of this process only, which a forked child does not get either. Untouched pages take no memory.
  static Segment anonymous(std::size_t bytes);

  Segment(Segment&& other) noexcept
      : file_(std::move(other.file_)), data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  ~Segment() { unmap(); }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The file, or -1.
  [[nodiscard]] int fd() const noexcept { return file_.get(); }
  /// For a file whose descriptor is open: makes the mapping a private copy of the file's pages, at the same addresses.
  /// Threads may read and write meanwhile. Pages that no process has touched are not copied; they still show what
  /// others write there first. If the system has no memory for the copies, the mapping stays as it is.
  void make_private() noexcept;
  /// For a file whose descriptor is open: gives its pages back, for all processes that map them, and unmaps it here.
  void discard() noexcept;
  /// Asks for huge pages if the segment is large. For memory that is used as a whole.
  void prefer_huge_pages() noexcept;
  /// The mapping stays; the file cannot be passed to other processes any more.
  void close_file() noexcept { file_.reset(); }

 private:
  Segment() noexcept = default;
  void map_pages(int flags);
  void unmap() noexcept;

  base::UniqueFd file_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace kolo::shm
