// SPDX-License-Identifier: Apache-2.0
#include "arithmetic.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/check.hpp"
#include "base/half.hpp"

namespace kolo::emulated {
namespace {

const char* name_of(Collective kind) {
  switch (kind) {
  case Collective::all_reduce:
    return "ncclAllReduce";
  case Collective::broadcast:
    return "ncclBroadcast";
  case Collective::reduce:
    return "ncclReduce";
  case Collective::all_gather:
    return "ncclAllGather";
  case Collective::reduce_scatter:
    return "ncclReduceScatter";
  case Collective::all_to_all:
    return "ncclAlltoAll";
  case Collective::send:
    return "ncclSend";
  case Collective::receive:
    return "ncclRecv";
  }
  KOLO_UNREACHABLE();
}

const char* name_of(ncclDataType_t type) {
  constexpr const char* kNames[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",       "uint64",
                                    "float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
  return type >= 0 && type < ncclNumTypes ? kNames[type] : "no type";
}

const char* name_of(ncclRedOp_t op) {
  constexpr const char* kNames[] = {"sum", "prod", "max", "min", "avg"};
  return op >= 0 && op < ncclNumOps ? kNames[op] : "no operator";
}

bool reduces(Collective kind) {
  return kind == Collective::all_reduce || kind == Collective::reduce || kind == Collective::reduce_scatter;
}
bool has_root(Collective kind) { return kind == Collective::broadcast || kind == Collective::reduce; }
bool point_to_point(Collective kind) { return kind == Collective::send || kind == Collective::receive; }

/// 16-bit floats are added as float32 and rounded each time; the rest are what they are.
template <class T>
struct Number {
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};
template <>
struct Number<Float16> {
  static float load(Float16 value) { return base::to_float(value); }
  static Float16 store(float value) { return base::to_float16(value); }
};
template <>
struct Number<BFloat16> {
  static float load(BFloat16 value) { return base::to_float(value); }
  static BFloat16 store(float value) { return base::to_bfloat16(value); }
};

template <class Wide>
inline Wide combine(ncclRedOp_t op, Wide a, Wide b) {
  if constexpr (std::is_integral_v<Wide>) {
    // Wraps around, as devices do; narrow types must not be promoted to int, whose overflow is undefined.
    using Modulo = std::make_unsigned_t<Wide>;
    const auto left = static_cast<std::uint64_t>(static_cast<Modulo>(a));
    const auto right = static_cast<std::uint64_t>(static_cast<Modulo>(b));
    if (op == ncclSum || op == ncclAvg) return static_cast<Wide>(static_cast<Modulo>(left + right));
    if (op == ncclProd) return static_cast<Wide>(static_cast<Modulo>(left * right));
  } else {
    if (op == ncclSum || op == ncclAvg) return a + b;
    if (op == ncclProd) return a * b;
  }
  return op == ncclMax ? std::max(a, b) : std::min(a, b);
}

using Bytes = std::vector<unsigned char>;

template <class T>
void reduce_into(ncclRedOp_t op, const std::vector<Bytes>& inputs, std::size_t first, std::size_t count, void* output) {
  using Wide = decltype(Number<T>::load(T{}));
  const auto ranks = static_cast<Wide>(inputs.size());
  const auto element = [&](T value) {
    if constexpr (!std::is_integral_v<Wide>) {
      if (op == ncclAvg) {
        const Wide share = Number<T>::load(Number<T>::store(Wide{1} / ranks));
        value = Number<T>::store(Number<T>::load(value) * share);
      }
    }
    return Number<T>::load(value);
  };
  // So many at a time: to look at memory element by element is what takes a sanitizer longest.
  constexpr std::size_t kBlock = 1024;
  std::array<T, kBlock> block;
  std::array<Wide, kBlock> sums;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t some = std::min(kBlock, count - begin);
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      std::memcpy(block.data(), inputs[rank].data() + (first + begin) * sizeof(T), some * sizeof(T));
      for (std::size_t i = 0; i < some; ++i) {
        const Wide value = element(block[i]);
        sums[i] = rank == 0 ? value : Number<T>::load(Number<T>::store(combine<Wide>(op, sums[i], value)));
      }
    }
    for (std::size_t i = 0; i < some; ++i) {
      if constexpr (std::is_integral_v<Wide>) {
        if (op == ncclAvg) sums[i] = static_cast<Wide>(sums[i] / ranks);
      }
      block[i] = Number<T>::store(sums[i]);
    }
    std::memcpy(static_cast<unsigned char*>(output) + begin * sizeof(T), block.data(), some * sizeof(T));
  }
}

void reduce_typed(const Signature& signature, const std::vector<Bytes>& inputs, std::size_t first, void* output) {
  const ncclRedOp_t op = signature.op;
  const std::size_t count = signature.count;
  switch (signature.type) {
  case ncclInt8:
    return reduce_into<std::int8_t>(op, inputs, first, count, output);
  case ncclUint8:
    return reduce_into<std::uint8_t>(op, inputs, first, count, output);
  case ncclInt32:
    return reduce_into<std::int32_t>(op, inputs, first, count, output);
  case ncclUint32:
    return reduce_into<std::uint32_t>(op, inputs, first, count, output);
  case ncclInt64:
    return reduce_into<std::int64_t>(op, inputs, first, count, output);
  case ncclUint64:
    return reduce_into<std::uint64_t>(op, inputs, first, count, output);
  case ncclFloat16:
    return reduce_into<Float16>(op, inputs, first, count, output);
  case ncclFloat32:
    return reduce_into<float>(op, inputs, first, count, output);
  case ncclFloat64:
    return reduce_into<double>(op, inputs, first, count, output);
  case ncclBfloat16:
    return reduce_into<BFloat16>(op, inputs, first, count, output);
  default:
    KOLO_UNREACHABLE();
  }
}

}  // namespace

