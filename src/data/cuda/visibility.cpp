// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/visibility.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include <dlfcn.h>

#include <kolo/error.hpp>

#include "base/quote.hpp"
#include "base/settings.hpp"

namespace kolo::cuda {
namespace {

constexpr std::string_view kGpuPrefix = "GPU-";
constexpr std::string_view kPartPrefix = "MIG-";
constexpr std::size_t kUuidLength = std::string_view("GPU-00000000-0000-0000-0000-000000000000").size();

std::vector<std::string_view> split_at_commas(std::string_view list) {
  std::vector<std::string_view> entries;
  for (;;) {
    const std::size_t comma = list.find(',');
    entries.push_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return entries;
    list.remove_prefix(comma + 1);
  }
}

enum class IdentifierKind : std::uint8_t { index, gpu, part };

IdentifierKind kind_of_identifier(std::string_view entry) noexcept {
  if (entry.starts_with(kGpuPrefix)) return IdentifierKind::gpu;
  return entry.starts_with(kPartPrefix) ? IdentifierKind::part : IdentifierKind::index;
}

/// As strtoul reads it; nothing for what has no digits, or is negative.
std::optional<std::uint64_t> index_of(std::string_view entry) noexcept {
  entry.remove_prefix(std::min(entry.find_first_not_of(" \t\n\v\f\r"), entry.size()));
  if (entry.starts_with("+")) entry.remove_prefix(1);
  std::uint64_t index = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (error != std::errc()) return std::nullopt;
  return index;
}

/// What an identifier names: one device, if it is right.
using Named = std::vector<VisibleGpu>;

Named find_by_index(std::string_view entry, const std::vector<Gpu>& gpus) {
  const std::optional<std::uint64_t> index = index_of(entry);
  if (!index || *index >= gpus.size()) return {};
  return {VisibleGpu{static_cast<std::size_t>(*index), std::nullopt}};
}

Named find_gpu(std::string_view entry, const std::vector<Gpu>& gpus) {
  Named named;
  if (entry == kGpuPrefix) return named;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].uuid.starts_with(entry)) named.push_back({i, std::nullopt});
  }
  return named;
}

Named find_part(std::string_view entry, const std::vector<Gpu>& gpus) {
  Named named;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (std::size_t part = 0; part < gpus[i].parts.size(); ++part) {
      const GpuPart& one = gpus[i].parts[part];
      if (one.uuid.starts_with(entry) || one.old_name == entry) named.push_back({i, part});
    }
  }
  return named;
}

Named named_by(IdentifierKind kind, std::string_view entry, const std::vector<Gpu>& gpus) {
  if (kind == IdentifierKind::gpu) return find_gpu(entry, gpus);
  return kind == IdentifierKind::part ? find_part(entry, gpus) : find_by_index(entry, gpus);
}

/// Why an identifier is not right.
std::string reason_of(const Named& named, std::string_view entry, IdentifierKind kind, const std::vector<Gpu>& gpus) {
  if (named.size() > 1) {
    return base::quoted(entry) + " begins the names of " + std::to_string(named.size()) + " devices";
  }
  return base::quoted(entry) + " names no device: this machine has " +
         (gpus.empty() ? "no" : std::to_string(gpus.size())) + (gpus.size() > 1 ? " GPUs" : " GPU") +
         (kind == IdentifierKind::part ? ", as `nvidia-smi -L` lists them and their parts" : "");
}

/// The entries before the first that cannot be an identifier of the list's kind.
std::vector<std::string_view> well_formed(const std::vector<std::string_view>& entries, IdentifierKind kind) {
  const auto end = std::find_if(entries.begin(), entries.end(), [&](std::string_view entry) {
    return kind_of_identifier(entry) != kind || (kind == IdentifierKind::index && !index_of(entry));
  });
  return {entries.begin(), end};
}

/// CUDA shows a divided GPU by its first part.
VisibleGpu as_shown(const VisibleGpu& named, const std::vector<Gpu>& gpus) {
  if (named.part || gpus[named.gpu].parts.empty()) return named;
  return {named.gpu, 0};
}

/// One part of a divided GPU is shown, and then nothing beside it.
Visibility all_of(const std::vector<Gpu>& gpus) {
  Visibility visible;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (!gpus[i].parts.empty()) return {{{i, 0}}, "a GPU is divided, and CUDA then shows its first part alone"};
    visible.devices.push_back({i, std::nullopt});
  }
  return visible;
}

std::string ends_the_list(const std::string& why) { return why + "; CUDA ends the list there"; }

}  // namespace

bool are_of_one_model(const std::vector<Gpu>& gpus) {
  return std::all_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.name == gpus.front().name; });
}

Visibility visible_devices(const std::optional<std::string>& list, const std::vector<Gpu>& gpus) {
  if (!list) return all_of(gpus);
  Visibility visible;
  if (list->empty()) return {{}, "it is set and empty, and CUDA then shows none"};
  const std::vector<std::string_view> entries = split_at_commas(*list);
  const IdentifierKind kind = kind_of_identifier(entries.front());
  const std::vector<std::string_view> formed = well_formed(entries, kind);
  for (const std::string_view entry : formed) {
    const Named named = named_by(kind, kind == IdentifierKind::gpu ? entry.substr(0, kUuidLength) : entry, gpus);
    if (named.size() != 1) {
      visible.remark = ends_the_list(reason_of(named, entry, kind, gpus));
      return visible;
    }
    const VisibleGpu device = as_shown(named.front(), gpus);
    if (std::find(visible.devices.begin(), visible.devices.end(), device) != visible.devices.end()) {
      return {{}, "it names a device twice (" + base::quoted(entry) + "), and CUDA then refuses all of it"};
    }
    if (!visible.devices.empty() && (device.part || visible.devices.front().part)) {
      visible.remark =
          ends_the_list(base::quoted(entry) +
                        (kind == IdentifierKind::part ? " is a second part of a GPU" : " stands beside a divided GPU"));
      return visible;
    }
    visible.devices.push_back(device);
  }
  if (formed.size() < entries.size()) {
    const std::string_view bad = entries[formed.size()];
    visible.remark = ends_the_list(kind_of_identifier(bad) == kind ? base::quoted(bad) + " is no number of a GPU"
                                                                   : base::quoted(bad) + " is of another kind than " +
                                                                         base::quoted(entries.front()));
  }
  return visible;
}

