// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define KOLO_EMULATED_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KOLO_EMULATED_ASAN 1
#endif
#endif
#ifdef KOLO_EMULATED_ASAN
extern "C" {
void __asan_poison_memory_region(const volatile void* data, std::size_t bytes);
void __asan_unpoison_memory_region(const volatile void* data, std::size_t bytes);
}
#endif

namespace kolo::emulated {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kFront = 256;  // red zone before an allocation that wants no whole page
constexpr std::size_t kBack = 64;    // at the least, behind one
constexpr unsigned char kRedZone = 0xa5;

std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void poison([[maybe_unused]] std::uintptr_t address, [[maybe_unused]] std::size_t bytes) {
#ifdef KOLO_EMULATED_ASAN
  __asan_poison_memory_region(reinterpret_cast<void*>(address), bytes);
#endif
}

void unpoison([[maybe_unused]] std::uintptr_t address, [[maybe_unused]] std::size_t bytes) {
#ifdef KOLO_EMULATED_ASAN
  __asan_unpoison_memory_region(reinterpret_cast<void*>(address), bytes);
#endif
}

std::uintptr_t reserve(std::size_t bytes, int file) {
  const int flags = MAP_NORESERVE | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  void* at = ::mmap(nullptr, bytes, PROT_NONE, flags, file, 0);
  KOLO_CHECK(at != MAP_FAILED) << "mmap: " << std::strerror(errno);
  return reinterpret_cast<std::uintptr_t>(at);
}

void protect(std::uintptr_t address, std::size_t bytes, int protection) {
  KOLO_CHECK(::mprotect(reinterpret_cast<void*>(address), bytes, protection) == 0)
      << "mprotect: " << std::strerror(errno);
}

bool all_are(std::uintptr_t address, std::size_t bytes, unsigned char value) {
  const auto* data = reinterpret_cast<const unsigned char*>(address);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (data[i] != value) return false;
  }
  return true;
}

/// Where an allocation's pages begin and how many bytes they are.
struct Extent {
  std::uintptr_t begin;
  std::size_t front;
  std::size_t bytes;
};
Extent extent_of(std::uintptr_t address, std::size_t bytes) {
  const std::uintptr_t begin = address / kPage * kPage;
  const std::size_t front = address - begin;
  return {begin, front, pages(front + bytes + kBack)};
}

}  // namespace

Arena::Arena(View view) {
  if (view == View::two) {
    file_ = ::memfd_create("emulated device memory", MFD_CLOEXEC);
    KOLO_CHECK(file_ >= 0) << "memfd_create: " << std::strerror(errno);
    KOLO_CHECK(::ftruncate(file_, static_cast<off_t>(kBytes)) == 0) << "ftruncate: " << std::strerror(errno);
  }
  host_ = reserve(kBytes, file_);
  device_ = file_ >= 0 ? reserve(kBytes, file_) : host_;
}

Arena::~Arena() {
  KOLO_CHECK(::munmap(reinterpret_cast<void*>(host_), kBytes) == 0) << std::strerror(errno);
  if (file_ < 0) return;
  KOLO_CHECK(::munmap(reinterpret_cast<void*>(device_), kBytes) == 0) << std::strerror(errno);
  ::close(file_);
}

std::uintptr_t Arena::allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t front = alignment < kPage ? kFront : 0;
  const std::size_t room = pages(front + bytes + kBack);
  if (bytes > kBytes || used_ + room + 2 * kPage > kBytes) return 0;
  const std::size_t offset = used_ + kPage;
  used_ = offset + room;
  const std::uintptr_t touchable = device_ + offset;
  protect(touchable, room, PROT_READ | PROT_WRITE);
  std::memset(reinterpret_cast<void*>(touchable), kRedZone, front);
  std::memset(reinterpret_cast<void*>(touchable + front), Memory::kPoison, bytes);
  std::memset(reinterpret_cast<void*>(touchable + front + bytes), kRedZone, room - front - bytes);
  poison(touchable, front);
  poison(touchable + front + bytes, room - front - bytes);
  return host_ + offset + front;
}

bool Arena::is_intact(std::uintptr_t address, std::size_t bytes) const {
  const Extent extent = extent_of(address, bytes);
  const std::uintptr_t touchable = extent.begin + distance();
  const std::size_t behind = extent.front + bytes;
  unpoison(touchable, extent.bytes);
  return all_are(touchable, extent.front, kRedZone) && all_are(touchable + behind, extent.bytes - behind, kRedZone);
}

