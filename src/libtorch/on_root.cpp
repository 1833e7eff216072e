// SPDX-License-Identifier: Apache-2.0
#include "libtorch/on_root.hpp"

#include <exception>
#include <new>

#include <kolo/objects.hpp>

namespace kolo::libtorch {

std::string on_root(const Group& group, std::string_view caller, int root, ErrorCode code,
                    const std::function<std::string()>& body) {
  std::string outcome;  // a letter for how it went, and the result or the error
  if (rank(group) == root) {
    try {
      outcome = 'y' + body();
    } catch (const Error& error) {
      outcome = 'n' + error.status().message();
    } catch (const std::bad_alloc& error) {
      outcome = std::string("m") + error.what();
    } catch (const std::exception& error) {
      outcome = std::string("n") + error.what();
    }
  }
  outcome = broadcast_bytes(group, outcome, root);
  if (outcome.front() != 'y') {
    throw Error(outcome.front() == 'm' ? ErrorCode::out_of_memory : code,
                std::string(caller) + ": rank " + std::to_string(root) + ": " + outcome.substr(1));
  }
  return outcome.substr(1);
}

}  // namespace kolo::libtorch
