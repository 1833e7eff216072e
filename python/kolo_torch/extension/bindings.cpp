// SPDX-License-Identifier: Apache-2.0
//
// kolo_torch._C: the process group as PyTorch's Python side takes it.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <kolo/collectives.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/detail/replica_checks.hpp>
#include <kolo/join.hpp>
#include <kolo/parameters.hpp>

#include "c10d/errors.hpp"
#include "c10d/gloo_stand_in.hpp"
#include "c10d/process_group.hpp"
#include "c10d/streams.hpp"
#include "c10d/versions.hpp"

#include "bindings.hpp"

namespace py = pybind11;

namespace kolo::c10d {
namespace {

using Milliseconds = std::chrono::milliseconds;

void without_pythons_lock(const std::function<void()>& leave) {
  // After Python's end there is no lock: worlds of static objects go then.
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return leave();
  const py::gil_scoped_release unlocked;
  leave();
}

c10::intrusive_ptr<ProcessGroupKolo> make(const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
                                          Milliseconds timeout, bool leaves_early) {
  const py::gil_scoped_release unlocked;  // and not as a guard of the call: pybind11 notes the new object in the same
  return c10::make_intrusive<ProcessGroupKolo>(
      store, rank, size, timeout, leaves_early ? World::AtExit::leaves_early : World::AtExit::waits_for_all);
}

c10::intrusive_ptr<ProcessGroupKolo> subgroup(const ProcessGroupKolo& self, const std::vector<int>& ranks,
                                              const std::string& name, Milliseconds timeout) {
  return c10::make_intrusive<ProcessGroupKolo>(self, ranks, name, timeout);
}

c10::intrusive_ptr<ProcessGroupKolo> named(const ProcessGroupKolo& self, const std::string& name) {
  return c10::make_intrusive<ProcessGroupKolo>(self, name);
}

py::dict counters(const ProcessGroupKolo& self) {
  const detail::Counters metrics = detail::counters(self.group());
  py::dict result;
  result["submissions"] = metrics.submissions;
  result["messages_sent"] = metrics.messages_sent;
  result["messages_received"] = metrics.messages_received;
  result["tensors"] = metrics.tensors;
  result["bytes"] = metrics.bytes;
  result["bytes_in_place"] = metrics.bytes_in_place;
  result["shortcuts"] = metrics.shortcuts;
  result["failures"] = metrics.failures;
  return result;
}

/// Its memory, whatever its type; on a device behind the current stream.
TensorView memory_of(const at::Tensor& tensor) {
  const Shape bytes{static_cast<std::int64_t>(tensor.nbytes())};
  if (tensor.is_cpu()) return {tensor.data_ptr(), DType::uint8, bytes};
  const Device device{DeviceKind::cuda, tensor.device().index()};
  return {tensor.data_ptr(), DType::uint8, bytes, device, current_stream(tensor.device())};
}

/// Throws where the ranks of the group hold different values of these tensors, which are dense.
/// Without a collective's name in the order of such calls.
void check_replicas(const ProcessGroupKolo& self, const std::string& caller, const std::optional<std::string>& name,
                    const std::vector<std::string>& names, const std::vector<at::Tensor>& tensors, std::int64_t step) {
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i < names.size(); ++i) parameters.push_back({names[i], memory_of(tensors[i])});
  translated(caller, [&] { detail::check_replicas_at(self.group(), name, parameters, step); });
}

py::dict place(const ProcessGroupKolo& self) {
  const Context& context = self.context();
  py::dict result;
  result["local_rank"] = context.local_rank();
  result["local_size"] = context.local_size();
  result["cross_rank"] = context.cross_rank();
  result["cross_size"] = context.cross_size();
  result["is_homogeneous"] = context.is_homogeneous() ? 1 : 0;
  return result;
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  py::module_::import("torch.distributed");  // whose types are used below
  World::set_around(&without_pythons_lock);
  const py::call_guard<py::gil_scoped_release> unlocked{};
  py::class_<ProcessGroupKolo, c10::intrusive_ptr<ProcessGroupKolo>, Backend>(module, "ProcessGroupKolo")
      .def(py::init(&make), py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
           py::arg("leaves_early") = false)
      .def("subgroup", &subgroup, py::arg("ranks"), py::arg("name"), py::arg("timeout"), unlocked)
      .def("named", &named, py::arg("name"), unlocked)
      .def("describe", [](const ProcessGroupKolo& self) { return kolo::describe(self.group()); })
      .def("counters", &counters)
      .def("place", &place)
      .def("replica_interval", [](const ProcessGroupKolo& self) { return detail::replica_interval(self.group()); })
      .def("check_replicas", &check_replicas, py::arg("caller"), py::arg("name"), py::arg("names"), py::arg("tensors"),
           py::arg("step"), unlocked)
      .def(
          "join", [](const ProcessGroupKolo& self) { return kolo::join(self.group()); }, unlocked)
      .def("abandon", &ProcessGroupKolo::abandon, py::arg("reason"), unlocked)
      // new_group of a group that is bound to a device (init_process_group(device_id=...)) calls it on ranks that are
      // not members, because NCCL's split takes all ranks. Kolo's groups take their members alone.
      .def(
          "perform_nocolor_split", [](const ProcessGroupKolo&, const at::Device&) {}, py::arg("device"));
#ifdef KOLO_C10D_CAN_STAND_IN
  py::class_<GlooStandIn, c10::intrusive_ptr<GlooStandIn>, Backend>(module, "GlooStandIn")
      .def(py::init<c10::intrusive_ptr<ProcessGroupKolo>, Milliseconds, GlooStandIn::MakeGloo>(), py::arg("kolo"),
           py::arg("timeout"), py::arg("make_gloo"))
      .def_property_readonly("kolo", &GlooStandIn::kolo)
      .def_property_readonly("options", &GlooStandIn::getBackendOptions)  // which PyTorch 2.11 to 2.13 fill in
      .def_property_readonly("has_gloo", py::cpp_function(&GlooStandIn::has_gloo, unlocked));
#endif
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  module.def(
      "reconfigurable",
      [](c10::intrusive_ptr<::c10d::Store> store, Milliseconds timeout) {
        return c10::make_intrusive<ProcessGroupKolo>(std::move(store), timeout);
      },
      py::arg("store"), py::arg("timeout"));
#endif
  bind_reduce_in_arena(module);
  module.def("leave_worlds", &World::leave_all, py::arg("reason"), unlocked);
  module.def("takes_cuda", &takes_cuda);
  module.def("version", &kolo::version);
}

}  // namespace kolo::c10d
