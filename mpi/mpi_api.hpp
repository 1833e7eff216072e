// SPDX-License-Identifier: Apache-2.0
//
// Every MPI call that Kolo makes, in C++ manners: results checked, failures thrown as an Error(transport) that names
// the call and has MPI's own text. Nothing here decides anything. Only files of mpi/ and its tests include this: it
// brings in <mpi.h>.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::mpi {

/// What one MPI call carries at most; whoever has more to carry calls more often. (Counts in MPI 3 are ints.)
inline constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 30;

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
/// "Open MPI v4.1.4": the first line of what the library says, up to the first comma.
[[nodiscard]] std::string library_version();

/// Whether it joins two groups.
[[nodiscard]] bool is_intercommunicator(MPI_Comm communicator);

/// A communicator of our own, whose errors come back as values. Movable; threads as the thread level allows.
class Communicator {
 public:
  /// Collective over `original`.
  static Communicator duplicate(MPI_Comm original);
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
  /// Those that can share memory with this rank. Collective.
  [[nodiscard]] Communicator split_by_machine() const;
  /// Never frees it: operations are open on it.
  void abandon() noexcept;

  // Collective.
  [[nodiscard]] std::vector<std::int64_t> allgather(std::int64_t mine) const;
  /// Everyone's bytes one behind another; `counts` and `offsets` are by rank. The total is within an int.
  void allgather(const std::byte* mine, int bytes, std::byte* all, const std::vector<int>& counts,
                 const std::vector<int>& offsets) const;

  [[nodiscard]] MPI_Request send(int rank, int tag, const std::byte* data, int bytes) const;
  [[nodiscard]] MPI_Request receive(int rank, int tag, std::byte* data, int bytes) const;
  /// Lets MPI work, whether or not anything is open.
  void progress() const;

 private:
  explicit Communicator(MPI_Comm raw);

  MPI_Comm raw_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
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
