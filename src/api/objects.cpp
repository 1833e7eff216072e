// SPDX-License-Identifier: Apache-2.0
#include <kolo/objects.hpp>

#include <string>
#include <vector>

#include "api/context_impl.hpp"
#include "api/submit.hpp"

namespace kolo {

std::string broadcast_bytes(const Group& group, const std::string& bytes, int root) {
  const base::MutexLock lock(api::lock_of_own_calls(group));
  const bool is_root = rank(group) == root;
  std::uint64_t length = is_root ? bytes.size() : 0;
  const TensorView shared_length(&length, DType::uint64, Shape{});
  static_cast<void>(api::run_own(group, "kolo.broadcast_bytes (length)", Call::broadcast(shared_length, root)));
  std::string result = is_root ? bytes : std::string(length, '\0');
  const TensorView text(result.data(), DType::uint8, Shape{static_cast<std::int64_t>(length)});
  static_cast<void>(api::run_own(group, "kolo.broadcast_bytes", Call::broadcast(text, root)));
  return result;
}

std::vector<std::string> allgather_bytes(const Group& group, const std::string& bytes) {
  const base::MutexLock lock(api::lock_of_own_calls(group));
  const std::uint64_t length = bytes.size();
  const ConstTensorView own_length(&length, DType::uint64, Shape{1});
  const Tensor lengths = api::run_own(group, "kolo.allgather_bytes (lengths)", Call::allgather(own_length));
  const ConstTensorView own(bytes.data(), DType::uint8, Shape{static_cast<std::int64_t>(length)});
  const Tensor all = api::run_own(group, "kolo.allgather_bytes", Call::allgather(own));
  std::vector<std::string> result;
  const char* next = static_cast<const char*>(all.data());
  for (const std::uint64_t one : lengths.as<std::uint64_t>()) {
    result.emplace_back(next, next + one);
    next += one;
  }
  return result;
}

}  // namespace kolo
