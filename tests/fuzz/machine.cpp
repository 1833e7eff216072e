// SPDX-License-Identifier: Apache-2.0
//
// What the system and launchers say of this machine: control groups, and which GPUs are visible.
#include "fuzz.hpp"

#include <cmath>

#include <kolo/error.hpp>

#include "base/cpu.hpp"
#include "data/cuda/visibility.hpp"

namespace kolo::fuzz {
namespace {

const cuda::Gpus& gpus() {
  static const cuda::Gpus all = [] {
    cuda::Gpus made;
    for (unsigned number = 0; number < 3; ++number) {
      cuda::Gpu gpu;
      gpu.number = number;
      gpu.uuid = "GPU-0000000" + std::to_string(number) + "-1111-2222-3333-444444444444";
      if (number == 2) {
        for (const char* part : {"1", "2"}) {
          gpu.parts.push_back({"a part", std::string("MIG-0000000") + part + "-1111-2222-3333-444444444444",
                               "MIG-" + gpu.uuid + "/" + part + "/0"});
        }
      }
      made.all.push_back(gpu);
    }
    return made;
  }();
  return all;
}

void look_at_gpus(const std::string& list) {
  const cuda::Visibility visible = cuda::visible_devices(list, gpus().all);
  for (const cuda::VisibleGpu& one : visible.devices) {
    KOLO_CHECK(one.gpu < gpus().all.size());
    KOLO_CHECK(!one.part || *one.part < gpus().all[one.gpu].parts.size());
    KOLO_CHECK(cuda::number_in_process(visible, one.gpu, one.part).has_value());
  }
  KOLO_CHECK(cuda::shows_the_same(list, list, gpus().all, true));
  try {
    const std::string by_uuid = cuda::list_by_uuid(list, gpus());
    KOLO_CHECK(cuda::list_by_uuid(by_uuid, gpus()) == by_uuid) << by_uuid;
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::invalid_setting);
  }
}

void look_at_groups(std::string_view text) {
  const std::optional<double> quota = base::cgroup_cpu_quota(std::string(text), "/proc/no such folder");
  KOLO_CHECK(!quota || (*quota > 0 && std::isfinite(*quota)));
}

}  // namespace

/// The first byte says which.
void run(std::string_view input) {
  if (input.empty()) return;
  if (input.front() == 'g') {
    look_at_gpus(std::string(input.substr(1)));
  } else {
    look_at_groups(input.substr(1));
  }
}

std::vector<std::string> seeds() {
  return {"g0,1,2",
          "g2",
          "gGPU-00000001,GPU-00000000",
          "gMIG-00000001",
          "gMIG-GPU-00000002-1111-2222-3333-444444444444/1/0",
          "g",
          "c200000 100000\n",
          "cmax 100000",
          "c0::/user.slice/session-1.scope\n",
          "c12:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n"};
}

}  // namespace kolo::fuzz
