// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>
#include <vector>

#include <kolo/call.hpp>

#include "api/context_impl.hpp"
#include "api/forks.hpp"
#include "api/submit.hpp"

namespace kolo {

namespace {

/// The outputs that the calls give, one for each tensor.
std::vector<detail::RoomGiven> rooms_of(const api::Request& request) {
  std::vector<detail::RoomGiven> rooms;
  rooms.push_back(static_cast<const detail::RoomGiven&>(request.room));
  rooms.insert(rooms.end(), request.more_rooms.begin(), request.more_rooms.end());
  return rooms;
}

}  // namespace

class Prepared::Impl {
 public:
  Impl(const Group& group, std::string_view name, api::Request request)
      : group_(group), engine_(group.impl().shared_engine()),
        signature_(group.set().names.share(std::move(request.signature))), buffers_(std::move(request.buffers)),
        rooms_(rooms_of(request)), splits_(std::move(request.splits)), timeout_(request.timeout),
        device_(request.device), streams_(std::move(request.streams)), entry_(group.set().names.hold(name)) {}
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
    entry_.table.claim_held(entry_);
    if (!engine::try_reuse(operation_)) renew();
    if (entry_.signature != signature_) entry_.signature = signature_;
    if (!streams_.empty()) record();
    engine_->submit(operation_, false);
    return Handle(operation_);
  }

 private:
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
      operation_->splits = splits_;
      operation_->more_rooms.resize(rooms_.size() - 1);
      for (std::size_t i = 0; i < rooms_.size(); ++i) {
        detail::RoomGiven& room = i == 0 ? operation_->room : operation_->more_rooms[i - 1];
        room = rooms_[i];
      }
    } catch (...) {
      entry_.table.give_back(entry_);
      throw;
    }
    operation_->entry = &entry_;
    operation_->signature = signature_;
    operation_->timeout = timeout_;
  }

  const api::Origin origin_ = {};
  const Group group_;  // keeps the group alive
  std::shared_ptr<engine::Engine> engine_;
  const std::shared_ptr<const core::Signature> signature_;
  const engine::Buffers buffers_;
  const std::vector<detail::RoomGiven> rooms_;  // by tensor
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

Prepared prepare(const Group& group, std::string_view name, const Call& call) {
  api::check_name(name);
  const detail::GroupParts parts = group.parts();
  if (call.parts().owns_result) {
    api::refuse(api::kind_of(call.parts()), name,
                "it owns its result, which a prepared request cannot; use the call with _into, and give the output");
  }
  api::Request request = api::make_request(parts.set, name, call);
  parts.engine.check_usable();
  api::settle_device(parts, name, request);
  api::name_members(name, request);
  return Prepared(std::make_unique<Prepared::Impl>(group, name, std::move(request)));
}

}  // namespace kolo
