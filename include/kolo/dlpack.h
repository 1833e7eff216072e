/* SPDX-License-Identifier: Apache-2.0 */

/// @file
/// Kolo's tensors from DLPack's, and back. DLPack's header is not needed. If it is included before this one, its own
/// `DLTensor` is what these functions take; else a struct of the same layout. The struct has not changed since DLPack
/// 0.2.
///
///     kolo_tensor tensor;
///     if (kolo_tensor_from_dlpack(&managed->dl_tensor, &tensor) == KOLO_OK) kolo_allreduce(group, NULL, &tensor, ...);
#ifndef KOLO_DLPACK_H
#define KOLO_DLPACK_H

#include <stdint.h>

#include <kolo/kolo.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef DLPACK_DLPACK_H_
typedef DLTensor kolo_dl_tensor;
#else
/// DLPack's DLTensor.
typedef struct kolo_dl_tensor {
  void* data;
  struct {
    int32_t device_type;  ///< 1: CPU, 2: CUDA, 3: the host's pinned memory
    int32_t device_id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code;  ///< 0: int, 1: uint, 2: float, 4: bfloat, 6: bool
    uint8_t bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides;  ///< in elements; NULL: contiguous
  uint64_t byte_offset;
} kolo_dl_tensor;
#endif

/// Describes the memory of a DLPack tensor; nothing is copied. The memory stays its owner's. A tensor of CUDA gets the
/// stream NULL, the legacy default one: set another where DLPack's exchange says so. Errors: `KOLO_INVALID_ARGUMENT`
/// for strides that are not those of contiguous memory (make a contiguous copy), more than 8 dimensions, or vectors as
/// elements (`lanes`); `KOLO_UNSUPPORTED` for other element types and devices. From any thread.
KOLO_API kolo_status kolo_tensor_from_dlpack(const kolo_dl_tensor* from, kolo_tensor* to);
/// The reverse. `shape` and `strides` point to arrays of `KOLO_MAX_DIMS` numbers that must be valid as long as `to` is
/// used; both are written. From any thread.
KOLO_API kolo_status kolo_tensor_to_dlpack(const kolo_tensor* from, int64_t* shape, int64_t* strides,
                                           kolo_dl_tensor* to);

#ifdef __cplusplus
}
#endif

#endif