std::string to_string(const Signature& signature) {
  std::string text =
      std::string(name_of(signature.kind)) + " of " + std::to_string(signature.count) + " " + name_of(signature.type);
  if (reduces(signature.kind)) text += std::string(", ") + name_of(signature.op);
  if (has_root(signature.kind)) text += ", root " + std::to_string(signature.root);
  if (signature.kind == Collective::send) text += " to rank " + std::to_string(signature.root);
  if (signature.kind == Collective::receive) text += " from rank " + std::to_string(signature.root);
  return text;
}

bool agree(const Signature& a, const Signature& b) {
  if (point_to_point(a.kind) || point_to_point(b.kind)) {
    return a.kind != b.kind && a.count * element_bytes(a.type) == b.count * element_bytes(b.type);
  }
  return a.kind == b.kind && a.count == b.count && a.type == b.type && (!reduces(a.kind) || a.op == b.op) &&
         (!has_root(a.kind) || a.root == b.root);
}

std::size_t element_bytes(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32:
    return 4;
  case ncclInt64:
  case ncclUint64:
  case ncclFloat64:
    return 8;
  default:
    return 0;
  }
}

bool is_operator(ncclRedOp_t op) { return op >= 0 && op < ncclNumOps; }

std::size_t input_bytes(const Signature& signature, int rank, int size) {
  const std::size_t bytes = signature.count * element_bytes(signature.type);
  switch (signature.kind) {
  case Collective::reduce_scatter:
  case Collective::all_to_all:
    return bytes * static_cast<std::size_t>(size);
  case Collective::broadcast:
    return rank == signature.root ? bytes : 0;
  case Collective::receive:
    return 0;
  default:
    return bytes;
  }
}

std::size_t output_bytes(const Signature& signature, int rank, int size) {
  const std::size_t bytes = signature.count * element_bytes(signature.type);
  switch (signature.kind) {
  case Collective::all_gather:
  case Collective::all_to_all:
    return bytes * static_cast<std::size_t>(size);
  case Collective::reduce:
    return rank == signature.root ? bytes : 0;
  case Collective::send:
    return 0;
  default:
    return bytes;
  }
}

void compute(const Signature& signature, const std::vector<Buffers>& ranks) {
  const std::size_t bytes = signature.count * element_bytes(signature.type);
  if (bytes == 0) return;
  const int size = static_cast<int>(ranks.size());
  std::vector<Bytes> inputs;  // copies: an output may lie where an input does
  for (int rank = 0; rank < size; ++rank) {
    const bool gives = point_to_point(signature.kind) ? rank == 0 : input_bytes(signature, rank, size) > 0;
    const auto* first = static_cast<const unsigned char*>(ranks[static_cast<std::size_t>(rank)].input);
    const std::size_t length = point_to_point(signature.kind) ? bytes : input_bytes(signature, rank, size);
    inputs.push_back(gives ? Bytes(first, first + length) : Bytes());
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    auto* output = static_cast<unsigned char*>(ranks[rank].output);
    switch (signature.kind) {
    case Collective::all_reduce:
      if (rank == 0) {
        reduce_typed(signature, inputs, 0, output);
      } else {
        std::memcpy(output, ranks[0].output, bytes);
      }
      break;
    case Collective::reduce:
      if (static_cast<int>(rank) == signature.root) reduce_typed(signature, inputs, 0, output);
      break;
    case Collective::reduce_scatter:
      reduce_typed(signature, inputs, rank * signature.count, output);
      break;
    case Collective::broadcast:
      std::memcpy(output, inputs[static_cast<std::size_t>(signature.root)].data(), bytes);
      break;
    case Collective::all_gather:
      for (std::size_t from = 0; from < ranks.size(); ++from) {
        std::memcpy(output + from * bytes, inputs[from].data(), bytes);
      }
      break;
    case Collective::all_to_all:
      for (std::size_t from = 0; from < ranks.size(); ++from) {
        std::memcpy(output + from * bytes, inputs[from].data() + rank * bytes, bytes);
      }
      break;
    case Collective::send:
    case Collective::receive:
      if (rank == 1) std::memcpy(output, inputs[0].data(), bytes);
      break;
    }
  }
}

}  // namespace kolo::emulated
