// SPDX-License-Identifier: Apache-2.0

/// @file
/// Data-parallel training for programs that use LibTorch (the C++ side of PyTorch). Four lines more:
///
///     kolo::Session session;                                        // one rank a process: mpirun -np 4 program
///     ...
///     kolo::libtorch::broadcast_parameters(*model);                 // all ranks start from rank 0's weights
///     torch::optim::Adam adam(model->parameters(), 1e-3);
///     kolo::libtorch::DistributedOptimizer optimizer(adam, *model); // averages gradients during backward()
///     kolo::libtorch::DistributedSampler sampler(data.size());      // this rank's share of the data
///
/// The loop stays as it was: `optimizer.zero_grad()`, `loss.backward()`, `optimizer.step()`.
///
/// If LibTorch and Kolo were built with CUDA, tensors may lie on a CUDA device. A collective begins after the work that
/// LibTorch's current stream was given before the call. A call that waits makes the host wait, except
/// `TensorHandle::wait`.
///
/// Link `kolo::libtorch`. Calls without a context use the calling thread's, as everywhere in Kolo. Errors are
/// `kolo::Error`s; LibTorch's own exceptions pass unchanged. Not supported, and an error that says so: sparse
/// gradients, backward passes that are themselves differentiated (`create_graph`), gradients through collectives,
/// LBFGS.
#ifndef KOLO_LIBTORCH_HPP
#define KOLO_LIBTORCH_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/data/samplers/base.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <kolo/collectives.hpp>
#include <kolo/context.hpp>
#include <kolo/distributed_optimizer.hpp>
#include <kolo/export.hpp>
#include <kolo/handle.hpp>
#include <kolo/loss_scaler.hpp>
#include <kolo/options.hpp>
#include <kolo/parameters.hpp>
#include <kolo/sampler.hpp>
#include <kolo/types.hpp>
#include <kolo/where.hpp>

#include <kolo/detail/setters.hpp>  // behind all others

/// Kolo for LibTorch. (Not `kolo::torch`: with `using namespace kolo` the name `torch` would be ambiguous.)
namespace kolo::libtorch {

/// @name models
/// @{

/// Tensors with names that are unique and the same on every rank.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// A module's parameters and its buffers, as `module.named_parameters()` and `named_buffers()` name them, each behind
/// `prefix`. A tensor that several modules share comes once, under its first name. For programs with several modules:
/// concatenate the lists, with prefixes that keep the names apart.
[[nodiscard]] KOLO_API NamedTensors named_parameters(const torch::nn::Module& module, const std::string& prefix = "");
[[nodiscard]] KOLO_API NamedTensors named_buffers(const torch::nn::Module& module, const std::string& prefix = "");

/// Copies rank `root`'s parameters and buffers to every rank. Collective, and checked as `kolo::broadcast_parameters`:
/// if models differ, the error says in which entry, and which rank has what.
KOLO_API void broadcast_parameters(const Group& group, const torch::nn::Module& module, int root = 0);
inline void broadcast_parameters(const torch::nn::Module& module, int root = 0) {
  broadcast_parameters(current_context(), module, root);
}
KOLO_API void broadcast_parameters(const Group& group, const NamedTensors& tensors, int root = 0);
inline void broadcast_parameters(const NamedTensors& tensors, int root = 0) {
  broadcast_parameters(current_context(), tensors, root);
}

/// The same for the buffers only (running means, for example), which every rank computes from its own batches.
KOLO_API void broadcast_buffers(const Group& group, const torch::nn::Module& module, int root = 0);
inline void broadcast_buffers(const torch::nn::Module& module, int root = 0) {
  broadcast_buffers(current_context(), module, root);
}

/// Copies rank `root`'s optimizer state (momenta, step counts) and options (learning rates) to every rank. Use it in a
/// run that goes on from a checkpoint which one rank has read. Optimizers must be of the same class, with the same
/// groups of parameters; any class will do whose state and options can be saved: SGD, Adam, AdamW, RMSprop and Adagrad
/// can. Collective. Throws `Error`: mismatch, on every rank, when optimizers differ; unsupported, on every rank, when
/// the root's cannot be saved; else as any collective.
KOLO_API void broadcast_optimizer_state(const Group& group, torch::optim::Optimizer& optimizer, int root = 0);
inline void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root = 0) {
  broadcast_optimizer_state(current_context(), optimizer, root);
}

