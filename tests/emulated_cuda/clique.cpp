// SPDX-License-Identifier: Apache-2.0
#include "clique.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"

namespace kolo::emulated {
namespace {

bool point_to_point(const Part& part) {
  return part.signature.kind == Collective::send || part.signature.kind == Collective::receive;
}

void announce() { Machine::instance().cliques->changed.notify_all(); }

}  // namespace

bool Clique::join(int rank, Communicator* communicator) {
  Communicator*& seat = members_[static_cast<std::size_t>(rank)];
  if (seat != nullptr) {
    Machine::instance().report(Report::Kind::misuse,
                               "two callers are rank " + std::to_string(rank) + " of communicator " + name_);
    return false;
  }
  seat = communicator;
  ++joined_;
  if (processes_) processes_->join(rank);
  announce();
  return true;
}

bool Clique::has_device(int device) const {
  const int a_device = Machine::instance().config.instances ? 2 : 1;
  return std::any_of(members_.begin(), members_.end(), [&](const Communicator* member) {
    return member != nullptr && member->device / a_device == device / a_device;
  });
}

bool Clique::is_over() const {
  return complete() &&
         std::all_of(members_.begin(), members_.end(), [](const Communicator* member) { return member == nullptr; });
}

void Clique::tell_others(int rank, ncclResult_t error, const std::string& text) {
  for (std::size_t other = 0; other < members_.size(); ++other) {
    Communicator* member = members_[other];
    if (member == nullptr || static_cast<int>(other) == rank || member->error != ncclSuccess) continue;
    member->error = error;
    member->error_text = text;
  }
  announce();
}

Clique::RoundKey Clique::key_of(int rank, const Part& part) const {
  if (part.signature.kind == Collective::send) return {{rank, part.signature.root}, part.number};
  if (part.signature.kind == Collective::receive) return {{part.signature.root, rank}, part.number};
  return {{-1, -1}, part.number};
}

std::size_t Clique::seat_of(int rank, const Part& part) const {
  if (part.signature.kind == Collective::send) return 0;
  return part.signature.kind == Collective::receive ? 1 : static_cast<std::size_t>(rank);
}

Round& Clique::round_of(int rank, const Part& part) {
  Round& round = rounds_[key_of(rank, part)];
  if (round.seats.empty()) round.seats.resize(point_to_point(part) ? 2 : members_.size());
  return round;
}

void Clique::call(int rank, const Part& part) {
  if (processes_) return;  // compared when both are there
  Round& round = round_of(rank, part);
  Round::Seat& seat = round.seats[seat_of(rank, part)];
  seat.called = true;
  seat.signature = part.signature;
  seat.registered = part.registered;
  seat.said = "rank " + std::to_string(rank) + (part.site.empty() ? "" : " (" + part.site + ")") + ": " +
              to_string(part.signature);
  const bool disputed = std::any_of(round.seats.begin(), round.seats.end(), [&](const Round::Seat& other) {
    return &other != &seat && other.called && !agree(other.signature, seat.signature);
  });
  if (disputed) disagree(round);
  for (std::size_t other = 0; other < round.seats.size() && !disputed; ++other) {
    const Round::Seat& its = round.seats[other];
    if (&its == &seat || !its.called) continue;
    const std::string why = difference(seat.registered, seat_of(rank, part), its.registered, other);
    if (why.empty()) continue;
    Machine::instance().report(Report::Kind::hazard, "communicator " + name_ + ": " + why + "\n  " + its.said + ": " +
                                                         its.registered.text + "\n  " + seat.said + ": " +
                                                         seat.registered.text);
  }
  announce();
}

/// NCCL binds registered memory of all ranks together when it is first used together.
std::string Clique::difference(const Registered& of_one, std::size_t one, const Registered& of_other,
                               std::size_t other) {
  if (of_one.text != of_other.text)
    return "ranks have registered the memory of a collective in different ways, for which NCCL can hang.";
  for (std::size_t i = 0; i < of_one.numbers.size(); ++i) {
    const unsigned number = of_one.numbers[i];
    const unsigned its = of_other.numbers[i];
    if (bound_.emplace(std::tuple(one, number, other), its).first->second != its ||
        bound_.emplace(std::tuple(other, its, one), number).first->second != number)
      return "registered memory is used together with other memory than before, for which NCCL registers it again.";
  }
  return {};
}

bool Clique::waits_for(const Communicator& communicator) const {
  return std::all_of(members_.begin(), members_.end(), [&](const Communicator* member) {
    return member == nullptr || member == &communicator || member->next_collective > communicator.next_collective;
  });
}

ncclResult_t Clique::connect(Lock& lock, Communicator& communicator, const std::vector<Part>& parts) {
  if (processes_ || size() == 1 || communicator.lost) return ncclSuccess;
  std::vector<Connection> missing;
  for (const Part& part : parts) {
    const Signature& signature = part.signature;
    Connection connection{{signature.kind, 0}, {-1, -1}};
    if (point_to_point(part)) {
      connection.second = key_of(communicator.rank, part).first;
    } else {
      for (std::size_t count = signature.count; count > 0; count /= 16) ++connection.first.second;
    }
    if (!communicator.connections.insert(connection).second) continue;
    ++connecting_[connection];
    missing.push_back(connection);
  }
  announce();
  const auto is_there = [this](const Connection& connection) {
    const auto& [kind, size_class] = connection.first;
    if (kind != Collective::send && kind != Collective::receive) return connecting_[connection] == size();
    return connecting_[{{Collective::send, 0}, connection.second}] > 0 &&
           connecting_[{{Collective::receive, 0}, connection.second}] > 0;
  };
  const auto ended = [&] {
    return cut_ || communicator.error != ncclSuccess || communicator.state == Communicator::State::aborted;
  };
  communicator.connecting = true;
  Machine::instance().cliques->changed.wait(
      lock, [&] { return ended() || std::all_of(missing.begin(), missing.end(), is_there); });
  communicator.connecting = false;
  if (!ended()) return ncclSuccess;
  return communicator.error != ncclSuccess ? communicator.error : ncclInternalError;
}

void Clique::give_up(int rank) {
  given_up_ = true;
  for (Communicator* member : members_) {
    if (member == nullptr || member->rank == rank || member->error != ncclSuccess) continue;  // its first error stays
    const bool waits = member->state == Communicator::State::initialising && !complete();
    if (!waits && !member->connecting) continue;
    member->error = ncclRemoteError;
    member->error_text = "rank " + std::to_string(rank) + " has given up";
  }
  announce();
}

void Clique::disagree(const Round& round) {
  std::string text = "communicator " + name_ + ": ranks disagree.";
  for (const Round::Seat& seat : round.seats) {
    if (seat.called) text += "\n  " + seat.said;
  }
  // Every further call of a disturbed order disagrees too: the first is what matters.
  if (!broken_) Machine::instance().report(Report::Kind::mismatch, text);
  broken_ = true;
  tell_others(-1, ncclInvalidUsage, text);
}

VectorClock Clique::clock_after(const Round& round, std::size_t seat) const {
  VectorClock clock;
  const Signature& signature = round.seats[seat].signature;
  for (std::size_t other = 0; other < round.seats.size(); ++other) {
    bool feeds = true;  // does what the seat gets depend on what the other gave?
    if (signature.kind == Collective::broadcast) feeds = static_cast<int>(other) == signature.root;
    if (signature.kind == Collective::reduce) feeds = static_cast<int>(seat) == signature.root;
    if (signature.kind == Collective::send) feeds = false;
    if (feeds) clock.join(round.seats[other].clock);
  }
  return clock;
}

void Clique::arrive(Lock& lock, int rank, const Part& part, Stream& stream, const VectorClock& clock) {
  Machine& machine = Machine::instance();
  Round& round = round_of(rank, part);
  Round::Seat& seat = round.seats[seat_of(rank, part)];
  seat.arrived = true;
  seat.clock = clock;
  seat.stream = &stream;
  seat.buffers = {machine.memory->device_view(part.input), machine.memory->device_view(part.output)};
  // One that has left without a result was aborted, and its memory may be gone.
  const bool all =
      std::all_of(round.seats.begin(), round.seats.end(), [](const Round::Seat& s) { return s.arrived && !s.left; });
  if (!all || broken_) return;
  std::vector<Buffers> buffers;
  for (const Round::Seat& other : round.seats) buffers.push_back(other.buffers);
  round.computing = true;
  machine.move_data(lock, [&] { compute(round.seats[0].signature, buffers); });
  round.computing = false;
  round.done = true;
  // They have yet to be told, but are idle no longer.
  for (const Round::Seat& other : round.seats) other.stream->waits_for_peers = false;
  ++machine.doings;
  announce();
}

void Clique::depart(int rank, const Part& part, Stream& stream) {
  const auto found = rounds_.find(key_of(rank, part));
  Round& round = found->second;
  const std::size_t seat = seat_of(rank, part);
  if (round.done) stream.clock().join(clock_after(round, seat));
  round.seats[seat].left = true;
  if (std::all_of(round.seats.begin(), round.seats.end(), [](const Round::Seat& s) { return s.left; })) {
    rounds_.erase(found);
  }
}

/// What goes on in other processes is waited for without the machine's mutex, as a device would. Of a group first the
/// collectives, one after another, and then all messages together.
void Clique::run_with_processes(Lock& lock, Stream& stream, Communicator& communicator,
                                const std::vector<Part>& parts) {
  Machine& machine = Machine::instance();
  const auto ended = [&] {
    const Lock look(machine.mutex);
    return communicator.state == Communicator::State::aborted || broken_ || cut_;
  };
  const int rank = communicator.rank;
  std::vector<ProcessRounds::Message> messages;
  std::vector<ProcessRounds::Message> rounds;
  for (const Part& part : parts) {
    const Buffers own{machine.memory->device_view(part.input), machine.memory->device_view(part.output)};
    (point_to_point(part) ? messages : rounds).push_back({part.signature, own, part.number, false});
  }
  std::string dispute;
  ++communicator.running;
  stream.waits_for_peers = true;
  machine.progressed.notify_all();
  lock.unlock();
  bool on = !communicator.lost;
  for (ProcessRounds::Message& round : rounds) {
    on = on && processes_->run(rank, round.signature, round.own, ended, dispute);
    round.done = on;
  }
  if (on) static_cast<void>(processes_->pass(rank, messages, ended, dispute));
  lock.lock();
  stream.waits_for_peers = false;
  if (!dispute.empty() && !broken_) {
    machine.report(Report::Kind::mismatch, "communicator " + name_ + ": ranks disagree." + dispute);
    broken_ = true;
    tell_others(-1, ncclInvalidUsage, dispute);
  }
  for (const auto* some : {&rounds, &messages}) {
    for (const ProcessRounds::Message& one : *some) {
      const std::size_t bytes = output_bytes(one.signature, rank, size());
      if (!one.done && !cut_ && bytes > 0) std::memset(one.own.output, Memory::kPoison, bytes);
    }
  }
  --communicator.running;
  --communicator.outstanding;
  ++machine.doings;
  announce();
}

bool Clique::fill(Lock& lock, Stream& stream, const Communicator& communicator) const {
  Machine& machine = Machine::instance();
  if (machine.config.collectives_at_a_time == 0) return false;
  bool is_free = false;
  machine.cliques->changed.wait(lock, [&] {
    is_free = machine.filled[communicator.device] < machine.config.collectives_at_a_time;
    const bool over = is_free || communicator.state == Communicator::State::aborted || broken_ || cut_;
    stream.waits_for_peers = !over;
    if (!over) machine.progressed.notify_all();
    return over;
  });
  if (is_free) ++machine.filled[communicator.device];
  return is_free;
}

void Clique::free(const Communicator& communicator) const {
  --Machine::instance().filled[communicator.device];
  announce();
}

void Clique::run(Lock& lock, Stream& stream, Communicator& communicator, const std::vector<Part>& parts) {
  const bool fills = fill(lock, stream, communicator);
  run_parts(lock, stream, communicator, parts);
  if (fills) free(communicator);
}

void Clique::run_parts(Lock& lock, Stream& stream, Communicator& communicator, const std::vector<Part>& parts) {
  if (processes_) {
    run_with_processes(lock, stream, communicator, parts);
    return;
  }
  Machine& machine = Machine::instance();
  const int rank = communicator.rank;
  const VectorClock clock = stream.clock();
  const auto ended = [&] { return communicator.state == Communicator::State::aborted || broken_ || cut_; };
  ++communicator.running;
  if (!communicator.lost) {
    for (const Part& part : parts) {
      if (!ended()) arrive(lock, rank, part, stream, clock);
    }
  }
  for (const Part& part : parts) {
    Round& round = round_of(rank, part);
    machine.cliques->changed.wait(lock, [&] {
      const bool over = round.done || (!round.computing && ended());
      stream.waits_for_peers = !over;
      if (!over) machine.progressed.notify_all();
      return over;
    });
    if (!round.done && !cut_) {
      const std::size_t bytes = output_bytes(part.signature, rank, size());
      void* output = machine.memory->device_view(part.output);
      machine.move_data(lock, [&] {
        if (bytes > 0) std::memset(output, Memory::kPoison, bytes);
      });
    }
  }
  for (const Part& part : parts) depart(rank, part, stream);
  --communicator.running;
  --communicator.outstanding;
  announce();
}

void Clique::split(int rank, std::uint64_t number, const Answer& answer) {
  std::vector<Answer>& answers = splits_[number];
  answers.resize(members_.size());
  answers[static_cast<std::size_t>(rank)] = answer;
  if (!std::all_of(answers.begin(), answers.end(), [](const Answer& a) { return a.given; })) return;
  std::map<int, std::vector<std::pair<int, int>>> colors;  // {key, rank of the parent}, in the children's order
  for (int member = 0; member < size(); ++member) {
    const Answer& said = answers[static_cast<std::size_t>(member)];
    if (said.child != nullptr) colors[said.color].push_back({said.key, member});
  }
  for (auto& [color, ranks] : colors) {
    std::sort(ranks.begin(), ranks.end());
    const auto child = std::make_shared<Clique>(name_ + "." + std::to_string(number) + "." + std::to_string(color),
                                                static_cast<int>(ranks.size()));
    Machine::instance().cliques->keep(child);
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      Communicator* communicator = answers[static_cast<std::size_t>(ranks[place].second)].child;
      communicator->clique = child;
      communicator->rank = static_cast<int>(place);
      communicator->size = child->size();
      KOLO_CHECK(child->join(communicator->rank, communicator));
    }
  }
  splits_.erase(number);
  announce();
}

