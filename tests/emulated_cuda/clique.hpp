// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a communicator, and what goes on between them. Collectives of a communicator are numbered on each rank
// in the order of the calls; calls of one number belong together, and are compared as soon as two ranks have made them.
// A send and a receive belong together by their number between the two ranks.
//
// An operation arrives when its stream has come to it, and stays until all its parts have been computed: by whoever
// arrives last, over all ranks' memory. It also ends, with poisoned outputs, when its communicator is aborted, and when
// ranks disagreed (a real device would hang, or worse).
//
// All under the machine's mutex.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nccl.h>

#include "arithmetic.hpp"
#include "launcher.hpp"
#include "machine.hpp"
#include "processes.hpp"

namespace kolo::emulated {

/// Where a collective's memory lies, of what a communicator was told of.
struct Registered {
  std::string text;               // alike on all ranks
  std::vector<unsigned> numbers;  // the rank's own, of what the text names
};

/// One rank's call: a collective, a send or a receive.
struct Part {
  Signature signature;
  const void* input = nullptr;  // as the program names them
  void* output = nullptr;
  std::uint64_t number = 0;  // among the collectives, or among what goes from one rank to another
  std::string site;
  Registered registered;
};

/// One collective, or one message: a seat for each rank, or for sender and receiver.
struct Round {
  struct Seat {
    bool called = false;
    bool arrived = false;
    bool left = false;
    Signature signature;
    Registered registered;
    std::string said;  // "rank 1 (src/x.cpp:3): ncclAllReduce of 4 float32, sum"
    Buffers buffers;   // as a device thread may touch them
    VectorClock clock;
    Stream* stream = nullptr;  // while it waits
  };
  std::vector<Seat> seats;
  bool computing = false;
  bool done = false;
};

struct Communicator;

class Clique {
 public:
  Clique(std::string name, int size) : name_(std::move(name)), members_(static_cast<std::size_t>(size)) {}
  /// The other ranks are processes.
  Clique(std::string name, int size, const std::string& id) : Clique(std::move(name), size) {
    processes_ = std::make_unique<ProcessRounds>(id, size);
  }

  int size() const noexcept { return static_cast<int>(members_.size()); }
  const std::string& name() const noexcept { return name_; }
  /// False, and reported, when the seat is taken.
  [[nodiscard]] bool join(int rank, Communicator* communicator);
  /// The rank's communicator is gone; what others expect of it never comes.
  void leave(int rank) { members_[static_cast<std::size_t>(rank)] = nullptr; }
  bool has_device(int device) const;
  /// All have come, and gone.
  bool is_over() const;
  bool complete() const noexcept { return processes_ ? processes_->complete() : joined_ == size(); }
  bool has_processes() const noexcept { return processes_ != nullptr; }
  /// Everybody but `rank` hears of an error.
  void tell_others(int rank, ncclResult_t error, const std::string& text);

  /// The call was made; compared with what others said.
  void call(int rank, const Part& part);
  /// Whether all others have made the collective's call that this one makes next.
  bool waits_for(const Communicator& communicator) const;
  /// Occupies the stream until all parts are done.
  void run(Lock& lock, Stream& stream, Communicator& communicator, const std::vector<Part>& parts);
  /// All ranks' answers to one split: complete when every rank has given one.
  struct Answer {
    int color = 0;
    int key = 0;
    Communicator* child = nullptr;  // null without a color
    bool given = false;
  };
  void split(int rank, std::uint64_t number, const Answer& answer);

  /// What a blocking communicator's first collective of a kind and size waits for, and its first message from one rank
  /// to another: NCCL connects the ranks then. With which error it ends without the others, or success.
  [[nodiscard]] ncclResult_t connect(Lock& lock, Communicator& communicator, const std::vector<Part>& parts);
  /// A rank has aborted its communicator: the others that wait for it in a call hear of it.
  void give_up(int rank);
  [[nodiscard]] bool is_given_up() const noexcept { return given_up_; }

  void cut_off() { cut_ = true; }
  std::string describe() const;

 private:
  using RoundKey = std::pair<std::pair<int, int>, std::uint64_t>;  // from, to: {-1, -1} for collectives; the number
  RoundKey key_of(int rank, const Part& part) const;
  std::size_t seat_of(int rank, const Part& part) const;
  Round& round_of(int rank, const Part& part);
  void arrive(Lock& lock, int rank, const Part& part, Stream& stream, const VectorClock& clock);
  /// With Config::collectives_at_a_time: waits until the device has room, and takes it. Whether it has.
  bool fill(Lock& lock, Stream& stream, const Communicator& communicator) const;
  void free(const Communicator& communicator) const;
  void run_parts(Lock& lock, Stream& stream, Communicator& communicator, const std::vector<Part>& parts);
  void run_with_processes(Lock& lock, Stream& stream, Communicator& communicator, const std::vector<Part>& parts);
  void depart(int rank, const Part& part, Stream& stream);
  VectorClock clock_after(const Round& round, std::size_t seat) const;
  void disagree(const Round& round);
  std::string difference(const Registered& of_one, std::size_t one, const Registered& of_other, std::size_t other);

