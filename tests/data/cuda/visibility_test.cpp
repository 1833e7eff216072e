// SPDX-License-Identifier: Apache-2.0
//
// The machine's GPUs and which of them CUDA shows a process: NVML through a library of the driver's name, the rule of
// CUDA_VISIBLE_DEVICES over every permutation of every subset of four GPUs, and what ranks make of that.
#include "data/cuda/visibility.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <utility>

#include <dlfcn.h>

#include <kolo/devices.hpp>
#include <kolo/info.hpp>

#include "base/settings.hpp"
#include "data/cuda/cuda_api.hpp"
#include "tests/data/cuda/rank_device.hpp"
#include "tests/emulated_cuda/driver/emulated_nvml.hpp"

namespace kolo::cuda::test {
namespace {

using Numbers = std::vector<int>;

constexpr int kMachine = 4;

/// All permutations of all subsets of 0 ... count - 1.
std::vector<Numbers> arrangements(int count) {
  std::vector<Numbers> all{{}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (int next = 0; next < count; ++next) {
      if (std::find(all[i].begin(), all[i].end(), next) != all[i].end()) continue;
      Numbers longer = all[i];
      longer.push_back(next);
      all.push_back(std::move(longer));
    }
  }
  return all;
}

std::string listed(const Numbers& numbers, const std::function<std::string(int)>& name) {
  std::string list;
  for (const int number : numbers) list += (list.empty() ? "" : ",") + name(number);
  return list;
}

std::string by_number(const Numbers& numbers) {
  return listed(numbers, [](int number) { return std::to_string(number); });
}
std::string by_uuid(const Numbers& numbers) { return listed(numbers, emulated::nvml_uuid); }
/// "GPU-30": the shortest that is one GPU's alone.
std::string by_prefix(const Numbers& numbers) {
  return listed(numbers, [](int number) { return emulated::nvml_uuid(number).substr(0, 6); });
}

/// A machine of four GPUs, and a process that nobody has told which of them to see.
class VisibleDevices : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    emulated::nvml_machine() = emulated::nvml_machine_of(kMachine);
    show(std::nullopt);
  }
  void TearDown() override {
    EXPECT_EQ(emulated::nvml_sessions(), 0);
    emulated::nvml_machine() = emulated::nvml_machine_of(kMachine);
    show(std::nullopt);
    CudaTest::TearDown();
  }

  static void show(const std::optional<std::string>& list) {
    if (list) {
      ASSERT_EQ(::setenv(kVisibleDevices, list->c_str(), 1), 0);
    } else {
      ASSERT_EQ(::unsetenv(kVisibleDevices), 0);
    }
  }
  static std::optional<std::string> shown() { return base::process_environment()(kVisibleDevices); }

  /// What CUDA shows: the emulated one is told, by the test.
  static void show_in_cuda(const Numbers& numbers) {
    emulated::Config config = machine();
    config.devices = static_cast<int>(numbers.size());
    config.numbers = numbers;
    emulated::reset(config);
  }

  static Numbers seen(const Visibility& visible) {
    Numbers numbers;
    for (const VisibleGpu& device : visible.devices) numbers.push_back(static_cast<int>(device.gpu));
    return numbers;
  }
  /// By process number, the machine numbers that `devices()` tells.
  static Numbers told() {
    Numbers numbers;
    for (const kolo::DeviceInfo& device : devices()) {
      if (!device.process_number) continue;
      numbers.resize(std::max(numbers.size(), static_cast<std::size_t>(*device.process_number) + 1), -1);
      numbers[static_cast<std::size_t>(*device.process_number)] = device.machine_number;
    }
    return numbers;
  }
};

std::string digits_of(const std::string& uuid) {
  std::string digits = uuid.substr(4);
  digits.erase(std::remove(digits.begin(), digits.end(), '-'), digits.end());
  return digits;
}

