// SPDX-License-Identifier: Apache-2.0
//
// The smallest model: named vectors, each with a gradient.
#pragma once

#include <list>
#include <string>
#include <utility>
#include <vector>

#include <kolo/parameters.hpp>

namespace kolo::test {

template <class T>
struct Vector {
  std::string name;
  std::vector<T> value, gradient;

  Parameter parameter() { return {name, view(value), view(gradient)}; }
};

template <class T>
class Model {
 public:
  Vector<T>& add(std::string name, std::vector<T> value) {
    const std::size_t size = value.size();
    return vectors_.emplace_back(Vector<T>{std::move(name), std::move(value), std::vector<T>(size)});
  }
  std::vector<Parameter> parameters() {
    std::vector<Parameter> list;
    for (Vector<T>& vector : vectors_) {
      list.push_back(vector.parameter());
    }
    return list;
  }

 private:
  std::list<Vector<T>> vectors_;  // which stay where they are
};

}  // namespace kolo::test
