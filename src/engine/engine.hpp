// SPDX-License-Identifier: Apache-2.0
//
// A rank's engine: takes submissions from any thread, negotiates, runs batches, completes handles.
//
// One *driver* at a time (driver.hpp): the background thread, or a thread that waits for a handle and found nobody
// driving. `progress()` is one pass of the driver over everything that can move; it never blocks.
//
//   mailbox -> participant -> board            what this rank says
//   board, sockets -> leader -> board, sockets  a leader's relaying, the root's deciding
//   board (log) -> participant -> executor      what everybody does
//   executor -> handles                         and its end
//
// Sleeping. A driver that finds nothing to do for as long as its wait policy says goes away: it announces that nobody
// drives (`Board::announce_sleep`), looks once more, and sleeps - the background thread in the poller, where every
// socket and this rank's eventfd end, a waiting thread on its handle. Whoever publishes something for this rank looks
// at the announcement and rings the eventfd. A transport between nodes is armed before the sleep and rings, too, or
// says how long the nap may be (transport/inter_node.hpp). Without open batches the only time-outs are the deadlines of
// open operations.
//
// The counters of a node's data plane ring no bell, and the sleeper pays for that. A rank publishes a counter by a
// plain store and then looks for sleepers; without a fence between the two, its look may come before its store is seen,
// while the sleeper's last look came before that store as well: nobody rings. The fence would have to be the
// publisher's, for every chunk on every rank, to save the few that sleep amid a batch. So these sleep for a millisecond
// at most while the backend has a batch open, which bounds what a missed look costs, and publishers pay nothing.
//
// Where the transport between nodes has a descriptor, they sleep without an end: waits for a link are long. (While much
// comes slowly, they nap instead, and neither the transport nor peers wake them: transport/pace.hpp.) The sleeper
// then has the publishers execute the fence, by a process barrier between its announcement and its last look. A
// publisher has come to it before its store, and then looks after the announcement, and rings; or after its store,
// which the sleeper's last look sees. That interrupts the peers' CPUs, once for each sleep amid a batch, so it is not
// done where waits are short: inside one node. (A rank that is alone on its node has no such peers.)
//
// The background thread often shares a CPU with the thread that submits (mpirun binds a rank to one). So it does not
// spin there. It does not yield either: that would give a computing thread a whole time slice, while a sleeper is woken
// at once. It leaves the driver's place to a thread that waits (`Driver::seek`) and sleeps until that one hands over
// (`hand_over`, which every thread calls that has held the place).
//
// Waking the background thread costs more than most of the work it would do, so it is woken as late as possible. A
// thread that submits to a sleeping engine publishes its request itself, and moves a small tensor as far as it goes
// (`say_at_once`). A batch that peers have to move next gets an alarm, behind the ring that they give. Submissions come
// in bursts: with many operations open the thread naps, and only peers and the end of the nap wake it.
//
// Point to point (messages.cpp) goes by no log: messages_ moves it, in every pass, and a thread inside a synchronous
// call moves what stays on its node without the driver's place (data/p2p/messenger.hpp). Like the transport it is armed
// before a sleep. Tensors of a device are copied to and from memory of the host beside it (device_messages.hpp).
//
// Fatal errors. The log brings them; where no log can be had (the leader is dead, a deadline goes unanswered) the rank
// records one by itself. From then on every operation, open or new, fails with it, and no caller's memory is touched.
// The node hears of it first. Only then are the backends aborted, which may block in a driver of the device: a driver
// does that without its lock, after it has logged the error, and fails what is open when it has been done.
//
// Whatever is thrown in a pass is a fatal error of this rank, announced to all (`guarded`); a driver hands over in any
// case (`HandOver`).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/info.hpp>
#include <kolo/options.hpp>

