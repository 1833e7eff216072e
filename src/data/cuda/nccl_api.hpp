// SPDX-License-Identifier: Apache-2.0
//
// Every call of NCCL that Kolo makes, in C++ manners: results checked, failures thrown as an Error(transport) that
// names the call and has NCCL's own text. Nothing here decides anything.
//
// Communicators are blocking: what a call asks for is on the stream when it returns, launched by the thread that
// called, in its mode of capture. (On a non-blocking one NCCL makes a thread for every group, which launches later, and
// whose calls may end a program's capture.) A call may therefore wait for the other ranks: to make a communicator, to
// end it, and while NCCL connects for a collective of a kind and size that this one has not had. One thread at a time
// makes calls; `abort` alone may come beside them. (Where NCCL_COMM_BLOCKING makes them non-blocking all the same,
// calls wait here for what NCCL's thread does.)
#pragma once

#include <nccl.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

#include "data/cuda/call_site.hpp"
#include "data/cuda/cuda_api.hpp"

namespace kolo::cuda {

/// "NCCL 2.28.9 (/usr/lib/x86_64-linux-gnu/libnccl.so.2)", of the library that runs, or that none has been opened.
[[nodiscard]] std::string describe_nccl();

using UniqueId = std::array<char, NCCL_UNIQUE_ID_BYTES>;
/// A name for a new communicator, made by one rank and given to all.
[[nodiscard]] UniqueId make_unique_id();

class Communicator;

/// Between its beginning and `end` calls on one communicator are gathered, and run as one. Of the calling thread.
class GroupedCalls {
 public:
  explicit GroupedCalls(Communicator& communicator);
  /// Throws; the group has ended all the same.
  void end();
  ~GroupedCalls();  ///< ends it, when an exception leaves it open
  GroupedCalls(const GroupedCalls&) = delete;
  GroupedCalls& operator=(const GroupedCalls&) = delete;

 private:
  Communicator& communicator_;
  bool open_ = true;
};

class Communicator {
 public:
  Communicator() noexcept = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Aborts it unless it was finished or aborted.
  ~Communicator();

  /// Makes it on the current device; every rank does, and waits for the others.
  void make(const UniqueId& id, int size, int rank);
  /// Throws what went wrong since, here or at a peer.
  void look() const;
  /// Ends it in peace, together with its peers; to be called when all its work on the device is done.
  void finalize();
  /// After `finalize`.
  void destroy();
  /// Ends what other threads' calls wait for, and its kernels; nothing but `abort` may follow. It frees nothing, so it
  /// may come beside a call of another thread's. False: nothing was done, as it is still being made, or this NCCL has
  /// no call for it.
  bool revoke() noexcept;
  /// Ends it at once, and its kernels, which may be waiting for a rank that will never come. Blocks until they have
  /// ended, and may wait for all that runs on the device: of several communicators there one must not wait for the end
  /// of another's. Any thread: a call of another one that waits for peers fails then. Nothing where NCCL has not come
  /// to know the communicator yet: to be called again, as long as such a call waits.
  void abort() noexcept;

  // What follows goes to `stream`. `count` is in elements of `type`.
  void all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                  cudaStream_t stream);
  /// `to` counts on the root alone.
  void reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
              cudaStream_t stream);
  /// `count` from every rank.
  void all_gather(const void* from, void* to, std::size_t count, ncclDataType_t type, cudaStream_t stream);
  void broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root, cudaStream_t stream);
  /// `count` to every rank.
  void reduce_scatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                      cudaStream_t stream);
  /// `count` bytes from every rank to every rank, also where this NCCL has no call for it (before 2.28).
  void all_to_all(const void* from, void* to, std::size_t count, cudaStream_t stream);
  void send(const void* from, std::size_t count, ncclDataType_t type, int peer, cudaStream_t stream);
  void receive(void* to, std::size_t count, ncclDataType_t type, int peer, cudaStream_t stream);

 private:
  friend class GroupedCalls;
  friend class Registration;
  /// Throws when it has been aborted.
  [[nodiscard]] ncclComm_t raw() const;
  /// What a call has returned; waits for one that has only begun.
  void complete(ncclResult_t result, const char* call) const;
  int size_ = 0;
  std::atomic<bool> is_made_{false};
  ncclComm_t raw_ = nullptr;  // NCCL writes it while it makes the communicator, and `abort` reads it then
};

struct FreeCollective {
  void operator()(std::byte* memory) const noexcept;
};
/// Memory of the current device as NCCL likes it best.
class CollectiveMemory : public OwnMemory<FreeCollective> {
 public:
  CollectiveMemory() noexcept = default;
  explicit CollectiveMemory(std::size_t bytes);
};

/// Tells a communicator about memory, so that peers may reach into it instead of copying through NCCL's own. Does
/// nothing where this NCCL cannot (before 2.19). Ends before the communicator and the memory do.
class Registration {
 public:
  Registration(Communicator& communicator, const CollectiveMemory& memory);
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration();

 private:
  Communicator& communicator_;
  void* handle_ = nullptr;
};

}  // namespace kolo::cuda
