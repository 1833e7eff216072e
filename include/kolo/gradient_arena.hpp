// SPDX-License-Identifier: Apache-2.0

/// @file
/// Memory for gradients that is reduced in place, without a copy in or out: on the CPU because the ranks of a node
/// share it, on a GPU because NCCL knows it.
///
///     kolo::GradientArena arena(parameters);                  // every parameter's gradient now lies in the arena
///     kolo::DistributedOptimizer optimizer(sgd, parameters);  // as ever
///
/// or, where the program makes its gradients itself:
///
///     kolo::GradientArena arena(kolo::GradientArena::room_for(kolo::DType::float32, shape) * layers);
///     kolo::TensorView gradient = arena.allocate(kolo::DType::float32, shape);
///     kolo::allreduce("w", gradient);
///
/// Nothing else changes. An in-place `allreduce` (plain, grouped or prepared) recognises memory of an arena by its
/// address, for a whole tensor or a part of one. Its result is bitwise what it would be in other memory. On the CPU the
/// other ranks may have the tensor elsewhere: each rank saves the copies of what it has in an arena. Other collectives
/// use arena memory like any other memory, and so does an all-reduce with ranks that have not made the arena.
/// `Metrics::bytes_in_place` counts what was reduced without a copy.
///
/// On a GPU an arena is memory that NCCL knows (made by `ncclMemAlloc`, and registered). Its tensors are neither packed
/// nor unpacked, and neighbours in a batch are reduced by one call; an average of float32 or float64 costs one more
/// pass, to divide. On a GPU a tensor must lie at the same place of the same arena on every rank, or on every rank
/// outside the arenas that all ranks of the all-reduce have made. Allocate in the same order everywhere; otherwise the
/// all-reduce fails on every rank (mismatch), as with shapes that differ. Booleans, tensors with a prescale, and
/// everything with KOLO_GPU_BACKEND=staged, go through fusion buffers as in other memory.
#ifndef KOLO_GRADIENT_ARENA_HPP
#define KOLO_GRADIENT_ARENA_HPP

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/parameters.hpp>
#include <kolo/types.hpp>

namespace kolo {

/// Move-only. On the CPU, pages that no tensor uses take no memory. The memory has no name in any file system, and
/// vanishes with the last process that maps it. A forked child does not have it, and the child's calls on the arena
/// throw `Error` (unsupported).
///
/// Threads: all members may be called from any thread, but not while the arena is moved or destroyed.
///
/// Life: the memory is valid until the arena is destroyed, also after a fatal error and after the context was shut down
/// or destroyed, so a trainer can still save it. Operations on it must have completed before the arena is destroyed; if
/// an exception destroys the arena earlier, the memory stays until the context ends. A device's memory is given back
/// with the next batch on the device, or when the context ends. After a fatal error no other rank reads or writes it
/// any more (on the CPU the pages become private copies, once, which costs the time of copying them); tensors in flight
/// are undefined, all others keep their values.
class KOLO_API GradientArena {
 public:
  /// How tensors are aligned, in bytes.
  static constexpr std::size_t kAlignment = 64;

  /// An arena of `bytes`, rounded up to pages. Give too much rather than too little: what is not allocated costs
  /// addresses only.
  ///
  /// Collective: every rank of the group calls it, with the same name and size, in any order among its other calls; two
  /// arenas that a group makes at the same time, on different threads, need different names. Throws `Error`: mismatch,
  /// on every rank, when sizes differ; out_of_memory (or transport), on every rank, if a rank cannot get the memory;
  /// and what any collective throws.
  explicit GradientArena(std::size_t bytes, std::string name = "gradients");
  GradientArena(const Group& group, std::size_t bytes, std::string name = "gradients");
  /// The same in the memory of a device: `Device{DeviceKind::cuda, kolo::cuda::bind()}`. All of it is allocated at
  /// once, after batches of GPU tensors that are under way have ended. Throws also unsupported, on every rank, if a
  /// rank cannot use its device.
  GradientArena(std::size_t bytes, Device device, std::string name = "gradients");
  GradientArena(const Group& group, std::size_t bytes, Device device, std::string name = "gradients");
  /// An arena for the gradients of these parameters. Each `Parameter::gradient` becomes a view of the arena, of the
  /// same type, shape and stream, filled with zeros; the backward pass must write there. All gradients must lie on one
  /// device, or all on the CPU; the arena is made there.
  explicit GradientArena(Span<Parameter> parameters, std::string name = "gradients");
  GradientArena(const Group& group, Span<Parameter> parameters, std::string name = "gradients");
  // With a temporary list the new views would be lost.
  GradientArena(std::vector<Parameter>&&, std::string = {}) = delete;                // keep the list in a variable
  GradientArena(const Group&, std::vector<Parameter>&&, std::string = {}) = delete;  // keep the list in a variable
  GradientArena(GradientArena&&) noexcept;
  GradientArena& operator=(GradientArena&&) noexcept;
  ~GradientArena();

  /// Memory for one tensor, zeroed, aligned to `kAlignment`, valid until the arena's end. On the CPU the calling thread
  /// touches it first (which decides its NUMA node). Local: on the CPU ranks need not allocate the same tensors. Throws
  /// `Error` (invalid_argument) if too little room is left. On a device `stream` is the stream on which the tensor will
  /// be written (see kolo/cuda.hpp); without it the view has no stream.
  [[nodiscard]] TensorView allocate(DType dtype, Shape shape);
  [[nodiscard]] TensorView allocate(DType dtype, Shape shape, Stream stream);

  /// The bytes that `allocate` takes for such a tensor.
  [[nodiscard]] static std::size_t room_for(DType dtype, const Shape& shape) noexcept;
  /// The arena's bytes, and how many of them are allocated.
  [[nodiscard]] std::size_t capacity() const;
  [[nodiscard]] std::size_t allocated() const;
  /// Whether this address lies in it.
  [[nodiscard]] bool contains(const void* address) const;
  /// Where its memory is.
  [[nodiscard]] Device device() const;

 private:
  class Impl;
  [[nodiscard]] Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo

#endif  // KOLO_GRADIENT_ARENA_HPP
