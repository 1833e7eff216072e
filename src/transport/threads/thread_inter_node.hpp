// SPDX-License-Identifier: Apache-2.0
//
// Bulk transport between ranks as threads: messages are copied through a queue for each receiver.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/mutex.hpp"
#include "base/poller.hpp"
#include "transport/inter_node.hpp"
#include "transport/staging.hpp"

namespace kolo::threads {

/// Messages without a receive, and receives without a message, by receiver. Thread-safe.
class MailRoom {
 public:
  using Operation = transport::InterNode::Operation;

  void send(int from, int to, int tag, const std::byte* data, std::size_t bytes);
  /// Starts a receive of the next message from `from`. `data` is written before `arrived` returns true.
  void receive(int from, int to, int tag, std::byte* data, std::size_t bytes, Operation operation);
  /// True once when the receiver's operation has been served.
  bool arrived(int to, Operation operation);
  /// From now on messages with this tag are kept for `hear`.
  void listen(int to, int tag);
  struct Letter {
    int from = 0;
    std::vector<std::byte> data;
  };
  /// The next message of that tag.
  std::optional<Letter> hear(int to);
  /// Rings the receiver's bell once, when one of its operations is served. False: one has been served since the last
  /// call.
  bool arm(int to, const base::EventFd& bell);
  /// Forgets the receives of `to`: after this its memory is not written, and its bell is not rung.
  void forget(int to);
  void abort(const std::string& reason);

 private:
  struct Wanted {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    Operation operation = 0;
  };
  struct Queue {  // at most one of the two is not empty
    std::deque<std::vector<std::byte>> sent;
    std::deque<Wanted> wanted;
  };

  struct Receiver {
    int listens = -1;  // the tag of `listen`, or -1
    std::deque<Letter> heard;
    std::vector<Operation> served;        // not yet asked for
    bool news = false;                    // something was served since `arm`
    const base::EventFd* bell = nullptr;  // while it is armed
  };

  void check_alive() const KOLO_REQUIRES(mutex_);
  void serve(int to, Operation operation) KOLO_REQUIRES(mutex_);
  static void tell(Receiver& receiver) noexcept;
  static void ring(Receiver& receiver) noexcept;

  base::Mutex mutex_;
  std::map<std::tuple<int, int, int>, Queue> queues_ KOLO_GUARDED_BY(mutex_);  // by receiver, sender, tag
  std::unordered_map<int, Receiver> receivers_ KOLO_GUARDED_BY(mutex_);
  std::string aborted_ KOLO_GUARDED_BY(mutex_);  // the reason; empty if not aborted
};

/// One rank's transport. One thread at a time.
class ThreadInterNode final : public transport::InterNode {
 public:
  ThreadInterNode(std::shared_ptr<MailRoom> room, int rank) : room_(std::move(room)), rank_(rank) {}
  ~ThreadInterNode() override { room_->forget(rank_); }

  std::byte* staging(std::size_t bytes) override { return staging_.take(bytes); }
  void give_back(std::byte* staging) noexcept override { staging_.give_back(staging); }
  Operation send(int rank, int tag, const std::byte* data, std::size_t bytes) override;
  Operation receive(int rank, int tag, std::byte* data, std::size_t bytes) override;
  bool test(Operation operation) override;
  void listen(int tag, std::size_t /*bytes*/) override { room_->listen(rank_, tag); }
  [[nodiscard]] std::optional<Heard> hear() override;
  [[nodiscard]] const char* name() const noexcept override { return "queues between threads"; }
  [[nodiscard]] int event_fd() const noexcept override { return bell_.fd(); }
  [[nodiscard]] bool arm() override { return room_->arm(rank_, bell_); }

 private:
  static constexpr Operation kReceive = 1;  // the lowest bit: sends are complete as soon as they have been copied

  std::shared_ptr<MailRoom> room_;
  int rank_;
  base::EventFd bell_;
  Operation last_ = 0;
  MailRoom::Letter letter_;  // that was heard last
  transport::Staging staging_;
};

}  // namespace kolo::threads
