// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a group as a grid with named axes, for training that is parallel in several ways at once.
//
//     kolo::Mesh mesh(kolo::world(), {{"data", 2}, {"pipeline", 2}, {"tensor", 2}});
//     kolo::allreduce(mesh["tensor"], kolo::view(partial));
#ifndef KOLO_MESH_HPP
#define KOLO_MESH_HPP

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/export.hpp>

namespace kolo {

/// A direction of a mesh.
struct MeshAxis {
  /// Not empty; unique within the mesh.
  std::string name;
  /// How many ranks lie along it; 1 or more.
  int size = 1;
};

/// A grid of ranks. The order is row-major: along the last axis neighbours have consecutive ranks, so give that to what
/// exchanges most. With the axes above, rank 5 of the group has the coordinates data 1, pipeline 0, tensor 1.
///
/// A copy is cheap and has the same groups. Thread-safe, as `Group`. Errors are `Error` (invalid_argument) unless said
/// otherwise.
class KOLO_API Mesh {
 public:
  /// Makes a group for each axis. All ranks of `group` call it with the same axes. Throws `Error`, the same on every
  /// rank: invalid_argument if an axis has no name, one that stands twice, or a size below 1, or if the product of the
  /// sizes is not the size of the group; mismatch if ranks give other axes; and what `Group::split` throws.
  Mesh(const Group& group, std::vector<MeshAxis> axes);

  /// The ranks along this axis through this rank: those whose other coordinates are this rank's. A rank's place in it
  /// is its coordinate. An axis that spans the whole group gives that group. Throws `Error` for an axis that there is
  /// not.
  [[nodiscard]] const Group& operator[](std::string_view axis) const;
  /// This rank's place along the axis, from 0.
  [[nodiscard]] int coordinate(std::string_view axis) const;
  /// How many ranks lie along the axis.
  [[nodiscard]] int size(std::string_view axis) const;
  /// The mesh of several axes through this rank, in the order given: its `group()` has the ranks whose coordinates
  /// along all other axes are this rank's, for an all-reduce over "data" and "tensor", say. All ranks of the mesh call
  /// it with the same axes. Throws `Error` as the constructor, and for an axis that there is not.
  [[nodiscard]] Mesh submesh(const std::vector<std::string>& axes) const;

  /// All its ranks.
  [[nodiscard]] const Group& group() const noexcept { return group_; }
  [[nodiscard]] const std::vector<MeshAxis>& axes() const noexcept { return axes_; }

 private:
  [[nodiscard]] std::size_t number_of(std::string_view axis) const;

  Group group_;
  std::vector<MeshAxis> axes_;
  std::vector<int> coordinates_;  // by axis
  std::vector<Group> along_;      // by axis
};

}  // namespace kolo

#endif  // KOLO_MESH_HPP
