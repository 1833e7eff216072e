// SPDX-License-Identifier: Apache-2.0
#include "mpi_peer.hpp"

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "flags.hpp"
#include "mpi_check.hpp"

namespace kolo_bench {
namespace {

using kolo::DType;
using kolo::ReduceOp;

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
  case DType::boolean:
    return MPI_C_BOOL;
  case DType::int8:
    return MPI_INT8_T;
  case DType::int16:
    return MPI_INT16_T;
  case DType::int32:
    return MPI_INT32_T;
  case DType::int64:
    return MPI_INT64_T;
  case DType::uint8:
    return MPI_UINT8_T;
  case DType::uint16:
    return MPI_UINT16_T;
  case DType::uint32:
    return MPI_UINT32_T;
  case DType::uint64:
    return MPI_UINT64_T;
  case DType::float32:
    return MPI_FLOAT;
  case DType::float64:
    return MPI_DOUBLE;
  case DType::float16:
  case DType::bfloat16:
    break;
  }
  throw BadFlags("MPI has no " + std::string(to_string(dtype)) + "; leave out --baseline for this dtype");
}

MPI_Op op_of(DType dtype, ReduceOp op) {
  const bool boolean = dtype == DType::boolean;
  switch (op) {
  case ReduceOp::sum:
  case ReduceOp::average:
    return boolean ? MPI_LOR : MPI_SUM;
  case ReduceOp::min:
    return boolean ? MPI_LAND : MPI_MIN;
  case ReduceOp::max:
    return boolean ? MPI_LOR : MPI_MAX;
  case ReduceOp::bit_and:
    return boolean ? MPI_LAND : MPI_BAND;
  case ReduceOp::bit_or:
    return boolean ? MPI_LOR : MPI_BOR;
  case ReduceOp::bit_xor:
    return boolean ? MPI_LXOR : MPI_BXOR;
  case ReduceOp::product:
    break;
  }
  return boolean ? MPI_LAND : MPI_PROD;
}

template <class T>
void divide(Buffer& buffer, int ranks) {
  auto* x = static_cast<T*>(buffer.data());
  for (std::int64_t i = 0; i < buffer.elements(); ++i) x[i] /= static_cast<T>(ranks);
}

/// MPI has no average: its user divides.
void finish(Buffer& buffer, ReduceOp op, int ranks) {
  if (op != ReduceOp::average) return;
  if (buffer.dtype() == DType::float64) {
    divide<double>(buffer, ranks);
  } else {
    divide<float>(buffer, ranks);
  }
}

int count_of(const Buffer& buffer) { return static_cast<int>(buffer.elements()); }

}  // namespace

void check_mpi_can(DType dtype, ReduceOp op, std::int64_t count) {
  (void)op_of(dtype, op);
  (void)type_of(dtype);
  if (count > std::numeric_limits<int>::max()) {
    throw BadFlags("MPI 3 counts elements in ints; leave out --baseline for more than 2^31 - 1 elements");
  }
}

void mpi_allreduce_in_place(Buffer& inout, ReduceOp op, int ranks, MPI_Comm comm) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, inout.data(), count_of(inout), type_of(inout.dtype()), op_of(inout.dtype(), op),
                          comm),
            "MPI_Allreduce");
  finish(inout, op, ranks);
}

void mpi_allreduce(Buffer& in, Buffer& out, ReduceOp op, int ranks, MPI_Comm comm) {
  check_mpi(MPI_Allreduce(in.data(), out.data(), count_of(in), type_of(in.dtype()), op_of(in.dtype(), op), comm),
            "MPI_Allreduce");
  finish(out, op, ranks);
}

void mpi_reduce(Buffer& in, Buffer& out, ReduceOp op, int root, int rank, int ranks, MPI_Comm comm) {
  const bool is_root = rank == root;
  check_mpi(MPI_Reduce(is_root && &in == &out ? MPI_IN_PLACE : in.data(), is_root ? out.data() : nullptr, count_of(in),
                       type_of(in.dtype()), op_of(in.dtype(), op), root, comm),
            "MPI_Reduce");
  if (is_root) finish(out, op, ranks);
}

void mpi_broadcast(Buffer& inout, int root, MPI_Comm comm) {
  check_mpi(MPI_Bcast(inout.data(), count_of(inout), type_of(inout.dtype()), root, comm), "MPI_Bcast");
}

