// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/host_plane.hpp"

#include <numeric>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"

namespace kolo::cuda {

void HostPlane::start(data::Job& job, std::function<void()> done) {
  open_.emplace(&job, std::move(done));
  backend_->start(job);
}

bool HostPlane::progress() {
  if (open_.empty()) return false;
  finished_.clear();
  const bool moved = backend_->progress(finished_) == data::Progress::advanced;
  for (const data::Job* job : finished_) {
    const std::function<void()> done = std::move(open_.extract(job).mapped());
    for (const data::Run& run : job->runs)
      if (!run.status.ok()) throw Error(run.status);
    done();
  }
  return moved || !finished_.empty();
}

void HostPlane::abort() noexcept {
  backend_->abort();
  open_.clear();
}

void Exchange::start(std::string mine) {
  KOLO_CHECK(!started_);
  started_ = true;
  done_ = false;
  mine_ = std::move(mine);
  data::Run run;
  run.kind = core::CollectiveKind::allgather;
  run.dtype = DType::uint8;
  run.elements = static_cast<std::int64_t>(mine_.size());
  run.pieces = {{reinterpret_cast<const std::byte*>(mine_.data()), nullptr, run.elements}};
  run.allocate = [this](const std::vector<std::int64_t>& bytes) {
    lengths_ = bytes;
    all_.resize(static_cast<std::size_t>(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0})));
    return reinterpret_cast<std::byte*>(all_.data());
  };
  job_.runs.clear();
  job_.runs.push_back(std::move(run));
  job_.status = Status();
  plane_.start(job_, [this] { done_ = true; });
}

std::vector<std::string> Exchange::take() {
  KOLO_CHECK(done_);
  started_ = false;
  done_ = false;
  std::vector<std::string> said;
  std::size_t at = 0;
  for (const std::int64_t length : lengths_) {
    said.push_back(all_.substr(at, static_cast<std::size_t>(length)));
    at += static_cast<std::size_t>(length);
  }
  return said;
}

}  // namespace kolo::cuda
