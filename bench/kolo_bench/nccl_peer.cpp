// SPDX-License-Identifier: Apache-2.0
#ifdef KOLO_HAS_CUDA

#include "nccl_peer.hpp"

#include <nccl.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "flags.hpp"

namespace kolo_bench {
namespace {

using kolo::DType;
using kolo::ReduceOp;

void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(result));
}

ncclDataType_t nccl_type_of(DType dtype) {
  switch (dtype) {
  case DType::boolean:
  case DType::uint8:
    return ncclUint8;
  case DType::int8:
    return ncclInt8;
  case DType::int32:
    return ncclInt32;
  case DType::uint32:
    return ncclUint32;
  case DType::int64:
    return ncclInt64;
  case DType::uint64:
    return ncclUint64;
  case DType::float16:
    return ncclFloat16;
  case DType::bfloat16:
    return ncclBfloat16;
  case DType::float32:
    return ncclFloat32;
  case DType::float64:
    return ncclFloat64;
  case DType::int16:
  case DType::uint16:
    break;
  }
  throw BadFlags("NCCL has no " + std::string(to_string(dtype)) + "; leave it out of -d");
}

/// Booleans are bytes of 0 and 1.
ncclRedOp_t nccl_op_of(DType dtype, ReduceOp op) {
  const bool boolean = dtype == DType::boolean;
  switch (op) {
  case ReduceOp::sum:
    return boolean ? ncclMax : ncclSum;
  case ReduceOp::average:
    return ncclAvg;
  case ReduceOp::min:
    return ncclMin;
  case ReduceOp::max:
    return ncclMax;
  case ReduceOp::bit_and:
  case ReduceOp::bit_or:
  case ReduceOp::bit_xor:
    throw BadFlags("NCCL has no " + std::string(to_string(op)) + "; leave it out of -o");
  case ReduceOp::product:
    break;
  }
  return boolean ? ncclMin : ncclProd;
}

std::size_t count_of(std::int64_t elements) { return static_cast<std::size_t>(elements); }