std::string Clique::describe() const {
  std::string text;
  for (const auto& [key, round] : rounds_) {
    text += "communicator " + name_ + ", number " + std::to_string(key.second) + ":";
    for (const Round::Seat& seat : round.seats) {
      text += seat.called ? " [" + seat.said + (seat.arrived ? ", arrived]" : ", called]") : " [nothing]";
    }
    text += "\n";
  }
  return text;
}

// ---------------------------------------------------------------- Communicator

bool Communicator::may_advance() const {
  switch (state) {
  case State::initialising:
    return clique != nullptr && clique->complete();
  case State::finalising:
    return outstanding == 0;
  case State::enqueuing:
    return waiting.empty();  // else the launcher comes
  default:
    return true;
  }
}

Registered Communicator::registration_of(const Part& part) const {
  const Collective kind = part.signature.kind;
  if (kind == Collective::send || kind == Collective::receive || kind == Collective::all_to_all) return {};
  Registered found;
  const bool moves_blocks =
      kind == Collective::all_gather || kind == Collective::reduce_scatter;  // to places of their own
  const auto note = [&](const char* what, const void* data) {
    found.text += std::string(found.text.empty() ? "" : "; ") + what;
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    for (const auto& [handle, known] : registered) {
      if (!known.allocation->contains(address)) continue;
      found.text += " is registered";
      if (!moves_blocks) found.text += ", byte " + std::to_string(address - known.allocation->base);
      found.numbers.push_back(known.number);
      return;
    }
    found.text += " is not registered";
  };
  if (kind != Collective::broadcast) note("the input", part.input);
  if (kind != Collective::reduce) note("the output", part.output);
  return found;
}

