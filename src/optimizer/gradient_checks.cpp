// SPDX-License-Identifier: Apache-2.0
#include "optimizer/gradient_checks.hpp"

#include <algorithm>
#include <string_view>

#include <kolo/error.hpp>

#include "optimizer/agreement.hpp"
#include "optimizer/elements.hpp"

namespace kolo {
namespace {

constexpr int kPriorities = 16;

[[noreturn]] void reject(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, "DistributedOptimizer: " + sentence);
}

void check_compression(Span<const Parameter> parameters, const DistributedOptimizerOptions& options) {
  if (options.compression != Compression::int8_blocks) {
    reject("compression is number " + std::to_string(static_cast<int>(options.compression)) +
           ", which does not exist; the last one is 1");
  }
  if (options.send_gradients_as) {
    reject("compression and send_gradients_as are both set; one of them can be");
  }
  for (const Parameter& parameter : parameters) {
    if (parameter.gradient) {
      const auto what = [&parameter] { return "the gradient of " + quoted_name(parameter.name); };
      optimizer::check_computable("DistributedOptimizer: compression", what, *parameter.gradient);
    }
  }
}

}  // namespace

namespace optimizer {

std::vector<std::string> entries_of(Span<const Parameter> parameters, const DistributedOptimizerOptions& options) {
  std::vector<std::string> entries{"op " + std::string(to_string(options.op)),
                                   "accumulation_steps " + std::to_string(options.accumulation_steps)};
  if (options.send_gradients_as) {
    entries.push_back("send_gradients_as " + std::string(to_string(*options.send_gradients_as)));
  }
  if (options.compression == Compression::int8_blocks) {
    entries.emplace_back("compression int8_blocks");
  }
  if (options.first_layers_first) {
    entries.emplace_back("first_layers_first");
  }
  if (options.broadcast_buffers) {
    entries.emplace_back("broadcast_buffers");
  }
  for (const Parameter& parameter : parameters) {
    entries.push_back(parameter.gradient ? describe(parameter.name, *parameter.gradient)
                                         : parameter.name + " without gradient");
  }
  return entries;
}

void check_options(Span<const Parameter> parameters, const DistributedOptimizerOptions& options) {
  check_names("DistributedOptimizer", parameters);
  for (const Parameter& parameter : parameters) {
    check_gradient("DistributedOptimizer", parameter);
  }
  if (options.op != ReduceOp::average && options.op != ReduceOp::sum) {
    reject("op is " + std::string(to_string(options.op)) + "; gradients are averaged or summed");
  }
  if (options.accumulation_steps < 1) {
    reject("accumulation_steps is " + std::to_string(options.accumulation_steps) + "; it must be 1 or more");
  }
  if (options.send_gradients_as && *options.send_gradients_as != DType::float16 &&
      *options.send_gradients_as != DType::bfloat16) {
    reject("send_gradients_as is " + std::string(to_string(*options.send_gradients_as)) +
           "; only float16 and bfloat16 make sense");
  }
  if (options.compression != Compression::none) {
    check_compression(parameters, options);
  }
}

std::vector<int> priorities_of(Span<const Parameter> parameters, const DistributedOptimizerOptions& options) {
  std::vector<int> priorities(parameters.size() + 1, 0);
  if (!options.first_layers_first) {
    return priorities;
  }
  const auto bytes_of = [](const Parameter& parameter) {
    return parameter.gradient ? static_cast<double>(parameter.gradient->bytes()) : 0.0;
  };
  double all = 0;
  for (const Parameter& parameter : parameters) {
    all += bytes_of(parameter);
  }
  double before = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    priorities[i] = before < all ? kPriorities - static_cast<int>(kPriorities * (before / all)) : 1;
    before += bytes_of(parameters[i]);
  }
  priorities.back() = kPriorities + 1;
  return priorities;
}

}  // namespace optimizer

void detail::check_stepped(Span<const Parameter> given, Span<const Parameter> stepped) {
  const auto find = [](Span<const Parameter> list, const Parameter& wanted) {
    return std::find_if(list.begin(), list.end(),
                        [&](const Parameter& one) { return one.gradient && one.name == wanted.name; });
  };
  for (const Parameter& parameter : stepped) {
    if (!parameter.gradient) {
      continue;
    }
    const auto found = find(given, parameter);
    if (found == given.end()) {
      reject("the optimizer steps " + quoted_name(parameter.name) +
             ", which is not in the list of parameters; its gradient would not be reduced");
    }
    if (found->gradient->data() != parameter.gradient->data() || found->value.data() != parameter.value.data()) {
      reject("the optimizer steps " + quoted_name(parameter.name) +
             " with other memory than the list of parameters has; make the optimizer from that list (and a "
             "GradientArena before both)");
    }
  }
  for (const Parameter& parameter : given) {
    if (parameter.gradient && find(stepped, parameter) == stepped.end()) {
      reject(quoted_name(parameter.name) +
             " is in the list of parameters, but the optimizer does not step it; give both the same list");
    }
  }
}

}  // namespace kolo
