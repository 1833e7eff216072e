// SPDX-License-Identifier: Apache-2.0
//
// The constants of the ABI, and its functions that are not there (names.inc).
#include "mpiabi/abi.hpp"

// Names that XLA does not use. Every number and word differs from all others.
#define INT(name) MPIABI_EXPORT const int MPIABI_##name = 2000 + __COUNTER__;
#define WORD(name) MPIABI_EXPORT const kolo::mpiabi::Word MPIABI_##name = 0x30000U + __COUNTER__;
#define NO(name)                                                                                                       \
  MPIABI_EXPORT int MPIABI_##name() { return kolo::mpiabi::absent(#name); }
#include "mpiabi/names.inc"

namespace kolo::mpiabi {

#define IS_INT(name, value) MPIABI_EXPORT const int MPIABI_##name = value;
#define IS_WORD(name, value) MPIABI_EXPORT const Word MPIABI_##name = value;

// clang-format off
IS_INT(SUCCESS, kSuccess) IS_INT(ANY_SOURCE, -1) IS_INT(ANY_TAG, -1) IS_INT(PROC_NULL, kNoProcess)
IS_INT(ROOT, -3) IS_INT(KEYVAL_INVALID, -5) IS_INT(UNDEFINED, kUndefinedColor) IS_INT(THREAD_SINGLE, 0)
IS_INT(THREAD_FUNNELED, 1) IS_INT(THREAD_SERIALIZED, 2) IS_INT(THREAD_MULTIPLE, kThreadMultiple)

MPIABI_EXPORT MpiCommunicator* const MPIABI_COMM_WORLD = &world;
IS_WORD(COMM_NULL, 0) IS_WORD(REQUEST_NULL, 0) IS_WORD(BOTTOM, 0) IS_WORD(STATUS_IGNORE, 0)
IS_WORD(STATUSES_IGNORE, 0) IS_WORD(IN_PLACE, kInPlace)

IS_WORD(INT8_T, type(KOLO_INT8)) IS_WORD(INT16_T, type(KOLO_INT16)) IS_WORD(INT32_T, type(KOLO_INT32))
IS_WORD(INT64_T, type(KOLO_INT64)) IS_WORD(UINT8_T, type(KOLO_UINT8)) IS_WORD(UINT16_T, type(KOLO_UINT16))
IS_WORD(UINT32_T, type(KOLO_UINT32)) IS_WORD(UINT64_T, type(KOLO_UINT64)) IS_WORD(BYTE, kByte)
IS_WORD(CHAR, type(KOLO_INT8)) IS_WORD(SIGNED_CHAR, type(KOLO_INT8)) IS_WORD(UNSIGNED_CHAR, type(KOLO_UINT8))
IS_WORD(SHORT, type(KOLO_INT16)) IS_WORD(UNSIGNED_SHORT, type(KOLO_UINT16)) IS_WORD(INT, type(KOLO_INT32))
IS_WORD(UNSIGNED, type(KOLO_UINT32)) IS_WORD(LONG, type(KOLO_INT64)) IS_WORD(UNSIGNED_LONG, type(KOLO_UINT64))
IS_WORD(LONG_LONG, type(KOLO_INT64)) IS_WORD(UNSIGNED_LONG_LONG, type(KOLO_UINT64)) IS_WORD(FLOAT, type(KOLO_FLOAT32))
IS_WORD(DOUBLE, type(KOLO_FLOAT64)) IS_WORD(C_BOOL, type(KOLO_BOOL)) IS_WORD(C_COMPLEX, type(KOLO_FLOAT32, 2))
IS_WORD(C_FLOAT_COMPLEX, type(KOLO_FLOAT32, 2)) IS_WORD(C_DOUBLE_COMPLEX, type(KOLO_FLOAT64, 2))

IS_WORD(SUM, op(KOLO_SUM)) IS_WORD(PROD, op(KOLO_PRODUCT)) IS_WORD(MIN, op(KOLO_MIN)) IS_WORD(MAX, op(KOLO_MAX))
IS_WORD(BAND, op(KOLO_BIT_AND)) IS_WORD(BOR, op(KOLO_BIT_OR)) IS_WORD(BXOR, op(KOLO_BIT_XOR))

// clang-format on
}  // namespace kolo::mpiabi

// The versions of MPItrampoline's ABI, and of its wrappers, that these names are of.
MPIABI_EXPORT const int mpiabi_version_major = 2;
MPIABI_EXPORT const int mpiabi_version_minor = 10;
MPIABI_EXPORT const int mpiabi_version_patch = 0;
MPIABI_EXPORT const int mpiwrapper_version_major = 2;
MPIABI_EXPORT const int mpiwrapper_version_minor = 11;
MPIABI_EXPORT const int mpiwrapper_version_patch = 0;
MPIABI_EXPORT void mpiwrapper_export_fortran_constants_() {}