TEST_F(VisibleDevices, EveryArrangementIsSeenAsItStands) {
  const std::vector<Numbers> all = arrangements(kMachine);
  ASSERT_EQ(all.size(), 65U);  // 1 + 4 + 12 + 24 + 24
  const std::vector<Gpu> gpus = list_gpus().all;
  for (const Numbers& numbers : all) {
    for (const std::string& list : {by_number(numbers), by_uuid(numbers), by_prefix(numbers)}) {
      const Visibility visible = visible_devices(list, gpus);
      EXPECT_EQ(seen(visible), numbers) << list;
      EXPECT_EQ(visible.remark, numbers.empty() ? "it is set and empty, and CUDA then shows none" : "") << list;
      show(list);
      EXPECT_EQ(told(), numbers) << list;
    }
  }
  EXPECT_EQ(seen(visible_devices(std::nullopt, gpus)), (Numbers{0, 1, 2, 3}));
}

/// Both numbers: of rank r the process's is r, and the machine's what stands at place r of the list.
TEST_F(VisibleDevices, RanksBindToWhatEveryArrangementShows) {
  for (const Numbers& numbers : arrangements(kMachine)) {
    const std::string list = by_number(numbers);
    SCOPED_TRACE("CUDA_VISIBLE_DEVICES=" + list);
    show(list);
    show_in_cuda(numbers);
    const auto visible = static_cast<int>(numbers.size());
    run_local(
        kMachine,
        [&] {
          if (visible == 0) {
            EXPECT_EQ(
                sentence_of(ErrorCode::unsupported, [] { bind(); }),
                "there is no CUDA device: no CUDA-capable device is detected (CUDA_VISIBLE_DEVICES is \"\": it is "
                "set and empty, and CUDA then shows none)");
            return;
          }
          if (visible > 1 && rank() >= visible) {
            EXPECT_EQ(sentence_of(ErrorCode::unsupported, [] { bind(); }),
                      "rank " + std::to_string(rank()) + " of this machine has no device: only " +
                          std::to_string(visible) + " are visible (CUDA_VISIBLE_DEVICES is \"" + list +
                          "\"); KOLO_SHARE_DEVICE=1 lets ranks share them");
            return;
          }
          const int mine = visible == 1 ? 0 : rank();
          EXPECT_EQ(bind(), mine);
          const int number = numbers[static_cast<std::size_t>(mine)];
          EXPECT_EQ(device_info(mine).uuid, digits_of(emulated::nvml_uuid(number)));
          const std::string both = "cuda:" + std::to_string(mine) + " (Emulated device, GPU " + std::to_string(number) +
                                   " of the machine) of " + std::to_string(visible) + " visible";
          EXPECT_NE(describe().find(both), std::string::npos) << describe();
        },
        options().with_setting("KOLO_RANKS_PER_NODE", "2"));  // the machine's place counts, not the node's
  }
}

TEST_F(VisibleDevices, RanksReduceOnDevicesInAnyOrder) {
  for (const Numbers& numbers : {Numbers{3, 2, 1, 0}, Numbers{1, 3, 0, 2}}) {
    show(by_uuid(numbers));
    show_in_cuda(numbers);
    on_devices(kMachine, options(), [](const RankStream& stream) {
      DeviceTensor x(DType::float32, 100, stream, [](std::int64_t i) { return i + rank(); });
      EXPECT_EQ(result_of(allreduce_async("x", x.view()), x),
                elements_of(DType::float32, 100, [](std::int64_t i) { return 4 * i + 6; }));
    });
  }
}

TEST_F(VisibleDevices, OneDeviceForAllRanksIsRefusedWhenTheyMeet) {
  show("2");
  show_in_cuda({2});
  run_local(
      2,
      [] {
        EXPECT_EQ(bind(), 0);
        const RankStream stream;
        DeviceTensor x(DType::float32, 4, stream);
        x.write(Bytes(16));
        EXPECT_EQ(sentence_of(ErrorCode::unsupported, [&] { allreduce("x", x.view()); }),
                  "ranks 0 and 1 use the same GPU: give each rank one of its own (kolo::cuda::bind does), or set "
                  "KOLO_SHARE_DEVICE=1");
        stream.synchronize();
      },
      options());
}

