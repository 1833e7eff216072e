// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <kolo/call.hpp>

#include "api/access.hpp"
#include "api/context_impl.hpp"
#include "api/forks.hpp"
#include "api/nan_check.hpp"
#include "api/submit.hpp"

namespace kolo {

namespace {

/// The output plans of the request, one for each tensor.
std::vector<detail::OutputPlan> plans_of(const api::Request& request) {
  std::vector<detail::OutputPlan> plans;
  plans.push_back(static_cast<const detail::OutputPlan&>(request.outputs.first));
  plans.insert(plans.end(), request.outputs.others.begin(), request.outputs.others.end());
  return plans;
}

}  // namespace

class Prepared::Impl {
 public:
  Impl(const Group& group, std::string_view name, api::Request request)
      : group_(group), engine_(api::impl_of(group).shared_engine()),
        signature_(api::set_of(group).names.share(std::move(request.signature))), buffers_(std::move(request.buffers)),
        plans_(plans_of(request)), splits_(std::move(request.outputs.splits)), timeout_(request.timeout),
        device_(request.device), streams_(std::move(request.streams)), entry_(api::set_of(group).names.hold(name)) {}
  ~Impl() {
    if (origin_.is_here()) {
      entry_.table.release(entry_);
    } else {
      api::keep_inherited(std::move(engine_));
      api::keep_inherited(std::move(operation_));
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Handle start() {
    origin_.check();
    engine_->check_usable();
    if (engine_->settings().check_nan) check_values();
    entry_.table.claim_held(entry_);
    if (!engine::try_reuse(operation_)) renew();
    if (entry_.signature != signature_) entry_.signature = signature_;
    if (!streams_.empty()) record();
    engine_->submitter().submit(operation_, false);
    return Handle(operation_);
  }

 private:
  void check_values() const {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const ConstTensorView input(buffers_[i].input, signature_->tensors[i].dtype, Shape{buffers_[i].elements},
                                  device_);
      const std::string& name = signature_->names.size() == buffers_.size() ? signature_->names[i] : entry_.name;
      api::refuse_nan(*engine_, {signature_->kind, name}, input, streams_);
    }
  }
  void record() {
    try {
      operation_->ready = api::record(*engine_, device_, streams_);
    } catch (...) {
      entry_.table.give_back(entry_);
      throw;
    }
  }
  void renew() {
    try {
      operation_ = std::make_shared<detail::HandleState>();
      operation_->buffers = buffers_;
      operation_->outputs.splits = splits_;
      operation_->outputs.others.resize(plans_.size() - 1);
      for (std::size_t i = 0; i < plans_.size(); ++i) {
        detail::OutputPlan& plan = i == 0 ? operation_->outputs.first : operation_->outputs.others[i - 1];
        plan = plans_[i];
      }
    } catch (...) {
      entry_.table.give_back(entry_);
      throw;
    }
    operation_->entry = &entry_;
    operation_->name_hash = entry_.hash;
    operation_->signature = signature_;
    operation_->timeout = timeout_;
  }

  const api::Origin origin_ = {};
  const Group group_;  // keeps the group alive
  std::shared_ptr<engine::Engine> engine_;
  const std::shared_ptr<const core::Signature> signature_;
  const engine::Buffers buffers_;
  const std::vector<detail::OutputPlan> plans_;  // by tensor
  const engine::Splits splits_;
  const std::optional<std::chrono::nanoseconds> timeout_;
  const Device device_;
  const std::vector<Stream> streams_;
  engine::Entry& entry_;
  std::shared_ptr<detail::HandleState> operation_;  // reused if no handle holds it
};

Prepared::Prepared() noexcept = default;
Prepared::Prepared(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Prepared::Prepared(Prepared&&) noexcept = default;
Prepared& Prepared::operator=(Prepared&&) noexcept = default;
Prepared::~Prepared() = default;

Handle Prepared::start() {
  if (!impl_)
    throw Error(ErrorCode::invalid_argument, "this prepared request is empty: it was moved from, or never made");
  return impl_->start();
}

Prepared prepare(const Where& where, const Call& call) {
  const Group& group = where.group();
  const std::string_view name = where.name().value_or("");
  api::check_name(name);
  const detail::GroupParts parts = api::parts_of(group);
  if (api::parts_of(call).owns_result) {
    api::refuse({api::parts_of(call).kind, name},
                "it owns its result, which a prepared request cannot; use the call with _into, and give the output");
  }
  api::Request request = api::make_request(parts.set, name, call);
  parts.engine.check_usable();
  api::prepare_device(parts, name, request);
  api::name_members(name, request);
  return Prepared(std::make_unique<Prepared::Impl>(group, name, std::move(request)));
}

}  // namespace kolo
