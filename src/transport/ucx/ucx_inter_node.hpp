// SPDX-License-Identifier: Apache-2.0
//
// Bulk data between nodes by UCX: RDMA, TCP and what else UCX finds, and an event descriptor to sleep on.
//
// What moves. A message is one of UCX's tag-matched messages, of any size, out of staging memory and into it. The upper
// half of UCX's tag is the sender's rank, the lower one Kolo's tag, so a receive matches one sender and one tag
// exactly, and messages that are listened for match by the lower half alone. UCX keeps the order of what one rank sends
// another with one tag. Active messages were the alternative: Kolo would then match by itself, and copy what comes
// before it is asked for.
//
// Over TCP messages of up to 256 KiB, which all of a chunk's are with the slots that Kolo chooses, go at once. UCX
// would send those above some 64 KiB after a rendezvous, which saves no copy over TCP, and costs two messages more,
// each as late as the rank on the other side looks: too late for ranks that nap. Its threshold there is a segment, so
// segments are that long (ucx_api.hpp). A message that comes before it is asked for lies in UCX's memory until then;
// there are never more of them than the open operations have. Other transports keep UCX's own thresholds: with RDMA a
// rendezvous does save a copy.
//
// When. `progress` moves everything that can be moved, once in each pass of the engine; `test` only looks. Leaders make
// their connections as the job starts (`meet`), where all ranks are told of a network that leads nowhere. Another
// connection is made when a rank is first sent to or received from, and nothing waits for it: UCX keeps messages until
// it is there. An engine sleeps on the event descriptor.
//
// Who waits for whom. Nobody inside here. But a message may need its receiver before it is gone (the first one needs
// the connection, a long one needs the receive), and a send that has completed may still lie in UCX's own memory while
// a socket is full: then the sender's descriptor becomes readable when it can go on. So a rank with nothing open may be
// needed by others, and the transport asks to be slept on always (`serves_peers`). Nothing is pushed. Nobody polls,
// but for UCX's shared memory (containers of one machine that are no node): while such a queue is full, arming fails.
//
// What if a rank dies. UCX reports the end of a connection: inside `progress`, at once, because the kernel closes the
// dead process's sockets (unless a child that it has forked holds them: then Kolo's control connections tell, which a
// child closes; UCX's cannot be listed); or when a transport has given up (a host that vanishes: by UCX's timeouts, and
// Kolo's control connections and deadlines are earlier). The rank's loss is reported if something is open with it, or
// messages are expected from anybody; otherwise it is kept until something is. For a rank that has left closes its
// connections while others may still be on their way out, and that is no loss: nothing is open with it then. Sends that
// were open fail with the connection. A receive is not tied to one and stays open. So do sends after the loss; the
// engine ends them all.
//
// At the end what is open is cancelled and connections are closed without asking the other side: what all ranks have
// completed needs none, and after a failure nobody may wait. After one, staging memory is kept until the process exits:
// a peer may still write into it (UCX's shared-memory transports write by address). So is UCX's worker, with its
// sockets, unless every rank of another node has exchanged messages with this one: UCX ends the process (1.13: an
// assertion) where a connection is closed that is being made, and nobody can tell which others are making.
//
// A rank's context and worker are its own, also where ranks are threads: UCX locks nothing then.
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
  /// `addresses`: what each rank's `Worker::address` says, by rank; empty for those with whom nothing is exchanged.
  UcxInterNode(std::unique_ptr<Worker> worker, int rank, const std::vector<std::string>& addresses);
  ~UcxInterNode() override;
  UcxInterNode(const UcxInterNode&) = delete;
  UcxInterNode& operator=(const UcxInterNode&) = delete;

  /// Exchanges a message with each of these ranks, which do the same; the ranks that have not answered by `until`, or
  /// to which there is no way. Before the engine begins.
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
  /// While messages have been coming slowly for a while (transport/pace.hpp).
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
    bool failed = false;  ///< never completes
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
  std::vector<int> failed_;  ///< whose connections have failed, and that are not reported
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
