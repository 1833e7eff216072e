// SPDX-License-Identifier: Apache-2.0
//
// A step, from here: the gradients' pieces have arrived; the last step's values are whole on all ranks, and are
// compared now if KOLO_CHECK_REPLICAS says so, before the first step if nothing else is said; the norm of all pieces is
// one all-reduce of 8 bytes; the optimizer steps the pieces of the values; each value is gathered in place, the first
// parameters first, because the next forward pass needs them first. In stage 0 the pieces are the whole parameters, and
// nothing is gathered.
//
// Replicas are compared before the step, not after it: the gather overwrites whatever was different.
#include <cmath>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <kolo/call.hpp>
#include <kolo/collectives.hpp>
#include <kolo/error.hpp>
#include <kolo/sharded_optimizer.hpp>

#include "optimizer/elements.hpp"
#include "optimizer/gradient.hpp"

namespace kolo {
using detail::GradientReducer;
using detail::ParameterShards;

namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, "ShardedOptimizer: " + sentence);
}

struct Shard {
  std::string name;
  std::optional<TensorView> gradient;  // all of it; empty for a buffer
  Prepared gather;                     // of the value
  Handle gathering;                    // valid while the other ranks' values are awaited
};

/// A piece of 16 bits, and the copies in float32 that the optimizer steps.
struct Master {
  Parameter place;
  Tensor value, gradient;
};

}  // namespace

struct ParameterShards::Impl {
  const Group group;
  const ShardedOptimizerOptions options;
  const std::vector<Parameter> parameters;
  GradientReducer reducer;
  detail::ReplicaChecks replicas{group, options.reduction.name};
  bool compares_replicas = false;  // when all values of the last step have come
  std::vector<Parameter> pieces, places;
  std::vector<Master> masters;
  double squares = 0;  // the norm's memory
  Prepared sum_squares;
  std::optional<double> norm;
  std::vector<Shard> shards;  // by parameter; behind what the gathers write to
  const int exceptions_at_birth = std::uncaught_exceptions();

  Impl(const Group& ranks, Span<const Parameter> list, const ShardedOptimizerOptions& given)
      : group(ranks), options(given), parameters(list.begin(), list.end()),
        reducer(group, checked(parameters, given), given.reduction, gets(given.stage)) {
    shards.reserve(parameters.size());
    masters.reserve(parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      Shard& shard = shards.emplace_back();
      if (!parameter.gradient) continue;
      shard.name = parameter.name;
      shard.gradient = parameter.gradient;
      if (options.stage == 0) {
        add_piece(parameter);
        continue;
      }
      const TensorView value = piece_of(group, parameter.value);
      AllgatherOptions gather;
      gather.timeout = options.reduction.timeout;
      shard.gather =
          prepare({group, options.reduction.name + '/' + parameter.name + " (value)"},
                  Call::allgather_into(value, optimizer::flat(parameter.value, 0, parameter.value.elements()), gather));
      if (value.elements() == 0) continue;
      add_piece({parameter.name, value, reducer.piece(i)});
      places.push_back({parameter.name, value});
    }
    if (options.stage == 0) places.assign(reducer.places().begin(), reducer.places().end());
    AllreduceOptions sum;
    sum.timeout = options.reduction.timeout;
    sum_squares = prepare({group, options.reduction.name + " (norm)"}, Call::allreduce(view(&squares, 1), sum));
  }

