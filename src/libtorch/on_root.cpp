// SPDX-License-Identifier: Apache-2.0
#include "libtorch/on_root.hpp"

#include <exception>

#include <kolo/objects.hpp>

namespace kolo::libtorch {

std::string on_root(Context& context, std::string_view caller, int root, ErrorCode code,
                    const std::function<std::string()>& body) {
  std::string outcome;  // a letter for how it went, and the result or the error
  if (context.rank() == root) {
    try {
      outcome = 'y' + body();
    } catch (const std::exception& error) {
      outcome = std::string("n") + error.what();
    }
  }
  outcome = broadcast_bytes(context, outcome, root);
  if (outcome.front() == 'n') {
    throw Error(code, std::string(caller) + ": rank " + std::to_string(root) + ": " + outcome.substr(1));
  }
  return outcome.substr(1);
}

}  // namespace kolo::libtorch