void mpi_allgather(Buffer& in, Buffer& out, MPI_Comm comm) {
  check_mpi(
      MPI_Allgather(in.data(), count_of(in), type_of(in.dtype()), out.data(), count_of(in), type_of(in.dtype()), comm),
      "MPI_Allgather");
}

namespace {

/// Parts of so many elements, one behind another. Like a user's, who makes them once.
struct Parts {
  std::vector<int> counts;
  std::vector<int> begins;
};
const Parts& parts_of(int part, int ranks) {
  thread_local Parts parts;
  if (parts.counts.size() == static_cast<std::size_t>(ranks) && parts.counts[0] == part) return parts;
  parts.counts.assign(static_cast<std::size_t>(ranks), part);
  parts.begins.clear();
  for (int rank = 0; rank < ranks; ++rank) parts.begins.push_back(rank * part);
  return parts;
}

}  // namespace

void mpi_gather(Buffer& in, Buffer& out, int root, int ranks, MPI_Comm comm) {
  const Parts& parts = parts_of(count_of(in), ranks);
  check_mpi(MPI_Gatherv(in.data(), count_of(in), type_of(in.dtype()), out.data(), parts.counts.data(),
                        parts.begins.data(), type_of(in.dtype()), root, comm),
            "MPI_Gatherv");
}

void mpi_scatter(Buffer& in, Buffer& out, int root, int ranks, MPI_Comm comm) {
  const Parts& parts = parts_of(count_of(out), ranks);
  check_mpi(MPI_Scatterv(in.data(), parts.counts.data(), parts.begins.data(), type_of(in.dtype()), out.data(),
                         count_of(out), type_of(in.dtype()), root, comm),
            "MPI_Scatterv");
}

void mpi_alltoall(Buffer& in, Buffer& out, int ranks, MPI_Comm comm) {
  const int part = count_of(in) / ranks;
  check_mpi(MPI_Alltoall(in.data(), part, type_of(in.dtype()), out.data(), part, type_of(in.dtype()), comm),
            "MPI_Alltoall");
}

void mpi_reduce_scatter_in_place(Buffer& inout, ReduceOp op, int ranks, MPI_Comm comm) {
  check_mpi(MPI_Reduce_scatter_block(MPI_IN_PLACE, inout.data(), count_of(inout) / ranks, type_of(inout.dtype()),
                                     op_of(inout.dtype(), op), comm),
            "MPI_Reduce_scatter_block");
  finish(inout, op, ranks);
}

void mpi_reduce_scatter(Buffer& in, Buffer& out, ReduceOp op, int ranks, MPI_Comm comm) {
  check_mpi(
      MPI_Reduce_scatter_block(in.data(), out.data(), count_of(out), type_of(in.dtype()), op_of(in.dtype(), op), comm),
      "MPI_Reduce_scatter_block");
  finish(out, op, ranks);
}

struct MpiRequests::Open {
  struct Finish {
    Buffer* buffer;
    ReduceOp op;
  };
  std::vector<MPI_Request> requests;
  std::vector<Finish> finishes;
};

MpiRequests::MpiRequests() : open_(std::make_unique<Open>()) {}
MpiRequests::~MpiRequests() = default;

void MpiRequests::start_allreduce(Buffer& inout, ReduceOp op) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, inout.data(), count_of(inout), type_of(inout.dtype()),
                           op_of(inout.dtype(), op), MPI_COMM_WORLD, &request),
            "MPI_Iallreduce");
  open_->requests.push_back(request);
  open_->finishes.push_back({&inout, op});
}

void MpiRequests::wait_all(int ranks) {
  check_mpi(MPI_Waitall(static_cast<int>(open_->requests.size()), open_->requests.data(), MPI_STATUSES_IGNORE),
            "MPI_Waitall");
  for (const Open::Finish& one : open_->finishes) finish(*one.buffer, one.op, ranks);
  open_->requests.clear();
  open_->finishes.clear();
}

void mpi_barrier(MPI_Comm comm) { check_mpi(MPI_Barrier(comm), "MPI_Barrier"); }

void mpi_exchange(Buffer& in, Buffer& out, int to, int from, MPI_Comm comm) {
  check_mpi(MPI_Sendrecv(in.data(), count_of(in), type_of(in.dtype()), to, 0, out.data(), count_of(out),
                         type_of(out.dtype()), from, 0, comm, MPI_STATUS_IGNORE),
            "MPI_Sendrecv");
}

