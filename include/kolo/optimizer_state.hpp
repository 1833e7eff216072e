// SPDX-License-Identifier: Apache-2.0
//
// How Kolo reads an optimizer's state, and how it loads one: the only place that does either. Reading (a save, a
// comparison, a question) gets views to read alone, of a const optimizer if its class has a const `state()`. A state
// that does not exist yet is described by a copy of what it will begin as. Only a load gets views to write.
//
// An optimizer has one of these:
// - `std::vector<NamedView> state()`: views of memory that is always there, both to be read and to be overwritten by a
//   load. Asking for them changes nothing. (A const overload, which returns `ConstNamedView`s, is preferred to read.)
// - `std::vector<ConstNamedView> state() const`, to be read; `std::vector<NamedView> begin_load()`, views under the
//   same names and of the same shapes, to be overwritten; and `void end_load()`, after which what they hold is the
//   optimizer's state. Without `end_load` nothing has changed that existed before.
#ifndef KOLO_OPTIMIZER_STATE_HPP
#define KOLO_OPTIMIZER_STATE_HPP

#include <string>
#include <utility>
#include <vector>

#include <kolo/export.hpp>
#include <kolo/types.hpp>

namespace kolo {

/// One tensor of a state, to be read.
struct ConstNamedView {
  std::string name;
  ConstTensorView view;
};

namespace detail {

inline std::vector<ConstNamedView> read_only(std::vector<ConstNamedView> state) { return state; }
inline std::vector<ConstNamedView> read_only(const std::vector<NamedView>& state) {
  std::vector<ConstNamedView> views;
  views.reserve(state.size());
  for (const NamedView& one : state) views.push_back({one.name, one.view});
  return views;
}

/// Both lists, in this order.
template <class View>
std::vector<View> joined(std::vector<View> list, std::vector<View> more) {
  for (View& one : more) list.push_back(std::move(one));
  return list;
}

/// `state_of(optimizer, 0)`: its state, to be read.
template <class Optimizer>
auto state_of(Optimizer& optimizer, int) -> decltype(read_only(std::as_const(optimizer).state())) {
  return read_only(std::as_const(optimizer).state());
}
template <class Optimizer>
std::vector<ConstNamedView> state_of(Optimizer& optimizer, long) {
  return read_only(optimizer.state());
}

/// `begin_load(optimizer, 0)`: where a load writes; and, once it has written, `end_load(optimizer, 0)`.
template <class Optimizer>
auto begin_load(Optimizer& optimizer, int) -> decltype(optimizer.begin_load()) {
  return optimizer.begin_load();
}
template <class Optimizer>
std::vector<NamedView> begin_load(Optimizer& optimizer, long) {
  return optimizer.state();
}
template <class Optimizer>
auto end_load(Optimizer& optimizer, int) -> decltype(optimizer.end_load()) {
  optimizer.end_load();
}
template <class Optimizer>
void end_load(Optimizer& /*optimizer*/, long) {}

}  // namespace detail
}  // namespace kolo

#endif  // KOLO_OPTIMIZER_STATE_HPP
