// SPDX-License-Identifier: Apache-2.0
//
// Models as lists of named tensors, and their broadcast.
#include <set>
#include <utility>
#include <vector>

#include <kolo/libtorch.hpp>
#include <kolo/parameters.hpp>

#include "libtorch/tensors.hpp"

namespace kolo::libtorch {
namespace {

// One tensor under two names is one tensor.
NamedTensors without_repetitions(const torch::OrderedDict<std::string, at::Tensor>& tensors,
                                 const std::string& prefix) {
  NamedTensors list;
  std::set<const void*> seen;
  for (const auto& item : tensors) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) {
      list.emplace_back(prefix + item.key(), item.value());
    }
  }
  return list;
}

NamedTensors parameters_and_buffers(const torch::nn::Module& module) {
  NamedTensors list = named_parameters(module);
  for (auto& buffer : named_buffers(module)) {
    list.push_back(std::move(buffer));
  }
  return list;
}

}  // namespace

NamedTensors named_parameters(const torch::nn::Module& module, const std::string& prefix) {
  return without_repetitions(module.named_parameters(), prefix);
}

NamedTensors named_buffers(const torch::nn::Module& module, const std::string& prefix) {
  return without_repetitions(module.named_buffers(), prefix);
}

std::vector<at::Tensor> tensors(const NamedTensors& list) {
  std::vector<at::Tensor> bare;
  for (const auto& [name, tensor] : list) bare.push_back(tensor);
  return bare;
}

std::vector<kolo::Parameter> views(const NamedTensors& tensors) {
  std::vector<kolo::Parameter> list;
  for (const auto& [name, tensor] : tensors) {
    list.push_back({name, memory_view("views: " + quoted_name(name), tensor)});
  }
  return list;
}
std::vector<kolo::Parameter> views(const torch::nn::Module& module) { return views(parameters_and_buffers(module)); }

void broadcast_parameters(const Group& group, const torch::nn::Module& module, int root) {
  broadcast_parameters(group, parameters_and_buffers(module), root);
}
void broadcast_parameters(const Group& group, const NamedTensors& tensors, int root) {
  // Strided tensors travel as contiguous copies: so ranks need not agree in their layout.
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> copies;
  std::vector<kolo::Parameter> views;
  for (const auto& [name, tensor] : tensors) {
    const std::string what = "broadcast_parameters: " + quoted_name(name);
    dtype_of(what, tensor);
    copies.push_back(tensor.detach().contiguous());
    views.push_back({name, memory_view(what, copies.back())});
  }
  kolo::broadcast_parameters(group, views, root);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i].second;
    if (copies[i].data_ptr() != tensor.data_ptr()) {
      tensor.detach().copy_(copies[i]);
    }
    mark_changed(tensor);
  }
}
void broadcast_buffers(const Group& group, const torch::nn::Module& module, int root) {
  broadcast_parameters(group, named_buffers(module), root);
}

}  // namespace kolo::libtorch
