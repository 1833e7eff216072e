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
/// Nothing else changes. An `allreduce` (or grouped, or prepared one) recognises memory of an arena by its address, in
/// place and for the whole tensor or any part of it, and gives the same results, to the bit, as it would elsewhere. It
/// does not matter whether the other ranks have that tensor in an arena too, or at the same place: each rank saves the
/// copies of what it has there. Other collectives take it as any memory, and so does an all-reduce with ranks that have
/// not made the arena, where a group has. `Metrics::bytes_in_place` tells how much went without a copy.
///
/// On a GPU an arena is memory that NCCL knows (made by `ncclMemAlloc`, and registered). What lies there is neither
/// packed nor unpacked, and neighbours in a batch are reduced by one call; an average of float32 or float64 costs one
/// pass over them, to divide. There a tensor must lie at the same place of the same arena on every rank, or on no rank
/// in any that all ranks of the all-reduce have made: allocate alike everywhere; otherwise its all-reduce fails on
/// every rank (mismatch), as with shapes that differ. Booleans, tensors with a prescale, and everything with
/// KOLO_GPU_BACKEND=staged, go through fusion buffers as ever.
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

/// Move-only. Its memory is the gradients' own and counts as theirs: on the CPU pages that no tensor uses take none. It
/// has no name in any file system, and vanishes with the last process that maps it; a forked child does not get it, and
/// its calls on the arena throw `Error` (unsupported).
///
/// Threads: `allocate` and the questions may be called from any thread; not while the arena is moved or destroyed.
///
/// Life: the memory is valid until the arena is destroyed, also after a fatal error and after the context was shut down
/// or destroyed: a trainer may still save what lies there. As with any memory, what is in flight must be done before:
/// should an exception destroy an arena while operations on it are open, its memory stays until the context ends. A
/// device's memory is given back with the next batch on it, or when the context ends.
/// After a fatal error no other rank reads or writes it any more (on the CPU the pages become private copies,
/// once, which costs the time of copying them); tensors in flight are undefined, all others keep their values.
class KOLO_API GradientArena {
 public:
  /// How tensors are aligned, in bytes.
  static constexpr std::size_t kAlignment = 64;

  /// Room for `bytes`, which are rounded up to pages. Give more than is needed rather than less: what is not allocated
  /// costs nothing but addresses.
  ///
  /// Collective: every rank of the group calls it, with the same name and size, in any order among its other calls; two
  /// arenas that a group makes at the same time, on different threads, need different names. Throws `Error`: mismatch,
  /// on every rank, when sizes differ; out_of_memory (or transport), on every rank, when one cannot have the memory;
  /// else as any collective.
  explicit GradientArena(std::size_t bytes, std::string name = "gradients");
  GradientArena(const Group& group, std::size_t bytes, std::string name = "gradients");
  /// The same in the memory of a device: `Device{DeviceKind::cuda, kolo::cuda::bind()}`. All of it is allocated at
  /// once. Throws also: unsupported, on every rank, when one cannot use its device. While it is made, batches of GPU
  /// tensors that are under way end first.
  GradientArena(std::size_t bytes, Device device, std::string name = "gradients");
  GradientArena(const Group& group, std::size_t bytes, Device device, std::string name = "gradients");
  /// Room for the gradients of these parameters, and makes it theirs: each `Parameter::gradient` that there is becomes
  /// a view of the arena, of the same type, shape and stream, filled with zeros. The backward pass must write there.
  /// All of them lie on one device, or on the CPU, and so does the arena.
  explicit GradientArena(Span<Parameter> parameters, std::string name = "gradients");
  GradientArena(const Group& group, Span<Parameter> parameters, std::string name = "gradients");
  // Of a temporary list nobody would see the new gradients.
  GradientArena(std::vector<Parameter>&&, std::string = {}) = delete;                // keep the list in a variable
  GradientArena(const Group&, std::vector<Parameter>&&, std::string = {}) = delete;  // keep the list in a variable
  GradientArena(GradientArena&&) noexcept;
  GradientArena& operator=(GradientArena&&) noexcept;
  ~GradientArena();

  /// Memory for one tensor, zeroed, aligned to `kAlignment`, on the CPU first touched by the calling thread. It is
  /// never given back before the arena's end. Local: on the CPU ranks need not allocate the same. Throws `Error`
  /// (invalid_argument) when the room that is left is too small. On a device the view has no stream, unless one is
  /// given: that on which the tensor will be written (see kolo/cuda.hpp).
  [[nodiscard]] TensorView allocate(DType dtype, Shape shape);
  [[nodiscard]] TensorView allocate(DType dtype, Shape shape, Stream stream);

  /// The room that `allocate` takes for such a tensor.
  [[nodiscard]] static std::size_t room_for(DType dtype, const Shape& shape) noexcept;
  /// The whole room, and what of it is allocated.
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
