// SPDX-License-Identifier: Apache-2.0
//
// What is neither a collective nor a message: results, bytes, parameters, arenas, information.
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>
#include <kolo/kolo.h>
#include <kolo/objects.hpp>
#include <kolo/parameters.hpp>

#include "c/arguments.hpp"
#include "c/guard.hpp"
#include "c/objects.hpp"
#include "c/results.hpp"

namespace kolo::c {
namespace {

constexpr const char* kResult = "the result";
constexpr const char* kArena = "the arena";

struct Counter {
  const char* name;
  std::uint64_t Metrics::*value;
};
constexpr std::array kCounters = {
    Counter{"submissions", &Metrics::submissions},
    Counter{"signatures_sent", &Metrics::signatures_sent},
    Counter{"counts_published", &Metrics::counts_published},
    Counter{"log_entries", &Metrics::log_entries},
    Counter{"log_bytes", &Metrics::log_bytes},
    Counter{"batches", &Metrics::batches},
    Counter{"planned_batches", &Metrics::planned_batches},
    Counter{"batch_digest", &Metrics::batch_digest},
    Counter{"last_step_digest", &Metrics::last_step_digest},
    Counter{"last_step_batches", &Metrics::last_step_batches},
    Counter{"plans", &Metrics::plans},
    Counter{"plans_voided", &Metrics::plans_voided},
    Counter{"tensors", &Metrics::tensors},
    Counter{"bytes", &Metrics::bytes},
    Counter{"failures", &Metrics::failures},
    Counter{"mismatches", &Metrics::mismatches},
    Counter{"stalls", &Metrics::stalls},
    Counter{"control_frames_sent", &Metrics::control_frames_sent},
    Counter{"control_frames_received", &Metrics::control_frames_received},
    Counter{"control_bytes_sent", &Metrics::control_bytes_sent},
    Counter{"messages_posted", &Metrics::messages_posted},
    Counter{"sleeps", &Metrics::sleeps},
    Counter{"wakeups_sent", &Metrics::wakeups_sent},
    Counter{"driven_by_waiters", &Metrics::driven_by_waiters},
    Counter{"driven_by_background", &Metrics::driven_by_background},
    Counter{"pushes", &Metrics::pushes},
    Counter{"bytes_in_place", &Metrics::bytes_in_place},
    Counter{"shortcuts", &Metrics::shortcuts},
    Counter{"messages_sent", &Metrics::messages_sent},
    Counter{"message_bytes_sent", &Metrics::message_bytes_sent},
    Counter{"messages_received", &Metrics::messages_received},
    Counter{"message_bytes_received", &Metrics::message_bytes_received},
    Counter{"device_slot_bytes", &Metrics::device_slot_bytes},
    Counter{"device_arena_bytes", &Metrics::device_arena_bytes},
    Counter{"device_communicators", &Metrics::device_communicators},
    Counter{"device_batches", &Metrics::device_batches},
    Counter{"device_steps", &Metrics::device_steps},
    Counter{"device_bytes_packed", &Metrics::device_bytes_packed},
    Counter{"device_bytes_in_place", &Metrics::device_bytes_in_place},
    Counter{"device_calls", &Metrics::device_calls},
    Counter{"device_exchanges", &Metrics::device_exchanges},
};
static_assert(kCounters.size() * sizeof(std::uint64_t) == sizeof(Metrics), "every counter has a row");

std::string json_of(const Metrics& metrics) {
  std::string json;
  for (const Counter& counter : kCounters) {
    json +=
        std::string(json.empty() ? "{" : ", ") + '"' + counter.name + "\": " + std::to_string(metrics.*counter.value);
  }
  return json + "}";
}

std::string bytes_of(const void* data, std::size_t size) {
  const auto bytes = given_list(static_cast<const char*>(data), size, "the data");
  return {bytes.begin(), bytes.end()};
}

const CallResult& call_result(const kolo_result* result) {
  const kolo_result& its = given(result, kResult);
  if (!its.call) refuse("this result is bytes, not that of a collective: read it by kolo_result_bytes");
  return *its.call;
}

}  // namespace
}  // namespace kolo::c

using namespace kolo::c;

// ---------------------------------------------------------------- results

kolo_status kolo_result_tensor(const kolo_result* result, kolo_tensor* tensor) {
  return guarded([&] {
    const kolo::Tensor& output = call_result(result).output;
    given(tensor, "the place for the tensor") = tensor_of(output.data(), output.dtype(), output.shape());
    return KOLO_OK;
  });
}

kolo_status kolo_result_splits(const kolo_result* result, const int64_t** splits, size_t* count) {
  return guarded([&] {
    const std::vector<std::int64_t>& received = call_result(result).received_splits;
    if (received.empty()) refuse("this result is not that of an all-to-all, which alone has splits");
    size_t& number = given(count, "the place for the number of splits");
    given(splits, "the place for the splits") = received.data();
    number = received.size();
    return KOLO_OK;
  });
}

