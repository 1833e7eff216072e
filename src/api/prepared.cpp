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

class Prepared::Impl {
 public:
  Impl(const Group& group, std::string_view name, api::Request request)
      : group_(group), engine_(api::impl_of(group).shared_engine()),
        signature_(api::set_of(group).names.share(std::move(request.signature))), request_(std::move(request)),
        entry_(api::set_of(group).names.hold(name)) {}
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
    if (!request_.streams.empty()) record();
    engine_->submitter().submit(operation_, false);
    return Handle(operation_);
  }

 private:
  void check_values() const {
    for (std::size_t i = 0; i < request_.buffers.size(); ++i) {
      const ConstTensorView input(request_.buffers[i].input, signature_->tensors[i].dtype,
                                  Shape{request_.buffers[i].elements}, request_.device);
      const std::string& name =
          signature_->names.size() == request_.buffers.size() ? signature_->names[i] : entry_.name;
      api::refuse_nan(*engine_, {signature_->kind, name}, input, request_.streams);
    }
  }
  void record() {
    try {
      operation_->ready = api::record(*engine_, request_.device, request_.streams);
    } catch (...) {
      entry_.table.give_back(entry_);
      throw;
    }
  }
  void renew() {
    try {
      operation_ = std::make_shared<detail::HandleState>();
      operation_->buffers = request_.buffers;
      detail::Outputs& outputs = operation_->outputs;
      outputs.splits = request_.outputs.splits;
      const auto copy = [](detail::OutputPlan& to, const detail::OutputPlan& from) { to = from; };
      copy(outputs.first, request_.outputs.first);
      outputs.others.resize(request_.outputs.others.size());
      for (std::size_t i = 0; i < outputs.others.size(); ++i) copy(outputs.others[i], request_.outputs.others[i]);
    } catch (...) {
      entry_.table.give_back(entry_);
      throw;
    }
    operation_->entry = &entry_;
    operation_->name_hash = entry_.hash;
    operation_->signature = signature_;
    operation_->timeout = request_.timeout;
  }

  const api::Origin origin_ = {};
  const Group group_;  // keeps the group alive
  std::shared_ptr<engine::Engine> engine_;
  const std::shared_ptr<const core::Signature> signature_;
  const api::Request request_;  // the rest of it
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
