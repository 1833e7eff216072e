// SPDX-License-Identifier: Apache-2.0
//
// A transport that not every thread may call, and that moves only while somebody calls it: MPI below
// MPI_THREAD_MULTIPLE. What is here knows thread levels; the data plane does not.
//
//   any driver                     send, receive: note what is to be done; test: looks whether it has been
//   a thread that may, in a call   CallerGate::move: does what was noted, for all transports behind the gate
//
// So a data plane moves on whatever thread drives it, and only the calls of the transport wait for a thread that may
// make them. Such a thread moves all contexts of the process: two that wait, each in a context of its own, cannot wait
// for each other's transport.
//
// There is one gate in a process, because what it guards is the process's (its MPI). Whoever makes transports from it
// hands it in (src/api owns it); contexts share it, whatever communicators they were made from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include <kolo/error.hpp>

#include "base/event_count.hpp"
#include "base/mutex.hpp"
#include "transport/inter_node.hpp"

namespace kolo::transport {

class GatedInterNode;

/// Thread-safe.
class CallerGate {
 public:
  CallerGate() = default;
  CallerGate(const CallerGate&) = delete;
  CallerGate& operator=(const CallerGate&) = delete;

  /// Held around calls that no two threads of the process may make at once. Nobody who holds it waits for a driver.
  [[nodiscard]] base::Mutex& mutex() KOLO_RETURN_CAPABILITY(mutex_) { return mutex_; }
  /// Moves all transports behind the gate; true when something moved. Never waits: where another thread is at it, this
  /// one need not be. On a thread that may call them.
  bool move() noexcept;
  /// Whether anything was noted that has not been done. It does not ring when it could move: `move` is to be called
  /// again and again.
  [[nodiscard]] bool has_open() const noexcept { return open_.load() > 0; }
  /// Whether the calling thread is the program's,
  [[nodiscard]] bool is_callers_thread();
  /// or one of the library's own, and no caller.
  void set_own_thread(bool own);
  /// Rung when something was noted, and by engines when theirs has moved: what threads that may move the gate sleep on.
  [[nodiscard]] base::EventCount& changes() noexcept { return changes_; }

 private:
  friend class GatedInterNode;

  base::Mutex mutex_;
  std::vector<GatedInterNode*> members_ KOLO_GUARDED_BY(mutex_);
  base::Mutex own_mutex_;
  std::vector<std::thread::id> own_threads_ KOLO_GUARDED_BY(own_mutex_);
  std::atomic<std::int64_t> open_{0};
  std::atomic<base::Time> moved_at_{base::Time::min()};
  base::EventCount changes_;
};

/// Who may call a transport.
struct CallRule {
  std::shared_ptr<CallerGate> gate;
  bool any_thread = true;  ///< one at a time; else:
  std::thread::id only;
  std::string refusal;    ///< what others are told that want to wait for it
  std::string hindrance;  ///< what other ranks are told when no thread comes that may
};

/// Of one context. A part of PolledInterNode, which stands before it.
class GatedInterNode final : public InterNode, public Callers {
 public:
  GatedInterNode(std::shared_ptr<InterNode> transport, CallRule rule);
  /// Takes the transport away under the gate: it may have calls to make at its end.
  ~GatedInterNode() override;
  GatedInterNode(const GatedInterNode&) = delete;
  GatedInterNode& operator=(const GatedInterNode&) = delete;

  // -- the driver
  std::byte* staging(std::size_t bytes) override { return transport_->staging(bytes); }
  void give_back(std::byte* staging) noexcept override { transport_->give_back(staging); }
  Operation send(int rank, int tag, const std::byte* data, std::size_t bytes) override;
  Operation receive(int rank, int tag, std::byte* data, std::size_t bytes) override;
  /// Throws what the transport threw wherever it was moved.
  bool test(Operation operation) override;
  void listen(int tag, std::size_t bytes) override;
  /// Likewise.
  [[nodiscard]] std::optional<Heard> hear() override;
  void expect(bool expects) override;
  void push(base::Time now) override;
  [[nodiscard]] const char* name() const noexcept override { return transport_->name(); }

