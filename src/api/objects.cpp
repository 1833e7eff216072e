// SPDX-License-Identifier: Apache-2.0
#include <kolo/objects.hpp>

#include <numeric>

namespace kolo {

std::string broadcast_bytes(const Group& group, const std::string& bytes, int root) {
  const bool is_root = rank(group) == root;
  std::uint64_t length = is_root ? bytes.size() : 0;
  broadcast(group, TensorView(&length, DType::uint64, Shape{}), root);
  std::string result = is_root ? bytes : std::string(length, '\0');
  broadcast(group, TensorView(result.data(), DType::uint8, Shape{static_cast<std::int64_t>(length)}), root);
  return result;
}

std::vector<std::string> allgather_bytes(const Group& group, const std::string& bytes) {
  const std::uint64_t length = bytes.size();
  const Tensor lengths = allgather(group, ConstTensorView(&length, DType::uint64, Shape{1}));
  const Tensor all =
      allgather(group, ConstTensorView(bytes.data(), DType::uint8, Shape{static_cast<std::int64_t>(bytes.size())}));
  std::vector<std::string> result;
  const char* next = static_cast<const char*>(all.data());
  for (const std::uint64_t one : lengths.as<std::uint64_t>()) {
    result.emplace_back(next, next + one);
    next += one;
  }
  return result;
}

void detail::check_object_size(std::size_t got, std::size_t wanted) {
  if (got == wanted) return;
  throw Error(ErrorCode::mismatch, "an object of " + std::to_string(got) + " bytes arrived where one of " +
                                       std::to_string(wanted) + " was expected: do all ranks exchange the same type?");
}

}  // namespace kolo
