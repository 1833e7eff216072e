// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "base/check.hpp"
#include "engine/name_table.hpp"

namespace kolo::engine {
namespace {

/// By RunRoute.
constexpr std::array<std::pair<recorder::BatchRoutes, std::uint64_t Metrics::*>, 5> kRoutes{
    {{recorder::kDevice, &Metrics::bytes_on_device},
     {recorder::kAlone, &Metrics::bytes_alone},
     {recorder::kFlat, &Metrics::bytes_flat},
     {recorder::kSlots, &Metrics::bytes_slots},
     {recorder::kBetweenNodes, &Metrics::bytes_between_nodes}}};

/// 0: they are in the other order, as where a look at the clock is older than a submission.
std::uint64_t nanoseconds_between(base::Time begin, base::Time end) noexcept {
  return static_cast<std::uint64_t>(std::max(end - begin, base::Duration::zero()).count());
}

std::string label_of(const Batch& batch) {
  const Entry* const first = batch.members.front()->entry;
  const std::string name = first == nullptr || first->name.empty() ? "a call without a name" : first->name;
  return batch.members.size() == 1 ? name : name + " and " + std::to_string(batch.members.size() - 1) + " more";
}

bool is_on_device(const OperationPtr& operation) { return operation->signature->device != DeviceKind::cpu; }

}  // namespace

Executor::Executor(std::unique_ptr<data::Backend> world, data::DeviceBackend* device, std::int64_t world_size)
    : world_(sets_.emplace(core::kGlobalSet, Pipeline{std::move(world), world_size}).first->second), device_(device) {
  if (device_ == nullptr) return;
  device_->set_enqueued([this](data::Job& job, const data::DeviceEventPtr& event) {
    Batch& batch = *static_cast<Batch*>(job.cookie);
    note_outcomes(batch);
    unheard_.push_back(&batch);
    for (std::size_t i = 0; i < batch.members.size(); ++i) {
      if (!batch.outcome_of(i).ok()) continue;  // there is no result to go on with: its end tells
      enqueued_(*batch.members[i], event);
    }
  });
}

void Executor::add_set(core::SetId set, std::unique_ptr<data::Backend> backend, std::int64_t size) {
  sets_.emplace(set, Pipeline{std::move(backend), size});
}

void Executor::remove_set(core::SetId set) {
  KOLO_CHECK(pipeline_of(set).open == 0) << "process set " << set;
  sets_.erase(set);
  if (device_ == nullptr) return;
  Batch& end = take();
  end.job.set = set;
  end.job.runs.clear();
  end.on_device = true;
  end.ends_set = true;
  if (device_->remove_set(end.job)) {
    ++open_on_device_;
  } else {
    recycle(end);
  }
}

void Executor::run(core::SetId set, std::vector<OperationPtr> members, const How& how) {
  const std::uint32_t serial = ++pipeline_of(set).begun;
  const auto on_device = static_cast<std::size_t>(std::count_if(members.begin(), members.end(), is_on_device));
  if (on_device == 0 || on_device == members.size()) {
    run_part(set, std::move(members), on_device > 0, how, serial);
    return;
  }
  const auto middle = std::stable_partition(members.begin(), members.end(), is_on_device);
  std::vector<OperationPtr> others(std::make_move_iterator(middle), std::make_move_iterator(members.end()));
  members.erase(middle, members.end());
  Batch& first = run_part(set, std::move(members), true, how, serial);
  Batch& second = run_part(set, std::move(others), false, how, serial);
  first.sibling = &second;
  second.sibling = &first;
}

Batch& Executor::run_part(core::SetId set, std::vector<OperationPtr> members, bool on_device, const How& how,
                          std::uint32_t serial) {
  Batch& batch = take();
  batch.absence = how.absence.value_or(Absence());
  batch.job.set = set;
  batch.job.some_are_absent = how.absence.has_value();
  batch.job.is_absent = batch.absence.is_own;
  batch.members = std::move(members);
  batch.on_device = on_device;
  batch.job.timeline = on_device && recorder_ != nullptr ? recorder_->sink_number() : 0;
  batch.serial = serial;
  if (recorder_ != nullptr) record_begun(batch, how);
  data::Layout once;
  const data::Layout& layout = layout_for(batch, how.plan_key, how.number, once);
  fill(batch, layout);
  Pipeline& pipeline = pipeline_of(set);
  if (started_)
    started_(batch, layout, how.plan_key, on_device ? static_cast<data::Backend&>(*device_) : *pipeline.backend);
  if (batch.job.runs.empty()) {  // barriers: that they are in the log says that all have come
    ready_.push_back(&batch);
  } else if (on_device) {
    if (device_->wants_labels()) batch.job.label = label_of(batch);
    ++open_on_device_;
    device_->start(batch.job);
  } else {
    if (pipeline.open++ == 0) busy_.push_back(&pipeline);
    ++open_;
    pipeline.backend->start(batch.job);
  }
  return batch;
}

void Executor::record_begun(Batch& batch, const How& how) {
  using recorder::Kind;
  batch.begun = recorder_->time();
  tally_->requests_of_batches.add(batch.members.size());
  for (std::size_t i = 0; !batch.absence.is_own && i < batch.members.size(); ++i)
    tally_->negotiations.add(nanoseconds_between(batch.members[i]->waiting.since, batch.begun));
  if (!recorder_->is_on()) return;
  const Operation& first = *batch.members.front();
  const bool is_unnamed = first.name_hash == 0;
  const auto flags = static_cast<std::uint8_t>(
      (how.plan_key != 0 ? recorder::kPlanned : 0) | (batch.on_device ? recorder::kOnDevice : 0) |
      (is_unnamed ? recorder::kUnnamed : 0) | (batch.absence.is_own ? recorder::kAbsent : 0));
  recorder_->record(Kind::batch_begun, batch.job.set, is_unnamed ? first.call : first.name_hash, batch.serial,
                    recorder::saturated(batch.members.size()), flags, how.last);
  if (is_unnamed) return;
  for (std::size_t i = 1; i < batch.members.size(); ++i)
    recorder_->record(Kind::batch_member, batch.job.set, batch.members[i]->name_hash, batch.serial);
}

const data::Layout& Executor::layout_for(const Batch& batch, std::uint32_t plan_key, std::uint32_t number,
                                         data::Layout& once) {
  const PartNumber part{number, batch.on_device};
  if (plan_key != 0) {
    const auto plan = plans_.find(plan_key);
    if (plan != plans_.end()) {
      const auto layout = plan->second.find(part);
      if (layout != plan->second.end()) return layout->second;
    }
  }
  std::vector<const core::Signature*> signatures;
  signatures.reserve(batch.members.size());
  for (const OperationPtr& member : batch.members) signatures.push_back(member->signature.get());
  data::Layout& layout = plan_key == 0 ? once : plans_[plan_key][part];
  layout = data::make_layout(signatures,
                             pipeline_of(batch.job.set).size - static_cast<std::int64_t>(batch.absence.uncounted));
  return layout;
}

void Executor::fill(Batch& batch, const data::Layout& layout) {
  batch.job.ready.clear();
  for (std::size_t i = 0; batch.on_device && i < batch.members.size(); ++i) {
    std::vector<data::DeviceEventPtr>& ready = batch.members[i]->ready;
    std::move(ready.begin(), ready.end(), std::back_inserter(batch.job.ready));
    ready.clear();
  }
  batch.job.runs.resize(layout.runs.size());
  for (std::size_t i = 0; i < layout.runs.size(); ++i) {
    const data::RunLayout& planned = layout.runs[i];
    data::Run& run = batch.job.runs[i];
    std::vector<data::Piece> pieces = std::move(run.pieces);
    run = planned.prototype;
    pieces.clear();
    for (const data::Placed& placed : planned.pieces) {
      const Operation& member = *batch.members[placed.member];
      const Buffer& buffer = member.buffers[placed.tensor];
      pieces.push_back({buffer.input, buffer.output, buffer.elements, member.signature->tensors[placed.tensor].place});
    }
    run.pieces = std::move(pieces);
    const core::CollectiveTraits& traits = core::traits_of(run.kind);
    if (!traits.rows_differ) {
      if (traits.shapes == core::Shapes::gathered)  // the CPU's backend has one way for both
        run.allocate = [output = run.pieces.front().output](const std::vector<std::int64_t>&) { return output; };
      continue;
    }
    const data::Placed& only = planned.pieces.front();
    Operation* operation = batch.members[only.member].get();
    run.elements = run.pieces.front().elements;
    run.splits = operation->splits_of(only.tensor);
    run.received_splits = operation->received_splits_of(only.tensor);
    run.allocate = [operation, tensor = only.tensor](const std::vector<std::int64_t>& parts) {
      return operation->allocate_output(tensor, parts);
    };
    if (batch.absence.is_own) run.allocate = [](const std::vector<std::int64_t>&) { return nullptr; };
    batch.member_of.resize(layout.runs.size());
    batch.runs_open.resize(batch.members.size());
    batch.member_of[i] = only.member;
    ++batch.runs_open[only.member];
  }
  if (batch.member_of.empty() || batch.absence.is_own) return;
  batch.outcomes.resize(batch.members.size());
  batch.job.run_over = [this](data::Job& job, std::size_t run) { note_over(*static_cast<Batch*>(job.cookie), run); };
}

void Executor::count(Batch& batch) {
  const auto kind = batch.job.runs.empty() ? core::CollectiveKind::barrier : batch.job.runs.front().kind;
  tally_->note_batch(kind, nanoseconds_between(batch.begun, recorder_->time()));
  const data::Backend& cpu = *pipeline_of(batch.job.set).backend;
  std::uint64_t all = 0;
  for (const data::Run& run : batch.job.runs) {
    const auto bytes = static_cast<std::uint64_t>(run.elements) * size_of(run.dtype);
    all += bytes;
    const data::RunRoute route = batch.on_device ? data::RunRoute::device : cpu.route(run);
    const auto& [word, counter] = kRoutes[static_cast<std::size_t>(route)];
    batch.routes |= word;
    if (run.kind != core::CollectiveKind::message) tally_->*counter += bytes;  // that is counted as a message
  }
  tally_->bytes_of_batches.add(all);
}

void Executor::note_over(Batch& batch, std::size_t run) {
  const std::uint32_t member = batch.member_of[run];
  Status& outcome = batch.outcomes[member];
  if (outcome.ok()) outcome = batch.job.runs[run].status;
  if (--batch.runs_open[member] == 0) over_.push_back({std::move(batch.members[member]), outcome});
}

/// The job is finished, with all its runs.
void Executor::note_outcomes(Batch& batch) {
  if (batch.outcomes.empty()) return;
  for (std::size_t run = 0; run < batch.member_of.size(); ++run) {
    Status& outcome = batch.outcomes[batch.member_of[run]];
    if (outcome.ok()) outcome = batch.job.runs[run].status;
  }
}

/// A ring costs two calls and a thread's waking, so only those get one for which a thread sleeps, or waits to be
/// called.
void Executor::ring_for_waiters() {
  const auto is_awaited = [](const Batch* batch) {
    return std::any_of(batch->members.begin(), batch->members.end(),
                       [](const OperationPtr& member) { return member && member->host_waits(); });
  };
  const auto awaited =
      std::stable_partition(unheard_.begin(), unheard_.end(), [&](const Batch* batch) { return !is_awaited(batch); });
  for (auto batch = awaited; batch != unheard_.end(); ++batch) device_->ring_at_end((*batch)->job);
  unheard_.erase(awaited, unheard_.end());
}

data::Progress Executor::move_busy() {
  data::Progress result = data::Progress::idle;
  for (std::size_t i = 0; i < busy_.size();) {
    Pipeline& pipeline = *busy_[i];
    const std::uint64_t before = pipeline.open;
    result = std::max(result, move(*pipeline.backend, pipeline.open));
    open_ -= before - pipeline.open;
    if (pipeline.open > 0) {
      ++i;
      continue;
    }
    busy_[i] = busy_.back();
    busy_.pop_back();
  }
  return result;
}

Batch& Executor::take() {
  if (free_.empty()) {
    batches_.push_back(std::make_unique<Batch>());
    free_.push_back(batches_.back().get());
  }
  Batch& batch = *free_.back();
  free_.pop_back();
  batch.job.cookie = &batch;
  return batch;
}

void Executor::recycle(Batch& batch) {
  if (batch.sibling != nullptr) batch.sibling->sibling = nullptr;
  batch.sibling = nullptr;
  batch.ends_set = false;
  batch.routes = 0;
  batch.members.clear();
  batch.member_of.clear();
  batch.runs_open.clear();
  batch.outcomes.clear();
  batch.job.run_over = nullptr;
  batch.status = Status();
  batch.job.status = Status();
  batch.job.bytes_in_place = 0;
  batch.job.timeline = 0;
  batch.job.spans.clear();
  batch.job.untimed.clear();
  for (data::Run& run : batch.job.runs) run.allocate = nullptr;
  free_.push_back(&batch);
}

void Executor::account(control::Answer& answer) const {
  if (open_ == 0 && open_on_device_ == 0) return;
  bool is_known = true;
  const auto add = [&](const data::Backend& backend) {
    const std::optional<std::vector<int>> ranks = backend.awaited();
    is_known = is_known && ranks.has_value();
    if (ranks) answer.awaited.insert(answer.awaited.end(), ranks->begin(), ranks->end());
  };
  for (const Pipeline* pipeline : busy_) add(*pipeline->backend);
  if (open_on_device_ > 0) add(*device_);
  std::sort(answer.awaited.begin(), answer.awaited.end());
  answer.awaited.erase(std::unique(answer.awaited.begin(), answer.awaited.end()), answer.awaited.end());
  answer.doing = is_known && answer.awaited.empty() ? control::Doing::standing : control::Doing::waiting;
}

void Executor::abort_on_cpu() noexcept {
  for (auto& [set, pipeline] : sets_) pipeline.backend->abort();
}

void Executor::abort_on_device() noexcept {
  if (device_ != nullptr) device_->abort();
}

void Executor::forget() noexcept {
  for (auto& [set, pipeline] : sets_) pipeline.open = 0;
  busy_.clear();
  open_ = 0;
  open_on_device_ = 0;
  unheard_.clear();
  ready_.clear();
}

void Executor::drop() noexcept {
  for (const std::unique_ptr<Batch>& batch : batches_) batch->members.clear();
  over_.clear();
}

}  // namespace kolo::engine
