// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>

namespace kolo_bench {
namespace {

using kolo::DType;
using kolo::ReduceOp;

/// Calls `use` with a value of the C++ type that holds this dtype.
template <class Use>
auto with_type(DType dtype, Use use) {
  switch (dtype) {
  case DType::boolean:
    return use(bool{});
  case DType::int8:
    return use(std::int8_t{});
  case DType::int16:
    return use(std::int16_t{});
  case DType::int32:
    return use(std::int32_t{});
  case DType::int64:
    return use(std::int64_t{});
  case DType::uint8:
    return use(std::uint8_t{});
  case DType::uint16:
    return use(std::uint16_t{});
  case DType::uint32:
    return use(std::uint32_t{});
  case DType::uint64:
    return use(std::uint64_t{});
  case DType::float16:
    return use(kolo::Float16{});
  case DType::bfloat16:
    return use(kolo::BFloat16{});
  case DType::float32:
    return use(float{});
  case DType::float64:
    return use(double{});
  }
  throw std::logic_error("no such dtype");
}

/// The bits of a float without the lowest `dropped` ones of its mantissa, rounded to nearest even.
std::uint32_t rounded_bits(float value, int dropped) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t half = (std::uint32_t{1} << (dropped - 1)) - 1;
  return (bits + half + ((bits >> dropped) & 1)) >> dropped;
}

/// Enough for our data: zero and the normal numbers of the type, not negative.
std::uint16_t to_bfloat16(float value) { return static_cast<std::uint16_t>(rounded_bits(value, 16)); }
std::uint16_t to_float16(float value) {
  constexpr std::uint32_t kBiasDifference = (127 - 15) << 10;
  return value == 0 ? std::uint16_t{0} : static_cast<std::uint16_t>(rounded_bits(value, 13) - kBiasDifference);
}

void store(double value, bool& out) { out = (static_cast<int>(value) & 1) != 0; }
void store(double value, kolo::Float16& out) { out.bits = to_float16(static_cast<float>(value)); }
void store(double value, kolo::BFloat16& out) { out.bits = to_bfloat16(static_cast<float>(value)); }
template <class T>
void store(double value, T& out) {
  out = static_cast<T>(value);
}

std::int64_t period(ReduceOp op, int ranks) { return op == ReduceOp::product ? 8 * std::int64_t{ranks} : 8; }

double input(ReduceOp op, std::int64_t i, int rank, int ranks) {
  if (op == ReduceOp::product) return i % ranks == rank ? 2 : 1;
  return static_cast<double>((3 * i + 5 * rank) % 8);
}

double reduced(ReduceOp op, std::int64_t i, int ranks, bool boolean) {
  double result = input(op, i, 0, ranks);
  const auto odd = [](double x) { return static_cast<double>(static_cast<int>(x) & 1); };
  if (boolean) result = odd(result);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = boolean ? odd(input(op, i, rank, ranks)) : input(op, i, rank, ranks);
    const auto bits = static_cast<std::int64_t>(result), next_bits = static_cast<std::int64_t>(next);
    if (boolean && op != ReduceOp::bit_xor) {
      const bool is_or = op == ReduceOp::sum || op == ReduceOp::max || op == ReduceOp::bit_or;
      result = is_or ? std::max(result, next) : std::min(result, next);
    } else {
      switch (op) {
      case ReduceOp::sum:
      case ReduceOp::average:
        result += next;
        break;
      case ReduceOp::min:
        result = std::min(result, next);
        break;
      case ReduceOp::max:
        result = std::max(result, next);
        break;
      case ReduceOp::product:
        result *= next;
        break;
      case ReduceOp::bit_and:
        result = static_cast<double>(bits & next_bits);
        break;
      case ReduceOp::bit_or:
        result = static_cast<double>(bits | next_bits);
        break;
      case ReduceOp::bit_xor:
        result = static_cast<double>(bits ^ next_bits);
        break;
      }
    }
  }
  return result;
}

/// By how many units in the last place a result may differ. A device's average of 16-bit floats is a sum of inputs that
/// were multiplied by 1/n: it is rounded once for each input and once for each addition, which is less than n units of
/// the result, or twice as many where the result lies at a power of two. All else is rounded once.
int tolerated_units(const Buffer& buffer, ReduceOp op, int ranks) {
  const bool power_of_two = (ranks & (ranks - 1)) == 0;
  const bool rounds = buffer.device() != nullptr && op == ReduceOp::average && !power_of_two &&
                      (buffer.dtype() == DType::float16 || buffer.dtype() == DType::bfloat16);
  return rounds ? 2 * ranks : 0;
}

/// The distance of two floats of 16 bits that are not negative.
int units_between(const std::byte* a, const std::byte* b) {
  std::uint16_t bits[2];
  std::memcpy(&bits[0], a, sizeof bits[0]);
  std::memcpy(&bits[1], b, sizeof bits[1]);
  return std::abs(int{bits[0]} - int{bits[1]});
}