#include "base/cpu.hpp"
#include "base/log.hpp"
#include "base/mailbox.hpp"
#include "base/mutex.hpp"
#include "base/settings.hpp"
#include "control/board.hpp"
#include "control/control_channel.hpp"
#include "control/participant.hpp"
#include "control/shortcut.hpp"
#include "core/topology.hpp"
#include "data/backend.hpp"
#include "data/device.hpp"
#include "data/kernels/peer_copy.hpp"
#include "data/p2p/message.hpp"
#include "data/p2p/messenger.hpp"
#include "data/small_calls.hpp"
#include "engine/changes.hpp"
#include "engine/device_messages.hpp"
#include "engine/driver.hpp"
#include "engine/ending.hpp"
#include "engine/errands.hpp"
#include "engine/executor.hpp"
#include "engine/failure.hpp"
#include "engine/interest.hpp"
#include "engine/leader.hpp"
#include "engine/log_reading.hpp"
#include "engine/message_operation.hpp"
#include "engine/name_table.hpp"
#include "engine/node_memory.hpp"
#include "engine/open_operations.hpp"
#include "engine/operation.hpp"
#include "engine/questions.hpp"
#include "engine/sequence.hpp"
#include "engine/set_state.hpp"
#include "engine/sets.hpp"
#include "engine/submission.hpp"
#include "engine/tally.hpp"
#include "engine/unsent.hpp"
#include "transport/inter_node.hpp"
#include "transport/node_link.hpp"
#include "transport/peer_memory.hpp"

