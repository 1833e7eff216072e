// SPDX-License-Identifier: Apache-2.0
//
// Which calls make a context, and on which device.
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "data/cuda/contexts.hpp"
#include "support_for_tests.hpp"

namespace kolo::emulated {
namespace {

using Devices = std::vector<int>;

class ContextsOfCuda : public EmulatedTest {
 protected:
  Config config() const override {
    Config config;
    config.devices = 4;
    return config;
  }
  /// The contexts after a thread has done this that has not chosen a device.
  static Devices after(const std::function<void()>& body) {
    std::thread(body).join();
    return contexts();
  }
};

TEST_F(ContextsOfCuda, QuestionsMakeNone) {
  EXPECT_EQ(after([] {
              int number = 0;
              cudaDeviceProp properties{};
              ok(cudaGetDeviceCount(&number));
              ok(cudaGetDevice(&number));
              ok(cudaGetDeviceProperties(&properties, 3));
              const cuda::DriverCalls driver = cuda::find_driver_calls();
              EXPECT_EQ(cuda::device_holding(&number, driver), -1);
            }),
            Devices());
}

/// Also to go back to a device, where the thread has not been before.
TEST_F(ContextsOfCuda, ToChooseADeviceMakesOne) {
  EXPECT_EQ(after([] { ok(cudaSetDevice(2)); }), Devices({2}));
  EXPECT_EQ(after([] {
              int former = -1;
              ok(cudaGetDevice(&former));
              ok(cudaSetDevice(3));
              ok(cudaSetDevice(former));
            }),
            Devices({0, 2, 3}));
}

TEST_F(ContextsOfCuda, CallsOnAThreadWithoutAContextMakeThatOfDevice0) {
  const std::function<void()> calls[] = {
      [] {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        ok(cudaStreamIsCapturing(nullptr, &status));
      },
      [] {
        cudaPointerAttributes attributes{};
        ok(cudaPointerGetAttributes(&attributes, &attributes));
      },
      [] { ok(cudaFree(new_memory<int>(1))); },
  };
  for (const auto& call : calls) {
    reset(config());
    EXPECT_EQ(after(call), Devices({0}));
  }
}

/// The guard goes there without any other, and back to none or to what is no primary context.
TEST_F(ContextsOfCuda, AGuardMakesThatOfItsDeviceAlone) {
  const cuda::PrimaryContext context(2);
  EXPECT_EQ(after([&] {
              const auto current = [] {
                int device = -1;
                ok(cudaGetDevice(&device));
                return device;
              };
              {
                const cuda::DeviceGuard guard(context);
                EXPECT_EQ(current(), 2);
                const cuda::DeviceGuard again(context);
                ok(cudaFree(new_memory<int>(1)));
              }
              EXPECT_EQ(current(), 0);
              EXPECT_EQ(current_context(), nullptr);
              enter_context_of_its_own(2);
              void* const own = current_context();
              {
                const cuda::DeviceGuard guard(context);
                EXPECT_NE(current_context(), own);
                EXPECT_EQ(current(), 2);
              }
              EXPECT_EQ(current_context(), own);
            }),
            Devices({2}));
}

}  // namespace
}  // namespace kolo::emulated