/// Rank 0 writes the model, the optimizer and a number (the step or epoch reached) to a file, whole or not at all; the
/// others wait until it has, which must be within `KOLO_TIMEOUT_S`. The file is a new one or replaces a regular one,
/// never a link's target. Collective. Throws `Error` (io), on every rank, when rank 0 cannot.
KOLO_API void save_checkpoint(const Group& group, const std::string& path, const torch::nn::Module& module,
                              const torch::optim::Optimizer& optimizer, std::int64_t number = 0);
inline void save_checkpoint(const std::string& path, const torch::nn::Module& module,
                            const torch::optim::Optimizer& optimizer, std::int64_t number = 0) {
  save_checkpoint(current_context(), path, module, optimizer, number);
}

/// Rank 0 reads such a file, and all ranks get what was in it; only rank 0 needs the file. Returns the number. Throws
/// `Error` (io), on every rank, when rank 0 cannot read it; else as `broadcast_parameters` and
/// `broadcast_optimizer_state`. After an error model and optimizer are undefined.
[[nodiscard]] KOLO_API std::int64_t load_checkpoint(const Group& group, const std::string& path,
                                                    torch::nn::Module& module, torch::optim::Optimizer& optimizer);
[[nodiscard]] inline std::int64_t load_checkpoint(const std::string& path, torch::nn::Module& module,
                                                  torch::optim::Optimizer& optimizer) {
  return load_checkpoint(current_context(), path, module, optimizer);
}

/// @}

/// Makes a `torch::optim::Optimizer` distributed: every gradient is reduced over all ranks before the optimizer steps,
/// each as soon as the backward pass has finished it, while the pass goes on.
///
/// Every rank makes one at the same place in its program, over the same model, before or after the broadcast, and runs
/// the same number of steps. It covers the parameters that the optimizer steps; each must have a name in the module (or
/// in the list given). A parameter that several modules share, or that is used several times, is reduced once. A
/// parameter that does not require a gradient is not touched. If a rank has not used a parameter, its gradient there
/// counts as zero.
///
/// Gradients live in memory of Kolo's (`GradientArena`), and are zero rather than undefined: `parameter.grad()` is
/// always defined, and stays the same tensor from step to step. If the program replaces or resets it, the next backward
/// pass copies it back.
///
/// `backward()` (which rethrows what the hooks throw), `synchronize()` and `step()` throw `Error`: invalid_argument and
/// unsupported with nothing changed; or what collectives throw, and then the gradients are undefined, the optimizer has
/// not stepped, nothing is in flight, and the next backward pass begins a new step.
///
/// One thread at a time, `backward()` included. The optimizer and the module outlive this. Its context may be moved;
/// once that is gone, or has been shut down, calls throw `Error`. Destruction removes the hooks; gradients live as long
/// as a tensor refers to them. If gradients are being reduced, the rules of `kolo::DistributedOptimizer` apply.
/// Move-only; a moved-from object throws `Error` (invalid_argument).
class KOLO_API DistributedOptimizer {
 public:
  /// Collective. Throws `Error`: mismatch, on every rank, if models or options differ (the sentence names the first
  /// parameter that differs and which rank has what); invalid_argument if the optimizer steps a parameter that has no
  /// name here, and for options out of range; unsupported for LBFGS; duplicate_name when another optimizer of this name
  /// has a parameter of the same name.
  DistributedOptimizer(torch::optim::Optimizer& optimizer, torch::nn::Module& module,
                       const DistributedOptimizerOptions& options = {});
  DistributedOptimizer(torch::optim::Optimizer& optimizer, NamedTensors parameters,
                       const DistributedOptimizerOptions& options = {});
  DistributedOptimizer(const Group& group, torch::optim::Optimizer& optimizer, torch::nn::Module& module,
                       const DistributedOptimizerOptions& options = {});
  DistributedOptimizer(const Group& group, torch::optim::Optimizer& optimizer, NamedTensors parameters,
                       const DistributedOptimizerOptions& options = {});
  DistributedOptimizer(DistributedOptimizer&&) noexcept;
  DistributedOptimizer& operator=(DistributedOptimizer&&) noexcept;
  ~DistributedOptimizer();

