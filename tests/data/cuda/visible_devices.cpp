// SPDX-License-Identifier: Apache-2.0
//
// CUDA_VISIBLE_DEVICES on a real machine: what Kolo says that CUDA shows beside what CUDA shows, for every arrangement
// of the machine's GPUs (of the first four) by number, by UUID and by the beginning of one, and for lists with
// something wrong in them. Each list has a process of its own, because CUDA reads it once. Run by scripts/gpu-check.
//
//     visible_devices            all lists; exit status 0 when the two always agree
//     visible_devices LIST       as CUDA_VISIBLE_DEVICES has it; LIST is for the messages
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/cuda.hpp>
#include <kolo/devices.hpp>

namespace {

using List = std::vector<std::string>;

std::string digits_of(const std::string& uuid) {
  std::string digits = uuid.substr(4);
  digits.erase(std::remove(digits.begin(), digits.end(), '-'), digits.end());
  return digits;
}

/// By process number.
List told_by_kolo() {
  List uuids;
  for (const kolo::DeviceInfo& device : kolo::devices()) {
    if (!device.process_number) continue;
    uuids.resize(std::max(uuids.size(), static_cast<std::size_t>(*device.process_number) + 1));
    uuids[static_cast<std::size_t>(*device.process_number)] = digits_of(device.uuid);
  }
  return uuids;
}

List shown_by_cuda() {
  List uuids;
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorNoDevice || counted == cudaErrorInvalidDevice) return uuids;  // the latter: named twice
  if (counted != cudaSuccess) return {cudaGetErrorString(counted)};
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    const cudaError_t result = cudaGetDeviceProperties(&properties, device);
    if (result != cudaSuccess) return {cudaGetErrorString(result)};
    std::string digits;
    for (const char byte : properties.uuid.bytes) {
      char two[3];
      std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
      digits += two;
    }
    uuids.push_back(digits);
  }
  return uuids;
}

std::string joined(const List& list) {
  std::string text;
  for (const std::string& one : list) text += (text.empty() ? "" : " ") + one;
  return text.empty() ? "none" : text;
}

/// One list, in this process.
int compare(const std::string& list) {
  const List told = told_by_kolo();  // before CUDA starts
  const kolo::Context alone = kolo::Context::alone();
  bool binds = false;
  try {
    binds = kolo::cuda::bind(alone) == 0;
  } catch (const kolo::Error& error) {
    std::printf("%s: %s\n", list.c_str(), error.what());
  }
  const List shown = shown_by_cuda();
  const bool agree = told == shown && binds == !shown.empty();
  std::printf("%s: %s: Kolo says %s, CUDA shows %s, bind %s\n", list.c_str(), agree ? "agree" : "DIFFER",
              joined(told).c_str(), joined(shown).c_str(), binds ? "works" : "is refused");
  return agree ? 0 : 1;
}

/// A process of its own for a list; null: not set.
bool run(const char* program, const std::string* list) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    if (list == nullptr ? ::unsetenv("CUDA_VISIBLE_DEVICES") != 0
                        : ::setenv("CUDA_VISIBLE_DEVICES", list->c_str(), 1) != 0) {
      ::_exit(3);
    }
    const std::string shown = list == nullptr ? "not set" : "\"" + *list + "\"";
    ::execl(program, program, shown.c_str(), static_cast<char*>(nullptr));
    ::_exit(3);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

/// All permutations of all subsets, the empty one among them.
std::vector<List> arrangements(const List& names) {
  std::vector<List> all{{}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const std::string& name : names) {
      if (std::find(all[i].begin(), all[i].end(), name) != all[i].end()) continue;
      List longer = all[i];
      longer.push_back(name);
      all.push_back(longer);
    }
  }
  return all;
}

std::string with_commas(const List& list) {
  std::string text;
  for (const std::string& one : list) text += (text.empty() ? "" : ",") + one;
  return text;
}

/// The shortest beginning of a UUID that no other has.
std::string shortest(const std::string& uuid, const List& all) {
  for (std::size_t length = 5; length < uuid.size(); ++length) {
    const std::string prefix = uuid.substr(0, length);
    if (std::count_if(all.begin(), all.end(), [&](const std::string& one) { return one.rfind(prefix, 0) == 0; }) == 1) {
      return prefix;
    }
  }
  return uuid;
}

List lists_for(const List& uuids) {
  List numbers;
  List whole;
  List prefixes;
  for (std::size_t i = 0; i < std::min<std::size_t>(uuids.size(), 4); ++i) {
    numbers.push_back(std::to_string(i));
    whole.push_back(uuids[i]);
    prefixes.push_back(shortest(uuids[i], uuids));
  }
  List lists;
  for (const List& names : {numbers, whole, prefixes}) {
    for (const List& one : arrangements(names)) lists.push_back(with_commas(one));
  }
  const std::string past = std::to_string(uuids.size());
  const std::string& uuid = uuids.front();
  for (const std::string& wrong : List{"-1",
                                       "0,-1",
                                       "-1,0",
                                       past,
                                       "0," + past,
                                       past + ",0",
                                       "0," + past + ",0",
                                       "0,0",
                                       "0,-1,0",
                                       "abc",
                                       ",0",
                                       "0,",
                                       " 0",
                                       "+0",
                                       "0gpu",
                                       uuid + "," + uuid,
                                       uuid + "," + prefixes.front(),
                                       "GPU-",
                                       "GPU-zz",
                                       uuid + ",GPU-zz",
                                       "GPU-zz," + uuid,
                                       uuid + "0",
                                       "0," + uuid,
                                       uuid + ",0"}) {
    lists.push_back(wrong);
  }
  return lists;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) return compare(argv[1]);
  List uuids;
  for (const kolo::DeviceInfo& device : kolo::devices()) {
    if (device.uuid.rfind("GPU-", 0) == 0) uuids.push_back(device.uuid);
  }
  if (uuids.empty()) {
    std::printf("%s", kolo::describe_devices().c_str());
    return 1;
  }
  bool agree = run(argv[0], nullptr);
  int count = 1;
  for (const std::string& list : lists_for(uuids)) {
    agree = run(argv[0], &list) && agree;
    ++count;
  }
  std::printf("%d lists\n%s\n", count, agree ? "PASS" : "FAIL");
  return agree ? 0 : 1;
}
