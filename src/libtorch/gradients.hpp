// SPDX-License-Identifier: Apache-2.0
//
// LibTorch's side of a distributed step; when which gradient is reduced, and with what weight, is `GradientReducer`'s.
//
// Where gradients live. In an arena each is a tensor made once, of memory that Kolo reduces in place, and is
// `parameter.grad()` from then on: autograd adds to it in place (AccumulateGrad does so when a gradient is defined and
// no graph is recorded). Where the program has reset or replaced it, autograd leaves another tensor there, whose
// contents are copied in, and which is dropped, as the pass goes on. Zeroing and copying are passes over all gradients,
// and what a step costs beside the reduction; libtorch/streaming_stores.hpp. Without an arena a gradient is reduced
// where autograd has put it, and freed as soon as that has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <kolo/distributed_optimizer.hpp>
#include <kolo/libtorch.hpp>
#include <kolo/parameters.hpp>

#include "libtorch/cuda_tensors.hpp"
#include "libtorch/gradient_hooks.hpp"

namespace kolo::libtorch {

/// A model's gradients, and the hooks that hand each to a reducer as soon as the backward pass has finished it.
class Gradients {
 public:
  /// `caller` begins sentences: "DistributedOptimizer". `name` and `accumulation_steps` are the reducer's.
  struct Settings {
    std::string caller;
    std::string name;
    int accumulation_steps = 1;
    bool in_arena = true;
  };

  /// Of parameters that require gradients. Throws `Error` for those that are no floating-point leaf tensors.
  Gradients(const Group& ranks, const NamedTensors& parameters, Settings settings);
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  /// For the reducer, in the order of the parameters. Where a value has gaps, or is on a device, its gradient's memory
  /// stands for it.
  std::vector<kolo::Parameter> views();
  /// The same with the parameters' values as they are now, on a device behind the current stream; `copies` holds those
  /// with gaps.
  std::vector<kolo::Parameter> values(std::vector<at::Tensor>& copies);
  /// From now on the hooks hand gradients over. The reducer outlives this, and was made of `views()`.
  void attach(kolo::detail::GradientReducer& reducer);

  /// All of these throw `Error` (invalid_argument) while a no_sync() scope is open, or when a parameter has another
  /// type, device or shape than before.
  /// Submits what is left, and waits for all. Whether the gradients are those of the whole step now.
  bool synchronize();
  /// Ends the micro-step. Whether the optimizer is to step now.
  bool finish_micro_step();
  bool flush();

  void begin_micro_step(std::size_t samples);
  void zero(bool set_to_none);
  /// Nothing is set in an arena; without one gradients become undefined.
  void release();
  /// Throws `Error` (invalid_argument) unless a step has ended, and none has begun.
  void check_between_steps(const std::string& call) const;
  [[nodiscard]] std::size_t started() const;
  [[nodiscard]] std::size_t finished() const;
  [[nodiscard]] const std::shared_ptr<int>& no_sync_depth() const noexcept { return no_sync_depth_; }

 private:
  // A parameter that is reduced.
  struct Tracked {
    std::string name;
    at::Tensor parameter;
    at::Tensor gradient;              // in an arena: whose memory is reduced. Else: which is being reduced
    std::vector<std::int64_t> sizes;  // of the parameter when this was made
    at::TensorOptions options;
    std::string was;  // that in words
    std::optional<GradientHooks> hooks = {};
    bool started = false;  // in this step
  };

  [[noreturn]] void misused(const std::string& sentence) const;
  [[noreturn]] void unsupported(const std::string& sentence) const;
  void check_trainable(const std::string& name, const at::Tensor& parameter) const;
  void check_dense(const Tracked& tracked, const at::Tensor& gradient) const;
  void place_in_arena();
  TensorView view_of(const Tracked& tracked);
  void bind(std::size_t index);
  void bind_anywhere(std::size_t index);
  void bind_all();
  void zero(Tracked& tracked) const;
  bool adopt(Tracked& tracked) const;
  void before(std::size_t index, const at::Tensor& incoming) const;
  void after(std::size_t index);
  void free_what_is_reduced();
  void let_pass();
  void mark_all_changed();
  void check_may_end() const;
  void begin_new_step();
  template <class Body>
  void or_begin_new_step(const Body& body);

  const Group ranks_;
  const Settings settings_;
  // Autograd runs the hooks of CPU tensors on the thread that called backward(), those of a device's on its own.
  mutable std::mutex mutex_;
  std::vector<Tracked> tracked_;
  std::deque<std::size_t> being_reduced_;  // without an arena
  std::optional<Gate> gate_;               // where there are gradients on a device
  kolo::detail::GradientReducer* reducer_ = nullptr;
  bool past_cache_ = false;  // whether gradients in CPU memory are written past the cache
  int micro_step_ = 0;
  const std::shared_ptr<int> no_sync_depth_ = std::make_shared<int>(0);  // a scope may outlive this
};

}  // namespace kolo::libtorch
