// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's headers, and everything of theirs that has changed its name or its place between versions: 1.13 (Debian's)
// to 2.15. No other file asks for the version.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include <torch/version.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif

namespace kolo::c10d {

#if TORCH_VERSION_MAJOR >= 2
/// What a process group is made of: one backend for each kind of device.
using Backend = ::c10d::Backend;
/// An error of the communication: `torch.distributed.DistBackendError`.
using CommunicationError = c10::DistBackendError;
inline constexpr auto kSparseAllreduceType = ::c10d::OpType::_ALLREDUCE_SPARSE;
/// The factor of PREMUL_SUM, if it is a tensor.
inline at::Tensor factor_of(const ::c10d::NCCLPreMulSumSupplement& supplement) { return supplement.tensor_factor; }
/// To be called before a store is looked into.
inline void prepare(::c10d::Store&) {}
/// Of functions that PyTorch 1.13 does not have.
#define KOLO_OVERRIDE_SINCE_2 override
#else
using Backend = ::c10d::ProcessGroup;
using CommunicationError = c10::Error;
inline constexpr auto kSparseAllreduceType = ::c10d::OpType::ALLREDUCE;
/// One for each of several tensors; a call takes one.
inline at::Tensor factor_of(const ::c10d::NCCLPreMulSumSupplement& supplement) {
  return supplement.tensor_factors.empty() ? at::Tensor() : supplement.tensor_factors.front();
}
/// A FileStore has no file before something is put into it, and who looks into it waits for that.
inline void prepare(::c10d::Store& store) { store.add("kolo", 1); }
#define KOLO_OVERRIDE_SINCE_2
#endif

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 7)
/// What a new process group is told; `split` exists.
#define KOLO_C10D_HAS_SPLIT
#endif

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11)
/// A stream of any kind of device says what its device calls it; a backend knows the device that its group is bound to.
#define KOLO_C10D_HAS_NATIVE_STREAMS
#ifndef KOLO_C10D_OTHER_GLOO
/// Kolo can be given where a program asks for Gloo.
#define KOLO_C10D_CAN_STAND_IN
#endif
#endif

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15)
/// A gather into one tensor, and a Work that says its timeout. (Some versions before have one of them.)
#define KOLO_C10D_HAS_GATHER_SINGLE
#endif

/// The types that PyTorch has had since 2.3, with those of Kolo's that they are.
struct UnsignedType {
  at::ScalarType type;
  std::size_t bytes;
};
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
inline constexpr std::array<UnsignedType, 3> kUnsignedTypes{
    {{at::ScalarType::UInt16, 2}, {at::ScalarType::UInt32, 4}, {at::ScalarType::UInt64, 8}}};
#else
inline constexpr std::array<UnsignedType, 0> kUnsignedTypes{};
#endif

}  // namespace kolo::c10d
