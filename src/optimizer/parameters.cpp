// SPDX-License-Identifier: Apache-2.0
#include <kolo/parameters.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/error.hpp>

#include "optimizer/agreement.hpp"
#include "optimizer/elements.hpp"
#include "optimizer/state.hpp"

namespace kolo {
namespace {

// Everything is started before anything is waited for, so that the tensors travel together. When one cannot be
// started, those that were must end before the caller may have the memory back.
void broadcast_all(const Group& group, const std::string& caller, Span<const NamedView> tensors, int root) {
  std::vector<Handle> handles;
  handles.reserve(tensors.size());
  try {
    for (const NamedView& tensor : tensors) {
      handles.push_back(broadcast_async({group, caller + '/' + tensor.name}, tensor.view, root));
    }
  } catch (const Error&) {
    try {
      wait_all(handles);
    } catch (const Error&) {  // the first failure is told, not what followed from it
    }
    throw;
  }
  wait_all(handles);
}

}  // namespace

void detail::broadcast_list(const Group& group, const std::string& caller, Span<const NamedView> tensors, int root) {
  std::vector<std::string> entries{"root " + std::to_string(root)};
  for (const NamedView& tensor : tensors) {
    entries.push_back(optimizer::describe(tensor.name, tensor.view));
  }
  optimizer::check_names(caller, tensors);
  optimizer::check_root(caller, group, root);
  check_agreement(group, caller, entries);
  broadcast_all(group, caller, tensors, root);
}

void detail::broadcast_buffers(const Group& group, Span<const Parameter> parameters) {
  std::vector<NamedView> buffers;
  for (const Parameter& parameter : parameters) {
    if (!parameter.gradient) buffers.push_back({parameter.name, parameter.value});
  }
  if (!buffers.empty()) broadcast_list(group, "broadcast_buffers", buffers, 0);
}

void detail::check_no_pieces(const Group& group, Span<const Parameter> places) {
  std::uint64_t most = places.size();  // a rank may have none of few elements
  AllreduceOptions options;
  options.op = ReduceOp::max;
  allreduce({group, "broadcast_optimizer_state (pieces)"}, view(&most, 1), options);
  if (most == 0) return;
  throw Error(
      ErrorCode::unsupported,
      "broadcast_optimizer_state: the state lies in pieces, of which each rank has its own; save_checkpoint and "
      "load_checkpoint take such a state from one run to another");
}

double clip_grad_norm(Span<const Parameter> parameters, double max_norm) {
  if (!(max_norm >= 0)) {
    throw Error(ErrorCode::invalid_argument,
                "clip_grad_norm: max_norm is " + optimizer::spell(max_norm) + "; it must be 0 or more");
  }
  double sum = 0;
  for (const Parameter& parameter : parameters) {
    if (!parameter.gradient) {
      continue;
    }
    const auto what = [&parameter] { return "the gradient of " + quoted_name(parameter.name); };
    optimizer::check_computable("clip_grad_norm", what, *parameter.gradient);
    sum += optimizer::squares(*parameter.gradient);
  }
  const double norm = std::sqrt(sum);
  // Written so that a NaN becomes the factor, as in PyTorch; std::min(1.0, NaN) would hide it.
  const double wanted = max_norm / (norm + 1e-6);
  if (wanted >= 1) {
    return norm;
  }
  for (const Parameter& parameter : parameters) {
    if (parameter.gradient) {
      optimizer::scale(*parameter.gradient, wanted);
    }
  }
  return norm;
}

}  // namespace kolo