  /// Zeroes the gradients. With `set_to_none` they become undefined instead until the backward pass has made them:
  /// cheaper by one pass over each. Between the micro-steps of one step it does nothing, so that a loop reads the same
  /// with and without accumulation. An error while gradients are being reduced.
  void zero_grad(bool set_to_none = false);

  /// Says how many samples the micro-step has on this rank, if batches have different sizes. Call it before the
  /// backward pass, in every micro-step or none, on every rank or none. See `kolo::DistributedOptimizer`, which says
  /// what is computed.
  void begin_micro_step(std::size_t samples);

  /// Waits until every gradient has been reduced. Returns true if the gradients are now those that `step()` will use:
  /// look at them or clip them now. Returns false before the last micro-step, when there is nothing to wait for.
  bool synchronize();

  /// Ends the micro-step. The last one synchronizes, if that was not done, steps the optimizer, and returns true.
  bool step();
  /// The same with a closure that computes the loss and its gradients. The closure is called once; its loss is
  /// returned.
  at::Tensor step(const torch::optim::Optimizer::LossClosure& closure);

  /// Ends a step early, as `kolo::DistributedOptimizer::flush`, with the micro-steps left over at the end of an epoch.
  bool flush(const std::function<void()>& before_step = {});

  /// While a NoSync exists, backward passes add to the gradients, and nothing is reduced. The first pass after it
  /// reduces the sum, averaged over ranks only. `step()`, `synchronize()` and `flush()` are errors meanwhile.
  class KOLO_API NoSync {
   public:
    NoSync(NoSync&& other) noexcept;
    NoSync& operator=(NoSync&&) = delete;
    ~NoSync();

   private:
    friend class DistributedOptimizer;
    friend class ShardedOptimizer;
    explicit NoSync(std::shared_ptr<int> depth) noexcept;
    std::shared_ptr<int> depth_;
  };
  [[nodiscard]] NoSync no_sync();

  /// Adds a group of parameters to the optimizer and to this. Their names come from the module, or are given.
  /// Collective, between steps; otherwise as the constructor.
  void add_param_group(const torch::optim::OptimizerParamGroup& group, const NamedTensors& names = {});

  /// Reads the parameters from the optimizer and the module again. Call it after parameters were added, frozen,
  /// unfrozen, or moved to another device or type; otherwise the next `step()` throws invalid_argument. Collective,
  /// between steps; otherwise as the constructor.
  void rebuild();

  /// The optimizer's state for `kolo::save_checkpoint` and `CheckpointWriter`, to be read: of SGD, Adam, AdamW, RMSprop
  /// or Adagrad (else `Error`, unsupported). Tensors and step counts as LibTorch names them ("exp_avg/<parameter>",
  /// "step/<parameter>" of int64), "has_momentum/<parameter>" (bool) of SGD with momentum, and numbers among the
  /// options ("options/<group>/lr"). LibTorch makes a parameter's state in its first step; until then views are of a
  /// copy of what it will begin as, and the optimizer has none. With compression, which makes it collective, what
  /// `kolo::DistributedOptimizer::state` says, too. Views are valid until the next call and the next step.
  [[nodiscard]] std::vector<ConstNamedView> state() const;
  /// Where `kolo::load_checkpoint` writes, and what it calls then (kolo/optimizer_state.hpp).
  [[nodiscard]] std::vector<NamedView> begin_load();
  void end_load();
  /// The values of those that it steps.
  [[nodiscard]] std::vector<kolo::Parameter> parameters() const;
  [[nodiscard]] Span<const kolo::Parameter> places() const;

