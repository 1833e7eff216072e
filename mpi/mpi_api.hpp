// SPDX-License-Identifier: Apache-2.0
//
// All MPI calls that Kolo makes. Results are checked; a failure throws Error(transport), which names the call and has
// MPI's own text. Nothing here makes decisions. Only files of mpi/ and its tests include this header, which is of one
// ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "mpi/library/abi.hpp"
#include "mpi/mpi_calls.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {

/// The most bytes of one MPI call; longer data takes several calls. (Counts in MPI 3 are ints.)
inline constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 30;

/// Calls `done`, which lets MPI work, until it returns true or the time has come. Returns its last result.
bool poll_until(base::Time until, const std::function<bool()>& done);

// Described in library/abi.hpp.
[[nodiscard]] bool is_initialized();
[[nodiscard]] bool is_finalized();
[[nodiscard]] ThreadLevel thread_level();
[[nodiscard]] bool is_main_thread();
void initialize();
void meet_world(base::Time until);
void finalize();
[[nodiscard]] std::string library_version();

/// Whether the communicator joins two groups.
[[nodiscard]] bool is_intercommunicator(MPI_Comm communicator);

/// A communicator of Kolo's own, whose errors are returned. Movable. Threads may use it as MPI's thread level allows.
class Communicator {
 public:
  /// Collective over `original`. Throws Error (transport) if it is not complete within `patience`; what is open then is
  /// never freed.
  static Communicator duplicate(MPI_Comm original, base::Duration patience);
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&&) = delete;
  /// Frees it, unless MPI is finalised or the calling thread may not call it. (MPI calls it collective. In Open MPI and
  /// MPICH it waits for no rank, so a dead rank does not matter.)
  ~Communicator();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] MPI_Comm raw() const noexcept { return raw_; }
  /// The greatest tag.
  [[nodiscard]] int tag_limit() const;
  /// Never frees it: operations are open on it.
  void abandon() noexcept;

  [[nodiscard]] MPI_Request send(int rank, int tag, const std::byte* data, int bytes) const;
  /// `rank` may be MPI_ANY_SOURCE.
  [[nodiscard]] MPI_Request receive(int rank, int tag, std::byte* data, int bytes) const;
  /// Lets MPI work, whether or not anything is open.
  void progress() const;

 private:
  explicit Communicator(MPI_Comm raw);

  MPI_Comm raw_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

/// The sender and the length of a message.
struct Origin {
  int rank = 0;
  std::size_t bytes = 0;
};
/// The origin of a received message; empty while the receive is open. Lets MPI work.
[[nodiscard]] std::optional<Origin> test_receive(MPI_Request& request);
/// Ends a receive for which no message has come. False: MPI may still write into its memory, because a message has met
/// the receive and is not over within a second.
[[nodiscard]] bool cancel_receive(MPI_Request& request) noexcept;

/// Two collectives on a communicator of the program's, which find the ranks that have come. A byte of each rank goes to
/// rank 0 (`gathered`), which then sends all bytes to all ranks (`answer`, `answered`). They match the program's own
/// collectives only by their order. Destroy it only when it is complete: before, MPI may still write here.
class RollCall {
 public:
  explicit RollCall(MPI_Comm theirs);
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// On rank 0: whether all bytes have come. On other ranks: whether rank 0 will get this rank's byte. Lets MPI work.
  [[nodiscard]] bool gathered();
  /// Rank 0: sends all ranks the bytes that are here now.
  void answer();
  /// Whether the answer is complete here. Lets MPI work.
  [[nodiscard]] bool answered();
  /// By rank: not 0 for ranks that are here. On other ranks than 0 only once answered.
  [[nodiscard]] std::vector<char> here() const;

 private:
  void scatter();

  MPI_Comm theirs_;
  int rank_ = 0;
  const char present_ = 1;
  std::vector<char> here_;    // on rank 0: MPI writes it as bytes come
  std::vector<char> answer_;  // on rank 0: the same answer for every rank
  std::vector<char> told_;
  MPI_Request gather_ = MPI_REQUEST_NULL;
  MPI_Request scatter_ = MPI_REQUEST_NULL;
};

/// A set of open operations, which one call tests together. One thread at a time.
class Requests {
 public:
  /// The caller's data of a request, which it gets back at completion.
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
  /// The operations that have completed since the last call; they are removed. Valid until the next call. If there are
  /// none, MPI moves data.
  const std::vector<Completed>& test();

 private:
  std::vector<MPI_Request> requests_;
  std::vector<Note> notes_;  // of the requests
  std::vector<Completed> completed_;
  std::vector<int> indices_;          // MPI_Testsome's results
  std::vector<MPI_Status> statuses_;  // likewise
};

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
