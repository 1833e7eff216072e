// SPDX-License-Identifier: Apache-2.0
#include <kolo/devices.hpp>

#ifdef KOLO_HAS_CUDA

#include <algorithm>
#include <optional>
#include <utility>

#include "base/quote.hpp"
#include "base/settings.hpp"
#include "base/text.hpp"
#include "data/cuda/nvml_api.hpp"
#include "data/cuda/visibility.hpp"

namespace kolo {
namespace {

std::optional<std::string> visible_list() { return base::process_environment()(cuda::kVisibleDevices); }

std::vector<DeviceInfo> rows_of(const cuda::Gpus& gpus, const cuda::Visibility& visible) {
  std::vector<DeviceInfo> rows;
  for (std::size_t i = 0; i < gpus.all.size(); ++i) {
    const cuda::Gpu& gpu = gpus.all[i];
    const auto add = [&](const auto& one, std::optional<int> process_number) {
      DeviceInfo& row = rows.emplace_back();
      row.machine_number = static_cast<int>(gpu.number);
      row.process_number = process_number;
      row.name = one.name;
      row.uuid = one.uuid;
      row.memory_bytes = one.memory_bytes;
      row.free_bytes = one.free_bytes;
      row.driver = gpus.driver;
    };
    add(gpu, cuda::number_in_process(visible, i));
    for (std::size_t part = 0; part < gpu.parts.size(); ++part)
      add(gpu.parts[part], cuda::number_in_process(visible, i, part));
  }
  return rows;
}

std::string mebibytes(std::uint64_t bytes) { return bytes == 0 ? "not said" : std::to_string(bytes >> 20) + " MiB"; }

std::string list_in_words(const std::optional<std::string>& list, const cuda::Visibility& visible) {
  const std::string name = cuda::kVisibleDevices;
  if (!list) return name + " is not set: " + (visible.remark.empty() ? "CUDA shows all of them" : visible.remark);
  return name + " is " + base::quoted(*list) + (visible.remark.empty() ? "" : ": " + visible.remark);
}

void print_columns(std::ostream& out, const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += "  " + row[i] + std::string(widths[i] - row[i].size(), ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
}

}  // namespace

std::vector<DeviceInfo> devices() {
  const cuda::Gpus gpus = cuda::list_gpus();
  return rows_of(gpus, cuda::visible_devices(visible_list(), gpus.all));
}

std::string describe_devices() {
  const cuda::Gpus gpus = cuda::list_gpus();
  if (gpus.all.empty()) return "No CUDA-compatible GPU found.\n  " + gpus.why + "\n";
  const std::optional<std::string> list = visible_list();
  const cuda::Visibility visible = cuda::visible_devices(list, gpus.all);
  base::Text out;
  out << "GPUs of this machine: " << gpus.all.size() << ", driver " << gpus.driver << "\n"
      << list_in_words(list, visible) << "\n";
  const std::optional<std::string> order = base::process_environment()("CUDA_DEVICE_ORDER");
  if (!cuda::are_of_one_model(gpus.all) && order != "PCI_BUS_ID") {
    out << "The GPUs are of several models, and CUDA may number them otherwise: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or "
           "name them by UUID\n";
  }
  std::vector<std::vector<std::string>> rows{{"machine", "process", "memory", "free", "name", "UUID"}};
  for (const DeviceInfo& row : rows_of(gpus, visible)) {
    rows.push_back({std::to_string(row.machine_number),
                    row.process_number ? "cuda:" + std::to_string(*row.process_number) : "hidden",
                    mebibytes(row.memory_bytes), mebibytes(row.free_bytes), row.name, row.uuid});
  }
  print_columns(out, rows);
  return out.str();
}

}  // namespace kolo

#else

namespace kolo {

std::vector<DeviceInfo> devices() { return {}; }

std::string describe_devices() {
  return "No CUDA-compatible GPU found.\n  this build of Kolo has no CUDA part, and does not look for one\n";
}

}  // namespace kolo

#endif
