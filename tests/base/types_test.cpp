// SPDX-License-Identifier: Apache-2.0
#include <kolo/types.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

namespace kolo {
namespace {

std::string message_of(const std::vector<std::int64_t>& extents) {
  try {
    const Shape shape(extents);
    return "no error: " + to_string(shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.status().message();
  }
}

TEST(DType, NamesAndSizes) {
  const std::vector<std::pair<std::string, std::size_t>> expected{
      {"bool", 1},   {"int8", 1},   {"int16", 2},   {"int32", 4},    {"int64", 8},   {"uint8", 1},  {"uint16", 2},
      {"uint32", 4}, {"uint64", 8}, {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}};
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(kDTypeCount));
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto& [name, size] = expected[static_cast<std::size_t>(i)];
    EXPECT_EQ(to_string(dtype), name);
    EXPECT_EQ(size_of(dtype), size) << name;
    EXPECT_EQ(parse_dtype(name), dtype);
    EXPECT_EQ(is_floating_point(dtype), name.find("float") != std::string::npos) << name;
  }
  EXPECT_EQ(parse_dtype("float128"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

TEST(DType, NumbersThatAreNoneOfOurs) {
  const auto foreign = static_cast<DType>(200);
  EXPECT_EQ(to_string(foreign), "unknown");
  EXPECT_EQ(size_of(foreign), 0U);
  EXPECT_FALSE(is_floating_point(foreign));
  EXPECT_EQ(to_string(static_cast<ReduceOp>(200)), "unknown");
}

TEST(DType, OfCppTypes) {
  EXPECT_EQ(dtype_of<bool>(), DType::boolean);
  EXPECT_EQ(dtype_of<signed char>(), DType::int8);
  EXPECT_EQ(dtype_of<std::uint16_t>(), DType::uint16);
  EXPECT_EQ(dtype_of<int>(), DType::int32);
  EXPECT_EQ(dtype_of<long>(), DType::int64);
  EXPECT_EQ(dtype_of<long long>(), DType::int64);
  EXPECT_EQ(dtype_of<std::size_t>(), DType::uint64);
  EXPECT_EQ(dtype_of<Float16>(), DType::float16);
  EXPECT_EQ(dtype_of<BFloat16>(), DType::bfloat16);
  EXPECT_EQ(dtype_of<float>(), DType::float32);
  EXPECT_EQ(dtype_of<double>(), DType::float64);
}

TEST(ReduceOp, Names) {
  for (const std::string name : {"sum", "average", "min", "max", "product", "bit_and", "bit_or", "bit_xor"}) {
    const auto op = parse_reduce_op(name);
    ASSERT_TRUE(op.has_value()) << name;
    EXPECT_EQ(to_string(*op), name);
  }
  EXPECT_EQ(parse_reduce_op("mean"), std::nullopt);
}

TEST(Device, Names) {
  EXPECT_EQ(to_string(cpu()), "cpu");
  EXPECT_EQ(to_string(Device{DeviceKind::cuda, 3}), "cuda:3");
  EXPECT_NE((Device{DeviceKind::cuda, 3}), (Device{DeviceKind::cuda, 2}));
}

TEST(Shape, Extents) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0U);
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(to_string(scalar), "[]");

  const Shape image{3, 224, 224};
  EXPECT_EQ(image.rank(), 3U);
  EXPECT_EQ(image[1], 224);
  EXPECT_EQ(image.elements(), 150528);
  EXPECT_EQ(to_string(image), "[3, 224, 224]");
  EXPECT_EQ(image, Shape(std::vector<std::int64_t>{3, 224, 224}));
  EXPECT_NE(image, (Shape{3, 224}));
  EXPECT_NE((Shape{3}), (Shape{3, 0}));
}

TEST(Shape, MoreThanThirtyTwoBitsOfElements) {
  EXPECT_EQ((Shape{std::int64_t{1} << 20, std::int64_t{1} << 20}).elements(), std::int64_t{1} << 40);
  EXPECT_EQ((Shape{(std::int64_t{1} << 60) - 1}).elements(), (std::int64_t{1} << 60) - 1);
}

TEST(Shape, EmptyWhateverTheOtherExtentsAre) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((Shape{kHuge, kHuge, 0}).elements(), 0);
  EXPECT_EQ((Shape{0, kHuge, kHuge}).elements(), 0);
}

TEST(Shape, Refuses) {
  EXPECT_EQ(message_of({2, -1}), "the shape [2, -1] has a negative extent; extents are 0 or more");
  EXPECT_EQ(message_of({1, 1, 1, 1, 1, 1, 1, 1}), "no error: [1, 1, 1, 1, 1, 1, 1, 1]");
  EXPECT_EQ(message_of({1, 1, 1, 1, 1, 1, 1, 1, 1}), "a shape has at most 8 dimensions, and 9 were given");
  EXPECT_EQ(message_of({std::int64_t{1} << 30, std::int64_t{1} << 30}),
            "the shape [1073741824, 1073741824] has more elements than fit into 60 bits");
}

TEST(Shape, OfANullPointer) {
  try {
    (void)Shape(static_cast<const std::int64_t*>(nullptr), 3);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status().message(), "the 3 extents of a shape are a null pointer; give the address of the first");
  }
  EXPECT_EQ(Shape(static_cast<const std::int64_t*>(nullptr), 0), Shape());
}

