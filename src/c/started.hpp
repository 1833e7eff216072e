// SPDX-License-Identifier: Apache-2.0
//
// Operations that C has started.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <kolo/handle.hpp>
#include <kolo/kolo.h>

#include "c/objects.hpp"

namespace kolo::c {

/// A future of what the handle waits for; the handle is then empty.
template <class Result>
Future<Result> future_of(Handle& handle) {
  Future<Result> future;
  static_cast<Handle&>(future) = std::move(handle);
  return future;
}

/// Starts an operation, and gives its handle to C. Nothing can fail once it has been started.
template <class Start>
kolo_status started(kolo_handle** handle, std::function<void(Handle&)> write_outputs, const Start& start,
                    bool is_receive = false) {
  auto made = std::make_unique<kolo_handle>();
  made->write_outputs = std::move(write_outputs);
  made->is_receive = is_receive;
  made->handle = start();
  *handle = made.release();
  return KOLO_OK;
}

}  // namespace kolo::c
