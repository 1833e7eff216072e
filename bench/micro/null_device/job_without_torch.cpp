// SPDX-License-Identifier: Apache-2.0
#include <kolo/cuda.hpp>
#include <kolo/kolo.hpp>

#include "job.hpp"

namespace kolo_bench {

struct Job::Impl {
  const kolo::Session session;
};

Job::Job() : impl_(std::make_unique<Impl>()) { kolo::cuda::bind(); }
Job::~Job() = default;

std::function<void()> Job::by_torch(std::int64_t /*bytes*/) { return {}; }

}  // namespace kolo_bench
