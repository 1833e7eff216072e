// SPDX-License-Identifier: Apache-2.0
#include "c10d/tensor_memory.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>

#include "c10d/errors.hpp"
#include "c10d/streams.hpp"

namespace kolo::c10d {
namespace {

struct TypeRow {
  at::ScalarType type;
  Elements elements;
  bool is_complex = false;
};
constexpr std::array kTypes{
    TypeRow{at::ScalarType::Bool, {DType::boolean, 1}},
    TypeRow{at::ScalarType::Char, {DType::int8, 1}},
    TypeRow{at::ScalarType::Short, {DType::int16, 1}},
    TypeRow{at::ScalarType::Int, {DType::int32, 1}},
    TypeRow{at::ScalarType::Long, {DType::int64, 1}},
    TypeRow{at::ScalarType::Byte, {DType::uint8, 1}},
    TypeRow{at::ScalarType::Half, {DType::float16, 1}},
    TypeRow{at::ScalarType::BFloat16, {DType::bfloat16, 1}},
    TypeRow{at::ScalarType::Float, {DType::float32, 1}},
    TypeRow{at::ScalarType::Double, {DType::float64, 1}},
    TypeRow{at::ScalarType::ComplexHalf, {DType::float16, 2}, true},
    TypeRow{at::ScalarType::ComplexFloat, {DType::float32, 2}, true},
    TypeRow{at::ScalarType::ComplexDouble, {DType::float64, 2}, true},
};

/// None for types that Kolo can only move, as bytes.
std::optional<TypeRow> row_of(at::ScalarType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row;
  }
  for (const UnsignedType& row : kUnsignedTypes) {
    if (row.type != type) continue;
    return TypeRow{type, {row.bytes == 2 ? DType::uint16 : row.bytes == 4 ? DType::uint32 : DType::uint64, 1}};
  }
  return std::nullopt;
}

struct OpRow {
  ::c10d::ReduceOp::RedOpType theirs;
  ReduceOp ours;
};
constexpr std::array kOps{
    OpRow{::c10d::ReduceOp::SUM, ReduceOp::sum},         OpRow{::c10d::ReduceOp::AVG, ReduceOp::average},
    OpRow{::c10d::ReduceOp::PRODUCT, ReduceOp::product}, OpRow{::c10d::ReduceOp::MIN, ReduceOp::min},
    OpRow{::c10d::ReduceOp::MAX, ReduceOp::max},         OpRow{::c10d::ReduceOp::BAND, ReduceOp::bit_and},
    OpRow{::c10d::ReduceOp::BOR, ReduceOp::bit_or},      OpRow{::c10d::ReduceOp::BXOR, ReduceOp::bit_xor},
    OpRow{::c10d::ReduceOp::PREMUL_SUM, ReduceOp::sum},
};

std::string name_of(at::ScalarType type) { return c10::toString(type); }

bool is_of_newer_types(at::ScalarType type) {
  return std::any_of(kUnsignedTypes.begin(), kUnsignedTypes.end(),
                     [type](const UnsignedType& row) { return row.type == type; });
}

/// Else each could get another value.
void check_elements_apart(const std::string& call, const at::Tensor& result) {
  if (at::has_internal_overlap(result) != at::MemOverlap::Yes) return;
  raise(call, ErrorCode::invalid_argument,
        "its result would lie in a tensor whose elements share memory (expand): give a copy of it (contiguous())");
}

}  // namespace

Elements moved_elements(at::ScalarType type) {
  if (const auto row = row_of(type)) return row->elements;
  return {DType::uint8, static_cast<std::int64_t>(c10::elementSize(type))};
}

Reduction reduction_of(const std::string& call, const ::c10d::ReduceOp& op) {
  for (const OpRow& row : kOps) {
    if (row.theirs != op.op_) continue;
    Reduction reduction{row.ours};
    if (op.op_ == ::c10d::ReduceOp::PREMUL_SUM) {
      const auto* supplement = dynamic_cast<const ::c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      if (supplement == nullptr) raise(call, ErrorCode::invalid_argument, "the factor of PREMUL_SUM is missing");
      const at::Tensor factor = factor_of(*supplement);
      reduction.prescale = factor.defined() ? factor.item<double>() : supplement->double_factor;
    }
    return reduction;
  }
  raise(call, ErrorCode::unsupported, "this reduction is none of SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR");
}

Elements reduced_elements(const std::string& call, at::ScalarType type, ReduceOp op) {
  const auto row = row_of(type);
  if (!row) {
    raise(call, ErrorCode::unsupported,
          "tensors of " + name_of(type) + " can be sent and gathered, not reduced: convert them first");
  }
  if (row->is_complex && op != ReduceOp::sum && op != ReduceOp::average) {
    raise(call, ErrorCode::unsupported,
          "complex numbers can be reduced by SUM and AVG, not by \"" + std::string(to_string(op)) + '"');
  }
  if (op == ReduceOp::average && (type == at::ScalarType::Bool || is_of_newer_types(type))) {
    raise(call, ErrorCode::unsupported,
          "tensors of " + name_of(type) + " have no average, as PyTorch does not divide them: convert them first");
  }
  return row->elements;
}