  // Values that are under way come to their end, for the other ranks wait for this one's. While an exception unwinds
  // nothing is waited for: the handles see to it that nothing is written any more.
  ~Impl() {
    if (std::uncaught_exceptions() > exceptions_at_birth) return;
    try {
      wait_all_shards();
    } catch (const std::exception&) {  // there is nobody to tell
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  static GradientReducer::Gets gets(int stage) {
    using Gets = GradientReducer::Gets;
    return stage == 0 ? Gets::all : stage == 1 ? Gets::own_piece : Gets::own_piece_apart;
  }

  static bool has_16_bits(const TensorView& view) {
    return view.dtype() == DType::float16 || view.dtype() == DType::bfloat16;
  }

  void add_piece(const Parameter& piece) {
    if (!options.cast || !has_16_bits(piece.value)) {
      pieces.push_back(piece);
      return;
    }
    Master& master = masters.emplace_back(
        Master{piece, Tensor(DType::float32, piece.value.shape()), Tensor(DType::float32, piece.value.shape())});
    options.cast(piece.value, master.value.view());
    pieces.push_back({piece.name, master.value.view(), master.gradient.view()});
  }

  static Span<const Parameter> checked(Span<const Parameter> parameters, const ShardedOptimizerOptions& options) {
    if (options.stage < 0 || options.stage > 2) {
      refuse("stage is " + std::to_string(options.stage) + "; it must be 0, 1 or 2");
    }
    if (options.max_norm && !(*options.max_norm > 0)) {
      refuse("max_norm is " + std::to_string(*options.max_norm) + "; it must be more than 0");
    }
    for (const Parameter& parameter : parameters) {
      if (!parameter.gradient) continue;
      const std::string name = quoted_name(parameter.name);
      if (parameter.gradient->device() != cpu() || parameter.value.device() != cpu()) {
        throw Error(ErrorCode::unsupported,
                    "ShardedOptimizer: " + name + " is on a device; only memory of the CPU is supported");
      }
      if (options.max_norm && !(options.cast && has_16_bits(*parameter.gradient))) {
        optimizer::check_computable(
            "ShardedOptimizer: max_norm", [&] { return "the gradient of " + name; }, *parameter.gradient);
      }
    }
    return parameters;
  }

  void wait_all_shards() {
    std::exception_ptr first;
    for (Shard& shard : shards) {
      try {
        wait(shard);
      } catch (const Error&) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }

  void end_step() {
    reducer.end_step();
    compares_replicas = replicas.is_due_after_step();
  }

  void compare_replicas_if_due() {
    const bool compares = std::exchange(compares_replicas, false) || replicas.is_due_before_step();
    if (compares) replicas.compare(group, parameters);
  }

  static void wait(Shard& shard) {
    if (shard.gathering.valid()) Handle(std::move(shard.gathering)).wait();
  }

  /// Of all gradients; no number, or infinite, if one of any rank is.
  double norm_of_all() {
    squares = 0;
    for (const Parameter& piece : pieces) squares += optimizer::squares(*piece.gradient);
    if (options.stage > 0) sum_squares.start().wait();
    return std::sqrt(squares);
  }

  void unscale(double scale) {
    for (const Shard& shard : shards) {  // all of them, so that all ranks find the same
      if (!shard.gradient || (options.cast && has_16_bits(*shard.gradient))) continue;
      const auto what = [&shard] { return "the gradient of " + quoted_name(shard.name); };
      optimizer::check_computable("LossScaler", what, *shard.gradient);
    }
    for (const Parameter& piece : pieces) {
      static_cast<void>(optimizer::unscale(*piece.gradient, scale));  // the norm tells of all ranks
    }
  }

  void clip() {
    const double factor = *options.max_norm / (*norm + 1e-6);
    if (!(factor < 1)) return;
    for (const Parameter& piece : pieces) optimizer::scale(*piece.gradient, factor);
  }
};

ParameterShards::ParameterShards(const Group& group, Span<const Parameter> parameters,
                                 const ShardedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(group, parameters, options)) {}
ParameterShards::ParameterShards(ParameterShards&&) noexcept = default;
ParameterShards& ParameterShards::operator=(ParameterShards&&) noexcept = default;
ParameterShards::~ParameterShards() = default;

ParameterShards::Impl& ParameterShards::impl() const {
  if (!impl_) refuse("this object was moved from");
  return *impl_;
}

Span<const Parameter> ParameterShards::pieces() const { return impl().pieces; }

Span<const Parameter> ParameterShards::places() const { return impl().places; }

std::vector<ConstNamedView> ParameterShards::state() const {
  std::vector<ConstNamedView> views = impl().reducer.state();
  for (const Master& master : impl_->masters) views.push_back({"master/" + master.place.name, master.value.view()});
  return views;
}

std::vector<NamedView> ParameterShards::begin_load() {
  std::vector<NamedView> views = impl().reducer.begin_load();
  for (Master& master : impl_->masters) views.push_back({"master/" + master.place.name, master.value.view()});
  return views;
}

void ParameterShards::end_load() { impl().reducer.end_load(); }

GradientReducer& ParameterShards::reducer() const { return impl().reducer; }

void ParameterShards::zero_grad() {
  if (!impl().reducer.may_zero()) return;
  if (impl_->options.stage == 2) return;  // there are none
  for (const Shard& shard : impl_->shards) {
    if (shard.gradient) optimizer::fill_zero(*shard.gradient);
  }
}

bool ParameterShards::before_step(std::optional<double> scale) {
  impl().wait_all_shards();
  impl_->compare_replicas_if_due();
  for (Master& master : impl_->masters) impl_->options.cast(*master.place.gradient, master.gradient.view());
  if (scale) impl_->unscale(*scale);
  if (!scale && !impl_->options.max_norm) return true;
  impl_->norm = impl_->norm_of_all();
  if (!std::isfinite(*impl_->norm)) return false;
  if (impl_->options.max_norm) impl_->clip();
  return true;
}

void ParameterShards::after_step() {
  for (Master& master : impl().masters) impl_->options.cast(master.value.view(), master.place.value);
  if (impl_->options.stage > 0) {
    for (Shard& shard : impl_->shards) {
      if (shard.gradient) shard.gathering = shard.gather.start();
    }
  }
  impl_->end_step();
  if (!impl_->options.gather_late) impl_->wait_all_shards();
  if (impl_->options.reduction.broadcast_buffers) detail::broadcast_buffers(impl_->group, impl_->parameters);
}

void ParameterShards::skip_step() { impl().end_step(); }

void ParameterShards::wait_parameter(std::size_t index) {
  if (index >= impl().shards.size()) {
    refuse("wait_parameter(" + std::to_string(index) + "): there is no such parameter; there are " +
           std::to_string(impl_->shards.size()) + ", numbered from 0");
  }
  Impl::wait(impl_->shards[index]);
}

void ParameterShards::wait_parameters() { impl().wait_all_shards(); }

std::optional<double> ParameterShards::norm() const { return impl().norm; }

}  // namespace kolo
