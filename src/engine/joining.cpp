// SPDX-License-Identifier: Apache-2.0
//
// A rank that is out of data joins (control/messages.hpp, "Joining"): what the engine does for it, and for batches in
// which some members are absent.
//
// A join is an operation that has the turn of the set's sequence from its beginning to its end. So this rank makes no
// call without a name while it is absent, and the end of the join sets the number of the next one, which the log says.
// Other threads' blocking calls wait for the join; asynchronous ones fail, and so does what is submitted by name.
//
// In a batch without this rank its part of the data plane moves on as any other, with neutral elements for inputs
// (joins.hpp): peers see no difference, and elements, slots and messages are the same on all. On a device, too: there
// the backend fills them in, and all ranks use slots, so that the absent one needs no memory but those.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"
#include "engine/engine.hpp"

namespace kolo::engine {

OperationPtr Engine::join(SetState& set, bool counts, std::optional<std::chrono::nanoseconds> timeout, bool waits) {
  check_usable();
  check_may_wait();  // for the turn
  const auto signature = std::make_shared<core::Signature>();
  signature->kind = core::CollectiveKind::barrier;
  auto operation = std::make_shared<Operation>();
  operation->signature = signature;
  operation->joins = true;
  operation->engine = weak_from_this();
  operation->timeout = timeout;
  operation->entry = &set.sequence.join_entry();
  operation->call = set.sequence.begin_join();
  push({counts ? Command::join_counted : Command::join, operation, set.number});
  if (!waits && driver_.nobody_looks() && !say_at_once()) driver_.ring_if_asleep();
  return operation;
}

void Engine::begin_join(OperationPtr operation, bool counts, base::Time now) {
  const core::SetId set = operation->entry->set;
  if (!take_in(*operation, set == core::kGlobalSet, now)) return;
  const control::SlotId slot = participant_.join(set, operation->call, counts);
  sets_.joins.add(set, slot, std::move(operation));
}

void Engine::end_join(const control::JoinDone& done) {
  SetState& set = sets_.state_of(done.set);
  const OperationPtr operation = sets_.joins.take(done.set);
  if (done.status.ok()) {
    sets_.resume(set, done.calls);
    const auto place = std::find(set.members.begin(), set.members.end(), done.last);
    operation->room.last = static_cast<int>(place - set.members.begin());
  }
  if (done.status.code() == ErrorCode::rank_lost) ending_.note_desertion();
  complete(*operation, done.status);
}

/// What this rank submits to a set that it has joined in; a group that it asks for is the world's.
void Engine::refuse_absent(Operation& operation) {
  const core::CollectiveTraits& traits = core::traits_of(operation.signature->kind);
  std::string subject = std::string(traits.name) + " of " + base::quoted(operation.entry->name);
  if (traits.makes_set) subject = "a group cannot be made";
  if (operation.entry->sequence != nullptr) subject = "unnamed " + std::string(traits.name);
  complete(operation, Status(ErrorCode::invalid_argument,
                             subject + ": this rank has joined, and takes part in nothing more until every rank has "
                                       "joined; wait for the join first"));
}

void Engine::run_without_some(const control::RunBatch& batch) {
  const bool is_absent = std::binary_search(batch.absent.begin(), batch.absent.end(), topology_.rank);
  std::vector<OperationPtr> members;
  std::vector<std::shared_ptr<const core::Signature>> signatures;
  std::uint64_t digest = base::hash_number(batch.members.size());
  for (const control::SlotId slot : batch.members) {
    digest = base::hash_hash(base::hash_string(participant_.name_of(slot)), digest);
    if (is_absent) {
      signatures.push_back(participant_.signature_of(slot));
    } else {
      members.push_back(std::move(sets_.entries[slot].operation));
      KOLO_CHECK(members.back()) << "the log runs what this rank has not submitted";
    }
  }
  if (batch.set == core::kGlobalSet) metrics_.batch_digest += digest;
  if (is_absent) members = stand_ins(batch.set, signatures);
  start_without(batch.set, std::move(members), {batch.uncounted, is_absent});
}

/// What this rank takes part with where it is absent. Throws Error (unsupported): a fatal error.
std::vector<OperationPtr> Engine::stand_ins(core::SetId set,
                                            const std::vector<std::shared_ptr<const core::Signature>>& signatures) {
  const bool on_device = std::any_of(signatures.begin(), signatures.end(),
                                     [](const auto& signature) { return signature->device != DeviceKind::cpu; });
  if (on_device && !device_) {
    throw Error(ErrorCode::unsupported, "tensors of a device cannot be reduced while this rank has joined, because "
                                        "this rank's build of Kolo has no CUDA "
                                        "part; build it with CUDA for all ranks, or for none");
  }
  const core::Topology& topology = sets_.state_of(set).topology;
  return sets_.joins.stand_ins(signatures, topology.rank, topology.size);
}

void Engine::start_without(core::SetId set, std::vector<OperationPtr> members, const Absence& absence) {
  // A join may last as long as the others work.
  if (const Joins::Open* join = sets_.joins.find(set)) open_.restart(*join->operation, base::now());
  executor_.run_without(set, std::move(members), absence);
  if (!driver_.in_background() && device_moves()) driver_.ring();
}

}  // namespace kolo::engine