bool is_average_of_integers(at::ScalarType type, ReduceOp op) noexcept {
  return op == ReduceOp::average && c10::isIntegralType(type, /*includeBool=*/false);
}

Packed::Packed(const std::string& call, std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  for (const at::Tensor& tensor : tensors_) {
    if (!tensor.defined()) raise(call, ErrorCode::invalid_argument, "a tensor is undefined");
    if (tensor.layout() != at::kStrided || !(tensor.is_cpu() || (takes_cuda() && tensor.is_cuda()))) {
      raise(call, ErrorCode::unsupported,
            "a tensor is of layout " + c10::str(tensor.layout()) + " on device " + tensor.device().str() +
                "; this takes dense tensors of " +
                (takes_cuda() ? "the CPU and of CUDA devices"
                              : "the CPU (for those of CUDA devices it must be built with CUDA and PyTorch 2.11)"));
    }
    if (tensor.device() != device()) {
      raise(call, ErrorCode::invalid_argument,
            "the tensors are on " + device().str() + " and " + tensor.device().str() + "; one device is needed");
    }
    if (tensor.scalar_type() != type()) {
      raise(call, ErrorCode::invalid_argument,
            "the tensors are of types " + name_of(type()) + " and " + name_of(tensor.scalar_type()) +
                "; one type is needed");
    }
    numel_ += tensor.numel();
  }
}

bool Packed::lies_in_one_piece() const {
  const auto* at = static_cast<const std::byte*>(data());
  for (const at::Tensor& tensor : tensors_) {
    if (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg()) return false;
    if (tensor.numel() == 0) continue;
    if (tensor.data_ptr() != at) return false;
    at += tensor.nbytes();
  }
  return true;
}

void Packed::copy_in() {
  if (lies_in_one_piece()) return;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  std::vector<at::Tensor> flat;
  flat.reserve(tensors_.size());
  for (const at::Tensor& tensor : tensors_) flat.push_back(tensor.resolve_conj().resolve_neg().reshape({-1}));
  copy_ = at::cat(flat);
}

Packed Packed::to_read(const std::string& call, std::vector<at::Tensor> tensors) {
  Packed packed(call, std::move(tensors));
  packed.copy_in();
  return packed;
}

Packed Packed::to_write(const std::string& call, std::vector<at::Tensor> tensors) {
  Packed packed(call, std::move(tensors));
  for (const at::Tensor& tensor : packed.tensors_) check_elements_apart(call, tensor);
  if (!packed.lies_in_one_piece()) packed.copy_ = at::empty({packed.numel_}, packed.tensors_.front().options());
  return packed;
}

Packed Packed::in_place(const std::string& call, const at::Tensor& tensor) {
  Packed packed = to_read(call, {tensor});
  check_elements_apart(call, tensor);
  return packed;
}

void Packed::unpack() const {
  if (!copy_.defined()) return;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  std::int64_t at = 0;
  for (const at::Tensor& tensor : tensors_) {
    tensor.copy_(copy_.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
  if (device().is_cpu()) return;
  for (const at::Tensor& tensor : tensors_) note_use_on_current_stream(tensor);
  note_use_on_current_stream(copy_);
}

void Packed::fill_from(const at::Tensor& tensor) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::Tensor& to = copy_.defined() ? copy_ : tensors_.front();
  to.copy_(tensor.resolve_conj().resolve_neg().reshape(to.sizes()));
}

void Packed::divide_by(int divisor) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  for (const at::Tensor& tensor : copy_.defined() ? std::vector<at::Tensor>{copy_} : tensors_) {
    tensor.div_(divisor, "trunc");
    if (!tensor.is_cpu()) note_use_on_current_stream(tensor);
  }
}

void* Packed::data() const {
  if (copy_.defined()) return copy_.data_ptr();
  for (const at::Tensor& tensor : tensors_) {
    if (tensor.numel() > 0) return tensor.data_ptr();
  }
  return nullptr;
}

TensorView Packed::view(DType dtype, const Shape& shape) const {
  if (device().is_cpu()) return {data(), dtype, shape};
  return {data(), dtype, shape, Device{DeviceKind::cuda, device().index()}, current_stream(device())};
}

TensorView Packed::view(const Elements& elements, const Rows& rows) const {
  return view(elements.dtype, Shape{rows.count, rows.length * elements.each});
}

TensorView Packed::view(const Elements& elements) const { return view(elements.dtype, Shape{numel_ * elements.each}); }

bool Packed::is_even() const {
  return std::all_of(tensors_.begin(), tensors_.end(),
                     [&](const at::Tensor& tensor) { return tensor.numel() == tensors_.front().numel(); });
}

}  // namespace kolo::c10d
