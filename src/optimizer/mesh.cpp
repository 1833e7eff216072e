// SPDX-License-Identifier: Apache-2.0
#include <kolo/mesh.hpp>

#include <cstdint>
#include <set>
#include <utility>

#include <kolo/error.hpp>
#include <kolo/parameters.hpp>

namespace kolo {
namespace {

[[noreturn]] void refuse_mesh(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, "Mesh: " + sentence);
}

/// "data 2, tensor 4"
std::string listed(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& axis : axes) {
    text += (text.empty() ? "" : ", ") + quoted_name(axis.name) + ' ' + std::to_string(axis.size);
  }
  return text.empty() ? "none" : text;
}

void check_axes(const Group& group, const std::vector<MeshAxis>& axes) {
  std::vector<std::string> entries;
  entries.reserve(axes.size());
  for (const MeshAxis& axis : axes) entries.push_back("axis " + axis.name + ' ' + std::to_string(axis.size));
  check_agreement(group, "Mesh", entries);
  std::set<std::string_view> names;
  std::int64_t product = 1;
  const int ranks = size(group);
  for (const MeshAxis& axis : axes) {
    if (axis.name.empty()) refuse_mesh("an axis has no name; every one needs its own");
    if (!names.insert(axis.name).second) refuse_mesh("two axes are named " + quoted_name(axis.name));
    if (axis.size < 1) {
      refuse_mesh("axis " + quoted_name(axis.name) + " has size " + std::to_string(axis.size) +
                  "; it must be 1 or more");
    }
    if (product <= ranks) product *= axis.size;  // more is wrong, however much
  }
  if (product != ranks) {
    refuse_mesh("the product of the sizes (" + listed(axes) + ") must be the number of ranks, " +
                std::to_string(ranks));
  }
}

}  // namespace

Mesh::Mesh(const Group& group, std::vector<MeshAxis> axes) : group_(group), axes_(std::move(axes)) {
  check_axes(group_, axes_);
  coordinates_.resize(axes_.size());
  const int own = rank(group_);
  int stride = 1;  // between neighbours along the axis
  std::vector<int> strides(axes_.size());
  for (std::size_t i = axes_.size(); i-- > 0;) {
    coordinates_[i] = own / stride % axes_[i].size;
    strides[i] = stride;
    stride *= axes_[i].size;
  }
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const bool is_all = axes_[i].size == kolo::size(group_);
    // The rank at the axis's beginning has a number that no other line of ranks has.
    along_.push_back(is_all ? group_ : group_.split(own - coordinates_[i] * strides[i], coordinates_[i]));
  }
}

std::size_t Mesh::number_of(std::string_view axis) const {
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return i;
  }
  refuse_mesh("there is no axis " + quoted_name(axis) + "; the axes are " + listed(axes_));
}

const Group& Mesh::operator[](std::string_view axis) const { return along_[number_of(axis)]; }
int Mesh::coordinate(std::string_view axis) const { return coordinates_[number_of(axis)]; }
int Mesh::size(std::string_view axis) const { return axes_[number_of(axis)].size; }

Mesh Mesh::submesh(const std::vector<std::string>& axes) const {
  check_agreement(group_, "Mesh::submesh", axes);
  std::vector<MeshAxis> chosen;
  int key = 0;
  std::set<std::size_t> numbers;
  for (const std::string& name : axes) {
    const std::size_t number = number_of(name);
    if (!numbers.insert(number).second) refuse_mesh("axis " + quoted_name(name) + " stands twice in the list");
    chosen.push_back(axes_[number]);
    key = key * axes_[number].size + coordinates_[number];
  }
  int color = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (numbers.count(i) == 0) color = color * axes_[i].size + coordinates_[i];
  }
  return {group_.split(color, key), std::move(chosen)};
}

}  // namespace kolo