  /// How many of this step's gradients have been submitted, and how many of those have been reduced.
  [[nodiscard]] std::size_t started() const;
  [[nodiscard]] std::size_t finished() const;

 private:
  struct Impl;
  [[nodiscard]] Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

/// Options of `ShardedOptimizer`; the same on every rank.
struct ShardedOptimizerOptions {
  /// How gradients are reduced.
  DistributedOptimizerOptions reduction;
  /// ZeRO's stage. 0: every rank keeps all of the optimizer's state. 1: its share. 2: its share of the gradients, too:
  /// each is freed as soon as it has been reduced, and `parameter.grad()` is undefined after a step. Stage 1 is faster
  /// inside a node, for its gradients are reduced where they lie.
  int stage = 1;
  /// If set: before every step all gradients are multiplied by max_norm / (norm + 1e-6), where that is below 1. If the
  /// norm is infinite or no number, the step is skipped on every rank: it would make all values NaN.
  std::optional<double> max_norm;
  /// Of parameters that have 16 bits the optimizer steps copies in float32, with gradients in float32.
  bool master_weights = false;

  KOLO_SETTER(ShardedOptimizerOptions, DistributedOptimizerOptions, reduction)
  KOLO_SETTER(ShardedOptimizerOptions, int, stage)
  KOLO_SETTER(ShardedOptimizerOptions, double, max_norm)
  KOLO_SETTER(ShardedOptimizerOptions, bool, master_weights)
};

/// An optimizer of LibTorch's whose state is shared among the ranks (`kolo::ShardedOptimizer` says how):
///
///     kolo::libtorch::broadcast_parameters(*model);
///     kolo::libtorch::ShardedOptimizer optimizer(*model, [](const kolo::libtorch::NamedTensors& mine) {
///       return std::make_unique<torch::optim::AdamW>(kolo::libtorch::tensors(mine), 1e-3);
///     });
///
/// The loop is that of `DistributedOptimizer`, and what that says of gradients, errors, threads and destruction holds
/// here. Weights are bitwise those of a `DistributedOptimizer` around the same optimizer (without `max_norm`).
///
/// What differs:
/// - The function makes the optimizer, from this rank's pieces: one row each, under the parameter's name, so that
///   groups can be made by name. A piece is a view; it must not be used after this object is gone. The optimizer must
///   work element by element: SGD, Adam, AdamW, RMSprop, Adagrad.
/// - After a reduction a rank has its own pieces of the gradients; the rest of their memory is undefined. So clip by
///   `max_norm`.
/// - A rank that has no more data calls `join()`, and not `kolo::join`.
/// - Parameters lie in memory of the CPU without gaps, and stay where they are: a model that is moved, or given another
///   type, needs a new optimizer. They are those that require a gradient when this is made. Once one is frozen, or
///   another thawed, `step()` throws invalid_argument: make a new optimizer.
class KOLO_API ShardedOptimizer {
 public:
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(const NamedTensors& mine)>;

  /// Collective, after the broadcast: all ranks must hold the same values. Throws `Error` as `DistributedOptimizer`:
  /// unsupported for complex parameters and those on a device, too; and what `make` throws.
  ShardedOptimizer(torch::nn::Module& module, const Make& make, const ShardedOptimizerOptions& options = {});
  ShardedOptimizer(const NamedTensors& parameters, const Make& make, const ShardedOptimizerOptions& options = {});
  ShardedOptimizer(const Group& group, torch::nn::Module& module, const Make& make,
                   const ShardedOptimizerOptions& options = {});
  ShardedOptimizer(const Group& group, const NamedTensors& parameters, const Make& make,
                   const ShardedOptimizerOptions& options = {});
  ShardedOptimizer(ShardedOptimizer&&) noexcept;
  ShardedOptimizer& operator=(ShardedOptimizer&&) noexcept;
  ~ShardedOptimizer();

