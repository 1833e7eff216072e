// SPDX-License-Identifier: Apache-2.0
//
// Every MPI call that Kolo makes, in C++ manners: results checked, failures thrown as an Error(transport) that names
// the call and has MPI's own text. Nothing here decides anything. Only files of mpi/ and its tests include this: it
// brings in <mpi.h>.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"

namespace kolo::mpi {

/// What one MPI call carries at most; whoever has more to carry calls more often. (Counts in MPI 3 are ints.)
inline constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 30;

/// Calls `done`, which lets MPI work, until it says so or the time has come; whether it did.
bool poll_until(base::Time until, const std::function<bool()>& done);

enum class ThreadLevel : std::uint8_t { single, funneled, serialized, multiple };
std::string_view to_string(ThreadLevel level) noexcept;  ///< "SINGLE", ...

// These four may be called at any time, from any thread.
[[nodiscard]] bool is_initialized();
[[nodiscard]] bool is_finalized();
[[nodiscard]] ThreadLevel thread_level();  ///< between the two
[[nodiscard]] bool is_main_thread();       ///< whether this thread initialised MPI; between the two

/// Returns what MPI provides, which may be less or more.
ThreadLevel initialize(ThreadLevel wanted);
void finalize();
/// Lets MPI work until all ranks of the world have called this, or the time has come. Not to be called again then.
void meet_world(base::Time until);
/// "Open MPI v4.1.4": the first line of what the library says, up to the first comma.
[[nodiscard]] std::string library_version();

/// Whether it joins two groups.
[[nodiscard]] bool is_intercommunicator(MPI_Comm communicator);

/// A communicator of our own, whose errors come back as values. Movable; threads as the thread level allows.
class Communicator {
 public:
  /// Collective over `original`. Throws Error (transport) when it is not there within `patience`; what is open then is
  /// never freed.
  static Communicator duplicate(MPI_Comm original, base::Duration patience);
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&&) = delete;
  /// Frees it, unless MPI is finalised or the calling thread may not call it. (Collective by the letter; in Open MPI
  /// and MPICH it waits for nobody, so a rank that died does not matter.)
  ~Communicator();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] MPI_Comm raw() const noexcept { return raw_; }
  /// The greatest tag.
  [[nodiscard]] int tag_limit() const;
  /// Never frees it: operations are open on it.
  void abandon() noexcept;

  [[nodiscard]] MPI_Request send(int rank, int tag, const std::byte* data, int bytes) const;
  [[nodiscard]] MPI_Request receive(int rank, int tag, std::byte* data, int bytes) const;
  /// From any rank.
  [[nodiscard]] MPI_Request receive_any(int tag, std::byte* data, int bytes) const;
  /// Lets MPI work, whether or not anything is open.
  void progress() const;

 private:
  explicit Communicator(MPI_Comm raw);

  MPI_Comm raw_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

/// Who sent a message, and how long it is.
struct Origin {
  int rank = 0;
  std::size_t bytes = 0;
};
/// Of a receive: empty while it is open. Lets MPI work.
[[nodiscard]] std::optional<Origin> test_receive(MPI_Request& request);
/// Ends a receive that nothing has come for. False: MPI does not let go of its memory.
[[nodiscard]] bool cancel_receive(MPI_Request& request) noexcept;

/// Two collectives on a communicator of the program's that find out who has come: a byte of each rank goes to rank 0
/// (`gathered`), which then sends everybody what it has (`answer`, `answered`). They match the program's own
/// collectives only by their order. To be destroyed only when complete: else MPI may still write here.
class RollCall {
 public:
  explicit RollCall(MPI_Comm theirs);
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// Whether rank 0 has heard everybody, and on the others, whether rank 0 will hear this one. Lets MPI work.
  [[nodiscard]] bool gathered();
  /// Rank 0: tells all who is here now.
  void answer();
  /// Whether the answer is complete here. Lets MPI work.
  [[nodiscard]] bool answered();
  /// By rank, not 0 for those who are here; on other ranks than 0 once answered.
  [[nodiscard]] std::vector<char> here() const;

 private:
  void scatter();

  MPI_Comm theirs_;
  int rank_ = 0;
  const char present_ = 1;
  std::vector<char> here_;    // rank 0's: written by MPI as they come
  std::vector<char> answer_;  // rank 0's: the same for every rank
  std::vector<char> told_;
  MPI_Request gather_ = MPI_REQUEST_NULL;
  MPI_Request scatter_ = MPI_REQUEST_NULL;
};

/// Operations that are open together, so that one call looks at all of them. One thread at a time.
class Requests {
 public:
  /// What the caller knows of a request, and gets back with its completion.
  struct Note {
    std::size_t owner = 0;
    std::size_t due = 0;  ///< bytes
  };
  struct Completed {
    Note note;
    std::size_t received = 0;  ///< bytes that came; 0 for a send
  };

  void add(MPI_Request request, Note note);
  [[nodiscard]] std::size_t open() const noexcept { return requests_.size(); }
  /// Those that have completed since the last call, which are then gone; valid until the next. Lets MPI move data when
  /// there are none.
  const std::vector<Completed>& test();

 private:
  std::vector<MPI_Request> requests_;
  std::vector<Note> notes_;  // of the requests
  std::vector<Completed> completed_;
  std::vector<int> indices_;          // MPI_Testsome's results
  std::vector<MPI_Status> statuses_;  // likewise
};

}  // namespace kolo::mpi
