// SPDX-License-Identifier: Apache-2.0
#include "bindings.hpp"

namespace py = pybind11;

namespace kolo::c10d {

void bind_reduce_in_arena(py::module_& module) {
  module.attr("REDUCES_IN_ARENA") = false;
  module.def("reduce_in_arena", [](const py::args&) {
    PyErr_SetString(PyExc_NotImplementedError,
                    "kolo_torch was built against a PyTorch that lacks a header of DistributedDataParallel (Debian's "
                    "package does), and has no reduce_in_arena. Leave the call out, or build kolo_torch against the "
                    "Python package index's torch: pip install torch, and then pip install . in Kolo's source folder.");
    throw py::error_already_set();
  });
}

}  // namespace kolo::c10d
