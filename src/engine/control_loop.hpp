// SPDX-License-Identifier: Apache-2.0
//
// The control loop: what a driver does in every pass to bring submissions into the log, and to act on what the log
// says.
//
//   mailbox -> participant -> board            what this rank says: `take_submissions`, `publish`
//   board, sockets -> leader -> board, sockets  where this rank leads its node: control/leader.hpp
//   board (the log) -> participant -> actions   what all ranks do: `read_log`
//
// A rank that is out of data joins (control/messages.hpp, "Joining"). A join holds a reservation of the set's sequence
// from its beginning to its end. This rank therefore makes no call without a name while it is absent, and the end of
// the join sets the number of the next call, which the log gives. Other threads' blocking calls wait for the join;
// asynchronous ones fail, and so does what is submitted by name. In a batch without this rank its part of the data
// plane moves on as any other, with neutral elements for inputs (sets.hpp): peers see no difference.
//
// The driver's, but for the mailbox.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/mailbox.hpp"
#include "engine/deadlines.hpp"
#include "engine/engine_state.hpp"
#include "engine/execution.hpp"
#include "engine/messages.hpp"
#include "engine/operation.hpp"
#include "engine/sequence.hpp"

namespace kolo::engine {

class ControlLoop {
 public:
  ControlLoop(EngineState& engine, Execution& execution, Messages& messages, Deadlines& deadlines)
      : mailbox(static_cast<std::size_t>(engine.settings.mailbox_capacity)), engine_(engine), execution_(execution),
        messages_(messages), deadlines_(deadlines) {}

  base::Mailbox<Submission> mailbox;  ///< any thread puts something in

  /// Takes out what the mailbox holds; whether it held anything.
  bool take_submissions(base::Time now) KOLO_REQUIRES(kDriving);
  /// Publishes what the participant says; whether there was anything.
  bool publish() KOLO_REQUIRES(kDriving);
  /// Acts on the entries of the log that this rank has not read; whether there were any.
  bool read_log() KOLO_REQUIRES(kDriving);
  /// Judges the losses that the transport between nodes has reported; whether a peer is lost.
  bool judge_losses() KOLO_REQUIRES(kDriving);
  /// The process of a peer of this node is gone.
  void on_death(int local_rank) KOLO_REQUIRES(kDriving);
  /// This rank has left, and stops before the log has ended.
  void go() KOLO_REQUIRES(kDriving);
  /// Fails all that is open. Batches may hold it: they are dropped after this.
  void fail_open(const Status& status) KOLO_REQUIRES(kDriving);
  /// The collectives among them whose tensors lie in the CPU's memory.
  void fail_on_cpu(const Status& status) KOLO_REQUIRES(kDriving);
  /// The engine has stopped: fails what the mailbox still holds, too.
  void fail_all(const Status& status) KOLO_REQUIRES(kDriving);

 private:
  // -- submissions
  void take(Submission& item, FoundCalls& found, base::Time now) KOLO_REQUIRES(kDriving);
  [[nodiscard]] bool take_in(Operation& operation, bool in_world, base::Time now) KOLO_REQUIRES(kDriving);
  void admit(OperationPtr&& operation, FoundCalls& found, base::Time now) KOLO_REQUIRES(kDriving);
  void admit_call(OperationPtr&& operation, FoundCalls& found, base::Time now) KOLO_REQUIRES(kDriving);
  void tell(FoundCalls& found) KOLO_REQUIRES(kDriving);
  void ask_for_set(OperationPtr&& operation, base::Time now) KOLO_REQUIRES(kDriving);
  void begin_join(OperationPtr&& operation, bool counts, base::Time now) KOLO_REQUIRES(kDriving);
  void refuse_absent(Operation& operation) KOLO_REQUIRES(kDriving);
  void end_step(core::SetId set) KOLO_REQUIRES(kDriving);
  void leave() KOLO_REQUIRES(kDriving);

  // -- the log
  void record_plans(const control::LogEntry& entry) KOLO_REQUIRES(kDriving);
  void count_batch(core::SetId set, std::int32_t last) KOLO_REQUIRES(kDriving);
  void on(const control::RunBatch& batch) KOLO_REQUIRES(kDriving);
  void on(const control::RunCalls& batch) KOLO_REQUIRES(kDriving);
  void on(const control::FailName& failed) KOLO_REQUIRES(kDriving);
  void on(const control::FailCall& failed) KOLO_REQUIRES(kDriving);
  void on(const control::FailLastCalls& failed) KOLO_REQUIRES(kDriving);
  void on(const control::SetMade& made) KOLO_REQUIRES(kDriving);
  void on(const control::SetGone& gone) KOLO_REQUIRES(kDriving) {
    engine_.executor.remove_set(gone.set);
    engine_.recorder->remove_set(gone.set);
    engine_.recorder->record(recorder::Kind::group_gone, gone.set, 0);
    engine_.messenger.on_set_gone(engine_.sets.forget(gone.set));
  }
  void on(const control::JoinDone& done) KOLO_REQUIRES(kDriving);
  void on(const control::ForgetName& forgotten) KOLO_REQUIRES(kDriving) { engine_.sets.entries.forget(forgotten.name); }
  void on(const control::DropPlan& plan) KOLO_REQUIRES(kDriving) { engine_.executor.drop_plan(plan.plan_key); }
  void on(const control::ReportStall& report) KOLO_REQUIRES(kDriving) { deadlines_.report(report.stall); }
  void on(control::AnswerQuery& query) KOLO_REQUIRES(kDriving) {
    deadlines_.add_question(std::move(query), base::now());
  }
  void on(const control::WorldFault& fault) KOLO_REQUIRES(kDriving) { engine_.ending.record(fault.status); }
  void on(const control::WorldClosed& /*closed*/) KOLO_REQUIRES(kDriving) { close_log(); }
  void on(const control::PushTransport& /*push*/) KOLO_REQUIRES(kDriving) {
    ++engine_.tally.pushes;
    if (engine_.inter) engine_.inter->push(base::now());
  }
  template <class Ready>
  void start(const Ready& batch, std::vector<OperationPtr>&& members, Executor::How how) KOLO_REQUIRES(kDriving);
  template <class Ready>
  [[nodiscard]] bool is_absent_from(const Ready& batch) const KOLO_REQUIRES(kDriving);
  [[nodiscard]] std::vector<OperationPtr>
  stand_ins(core::SetId set, const std::vector<std::shared_ptr<const core::Signature>>& signatures)
      KOLO_REQUIRES(kDriving);
  void close_log() KOLO_REQUIRES(kDriving);

  EngineState& engine_;
  Execution& execution_ KOLO_GUARDED_BY(kDriving);
  Messages& messages_;
  Deadlines& deadlines_ KOLO_GUARDED_BY(kDriving);
  /// What an exception came upon: open, but perhaps held by nobody else. Nothing more is taken until the job has ended.
  OperationPtr half_taken_;
  // Kept for their memory: entries come by the hundred.
  control::Bytes entry_;
  std::vector<control::Action> actions_;
};

}  // namespace kolo::engine
