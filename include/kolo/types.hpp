// SPDX-License-Identifier: Apache-2.0

/// @file
/// The types of arguments: element types, reduction operations, devices, shapes, and views of memory. All are plain
/// values, cheap to copy and safe to use from any thread. Only `Tensor` owns memory.
#ifndef KOLO_TYPES_HPP
#define KOLO_TYPES_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <kolo/detail/names.hpp>
#include <kolo/export.hpp>

namespace kolo {

/// Element types. The numbers travel between ranks and never change.
enum class DType : std::uint8_t {
  boolean = 0,  ///< one byte; 0 is false, anything else true; results are 0 or 1
  int8 = 1,
  int16 = 2,
  int32 = 3,
  int64 = 4,
  uint8 = 5,
  uint16 = 6,
  uint32 = 7,
  uint64 = 8,
  float16 = 9,    ///< IEEE 754 binary16; sums are computed in float32 and rounded once, to nearest even; by NCCL: see
                  ///< kolo/cuda.hpp
  bfloat16 = 10,  ///< the upper half of a float32; summed and rounded like float16
  float32 = 11,
  float64 = 12,
};
/// How many element types there are.
inline constexpr int kDTypeCount = 13;

namespace detail {
inline constexpr std::uint8_t kElementBytes[kDTypeCount] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8};
static_assert(kElementBytes[kDTypeCount - 1] != 0, "one number a type");
inline constexpr std::array<std::string_view, kDTypeCount> kDTypeNames{
    "bool",   "int8",   "int16",   "int32",    "int64",   "uint8",  "uint16",
    "uint32", "uint64", "float16", "bfloat16", "float32", "float64"};
static_assert(!kDTypeNames.back().empty(), "one name a type");
}  // namespace detail
/// Bytes of one element; 0 for a number that is none of these types.
constexpr std::size_t size_of(DType dtype) noexcept {
  const auto number = static_cast<std::uint8_t>(dtype);
  return number < kDTypeCount ? detail::kElementBytes[number] : 0;
}
/// The spelling used in messages and flags: "float32", "bool", ...
constexpr std::string_view to_string(DType dtype) noexcept { return detail::name_of(detail::kDTypeNames, dtype); }
/// The inverse of `to_string`; empty when the name is unknown.
constexpr std::optional<DType> parse_dtype(std::string_view name) noexcept {
  return detail::value_of<DType>(detail::kDTypeNames, name);
}
/// True for float16, bfloat16, float32 and float64.
constexpr bool is_floating_point(DType dtype) noexcept { return dtype >= DType::float16 && dtype <= DType::float64; }

/// The bits of an IEEE binary16 number. Arithmetic is the caller's; Kolo only moves and reduces them.
struct Float16 {
  std::uint16_t bits = 0;
};
/// The bits of a bfloat16 number.
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// The table behind `dtype_of`, for types that are no integers.
template <class T>
struct DTypeOf {};
template <>
struct DTypeOf<bool> : std::integral_constant<DType, DType::boolean> {};
template <>
struct DTypeOf<std::byte> : std::integral_constant<DType, DType::uint8> {};
template <>
struct DTypeOf<Float16> : std::integral_constant<DType, DType::float16> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::bfloat16> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::float32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::float64> {};

namespace detail {
template <class T>
constexpr DType integer_dtype() {
  constexpr bool is_signed = std::is_signed_v<T>;
  if constexpr (sizeof(T) == 1) {
    return is_signed ? DType::int8 : DType::uint8;
  } else if constexpr (sizeof(T) == 2) {
    return is_signed ? DType::int16 : DType::uint16;
  } else if constexpr (sizeof(T) == 4) {
    return is_signed ? DType::int32 : DType::uint32;
  } else {
    static_assert(sizeof(T) == 8, "no DType for this integer");
    return is_signed ? DType::int64 : DType::uint64;
  }
}
}  // namespace detail

/// The DType of a C++ type, integers of any name included; does not compile for types that have none.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return detail::integer_dtype<T>();
  } else {
    return DTypeOf<T>::value;
  }
}

