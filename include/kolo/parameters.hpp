// SPDX-License-Identifier: Apache-2.0
//
// A model's parameters as a trainer sees them, and how all ranks start from the same values.
#ifndef KOLO_PARAMETERS_HPP
#define KOLO_PARAMETERS_HPP

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/optimizer_state.hpp>
#include <kolo/types.hpp>

namespace kolo {

/// One tensor of a model: a parameter, which has a gradient, or a buffer (a running mean), which has none. Owns
/// nothing: the memory is the model's and stays where it is for as long as an optimizer knows it.
struct Parameter {
  /// Unique within the model, not empty, the same on every rank: "layer0.weight".
  std::string name;
  /// The values.
  TensorView value;
  /// Where the backward pass leaves the gradient of the loss: the value's type and shape. Empty for a buffer.
  std::optional<TensorView> gradient = std::nullopt;
};

namespace detail {
/// `caller`, which is also the beginning of the collectives' names: "broadcast_parameters".
KOLO_API void broadcast_list(const Group& group, const std::string& caller, Span<const NamedView> tensors, int root);
/// Copies rank 0's values of those without a gradient to every rank.
KOLO_API void broadcast_buffers(const Group& group, Span<const Parameter> parameters);
}  // namespace detail

/// Copies rank `root`'s values (buffers included, gradients not) to every rank.
///
/// Collective: every rank calls it, at the same place in its program, with lists that agree in number, order, names,
/// types and shapes. That is checked before anything is copied. Returns when all values have arrived. One call at a
/// time in a context.
///
/// Throws `Error`: invalid_argument for an empty or repeated name or a root that is no rank; mismatch, on every rank,
/// if the lists or the roots differ (the sentence names the first entry that differs and which rank has what); and what
/// any collective throws. After an error during the copying the values are undefined.
inline void broadcast_parameters(const Group& group, Span<const Parameter> parameters, int root = 0) {
  std::vector<NamedView> values;
  values.reserve(parameters.size());
  for (const Parameter& parameter : parameters) values.push_back({parameter.name, parameter.value});
  detail::broadcast_list(group, "broadcast_parameters", values, root);
}
inline void broadcast_parameters(Span<const Parameter> parameters, int root = 0) {
  broadcast_parameters(current_context(), parameters, root);
}

/// Compares the parameters' values over the ranks, bit by bit (by a hash): 0.0 and -0.0 differ, and NaNs of the same
/// bits do not. If they differ, throws the same `Error` (mismatch) on every rank: it names the first entry of the list
/// that differs, and the ranks that have other values than most. If names, types or shapes differ, the sentence is that
/// of `check_agreement`. Collective; ranks that have joined are passed over. A value on a device is copied to the host,
/// once its stream has come to the call, which waits for that. Throws also what a device throws (unsupported: it cannot
/// be used; invalid_argument: the stream is being captured), on this rank alone.
/// Optimizers call it before their first step, and where KOLO_CHECK_REPLICAS says so after later ones.
KOLO_API void check_replicas(const Group& group, Span<const Parameter> parameters);
inline void check_replicas(Span<const Parameter> parameters) { check_replicas(current_context(), parameters); }

/// A name as Kolo's messages show it: in double quotes, on one line, with control characters, quotes and bytes that are
/// not UTF-8 escaped. For a name longer than 200 bytes, its beginning and its length are shown.
KOLO_API std::string quoted_name(std::string_view name);

/// Compares a list of texts on all ranks, such as "layer0.weight float32 [64, 64]". Collective. If the lists differ,
/// throws the same `Error` (mismatch) on every rank: it names `caller`, the first entry that differs, and which rank
/// has what. Entries may hold any bytes; they are compared whole, and shown as names are. Use it before calls by name:
/// a call whose name only some ranks know would wait until its deadline. `caller` is also the collective's name.
KOLO_API void check_agreement(const Group& group, std::string_view caller, const std::vector<std::string>& entries);

namespace detail {
/// Throws `Error` (unsupported) on every rank if `places` has any on one. Collective.
KOLO_API void check_no_pieces(const Group& group, Span<const Parameter> places);
/// Calls it for an optimizer that has `places()`; does nothing for another.
template <class Optimizer>
auto check_replicated(const Group& group, const Optimizer& optimizer, int)
    -> decltype(check_no_pieces(group, optimizer.places())) {
  check_no_pieces(group, optimizer.places());
}
template <class Optimizer>
void check_replicated(const Group& /*group*/, const Optimizer& /*optimizer*/, long) {}
}  // namespace detail

/// Copies rank `root`'s optimizer state to every rank: hyperparameters, step counts, momenta. Use it in a run that goes
/// on from a checkpoint which one rank has read. `Optimizer` has `std::vector<NamedView> state()`, whose views stay
/// valid until this returns (`Sgd` and `AdamW` have), or `begin_load()` and `end_load()` (kolo/optimizer_state.hpp).
/// Nothing is written on the root. Collective, and checked, as `broadcast_parameters`. Throws `Error` (unsupported) for
/// an optimizer whose state lies in pieces, one on each rank: a `ShardedOptimizer`, or one that compresses gradients.
template <class Optimizer>
void broadcast_optimizer_state(const Group& group, Optimizer& optimizer, int root = 0) {
  detail::check_replicated(group, optimizer, 0);
  detail::broadcast_list(group, "broadcast_optimizer_state", detail::begin_load(optimizer, 0), root);
  if (rank(group) != root) detail::end_load(optimizer, 0);
}
template <class Optimizer>
void broadcast_optimizer_state(Optimizer& optimizer, int root = 0) {
  broadcast_optimizer_state(current_context(), optimizer, root);
}

/// Scales all gradients by one factor so that their common L2 norm is at most `max_norm`, and returns the norm before.
/// The formula is that of torch.nn.utils.clip_grad_norm_: every gradient is multiplied by min(1, max_norm / (norm +
/// 1e-6)). The norm is summed in float64 in the order given, so that ranks with equal gradients compute equal factors.
/// As in PyTorch, a NaN among the gradients makes all of them NaN, and an infinite one becomes NaN while the others
/// become zero; the norm that is returned is then no finite number, on every rank. `step(scaler)` skips such a step,
/// with a `LossScaler` of the fixed scale 1, too. Call it between `DistributedOptimizer::synchronize()` and `step()`:
/// before the reduction every rank would clip by another factor.
///
/// Local to this rank. Gradients are float32 or float64 in CPU memory; parameters without a gradient are skipped.
/// Throws `Error`: invalid_argument for a max_norm that is negative or NaN, unsupported for other types and devices.
KOLO_API double clip_grad_norm(Span<const Parameter> parameters, double max_norm);

}  // namespace kolo

#endif  // KOLO_PARAMETERS_HPP
