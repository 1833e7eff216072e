// SPDX-License-Identifier: Apache-2.0
//
// A group whose ranks change: PyTorch's `_reconfigure`.
//
//   1. The program finds out, by itself, which processes are to be the ranks, and calls `reconfigure` on each with the
//      same handles and a fresh uuid. A process that is not among them is not asked.
//   2. Each puts its rank into the store, below the uuid and rank 0's handle: other processes may use the same number
//      and store for a group of their own. A number that was used before is refused; nothing has happened yet.
//   3. Each leaves the world that it has. What it has open there fails, here and on ranks that need it; where nothing
//      is open, calls that all ranks have made complete on the others, too. That world's memory goes with the last Work
//      that belongs to it.
//   4. They meet as in any start by a store, below that key. Connections, memory and the random word that a rank must
//      prove are new, so nothing of the world before can arrive in this one. A rank that has died since is named by
//      those that waited for it.
#include "c10d/process_group.hpp"

#ifdef C10D_BACKEND_HAS_RECONFIGURE
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "c10d/errors.hpp"

namespace kolo::c10d {
namespace {

constexpr const char* kCall = "reconfigure";

std::string random_handle() {
  std::random_device random;
  std::string handle = "kolo";
  for (int word = 0; word < 4; ++word) handle += "-" + std::to_string(random());
  return handle;
}

std::vector<std::string> in_order(const ::c10d::ReconfigureOptions& options) {
  if (const auto* list = std::get_if<1>(&options.handles)) return *list;
  const auto& set = std::get<0>(options.handles);
  std::vector<std::string> handles(set.begin(), set.end());
  std::sort(handles.begin(), handles.end());
  return handles;
}

int rank_of(const std::string& handle, const std::vector<std::string>& handles) {
  std::vector<std::string> sorted = handles;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) raise(kCall, ErrorCode::invalid_argument, "the handle " + *twice + " is there twice");
  const auto mine = std::find(handles.begin(), handles.end(), handle);
  if (mine == handles.end()) {
    raise(kCall, ErrorCode::invalid_argument,
          "this process's handle, " + handle + ", is not among the " + std::to_string(handles.size()) +
              " that were given; only processes that are to be ranks call it");
  }
  return static_cast<int>(mine - handles.begin());
}

}  // namespace

ProcessGroupKolo::ProcessGroupKolo(c10::intrusive_ptr<::c10d::Store> store, std::chrono::milliseconds timeout)
    : Backend(-1, -1), is_world_(true), meeting_place_(std::move(store)), handle_(random_handle()),
      timeout_(bounded(timeout)) {}

::c10d::ReconfigureHandle ProcessGroupKolo::get_reconfigure_handle() const {
  if (!supportsReconfigure()) {
    raise(kCall, ErrorCode::unsupported, "the process group was made without enable_reconfigure");
  }
  return handle_;
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::reconfigure(const ::c10d::ReconfigureOptions& options) {
  const std::vector<std::string> handles = in_order(options);
  const int rank = rank_of(get_reconfigure_handle(), handles);
  const std::string place = "kolo/" + std::to_string(options.uuid) + "/" + handles.front();
  const auto store = c10::make_intrusive<::c10d::PrefixStore>(place, meeting_place_);
  if (!used_.insert(options.uuid).second || store->add("rank/" + std::to_string(rank), 1) != 1) {
    raise(kCall, ErrorCode::transport,
          "the uuid " + std::to_string(options.uuid) + " was already used: each reconfiguration needs one of its own");
  }
  if (world_) {
    const std::shared_ptr<World> former = std::exchange(world_, nullptr);
    group_.reset();
    rank_ = size_ = -1;
    translated(kCall, [&] { former->leave_now("its process group was reconfigured"); });
  }
  const std::chrono::milliseconds timeout = timeout_.load();
  const int size = static_cast<int>(handles.size());
  world_ = translated(kCall, [&] {
    const std::chrono::milliseconds start = options.timeout ? bounded(*options.timeout) : timeout;
    return World::join(store, rank, size, timeout, start, World::AtExit::leaves_early);
  });
  group_.emplace(world_->context());
  rank_ = rank;
  size_ = size;
  sequence_ = 0;
  monitored_barriers_ = 0;
  Occasion occasion{kCall, ::c10d::OpType::UNKNOWN, "kolo:reconfigure", {}, {}, timeout, 0, rank};
  return c10::make_intrusive<Work>(world_, std::move(occasion), std::make_unique<Operation>());
}

}  // namespace kolo::c10d
#endif
