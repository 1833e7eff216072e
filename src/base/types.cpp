// SPDX-License-Identifier: Apache-2.0
#include <kolo/types.hpp>

#include <new>

#include <kolo/error.hpp>

namespace kolo {
namespace {

std::string list(const std::int64_t* extents, std::size_t rank) {
  std::string text = "[";
  for (std::size_t i = 0; i < rank; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(extents[i]);
  }
  return text + "]";
}

constexpr std::align_val_t kTensorAlignment{64};

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> extents) : Shape(extents.begin(), extents.size()) {}

Shape::Shape(const std::int64_t* extents, std::size_t rank) {
  if (rank > kMaxRank) {
    throw Error(ErrorCode::invalid_argument,
                "a shape has at most 8 dimensions, and " + std::to_string(rank) + " were given");
  }
  if (extents == nullptr && rank > 0) {
    throw Error(ErrorCode::invalid_argument,
                "the " + std::to_string(rank) +
                    " extents of a shape are a null pointer; give the address of the first");
  }
  bool empty = false;
  for (std::size_t i = 0; i < rank; ++i) {
    if (extents[i] < 0) {
      throw Error(ErrorCode::invalid_argument,
                  "the shape " + list(extents, rank) + " has a negative extent; extents are 0 or more");
    }
    empty = empty || extents[i] == 0;
    extents_[i] = extents[i];
  }
  rank_ = static_cast<std::uint8_t>(rank);
  if (empty) return;
  constexpr std::int64_t kMost = (std::int64_t{1} << 60) - 1;
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    if (extents[i] > kMost / elements) {
      throw Error(ErrorCode::invalid_argument,
                  "the shape " + list(extents, rank) + " has more elements than fit into 60 bits");
    }
    elements *= extents[i];
  }
}

std::string to_string(const Shape& shape) { return list(shape.begin(), shape.rank()); }

Tensor::Tensor(DType dtype, Shape shape) : shape_(shape), dtype_(dtype) {
  // An empty tensor has memory too, so that it differs from a default-constructed one.
  const auto bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  memory_.reset(static_cast<std::byte*>(::operator new(bytes > 0 ? bytes : 1, kTensorAlignment)));
}

void Tensor::Release::operator()(std::byte* memory) const noexcept { ::operator delete(memory, kTensorAlignment); }

void Tensor::check_dtype(DType wanted) const {
  if (wanted == dtype_) return;
  throw Error(ErrorCode::invalid_argument, "a tensor of " + std::string(to_string(dtype_)) + " cannot be read as " +
                                               std::string(to_string(wanted)) +
                                               "; as<T>() converts nothing, so T must be the tensor's own type");
}

}  // namespace kolo
