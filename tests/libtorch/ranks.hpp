// SPDX-License-Identifier: Apache-2.0
//
// What the tests of kolo::libtorch have in common: ranks, and numbers for tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

namespace kolo::test {

/// Whether ranks are the processes of a job, rather than threads.
inline bool in_job = false;

/// Runs `body` on as many threads as asked for, or on this job's processes.
inline void on_ranks(int threads, const std::function<void()>& body) {
  if (in_job) {
    body();
  } else {
    kolo::run_local(threads, body, kolo::Options{}.with_setting("KOLO_TIMEOUT_S", "60"));
  }
}

/// Numbers that look random and are the same everywhere: LibTorch's generator is one for all threads.
inline torch::Tensor numbers(std::vector<std::int64_t> sizes, double seed, torch::ScalarType type = torch::kDouble) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    count *= size;
  }
  return torch::sin(torch::arange(count, torch::kDouble) * 1.7 + seed).reshape(sizes).to(type);
}

inline void fill(const torch::nn::Module& module, double seed) {
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : module.parameters()) {
    parameter.copy_(0.3 * numbers(parameter.sizes().vec(), ++seed));
  }
}

inline bool same_on_all_ranks(const torch::Tensor& tensor) {
  const torch::Tensor all = kolo::libtorch::allgather(tensor.detach().unsqueeze(0));
  return torch::equal(all, tensor.detach().unsqueeze(0).expand_as(all));
}

}  // namespace kolo::test
