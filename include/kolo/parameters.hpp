// SPDX-License-Identifier: Apache-2.0
//
// What a model shows of itself to a trainer, and how all ranks come to start from the same model.
#ifndef KOLO_PARAMETERS_HPP
#define KOLO_PARAMETERS_HPP

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
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

/// Copies rank `root`'s values (buffers included, gradients not) to every rank.
///
/// Collective: every rank calls it, at the same place in its program, with lists that agree in number, order, names,
/// types and shapes. That is checked before anything is copied. Returns when all values have arrived. One call at a
/// time in a context.
///
/// Throws `Error`: invalid_argument for an empty or repeated name or a root that is no rank; mismatch, on every rank,
/// when the lists or the roots disagree, with the first entry that does and who says what; else as any collective.
/// After an error during the copying the values are undefined.
KOLO_API void broadcast_parameters(const Group& group, Span<const Parameter> parameters, int root = 0);
inline void broadcast_parameters(Span<const Parameter> parameters, int root = 0) {
  broadcast_parameters(current_context(), parameters, root);
}

/// A name as Kolo's messages show it: in double quotes, on one line, with control characters, quotes and bytes that are
/// not UTF-8 escaped. Of a name longer than 200 bytes only the beginning is shown, and how long it is.
KOLO_API std::string quoted_name(std::string_view name);

/// Collective. Returns when every rank has given equal entries (text, with any bytes in it: what must be the same, such
/// as "layer0.weight float32 [64, 64]"); else throws, on every rank, the same `Error` (mismatch): `caller`, the first
/// entry that differs, and which ranks say what. Entries are compared whole, and shown as names are. For what the
/// engine cannot compare: a name that only some ranks know it would wait for. `caller` is also the collective's name.
KOLO_API void check_agreement(const Group& group, std::string_view caller, const std::vector<std::string>& entries);

namespace detail {
KOLO_API void broadcast_state(const Group& group, Span<const NamedView> state, int root);
}  // namespace detail

/// Copies rank `root`'s optimizer state to every rank: hyperparameters, step counts, momenta. For a run that goes on
/// from a checkpoint which one rank has read. `Optimizer` has `std::vector<NamedView> state()`, whose views stay valid
/// until this returns (`Sgd` and `AdamW` have). Collective, and checked, as `broadcast_parameters`.
template <class Optimizer>
void broadcast_optimizer_state(const Group& group, Optimizer& optimizer, int root = 0) {
  detail::broadcast_state(group, optimizer.state(), root);
}
template <class Optimizer>
void broadcast_optimizer_state(Optimizer& optimizer, int root = 0) {
  broadcast_optimizer_state(current_context(), optimizer, root);
}

/// Scales all gradients by one factor so that their common L2 norm is at most `max_norm`, and returns the norm before.
/// As torch.nn.utils.clip_grad_norm_ does it: every gradient is multiplied by min(1, max_norm / (norm + 1e-6)). The
/// norm is summed in float64 in the order given, so that ranks with equal gradients compute equal factors. A NaN among
/// the gradients makes all of them NaN, here as there. Call it between `DistributedOptimizer::synchronize()` and
/// `step()`: before the reduction every rank would clip by another factor.
///
/// Local to this rank. Gradients are float32 or float64 in CPU memory; parameters without one are passed over. Throws
/// `Error`: invalid_argument for a max_norm that is negative or NaN, unsupported for other types and devices.
KOLO_API double clip_grad_norm(Span<const Parameter> parameters, double max_norm);

}  // namespace kolo

#endif  // KOLO_PARAMETERS_HPP