void Communicator::advance() {
  if (state == State::enqueuing) enqueue(std::exchange(waiting, {}));
  state = state == State::finalising ? State::finalised : State::ready;
}

void Communicator::enqueue(const std::vector<std::pair<StreamPtr, Part>>& parts) {
  Machine& machine = Machine::instance();
  std::vector<std::pair<StreamPtr, std::vector<Part>>> by_stream;
  for (const auto& [stream, part] : parts) {
    auto found = std::find_if(by_stream.begin(), by_stream.end(),
                              [&on = stream](const auto& known) { return known.first == on; });
    if (found == by_stream.end()) found = by_stream.insert(found, {stream, {}});
    found->second.push_back(part);
  }
  for (auto& [stream, own] : by_stream) {
    Op op;
    std::string what = to_string(own.front().signature) + " by rank " + std::to_string(rank);
    if (own.size() > 1) what += " and " + std::to_string(own.size() - 1) + " more of its group";
    op.operation = machine.operation(what, *stream, own.front().site);
    for (const Part& part : own) {
      // Both were found to be in live memory when the call was made.
      machine.add_touch(op.touches, {part.input, input_bytes(part.signature, rank, size), false}, what);
      machine.add_touch(op.touches, {part.output, output_bytes(part.signature, rank, size), true}, what);
    }
    ++outstanding;
    op.occupy = [clique = clique, self = machine.cliques->shared(*this), parts = own](Lock& lock, Stream& on) {
      clique->run(lock, on, *self, parts);
    };
    machine.submit(stream, std::move(op));
  }
}

