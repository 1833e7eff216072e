// SPDX-License-Identifier: Apache-2.0
//
// Control messages of every kind, with values at the borders of what each field holds: for tests of the codec, and the
// seeds of its fuzzer.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "control/codec.hpp"

namespace kolo::control {

inline core::Signature sample_signature() {
  core::Signature signature;
  signature.kind = core::CollectiveKind::broadcast;
  signature.op = ReduceOp::bit_xor;
  signature.device = DeviceKind::cuda;
  signature.root = 1023;
  signature.prescale = 0.125;
  signature.postscale = -3e300;
  signature.wire = core::Wire::bfloat16;
  signature.tensors = {{DType::bfloat16, Shape{3, 224, 224}}, {DType::boolean, Shape{}}, {DType::int64, Shape{0, 7}}};
  signature.members = 0xfedcba9876543210;
  signature.names = {"layer1.weight", "", "layer1.bias"};
  signature.ranks = {0, 5, 1000000, -1};
  signature.priority = std::numeric_limits<std::int32_t>::min();
  return signature;
}

inline constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
inline constexpr double kWaited = 59.75;

/// At least one of each kind, and of each form that a field has.
inline std::vector<UpMessage> sample_up() {
  return {Counted{core::kNoTensor, {65535, (std::uint64_t{1} << CountWord::kCountBits) - 1}},
          Counted{12, {3, 4711}, 1023},
          Declared{7, "layer1.weight", 3, core::kNoTensor, 0, {{sample_signature(), {0, 1, 2}}, {std::nullopt, {3}}}},
          Declared{0, "", kMost, 0, 65535, {}},
          Declared{0, "pair", 1, core::kNoTensor, 0, {{sample_signature(), {1}}}, {1, 1023}, 1},
          PartAwaited{3, 4, 5, {17, 3, core::kNoTensor}, 99},
          Overdue{2, {1, "x", 9, {2, 900}, false, kMost}, kWaited, true, true, core::kLastCollective, false, true},
          RankLost{4, ErrorCode::user_exception, "std::runtime_error: no"},
          Departed{1023, {{0, kMost}, {7, 1}}},
          Starved{12},
          Answer{kMost, 1023, true, Doing::standing, {0, 7}, Request{3, "y", kMost, {2, 5}}},
          Answer{1, 2, false, Doing::waiting, {}, std::nullopt},
          Joined{3, 7, kMost, 12, {{"", 18, 0, {}}, {"x", kMost, core::kNoTensor, sample_signature()}}, kMost, true, 9},
          Overdue{2, {1, "", 3, {}, true}, kWaited, true, false, core::kLastCollective, true},
          SequenceGrown{4,
                        kMost,
                        {{255, kMost, sample_signature()},
                         {1, 2},
                         {0, 1, std::nullopt, {{sample_signature(), {0, 2}}, {core::Signature{}, {1}}}}},
                        7},
          Deserted{1023, 0},
          Deserted{0, -1}};
}

/// One of each kind.
inline std::vector<LogEntry> sample_log() {
  return {Assigned{5, 6, 7, "grad", sample_signature()},
          Evicted{5, 6},
          BatchAppended{2, {9, 8, 7, 100000}, 1023},
          PlanDefined{1, 2, {{3, 4, 5}, {}, {6}}},
          PlanVoided{1, PlanEnd::evicted},
          PlannedBatch{100, 120, 3},
          Failed{{3, "x", 4, {0, 3}}, ErrorCode::mismatch, "they disagree"},
          Query{1, {2, "y", 3, {0, 3}, false, kMost}, 1023},
          Stalled{{1, "z", kMost, {4, 5, 6}}, kWaited, {4, 5}, core::CollectiveKind::barrier, true, {6, 900}},
          SetAdded{1, core::kFirstRow, 2, {1, 0}, "add"},
          SetRemoved{1},
          RankDeparted{6, 1023, true},
          Faulted{ErrorCode::timeout, -1, "too late"},
          Closed{},
          Push{},
          RankJoined{1, 5, {"", "x"}, true, kMost},
          JoinEnded{1, 6, kMost, ErrorCode::ok, "", kMost},
          SequenceAppended{1, kMost, {{5, sample_signature()}, {6, {}}}, 4},
          SequenceFailed{1, 7, ErrorCode::mismatch, "they disagree"},
          SequenceEnded{1, 8, ErrorCode::rank_lost, "it left"}};
}

template <class Message>
Bytes encoded(const Message& message) {
  Bytes bytes;
  encode(message, bytes);
  return bytes;
}

}  // namespace kolo::control
