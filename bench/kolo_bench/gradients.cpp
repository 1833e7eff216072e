// SPDX-License-Identifier: Apache-2.0
#include "gradients.hpp"

#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

#include "mpi_peer.hpp"

namespace kolo_bench {
namespace {

/// Of one step.
class Watch {
 public:
  explicit Watch(HostTimes* times) : times_(times) {}
  void submitted() const {
    if (times_ != nullptr) times_->submitted.push_back(so_far());
  }
  void ended() const {
    if (times_ != nullptr) times_->step.push_back(so_far());
  }

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] double so_far() const {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin_).count();
  }

  HostTimes* const times_;
  const Clock::time_point begin_ = Clock::now();
};

std::function<void()> submit_by_name(const std::shared_ptr<Gradients>& gradients,
                                     const std::shared_ptr<HostTimes>& times) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < gradients->size(); ++i) names.push_back(gradients->name("gradient", i));
  return [gradients, names, times] {
    std::vector<kolo::Handle>& handles = gradients->begin_step();
    const Watch watch(times.get());
    handles.reserve(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      handles.push_back(kolo::allreduce_async(names[i], gradients->backward(i).view(), gradients->options()));
    }
    watch.submitted();
    gradients->finish_step();
    kolo::end_step();
    watch.ended();
  };
}

std::function<void()> submit_unnamed(const std::shared_ptr<Gradients>& gradients,
                                     const std::shared_ptr<HostTimes>& times) {
  return [gradients, times] {
    std::vector<kolo::Handle>& handles = gradients->begin_step();
    const Watch watch(times.get());
    handles.reserve(gradients->size());
    for (std::size_t i = 0; i < gradients->size(); ++i) {
      handles.push_back(kolo::allreduce_async(gradients->backward(i).view(), gradients->options()));
    }
    watch.submitted();
    gradients->finish_step();
    kolo::end_step();
    watch.ended();
  };
}

std::function<void()> submit_prepared(const std::shared_ptr<Gradients>& gradients,
                                      const std::shared_ptr<HostTimes>& times) {
  auto prepared = std::make_shared<std::vector<kolo::Prepared>>();
  for (std::size_t i = 0; i < gradients->size(); ++i) {
    prepared->push_back(kolo::prepare(gradients->name("prepared", i),
                                      kolo::Call::allreduce(gradients->backward(i).view(), gradients->options())));
  }
  return [gradients, prepared, times] {
    std::vector<kolo::Handle>& handles = gradients->begin_step();
    const Watch watch(times.get());
    handles.reserve(prepared->size());
    for (kolo::Prepared& one : *prepared) handles.push_back(one.start());
    watch.submitted();
    gradients->finish_step();
    kolo::end_step();
    watch.ended();
  };
}

std::function<void()> submit_grouped(const std::shared_ptr<Gradients>& gradients,
                                     const std::shared_ptr<HostTimes>& times) {
  std::vector<kolo::NamedView> members;
  for (std::size_t i = 0; i < gradients->size(); ++i) {
    members.push_back({gradients->name("member", i), gradients->backward(i).view()});
  }
  auto prepared = std::make_shared<kolo::Prepared>(
      kolo::prepare("gradients", kolo::Call::grouped_allreduce(members, gradients->options())));
  return [gradients, prepared, times] {
    std::vector<kolo::Handle>& handles = gradients->begin_step();
    const Watch watch(times.get());
    handles.push_back(prepared->start());
    watch.submitted();
    gradients->finish_step();
    kolo::end_step();
    watch.ended();
  };
}

std::function<void()> mpi_per_tensor(const std::shared_ptr<Gradients>& gradients) {
  return [gradients] {
    for (std::size_t i = 0; i < gradients->size(); ++i) {
      mpi_allreduce_in_place(gradients->backward(i), gradients->op(), gradients->ranks());
    }
  };
}

/// From the packed buffer, divided where an average is wanted: one pass.
void unpack(const float* packed, Buffer& buffer, float divisor) {
  auto* out = static_cast<float*>(buffer.data());
  if (divisor == 1) {
    std::memcpy(out, packed, static_cast<std::size_t>(buffer.bytes()));
  } else {
    for (std::int64_t k = 0; k < buffer.elements(); ++k) out[k] = packed[k] / divisor;
  }
}