void Arena::release(std::uintptr_t address, std::size_t bytes) {
  const Extent extent = extent_of(address, bytes);
  const std::uintptr_t touchable = extent.begin + distance();
  unpoison(touchable, extent.bytes);
  // The pages are given back, and whoever comes again meets a fault.
  if (file_ >= 0) {
    KOLO_CHECK(::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(extent.begin - host_),
                           static_cast<off_t>(extent.bytes)) == 0)
        << "fallocate: " << std::strerror(errno);
  } else {
    KOLO_CHECK(::madvise(reinterpret_cast<void*>(touchable), extent.bytes, MADV_DONTNEED) == 0)
        << "madvise: " << std::strerror(errno);
  }
  protect(touchable, extent.bytes, PROT_NONE);
}

AllocationPtr Memory::allocate(Allocation::Kind kind, std::size_t bytes, std::size_t alignment, int device,
                               const std::string& api, const std::string& site) {
  Arena& arena = kind == Allocation::Kind::device ? device_ : pinned_;
  const std::uintptr_t base = arena.allocate(bytes, alignment);
  if (base == 0) return nullptr;
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = kind;
  allocation->base = base;
  allocation->bytes = bytes;
  allocation->device = device;
  allocation->number = next_number_++;
  allocation->api = api;
  allocation->name = "buffer " + std::to_string(allocation->number) + " (" + api + " of " + std::to_string(bytes) +
                     " bytes on device " + std::to_string(device) + (site.empty() ? "" : ", " + site) + ")";
  allocations_[base] = allocation;
  return allocation;
}

AllocationPtr Memory::enter_registered(void* data, std::size_t bytes, int device, const std::string& site) {
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = Allocation::Kind::registered;
  allocation->base = reinterpret_cast<std::uintptr_t>(data);
  allocation->bytes = bytes;
  allocation->device = device;
  allocation->number = next_number_++;
  allocation->api = "cudaHostRegister";
  allocation->name = "buffer " + std::to_string(allocation->number) + " (cudaHostRegister of " + std::to_string(bytes) +
                     " bytes" + (site.empty() ? "" : ", " + site) + ")";
  allocations_[allocation->base] = allocation;
  return allocation;
}

bool Memory::free(Allocation& allocation, bool keeps_pages) {
  allocation.live = false;
  allocation.history = {};
  if (allocation.kind == Allocation::Kind::registered) {
    allocations_.erase(allocation.base);
    return true;
  }
  const Arena& arena = allocation.kind == Allocation::Kind::device ? device_ : pinned_;
  const bool intact = arena.is_intact(allocation.base, allocation.bytes);
  if (!keeps_pages) give_back_pages(allocation);
  return intact;
}

void Memory::give_back_pages(Allocation& allocation) {
  Arena& arena = allocation.kind == Allocation::Kind::device ? device_ : pinned_;
  arena.release(allocation.base, allocation.bytes);
  allocation.has_pages = false;
}

AllocationPtr Memory::at(const void* address) const {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  auto next = allocations_.upper_bound(number);
  if (next == allocations_.begin()) return nullptr;
  const AllocationPtr& found = std::prev(next)->second;
  const bool same_arena = (device_.contains(number) && device_.contains(found->base)) ||
                          (pinned_.contains(number) && pinned_.contains(found->base));
  return found->contains(number) || same_arena ? found : nullptr;
}

bool Memory::in_device_arena(const void* address) const noexcept {
  return device_.contains(reinterpret_cast<std::uintptr_t>(address));
}

bool Memory::in_arena(const void* address) const noexcept {
  return in_device_arena(address) || pinned_.contains(reinterpret_cast<std::uintptr_t>(address));
}

void* Memory::device_view(const void* address) const noexcept {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  return reinterpret_cast<void*>(device_.contains(number) ? number + device_.distance() : number);
}

const void* Memory::program_view(const void* address) const noexcept {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  if (!device_.contains_touchable(number)) return address;
  return reinterpret_cast<const void*>(number - device_.distance());
}

bool Memory::owns(const void* address) const noexcept {
  return in_arena(address) || device_.contains_touchable(reinterpret_cast<std::uintptr_t>(address));
}

std::size_t Memory::used(int device) const {
  std::size_t sum = 0;
  for (const auto& [base, allocation] : allocations_) {
    if (allocation->live && allocation->kind == Allocation::Kind::device && allocation->device == device) {
      sum += allocation->bytes;
    }
  }
  return sum;
}

void Memory::clear() {
  for (const auto& [base, allocation] : allocations_) {
    // What a test left behind is cut off with its machine; red zones are judged where memory is freed.
    if (allocation->has_pages && allocation->kind != Allocation::Kind::registered) give_back_pages(*allocation);
  }
  allocations_.clear();
  device_.restart();
  pinned_.restart();
  next_number_ = 1;
}

}  // namespace kolo::emulated
