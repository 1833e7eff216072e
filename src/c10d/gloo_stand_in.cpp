// SPDX-License-Identifier: Apache-2.0
#include "c10d/gloo_stand_in.hpp"

#ifdef KOLO_C10D_CAN_STAND_IN
#include <utility>

#include "c10d/errors.hpp"

namespace kolo::c10d {

GlooStandIn::GlooStandIn(c10::intrusive_ptr<ProcessGroupKolo> kolo, std::chrono::milliseconds timeout,
                         MakeGloo make_gloo)
    : LikeGloo(kolo->getRank(), kolo->getSize(), timeout), kolo_(std::move(kolo)), make_gloo_(std::move(make_gloo)) {}

bool GlooStandIn::has_gloo() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<bool>(gloo_);
}

Backend& GlooStandIn::of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return *kolo_;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!gloo_) {
    if (!make_gloo_) {
      raise("gloo", ErrorCode::unsupported,
            "a group that split_group has made under KOLO_AS_GLOO takes tensors of the CPU alone, and this one is on " +
                tensor.device().str() + ": make the group by new_group");
    }
    gloo_ = make_gloo_();
    make_gloo_ = nullptr;
  }
  return *gloo_;
}

template <class Tell>
void GlooStandIn::tell_both(const Tell& tell) {
  tell(static_cast<Backend&>(*kolo_));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gloo_) tell(*gloo_);
}

void GlooStandIn::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  tell_both([&](Backend& backend) { backend.setTimeout(timeout); });
}
void GlooStandIn::abort() {
  tell_both([](Backend& backend) { backend.abort(); });
}
void GlooStandIn::shutdown() {
  tell_both([](Backend& backend) { backend.shutdown(); });
}

c10::intrusive_ptr<Backend> GlooStandIn::split(const c10::intrusive_ptr<::c10d::Store>& store,
                                               const std::vector<int>& ranks,
                                               const c10::intrusive_ptr<Options>& options) {
  const auto part = c10::dynamic_intrusive_pointer_cast<ProcessGroupKolo>(kolo_->split(store, ranks, options));
  if (!part) return nullptr;
  return c10::make_intrusive<GlooStandIn>(part, options->timeout, MakeGloo());
}

}  // namespace kolo::c10d
#endif