/// The operation of a reduction. For booleans these are the logical operations: `sum`, `max` and `bit_or` are "or";
/// `product`, `min` and `bit_and` are "and"; `bit_xor` is "exclusive or". Any byte but 0 is true; results are 0 or 1.
enum class ReduceOp : std::uint8_t {
  sum = 0,
  average = 1,  ///< the sum divided by the number of ranks; floating-point types only
  min = 2,
  max = 3,
  product = 4,
  bit_and = 5,  ///< the last three work on each bit; integers and booleans only
  bit_or = 6,
  bit_xor = 7,
};

namespace detail {
inline constexpr std::array<std::string_view, 8> kReduceOpNames{"sum",     "average", "min",    "max",
                                                                "product", "bit_and", "bit_or", "bit_xor"};
}  // namespace detail
/// "sum", "average", ...
constexpr std::string_view to_string(ReduceOp op) noexcept { return detail::name_of(detail::kReduceOpNames, op); }
/// The inverse of `to_string`; empty when the name is unknown.
constexpr std::optional<ReduceOp> parse_reduce_op(std::string_view name) noexcept {
  return detail::value_of<ReduceOp>(detail::kReduceOpNames, name);
}

/// Where memory lies.
enum class DeviceKind : std::uint8_t { cpu = 0, cuda = 1 };

/// One place of memory.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;  ///< the CUDA device ordinal; 0 for the CPU
  friend bool operator==(const Device& a, const Device& b) noexcept { return a.kind == b.kind && a.index == b.index; }
  friend bool operator!=(const Device& a, const Device& b) noexcept { return !(a == b); }
};
/// The CPU's memory.
inline Device cpu() noexcept { return {}; }
/// "cpu", "cuda:1".
inline std::string to_string(Device device) {
  return device.kind == DeviceKind::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

/// A device's queue, as an opaque pointer (`cudaStream_t`). On CUDA `nullptr` is the legacy default stream,
/// never "no stream": the absence of a stream is an empty `std::optional<Stream>`.
struct Stream {
  void* native = nullptr;
};

/// The extents of a tensor, slowest dimension first; up to 8 dimensions; no dimension is a scalar of one element.
class KOLO_API Shape {
 public:
  static constexpr std::size_t kMaxRank = 8;

  Shape() noexcept = default;
  /// Throws `Error` (invalid_argument) when there are more than 8 dimensions, one is negative, or the number of
  /// elements does not fit into 60 bits (so that the number of bytes fits into 63, whatever the type).
  Shape(std::initializer_list<std::int64_t> extents);
  Shape(const std::int64_t* extents, std::size_t rank);
  // Compilers print the comment behind `= delete` with their message.
  Shape(int, int) = delete;  // Shape(0, 3) would take the 0 for a null pointer: give braces, Shape{0, 3}
  explicit Shape(const std::vector<std::int64_t>& extents) : Shape(extents.data(), extents.size()) {}

  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::int64_t operator[](std::size_t i) const noexcept { return extents_[i]; }
  [[nodiscard]] const std::int64_t* begin() const noexcept { return extents_.data(); }
  [[nodiscard]] const std::int64_t* end() const noexcept { return extents_.data() + rank_; }
  /// The product of the extents; 1 for a scalar.
  [[nodiscard]] std::int64_t elements() const noexcept {
    std::uint64_t product = 1;  // unsigned: if one extent is zero, the product of the others may overflow
    for (const std::int64_t extent : *this) product *= static_cast<std::uint64_t>(extent);
    return static_cast<std::int64_t>(product);
  }

  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    if (a.rank_ != b.rank_) return false;
    for (std::size_t i = 0; i < a.rank_; ++i) {
      if (a.extents_[i] != b.extents_[i]) return false;
    }
    return true;
  }
  friend bool operator!=(const Shape& a, const Shape& b) noexcept { return !(a == b); }

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  std::uint8_t rank_ = 0;
};
/// "[3, 224, 224]"; "[]" for a scalar.
KOLO_API std::string to_string(const Shape& shape);

