// SPDX-License-Identifier: Apache-2.0
//
// `bootstrap::Bootstrap::exchange` over MPI: point to point through rank 0, without blocking calls, so that it can end
// at its deadline. A message that is open then can be neither completed nor cancelled: it is left to MPI, its memory is
// never freed, and MPI must not be finalised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "mpi/mpi_inter_node.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {

/// Checks that all ranks of `theirs`, a communicator of the program's or the world, have come. Collective. If ranks
/// have not come for `patience` after `begun`, the others throw Error (transport), which names them. `label` names the
/// step.
///
/// Kolo has no communicator of its own yet, and its messages must not meet the program's. This is therefore one
/// nonblocking gather of a byte to rank 0 and one scatter of the result. Rank 0 reads the bytes when its patience ends,
/// although the gather is open. A library may gather through other ranks (MPICH does); then ranks behind a missing one
/// are named with it.
void roll_call(MPI_Comm theirs, std::string_view label, base::Duration patience, base::Time begun);

class MpiExchange {
 public:
  /// A communicator that nothing else uses.
  explicit MpiExchange(Communicator communicator);
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// See bootstrap::Bootstrap.
  std::vector<std::string> exchange(std::string_view label, const std::string& mine, base::Duration patience,
                                    base::Time begun);
  /// Another communicator of the same ranks; collective, between two exchanges.
  [[nodiscard]] Communicator duplicate(base::Duration patience) const {
    return Communicator::duplicate(communicator_, patience);
  }

 private:
  /// A message from one rank: its length, then the bytes.
  struct Incoming {
    int rank = 0;
    std::byte* memory = nullptr;
    std::uint64_t length = 0;
    transport::InterNode::Operation operation = 0;
    bool has_length = false;
    bool complete = false;
  };

  std::string gather(std::string_view label, const std::string& mine, base::Duration patience, base::Time begun);
  std::string report(std::string_view label, const std::string& mine, base::Duration patience, base::Time begun);
  [[nodiscard]] std::string judge(std::string_view label, const std::vector<std::string>& said) const;
  void send(int rank, const std::string& bytes);
  bool flush();
  Incoming expect(int rank);
  std::vector<Incoming> expect_others();
  bool hear(std::vector<Incoming>& all, base::Time until);
  void advance(Incoming& incoming);
  [[nodiscard]] static std::vector<int> incomplete(const std::vector<Incoming>& all);
  [[nodiscard]] static std::string text(const Incoming& incoming);

  const int rank_;
  const int size_;
  const MPI_Comm communicator_;  // the transport's
  MpiInterNode transport_;
  std::vector<transport::InterNode::Operation> sends_;  // under way
  std::vector<Incoming> receipts_;                      // rank 0's: of the last answer
};

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
