// SPDX-License-Identifier: Apache-2.0
#include "optimizer/compressed_gradient.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "optimizer/elements.hpp"
#include "optimizer/gradient.hpp"

namespace kolo::optimizer {
namespace {

Tensor zeros(DType dtype, std::int64_t count) {
  Tensor tensor(dtype, Shape{count});
  fill_zero(tensor.view());
  return tensor;
}

}  // namespace

CompressedGradient::CompressedGradient(const Group& group, const std::string& name, const TensorView& gradient,
                                       bool gathers, const DistributedOptimizerOptions& options, int priority)
    : group_(group), name_(name), timeout_(options.timeout), own_(static_cast<std::size_t>(rank(group))) {
  const std::int64_t ranks = size(group), each = gradient.elements() / ranks, larger = gradient.elements() % ranks;
  std::int64_t first = 0, at = 0;
  std::vector<std::int64_t> splits;
  for (std::int64_t i = 0; i < ranks; ++i) {  // as piece_of
    const std::int64_t elements = each + (i < larger ? 1 : 0);
    parts_.push_back({elements, first, at});
    splits.push_back(encoded_bytes(elements));
    first += elements;
    at += splits.back();
  }
  const Part& own = parts_[own_];
  lost_here_ = zeros(DType::float32, gradient.elements());
  lost_piece_ = zeros(DType::float32, own.elements);
  outgoing_ = zeros(DType::uint8, at);
  incoming_ = zeros(DType::uint8, splits[own_] * ranks);
  AlltoallOptions exchange;
  exchange.timeout = options.timeout;
  exchange.priority = priority;
  exchange_ = prepare({group, name}, Call::alltoall_into(outgoing_.view(), incoming_.view(), splits, exchange));
  if (gathers) {
    AllgatherOptions gather;
    gather.timeout = options.timeout;
    gather.priority = priority;
    gather_ = prepare({group, name + " (sum)"},
                      Call::allgather_into(flat(outgoing_.view(), own.at, splits[own_]), outgoing_.view(), gather));
  }
}

Handle CompressedGradient::start(const TensorView& gradient) {
  for (const Part& part : parts_) {
    encode(flat(gradient, part.first, part.elements), lost_here() + part.first, outgoing(part));
  }
  return exchange_.start();
}

void CompressedGradient::sum(const TensorView& piece) {
  const std::int64_t bytes = encoded_bytes(parts_[own_].elements);
  for (std::size_t from = 0; from < parts_.size(); ++from) {
    decode(bytes_of(incoming_) + static_cast<std::int64_t>(from) * bytes, piece,
           from == 0 ? Decoding::replaces : Decoding::adds);
  }
  auto* const lost = static_cast<float*>(lost_piece_.data());
  with_type(piece, [&](auto zero) {
    using T = decltype(zero);
    std::size_t i = 0;
    for (T& element : elements<T>(piece)) element += static_cast<T>(lost[i++]);
  });
  fill_zero(lost_piece_.view());
}

Handle CompressedGradient::start_gather(const TensorView& piece, double divisor) {
  encode(piece, static_cast<float*>(lost_piece_.data()), outgoing(parts_[own_]));
  scale(lost_piece_.view(), divisor);
  return gather_.start();
}

void CompressedGradient::finish(const TensorView& gradient) const {
  const auto* const all = static_cast<const std::byte*>(outgoing_.data());
  for (const Part& part : parts_) {
    decode(all + part.at, flat(gradient, part.first, part.elements), Decoding::replaces);
  }
}

float* CompressedGradient::begin_copy() {
  copied_ = Tensor(DType::float32, Shape{parts_[own_].elements});
  return static_cast<float*>(copied_.data());
}

ConstTensorView CompressedGradient::lost() {
  const Part& own = parts_[own_];
  Tensor sums(DType::float32, lost_here_.shape());
  std::memcpy(sums.data(), lost_here_.data(), static_cast<std::size_t>(sums.bytes()));
  ReduceScatterOptions options;
  options.timeout = timeout_;
  const TensorView all = sums.view();
  kolo::start({group_, name_ + " (lost)"}, Call::reduce_scatter_into(all, flat(all, own.first, own.elements), options))
      .wait();
  const auto* const lost = static_cast<const float*>(lost_piece_.data());
  const auto* const of_ranks = static_cast<const float*>(sums.data()) + own.first;
  float* const copy = begin_copy();
  for (std::int64_t i = 0; i < own.elements; ++i) copy[i] = lost[i] + of_ranks[i];
  return std::as_const(copied_).view();
}

TensorView CompressedGradient::lost_to_load() {
  begin_copy();
  return copied_.view();
}

void CompressedGradient::load_lost() {
  std::memcpy(lost_piece_.data(), copied_.data(), static_cast<std::size_t>(copied_.bytes()));
  fill_zero(lost_here_.view());
}

namespace {

constexpr float kMost = 127;
// Added and taken away, it rounds a float32 of less than 2^22 to the nearest integer, in vector registers, too.
constexpr float kRounder = 12582912.0F;

/// `x` becomes what is lost. Returns the scale.
float encode_block(float* x, std::int64_t count, std::int8_t* to) {
  float largest = 0;
  float test = 0;  // stays zero, or becomes no number
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    test += x[i] * 0.0F;
  }
  const float scale = largest / kMost;
  const float inverse = scale >= std::numeric_limits<float>::min() ? 1 / scale : 0;  // below: nothing but lost
  if (test != 0 || inverse == 0) {
    std::fill_n(to, count, std::int8_t{0});
    if (test == 0) return 0;
    std::fill_n(x, count, 0.0F);
    return std::numeric_limits<float>::quiet_NaN();
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float rounded = (x[i] * inverse + kRounder) - kRounder;
    to[i] = static_cast<std::int8_t>(rounded);
    x[i] -= rounded * scale;
  }
  return scale;
}

}  // namespace

void encode(const TensorView& view, float* lost, std::byte* to) {
  with_type(view, [&](auto zero) {
    const auto from = elements<decltype(zero)>(view);
    const auto count = static_cast<std::int64_t>(from.size());
    std::byte* scales = to;
    auto* const integers = reinterpret_cast<std::int8_t*>(to + (encoded_bytes(count) - count));
    for (std::int64_t begin = 0; begin < count; begin += kBlock, scales += sizeof(float)) {
      const std::int64_t size = std::min(kBlock, count - begin);
      for (std::int64_t i = begin; i < begin + size; ++i) {
        lost[i] += static_cast<float>(from[static_cast<std::size_t>(i)]);
      }
      const float scale = encode_block(lost + begin, size, integers + begin);
      std::memcpy(scales, &scale, sizeof scale);
    }
  });
}

void decode(const std::byte* from, const TensorView& view, Decoding how) {
  with_type(view, [&](auto zero) {
    using T = decltype(zero);
    const auto to = elements<T>(view);
    const auto count = static_cast<std::int64_t>(to.size());
    const auto* const integers = reinterpret_cast<const std::int8_t*>(from + (encoded_bytes(count) - count));
    for (std::int64_t begin = 0; begin < count; begin += kBlock, from += sizeof(float)) {
      float scale = 0;
      std::memcpy(&scale, from, sizeof scale);
      const std::int64_t end = std::min(count, begin + kBlock);
      for (std::int64_t i = begin; i < end; ++i) {
        T& element = to[static_cast<std::size_t>(i)];
        const T decoded = static_cast<T>(scale * static_cast<float>(integers[i]));
        element = how == Decoding::adds ? element + decoded : decoded;
      }
    }
  });
}

}  // namespace kolo::optimizer