  std::string name_;
  std::vector<Communicator*> members_;  // null: not yet, or no longer
  int joined_ = 0;
  bool broken_ = false;  // ranks disagreed
  bool cut_ = false;
  bool given_up_ = false;
  std::map<RoundKey, Round> rounds_;
  using Connection = std::pair<std::pair<Collective, std::size_t>, std::pair<int, int>>;  // of which size; from, to
  std::map<Connection, int> connecting_;                                                  // how many ranks have come
  std::map<std::uint64_t, std::vector<Answer>> splits_;
  std::map<std::tuple<std::size_t, unsigned, std::size_t>, unsigned> bound_;  // a rank's registration, to another's
  std::unique_ptr<ProcessRounds> processes_;
};
using CliquePtr = std::shared_ptr<Clique>;

/// One rank's end, behind an ncclComm_t.
struct Communicator {
  enum class State : unsigned char { initialising, ready, enqueuing, finalising, finalised, aborted };

  std::string name() const { return "communicator " + clique->name() + ", rank " + std::to_string(rank); }
  /// Has everything but the polls come that the present state waits for?
  bool may_advance() const;
  /// The state that follows; the calls of a group go to their streams.
  void advance();
  /// The calls of a group, by stream.
  void enqueue(const std::vector<std::pair<StreamPtr, Part>>& parts);

  unsigned number = 0;
  CliquePtr clique;  // of a split: null until all have answered
  int rank = 0;
  int size = 0;
  int device = 0;
  bool blocking = true;
  bool connecting = false;  // its call waits for the others
  unsigned inside = 0;      // threads in a call on it
  State state = State::initialising;
  bool lost = false;  // by injection: its calls never arrive
  ncclResult_t error = ncclSuccess;
  std::string error_text;
  unsigned polls_left = 0;                          // until the state advances
  std::uint64_t begun = 0;                          // how often it has been busy: for the seeded delays
  std::vector<std::pair<StreamPtr, Part>> waiting;  // calls of a group that is not on its streams yet
  std::uint64_t next_collective = 0;
  std::uint64_t next_split = 0;
  std::map<int, std::uint64_t> next_to, next_from;
  std::set<std::pair<std::pair<Collective, std::size_t>, std::pair<int, int>>> connections;  // those that it has
  unsigned outstanding = 0;                                                                  // operations on streams
  unsigned running = 0;                                                                      // those that have started
  struct Known {
    AllocationPtr allocation;
    unsigned number = 0;  // among all that the communicator was told of
  };
  std::map<void*, Known> registered;
  unsigned registrations = 0;
  Registered registration_of(const Part& part) const;
};
using CommunicatorPtr = std::shared_ptr<Communicator>;

/// Whether the calling thread has an open group of NCCL's calls, with one for this stream: it is not on the stream yet.
[[nodiscard]] bool is_held_back_in_a_group(const Stream& stream);

/// All communicators of the machine.
class Cliques {
 public:
  /// Somebody joined, arrived, finished, aborted.
  std::condition_variable changed;

  CommunicatorPtr find(ncclComm_t handle) const;
  CommunicatorPtr shared(const Communicator& communicator) const;
  /// Whether a collective of any communicator has started there and not ended.
  bool runs_on(int device) const;
  /// The clique behind a unique id, made by the first who asks.
  CliquePtr of(const ncclUniqueId& id, int size);
  ncclComm_t add(const CommunicatorPtr& communicator);
  void remove(ncclComm_t handle);
  void cut_off();
  void clear();
  std::string describe() const;
  std::vector<std::string> live() const;
  [[nodiscard]] Launcher& launcher() noexcept { return launcher_; }
  /// A name that this machine has not used yet.
  std::string new_name() { return std::to_string(next_name_++); }
  void keep(const CliquePtr& clique) { all_.push_back(clique); }

 private:
  void forget(const CliquePtr& clique);

  std::map<ncclComm_t, CommunicatorPtr> communicators_;
  std::map<std::string, CliquePtr> by_id_;
  std::vector<std::weak_ptr<Clique>> all_;
  unsigned next_name_ = 1;
  unsigned next_number_ = 1;
  Launcher launcher_;
};

}  // namespace kolo::emulated