void mpi_bounce(Buffer& in, Buffer& out, int other, bool sends_first, MPI_Comm comm) {
  const auto send = [&] {
    check_mpi(MPI_Send(in.data(), count_of(in), type_of(in.dtype()), other, 0, comm), "MPI_Send");
  };
  if (sends_first) send();
  check_mpi(MPI_Recv(out.data(), count_of(out), type_of(out.dtype()), other, 0, comm, MPI_STATUS_IGNORE), "MPI_Recv");
  if (!sends_first) send();
}

void mpi_send_unexpected() {
  int ranks = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");
  char sent = 0;
  std::vector<MPI_Request> requests(static_cast<std::size_t>(ranks));
  for (int peer = 0; peer < ranks; ++peer) {
    check_mpi(MPI_Isend(&sent, 1, MPI_CHAR, peer, 0, MPI_COMM_WORLD, &requests[static_cast<std::size_t>(peer)]),
              "MPI_Isend");
  }
  mpi_barrier();
  char received = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    check_mpi(MPI_Recv(&received, 1, MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
  }
  check_mpi(MPI_Waitall(ranks, requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
}

namespace {

class MpiPeer final : public Peer {
 public:
  MpiPeer(int rank, int ranks, int split)
      : rank_(split == 0 ? rank : rank % split), ranks_(split == 0 ? ranks : split) {
    if (split != 0) check_mpi(MPI_Comm_split(MPI_COMM_WORLD, rank / split, rank, &comm_), "MPI_Comm_split");
  }
  ~MpiPeer() override {
    if (comm_ != MPI_COMM_WORLD) MPI_Comm_free(&comm_);
  }
  MpiPeer(const MpiPeer&) = delete;
  MpiPeer& operator=(const MpiPeer&) = delete;

  [[nodiscard]] std::string name() const override { return "mpi"; }
  void check_can(DType dtype, ReduceOp op, std::int64_t count) const override { check_mpi_can(dtype, op, count); }
  [[nodiscard]] bool is_exact(ReduceOp /*op*/) const override { return true; }
  void allreduce(Buffer& in, Buffer& out, ReduceOp op) override {
    if (&in == &out) return mpi_allreduce_in_place(in, op, ranks_, comm_);
    mpi_allreduce(in, out, op, ranks_, comm_);
  }
  void reduce(Buffer& in, Buffer& out, ReduceOp op, int root) override {
    mpi_reduce(in, out, op, root, rank_, ranks_, comm_);
  }
  void broadcast(Buffer& in, Buffer& out, int root) override {
    // MPI has no such call into another buffer: its user copies.
    const bool copies = &in != &out && rank_ == root;
    if (copies) std::memcpy(out.data(), in.data(), static_cast<std::size_t>(in.bytes()));
    mpi_broadcast(out, root, comm_);
  }
  void allgather(Buffer& in, Buffer& out) override { mpi_allgather(in, out, comm_); }
  void gather(Buffer& in, Buffer& out, int root) override { mpi_gather(in, out, root, ranks_, comm_); }
  void scatter(Buffer& in, Buffer& out, int root) override { mpi_scatter(in, out, root, ranks_, comm_); }
  void alltoall(Buffer& in, Buffer& out) override { mpi_alltoall(in, out, ranks_, comm_); }
  void reduce_scatter(Buffer& in, Buffer& out, ReduceOp op) override {
    if (&in == &out) return mpi_reduce_scatter_in_place(in, op, ranks_, comm_);
    mpi_reduce_scatter(in, out, op, ranks_, comm_);
  }
  [[nodiscard]] std::int64_t in_place_at(std::int64_t /*part*/) const override { return 0; }
  void barrier() override { mpi_barrier(comm_); }
  void exchange(Buffer& in, Buffer& out, int to, int from) override { mpi_exchange(in, out, to, from, comm_); }
  void bounce(Buffer& in, Buffer& out, int other, bool sends_first) override {
    mpi_bounce(in, out, other, sends_first, comm_);
  }
  void begin_group() override {}
  void end_group() override {}

 private:
  const int rank_;
  const int ranks_;
  MPI_Comm comm_ = MPI_COMM_WORLD;
};

}  // namespace

std::shared_ptr<Peer> make_mpi_peer(int rank, int ranks, int split) {
  return std::make_shared<MpiPeer>(rank, ranks, split);
}

}  // namespace kolo_bench
