// SPDX-License-Identifier: Apache-2.0
#include "base/thread_name.hpp"

#include <array>

#include <pthread.h>

#include "base/check.hpp"

namespace kolo::base {

void set_thread_name(std::string_view name) {
  const std::string kept(name.substr(0, 15));
  const int error = ::pthread_setname_np(::pthread_self(), kept.c_str());
  KOLO_CHECK(error == 0) << "pthread_setname_np: errno " << error;
}

std::string thread_name() {
  std::array<char, 16> name{};
  const int error = ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  KOLO_CHECK(error == 0) << "pthread_getname_np: errno " << error;
  return name.data();
}

}  // namespace kolo::base
