// SPDX-License-Identifier: Apache-2.0
//
// Bulk data between nodes by MPI point-to-point, on a communicator of its own. It reports nothing by itself:
// PolledInterNode wraps it (MpiBootstrap::inter_node).
//
// One look at MPI covers all open operations: `test` returns what the last look found for an operation, and looks again
// if it has returned that before. Testing many operations in turn therefore costs one look in all. A look is a system
// call or two with TCP, and it yields the CPU if MPI knows that ranks share it.
#pragma once

#include <optional>
#include <vector>

#include "mpi/mpi_api.hpp"
#include "transport/inter_node.hpp"
#include "transport/staging.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {

class MpiInterNode final : public transport::InterNode {
 public:
  /// The constructor must run on a thread that may call MPI. Messages travel in pieces of at most `piece_bytes`, the
  /// same on all ranks.
  explicit MpiInterNode(Communicator communicator, std::size_t piece_bytes = kMaxPieceBytes);
  /// If operations are open, MPI may still write, so the staging memory and the communicator are kept.
  ~MpiInterNode() override;
  MpiInterNode(const MpiInterNode&) = delete;
  MpiInterNode& operator=(const MpiInterNode&) = delete;

  std::byte* staging(std::size_t bytes) override { return staging_.take(bytes); }
  void give_back(std::byte* staging) noexcept override { staging_.give_back(staging); }
  /// Tags are taken modulo MPI's greatest tag (at least 32767; Open MPI: 2^31-1). Two tags that differ by a multiple of
  /// it must not be in flight at once between the same ranks.
  Operation send(int rank, int tag, const std::byte* data, std::size_t bytes) override;
  Operation receive(int rank, int tag, std::byte* data, std::size_t bytes) override;
  bool test(Operation operation) override;
  /// Keeps a few receives open, from any rank, in the order in which they are heard.
  void listen(int tag, std::size_t bytes) override;
  [[nodiscard]] std::optional<Heard> hear() override;
  void push(base::Time /*now*/) override { communicator_.progress(); }
  [[nodiscard]] const char* name() const noexcept override { return "MPI point-to-point"; }

 private:
  /// An open operation; the record is used again, with the next generation.
  struct Transfer {
    std::size_t open_pieces = 0;
    std::uint64_t looked_at = 0;  // the look whose result the last `test` returned
    std::uint32_t generation = 0;
    int rank = 0;
    bool claimed = false;
  };

  /// The receives that listen, used in turn.
  struct Listener {
    struct Ear {
      std::byte* data = nullptr;
      MPI_Request request = MPI_REQUEST_NULL;
    };
    int tag = 0;
    std::size_t bytes = 0;
    std::vector<Ear> ears;
    std::size_t next = 0;
    bool heard = false;  // the one before `next` has been handed out, and is not open
  };

  /// Opens the pieces of a message by `open_piece(begin, bytes)`.
  template <class OpenPiece>
  Operation in_pieces(int rank, std::size_t bytes, bool receives, OpenPiece open_piece);
  void open(Listener::Ear& ear);
  [[nodiscard]] bool end_listening() noexcept;
  [[nodiscard]] std::size_t claim(int rank);
  void look();
  [[nodiscard]] Operation name_of(std::size_t index) const noexcept;
  [[nodiscard]] int mapped(int tag) const;

  Communicator communicator_;
  const std::size_t piece_bytes_;
  const std::int64_t tags_;
  std::vector<Transfer> transfers_;
  std::vector<std::size_t> free_;
  Requests requests_;
  std::uint64_t looks_ = 0;
  Listener listener_;
  transport::Staging staging_;
};

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
