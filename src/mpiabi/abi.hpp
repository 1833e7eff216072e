// SPDX-License-Identifier: Apache-2.0
//
// libkolo_mpiabi: the MPI that jaxlib loads (MPITRAMPOLINE_LIB), over Kolo's C functions. It has all names of
// MPItrampoline's ABI: those that XLA's CPU collectives call, and for each other name a function that says that it is
// not there. This header has what its functions share.
//
//   communicator  A group of Kolo's. Calls have no names: as MPI's they are matched by their order.
//   handle        A pointer, as the ABI wants it; of a type or an operation a number (`type`, `op`).
//   errors        A call returns a code. XLA asks for its text at once, on the same thread.
//
// Any thread may call, at any time (MPI_THREAD_MULTIPLE).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <kolo/kolo.h>

#define MPIABI_EXPORT extern "C" __attribute__((visibility("default")))

namespace kolo::mpiabi {

using Word = std::uintptr_t;  ///< a handle of the ABI

/// An error's text, of at most as many bytes as MPI_Error_string may write. It has no destructor, because JAX calls MPI
/// while the process exits.
struct Sentence {
  static constexpr std::size_t kBytes = 1024;
  char text[kBytes] = "";
  [[nodiscard]] bool empty() const noexcept { return text[0] == '\0'; }
  void write(const std::string& sentence) noexcept {
    const std::size_t length = sentence.copy(text, kBytes - 1);
    text[length] = '\0';
  }
};

struct MpiCommunicator {
  kolo_group* group = nullptr;
  std::int32_t rank = 0;
  std::int32_t size = 1;
  /// Why nothing can be done with it. XLA ignores the codes of MPI_Init_thread and MPI_Comm_split, and hears of their
  /// errors by its first operation.
  Sentence broken = {};
};

extern MpiCommunicator world;

// Values that the ABI leaves to this library.
constexpr int kNoProcess = -2;
constexpr int kUndefinedColor = -32766;
constexpr int kThreadMultiple = 3;
constexpr Word kInPlace = ~Word{0};

/// Null for MPI_COMM_NULL.
inline MpiCommunicator* communicator_of(Word handle) noexcept {
  return reinterpret_cast<MpiCommunicator*>(handle);  // NOLINT(performance-no-int-to-ptr)
}

// ---------------------------------------------------------------- types and operations

/// Elements of this type, one after another in `parts`: a complex number has two.
constexpr Word type(int dtype, int parts = 1) noexcept {
  return 0x10000U | static_cast<unsigned>(dtype) | static_cast<unsigned>(parts) << 8U;
}
constexpr int dtype_of(Word type) noexcept { return static_cast<int>(type & 0xffU); }
constexpr int parts_of(Word type) noexcept { return static_cast<int>(type >> 8U & 0xffU); }
inline constexpr Word kByte = type(KOLO_UINT8);
constexpr bool is_complex(Word type) noexcept { return parts_of(type) == 2; }
inline bool is_type(Word type) noexcept { return type >> 16U == 1 && kolo_dtype_size(dtype_of(type)) != 0; }

constexpr Word op(int reduction) noexcept { return 0x20000U | static_cast<unsigned>(reduction); }
constexpr bool is_op(Word op) noexcept { return op >> 16U == 2; }
constexpr int reduction_of(Word op) noexcept { return static_cast<int>(op & 0xffU); }

kolo_tensor tensor_of(const void* data, std::int64_t count, Word type) noexcept;

// ---------------------------------------------------------------- errors

constexpr int kSuccess = 0;
constexpr int kFirstError = 1000;  ///< plus the kolo_status

/// Keeps the text for this thread's MPI_Error_string. Returns the code.
int fail(kolo_status status, const std::string& text);
/// The code of MPI_`call` for the status with which Kolo's function ended; keeps the error's text.
int outcome(kolo_status status, const char* call);
/// The text of this thread's last failure.
const Sentence& last_failure() noexcept;
/// The code of a function that this library lacks; an error names it, also on standard error.
int absent(const char* name);
/// Why an operation cannot be made there; kSuccess: it can.
int check(const MpiCommunicator* communicator, std::int64_t count, Word type, const char* call);

}  // namespace kolo::mpiabi
