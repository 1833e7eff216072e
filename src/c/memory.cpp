// SPDX-License-Identifier: Apache-2.0
//
// What is neither a collective nor a message: results, bytes, parameters, arenas, information.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kolo/detail/replica_checks.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/info.hpp>
#include <kolo/kolo.h>
#include <kolo/objects.hpp>
#include <kolo/parameters.hpp>

#include "c/arguments.hpp"
#include "c/guard.hpp"
#include "c/objects.hpp"

namespace kolo::c {
namespace {

constexpr const char* kResult = "the result";
constexpr const char* kArena = "the arena";

std::string bytes_of(const void* data, std::size_t size) {
  const auto bytes = given_list(static_cast<const char*>(data), size, "the data");
  return {bytes.begin(), bytes.end()};
}

const CallResult& call_result(const kolo_result* result) {
  const kolo_result& its = given(result, kResult);
  if (!its.call) refuse("this result is bytes, not that of a collective: read it by kolo_result_bytes");
  return *its.call;
}

std::vector<Parameter> parameters_of(const kolo_named_tensor* tensors, std::size_t count) {
  std::vector<Parameter> list;
  for (NamedView& one : views_of(tensors, count)) list.push_back({std::move(one.name), one.view, {}});
  return list;
}

}  // namespace
}  // namespace kolo::c

using namespace kolo::c;

// ---------------------------------------------------------------- results

kolo_status kolo_result_tensor(const kolo_result* result, kolo_tensor* tensor) {
  return guarded([&] {
    const kolo::Tensor& output = call_result(result).output;
    given(tensor, "the place for the tensor") = tensor_of(output.data(), output.dtype(), output.shape());
  });
}

kolo_status kolo_result_splits(const kolo_result* result, const int64_t** splits, size_t* count) {
  return guarded([&] {
    const std::vector<std::int64_t>& received = call_result(result).received_splits;
    if (received.empty()) refuse("this result is not that of an all-to-all, which alone has splits");
    size_t& number = given(count, "the place for the number of splits");
    given(splits, "the place for the splits") = received.data();
    number = received.size();
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
    kolo::broadcast_parameters(its, parameters_of(parameters, count), root);
  });
}

kolo_status kolo_replica_interval(const kolo_group* group, int64_t* interval) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    given(interval, "the place for the interval") = kolo::detail::replica_interval(its);
  });
}

kolo_status kolo_check_replicas(const kolo_group* group, const char* name, const kolo_named_tensor* tensors,
                                size_t count, int64_t step) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    const std::vector<kolo::Parameter> list = parameters_of(tensors, count);
    const auto its_name = name == nullptr ? std::nullopt : std::optional<std::string_view>(name);
    kolo::detail::check_replicas_at(its, its_name, list, step < 0 ? std::nullopt : std::optional(step));
  });
}

kolo_status kolo_metrics(const kolo_group* group, kolo_result** result) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    return give_bytes(result, [&] { return std::vector{kolo::metrics_json(its)}; });
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
  });
}

kolo_status kolo_arena_room_for(const kolo_tensor* tensor, size_t* bytes) {
  return guarded([&] {
    const kolo::TensorView view = given_view(tensor, "the tensor");
    given(bytes, "the place for the bytes") = kolo::GradientArena::room_for(view.dtype(), view.shape());
  });
}

kolo_status kolo_arena_sizes(const kolo_arena* arena, size_t* capacity, size_t* allocated) {
  return guarded([&] {
    const kolo::GradientArena& its = given(arena, kArena).arena;
    const std::size_t its_capacity = its.capacity();
    if (allocated != nullptr) *allocated = its.allocated();
    if (capacity != nullptr) *capacity = its_capacity;
  });
}

kolo_status kolo_arena_contains(const kolo_arena* arena, const void* address, int32_t* contains) {
  return guarded([&] {
    const kolo::GradientArena& its = given(arena, kArena).arena;
    given(contains, "the place for the answer") = its.contains(address) ? 1 : 0;
  });
}

kolo_status kolo_arena_release(kolo_arena* arena) {
  delete arena;
  return KOLO_OK;
}