namespace kolo::engine {

/// What an engine is assembled from (by src/api).
struct EngineParts {
  core::Topology topology;
  base::Settings settings;
  std::shared_ptr<base::Logger> logger;
  std::shared_ptr<transport::NodeLink> link;
  NodeLayout layout;                                 ///< of its memory
  std::unique_ptr<control::ControlChannel> control;  ///< leaders, with more than one node
  MakePlane make_plane;                              ///< the CPU's
  data::MakeSmallCalls make_small_calls;             ///< likewise; empty: no call avoids the log
  std::unique_ptr<data::DeviceBackend> device;       ///< null: no tensors but the CPU's
  MakeLatePlane make_device_plane;                   ///< for sets but the world; with a device
  std::shared_ptr<transport::PeerMemory> peers;      ///< for messages; null: ranks cannot read each other's memory
  std::uint64_t read_above = 0;                      ///< messages of more bytes are read there
  kernels::PeerCopy to_peers;                        ///< how what peers of the node read is written
  base::WaitPolicy wait_policy;
  std::shared_ptr<transport::InterNode> inter;  ///< the backends' transport; null: there is one node
  bool has_barriers = false;                    ///< all ranks of the world take part in process barriers
};

/// The shape of a node's board under these settings.
control::BoardShape board_shape(const base::Settings& settings, int local_size);
/// How the node's memory is cut under these settings, for a world of this topology, whose data planes (`rings` of them)
/// take `ring_bytes` of a column each. `longest_small`: what a small call gives at most; nothing: no call avoids the
/// log.
NodeLayout node_layout(const base::Settings& settings, const core::Topology& topology, std::size_t ring_bytes,
                       std::size_t rings, std::optional<std::size_t> longest_small = {});

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// All that may fail: throws Error (transport) where the system lacks descriptors or threads.
  static std::shared_ptr<Engine> make(EngineParts parts);
  /// Lets the background thread run. Every rank of the world does so at about the same time.
  void begin() noexcept { driver_.begin(); }
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // -- any thread
  /// The set of all ranks.
  [[nodiscard]] const SetStatePtr& world() const noexcept { return world_; }
  /// Makes the set of these ranks, in this order, this one among them; every one of them calls it. Waits. Throws Error.
  [[nodiscard]] SetStatePtr make_set(const std::vector<std::int32_t>& ranks, const std::string& name);
  /// This rank submits nothing more in the set until all members have joined: the operation's end, with the last of
  /// them (`ResultRoom::last`). `counts`: averages are over it meanwhile. `waits`: the caller waits right away. Throws
  /// Error.
  [[nodiscard]] OperationPtr join(SetState& set, bool counts, std::optional<std::chrono::nanoseconds> timeout,
                                  bool waits);
  /// This rank has done with a set, once: it submits nothing more there. Never waits.
  void drop_set(core::SetId set);
  /// Throws the fatal error, or shut_down, if there is one: the first thing that a call does.
  void check_usable() const;
  /// Submits an operation whose entry the caller has claimed. `quiet`: the caller waits right away, and need not have
  /// the background thread woken.
  void submit(OperationPtr operation, bool quiet);
  void end_step(core::SetId set);
  /// Makes an asynchronous call without a name: the next one of the set's sequence.
  void call(SetState& set, OperationPtr operation);
  /// Begins a blocking one: takes the turn, waiting for other threads' blocking calls. `end_call` follows.
  [[nodiscard]] Sequence::Turn begin_call(SetState& set);
  /// The turn's call, on the CPU's memory, avoids the log where it can (control/shortcut.hpp); whether it has. Throws
  /// Error: it has, and failed.
  [[nodiscard]] bool take_shortcut(SetState& set, Sequence::Turn& turn, const data::SmallCall& call);
  /// Ends the turn. `by_log`: the call, if it has not avoided the log; the caller waits for it. Null: it is not made,
  /// which is a fatal error if peers know of it.
  void end_call(SetState& set, Sequence::Turn& turn, OperationPtr by_log);
  /// Sends and receives messages, two at most, and waits until all are done, with whatever outcome. Throws Error:
  /// invalid_argument inside a callback, and what is fatal.
  void transfer(Span<p2p::Message* const> messages, std::optional<std::chrono::nanoseconds> timeout);
  /// The same of messages of which a device has one.
  void transfer(Span<const std::shared_ptr<MessageOperation>> operations,
                std::optional<std::chrono::nanoseconds> timeout);
  /// Starts to, without waiting. Its operation has all that it needs: where the tensor lies on a device, memory of the
  /// host, and the copy between the two.
  void submit_message(const std::shared_ptr<MessageOperation>& operation,
                      std::optional<std::chrono::nanoseconds> timeout);
  /// Sends a short message of the CPU's memory, if that can be done at once: returns the operation of all such sends.
  /// Null: nothing has been done.
  [[nodiscard]] OperationPtr try_send(const p2p::Message& message);
  /// Takes a receive back that has no message yet; whether it had none. It is done soon.
  bool cancel(Operation& receive);
  /// Waits until the operation is done, or until the time has come; drives meanwhile. Throws Error: invalid_argument
  /// inside a callback. The operation's own failure is left to be looked at.
  void wait(Operation& operation, std::optional<base::Time> until) {
    Operation* const one = &operation;
    wait_all(Span<Operation* const>(&one, 1), until);
  }
  /// All of them. A driver's place is taken once for all.
  void wait_all(Span<Operation* const> operations, std::optional<base::Time> until);
  /// Asks all nodes who has not submitted an operation, which is open or done, and waits for the answer until the time
  /// has come at most. Ranks of its set; none: all have, it is done, or nobody knows. Throws Error as `wait` does.
  [[nodiscard]] std::vector<int> late_ranks(const OperationPtr& operation, base::Time until);
  /// Waits until all work of a device's operation has been given to the device, and returns the event behind which its
  /// result is complete; null when it is done. Throws Error (invalid_argument) inside a callback.
  [[nodiscard]] data::DeviceEventPtr wait_enqueued(Operation& operation);
  /// Throws Error (invalid_argument) inside a callback, where nobody may wait.
  void check_may_wait();
  /// Likewise where nobody may shut this engine down.
  void check_may_shut_down();
  /// Whether this thread is inside a callback of on_done, or inside the log sink on behalf of the engine.
  [[nodiscard]] bool in_callback() { return errands_.is_here(); }
  /// Runs a callback of on_done on this thread: no wait inside it, and what it throws is logged and dropped.
  void call_back(std::function<void(const Status&)> callback, const Status& status) noexcept;
  /// Notes that somebody asked about an open operation without waiting.
  void note_interest(Operation& operation);
  [[nodiscard]] Metrics metrics();
  /// Whether a tensor of an open operation begins in this memory.
  [[nodiscard]] bool uses(const std::byte* begin, std::size_t bytes);
  [[nodiscard]] const core::Topology& topology() const noexcept { return topology_; }
  [[nodiscard]] const base::Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] base::Logger& logger() const noexcept { return *logger_; }
  /// How tensors of the CPU are moved, for a person.
  [[nodiscard]] const std::string& describe_plane() const { return world_->plane; }
  /// Null: no tensors but the CPU's.
  [[nodiscard]] data::DeviceBackend* device() const noexcept { return device_.get(); }
  [[nodiscard]] bool faulted() const noexcept { return failure_.is_recorded(); }
  /// Where this rank has been told that another one has left: waits for an operation for as long as it may take to fail
  /// by itself, and to name that one.
  void await_if_deserted(Operation& operation);
  /// Ends an operation whose memory its caller wants back, whatever the other ranks do: a message alone, anything else
  /// by a fatal error of this rank, which is announced but not waited for. The operation is done, and nothing touches
  /// the memory, once this returns.
  void end_now(Operation& operation, const std::string& reason);

  // -- one thread, nobody else using the engine any more
  /// Leaves, and waits for the others to leave (see Context::shutdown), for KOLO_TIMEOUT_S at most.
  void shutdown() { shutdown(patience().usual); }
  void shutdown(base::Duration patience);
  /// After `shutdown`: all ranks have left in order, and all their operations have run.
  [[nodiscard]] bool left_together() const noexcept {
    return ending_.is_leaving() && ending_.is_closed() && !faulted();
  }
  /// Leaves because of an error of this rank: a fatal error, announced but not waited for. A rank that has been
  /// told that another one has left leaves like that one: its error is no news.
  void abandon(ErrorCode code, const std::string& reason);

 private:
  /// At the end of its scope a driver hands over, whatever has happened.
  class KOLO_SCOPED_CAPABILITY HandOver {
   public:
    explicit HandOver(Engine& engine) noexcept KOLO_REQUIRES(engine.driver_.mutex()) : engine_(engine) {}
    ~HandOver() KOLO_RELEASE() { engine_.hand_over(); }
    HandOver(const HandOver&) = delete;
    HandOver& operator=(const HandOver&) = delete;

   private:
    Engine& engine_;
  };

  /// The longest sleep of the background thread while something is open that rings no bell when it moves.
  static constexpr std::chrono::milliseconds kNap{1};

  explicit Engine(EngineParts parts);

  // -- submitting
  void push(Submission&& submission) KOLO_EXCLUDES(driver_.mutex());
  void make_room() KOLO_EXCLUDES(driver_.mutex());
  void remember_engine(Operation& operation) const;
  void note_thread(SetState& set);
  bool say_at_once() KOLO_EXCLUDES(driver_.mutex());
  bool say() KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] static bool is_small(const Operation& operation) noexcept;

  /// Constant, so without the lock.
  [[nodiscard]] const OpenOperations::Patience& patience() const noexcept KOLO_NO_THREAD_SAFETY_ANALYSIS {
    return open_.patience();
  }

  // -- the driver's, with its lock
  /// Whatever is thrown in `work` is a fatal error of this rank; true then, else what `work` says.
  template <class Work>
  bool guarded(Work&& work) noexcept KOLO_REQUIRES(driver_.mutex()) {
    try {
      return work();
    } catch (...) {
      announce_exception();
      return true;
    }
  }
  bool progress() noexcept KOLO_REQUIRES(driver_.mutex());
  bool pass() KOLO_REQUIRES(driver_.mutex());
  void settle_pass() noexcept KOLO_REQUIRES(driver_.mutex());
  bool drain_mailbox(base::Time now) KOLO_REQUIRES(driver_.mutex());
  void admit(OperationPtr&& operation, base::Time now) KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] bool take_in(Operation& operation, bool in_world, base::Time now) KOLO_REQUIRES(driver_.mutex());
  void ask_for_set(OperationPtr operation, base::Time now) KOLO_REQUIRES(driver_.mutex());
  void on_set_made(const control::SetMade& made) KOLO_REQUIRES(driver_.mutex());
  void begin_join(OperationPtr operation, bool counts, base::Time now) KOLO_REQUIRES(driver_.mutex());
  void end_join(const control::JoinDone& done) KOLO_REQUIRES(driver_.mutex());
  void refuse_absent(Operation& operation) KOLO_REQUIRES(driver_.mutex());
  bool speak() KOLO_REQUIRES(driver_.mutex());
  bool read_log() KOLO_REQUIRES(driver_.mutex());
  void record_plans(const control::LogEntry& entry) KOLO_REQUIRES(driver_.mutex());
  void act(control::Action& action) KOLO_REQUIRES(driver_.mutex());
  void run_batch(const control::RunBatch& batch) KOLO_REQUIRES(driver_.mutex());
  void run_without_some(const control::RunBatch& batch) KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] std::vector<OperationPtr>
  stand_ins(core::SetId set, const std::vector<std::shared_ptr<const core::Signature>>& signatures)
      KOLO_REQUIRES(driver_.mutex());
  void start_without(core::SetId set, std::vector<OperationPtr> members, const Absence& absence)
      KOLO_REQUIRES(driver_.mutex());
  void start_batch(core::SetId set, std::vector<OperationPtr> members, std::uint32_t plan_key, std::uint32_t number)
      KOLO_REQUIRES(driver_.mutex());
  bool move_backend(base::Time now) KOLO_REQUIRES(driver_.mutex());
  void finish(Batch& batch) KOLO_REQUIRES(driver_.mutex());
  void finish(Operation& member, const Status& outcome) KOLO_REQUIRES(driver_.mutex());
  bool move_messages(base::Time now) KOLO_REQUIRES(driver_.mutex());
  bool settle_messages() KOLO_REQUIRES(driver_.mutex());
  void admit_message(MessageOperation& operation) KOLO_REQUIRES(driver_.mutex());
  void end_message_of(MessageOperation& operation) KOLO_REQUIRES(driver_.mutex());
  void complete_message(MessageOperation& operation, const Status& status) KOLO_REQUIRES(driver_.mutex());
  bool move_copies() KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] Status end_of_all() const KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] bool arm_messages() noexcept KOLO_REQUIRES(driver_.mutex());
  void complete(Operation& operation, const Status& status) KOLO_REQUIRES(driver_.mutex());
  void fail_open(const Status& status) KOLO_REQUIRES(driver_.mutex());
  void check_deadlines(base::Time now) KOLO_REQUIRES(driver_.mutex());
  void check_deadline(Operation& operation, base::Time now) KOLO_REQUIRES(driver_.mutex());
  void ask_about(Operation& operation, base::Time now) KOLO_REQUIRES(driver_.mutex());
  void ask_who_is_late(Operation& operation, base::Time now) KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] bool concerns(const control::Stalled& stall, const Operation& operation) const
      KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] std::optional<control::SlotId> slot_of(const Operation& operation) const KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] control::Answer::Wait wait_of(const Operation& operation) const KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] std::string describe(const Operation& operation) const KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] std::string describe_silence() const KOLO_REQUIRES(driver_.mutex());
  void answer_questions() KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] std::optional<control::Answer::Wait> oldest_wait() const KOLO_REQUIRES(driver_.mutex());
  bool poll_descriptors() noexcept KOLO_REQUIRES(driver_.mutex());
  bool handle_events(const std::vector<base::Poller::Event>& events) KOLO_REQUIRES(driver_.mutex());
  void on_death(int local_rank) KOLO_REQUIRES(driver_.mutex());
  bool judge_losses() KOLO_REQUIRES(driver_.mutex());
  void announce_exception() noexcept KOLO_REQUIRES(driver_.mutex());
  void close_log() KOLO_REQUIRES(driver_.mutex());
  void announce_fault(ErrorCode code, const std::string& reason) KOLO_REQUIRES(driver_.mutex()) {
    announce_loss(topology_.rank, code, reason);
  }
  void announce_loss(int rank, ErrorCode code, const std::string& reason) KOLO_REQUIRES(driver_.mutex());
  void latch(const Status& status) KOLO_REQUIRES(driver_.mutex());
  void end_batches() KOLO_REQUIRES(driver_.mutex());
  void report_stall(const control::Stalled& stall) KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] bool backend_moves() const noexcept KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] bool backend_goes_on_unheard() const noexcept KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] bool can_hear_backend() const noexcept;
  [[nodiscard]] bool device_moves() const noexcept;
  [[nodiscard]] bool owes_work() const noexcept KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] control::Board::Sleep sleep_state() const noexcept KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] bool transport_moves() const noexcept KOLO_REQUIRES(driver_.mutex()) {
    return inter_ != nullptr && failure_.spares_backends();
  }
  [[nodiscard]] bool arm_transport() noexcept KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] std::optional<std::chrono::nanoseconds> transport_nap() noexcept KOLO_REQUIRES(driver_.mutex());
  [[nodiscard]] std::optional<std::chrono::nanoseconds> sleep_time(std::optional<std::chrono::nanoseconds> nap,
                                                                   bool hears, base::Time now) noexcept
      KOLO_REQUIRES(driver_.mutex());

  // -- of calls without a name (sequence.cpp)
  void admit_call(OperationPtr&& operation, base::Time now) KOLO_REQUIRES(driver_.mutex());
  void tell_calls() KOLO_REQUIRES(driver_.mutex());
  void run_calls(const control::RunCalls& batch) KOLO_REQUIRES(driver_.mutex());
  void fail_call(const control::FailCall& failed) KOLO_REQUIRES(driver_.mutex());
  void fail_last_calls(const control::FailLastCalls& failed) KOLO_REQUIRES(driver_.mutex());
  void ask_about_call(const Operation& operation, double waited, bool deadline) KOLO_REQUIRES(driver_.mutex());

  // -- of those that may avoid the log (shortcut.cpp)
  control::Shortcut::Verdict await_verdict(control::Shortcut& shortcut);

  // -- messages (messages.cpp)
  void give_up(const std::string& reason);
  [[nodiscard]] bool look_out(p2p::Message& message);
  [[nodiscard]] int pauses_a_look() const noexcept;
  [[nodiscard]] bool adopt(p2p::Message& message, MessageOperation* owner,
                           std::optional<std::chrono::nanoseconds> timeout);
  void wait_for(Span<p2p::Message* const> messages, std::optional<std::chrono::nanoseconds> timeout);
  void give_up(Span<p2p::Message* const> messages);
  void look_after_others() KOLO_EXCLUDES(driver_.mutex());
  void look_soon() KOLO_EXCLUDES(driver_.mutex());
  void tell_driver() KOLO_EXCLUDES(driver_.mutex());

  // -- driving
  void background();
  void sleep(bool burst) KOLO_REQUIRES(driver_.mutex());
  void hear(const Driver::Events& events) KOLO_REQUIRES(driver_.mutex());
  void run_errands() KOLO_REQUIRES(driver_.mutex());
  template <class Done>
  std::optional<base::EventCount::Ticket> drive(Done done, std::optional<base::Time> until,
                                                const base::WaitPolicy& policy) KOLO_RELEASE(driver_.mutex());
  [[nodiscard]] base::WaitPolicy policy_for(const Operation& operation);
  [[nodiscard]] bool is_rung() const noexcept;
  [[nodiscard]] base::WaitPolicy brief_policy() const noexcept;
  template <class Done>
  void drive_until(Done done, base::Time until) KOLO_EXCLUDES(driver_.mutex());
  void help_until(const std::function<bool()>& done, base::Time until) KOLO_EXCLUDES(driver_.mutex());
  void hand_over(bool look = true) noexcept KOLO_RELEASE(driver_.mutex());
  void stop(const Status& status) KOLO_EXCLUDES(driver_.mutex());

  // -- constant
  const core::Topology topology_;
  const base::Settings settings_;
  const std::shared_ptr<base::Logger> logger_;
  const std::shared_ptr<transport::NodeLink> link_;
  const std::unique_ptr<control::ControlChannel> control_;
  const std::unique_ptr<data::DeviceBackend> device_;
  const base::WaitPolicy wait_policy_;
  const std::shared_ptr<transport::InterNode> inter_;
  const bool has_barriers_;  ///< process barriers reach all ranks of the node

  /// Constant once it is made. A reference to compare with: `weak_from_this` counts each copy it makes.
  std::weak_ptr<Engine> self_;

  // -- self-synchronised
  base::Mailbox<Submission> mailbox_;
  Changes changes_;
  Interest interest_;
  Failure failure_;
  Ending ending_;
  Errands errands_;
  p2p::Messenger messages_;
  std::shared_ptr<MessageOperation> sent_;  // that has succeeded: constant

  control::Board board_;
  Driver driver_;

  Sets sets_ KOLO_GUARDED_BY(driver_.mutex());
  const SetStatePtr world_;  ///< of these

  // -- guarded by the driver's lock
  control::Participant participant_ KOLO_GUARDED_BY(driver_.mutex());
  std::unique_ptr<Leader> leader_ KOLO_PT_GUARDED_BY(driver_.mutex());  ///< null: this rank is none
  Executor executor_ KOLO_GUARDED_BY(driver_.mutex());
  OpenOperations open_ KOLO_GUARDED_BY(driver_.mutex());
  DeviceMessages device_messages_ KOLO_GUARDED_BY(driver_.mutex());
  Unsent unsent_ KOLO_GUARDED_BY(driver_.mutex());
  Questions questions_ KOLO_GUARDED_BY(driver_.mutex());
  LogReading reading_ KOLO_GUARDED_BY(driver_.mutex());
  FoundCalls found_calls_ KOLO_GUARDED_BY(driver_.mutex());
  Tally metrics_ KOLO_GUARDED_BY(driver_.mutex());
};

}  // namespace kolo::engine
