// SPDX-License-Identifier: Apache-2.0
//
// Memory that a device can reach, and which of it is whose.
//
// Device memory is one sparse memfd, mapped twice: as the host sees it, where no access is allowed at all, and as the
// device sees it, at a constant distance. Pointers that programs hold are the host's view; kernels and copies work in
// the device's. Every allocation begins 256 bytes into a page of its own (so that its alignment is 256 and no more),
// has red zones before and behind, and a page without access before the next one. Addresses are not used again before
// the machine is reset: a pointer to freed memory is recognised, and its pages give a fault in either view. Under an
// address sanitizer the red zones are poisoned, so that a kernel which leaves its memory is caught at the instruction.
//
// Pinned memory has the same layout in one mapping, which the host may touch. (The two views of device memory hide no
// race from a thread sanitizer: only one of them is ever touched.)
//
// Not locked: the machine's mutex guards all of it but `device_view`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "races.hpp"

namespace kolo::emulated {

struct Allocation {
  enum class Kind : std::uint8_t { device, pinned, registered };
  Kind kind = Kind::device;
  std::uintptr_t base = 0;  // as programs see it
  std::size_t bytes = 0;
  int device = 0;
  unsigned number = 0;
  std::string name;  // "buffer 3 (cudaMalloc of 4096 bytes on device 0, src/x.cpp:12)"
  std::string api;
  bool live = true;
  bool has_pages = true;       // also while it is freed, where freeing does not wait for who may be at work there
  unsigned registrations = 0;  // by ncclCommRegister
  AccessHistory history;

  bool contains(std::uintptr_t address) const noexcept { return address - base < bytes; }
};
using AllocationPtr = std::shared_ptr<Allocation>;

/// Bytes of one allocation.
struct Range {
  AllocationPtr allocation;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A reservation of addresses from which pieces are cut, not to be used again before `restart`.
class Arena {
 public:
  enum class View : std::uint8_t { two, one };
  explicit Arena(View view);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// The program's address of `bytes` bytes filled with kPoison, or 0. Aligned to `alignment`, and no more.
  std::uintptr_t allocate(std::size_t bytes, std::size_t alignment);
  /// False when a red zone was written to.
  [[nodiscard]] bool is_intact(std::uintptr_t address, std::size_t bytes) const;
  void release(std::uintptr_t address, std::size_t bytes);
  /// Everything is released: addresses begin anew. They must, or a sanitizer keeps its notes of all there ever were.
  void restart() noexcept { used_ = 0; }
  bool contains(std::uintptr_t address) const noexcept { return address - host_ < kBytes; }
  bool contains_touchable(std::uintptr_t address) const noexcept { return address - device_ < kBytes; }
  /// From the program's view to that which can be touched.
  std::uintptr_t distance() const noexcept { return device_ - host_; }

 private:
  static constexpr std::size_t kBytes = std::size_t{16} << 30;
  int file_ = -1;
  std::uintptr_t host_ = 0;
  std::uintptr_t device_ = 0;
  std::size_t used_ = 0;
};

class Memory {
 public:
  /// Every byte of new memory: a NaN as a float of any width.
  static constexpr unsigned char kPoison = 0xff;

  AllocationPtr allocate(Allocation::Kind kind, std::size_t bytes, std::size_t alignment, int device,
                         const std::string& api, const std::string& site);
  AllocationPtr enter_registered(void* data, std::size_t bytes, int device, const std::string& site);
  /// False when a red zone was written to. With `keeps_pages` they stay until `clear`, so that an access, which is
  /// reported, is no fault.
  [[nodiscard]] bool free(Allocation& allocation, bool keeps_pages = false);

  /// The allocation, live or freed, that holds the address or was the last to begin before it; null where neither
  /// arena nor registered memory is.
  AllocationPtr at(const void* address) const;
  bool in_device_arena(const void* address) const noexcept;
  /// Whether a host access there is a fault of the program, whatever was allocated.
  bool in_arena(const void* address) const noexcept;
  /// Where a device thread may touch what a program calls `address`. Any thread.
  void* device_view(const void* address) const noexcept;
  /// The other way: what a program calls an address of either view.
  const void* program_view(const void* address) const noexcept;
  /// Whether the address lies in either view of any arena.
  bool owns(const void* address) const noexcept;

  std::size_t used(int device) const;
  /// Frees everything.
  void clear();
  const std::map<std::uintptr_t, AllocationPtr>& all() const noexcept { return allocations_; }

 private:
  Arena device_{Arena::View::two};
  Arena pinned_{Arena::View::one};
  std::map<std::uintptr_t, AllocationPtr> allocations_;
  void give_back_pages(Allocation& allocation);

  unsigned next_number_ = 1;
};

}  // namespace kolo::emulated
