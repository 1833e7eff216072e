// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/thread_world.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/mutex.hpp"
#include "base/poller.hpp"
#include "transport/shm/peer_memory.hpp"
#include "transport/shm/region.hpp"
#include "transport/shm/segment.hpp"
#include "transport/threads/thread_inter_node.hpp"

namespace kolo::bootstrap {

namespace {

/// The state that the ranks of a (virtual) node share.
struct ThreadNode {
  ThreadNode(std::size_t bytes, std::size_t ranks) : memory(shm::Segment::anonymous(bytes)), bells(ranks) {}
  shm::Segment memory;
  std::vector<base::EventFd> bells;  // by local rank
};

class ThreadNodeLink final : public transport::NodeLink {
 public:
  ThreadNodeLink(std::shared_ptr<ThreadNode> node, core::Topology topology)
      : node_(std::move(node)), topology_(std::move(topology)) {}

  [[nodiscard]] std::byte* memory() const noexcept override { return node_->memory.data(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return node_->memory.bytes(); }
  void wake(int local_rank) noexcept override { node_->bells[static_cast<std::size_t>(local_rank)].signal(); }
  [[nodiscard]] int wake_fd() const noexcept override {
    return node_->bells[static_cast<std::size_t>(topology_.local_rank)].fd();
  }
  [[nodiscard]] std::vector<Liveness> liveness() const override { return {}; }
  std::shared_ptr<transport::SharedRegion>
  share(const transport::Sharers& sharers, std::size_t bytes, const transport::Meeting& meet,
        const std::function<void()>& /*check: only the meeting waits*/) override {
    return shm::share_between_threads(sharers, topology_.local_size(), bytes, meet);
  }
  std::shared_ptr<transport::PeerMemory> peer_memory(const transport::Meeting& /*meet: threads may*/) override {
    return shm::read_between_threads();
  }

 private:
  const std::shared_ptr<ThreadNode> node_;
  const core::Topology topology_;
};

}  // namespace

/// The state that all ranks of the world share. Thread-safe.
class ThreadWorldState {
 public:
  explicit ThreadWorldState(int size) : size_(size), arrived_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const std::shared_ptr<threads::MailRoom>& mail_room() const noexcept { return mail_room_; }

  /// Blocks until all ranks have come; returns their texts, by rank. If patience ends first, the world is aborted.
  std::vector<std::string> meet(int rank, std::string_view label, const std::string& brought, base::Duration patience,
                                base::Time begun) {
    const base::MutexLock lock(mutex_);
    check_alive();
    arrived_[static_cast<std::size_t>(rank)] = brought;
    const std::uint64_t meeting = meetings_;
    if (++present_ == size_) {
      // All ranks have left the meeting before, because a rank comes to the next one only after that.
      brought_.clear();
      for (std::optional<std::string>& one : arrived_) brought_.push_back(std::move(*std::exchange(one, std::nullopt)));
      present_ = 0;
      ++meetings_;
      all_here_.notify_all();
    } else {
      bool in_time = true;
      while (in_time && meetings_ == meeting && aborted_.empty()) {
        in_time = all_here_.wait_until(mutex_, begun + patience);
      }
      if (meetings_ == meeting && aborted_.empty()) end(missing_ranks(absent(), label, patience));
      if (meetings_ == meeting) check_alive();
    }
    return brought_;
  }

  /// The node's first rank makes it, and its last rank removes it from the table.
  std::shared_ptr<ThreadNode> join(int node, std::size_t ranks, std::size_t bytes) {
    const base::MutexLock lock(mutex_);
    check_alive();
    Joining& joining = joining_[node];
    if (joining.node == nullptr) joining.node = std::make_shared<ThreadNode>(bytes, ranks);
    KOLO_CHECK(joining.node->memory.bytes() == bytes) << "ranks of one node ask for different sizes";
    std::shared_ptr<ThreadNode> joined = joining.node;
    if (++joining.ranks == ranks) joining_.erase(node);
    return joined;
  }

  void abort(const std::string& reason) {
    const base::MutexLock lock(mutex_);
    end(reason);
  }

 private:
  struct Joining {
    std::shared_ptr<ThreadNode> node;
    std::size_t ranks = 0;
  };

  void end(const std::string& reason) KOLO_REQUIRES(mutex_) {
    if (aborted_.empty()) aborted_ = reason;
    mail_room_->abort(aborted_);
    all_here_.notify_all();
  }

  [[nodiscard]] std::vector<int> absent() const KOLO_REQUIRES(mutex_) {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank) {
      if (!arrived_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    }
    return ranks;
  }

  void check_alive() const KOLO_REQUIRES(mutex_) {
    if (!aborted_.empty()) throw Error(ErrorCode::transport, aborted_);
  }

  const int size_;
  const std::shared_ptr<threads::MailRoom> mail_room_ = std::make_shared<threads::MailRoom>();
  base::Mutex mutex_;
  base::ConditionVariable all_here_;
  std::vector<std::optional<std::string>> arrived_ KOLO_GUARDED_BY(mutex_);  // of the current meeting
  std::vector<std::string> brought_ KOLO_GUARDED_BY(mutex_);                 // of the last one
  int present_ KOLO_GUARDED_BY(mutex_) = 0;
  std::uint64_t meetings_ KOLO_GUARDED_BY(mutex_) = 0;
  std::map<int, Joining> joining_ KOLO_GUARDED_BY(mutex_);  // by node
  std::string aborted_ KOLO_GUARDED_BY(mutex_);             // the reason; empty if not aborted
};

namespace {

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(std::shared_ptr<ThreadWorldState> state, int rank) : state_(std::move(state)), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return state_->size(); }
  std::vector<std::string> exchange(std::string_view label, const std::string& mine, base::Duration patience,
                                    base::Time begun) override {
    return state_->meet(rank_, label, mine, patience, begun);
  }

  std::shared_ptr<transport::NodeLink> join_node(const core::Topology& topology, std::size_t bytes,
                                                 const std::string& /*job_key: threads need no proof*/,
                                                 base::Duration patience) override {
    std::shared_ptr<ThreadNode> node;
    take_step(*this, "shared memory", patience, [&]() -> std::string {
      node = state_->join(topology.node, static_cast<std::size_t>(topology.local_size()), bytes);
      return {};
    });
    return std::make_shared<ThreadNodeLink>(std::move(node), topology);
  }

  std::shared_ptr<transport::InterNode> inter_node(const core::Topology& /*topology*/,
                                                   base::Duration /*patience*/) override {
    return std::make_shared<threads::ThreadInterNode>(state_->mail_room(), rank_);
  }

  [[nodiscard]] std::string describe() const override {
    return size() == 1 ? "none, a world of one" : "ranks as threads of one process";
  }

 private:
  const std::shared_ptr<ThreadWorldState> state_;
  const int rank_;
};

}  // namespace

ThreadWorld::ThreadWorld(int size) : state_(std::make_shared<ThreadWorldState>(size)) {
  KOLO_CHECK(size > 0) << "a world of " << size;
}

ThreadWorld::~ThreadWorld() = default;

std::unique_ptr<Bootstrap> ThreadWorld::bootstrap(int rank) {
  KOLO_CHECK(rank >= 0 && rank < state_->size()) << "rank " << rank << " of " << state_->size();
  return std::make_unique<ThreadBootstrap>(state_, rank);
}

void ThreadWorld::abort(const std::string& reason) { state_->abort(reason); }

}  // namespace kolo::bootstrap
