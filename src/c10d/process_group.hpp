// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's backend "kolo": a c10d process group over Kolo's public API.
//
// A process group that is made by itself is a world of its own, whose ranks meet in its store. Groups of some of its
// ranks are Kolo's groups in that world, and end with it.
//
// Every collective is one of Kolo's calls without a name, and every message one of its messages. So all ranks
// make the same calls on a group in the same order, as with any backend. They may come from several threads, if the
// program orders these.
//
// Memory that PyTorch describes and Kolo does not (tensors with strides, lists of tensors) is copied, before the call
// and when it has completed. Tensors lie in the memory of the CPU, or of one CUDA device a rank: a collective then
// comes behind what PyTorch's current stream has been given, and device_work.hpp says what its Work does.
//
// Errors: errors.hpp says which exception they are. An error at the call is thrown there, one of the operation by
// `wait`, and by the future. Once one was thrown, nobody uses the tensors any more: a call whose time is up, or that is
// aborted, ends the world, unless it is a message. A rank's death ends all, too.
//
// A group that was made with `enable_reconfigure` has a world after another (reconfigure.cpp). It has no ranks before
// the first and after a `reconfigure` that has failed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <kolo/context.hpp>

#include "c10d/kinds.hpp"
#include "c10d/versions.hpp"
#include "c10d/work.hpp"
#include "c10d/world.hpp"

namespace kolo::c10d {

class ProcessGroupKolo : public Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  /// A world of its own. Collective.
  ProcessGroupKolo(const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
                   std::chrono::milliseconds timeout, World::AtExit at_exit = World::AtExit::waits_for_all);
  /// All of a world that exists.
  ProcessGroupKolo(std::shared_ptr<World> world, std::chrono::milliseconds timeout);
  /// The group of these ranks of `parent`. Its members call it, with the same list and name.
  ProcessGroupKolo(const ProcessGroupKolo& parent, const std::vector<int>& ranks, const std::string& name,
                   std::chrono::milliseconds timeout);
  /// The same group, whose collectives have this name (those of several tensors also a number behind it). They are
  /// matched by that, whatever the order in which ranks make them; each is in flight once at a time.
  ProcessGroupKolo(const ProcessGroupKolo& other, std::string name);
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  /// A group whose ranks `reconfigure` decides, and meet in this store.
  ProcessGroupKolo(c10::intrusive_ptr<::c10d::Store> store, std::chrono::milliseconds timeout);
#endif
  ~ProcessGroupKolo() override;

  const std::string getBackendName() const override { return "kolo"; }

  WorkPtr broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options) KOLO_OVERRIDE_SINCE_2;
  WorkPtr allreduce_coalesced(Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const ::c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const ::c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::AllgatherOptions& options) KOLO_OVERRIDE_SINCE_2;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const ::c10d::GatherOptions& options) override;
#ifdef KOLO_C10D_HAS_GATHER_SINGLE
  /// Outputs of other ranks than the root are not looked at.
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const ::c10d::GatherOptions& options) override;
#endif
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const ::c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const ::c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const ::c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::ReduceScatterOptions& options) KOLO_OVERRIDE_SINCE_2;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const ::c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const ::c10d::AllToAllOptions& options) override;

  /// The message must have as many elements as the tensor that receives it. Tags are not negative, and not the largest
  /// number of an int, which `monitoredBarrier` uses.
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  /// Completes when every rank has come. As Kolo's it is no fence for operations that are in flight. Where the group
  /// has, or is told, a CUDA device, the caller first waits until its current stream there has done all it was given.
  WorkPtr barrier(const ::c10d::BarrierOptions& options) override;
  /// A barrier that says on rank 0 which ranks did not come: the first, or all of them.
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) override;

  void setSequenceNumberForGroup() override {}
  /// How many collectives this rank has started in the group.
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }

  void setTimeout(std::chrono::milliseconds timeout) KOLO_OVERRIDE_SINCE_2 { timeout_ = bounded(timeout); }
  /// Ends this rank's part of the job: on every rank, in every group of the world, operations fail and name it.
  void abort() KOLO_OVERRIDE_SINCE_2 { abandon("the process group was aborted"); }
  /// The same with a reason for the others.
  void abandon(const std::string& reason);
  /// Of a world: leaves it, when all ranks do, and waits for what futures have called back. Of a group in it: nothing
  /// is to be done.
  void shutdown() KOLO_OVERRIDE_SINCE_2;

#ifdef KOLO_C10D_HAS_SPLIT
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<::c10d::Backend> split(const c10::intrusive_ptr<::c10d::Store>& store,
                                            const std::vector<int>& ranks,
                                            const c10::intrusive_ptr<Options>& options) override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
#endif

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return meeting_place_ != nullptr; }
  /// Names this object, whatever its ranks.
  ::c10d::ReconfigureHandle get_reconfigure_handle() const override;
  /// Leaves the world that there is: what is in flight fails, and ranks that stay there are waited for a second or two.
  /// Then the processes with these handles meet as a new one: their places in a list are their ranks; of a set, the
  /// order of the texts. Collective over them, and over when it returns; no other thread uses the group meanwhile.
  /// `uuid` is new. Throws ValueError, and changes nothing, for wrong arguments; DistBackendError where a rank does not
  /// come: then the group has no ranks, and may be reconfigured again, with another uuid.
  WorkPtr reconfigure(const ::c10d::ReconfigureOptions& options) override;
#endif

  /// Throws DistBackendError where the group has no ranks.
  [[nodiscard]] const Group& group() const;
  /// The world's. Throws DistBackendError where there is none.
  [[nodiscard]] const Context& context() const { return world().context(); }

 private:
  [[nodiscard]] std::chrono::milliseconds or_default(std::chrono::milliseconds timeout) const;
  [[nodiscard]] World& world() const;
  /// Throws ValueError for a device that is not the group's.
  void note_device(const std::string& call, at::Device device);

  /// Starts the operations of a collective.
  WorkPtr start(const Kind& kind, std::vector<Arguments> operations, Tensors results, std::chrono::milliseconds timeout,
                const Reduction& reduction = {});
  /// Starts what `begin` puts into the operation; keeps its memory if that throws.
  WorkPtr start(Occasion occasion, const std::function<void(Operation&)>& begin);
  WorkPtr sparse_allreduce(const at::Tensor& tensor, const ::c10d::AllreduceOptions& options);
  WorkPtr receive(const char* call, ::c10d::OpType type, Tensors& tensors, int from, int tag);

  std::shared_ptr<World> world_;  // null, and no group: there are no ranks yet
  std::optional<Group> group_;
  const bool is_world_;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  const c10::intrusive_ptr<::c10d::Store> meeting_place_;  // of groups that are reconfigured
  const std::string handle_;                               // likewise
  std::set<std::int64_t> used_;                            // likewise: the numbers of its worlds
#endif
  const std::string name_;  // of its calls; empty: they have none
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::int64_t> monitored_barriers_{0};
  std::atomic<int> cuda_device_{-1};  // the last that was used
};

}  // namespace kolo::c10d
