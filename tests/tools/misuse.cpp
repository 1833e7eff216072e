// SPDX-License-Identifier: Apache-2.0
//
// Wrong uses of the public API that must not compile. Behind each stands what the compiler has to say about it
// (misuse_test.py).
#include <string_view>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

std::vector<kolo::Parameter> parameters();

void wrong(kolo::Context& context, const kolo::Tensor& tensor) {
  kolo::GradientArena arena(parameters());           // says: keep the list in a variable
  kolo::GradientArena other(context, parameters());  // says: keep the list in a variable

  (void)kolo::broadcast_object(std::string_view("x"));  // says: pointers, views and arrays would send addresses
  (void)kolo::broadcast_object(context, "x");           // says: pointers, views and arrays would send addresses
  (void)kolo::allgather_object(&tensor);                // says: pointers, views and arrays would send addresses

  (void)kolo::Shape(0, 3);  // says: give braces, Shape{0, 3}

  (void)kolo::const_view(std::vector<float>(3));                             // says: keep it in a variable
  (void)kolo::allgather(kolo::allgather(tensor.view()).view());              // says: keep the tensor in a variable
  kolo::barrier(kolo::Context());                                            // says: keep it in a variable
  kolo::AllreduceOptions& kept = kolo::AllreduceOptions{}.with_prescale(2);  // says: cannot bind|non-const lvalue
  (void)kept;
}

void dropped(kolo::Context& context) {
  kolo::Session();              // says: nodiscard
  kolo::Context::alone();       // says: nodiscard
  kolo::ContextGuard{context};  // says: nodiscard
}
