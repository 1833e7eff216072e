// SPDX-License-Identifier: Apache-2.0
//
// `bootstrap::Bootstrap::exchange` over MPI: point to point by way of rank 0, and nothing that blocks, so that it can
// end when patience does. A message that is open then can be neither completed nor cancelled: it is left to MPI, its
// memory is never freed, and MPI must not be finalised.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "mpi/mpi_inter_node.hpp"

namespace kolo::mpi {

/// Whether all ranks of `theirs`, a communicator of the program's or the world, have come. Collective; on all ranks
/// that have, throws Error (transport) that names those who have not for `patience` after `begun`. `label` names the
/// step.
///
/// There is no communicator of our own to ask by yet, and no message of ours may meet the program's. So this is one
/// nonblocking gather of a byte to rank 0 and one scatter of what has arrived. Rank 0 looks at the bytes when its
/// patience ends, though the gather is open: where a library gathers by way of other ranks (MPICH), those behind a
/// missing one are named with it.
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
  /// What comes from one rank: its length, then the bytes.
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

}  // namespace kolo::mpi