TEST_F(VisibleDevices, WhatFollowsAWrongNameIsNotThere) {
  struct Case {
    std::string list;
    Numbers seen;
    std::string remark;
  };
  const std::string uuid = emulated::nvml_uuid(1);
  const std::string has = ": this machine has 4 GPUs; CUDA ends the list there";
  const std::vector<Case> cases{
      {"0,2,-1,1", {0, 2}, "\"-1\" is no number of a GPU; CUDA ends the list there"},  // the guide's example
      {"-1", {}, "\"-1\" is no number of a GPU; CUDA ends the list there"},
      {"4", {}, "\"4\" names no device" + has},
      {"0,4,1", {0}, "\"4\" names no device" + has},
      {"18446744073709551616", {}, "\"18446744073709551616\" is no number of a GPU; CUDA ends the list there"},
      {"abc", {}, "\"abc\" is no number of a GPU; CUDA ends the list there"},
      {"1,", {1}, "\"\" is no number of a GPU; CUDA ends the list there"},
      {",1", {}, "\"\" is no number of a GPU; CUDA ends the list there"},
      {" 1, +2,3gpu", {1, 2, 3}, ""},
      {"1,2,1", {}, "it names a device twice (\"1\"), and CUDA then refuses all of it"},
      {"0,4,0", {0}, "\"4\" names no device" + has},
      {"0,-1,0", {0}, "\"-1\" is no number of a GPU; CUDA ends the list there"},
      {uuid + ",GPU-31", {}, "it names a device twice (\"GPU-31\"), and CUDA then refuses all of it"},
      {uuid + "," + uuid, {}, "it names a device twice (\"" + uuid + "\"), and CUDA then refuses all of it"},
      {"GPU-3", {}, "\"GPU-3\" begins the names of 4 devices; CUDA ends the list there"},
      {"GPU-32,GPU-77,GPU-30", {2}, "\"GPU-77\" names no device" + has},
      {uuid + "0", {1}, ""},
      {"GPU-", {}, "\"GPU-\" names no device" + has},
      {"gpu-31", {}, "\"gpu-31\" is no number of a GPU; CUDA ends the list there"},
      {"1,GPU-32", {1}, "\"GPU-32\" is of another kind than \"1\"; CUDA ends the list there"},
      {"GPU-32,1", {2}, "\"1\" is of another kind than \"GPU-32\"; CUDA ends the list there"},
      {"MIG-1",
       {},
       "\"MIG-1\" names no device: this machine has 4 GPUs, as `nvidia-smi -L` lists them and their parts; "
       "CUDA ends the list there"},
  };
  const std::vector<Gpu> gpus = list_gpus().all;
  for (const Case& one : cases) {
    const Visibility visible = visible_devices(one.list, gpus);
    EXPECT_EQ(seen(visible), one.seen) << one.list;
    EXPECT_EQ(visible.remark, one.remark) << one.list;
  }
}

