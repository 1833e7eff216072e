// SPDX-License-Identifier: Apache-2.0
#include <kolo/types.hpp>

#include <new>

#include <kolo/error.hpp>

namespace kolo {
namespace {

struct DTypeRow {
  std::string_view name;
  bool floating_point;
};
constexpr std::array<DTypeRow, kDTypeCount> kDTypes{{
    {"bool", false},
    {"int8", false},
    {"int16", false},
    {"int32", false},
    {"int64", false},
    {"uint8", false},
    {"uint16", false},
    {"uint32", false},
    {"uint64", false},
    {"float16", true},
    {"bfloat16", true},
    {"float32", true},
    {"float64", true},
}};
static_assert(!kDTypes.back().name.empty(), "kDTypes has one row a type, in the order of their numbers");
constexpr DTypeRow kUnknownDType{"unknown", false};

// A number that another rank has sent may be none of these.
const DTypeRow& row(DType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kDTypes.size() ? kDTypes[index] : kUnknownDType;
}

constexpr std::array<std::string_view, 8> kReduceOps{"sum",     "average", "min",    "max",
                                                     "product", "bit_and", "bit_or", "bit_xor"};

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

std::string_view to_string(DType dtype) noexcept { return row(dtype).name; }
bool is_floating_point(DType dtype) noexcept { return row(dtype).floating_point; }

std::optional<DType> parse_dtype(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string_view to_string(ReduceOp op) noexcept {
  const auto index = static_cast<std::size_t>(op);
  return index < kReduceOps.size() ? kReduceOps[index] : "unknown";
}

std::optional<ReduceOp> parse_reduce_op(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kReduceOps.size(); ++i) {
    if (kReduceOps[i] == name) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

std::string to_string(Device device) {
  return device.kind == DeviceKind::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

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