std::function<void()> mpi_packed(const std::shared_ptr<Gradients>& gradients) {
  auto packed = std::make_shared<Buffer>(kolo::DType::float32, gradients->elements());
  return [gradients, packed] {
    auto* next = static_cast<float*>(packed->data());
    for (std::size_t i = 0; i < gradients->size(); ++i) {
      Buffer& buffer = gradients->backward(i);
      std::memcpy(next, buffer.data(), static_cast<std::size_t>(buffer.bytes()));
      next += buffer.elements();
    }
    mpi_allreduce_in_place(*packed, kolo::ReduceOp::sum, gradients->ranks());
    next = static_cast<float*>(packed->data());
    const float divisor = gradients->op() == kolo::ReduceOp::average ? static_cast<float>(gradients->ranks()) : 1;
    for (std::size_t i = 0; i < gradients->size(); ++i) {
      Buffer& buffer = gradients->backward(i);
      unpack(next, buffer, divisor);
      next += buffer.elements();
    }
  };
}

}  // namespace

Gradients::Gradients(const Flags& flags, int rank, int ranks, std::shared_ptr<Device> device)
    : op_(flags.ops.front()), rank_(rank), ranks_(ranks), device_(std::move(device)) {
  constexpr kolo::DType kType = kolo::DType::float32;
  std::size_t room = 0;
  for (const std::int64_t elements : flags.model.tensors) {
    room += kolo::GradientArena::room_for(kType, kolo::Shape{elements});
  }
  const auto arena = flags.arena ? make_arena(room, device_) : nullptr;
  for (const std::int64_t elements : flags.model.tensors) {
    if (arena) {
      buffers_.emplace_back(kType, elements, arena, device_);
    } else {
      buffers_.emplace_back(kType, elements, device_);
    }
  }
}

void Gradients::fill() {
  for (Buffer& buffer : buffers_) fill_input(buffer, op_, rank_, ranks_);
}

std::int64_t Gradients::count_wrong() {
  std::int64_t wrong = 0;
  for (Buffer& buffer : buffers_) wrong += count_wrong_reduction(buffer, op_, ranks_);
  return wrong;
}

std::vector<kolo::Handle>& Gradients::begin_step() {
  if (device_) kolo::wait_all(handles_);
  handles_.clear();
  return handles_;
}

void Gradients::finish_step() {
  if (!device_) return kolo::wait_all(handles_);
  for (kolo::Handle& handle : handles_) device_->follow(handle);
}

std::string Gradients::name(const std::string& prefix, std::size_t i) const {
  return prefix + " " + std::to_string(buffers_.size() - 1 - i);
}

std::int64_t Gradients::elements() const {
  return std::accumulate(buffers_.begin(), buffers_.end(), std::int64_t{0},
                         [](std::int64_t sum, const Buffer& buffer) { return sum + buffer.elements(); });
}

std::function<void()> step_by_kolo(const std::shared_ptr<Gradients>& gradients, Submission submission,
                                   const std::shared_ptr<HostTimes>& times) {
  switch (submission) {
  case Submission::by_name:
    return submit_by_name(gradients, times);
  case Submission::unnamed:
    return submit_unnamed(gradients, times);
  case Submission::prepared:
    return submit_prepared(gradients, times);
  case Submission::grouped:
    break;
  }
  return submit_grouped(gradients, times);
}

std::function<void()> step_by_nccl(const std::shared_ptr<Gradients>& gradients, Baseline baseline,
                                   const std::shared_ptr<Peer>& nccl) {
  const bool grouped = baseline == Baseline::nccl_grouped;
  return [gradients, nccl, grouped] {
    if (grouped) nccl->begin_group();
    for (std::size_t i = 0; i < gradients->size(); ++i) {
      nccl->allreduce(gradients->backward(i), gradients->backward(i), gradients->op());
    }
    if (grouped) nccl->end_group();
  };
}

std::function<void()> step_by_mpi(const std::shared_ptr<Gradients>& gradients, Baseline baseline) {
  return baseline == Baseline::mpi_packed ? mpi_packed(gradients) : mpi_per_tensor(gradients);
}

}  // namespace kolo_bench
