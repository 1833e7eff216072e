// SPDX-License-Identifier: Apache-2.0
//
// Waiting for operations, and what else can be done with their handles.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <kolo/detail/duration.hpp>
#include <kolo/handle.hpp>
#include <kolo/kolo.h>
#include <kolo/point_to_point.hpp>

#include "c/arguments.hpp"
#include "c/guard.hpp"
#include "c/objects.hpp"

namespace kolo::c {
namespace {

constexpr const char* kHandle = "the handle";

std::chrono::nanoseconds duration_of(double seconds) {
  return detail::to_nanoseconds(std::chrono::duration<double>(seconds));
}

}  // namespace
}  // namespace kolo::c

using namespace kolo::c;

kolo_status kolo_wait(kolo_handle* handle, double seconds) {
  // Not destroyed by an exception, which would end the job if the operation is open (kolo/handle.hpp).
  std::unique_ptr<kolo_handle> owned(handle);
  return guarded([&] {
    kolo_handle& its = given(handle, kHandle);
    if (!(seconds >= 0)) {
      its.handle.wait();
    } else if (!its.handle.wait_for(duration_of(seconds))) {
      static_cast<void>(owned.release());
      return fail(KOLO_PENDING, "the operation is not done yet: wait again, or release the handle");
    }
    if (its.write_outputs) its.write_outputs(its.handle);
    return KOLO_OK;
  });
}

kolo_status kolo_wait_all(kolo_handle* const* handles, size_t count) {
  return guarded([&] {
    const auto list = given_list(handles, count, "the list of handles");
    std::vector<kolo_handle*> sorted(list.begin(), list.end());
    std::sort(sorted.begin(), sorted.end(), std::less<>());
    if (!sorted.empty()) given(sorted.front(), "one of the handles");
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
      refuse("a handle is in the list twice: give each once");
    }
    kolo_status first = KOLO_OK;
    std::string sentence;
    for (kolo_handle* const handle : list) {
      const kolo_status status = kolo_wait(handle, -1.0);
      if (first == KOLO_OK && status != KOLO_OK) {
        first = status;
        sentence = kolo_last_error();
      }
    }
    return first == KOLO_OK ? KOLO_OK : fail(first, sentence);
  });
}

kolo_status kolo_test(kolo_handle* handle, int32_t* is_done) {
  return guarded([&] {
    kolo_handle& its = given(handle, kHandle);
    given(is_done, "the place for the answer") = its.handle.done() ? 1 : 0;
  });
}

kolo_status kolo_release(kolo_handle* handle) {
  delete handle;
  return KOLO_OK;
}

kolo_status kolo_on_done(kolo_handle* handle, kolo_done done, void* data) {
  return guarded([&] {
    kolo_handle& its = given(handle, kHandle);
    if (done == nullptr) refuse("the callback is NULL: give a function");
    its.handle.on_done(
        [done, data](const kolo::Status& status) { done(data, status_of(status.code()), status.message().c_str()); });
  });
}

kolo_status kolo_cancel(kolo_handle* handle, int32_t* is_cancelled) {
  return guarded([&] {
    kolo_handle& its = given(handle, kHandle);
    int32_t& answer = given(is_cancelled, "the place for the answer");
    if (!its.is_receive) refuse("only a receive can be cancelled: kolo_end ends any operation");
    static_cast<void>(its.handle.status());  // throws in a forked process
    kolo::Future<kolo::Received> receive(std::move(its.handle));
    answer = receive.cancel() ? 1 : 0;
    its.handle = std::move(receive);
  });
}

kolo_status kolo_end(kolo_handle* handle, const char* reason) {
  return guarded([&] {
    kolo_handle& its = given(handle, kHandle);
    its.handle.abandon(std::string(given_name(reason, "the reason")));
  });
}

kolo_status kolo_late_ranks(kolo_handle* handle, double seconds, int32_t* ranks, size_t capacity, size_t* count) {
  return guarded([&] {
    kolo_handle& its = given(handle, kHandle);
    const auto room = given_list(ranks, capacity, "the room for ranks");
    size_t& number = given(count, "the place for the number of ranks");
    const std::vector<int> late = its.handle.late_ranks(duration_of(seconds));
    std::copy_n(late.begin(), std::min(late.size(), room.size()), room.begin());
    number = late.size();
  });
}
