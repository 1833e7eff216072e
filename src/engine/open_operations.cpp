// SPDX-License-Identifier: Apache-2.0
#include "engine/open_operations.hpp"

#include <utility>

#include "engine/name_table.hpp"
#include "engine/records.hpp"

namespace kolo::engine {

void OpenOperations::complete(Operation& operation, const Status& status) {
  waiters.note_change();
  if (deferred_.logs(LogLevel::trace)) {
    deferred_.log(LogLevel::trace, (status.ok() ? "done: " : "failed: ") + record_of(operation));
  }
  Operation* const last = operations_.back();  // takes its place
  operations_[operation.open_index] = last;
  last->open_index = operation.open_index;
  operations_.pop_back();
  if (!status.ok()) ++tally_.failures;
  if (status.code() == ErrorCode::mismatch) ++tally_.mismatches;
  ++(driver_.in_background() ? tally_.driven_by_background : tally_.driven_by_waiters);
  Entry& entry = *operation.entry;
  const OperationPtr held = std::move(entry.operation);  // by the entry alone, perhaps
  // Before the handle is done: its owner may submit the name again at once.
  if (operation.is_join) {
    sets_.sequence_of(entry.set).end_join();
  } else if (entry.sequence == nullptr) {
    finish_entry(entry);
  } else if (operation.call != 0) {
    entry.sequence->note_over();
  }
  bool was_awaited = false;
  if (!status.ok() || !operation.complete_unattended(was_awaited)) {
    for (auto& callback : operation.complete(status, was_awaited)) deferred_.call(std::move(callback), status);
  }
  if (was_awaited) waiters.note_done();
}

}  // namespace kolo::engine
