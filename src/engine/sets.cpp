// SPDX-License-Identifier: Apache-2.0
#include "engine/sets.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "base/check.hpp"
#include "base/machine.hpp"
#include "control/sentences.hpp"
#include "data/backend.hpp"
#include "data/neutral.hpp"

namespace kolo::engine {
namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

OperationPtr request_for_set(NameTable& names, const std::vector<std::int32_t>& ranks, const GroupOptions& options) {
  // Threads that ask for the same set do so one after another.
  std::vector<std::int32_t> ascending = ranks;
  std::sort(ascending.begin(), ascending.end());
  std::string key = "kolo.set";  // no program's
  for (const std::int32_t rank : ascending) key += " " + std::to_string(rank);
  core::Signature signature;
  signature.kind = core::CollectiveKind::add_process_set;
  signature.ranks = ranks;
  signature.names = {options.name};
  auto operation = std::make_shared<Operation>();
  operation->signature = std::make_shared<const core::Signature>(std::move(signature));
  operation->entry = &names.claim_in_turn(key + '\0' + options.name);
  operation->name_hash = operation->entry->hash;
  operation->timeout = options.timeout;
  operation->fails_alone = options.fails_alone;
  return operation;
}

Sets::Sets(const core::Topology& world, Parts parts)
    : topology_(world), parts_(std::move(parts)),
      world_(std::make_shared<SetState>(core::kGlobalSet, world, all_ranks(world.size), std::string())),
      blocks_(world, parts_.layout.blocks) {
  make_shortcut(*world_);
}

void Sets::on_log(const control::LogEntry& entry) {
  if (const auto* added = std::get_if<control::SetAdded>(&entry)) {
    blocks_.add(added->set, added->members);
    numbers_[added->set] = (added->base - core::kFirstRow) / core::kReservedIds + 1;
    ++added_;
  } else if (const auto* removed = std::get_if<control::SetRemoved>(&entry)) {
    blocks_.remove(removed->set);
    numbers_.erase(removed->set);
  } else if (const auto* joined = std::get_if<control::RankJoined>(&entry)) {
    const bool is_member = joined->set == core::kGlobalSet || states_.count(joined->set) > 0;
    if (is_member) state_of(joined->set).sequence.shortcut.close();
  }
}

std::string Sets::words_of(core::SetId set) const {
  const auto found = states_.find(set);
  return found == states_.end() ? std::string() : found->second->words;
}

Sets::Made Sets::make(core::SetId set, const std::vector<std::int32_t>& members, const std::string& name) {
  std::vector<std::int32_t> ascending = members;
  std::sort(ascending.begin(), ascending.end());
  Made made;
  made.state = std::make_shared<SetState>(set, core::topology_of(topology_, members), members,
                                          control::group_of(name, ascending), added_);
  make_shortcut(*made.state);
  if (is_closed_) made.state->sequence.shortcut.close();
  const std::uint32_t number = numbers_.at(set);
  made.plane = make_plane(*made.state, number);
  if (parts_.make_device_plane) made.make_device_plane = parts_.make_device_plane(site_of(*made.state, number, 1));
  states_.emplace(set, made.state);
  return made;
}

std::uint64_t Sets::forget(core::SetId set) {
  const auto found = states_.find(set);
  KOLO_CHECK(found != states_.end()) << "process set " << set;
  found->second->sequence.shortcut.add_counts(gone_);
  const std::uint64_t serial = found->second->serial;
  states_.erase(found);
  return serial;
}

void Sets::close_shortcuts() noexcept {
  if (std::exchange(is_closed_, true)) return;
  world_->sequence.shortcut.close();
  for (const auto& [set, state] : states_) state->sequence.shortcut.close();
}

void Sets::reopen(SetState& set) {
  if (!is_closed_) set.sequence.shortcut.open();
}

std::vector<std::pair<core::SetId, core::Round>> Sets::avoided() const {
  std::vector<std::pair<core::SetId, core::Round>> calls{{core::kGlobalSet, world_->sequence.avoided()}};
  for (const auto& [set, state] : states_) calls.emplace_back(set, state->sequence.avoided());
  return calls;
}

void Sets::clear_sequences() noexcept {
  world_->sequence.clear();
  for (const auto& [set, state] : states_) state->sequence.clear();
}

CountsByKind Sets::shortcuts() const noexcept {
  CountsByKind all = gone_;
  world_->sequence.shortcut.add_counts(all);
  for (const auto& [set, state] : states_) state->sequence.shortcut.add_counts(all);
  return all;
}

std::size_t Sets::block_of(const SetState& set, int local_rank) const {
  return set.number == core::kGlobalSet ? 0 : blocks_.block_of(set.number, local_rank);
}

std::vector<int> Sets::local_ranks_of(const SetState& set) const {
  std::vector<int> ranks;
  for (const int rank : set.topology.nodes[static_cast<std::size_t>(set.topology.node)]) {
    const int member = set.members[static_cast<std::size_t>(rank)];
    ranks.push_back(topology_.local_rank_of[static_cast<std::size_t>(member)]);
  }
  return ranks;
}

base::Columns Sets::columns_of(const SetState& set) const {
  std::vector<std::byte*> begins;
  for (const int rank : local_ranks_of(set)) {
    begins.push_back(parts_.layout.column(parts_.memory, block_of(set, rank), rank));
  }
  return base::Columns(std::move(begins));
}

void Sets::make_shortcut(SetState& set) {
  if (parts_.layout.shortcut_bytes == 0 || set.topology.node_count() > 1) return;
  const core::ShortcutMemory memory(columns_of(set), parts_.layout.longest_small, set.topology.local_rank);
  // In the world all ranks have set up the shortcut before a rank makes a call.
  const core::Round by_log = set.number == core::kGlobalSet ? 0 : 1;
  set.sequence.shortcut.make(memory, parts_.make_small_calls(memory), by_log);
}

PlaneSite Sets::site_of(const SetState& set, std::uint32_t number, std::size_t ring) const {
  return {set.topology, set.members, local_ranks_of(set), parts_.layout.ring(columns_of(set), ring), number};
}

std::unique_ptr<data::Backend> Sets::make_plane(SetState& set, std::uint32_t number) {
  std::unique_ptr<data::Backend> plane = parts_.make_plane(site_of(set, number, 0));
  set.plane = plane->describe();
  return plane;
}

namespace {

/// The bytes of this rank's input while it is absent. If the kind does not reduce, it gives nothing: it is no root, and
/// gathers ask each rank for its number of rows. A device's backend needs no memory.
std::size_t bytes_of(const core::Signature& signature, const core::TensorSignature& tensor) {
  if (!core::traits_of(signature.kind).reduces || signature.device != DeviceKind::cpu) return 0;
  return static_cast<std::size_t>(tensor.shape.elements()) * size_of(tensor.dtype);
}

Buffer buffer_of(const core::Signature& signature, const core::TensorSignature& tensor, std::byte* memory, int rank,
                 int size) {
  const core::CollectiveTraits& traits = core::traits_of(signature.kind);
  Buffer buffer;
  buffer.elements = traits.rows_differ ? 0 : tensor.shape.elements();
  if (!traits.reduces || signature.device != DeviceKind::cpu) return buffer;
  data::fill_neutral(tensor.dtype, signature.op, signature.prescale, memory, buffer.elements);
  buffer.input = memory;
  if (traits.rooted) return buffer;
  buffer.output = memory;  // nobody reads it
  if (traits.shapes != core::Shapes::own_rows || tensor.shape[0] == 0) return buffer;
  const auto row = static_cast<std::int64_t>(bytes_of(signature, tensor)) / tensor.shape[0];
  buffer.output += data::RowsOf(tensor.shape[0], rank, size).begin * row;
  return buffer;
}

}  // namespace

std::vector<OperationPtr> stand_ins(const std::vector<std::shared_ptr<const core::Signature>>& signatures, int rank,
                                    int size) {
  struct StandIn {
    Operation operation;
    std::shared_ptr<std::byte[]> memory;
  };
  const auto room_of = [](const core::Signature& signature, const core::TensorSignature& tensor) {
    return base::round_up(bytes_of(signature, tensor), base::kCacheLine);
  };
  std::size_t bytes = 0;
  for (const auto& signature : signatures) {
    for (const core::TensorSignature& tensor : signature->tensors) bytes += room_of(*signature, tensor);
  }
  const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);  // not set to zero
  std::byte* at = memory.get();
  std::vector<OperationPtr> operations;
  operations.reserve(signatures.size());
  for (const auto& signature : signatures) {
    const auto one = std::make_shared<StandIn>();
    one->memory = memory;
    one->operation.signature = signature;
    for (const core::TensorSignature& tensor : signature->tensors) {
      one->operation.buffers.push_back(buffer_of(*signature, tensor, at, rank, size));
      at += room_of(*signature, tensor);
    }
    operations.emplace_back(one, &one->operation);
  }
  return operations;
}

}  // namespace kolo::engine
