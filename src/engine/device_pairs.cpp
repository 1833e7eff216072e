// SPDX-License-Identifier: Apache-2.0
#include "engine/device_pairs.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include <kolo/options.hpp>

#include "engine/engine_state.hpp"

namespace kolo::engine {
namespace {

std::string words_of(const p2p::Direction& direction) {
  return " from " + std::to_string(direction.source) + " to " + std::to_string(direction.destination);
}

/// Makes it a call in the set, of which rank 0 sends.
void prepare(Operation& operation, SetState& set, std::byte* tensor, std::uint64_t bytes) {
  const auto elements = static_cast<std::int64_t>(bytes);
  core::Signature signature;
  signature.kind = core::CollectiveKind::message;
  signature.device = DeviceKind::cuda;
  signature.tensors.resize(1);
  signature.tensors.front().dtype = DType::uint8;
  signature.tensors.front().shape = Shape{elements};
  operation.signature = set.names.share(std::move(signature));
  operation.buffers.push_back({tensor, tensor, elements});
  operation.entry = &set.sequence.entry();
}

}  // namespace

bool DevicePairs::is_busy(const Pair& pair) const noexcept {
  return pair.stage == Stage::asking || pair.stage == Stage::probing || !pair.calls.empty();
}

void DevicePairs::introduce(const p2p::Direction& direction) {
  const auto [its, is_new] = pairs_.try_emplace(direction);
  if (!is_new) return;
  GroupOptions options;
  options.name = std::string(kNames) + words_of(direction);
  options.fails_alone = true;
  its->second.step = request_for_set(engine_.world->names, {direction.source, direction.destination}, options);
  its->second.step->is_own = true;
  ++busy_;
}

void DevicePairs::call(const p2p::Direction& direction, OperationPtr operation, std::byte* tensor,
                       std::uint64_t bytes) {
  Pair& pair = pairs_.at(direction);
  operation->is_own = operation->message == nullptr;
  prepare(*operation, *pair.set, tensor, bytes);
  if (pair.calls.empty()) ++busy_;
  pair.calls.push_back(std::move(operation));
}

void DevicePairs::refuse(const p2p::Direction& direction, Pair& pair) {
  pair.stage = Stage::refused;
  engine_.deferred.log(LogLevel::info, "messages" + words_of(direction) +
                                           " do not go from device to device: " + pair.step->outcome().message());
  pair.step.reset();
}

bool DevicePairs::move(const p2p::Direction& direction, Pair& pair, Mailbox& mailbox) {
  if (pair.stage == Stage::asking && !pair.is_given) {
    return pair.is_given = mailbox.try_push(Submission{Command::make_set, pair.step});
  }
  if (pair.step && pair.step->failed()) {
    refuse(direction, pair);
    return true;
  }
  if (pair.stage == Stage::asking && pair.step->done()) {
    pair.set = std::move(pair.step->outputs.first.set);
    pair.stage = Stage::probing;
    pair.step = std::make_shared<Operation>();
    pair.step->is_own = true;
    prepare(*pair.step, *pair.set, nullptr, 0);
    pair.calls.push_back(pair.step);
  }
  if (pair.stage == Stage::probing && pair.step->done()) {
    pair.stage = Stage::found;
    pair.step.reset();
    engine_.messenger.on_found(direction);
    return true;
  }
  bool moved = false;
  while (!pair.calls.empty() && pair.set->sequence.try_call(pair.calls.front(), mailbox)) {
    pair.calls.pop_front();
    moved = true;
  }
  return moved;
}

bool DevicePairs::move(Mailbox& mailbox) {
  bool moved = false;
  for (auto& [direction, pair] : pairs_) {
    if (!is_busy(pair)) continue;
    moved |= move(direction, pair, mailbox);
    if (!is_busy(pair)) --busy_;
  }
  return moved;
}

std::vector<OperationPtr> DevicePairs::take() {
  std::vector<OperationPtr> left;
  for (auto& [direction, pair] : pairs_) {
    const auto is_callers = [](const OperationPtr& call) { return call->message != nullptr; };
    std::copy_if(pair.calls.begin(), pair.calls.end(), std::back_inserter(left), is_callers);
    pair.calls.clear();
    pair.stage = Stage::refused;
  }
  busy_ = 0;
  return left;
}

}  // namespace kolo::engine
