// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/csrc/utils/pybind.h>

#include "c10d/arena_hook.hpp"
#include "c10d/process_group.hpp"
#include "c10d/versions.hpp"

#include "bindings.hpp"

namespace py = pybind11;

namespace kolo::c10d {
namespace {

void reduce_in_arena(::c10d::Reducer& reducer, const c10::intrusive_ptr<ProcessGroupKolo>& group, std::size_t bytes,
                     const std::string& device) {
  reducer.register_comm_hook(std::make_unique<ArenaHook>(group, bytes, at::Device(device)));
}

}  // namespace

void bind_reduce_in_arena(py::module_& module) {
  module.attr("REDUCES_IN_ARENA") = true;
  module.def("reduce_in_arena", &reduce_in_arena, py::arg("reducer"), py::arg("group"), py::arg("bytes"),
             py::arg("device"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace kolo::c10d