/// Writes one period of elements, then that period again and again.
template <class Value>
void write_periodic(Buffer& buffer, std::int64_t length, Value value) {
  with_type(buffer.dtype(), [&](auto zero) {
    auto* out = static_cast<decltype(zero)*>(buffer.data());
    for (std::int64_t i = 0; i < std::min(length, buffer.elements()); ++i) store(value(i), out[i]);
    for (std::int64_t i = length; i < buffer.elements(); ++i) out[i] = out[i - length];
  });
}

/// Elements that differ from the period, by more than `units` in the last place.
template <class Value>
std::int64_t count_wrong(Buffer& buffer, std::int64_t first, std::int64_t count, std::int64_t length, Value value,
                         int units = 0) {
  Buffer wanted(buffer.dtype(), length);
  write_periodic(wanted, length, value);
  const std::size_t size = kolo::size_of(buffer.dtype());
  const auto* got = static_cast<const std::byte*>(buffer.data()) + static_cast<std::size_t>(first) * size;
  const auto* want = static_cast<const std::byte*>(wanted.data());
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i) * size;
    const std::byte* const exact = want + static_cast<std::size_t>(i % length) * size;
    if (std::memcmp(got + at, exact, size) != 0 && (units == 0 || units_between(got + at, exact) > units)) ++wrong;
  }
  return wrong;
}

/// The elements where the host reaches them: the buffer itself, or a copy of what a device holds.
class OnHost {
 public:
  enum class Access { read, write, both };
  OnHost(Buffer& buffer, Access access) : buffer_(buffer), writes_(access != Access::read) {
    if (buffer.device() == nullptr) return;
    copy_.emplace(buffer.dtype(), buffer.elements());
    if (access != Access::write) buffer.device()->read(copy_->data(), buffer.data(), bytes());
  }
  ~OnHost() {
    if (copy_ && writes_) buffer_.device()->write(buffer_.data(), copy_->data(), bytes());
  }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;
  [[nodiscard]] Buffer& elements() { return copy_ ? *copy_ : buffer_; }

 private:
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(buffer_.bytes()); }

  Buffer& buffer_;
  const bool writes_;
  std::optional<Buffer> copy_;
};

}  // namespace

Buffer::Buffer(DType dtype, std::int64_t elements, std::shared_ptr<Device> device)
    : own_(device ? kolo::Tensor() : kolo::Tensor(dtype, kolo::Shape{elements})), device_(std::move(device)),
      memory_(device_ ? device_->allocate(static_cast<std::size_t>(elements) * kolo::size_of(dtype)) : nullptr),
      view_(device_ ? device_->view(memory_.get(), dtype, kolo::Shape{elements})
                    : kolo::TensorView(own_.data(), dtype, kolo::Shape{elements})) {}

kolo::TensorView Buffer::part(std::int64_t at, std::int64_t count) const {
  auto* const first = static_cast<std::byte*>(data()) + static_cast<std::size_t>(at) * kolo::size_of(dtype());
  return {first, dtype(), kolo::Shape{count}, view_.device(), view_.stream()};
}

void Buffer::poison() {
  OnHost host(*this, OnHost::Access::write);
  std::memset(host.elements().data(), 0xA5, static_cast<std::size_t>(bytes()));
}

void fill_input(Buffer& buffer, ReduceOp op, int rank, int ranks, std::int64_t first) {
  OnHost host(buffer, OnHost::Access::write);
  write_periodic(host.elements(), period(op, ranks), [=](std::int64_t i) { return input(op, first + i, rank, ranks); });
}

std::int64_t count_wrong_reduction(Buffer& buffer, ReduceOp op, int ranks) {
  return count_wrong_reduction(buffer, op, ranks, 0, buffer.elements(), 0);
}

std::int64_t count_wrong_reduction(Buffer& buffer, ReduceOp op, int ranks, std::int64_t at, std::int64_t count,
                                   std::int64_t first) {
  const bool boolean = buffer.dtype() == DType::boolean;
  OnHost host(buffer, OnHost::Access::read);
  const auto value = [=](std::int64_t i) {
    const double result = reduced(op, first + i, ranks, boolean);
    return op == ReduceOp::average ? result / ranks : result;
  };
  return count_wrong(host.elements(), at, count, period(op, ranks), value, tolerated_units(buffer, op, ranks));
}

void fill_part(Buffer& buffer, int rank, std::int64_t first, std::int64_t count) {
  Buffer part(buffer.dtype(), count);
  fill_input(part, ReduceOp::sum, rank, 1);
  const auto offset = static_cast<std::size_t>(first) * kolo::size_of(buffer.dtype());
  OnHost host(buffer, OnHost::Access::both);
  std::memcpy(static_cast<std::byte*>(host.elements().data()) + offset, part.data(),
              static_cast<std::size_t>(part.bytes()));
}

std::int64_t count_wrong_copy(Buffer& buffer, int rank, std::int64_t first, std::int64_t count) {
  OnHost host(buffer, OnHost::Access::read);
  return count_wrong(host.elements(), first, count, period(ReduceOp::sum, 1),
                     [=](std::int64_t i) { return input(ReduceOp::sum, i, rank, 1); });
}

}  // namespace kolo_bench