TEST_F(VisibleDevices, APartOfADividedGpuIsVisibleAlone) {
  const std::string first = "MIG-aaaaaaaa-0000-0000-0000-000000000000";
  const std::string second = "MIG-bbbbbbbb-0000-0000-0000-000000000000";
  emulated::nvml_machine().gpus[1].parts = {{first, 1, 0}, {second, 2, 3}};
  const std::vector<Gpu> gpus = list_gpus().all;
  const VisibleGpu part{1, 1};
  for (const std::string& list : {second, std::string("MIG-b"), "MIG-" + emulated::nvml_uuid(1) + "/2/3"}) {
    const Visibility visible = visible_devices(list, gpus);
    EXPECT_EQ(visible.devices, std::vector<VisibleGpu>{part}) << list;
    EXPECT_EQ(visible.remark, "") << list;
  }
  const Visibility both = visible_devices(second + "," + first, gpus);
  EXPECT_EQ(both.devices, std::vector<VisibleGpu>{part});
  EXPECT_EQ(both.remark, "\"" + first + "\" is a second part of a GPU; CUDA ends the list there");
  // What names the GPU, or all of them, stands for its first part, and nothing is shown beside it.
  const VisibleGpu whole{0, std::nullopt};
  for (const std::string& list : {std::string("1"), emulated::nvml_uuid(1)}) {
    EXPECT_EQ(visible_devices(list, gpus).devices, (std::vector<VisibleGpu>{{1, 0}})) << list;
    EXPECT_EQ(visible_devices(list, gpus).remark, "") << list;
  }
  EXPECT_EQ(visible_devices("1,0", gpus).devices, (std::vector<VisibleGpu>{{1, 0}}));
  EXPECT_EQ(visible_devices("1,0", gpus).remark, "\"0\" stands beside a divided GPU; CUDA ends the list there");
  EXPECT_EQ(visible_devices("0,1", gpus).devices, std::vector<VisibleGpu>{whole});
  EXPECT_EQ(visible_devices(std::nullopt, gpus).devices, (std::vector<VisibleGpu>{{1, 0}}));
  EXPECT_NE(
      describe_devices().find("\nCUDA_VISIBLE_DEVICES is not set: a GPU is divided, and CUDA then shows its first "
                              "part alone\n"),
      std::string::npos);

  show(second);
  const std::vector<kolo::DeviceInfo> rows = devices();
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_EQ(rows[3].uuid, second);
  EXPECT_EQ(rows[3].name, "Emulated device MIG 1g");
  EXPECT_EQ(rows[3].machine_number, 1);
  EXPECT_EQ(rows[3].process_number, 0);
  EXPECT_EQ(rows[3].memory_bytes, 128U << 20);
  EXPECT_EQ(rows[1].process_number, std::nullopt);
  EXPECT_EQ(number_on_machine(digits_of(second)), 1U);
}

TEST_F(VisibleDevices, DevicesSayWhatTheDriverSays) {
  emulated::nvml_machine().gpus[3].says_memory = false;
  show("3,1");
  const std::vector<kolo::DeviceInfo> rows = devices();
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[1].name, "Emulated device");
  EXPECT_EQ(rows[1].uuid, emulated::nvml_uuid(1));
  EXPECT_EQ(rows[1].memory_bytes, 1U << 30);
  EXPECT_EQ(rows[1].free_bytes, 1U << 29);
  EXPECT_EQ(rows[1].driver, "580.82.07");
  EXPECT_EQ(describe_devices(), "GPUs of this machine: 4, driver 580.82.07\n"
                                "CUDA_VISIBLE_DEVICES is \"3,1\"\n"
                                "  machine  process  memory    free      name             UUID\n"
                                "  0        hidden   1024 MiB  512 MiB   Emulated device  " +
                                    emulated::nvml_uuid(0) +
                                    "\n"
                                    "  1        cuda:1   1024 MiB  512 MiB   Emulated device  " +
                                    emulated::nvml_uuid(1) +
                                    "\n"
                                    "  2        hidden   1024 MiB  512 MiB   Emulated device  " +
                                    emulated::nvml_uuid(2) +
                                    "\n"
                                    "  3        cuda:0   not said  not said  Emulated device  " +
                                    emulated::nvml_uuid(3) + "\n");
}

TEST_F(VisibleDevices, GpusOfSeveralModelsMayBeNumberedOtherwise) {
  emulated::nvml_machine().gpus[2].name = "Another device";
  const std::string said = describe_devices();
  EXPECT_NE(said.find("\nCUDA_VISIBLE_DEVICES is not set: CUDA shows all of them\n"
                      "The GPUs are of several models, and CUDA may number them otherwise: set "
                      "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name them by UUID\n"),
            std::string::npos)
      << said;
}

/// As in a control group: CUDA does not count it, either.
TEST_F(VisibleDevices, AGpuThatTheProcessMayNotUseIsNotThere) {
  emulated::nvml_machine().gpus[1].is_permitted = false;
  show("1");
  EXPECT_EQ(told(), Numbers{2});
  for (emulated::NvmlGpu& gpu : emulated::nvml_machine().gpus) gpu.is_permitted = false;
  EXPECT_EQ(describe_devices(), "No CUDA-compatible GPU found.\n  this process may use none of this machine's\n");
}