namespace detail {
template <class Container>
using DataOf = decltype(std::declval<Container>().data());

/// Whether a temporary of this type owns its elements, which are then destroyed with it.
template <class Container, class = void>
inline constexpr bool owns_elements = false;
template <class Container>
inline constexpr bool owns_elements<Container, std::void_t<DataOf<Container&>>> =
    !std::is_lvalue_reference_v<Container> && !std::is_same_v<DataOf<Container&>, DataOf<const Container&>>;

/// Whether a span of `T` can be a view of the container: elements of that type, not of one derived from it.
template <class Container, class T, class = void>
inline constexpr bool spans = false;
template <class Container, class T>
inline constexpr bool spans<Container, T, std::void_t<std::remove_pointer_t<DataOf<Container&>> (*)[]>> =
    std::is_convertible_v<std::remove_pointer_t<DataOf<Container&>> (*)[], T (*)[]> &&
    (std::is_const_v<T> || !owns_elements<Container>);
}  // namespace detail

/// A view of a contiguous sequence; it owns nothing (C++17 has no std::span).
template <class T>
class Span {
 public:
  constexpr Span() noexcept = default;
  constexpr Span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <std::size_t N>
  constexpr Span(T (&array)[N]) noexcept : data_(array), size_(N) {}
  /// Elements of a temporary vector can be read, but not written: the vector would be destroyed with what was written.
  template <class Container, class = std::enable_if_t<detail::spans<Container, T>>>
  constexpr Span(Container&& container) noexcept : data_(container.data()), size_(container.size()) {}
  /// A braced list as an argument; it lives until the end of the full expression.
  template <class U = T, class = std::enable_if_t<std::is_const_v<U>>>
  constexpr Span(std::initializer_list<std::remove_const_t<T>> list) noexcept : size_(list.size()) {
    data_ = list.begin();  // not in the initialiser list, where g++ warns of the list's lifetime; the short lifetime is
                           // intended
  }

  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T& operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] constexpr T* begin() const noexcept { return data_; }
  [[nodiscard]] constexpr T* end() const noexcept { return data_ + size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Memory to read: a pointer, an element type, a shape, and where it lies. Never owns; the memory must stay valid and
/// unchanged until the operation that was given the view has completed. Elements are contiguous, in row-major order;
/// any alignment is accepted. A null pointer is accepted only with zero elements (an error at the call otherwise).
class KOLO_API ConstTensorView {
 public:
  ConstTensorView(const void* data, DType dtype, Shape shape, Device device = cpu(), std::optional<Stream> stream = {})
      : data_(data), shape_(shape), stream_(stream), device_(device), dtype_(dtype) {}

  [[nodiscard]] const void* data() const noexcept { return data_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] std::optional<Stream> stream() const noexcept { return stream_; }
  [[nodiscard]] std::int64_t elements() const noexcept { return shape_.elements(); }
  [[nodiscard]] std::int64_t bytes() const noexcept {
    return shape_.elements() * static_cast<std::int64_t>(size_of(dtype_));
  }

 private:
  const void* data_;
  Shape shape_;
  std::optional<Stream> stream_;
  Device device_;
  DType dtype_;
};

/// Memory to read and write; otherwise a `ConstTensorView`.
class KOLO_API TensorView : public ConstTensorView {
 public:
  TensorView(void* data, DType dtype, Shape shape, Device device = cpu(), std::optional<Stream> stream = {})
      : ConstTensorView(data, dtype, shape, device, stream) {}

  [[nodiscard]] void* data() const noexcept { return const_cast<void*>(ConstTensorView::data()); }
};

/// A view of `count` elements at `data`, one-dimensional unless a shape is given; `{}` is the shape of one element.
template <class T>
TensorView view(T* data, std::size_t count) {
  static_assert(!std::is_const_v<T>, "use const_view for memory that is only read");
  return {data, dtype_of<T>(), Shape{static_cast<std::int64_t>(count)}};
}
template <class T>
TensorView view(T* data, Shape shape) {
  static_assert(!std::is_const_v<T>, "use const_view for memory that is only read");
  return {data, dtype_of<T>(), shape};
}
template <class T>
TensorView view(T* data, std::initializer_list<std::int64_t> extents) {
  return view(data, Shape(extents));
}
/// A view of an array's elements.
template <class T, std::size_t N>
TensorView view(T (&array)[N]) {
  return view(array, N);
}
/// A view of a vector's (or std::array's) elements; the container must not be resized while the view is in use.
template <class Container, class T = std::remove_pointer_t<decltype(std::declval<Container&>().data())>>
TensorView view(Container& container) {
  return view(container.data(), container.size());
}
/// The same for memory that is only read.
template <class T>
ConstTensorView const_view(const T* data, std::size_t count) {
  return {data, dtype_of<T>(), Shape{static_cast<std::int64_t>(count)}};
}
template <class T>
ConstTensorView const_view(const T* data, Shape shape) {
  return {data, dtype_of<T>(), shape};
}
template <class T>
ConstTensorView const_view(const T* data, std::initializer_list<std::int64_t> extents) {
  return const_view(data, Shape(extents));
}
template <class T, std::size_t N>
ConstTensorView const_view(const T (&array)[N]) {
  return const_view(array, N);
}
template <class Container, class T = std::remove_pointer_t<decltype(std::declval<const Container&>().data())>>
ConstTensorView const_view(const Container& container) {
  return const_view(container.data(), container.size());
}
template <class Container, class = std::enable_if_t<detail::owns_elements<Container>>>
ConstTensorView const_view(Container&&) = delete;  // an asynchronous call outlives it: keep it in a variable

/// How many rows (of the first dimension) go to each rank.
using Splits = Span<const std::int64_t>;

/// One member of a grouped call.
struct NamedView {
  std::string name;
  TensorView view;
};

/// A result that owns its memory (on the CPU, 64-byte aligned). Move-only.
class KOLO_RESULT Tensor {
 public:
  Tensor() noexcept = default;
  /// Uninitialised memory of the given type and shape. Throws `std::bad_alloc`.
  Tensor(DType dtype, Shape shape);

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] std::int64_t elements() const noexcept { return memory_ ? shape_.elements() : 0; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return elements() * static_cast<std::int64_t>(size_of(dtype_)); }
  [[nodiscard]] void* data() noexcept { return memory_.get(); }
  [[nodiscard]] const void* data() const noexcept { return memory_.get(); }
  /// The elements as `T`. Throws `Error` (invalid_argument) when `T` is not the tensor's type.
  template <class T>
  [[nodiscard]] Span<const T> as() const {
    check_dtype(dtype_of<T>());
    return {static_cast<const T*>(data()), static_cast<std::size_t>(elements())};
  }
  /// Its memory, for calls that take views.
  [[nodiscard]] TensorView view() & { return {data(), dtype_, shape_}; }
  [[nodiscard]] ConstTensorView view() const& { return {data(), dtype_, shape_}; }
  void view() && = delete;  // the view would outlive the tensor's memory: keep the tensor in a variable
  void view() const&& = delete;

 private:
  struct KOLO_API Release {
    void operator()(std::byte* memory) const noexcept;
  };
  void check_dtype(DType wanted) const;

  std::unique_ptr<std::byte[], Release> memory_;
  Shape shape_;
  DType dtype_ = DType::float32;
};

/// The result of any call that owns it (call.hpp).
struct [[nodiscard]] CallResult {
  Tensor output;
  std::vector<std::int64_t> received_splits;  ///< only for an alltoall: how many rows came from each rank
};
/// The result of an alltoall.
struct KOLO_RESULT AlltoallResult {
  Tensor output;                              ///< the received rows, in the order of ranks
  std::vector<std::int64_t> received_splits;  ///< how many came from each rank
};

}  // namespace kolo

#endif  // KOLO_TYPES_HPP
