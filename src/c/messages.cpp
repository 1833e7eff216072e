// SPDX-License-Identifier: Apache-2.0
#include <kolo/point_to_point.hpp>

#include <utility>

#include <kolo/kolo.h>

#include "c/arguments.hpp"
#include "c/guard.hpp"
#include "c/objects.hpp"

namespace kolo::c {
namespace {

static_assert(KOLO_ANY_RANK == any_rank && KOLO_ANY_TAG == any_tag);

constexpr const char* kTensor = "the tensor";

template <class Options>
Options message_options(const kolo_message_options* given) {
  Options options;
  options.timeout = timeout_of(
      options_of(given, kolo_message_options KOLO_MESSAGE_OPTIONS_INIT, 16, "KOLO_MESSAGE_OPTIONS_INIT").timeout);
  return options;
}

void give(const Received& from, kolo_received* to) noexcept {
  if (to != nullptr) *to = {from.elements, from.source, from.tag};
}

}  // namespace
}  // namespace kolo::c

using namespace kolo::c;

kolo_status kolo_send(const kolo_group* group, const kolo_tensor* tensor, int32_t to, int32_t tag,
                      const kolo_message_options* options, kolo_handle** handle) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    const kolo::TensorView view = given_view(tensor, kTensor);
    const auto its_options = message_options<kolo::SendOptions>(options);
    if (handle != nullptr) {
      return started(handle, {}, [&] { return kolo::send_async(its, view, to, tag, its_options); });
    }
    kolo::send(its, view, to, tag, its_options);
    return KOLO_OK;
  });
}

kolo_status kolo_recv(const kolo_group* group, const kolo_tensor* tensor, int32_t from, int32_t tag,
                      const kolo_message_options* options, kolo_received* received, kolo_handle** handle) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    const kolo::TensorView view = given_view(tensor, kTensor);
    const auto its_options = message_options<kolo::RecvOptions>(options);
    if (handle != nullptr) {
      const auto write_received = [received](kolo::Handle& done) {
        give(kolo::Future<kolo::Received>(std::move(done)).get(), received);
      };
      return started(
          handle, write_received, [&] { return kolo::recv_async(its, view, from, tag, its_options); }, true);
    }
    give(kolo::recv(its, view, from, tag, its_options), received);
    return KOLO_OK;
  });
}

kolo_status kolo_sendrecv(const kolo_group* group, const kolo_tensor* tensor, int32_t to, int32_t send_tag,
                          const kolo_tensor* into, int32_t from, int32_t recv_tag, const kolo_message_options* options,
                          kolo_received* received) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    auto its_options = message_options<kolo::SendRecvOptions>(options);
    its_options.send_tag = send_tag;
    its_options.recv_tag = recv_tag;
    give(kolo::sendrecv(its, given_view(tensor, kTensor), to, given_view(into, "the tensor to receive into"), from,
                        its_options),
         received);
  });
}
