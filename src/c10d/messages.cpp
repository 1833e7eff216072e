// SPDX-License-Identifier: Apache-2.0
//
// Messages of a process group, and the barrier that is made of them.
#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/Functions.h>

#include <kolo/config.hpp>
#include <kolo/point_to_point.hpp>
#if KOLO_WITH_CUDA
#include <kolo/cuda.hpp>
#endif

#include "c10d/errors.hpp"
#include "c10d/process_group.hpp"
#include "c10d/work.hpp"

namespace kolo::c10d {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMonitorTag = std::numeric_limits<int>::max();

/// "Never" where the clock does not reach.
Clock::time_point time_after(std::chrono::milliseconds duration) {
  constexpr std::chrono::hours kForEver(24 * 365 * 100);
  if (duration > kForEver) return Clock::time_point::max();
  return Clock::now() + duration;
}

const at::Tensor& only_message(const char* call, const std::vector<at::Tensor>& tensors, int tag) {
  if (tensors.size() != 1) {
    raise(call, ErrorCode::invalid_argument,
          "a message is one tensor, and " + std::to_string(tensors.size()) + " were given");
  }
  if (tag < 0 || tag == kMonitorTag) {
    raise(call, ErrorCode::invalid_argument,
          "the tag is " + std::to_string(tag) + "; it must be from 0 to " + std::to_string(kMonitorTag - 1));
  }
  return tensors.front();
}

/// Into a device's memory: once that has been given all of it to do.
Received what_came(Future<Received>& receive, const at::Device& into) {
#if KOLO_WITH_CUDA
  if (into.is_cuda()) return cuda::received(receive);
#endif
  static_cast<void>(into);
  return receive.get();
}

}  // namespace