  // -- any thread
  void abandon() noexcept override;
  [[nodiscard]] Callers* callers() noexcept override { return this; }
  [[nodiscard]] bool may_move_here() const noexcept override {
    return rule_.any_thread ? gate().is_callers_thread() : std::this_thread::get_id() == rule_.only;
  }
  bool move() noexcept override { return gate().move(); }
  [[nodiscard]] bool has_open() const noexcept override { return gate().has_open(); }
  [[nodiscard]] base::EventCount& changes() noexcept override { return gate().changes(); }
  [[nodiscard]] const std::string& refusal() const noexcept override { return rule_.refusal; }
  [[nodiscard]] bool is_neglected(base::Time now) override;
  [[nodiscard]] const std::string& hindrance() const noexcept override { return rule_.hindrance; }
  void set_wake(std::function<void()> wake) override;
  void set_own_thread(bool own) override { gate().set_own_thread(own); }

 private:
  friend class CallerGate;

  struct Call {
    Operation operation = 0;
    int rank = 0;
    int tag = 0;
    const std::byte* sent = nullptr;  // or null: it is received
    std::byte* received = nullptr;
    std::size_t bytes = 0;
  };
  struct Running {
    Operation operation = 0;
    Operation inner = 0;
  };
  struct Listening {
    int tag = 0;
    std::size_t bytes = 0;
  };
  struct Letter {
    int rank = 0;
    std::vector<std::byte> data;
  };

  [[nodiscard]] CallerGate& gate() const noexcept { return *rule_.gate; }
  Operation note(Call call);
  /// By a thread that may call the transport, with the gate held: CallerGate::move.
  bool move_own() noexcept;
  void call_transport(bool push) KOLO_REQUIRES(gate().mutex());
  void hear_transport(const std::optional<Listening>& begins) KOLO_REQUIRES(gate().mutex());
  void count() KOLO_REQUIRES(mutex_);
  void forget(std::int64_t open) noexcept KOLO_REQUIRES(mutex_);

  std::shared_ptr<InterNode> transport_;
  const CallRule rule_;

  std::vector<Call> calls_ KOLO_GUARDED_BY(gate().mutex());
  std::vector<Running> running_ KOLO_GUARDED_BY(gate().mutex());
  std::vector<Operation> finished_ KOLO_GUARDED_BY(gate().mutex());
  std::vector<Letter> letters_ KOLO_GUARDED_BY(gate().mutex());  // heard in this call
  bool listening_ KOLO_GUARDED_BY(gate().mutex()) = false;

  Letter letter_;  // the driver's: what `hear` gave last

  base::Mutex wake_mutex_;
  std::function<void()> wake_ KOLO_GUARDED_BY(wake_mutex_);

  base::Mutex mutex_;
  std::vector<Call> noted_ KOLO_GUARDED_BY(mutex_);
  std::unordered_set<Operation> done_ KOLO_GUARDED_BY(mutex_);
  Status failure_ KOLO_GUARDED_BY(mutex_);
  Operation last_ KOLO_GUARDED_BY(mutex_) = 0;
  std::int64_t open_ KOLO_GUARDED_BY(mutex_) = 0;  // this one's part of the gate's
  base::Time opened_at_ KOLO_GUARDED_BY(mutex_);   // when that was 0 last
  bool push_ KOLO_GUARDED_BY(mutex_) = false;
  std::optional<Listening> listen_ KOLO_GUARDED_BY(mutex_);  // to be begun
  bool expects_ KOLO_GUARDED_BY(mutex_) = false;
  std::deque<Letter> heard_ KOLO_GUARDED_BY(mutex_);
  bool abandoned_ KOLO_GUARDED_BY(mutex_) = false;
};

}  // namespace kolo::transport