class NcclPeer final : public Peer {
 public:
  NcclPeer(Job& job, cudaStream_t stream) : rank_(job.rank()), ranks_(job.size()), stream_(stream) {
    ncclUniqueId id{};
    if (rank_ == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::vector<char> bytes(id.internal, id.internal + sizeof id.internal);
    job.broadcast(bytes);
    std::memcpy(id.internal, bytes.data(), bytes.size());
    check(ncclCommInitRank(&raw_, ranks_, id, rank_), "ncclCommInitRank");
  }
  ~NcclPeer() override {
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(ncclCommDestroy(raw_));
  }
  NcclPeer(const NcclPeer&) = delete;
  NcclPeer& operator=(const NcclPeer&) = delete;

  [[nodiscard]] std::string name() const override { return "nccl"; }
  void check_can(DType dtype, ReduceOp /*op*/, std::int64_t /*count*/) const override {
    static_cast<void>(nccl_type_of(dtype));
  }
  /// ncclAvg multiplies by 1/n before it adds, which rounds unless n is a power of two.
  [[nodiscard]] bool is_exact(ReduceOp op) const override {
    return op != ReduceOp::average || (ranks_ & (ranks_ - 1)) == 0;
  }
  void allreduce(Buffer& in, Buffer& out, ReduceOp op) override {
    check(ncclAllReduce(in.data(), out.data(), count_of(in.elements()), nccl_type_of(in.dtype()),
                        nccl_op_of(in.dtype(), op), raw_, stream_),
          "ncclAllReduce");
  }
  void reduce(Buffer& in, Buffer& out, ReduceOp op, int root) override {
    check(ncclReduce(in.data(), out.data(), count_of(in.elements()), nccl_type_of(in.dtype()),
                     nccl_op_of(in.dtype(), op), root, raw_, stream_),
          "ncclReduce");
  }
  void broadcast(Buffer& in, Buffer& out, int root) override {
    check(ncclBroadcast(in.data(), out.data(), count_of(in.elements()), nccl_type_of(in.dtype()), root, raw_, stream_),
          "ncclBroadcast");
  }
  void allgather(Buffer& in, Buffer& out) override {
    check(ncclAllGather(in.data(), out.data(), count_of(in.elements()), nccl_type_of(in.dtype()), raw_, stream_),
          "ncclAllGather");
  }
  void gather(Buffer& in, Buffer& out, int root) override {
    const std::int64_t part = in.elements();
    begin_group();
    check(ncclSend(in.data(), count_of(part), nccl_type_of(in.dtype()), root, raw_, stream_), "ncclSend");
    for (int peer = 0; rank_ == root && peer < ranks_; ++peer)
      check(ncclRecv(out.part(peer * part, part).data(), count_of(part), nccl_type_of(in.dtype()), peer, raw_, stream_),
            "ncclRecv");
    end_group();
  }
  void scatter(Buffer& in, Buffer& out, int root) override {
    const std::int64_t part = out.elements();
    begin_group();
    for (int peer = 0; rank_ == root && peer < ranks_; ++peer)
      check(ncclSend(in.part(peer * part, part).data(), count_of(part), nccl_type_of(in.dtype()), peer, raw_, stream_),
            "ncclSend");
    check(ncclRecv(out.data(), count_of(part), nccl_type_of(in.dtype()), root, raw_, stream_), "ncclRecv");
    end_group();
  }
  void alltoall(Buffer& in, Buffer& out) override {
    const std::int64_t part = in.elements() / ranks_;
    begin_group();
    for (int peer = 0; peer < ranks_; ++peer) {
      check(ncclSend(in.part(peer * part, part).data(), count_of(part), nccl_type_of(in.dtype()), peer, raw_, stream_),
            "ncclSend");
      check(ncclRecv(out.part(peer * part, part).data(), count_of(part), nccl_type_of(in.dtype()), peer, raw_, stream_),
            "ncclRecv");
    }
    end_group();
  }
  void reduce_scatter(Buffer& in, Buffer& out, ReduceOp op) override {
    const std::int64_t part = in.elements() / ranks_;
    void* const to = &in == &out ? in.part(in_place_at(part), part).data() : out.data();
    check(ncclReduceScatter(in.data(), to, count_of(part), nccl_type_of(in.dtype()), nccl_op_of(in.dtype(), op), raw_,
                            stream_),
          "ncclReduceScatter");
  }
  [[nodiscard]] std::int64_t in_place_at(std::int64_t part) const override { return rank_ * part; }
  void barrier() override { throw BadFlags("NCCL has no barrier; leave out --baseline"); }
  void exchange(Buffer& in, Buffer& out, int to, int from) override {
    begin_group();
    send(in, to);
    receive(out, from);
    end_group();
  }
  void bounce(Buffer& in, Buffer& out, int other, bool sends_first) override {
    if (sends_first) send(in, other);
    receive(out, other);
    if (!sends_first) send(in, other);
  }
  void begin_group() override { check(ncclGroupStart(), "ncclGroupStart"); }
  void end_group() override { check(ncclGroupEnd(), "ncclGroupEnd"); }

 private:
  void send(Buffer& in, int to) {
    check(ncclSend(in.data(), count_of(in.elements()), nccl_type_of(in.dtype()), to, raw_, stream_), "ncclSend");
  }
  void receive(Buffer& out, int from) {
    check(ncclRecv(out.data(), count_of(out.elements()), nccl_type_of(out.dtype()), from, raw_, stream_), "ncclRecv");
  }

  const int rank_;
  const int ranks_;
  const cudaStream_t stream_;
  ncclComm_t raw_ = nullptr;
};

}  // namespace

std::shared_ptr<Peer> make_nccl_peer(Job& job, cudaStream_t stream) { return std::make_shared<NcclPeer>(job, stream); }

}  // namespace kolo_bench

#endif
