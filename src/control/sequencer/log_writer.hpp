// SPDX-License-Identifier: Apache-2.0
//
// The log as the sequencer writes it. All decisions are in the log, so no rank has to reach a decision by itself. Every
// entry passes `append`; after `Faulted` or `Closed` the log takes no more.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "control/messages.hpp"
#include "control/sequencer.hpp"

namespace kolo::control::sequencer {

class Log {
 public:
  void append(LogEntry entry) {
    if (has_ended_) return;
    ++counters_.entries;
    out_.push_back(std::move(entry));
  }
  /// The first fatal error.
  void fault(ErrorCode code, std::int32_t rank, const std::string& message) {
    append(Faulted{code, rank, message});
    has_ended_ = true;
  }
  /// All ranks have left.
  void close() {
    append(Closed{});
    has_ended_ = true;
  }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
  /// How many entries it has had.
  [[nodiscard]] std::uint64_t size() const noexcept { return counters_.entries; }

  /// The new entries; the caller of the sequencer takes them and clears it.
  [[nodiscard]] std::vector<LogEntry>& outbox() noexcept { return out_; }
  [[nodiscard]] SequencerCounters& counters() noexcept { return counters_; }

 private:
  bool has_ended_ = false;
  std::vector<LogEntry> out_;
  SequencerCounters counters_;
};

/// The signature as the log has it.
inline core::Signature without_names(core::Signature signature) {
  signature.names.clear();
  return signature;
}

}  // namespace kolo::control::sequencer
