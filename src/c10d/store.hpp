// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's store as the place where Kolo's ranks meet.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <kolo/store.hpp>

#include "c10d/versions.hpp"

namespace kolo::c10d {

class MeetingStore final : public Store {
 public:
  explicit MeetingStore(c10::intrusive_ptr<::c10d::Store> store);
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key, std::chrono::nanoseconds timeout) override;

 private:
  c10::intrusive_ptr<::c10d::Store> store_;
};

}  // namespace kolo::c10d
