// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string_view>

#include <kolo/kolo.h>
#include <kolo/lightgbm.hpp>

#include "c/arguments.hpp"
#include "c/guard.hpp"

using namespace kolo::c;

kolo_status kolo_lightgbm_attach(const kolo_group* group) {
  return guarded([&] { kolo::lightgbm::attach(given_group(group)); });
}

uint64_t kolo_lightgbm_calls(void) { return kolo::lightgbm::calls(); }

kolo_status kolo_lightgbm_end_training(const char* reason) {
  return guarded([&] { kolo::lightgbm::end_training(reason == nullptr ? std::string_view() : reason); });
}

kolo_status kolo_lightgbm_detach(void) {
  return guarded([&] { kolo::lightgbm::detach(); });
}