  /// As those of `DistributedOptimizer`.
  void zero_grad(bool set_to_none = false);
  void begin_micro_step(std::size_t samples);
  /// Returns whether the optimizer has stepped: not before the last micro-step, and not with `max_norm` if the norm is
  /// infinite or no number (`norm()`), on no rank then.
  bool step();
  bool flush();
  [[nodiscard]] DistributedOptimizer::NoSync no_sync();

  /// `step()` where the loss was multiplied by `scaler.scale()`: see `kolo::DistributedOptimizer::step`. Returns
  /// whether the optimizer has stepped.
  bool step(LossScaler& scaler);
  /// This rank is out of data: takes part in the others' steps, with nothing, until all ranks have joined. In stages 1
  /// and 2.
  void join();
  /// The same where the others call `step(scaler)`.
  void join(LossScaler& scaler);

  /// The norm of all gradients before the last step clipped or skipped them; nothing with neither `max_norm` nor a
  /// scaler.
  [[nodiscard]] std::optional<double> norm() const;
  /// The optimizer that the function has made.
  [[nodiscard]] torch::optim::Optimizer& optimizer() const;

  /// For checkpoints: see `DistributedOptimizer::state`, whose names these are, and `kolo::ShardedOptimizer`. A
  /// checkpoint that one of the two has saved is read by the other (without `master_weights`), at any number of ranks.
  [[nodiscard]] std::vector<ConstNamedView> state() const;
  [[nodiscard]] std::vector<NamedView> begin_load();
  void end_load();
  [[nodiscard]] std::vector<kolo::Parameter> parameters() const;
  [[nodiscard]] Span<const kolo::Parameter> places() const;

  [[nodiscard]] std::size_t started() const;
  [[nodiscard]] std::size_t finished() const;

 private:
  struct Impl;
  [[nodiscard]] Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

class Engine;

/// Makes an engine: rank 0 reads the file; with fp16 or bf16 the module's floating-point parameters and buffers get
/// that type; all ranks get rank 0's. Collective. Throws `Error`, on every rank: io if the file cannot be read;
/// invalid_argument for a value that is wrong or contradicts another, and unsupported for a key or value that is not
/// served (the sentence names the key by its path, and says what to do).
[[nodiscard]] KOLO_API Engine initialize(const Group& group, torch::nn::Module& module, const std::string& config);

/// DeepSpeed's loop, with a configuration as DeepSpeed reads it (docs/from-deepspeed.md has the keys):
///
///     auto engine = kolo::libtorch::initialize(*model, "ds_config.json");
///     for (...) {
///       engine.backward(loss_of(model, batch));  // a batch of engine.train_micro_batch_size_per_gpu() rows
///       engine.step();
///     }
///
/// Accumulation, loss scaling, clipping, the schedule of the learning rate and ZeRO follow from the configuration. One
/// thread at a time. The module outlives it. Move-only; a moved-from object may be destroyed or assigned to.
class KOLO_API Engine {
 public:
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  /// The gradients of this rank's mean loss over a micro-batch, times the loss scale if there is one. Adds to those of
  /// the micro-steps before it. Throws as `DistributedOptimizer`.
  void backward(const at::Tensor& loss);
  /// Ends the micro-step. The last one of a step steps the optimizer and the schedule, and zeroes the gradients. With
  /// fp16 or gradient_clipping it skips both, on all ranks, if a gradient of any rank is infinite or no number. Returns
  /// whether the optimizer has stepped.
  bool step();
  /// Whether the next `step()` ends a step.
  [[nodiscard]] bool is_gradient_accumulation_boundary() const;
  /// This rank is out of data: see `ShardedOptimizer::join`.
  void join();