kolo_status kolo_result_bytes(const kolo_result* result, size_t index, const void** data, size_t* size) {
  return guarded([&] {
    const std::vector<std::string>& bytes = given(result, kResult).bytes;
    if (bytes.empty()) refuse("this result is that of a collective: read it by kolo_result_tensor");
    if (index >= bytes.size()) {
      refuse("the result has " + std::to_string(bytes.size()) + " parts, and no part " + std::to_string(index) +
             ": count from 0");
    }
    size_t& length = given(size, "the place for the size");
    given(data, "the place for the data") = bytes[index].data();
    length = bytes[index].size();
    return KOLO_OK;
  });
}

kolo_status kolo_result_release(kolo_result* result) {
  delete result;
  return KOLO_OK;
}

// ---------------------------------------------------------------- bytes, parameters, information

kolo_status kolo_broadcast_bytes(const kolo_group* group, const void* data, size_t size, int32_t root,
                                 kolo_result** result) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    const std::string bytes = kolo::rank(its) == root ? bytes_of(data, size) : std::string();
    return give_bytes(result, [&] { return std::vector{kolo::broadcast_bytes(its, bytes, root)}; });
  });
}

kolo_status kolo_allgather_bytes(const kolo_group* group, const void* data, size_t size, kolo_result** result) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    return give_bytes(result, [&] { return kolo::allgather_bytes(its, bytes_of(data, size)); });
  });
}

kolo_status kolo_broadcast_parameters(const kolo_group* group, const kolo_named_tensor* parameters, size_t count,
                                      int32_t root) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    std::vector<kolo::Parameter> list;
    for (kolo::NamedView& one : views_of(parameters, count)) list.push_back({std::move(one.name), one.view, {}});
    kolo::broadcast_parameters(its, list, root);
    return KOLO_OK;
  });
}

kolo_status kolo_metrics(const kolo_group* group, kolo_result** result) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    return give_bytes(result, [&] { return std::vector{json_of(kolo::metrics(its))}; });
  });
}

kolo_status kolo_describe(const kolo_group* group, kolo_result** result) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    return give_bytes(result, [&] { return std::vector{kolo::describe(its)}; });
  });
}

// ---------------------------------------------------------------- arenas

kolo_status kolo_arena_make(const kolo_group* group, size_t bytes, int32_t device, int32_t index, const char* name,
                            kolo_arena** arena) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    kolo_arena*& place = given(arena, "the place for the arena");
    const kolo::Device where = device_of(device, index);
    const std::string its_name = name == nullptr ? "gradients" : name;
    place =
        std::make_unique<kolo_arena>(kolo_arena{device == KOLO_CPU ? kolo::GradientArena(its, bytes, its_name)
                                                                   : kolo::GradientArena(its, bytes, where, its_name)})
            .release();
    return KOLO_OK;
  });
}

kolo_status kolo_arena_for(const kolo_group* group, kolo_named_tensor* gradients, size_t count, const char* name,
                           kolo_arena** arena) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    kolo_arena*& place = given(arena, "the place for the arena");
    std::vector<kolo::Parameter> list;
    for (kolo::NamedView& one : views_of(gradients, count)) list.push_back({std::move(one.name), one.view, one.view});
    const std::string its_name = name == nullptr ? "gradients" : name;
    place =
        std::make_unique<kolo_arena>(kolo_arena{kolo::GradientArena(its, kolo::Span<kolo::Parameter>(list), its_name)})
            .release();
    for (std::size_t i = 0; i < count; ++i) gradients[i].tensor.data = list[i].gradient->data();
    return KOLO_OK;
  });
}

kolo_status kolo_arena_allocate(kolo_arena* arena, kolo_tensor* tensor) {
  return guarded([&] {
    kolo::GradientArena& its = given(arena, kArena).arena;
    kolo_tensor& to = given(tensor, "the tensor");
    const kolo::Device device = its.device();
    kolo_tensor wanted = to;
    wanted.device = static_cast<std::int32_t>(device.kind);
    wanted.index = device.index;
    const kolo::TensorView like = view_of(wanted);
    const kolo::TensorView made = like.stream() ? its.allocate(like.dtype(), like.shape(), *like.stream())
                                                : its.allocate(like.dtype(), like.shape());
    wanted.data = made.data();
    to = wanted;
    return KOLO_OK;
  });
}

kolo_status kolo_arena_room_for(const kolo_tensor* tensor, size_t* bytes) {
  return guarded([&] {
    const kolo::TensorView view = given_view(tensor, "the tensor");
    given(bytes, "the place for the bytes") = kolo::GradientArena::room_for(view.dtype(), view.shape());
    return KOLO_OK;
  });
}

kolo_status kolo_arena_sizes(const kolo_arena* arena, size_t* capacity, size_t* allocated) {
  return guarded([&] {
    const kolo::GradientArena& its = given(arena, kArena).arena;
    const std::size_t its_capacity = its.capacity();
    if (allocated != nullptr) *allocated = its.allocated();
    if (capacity != nullptr) *capacity = its_capacity;
    return KOLO_OK;
  });
}

kolo_status kolo_arena_contains(const kolo_arena* arena, const void* address, int32_t* contains) {
  return guarded([&] {
    const kolo::GradientArena& its = given(arena, kArena).arena;
    given(contains, "the place for the answer") = its.contains(address) ? 1 : 0;
    return KOLO_OK;
  });
}

kolo_status kolo_arena_release(kolo_arena* arena) {
  delete arena;
  return KOLO_OK;
}
