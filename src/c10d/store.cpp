// SPDX-License-Identifier: Apache-2.0
#include "c10d/store.hpp"

#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace kolo::c10d {

MeetingStore::MeetingStore(c10::intrusive_ptr<::c10d::Store> store) : store_(std::move(store)) { prepare(*store_); }

void MeetingStore::set(const std::string& key, const std::string& value) {
  store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::optional<std::string> MeetingStore::get(const std::string& key, std::chrono::nanoseconds timeout) {
  if (!store_->check({key})) {
    // Zero means "for ever" to PyTorch's stores, and they warn of a wait that ends without the key.
    if (timeout <= std::chrono::nanoseconds::zero()) return std::nullopt;
    try {
      store_->wait({key}, std::chrono::ceil<std::chrono::milliseconds>(timeout));
    } catch (const std::exception&) {
      // Stores have no exception of their own for a key that does not come; one that fails does so again here.
      if (!store_->check({key})) return std::nullopt;
    }
  }
  const std::vector<std::uint8_t> value = store_->get(key);
  return std::string(value.begin(), value.end());
}

}  // namespace kolo::c10d