TEST(View, OfContainersAndPointers) {
  std::vector<float> values(6);
  const TensorView whole = view(values);
  EXPECT_EQ(whole.data(), values.data());
  EXPECT_EQ(whole.dtype(), DType::float32);
  EXPECT_EQ(whole.shape(), Shape{6});
  EXPECT_EQ(whole.bytes(), 24);
  EXPECT_EQ(whole.stream().has_value(), false);

  const TensorView matrix = view(values.data(), Shape{2, 3});
  EXPECT_EQ(matrix.elements(), 6);
  const ConstTensorView read_only = matrix;
  EXPECT_EQ(read_only.data(), values.data());
  EXPECT_EQ(read_only.shape(), (Shape{2, 3}));
  const std::vector<float>& constant = values;
  EXPECT_EQ(const_view(constant).elements(), 6);
}

TEST(View, BracesAreAShape) {
  float values[6] = {};
  EXPECT_EQ(view(values, {}).elements(), 1) << "a scalar";
  EXPECT_EQ(const_view(values, {}).elements(), 1);
  EXPECT_EQ(view(values, {2, 3}).shape(), (Shape{2, 3}));
  EXPECT_EQ(view(values, {6}).shape(), Shape{6});
  EXPECT_EQ(view(values, 6).shape(), Shape{6});
}

TEST(View, OfArraysAndBytes) {
  float values[6] = {};
  const std::byte bytes[3] = {};
  EXPECT_EQ(view(values).data(), values);
  EXPECT_EQ(view(values).shape(), Shape{6});
  EXPECT_EQ(const_view(bytes).dtype(), DType::uint8);
  EXPECT_EQ(const_view(bytes).elements(), 3);
}

template <class T, class = void>
constexpr bool is_viewed = false;
template <class T>
constexpr bool is_viewed<T, std::void_t<decltype(const_view(std::declval<T>()))>> = true;
static_assert(is_viewed<std::vector<float>&> && is_viewed<const std::vector<float>&> && is_viewed<Span<const float>>);
static_assert(!is_viewed<std::vector<float>> && !is_viewed<std::string>, "its memory goes before an operation ends");

template <class T, class = void>
constexpr bool shows_memory = false;
template <class T>
constexpr bool shows_memory<T, std::void_t<decltype(std::declval<T>().view())>> = true;
static_assert(shows_memory<Tensor&> && shows_memory<const Tensor&> && !shows_memory<Tensor>);

static_assert(!std::is_constructible_v<Shape, int, int>, "extents go in braces");
static_assert(std::is_constructible_v<Shape, const std::int64_t*, std::size_t>);

// What is written through a span must not go with a temporary; and elements of a derived class have another size.
struct Base {};
struct Derived : Base {};
static_assert(std::is_convertible_v<std::vector<Base>&, Span<Base>> && std::is_convertible_v<Span<Base>, Span<Base>>);
static_assert(!std::is_convertible_v<std::vector<Base>, Span<Base>>);
static_assert(std::is_convertible_v<std::vector<Base>, Span<const Base>>);
static_assert(!std::is_convertible_v<const std::vector<Base>&, Span<Base>>);
static_assert(!std::is_convertible_v<std::vector<Derived>&, Span<const Base>>);
static_assert(!std::is_convertible_v<Tensor&, Span<const Base>>);

TEST(Span, OfListsArraysAndContainers) {
  const auto sum = [](Span<const int> numbers) {
    int total = 0;
    for (const int number : numbers) total += number;
    return total;
  };
  int array[] = {1, 2, 3};
  std::vector<int> values{4, 5};
  EXPECT_EQ(sum(array), 6);
  EXPECT_EQ(sum(values), 9);
  EXPECT_EQ(sum({7, 8}), 15);
  EXPECT_TRUE(Span<int>().empty());
}

TEST(Tensor, OwnsAlignedMemory) {
  Tensor tensor(DType::int16, Shape{5, 3});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0U);
  EXPECT_EQ(tensor.elements(), 15);
  EXPECT_EQ(tensor.bytes(), 30);
  auto* values = static_cast<std::int16_t*>(tensor.data());
  for (std::int16_t i = 0; i < 15; ++i) values[i] = i;
  const Tensor moved = std::move(tensor);
  EXPECT_EQ(moved.as<std::int16_t>().size(), 15U);
  EXPECT_EQ(moved.as<std::int16_t>()[14], 14);
}

TEST(Tensor, EmptyAndUnset) {
  const Tensor unset;
  EXPECT_EQ(unset.elements(), 0);
  EXPECT_EQ(unset.data(), nullptr);
  const Tensor empty(DType::float64, Shape{0, 4});
  EXPECT_EQ(empty.elements(), 0);
  EXPECT_NE(empty.data(), nullptr);
}

TEST(Tensor, IsReadAsWhatItIs) {
  const Tensor tensor(DType::float32, Shape{1});
  try {
    (void)tensor.as<double>();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "kolo: a tensor of float32 cannot be read as float64; as<T>() converts nothing, so T must be the "
                 "tensor's own type");
  }
}

}  // namespace
}  // namespace kolo
