// SPDX-License-Identifier: Apache-2.0
//
// A step's gradients: all averaged, float32. By Kolo in backward order (the last layer first) with all handles open at
// once; by MPI tensor by tensor, or packed into one buffer, as a program without Kolo would.
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "data.hpp"
#include "modes.hpp"
#include "mpi_peer.hpp"

namespace kolo_bench {
namespace {

constexpr kolo::ReduceOp kOp = kolo::ReduceOp::average;

/// The gradients of one rank.
class Gradients {
 public:
  Gradients(const Model& model, int rank, int ranks) : rank_(rank), ranks_(ranks) {
    for (const std::int64_t elements : model.tensors) buffers_.emplace_back(kolo::DType::float32, elements);
    for (std::size_t i = 0; i < buffers_.size(); ++i) names_.push_back("gradient " + std::to_string(i));
  }

  void fill() {
    for (Buffer& buffer : buffers_) fill_input(buffer, kOp, rank_, ranks_);
  }
  [[nodiscard]] std::int64_t count_wrong() {
    std::int64_t wrong = 0;
    for (Buffer& buffer : buffers_) wrong += count_wrong_reduction(buffer, kOp, ranks_);
    return wrong;
  }
  [[nodiscard]] std::vector<Buffer>& buffers() { return buffers_; }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  const int rank_;
  const int ranks_;
  std::vector<Buffer> buffers_;
  std::vector<std::string> names_;
};

kolo::AllreduceOptions averaging() { return kolo::AllreduceOptions{}.with_op(kOp); }

std::function<void()> submit_by_name(const std::shared_ptr<Gradients>& gradients) {
  return [gradients] {
    std::vector<kolo::Handle> handles;
    handles.reserve(gradients->buffers().size());
    for (std::size_t i = gradients->buffers().size(); i-- > 0;) {
      handles.push_back(kolo::allreduce_async(gradients->names()[i], gradients->buffers()[i].view(), averaging()));
    }
    kolo::wait_all(handles);
    kolo::end_step();
  };
}

std::function<void()> submit_prepared(const std::shared_ptr<Gradients>& gradients) {
  auto prepared = std::make_shared<std::vector<kolo::Prepared>>();
  for (std::size_t i = gradients->buffers().size(); i-- > 0;) {
    prepared->push_back(kolo::prepare_allreduce(gradients->names()[i], gradients->buffers()[i].view(), averaging()));
  }
  return [gradients, prepared] {
    std::vector<kolo::Handle> handles;
    handles.reserve(prepared->size());
    for (kolo::Prepared& one : *prepared) handles.push_back(one.start());
    kolo::wait_all(handles);
    kolo::end_step();
  };
}

std::function<void()> submit_grouped(const std::shared_ptr<Gradients>& gradients) {
  std::vector<kolo::NamedView> members;
  for (std::size_t i = gradients->buffers().size(); i-- > 0;) {
    members.push_back({gradients->names()[i], gradients->buffers()[i].view()});
  }
  auto prepared = std::make_shared<kolo::Prepared>(kolo::prepare_grouped_allreduce("gradients", members, averaging()));
  return [gradients, prepared] {
    prepared->start().wait();
    kolo::end_step();
  };
}

std::function<void()> mpi_per_tensor(const std::shared_ptr<Gradients>& gradients, int ranks) {
  return [gradients, ranks] {
    for (std::size_t i = gradients->buffers().size(); i-- > 0;) {
      mpi_allreduce_in_place(gradients->buffers()[i], kOp, ranks);
    }
  };
}

std::function<void()> mpi_packed(const std::shared_ptr<Gradients>& gradients, std::int64_t elements, int ranks) {
  auto packed = std::make_shared<Buffer>(kolo::DType::float32, elements);
  return [gradients, packed, ranks] {
    auto* next = static_cast<std::byte*>(packed->data());
    for (Buffer& buffer : gradients->buffers()) {
      std::memcpy(next, buffer.data(), static_cast<std::size_t>(buffer.bytes()));
      next += buffer.bytes();
    }
    mpi_allreduce_in_place(*packed, kOp, ranks);
    next = static_cast<std::byte*>(packed->data());
    for (Buffer& buffer : gradients->buffers()) {
      std::memcpy(buffer.data(), next, static_cast<std::size_t>(buffer.bytes()));
      next += buffer.bytes();
    }
  };
}

}  // namespace

void run_step(Job& job, const Flags& flags, Report& report) {
  const Model& model = flags.model;
  const std::int64_t elements = std::accumulate(model.tensors.begin(), model.tensors.end(), std::int64_t{0});
  auto gradients = std::make_shared<Gradients>(model, job.rank(), job.size());
  const auto add = [&](std::vector<Contestant>& contestants, const std::string& name, std::function<void()> call) {
    contestants.push_back(
        {name, [gradients] { gradients->fill(); }, std::move(call), [gradients] { return gradients->count_wrong(); }});
  };
  std::vector<Contestant> contestants;
  if (!flags.peer_only) {
    add(contestants, "kolo",
        flags.submit == "prepared"  ? submit_prepared(gradients)
        : flags.submit == "grouped" ? submit_grouped(gradients)
                                    : submit_by_name(gradients));
  }
  for (const Baseline baseline : flags.baselines) {
    if (baseline == Baseline::mpi_packed) check_mpi_can(kolo::DType::float32, kOp, elements);
    add(contestants, to_string(baseline),
        baseline == Baseline::mpi_packed ? mpi_packed(gradients, elements, job.size())
                                         : mpi_per_tensor(gradients, job.size()));
  }
  Row row;
  row.collective = "step";
  row.bytes = elements * static_cast<std::int64_t>(sizeof(float));
  row.count = elements;
  row.dtype = "float32";
  row.op = std::string(to_string(kOp));
  row.bus_factor = 2.0 * (job.size() - 1) / job.size();
  row.model = model.name;
  row.tensors = static_cast<std::int64_t>(model.tensors.size());
  report.add(row, measure(job, flags, std::move(contestants)));
}

}  // namespace kolo_bench
