// SPDX-License-Identifier: Apache-2.0
#include "engine/errands.hpp"

#include <exception>

namespace kolo::engine {

void call_back(const std::function<void(const Status&)>& callback, const Status& status,
               const base::Logger& logger) noexcept {
  try {
    callback(status);
  } catch (const std::exception& error) {
    KOLO_LOG(logger, error) << "an exception left a callback of on_done and was dropped: " << error.what();
  } catch (...) {
    KOLO_LOG(logger, error) << "an exception left a callback of on_done and was dropped";
  }
}

}  // namespace kolo::engine