ProcessGroupKolo::WorkPtr ProcessGroupKolo::send(Tensors& tensors, int to, int tag) {
  Packed packed = Packed::to_read("send", {only_message("send", tensors, tag)});
  note_device("send", packed.device());
  return start({"send", ::c10d::OpType::SEND, "kolo:send", tensors, tensors, timeout_.load()},
               [&](Operation& operation) {
                 operation.handles.push_back(
                     std::make_shared<Handle>(send_async(group(), packed.view(moved_elements(packed.type())), to, tag,
                                                         SendOptions{}.with_timeout(timeout_.load()))));
                 operation.buffers.push_back(std::move(packed));
               });
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::receive(const char* call, ::c10d::OpType type, Tensors& tensors, int from,
                                                    int tag) {
  const at::Tensor tensor = only_message(call, tensors, tag);
  note_device(call, tensor.device());
  // Kolo receives from any rank into memory of the CPU alone.
  const bool by_way_of_host = from == any_rank && tensor.is_cuda();
  Packed packed =
      Packed::to_write(call, {by_way_of_host ? at::empty(tensor.sizes(), tensor.options().device(at::kCPU)) : tensor});
  const char* title = type == ::c10d::OpType::RECV ? "kolo:recv" : "kolo:recvAnySource";
  return start({call, type, title, tensors, tensors, timeout_.load()}, [&](Operation& operation) {
    const std::int64_t each = moved_elements(packed.type()).each;
    const auto received = std::make_shared<Future<Received>>(recv_async(
        group(), packed.view(moved_elements(packed.type())), from, tag, RecvOptions{}.with_timeout(timeout_.load())));
    operation.handles.push_back(received);
    operation.buffers.push_back(packed);
    operation.finish = [=, &operation] {
      const Received message = what_came(*received, packed.device());
      if (message.elements != packed.numel() * each) {
        raise(call, ErrorCode::mismatch,
              "rank " + std::to_string(message.source) + " has sent " + std::to_string(message.elements / each) +
                  " elements, and the tensor has " + std::to_string(packed.numel()) + "; they must be as many");
      }
      packed.unpack();
      if (by_way_of_host) tensor.copy_(packed.tensors().front());
      operation.source = message.source;
    };
  });
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::recv(Tensors& tensors, int from, int tag) {
  if (from < 0) raise("recv", ErrorCode::invalid_argument, "there is no rank " + std::to_string(from));
  return receive("recv", ::c10d::OpType::RECV, tensors, from, tag);
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::recvAnysource(Tensors& tensors, int tag) {
  return receive("recv", ::c10d::OpType::RECVANYSOURCE, tensors, any_rank, tag);
}

namespace {

/// The message of a monitored barrier: its number, so that what an earlier one has left is known.
class Sign {
 public:
  Sign(const Group& group, int from, Clock::time_point until) : group_(group), from_(from), until_(until) { receive(); }
  Sign(const Sign&) = delete;
  Sign& operator=(const Sign&) = delete;
  /// Takes the receive back: it must not write behind this object's end.
  ~Sign() {
    try {
      if (handle_ && !handle_->cancel()) handle_->wait();
    } catch (const Error&) {  // its outcome matters to nobody any more
    }
  }
  /// Waits for that of this barrier. Throws `Error` when it does not come.
  void wait_for(std::int64_t number) {
    for (handle_->wait(); value_ != number; handle_->wait()) receive();
  }

 private:
  void receive() {
    const auto left = std::max<std::chrono::nanoseconds>(until_ - Clock::now(), std::chrono::milliseconds(1));
    handle_ = recv_async(group_, view(&value_, 1), from_, kMonitorTag, RecvOptions{}.with_timeout(left));
  }

  const Group& group_;
  const int from_;
  const Clock::time_point until_;
  std::int64_t value_ = 0;
  std::optional<Future<Received>> handle_;
};

void give_sign(const Group& group, int to, std::int64_t number, std::chrono::milliseconds timeout) {
  kolo::send(group, const_view(&number, 1), to, kMonitorTag, SendOptions{}.with_timeout(timeout));
}

std::string list_of(const std::vector<int>& ranks) {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  return list;
}

void pass_monitored_barrier(const Group& group, std::chrono::milliseconds timeout, std::int64_t number) {
  try {
    give_sign(group, 0, number, timeout);
    Sign(group, 0, time_after(timeout)).wait_for(number);
  } catch (const Error& error) {
    raise("monitored_barrier", error.code(),
          "Rank " + std::to_string(kolo::rank(group)) +
              " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. "
              "Please check rank 0 logs for faulty rank. (" +
              error.status().message() + ")");
  }
}

void watch_monitored_barrier(const Group& group, std::chrono::milliseconds timeout, std::int64_t number,
                             bool wait_all_ranks) {
  const auto until = time_after(timeout);
  const int size = kolo::size(group);
  std::vector<std::unique_ptr<Sign>> signs;
  for (int rank = 1; rank < size; ++rank) signs.push_back(std::make_unique<Sign>(group, rank, until));
  std::vector<int> missing;
  std::string reason;
  for (int rank = 1; rank < size && (missing.empty() || wait_all_ranks); ++rank) {
    try {
      signs[static_cast<std::size_t>(rank - 1)]->wait_for(number);
    } catch (const Error& error) {
      missing.push_back(rank);
      reason = error.status().message();
    }
  }
  if (!missing.empty()) {
    raise("monitored_barrier", ErrorCode::timeout,
          "[Rank 0]: " + std::string(wait_all_ranks ? "Ranks " : "Rank ") + list_of(missing) +
              " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms (" + reason + ")");
  }
  for (int rank = 1; rank < size; ++rank) give_sign(group, rank, number, timeout);
}

}  // namespace

void ProcessGroupKolo::monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) {
  world().sweep();
  const std::chrono::milliseconds timeout =
      options.timeout == ::c10d::kUnsetTimeout ? timeout_.load() : bounded(options.timeout);
  const std::int64_t number = ++monitored_barriers_;
  if (timeout <= std::chrono::milliseconds::zero()) {
    raise("monitored_barrier", ErrorCode::timeout,
          "Rank " + std::to_string(rank_) + " timed out in monitoredBarrier after " + std::to_string(timeout.count()) +
              " ms");
  }
  if (rank_ == 0) {
    watch_monitored_barrier(group(), timeout, number, wait_all_ranks);
  } else {
    pass_monitored_barrier(group(), timeout, number);
  }
}

}  // namespace kolo::c10d
