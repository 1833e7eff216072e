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

void nowhere(kolo::Context& context, std::vector<float>& x) {
  kolo::allreduce(nullptr, kolo::view(x));             // says: a name is text, not a null pointer
  kolo::allreduce(0, kolo::view(x));                   // says: a name is text, not a null pointer
  kolo::allreduce({context, nullptr}, kolo::view(x));  // says: a name is text, not a null pointer
  kolo::allreduce({context, 0}, kolo::view(x));        // says: a name is text, not a null pointer
  kolo::allreduce(7, kolo::view(x));                   // says: no matching function
  kolo::allreduce(x.data(), kolo::view(x));            // says: no matching function
  kolo::allreduce("w", x.data());                      // says: no matching function
  kolo::allreduce({"w", context}, kolo::view(x));      // says: no matching function
  kolo::allreduce(context, "w", kolo::view(x));        // says: no matching function
  kolo::grouped_allreduce(context, "w", {});           // says: no matching function
  kolo::run(context, "w", kolo::Call::barrier());      // says: no matching function
  kolo::barrier(kolo::BroadcastOptions());             // says: no matching function
  kolo::barrier({kolo::Context(), "w"});               // says: keep it in a variable

  const kolo::Where where = context;
  const kolo::Where copy = where;  // says: pass it by reference
  (void)copy;
}

void dropped(kolo::Context& context) {
  kolo::allreduce_async(context, kolo::view<float>(nullptr, 0));  // says: nodiscard
  kolo::allgather(kolo::view<float>(nullptr, 0));                 // says: nodiscard
  kolo::prepare("w", kolo::Call::barrier());                      // says: nodiscard

  kolo::Session();              // says: nodiscard
  kolo::Context::alone();       // says: nodiscard
  kolo::ContextGuard{context};  // says: nodiscard
}