std::optional<int> number_in_process(const Visibility& visible, std::size_t gpu, std::optional<std::size_t> part) {
  const auto found = std::find(visible.devices.begin(), visible.devices.end(), VisibleGpu{gpu, part});
  if (found == visible.devices.end()) return std::nullopt;
  return static_cast<int>(found - visible.devices.begin());
}

bool shows_the_same(const std::optional<std::string>& now, const std::string& wanted, const std::vector<Gpu>& gpus,
                    bool is_by_bus) {
  const bool is_by_number = !now || (!now->empty() && kind_of_identifier(*now) == IdentifierKind::index);
  if (is_by_number && !is_by_bus && !are_of_one_model(gpus)) return false;
  return visible_devices(now, gpus).devices == visible_devices(wanted, gpus).devices;
}

std::string list_by_uuid(const std::string& wanted, const Gpus& gpus) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_setting, "Options::visible_devices is " + base::quoted(wanted) + ", but " + why);
  };
  if (wanted.empty()) return {};
  if (gpus.all.empty()) {
    throw Error(ErrorCode::unsupported, "Options::visible_devices is " + base::quoted(wanted) +
                                            ", but no CUDA-compatible GPU was found: " + gpus.why);
  }
  std::string list;
  std::vector<VisibleGpu> chosen;
  for (const std::string_view entry : split_at_commas(wanted)) {
    const IdentifierKind kind = kind_of_identifier(entry);
    const bool is_number = !entry.empty() && entry.find_first_not_of("0123456789") == std::string_view::npos;
    if (kind == IdentifierKind::index && !is_number) {
      refuse(base::quoted(entry) + " is neither the number of a GPU nor the beginning of a UUID (GPU-..., MIG-...)");
    }
    const Named named = named_by(kind, entry, gpus.all);
    if (named.size() != 1) refuse(reason_of(named, entry, kind, gpus.all));
    const VisibleGpu& device = named.front();
    if (std::find(chosen.begin(), chosen.end(), device) != chosen.end()) {
      refuse(base::quoted(entry) + " was named before: a device can be visible once");
    }
    if (!chosen.empty() && (device.part || chosen.front().part)) {
      refuse("CUDA shows one part of a divided GPU and nothing beside it");
    }
    chosen.push_back(device);
    const Gpu& gpu = gpus.all[device.gpu];
    list += (list.empty() ? "" : ",") + (device.part ? gpu.parts[*device.part].uuid : gpu.uuid);
  }
  return list;
}

bool cuda_has_started() {
  // Not loaded into this process: nobody can have started it.
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  constexpr int kNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED: what every call returns before cuInit
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  const bool started = count != nullptr && count(&devices) != kNotInitialized;
  ::dlclose(driver);
  return started;
}

void make_visible(const std::string& wanted) {
  const bool has_started = cuda_has_started();
  const Gpus gpus = wanted.empty() && !has_started ? Gpus() : list_gpus();
  const std::string list = list_by_uuid(wanted, gpus);
  const std::optional<std::string> now = base::process_environment()(kVisibleDevices);
  if (now == list) return;
  if (has_started) {
    const bool is_by_bus = base::process_environment()("CUDA_DEVICE_ORDER") == "PCI_BUS_ID";
    if (shows_the_same(now, list, gpus.all, is_by_bus)) return;
    throw Error(ErrorCode::invalid_setting,
                "Options::visible_devices is " + base::quoted(wanted) +
                    ", but CUDA has started in this process already, and looks at " + kVisibleDevices +
                    " no more (it is " + (now ? base::quoted(*now) : "not set") +
                    "): make the context before the program's first call of CUDA, or set that variable before the "
                    "program starts");
  }
  base::set_variable(kVisibleDevices, list.c_str());
}

std::string visibility_in_brackets() noexcept {
  try {
    const std::optional<std::string> list = base::process_environment()(kVisibleDevices);
    if (!list) return {};
    const std::string text = std::string(" (") + kVisibleDevices + " is " + base::quoted(*list);
    const Gpus gpus = list_gpus();
    const std::string remark = gpus.all.empty() ? std::string() : visible_devices(list, gpus.all).remark;
    return text + (remark.empty() ? "" : ": " + remark) + ")";
  } catch (const std::exception&) {
    return {};
  }
}

std::optional<unsigned> number_on_machine(std::string_view uuid) noexcept {
  try {
    const auto is_it = [&](std::string name) {
      name.erase(0, kGpuPrefix.size());  // a part's is as long
      std::erase(name, '-');
      return name == uuid;
    };
    const Gpus gpus = list_gpus();
    for (const Gpu& gpu : gpus.all) {
      const bool in_part =
          std::any_of(gpu.parts.begin(), gpu.parts.end(), [&](const GpuPart& part) { return is_it(part.uuid); });
      if (in_part || is_it(gpu.uuid)) return gpu.number;
    }
  } catch (const std::exception&) {
    // A sentence that can do without.
  }
  return std::nullopt;
}

}  // namespace kolo::cuda
