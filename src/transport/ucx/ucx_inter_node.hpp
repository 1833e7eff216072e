// SPDX-License-Identifier: Apache-2.0
//
// Bulk data between nodes by UCX: RDMA, TCP or another of UCX's transports, with an event descriptor to sleep on.
//
// Messages. A message is one of UCX's tag-matched messages, of any size, from and to staging memory. The upper half of
// UCX's tag is the sender's rank, the lower half Kolo's tag. A receive therefore matches one sender and one tag, and
// messages that are listened for match by the lower half. UCX keeps the order of messages with the same sender,
// receiver and tag. The alternative, active messages, would need a matching and a copy of Kolo's own.
//
// Thresholds. Over TCP messages of up to 256 KiB go at once; with the slots that Kolo chooses, these are all messages
// of a chunk. UCX would use a rendezvous from some 64 KiB on. Over TCP that saves no copy, and it costs two more
// messages, each of which waits until the other rank looks: too late for ranks that nap. UCX's threshold is a segment,
// so Kolo sets the segments' size (ucx_api.hpp). Other transports keep UCX's own thresholds: with RDMA a rendezvous
// does save a copy.
//
// Progress. `progress` moves everything that can be moved, once in each pass of the engine; `test` only looks. Leaders
// connect when the job starts (`meet`), so that a network that does not connect them is reported on all ranks. Other
// connections are made at the first send or receive; UCX keeps messages until the connection exists. A message may
// need its receiver (the first one for the connection, a long one for the receive). A completed send may still lie in
// UCX's memory while a socket is full; the sender's descriptor becomes readable when it can go on. A rank without open
// operations may therefore be needed by others, so the descriptor is always slept on (`serves_peers`). Nothing is
// pushed or polled, with one exception: while a queue of UCX's shared memory is full, arming fails.
//
// Death of a rank. UCX reports the end of a connection inside `progress`: at once if the kernel closes the dead
// process's sockets; after UCX's timeouts if a host vanishes (Kolo's control connections and deadlines are earlier).
// The loss is reported if an operation is open with that rank, or if messages are expected from any rank. Otherwise it
// is kept until then: a rank that has left closes its connections while others still leave, and that is no loss. Open
// sends fail with the connection. A receive is not tied to a connection and stays open, and so do sends after the
// loss; the engine ends them all.
//
// The end. Open calls are cancelled, and connections are closed without asking the other side. After a failure staging
// memory is kept until the process exits, because a peer may still write into it (UCX's shared memory writes by
// address). UCX's worker and its sockets are then kept, too, unless every rank of another node has exchanged messages
// with this one: UCX 1.13 aborts the process if a connection is closed while it is being made, and a rank cannot know
// which peers are connecting.
//
// Each rank has a context and a worker of its own, also where ranks are threads, so UCX needs no locks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/inter_node.hpp"
#include "transport/pace.hpp"
#include "transport/staging.hpp"
#include "transport/ucx/ucx_api.hpp"

namespace kolo::ucx {

class UcxInterNode final : public transport::InterNode {
 public:
  /// `addresses`: each rank's `Worker::address`, by rank; empty for ranks with which no data is exchanged.
  UcxInterNode(std::unique_ptr<Worker> worker, int rank, const std::vector<std::string>& addresses);
  ~UcxInterNode() override;
  UcxInterNode(const UcxInterNode&) = delete;
  UcxInterNode& operator=(const UcxInterNode&) = delete;

  /// Exchanges a message with each of these ranks, which do the same. Returns the ranks that have not answered by
  /// `until`, or that cannot be reached. Call it before the engine begins.
  [[nodiscard]] std::vector<int> meet(const std::vector<int>& ranks, base::Time until);

  std::byte* staging(std::size_t bytes) override { return staging_.take(bytes); }
  void give_back(std::byte* staging) noexcept override { staging_.give_back(staging); }
  Operation send(int rank, int tag, const std::byte* data, std::size_t bytes) override;
  Operation receive(int rank, int tag, std::byte* data, std::size_t bytes) override;
  bool test(Operation operation) override;
  /// Keeps a few receives open, from any rank, in the order in which they are heard.
  void listen(int tag, std::size_t bytes) override;
  [[nodiscard]] std::optional<Heard> hear() override;
  void expect(bool expects) override { expects_ = expects; }
  [[nodiscard]] const char* name() const noexcept override { return "UCX"; }

  void progress(base::Time now) override;
  void report_to(Reports reports) override { reports_ = std::move(reports); }
  void abandon() noexcept override { abandoned_.store(true, std::memory_order_relaxed); }

  [[nodiscard]] int event_fd() const noexcept override { return worker_->event_fd(); }
  [[nodiscard]] bool serves_peers() const noexcept override { return true; }
  [[nodiscard]] bool arm() override;
  /// A nap while messages come slowly for a long time (transport/pace.hpp).
  [[nodiscard]] std::optional<std::chrono::nanoseconds> nap() noexcept override { return pace_.nap(receives_); }

 private:
  struct Peer {
    std::string address;
    ucp_ep_h endpoint = nullptr;
    std::size_t open = 0;           ///< operations
    bool connected = false;         ///< a message has come from it, or one to it has been sent; or it is of this node
    ucs_status_t failure = UCS_OK;  ///< of the connection
    Call closing;                   ///< at the end
  };
  /// An open operation; the record is used again, with the next generation.
  struct Transfer {
    Call call;
    std::size_t due = 0;  ///< of a receive: the bytes that must come
    std::uint32_t generation = 0;
    int rank = 0;
    bool claimed = false;
    bool failed = false;  ///< the operation will never complete
  };
  struct Ear {
    std::byte* data = nullptr;
    Call call;
  };
  /// The receives that listen, used in turn.
  struct Listener {
    int tag = 0;
    std::size_t bytes = 0;
    std::vector<Ear> ears;
    std::size_t next = 0;
    bool heard = false;  ///< the one before `next` has been handed out, and is not open
  };

  static void on_error(void* self, ucp_ep_h endpoint, ucs_status_t status) noexcept;
  [[nodiscard]] Peer& connect(int rank);
  [[nodiscard]] Operation note(int rank, std::size_t due, const Call& call);
  void open(Ear& ear) noexcept;
  bool move() noexcept;
  bool report();
  void fail(int rank, ucs_status_t status) noexcept;
  void check_own(const Call& call) const;
  [[nodiscard]] bool have_ended() noexcept;
  [[nodiscard]] bool end() noexcept;
  [[nodiscard]] bool are_connected() const noexcept;

  std::unique_ptr<Worker> worker_;
  const int rank_;
  std::vector<Peer> peers_;  ///< by rank
  std::vector<int> failed_;  ///< peers whose connection has failed and has not been reported
  transport::Staging staging_;
  std::vector<Transfer> transfers_;
  std::vector<std::size_t> free_;
  Listener listener_;
  bool expects_ = false;
  std::size_t receives_ = 0;  ///< open ones
  transport::Pace pace_;
  Reports reports_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace kolo::ucx