// ---------------------------------------------------------------- Cliques

CommunicatorPtr Cliques::find(ncclComm_t handle) const {
  const auto found = communicators_.find(handle);
  return found == communicators_.end() ? nullptr : found->second;
}

CommunicatorPtr Cliques::shared(const Communicator& communicator) const {
  for (const auto& [handle, known] : communicators_) {
    if (known.get() == &communicator) return known;
  }
  KOLO_UNREACHABLE();
}

bool Cliques::runs_on(int device) const {
  return std::any_of(communicators_.begin(), communicators_.end(),
                     [&](const auto& known) { return known.second->device == device && known.second->running > 0; });
}

CliquePtr Cliques::of(const ncclUniqueId& id, int size) {
  CliquePtr& clique = by_id_[std::string(id.internal, sizeof id.internal)];
  if (clique == nullptr) {
    clique = Machine::instance().config.ranks_are_processes
                 ? std::make_shared<Clique>(new_name(), size, std::string(id.internal))
                 : std::make_shared<Clique>(new_name(), size);
    keep(clique);
  }
  return clique;
}

ncclComm_t Cliques::add(const CommunicatorPtr& communicator) {
  communicator->number = next_number_++;
  auto* handle = reinterpret_cast<ncclComm_t>(Machine::instance().next_handle);
  Machine::instance().next_handle += 2;
  communicators_[handle] = communicator;
  return handle;
}

