// SPDX-License-Identifier: Apache-2.0
//
// Memory: poison, red zones, freed memory, wrong ranges and kinds, and the host's hands off the device's.
#include <cstring>
#include <vector>

#include "support_for_tests.hpp"

namespace kolo::emulated {
namespace {

constexpr std::size_t kBytes = 1000;

class MemoryOfDevices : public EmulatedTest {
 protected:
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};
using MemoryOfDevicesDeathTest = MemoryOfDevices;

TEST_F(MemoryOfDevices, CopiesCarryBytes) {
  std::vector<unsigned char> from(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) from[i] = static_cast<unsigned char>(i * 7);
  std::vector<unsigned char> to(kBytes);
  auto* a = new_memory<unsigned char>(kBytes);
  auto* b = new_memory<unsigned char>(kBytes);
  ok(cudaMemcpy(a, from.data(), kBytes, cudaMemcpyHostToDevice));
  ok(cudaMemcpy(b, a, kBytes, cudaMemcpyDeviceToDevice));
  ok(cudaMemcpy(to.data(), b, kBytes, cudaMemcpyDefault));
  EXPECT_EQ(to, from);
}

TEST_F(MemoryOfDevices, NewMemoryIsPoison) {
  std::vector<unsigned char> seen(kBytes, 0);
  ok(cudaMemcpy(seen.data(), new_memory<char>(kBytes), kBytes, cudaMemcpyDeviceToHost));
  EXPECT_EQ(seen, std::vector<unsigned char>(kBytes, 0xff));
  char* pinned = new_pinned<char>(kBytes);
  EXPECT_EQ(std::memcmp(pinned, seen.data(), kBytes), 0);
}

TEST_F(MemoryOfDevices, AlignmentIsThatOfCudaMallocAndNoBetter) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(new_memory<char>(1)) % 512, 256U);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
  void* collective = nullptr;
  ok(ncclMemAlloc(&collective, 100));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(collective) % 4096, 0U);
  ok(ncclMemFree(collective));
#endif
}

TEST_F(MemoryOfDevices, AddressesAreNotUsedAgain) {
  char* first = new_memory<char>(kBytes);
  ok(cudaFree(first));
  EXPECT_NE(new_memory<char>(kBytes), first);
}

TEST_F(MemoryOfDevices, ANewMachineBeginsWithItsAddressesAnew) {
  char* first = new_memory<char>(kBytes);
  char* pinned = new_pinned<char>(kBytes);
  reset();
  EXPECT_EQ(new_memory<char>(kBytes), first);
  EXPECT_EQ(new_pinned<char>(kBytes), pinned);
}

TEST_F(MemoryOfDevices, ACopyThatLeavesItsBufferIsRefusedAndNamed) {
  char* data = new_memory<char>(kBytes);
  std::vector<char> host(kBytes + 1);
  EXPECT_EQ(cudaMemcpy(host.data(), data, kBytes + 1, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  const std::string text = the_report(Report::Kind::memory);
  EXPECT_TRUE(contains(text, "1001 bytes at byte 0 leave buffer 1 (cudaMalloc of 1000 bytes on device 0)")) << text;
}

TEST_F(MemoryOfDevices, FreedMemoryIsNamed) {
  char* data = new_memory<char>(kBytes);
  ok(cudaFree(data));
  EXPECT_EQ(cudaMemset(data + 5, 0, 1), cudaErrorInvalidValue);
  bool freed = false;
  for (const Report& report : take_reports()) freed = freed || contains(report.text, "freed buffer 1");
  EXPECT_TRUE(freed);
}

TEST_F(MemoryOfDevices, FreeingTwiceOrElsewhereIsMisuse) {
  char* data = new_memory<char>(kBytes);
  EXPECT_EQ(cudaFree(data + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(data), cudaErrorInvalidValue);
  ok(cudaFree(data));
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue);
  EXPECT_EQ(take_reports().size(), 3U);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
  EXPECT_EQ(ncclMemFree(data), ncclInvalidArgument);
  EXPECT_EQ(take_reports().size(), 1U);
#endif
}

TEST_F(MemoryOfDevices, TheDirectionOfACopyIsChecked) {
  char* data = new_memory<char>(kBytes);
  std::vector<char> host(kBytes);
  EXPECT_EQ(cudaMemcpy(data, host.data(), kBytes, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
  the_report(Report::Kind::misuse);
}

TEST_F(MemoryOfDevices, PointersTellWhatTheyAre) {
  char* data = new_memory<char>(kBytes);
  char* pinned = new_pinned<char>(kBytes);
  int variable = 0;
  cudaPointerAttributes attributes{};
  ok(cudaPointerGetAttributes(&attributes, data + 10));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  ok(cudaPointerGetAttributes(&attributes, pinned));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ok(cudaPointerGetAttributes(&attributes, &variable));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST_F(MemoryOfDevices, RegisteredMemoryIsKnownUntilUnregistered) {
  std::vector<char> own(kBytes, 1);
  ok(cudaHostRegister(own.data(), kBytes, cudaHostRegisterDefault));
  char* data = new_memory<char>(kBytes);
  cudaStream_t stream = new_stream();
  ok(cudaMemcpyAsync(own.data(), data, kBytes, cudaMemcpyDeviceToHost, stream));
  host_read(own.data(), 1);
  the_report(Report::Kind::race);
  ok(cudaHostUnregister(own.data()));
  host_read(own.data(), 1);
}

TEST_F(MemoryOfDevices, TheDeviceHasSoMuchAndNoMore) {
  reset(Config{.device_bytes = 1 << 20});
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, (1 << 20) + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ok(cudaMalloc(&data, 1 << 20));
  std::size_t available = 1;
  std::size_t total = 0;
  ok(cudaMemGetInfo(&available, &total));
  EXPECT_EQ(available, 0U);
  EXPECT_EQ(total, 1U << 20);
}

TEST_F(MemoryOfDevices, WhatIsLeftIsListed) {
  new_memory<char>(kBytes);
  new_event();
  new_stream();
  EXPECT_EQ(live_objects(), (std::vector<std::string>{"stream 1 of device 0", "event 1",
                                                      "buffer 1 (cudaMalloc of 1000 bytes on device 0)"}));
}

TEST_F(MemoryOfDevicesDeathTest, TheHostMayNotTouchDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  volatile char* data = new_memory<char>(kBytes);
  EXPECT_DEATH(data[3] = 1, "the host touched device memory: byte 3 of buffer 1 .cudaMalloc of 1000 bytes");
}

TEST_F(MemoryOfDevicesDeathTest, TheHostMayNotTouchFreedPinnedMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  volatile char* data = new_pinned<char>(kBytes);
  ok(cudaFreeHost(const_cast<char*>(data)));
  EXPECT_DEATH(data[3] = 1, "freed pinned memory: byte 3 of freed buffer 1");
}

#if !defined(__SANITIZE_ADDRESS__)  // which catches the write itself
TEST_F(MemoryOfDevices, WritingBesidePinnedMemoryIsNoticedWhenItIsFreed) {
  char* data = new_pinned<char>(kBytes);
  *const_cast<volatile char*>(data + kBytes) = 1;
  ok(cudaFreeHost(data));
  const std::string text = the_report(Report::Kind::memory);
  EXPECT_TRUE(contains(text, "somebody wrote beside buffer 1")) << text;
}
#endif

}  // namespace
}  // namespace kolo::emulated
