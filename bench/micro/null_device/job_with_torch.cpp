// SPDX-License-Identifier: Apache-2.0
//
// kolo_torch's process group as it is, with real PyTorch but for its CUDA part: in the place of that stands what the
// tests of kolo_torch put there (tests/c10d/devices), here over the device that does nothing. Its calls and those of
// the C++ API go to one engine, in one world.
#include <chrono>
#include <deque>
#include <vector>

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>

#include <kolo/context.hpp>
#include <kolo/cuda.hpp>

#include "c10d/process_group.hpp"
#include "job.hpp"
#include "tests/c10d/devices/emulated_torch.hpp"
#include "tests/emulated_cuda/emulator.hpp"

/// Nothing is late on this device, so nobody has to be told of an order.
void kolo::emulated::acquire_all() {}

namespace kolo_bench {

struct Job::Impl {
  std::deque<std::vector<at::Tensor>> tensors;  // of calls; they outlive the world, whose end is that of what is open
  const std::shared_ptr<kolo::c10d::World> world = kolo::c10d::World::of(kolo::Context());
  const kolo::ContextGuard calls_without_a_context{world->context()};
  const c10::StreamGuard stream{kolo::c10d::test::new_stream(kolo::cuda::bind())};
  const c10::intrusive_ptr<kolo::c10d::ProcessGroupKolo> group =
      c10::make_intrusive<kolo::c10d::ProcessGroupKolo>(world, std::chrono::minutes(10));
};

Job::Job() : impl_(std::make_unique<Impl>()) {}
Job::~Job() = default;

std::function<void()> Job::by_torch(std::int64_t bytes) {
  const std::int64_t elements = bytes / static_cast<std::int64_t>(sizeof(float));
  auto& tensors = impl_->tensors.emplace_back();
  tensors.push_back(at::empty({elements}, at::TensorOptions(at::kFloat).device(at::kCUDA)));
  return [&tensors, group = impl_->group] { group->allreduce(tensors, {})->wait(); };
}

}  // namespace kolo_bench