TEST_F(VisibleDevices, WithoutAGpuThereIsNone) {
  emulated::nvml_machine().gpus.clear();
  EXPECT_TRUE(devices().empty());
  EXPECT_EQ(describe_devices(), "No CUDA-compatible GPU found.\n  the NVIDIA driver knows of none\n");
  emulated::nvml_machine().driver = false;
  EXPECT_TRUE(devices().empty());
  EXPECT_EQ(describe_devices(), "No CUDA-compatible GPU found.\n  the NVIDIA driver is not loaded\n");
}

TEST_F(VisibleDevices, EveryFailureOfTheDriverIsAnError) {
  emulated::nvml_machine().gpus[1].parts = {{"MIG-aaaaaaaa-0000-0000-0000-000000000000", 1, 0}};
  const std::array whole{"nvmlInit_v2", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2"};
  const std::array first{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetName", "nvmlDeviceGetUUID",
                         "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMigMode"};
  const std::array second{"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
                          "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"};
  const auto fails = [](const char* call, const std::string& whose) {
    emulated::nvml_machine().fails = call;
    EXPECT_EQ(sentence_of(ErrorCode::unsupported, [] { static_cast<void>(devices()); }),
              std::string(call) + " failed" + whose + ": Unknown Error");
    EXPECT_EQ(emulated::nvml_sessions(), 0) << call;
  };
  for (const char* call : whole) fails(call, "");
  for (const char* call : first) fails(call, " for GPU 0");
  for (const char* call : second) fails(call, " for GPU 1");
  // What messages say besides can do without.
  EXPECT_EQ(number_on_machine(digits_of(emulated::nvml_uuid(2))), std::nullopt);
  show("2");
  EXPECT_EQ(visibility_in_brackets(), "");
}

// ---------------------------------------------------------------- Options::visible_devices

TEST_F(VisibleDevices, OptionsShowEveryArrangement) {
  for (const Numbers& numbers : arrangements(kMachine)) {
    for (const std::string& list : {by_number(numbers), by_prefix(numbers)}) {
      show(std::nullopt);
      const Context context = Context::alone(Options{}.with_visible_devices(list));
      EXPECT_EQ(shown(), by_uuid(numbers));
      EXPECT_EQ(told(), numbers);
    }
  }
}

TEST_F(VisibleDevices, OptionsWinOverTheEnvironmentForAllRanks) {
  show("0");
  run_local(
      3,
      [] {
        EXPECT_EQ(shown(), by_uuid({2, 0, 1}));
        EXPECT_EQ(told(), (Numbers{2, 0, 1}));
      },
      options().with_visible_devices("2,0,1"));
}

TEST_F(VisibleDevices, OptionsMustBeRight) {
  const auto said = [](const std::string& list, ErrorCode code = ErrorCode::invalid_setting) {
    return sentence_of(code, [&] {
      run_local(
          2, [] {}, options().with_visible_devices(list));
    });
  };
  const std::string neither = "is neither the number of a GPU nor the beginning of a UUID (GPU-..., MIG-...)";
  EXPECT_EQ(said("0,4"), "Options::visible_devices is \"0,4\", but \"4\" names no device: this machine has 4 GPUs");
  EXPECT_EQ(said("1,-1"), "Options::visible_devices is \"1,-1\", but \"-1\" " + neither);
  EXPECT_EQ(said("1, 2"), "Options::visible_devices is \"1, 2\", but \" 2\" " + neither);
  EXPECT_EQ(said("1,"), "Options::visible_devices is \"1,\", but \"\" " + neither);
  EXPECT_EQ(said("1,GPU-31"),
            "Options::visible_devices is \"1,GPU-31\", but \"GPU-31\" was named before: a device can be visible once");
  EXPECT_EQ(said("GPU-3"), "Options::visible_devices is \"GPU-3\", but \"GPU-3\" begins the names of 4 devices");
  emulated::nvml_machine().gpus[0].parts = {{"MIG-aaaaaaaa-0000-0000-0000-000000000000", 1, 0}};
  EXPECT_EQ(said("MIG-a,2"), "Options::visible_devices is \"MIG-a,2\", but CUDA shows one part of a divided GPU and "
                             "nothing beside it");
  emulated::nvml_machine().driver = false;
  EXPECT_EQ(said("0", ErrorCode::unsupported),
            "Options::visible_devices is \"0\", but no CUDA-compatible GPU was found: the NVIDIA driver is not loaded");
  EXPECT_EQ(shown(), std::nullopt);
  run_local(
      2, [] { EXPECT_EQ(shown(), ""); }, options().with_visible_devices(""));  // none: always possible
}

/// What CUDA sees already is no other list because it is spelled otherwise; and numbers tell nothing where CUDA may
/// have put the GPUs into another order.
TEST_F(VisibleDevices, ListsThatShowTheSameAreTheSame) {
  std::vector<Gpu> gpus = list_gpus().all;
  EXPECT_TRUE(shows_the_same("1,0", by_uuid({1, 0}), gpus, false));
  EXPECT_TRUE(shows_the_same(by_prefix({1, 0}), by_uuid({1, 0}), gpus, false));
  EXPECT_TRUE(shows_the_same(std::nullopt, by_uuid({0, 1, 2, 3}), gpus, false));
  EXPECT_TRUE(shows_the_same("-1", "", gpus, false));
  EXPECT_FALSE(shows_the_same("0,1", by_uuid({1, 0}), gpus, false));
  EXPECT_FALSE(shows_the_same(std::nullopt, by_uuid({0}), gpus, false));
  EXPECT_FALSE(shows_the_same("0", "", gpus, false));
  gpus[2].name = "Another device";
  EXPECT_FALSE(shows_the_same("1,0", by_uuid({1, 0}), gpus, false));
  EXPECT_TRUE(shows_the_same("1,0", by_uuid({1, 0}), gpus, true));
  EXPECT_TRUE(shows_the_same(by_prefix({1, 0}), by_uuid({1, 0}), gpus, false));
}

TEST_F(VisibleDevices, OptionsComeBeforeCudaStarts) {
  void* const driver = ::dlopen(KOLO_EMULATED_DRIVER, RTLD_NOW);
  ASSERT_NE(driver, nullptr) << ::dlerror();
  EXPECT_FALSE(cuda_has_started());
  run_local(
      2, [] {}, options().with_visible_devices("1,0"));
  const auto start = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  ASSERT_NE(start, nullptr);
  ASSERT_EQ(start(0), 0);
  EXPECT_TRUE(cuda_has_started());
  run_local(
      2, [] {}, options().with_visible_devices("1,0"));  // what it sees already
  show("1,0");
  run_local(
      2, [] {}, options().with_visible_devices("1,0"));  // in other words
  show(by_uuid({1, 0}));
  const std::string so = "make the context before the program's first call of CUDA, or set that variable before the "
                         "program starts";
  const auto said = [](const std::string& list) {
    return sentence_of(ErrorCode::invalid_setting, [&] {
      run_local(
          2, [] {}, options().with_visible_devices(list));
    });
  };
  EXPECT_EQ(said("0"), "Options::visible_devices is \"0\", but CUDA has started in this process already, and looks at "
                       "CUDA_VISIBLE_DEVICES no more (it is \"" +
                           by_uuid({1, 0}) + "\"): " + so);
  show(std::nullopt);
  EXPECT_EQ(said("0"), "Options::visible_devices is \"0\", but CUDA has started in this process already, and looks at "
                       "CUDA_VISIBLE_DEVICES no more (it is not set): " +
                           so);
  ::dlclose(driver);
  EXPECT_FALSE(cuda_has_started());
}

}  // namespace
}  // namespace kolo::cuda::test
