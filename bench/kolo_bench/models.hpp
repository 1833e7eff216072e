// SPDX-License-Identifier: Apache-2.0
//
// The gradients of real models: how many elements each tensor has, in the order in which the model is built.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kolo_bench {

struct Model {
  std::string name;
  std::vector<std::int64_t> tensors;  ///< elements of each, first layer first
};

/// resnet50 (161 tensors, 25.6 M parameters), bert-base (199, 110 M), gpt2-small (148, 124 M), many-small (1000 of
/// 256). Throws std::invalid_argument that names them all.
Model find_model(const std::string& name);
/// One tensor a line, dimensions separated by spaces; empty lines and those that begin with # are passed over. Throws
/// std::invalid_argument with file and line.
Model read_shapes(const std::string& file);

}  // namespace kolo_bench