  [[nodiscard]] int train_batch_size() const;
  [[nodiscard]] int train_micro_batch_size_per_gpu() const;
  [[nodiscard]] int gradient_accumulation_steps() const;
  /// Steps so far, and those among them that were skipped.
  [[nodiscard]] std::int64_t global_steps() const;
  [[nodiscard]] std::int64_t skipped_steps() const;
  [[nodiscard]] double learning_rate() const;
  /// 1 without fp16.
  [[nodiscard]] double loss_scale() const;
  [[nodiscard]] ShardedOptimizer& optimizer() const;

  /// `kolo::save_checkpoint` and `kolo::load_checkpoint` of the module's parameters and buffers, the optimizer, the
  /// loss scale, and the numbers of steps and of those that were skipped.
  void save_checkpoint(const std::string& path) const;
  void load_checkpoint(const std::string& path);

 private:
  friend Engine initialize(const Group& group, torch::nn::Module& module, const std::string& config);
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

[[nodiscard]] inline Engine initialize(torch::nn::Module& module, const std::string& config) {
  return initialize(current_context(), module, config);
}

/// The tensors of a list, without their names.
[[nodiscard]] KOLO_API std::vector<at::Tensor> tensors(const NamedTensors& list);

/// Views of a module's parameters and buffers, for Kolo's calls that take a list: `kolo::save_checkpoint(path,
/// kolo::libtorch::views(*model), optimizer)`. Valid as long as the tensors keep their memory, which must have no gaps
/// (else `Error`, invalid_argument).
[[nodiscard]] KOLO_API std::vector<kolo::Parameter> views(const torch::nn::Module& module);
[[nodiscard]] KOLO_API std::vector<kolo::Parameter> views(const NamedTensors& tensors);

/// @name tensors
/// Kolo's collectives on tensors, with the same `Where` first. In-place calls take any tensor, views and strides
/// included; asynchronous calls need a contiguous tensor. Types as `kolo::DType` (complex tensors count as pairs of
/// reals). A tensor that autograd would have to follow (one with a grad_fn) is an error (unsupported): detach it.
/// @{

/// A tensor's memory, which must be contiguous, for calls that take views. Owns nothing.
[[nodiscard]] KOLO_API TensorView view(const at::Tensor& tensor);

/// A started operation on a tensor. It holds the tensor, so that the memory lasts until the operation has ended, even
/// if this object is destroyed before. Otherwise as `kolo::Handle`.
class KOLO_RESULT TensorHandle {
 public:
  TensorHandle(Handle handle, at::Tensor tensor) noexcept;
  TensorHandle(TensorHandle&&) noexcept;
  TensorHandle& operator=(TensorHandle&&) noexcept;
  ~TensorHandle();

  [[nodiscard]] bool done() const { return handle_.done(); }
  /// Waits, and returns the tensor. Throws the operation's `Error`. For a CUDA tensor LibTorch's current stream waits
  /// for the device, and the host does not; a later failure is thrown by the next call.
  at::Tensor wait();