void Cliques::remove(ncclComm_t handle) {
  const CommunicatorPtr communicator = find(handle);
  if (communicator->clique != nullptr) {
    communicator->clique->leave(communicator->rank);
    if (communicator->clique->is_over()) forget(communicator->clique);
  }
  for (const auto& [registration, known] : communicator->registered) --known.allocation->registrations;
  communicators_.erase(handle);
}

/// Its id names nothing any more.
void Cliques::forget(const CliquePtr& clique) {
  const auto by_id =
      std::find_if(by_id_.begin(), by_id_.end(), [&](const auto& known) { return known.second == clique; });
  if (by_id != by_id_.end()) by_id_.erase(by_id);
  all_.erase(
      std::remove_if(all_.begin(), all_.end(),
                     [&](const std::weak_ptr<Clique>& known) { return known.expired() || known.lock() == clique; }),
      all_.end());
}

void Cliques::cut_off() {
  for (const auto& weak : all_) {
    if (const CliquePtr clique = weak.lock()) clique->cut_off();
  }
  launcher_.cut_off();
  changed.notify_all();
}

void Cliques::clear() {
  communicators_.clear();
  by_id_.clear();
  all_.clear();
}

std::string Cliques::describe() const {
  std::string text;
  for (const auto& weak : all_) {
    if (const CliquePtr clique = weak.lock()) text += clique->describe();
  }
  return text;
}

std::vector<std::string> Cliques::live() const {
  std::vector<std::string> found;
  for (const auto& [handle, communicator] : communicators_) {
    found.push_back(communicator->clique != nullptr ? communicator->name() : "communicator of an unfinished split");
  }
  return found;
}

}  // namespace kolo::emulated
