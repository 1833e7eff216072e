// SPDX-License-Identifier: Apache-2.0
#include <kolo/objects.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/context_impl.hpp"
#include "api/submit.hpp"

namespace kolo {
namespace {

void broadcast_own(const Group& group, std::string_view name, const TensorView& inout, int root) {
  api::run_own(group, name, Call::broadcast(inout, root));
}

Tensor allgather_own(const Group& group, std::string_view name, const ConstTensorView& in) {
  CallResult result;
  api::run_own(group, name, Call::allgather(in), &result);
  return std::move(result.output);
}

}  // namespace

std::string broadcast_bytes(const Group& group, const std::string& bytes, int root) {
  const base::MutexLock lock(api::lock_of_own_calls(group));
  const bool is_root = rank(group) == root;
  std::uint64_t length = is_root ? bytes.size() : 0;
  broadcast_own(group, "kolo.broadcast_bytes (length)", TensorView(&length, DType::uint64, Shape{}), root);
  std::string result = is_root ? bytes : std::string(length, '\0');
  broadcast_own(group, "kolo.broadcast_bytes",
                TensorView(result.data(), DType::uint8, Shape{static_cast<std::int64_t>(length)}), root);
  return result;
}

std::vector<std::string> allgather_bytes(const Group& group, const std::string& bytes) {
  const base::MutexLock lock(api::lock_of_own_calls(group));
  const std::uint64_t length = bytes.size();
  const Tensor lengths =
      allgather_own(group, "kolo.allgather_bytes (lengths)", ConstTensorView(&length, DType::uint64, Shape{1}));
  const Tensor all =
      allgather_own(group, "kolo.allgather_bytes",
                    ConstTensorView(bytes.data(), DType::uint8, Shape{static_cast<std::int64_t>(bytes.size())}));
  std::vector<std::string> result;
  const char* next = static_cast<const char*>(all.data());
  for (const std::uint64_t one : lengths.as<std::uint64_t>()) {
    result.emplace_back(next, next + one);
    next += one;
  }
  return result;
}

}  // namespace kolo