 private:
  void let_go() noexcept;
  Handle handle_;
  at::Tensor tensor_;
};

KOLO_API void allreduce(const Where& where, const at::Tensor& inout, const AllreduceOptions& options = {});
inline void allreduce(const at::Tensor& inout, const AllreduceOptions& options = {}) {
  allreduce(current_context(), inout, options);
}
KOLO_API TensorHandle allreduce_async(const Where& where, const at::Tensor& inout,
                                      const AllreduceOptions& options = {});
inline TensorHandle allreduce_async(const at::Tensor& inout, const AllreduceOptions& options = {}) {
  return allreduce_async(current_context(), inout, options);
}
KOLO_API void broadcast(const Where& where, const at::Tensor& inout, int root, const BroadcastOptions& options = {});
inline void broadcast(const at::Tensor& inout, int root, const BroadcastOptions& options = {}) {
  broadcast(current_context(), inout, root, options);
}
KOLO_API TensorHandle broadcast_async(const Where& where, const at::Tensor& inout, int root,
                                      const BroadcastOptions& options = {});
inline TensorHandle broadcast_async(const at::Tensor& inout, int root, const BroadcastOptions& options = {}) {
  return broadcast_async(current_context(), inout, root, options);
}
/// All ranks' tensors, concatenated along the first dimension, in a new tensor.
[[nodiscard]] KOLO_API at::Tensor allgather(const Where& where, const at::Tensor& in,
                                            const AllgatherOptions& options = {});
[[nodiscard]] inline at::Tensor allgather(const at::Tensor& in, const AllgatherOptions& options = {}) {
  return allgather(current_context(), in, options);
}
/// Sends some rows (of the first dimension) to every rank, as `kolo::alltoall`; returns the received rows in a new
/// tensor.
[[nodiscard]] KOLO_API at::Tensor alltoall(const Where& where, const at::Tensor& in, Splits splits = {},
                                           const AlltoallOptions& options = {});
[[nodiscard]] inline at::Tensor alltoall(const at::Tensor& in, Splits splits = {},
                                         const AlltoallOptions& options = {}) {
  return alltoall(current_context(), in, splits, options);
}
/// This rank's rows of allreduce's result, as `kolo::reduce_scatter`, in a new tensor.
[[nodiscard]] KOLO_API at::Tensor reduce_scatter(const Where& where, const at::Tensor& in,
                                                 const ReduceScatterOptions& options = {});
[[nodiscard]] inline at::Tensor reduce_scatter(const at::Tensor& in, const ReduceScatterOptions& options = {}) {
  return reduce_scatter(current_context(), in, options);
}

/// @}

/// @name metrics
/// The mean over all ranks, each rank's value counted `weight` times (its number of samples, say). Computed in float64.
/// NaN when all weights are 0. Collective: one of the group's unnamed calls.
/// @{

[[nodiscard]] KOLO_API double average(const Group& group, double value, double weight = 1);
[[nodiscard]] inline double average(double value, double weight = 1) {
  return average(current_context(), value, weight);
}

/// @}

namespace detail {
template <class Class, class Argument>
Argument argument_of(void (Class::*)(Argument));
}  // namespace detail

/// This rank's share of a data set, for `torch::data`: `make_data_loader(dataset, sampler, options)` takes it. The
/// order is that of `kolo::DistributedSampler`. Each `reset()` begins the next epoch, and the data loader resets at
/// each `begin()`, so epochs come by themselves, from 0; `set_epoch` chooses the one that the next `reset()` begins.
class KOLO_API DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  using Base = torch::data::samplers::Sampler<>;
  /// std::optional or LibTorch's own optional, depending on its version.
  using Batch = decltype(std::declval<Base&>().next(std::size_t{}));
  using NewSize = decltype(detail::argument_of(&Base::reset));

  explicit DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options = {});
  DistributedSampler(const Group& group, std::size_t dataset_size, DistributedSamplerOptions options = {});
  explicit DistributedSampler(kolo::DistributedSampler sampler);

  /// Begins the next epoch. A new size is an error (invalid_argument): make a new sampler.
  void reset(NewSize new_size = {}) override;
  /// The next rows, at most `batch_size`, which is 1 or more (else: invalid_argument); empty at the epoch's end.
  Batch next(std::size_t batch_size) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  void set_epoch(std::uint64_t epoch) noexcept { next_epoch_ = epoch; }
  /// How many rows this rank gets in an epoch.
  [[nodiscard]] std::size_t size() const noexcept { return sampler_.size(); }

 private:
  kolo::DistributedSampler sampler_;
  std::uint64_t next_epoch_ = 0;
  std::vector<std::size_t> rows_;
  std::size_t place_ = 0;
};

}  // namespace kolo::libtorch

#undef KOLO_SETTER
#undef KOLO_SETTER_TIMEOUT

#endif  // KOLO_LIBTORCH_HPP
