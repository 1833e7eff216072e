// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/open_job.hpp"

namespace kolo::data::cpu {

void OpenJob::open(data::Job& job) {
  job_ = &job;
  cut_ = false;
  opened_.clear();
}

void OpenJob::close() {
  for (std::size_t i = 0; i < opened_.size(); ++i) collectives_.give_back(job_->runs[i].kind, *opened_[i]);
  opened_.clear();
}

bool OpenJob::cut(Chunk& chunk, std::uint64_t taken) {
  while (true) {
    const auto cut = opened_.empty() ? Collective::Cut::end : opened_.back()->cut(chunk, taken);
    if (cut != Collective::Cut::end) return cut == Collective::Cut::chunk;
    if (opened_.size() == job_->runs.size()) break;
    const data::Run& run = job_->runs[opened_.size()];
    opened_.push_back(&collectives_.take(run.kind));
    opened_.back()->open(run, *job_);
  }
  cut_ = true;
  end_ = chunk.number;
  return false;
}

}  // namespace kolo::data::cpu
