// SPDX-License-Identifier: Apache-2.0
//
// kolo-info: what this Kolo is, what it finds here, and how it is set. Starts up exactly as a trainer would, so what it
// prints under the same launcher and environment is what a trainer gets.
//
//     kolo-info                       this process, a world of one
//     mpirun -np 4 kolo-info          the job, as rank 0 sees it
//     mpirun -np 4 kolo-info --all    and every other rank, in order
//     kolo-info --devices             this machine's GPUs; joins no job, and does not start CUDA
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <hwloc.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <kolo/kolo.hpp>

#include "end_of_output.hpp"

namespace {

namespace po = boost::program_options;
using Json = nlohmann::ordered_json;

struct Flags {
  bool help = false;
  bool version = false;
  bool all = false;
  bool devices = false;
  bool json = false;
};

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using CpuSet = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

// ---------------------------------------------------------------- this machine, as the process sees it

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) throw std::system_error(errno, std::generic_category(), "gethostname");
  return name;
}

/// What hwloc knows of this machine.
class Machine {
 public:
  Machine() {
    if (hwloc_topology_init(&topology_) != 0) throw std::runtime_error("hwloc cannot be initialised");
    if (hwloc_topology_load(topology_) != 0) {
      hwloc_topology_destroy(topology_);
      throw std::runtime_error("hwloc cannot read this machine's topology");
    }
  }
  ~Machine() { hwloc_topology_destroy(topology_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] int count(hwloc_obj_type_t type) const { return hwloc_get_nbobjs_by_type(topology_, type); }

  [[nodiscard]] std::string cpu_model() const {
    const hwloc_obj_t package = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, 0);
    const char* model = package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
    return model == nullptr ? "unknown" : model;
  }

  /// The CPUs that this process may run on.
  [[nodiscard]] CpuSet allowed() const {
    CpuSet cpus(hwloc_bitmap_alloc());
    if (!cpus || hwloc_get_cpubind(topology_, cpus.get(), HWLOC_CPUBIND_PROCESS) != 0) {
      throw std::system_error(errno, std::generic_category(), "hwloc_get_cpubind");
    }
    return cpus;
  }

  /// The data caches of the first of these CPUs, innermost first.
  [[nodiscard]] Json caches(const CpuSet& cpus) const {
    Json caches = Json::array();
    const int first = hwloc_bitmap_first(cpus.get());
    const hwloc_obj_t unit =
        first < 0 ? nullptr : hwloc_get_pu_obj_by_os_index(topology_, static_cast<unsigned>(first));
    for (hwloc_obj_t at = unit; at != nullptr; at = at->parent) {
      if (hwloc_obj_type_is_dcache(at->type) == 0) continue;
      caches.push_back({{"level", at->attr->cache.depth},
                        {"size", std::to_string(at->attr->cache.size / 1024) + "K"},
                        {"shared_by_cpus", describe(at->cpuset)}});
    }
    return caches;
  }

  /// "0-3,8": as taskset takes it.
  [[nodiscard]] static std::string describe(hwloc_const_cpuset_t cpus) {
    char text[1024] = {};
    hwloc_bitmap_list_snprintf(text, sizeof text, cpus);
    return text;
  }

 private:
  hwloc_topology_t topology_ = nullptr;
};

// ---------------------------------------------------------------- what there is to say

Json of_build() {
  const kolo::BuildInfo build = kolo::built_with();
  return {{"version", build.version}, {"compiler", build.compiler}, {"mpi", build.mpi},
          {"ucx", build.ucx},         {"cuda", build.cuda},         {"simd", build.simd}};
}

Json of_place() {
  return {{"rank", kolo::rank()},
          {"size", kolo::size()},
          {"local_rank", kolo::local_rank()},
          {"local_size", kolo::local_size()},
          {"cross_rank", kolo::cross_rank()},
          {"cross_size", kolo::cross_size()},
          {"is_homogeneous", kolo::is_homogeneous()}};
}

/// This rank's device, as the library describes it; empty where it has no CUDA part.
std::string device_of_rank(const std::string& description) {
  constexpr std::string_view kTitle = "CUDA backend: ";
  std::istringstream lines(description);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(kTitle, 0) == 0) return line.substr(kTitle.size());
  }
  return {};
}

Json of_machine() {
  const Machine machine;
  const CpuSet cpus = machine.allowed();
  return {{"host", host_name()},
          {"pid", ::getpid()},
          {"cpu", machine.cpu_model()},
          {"packages", machine.count(HWLOC_OBJ_PACKAGE)},
          {"cores", machine.count(HWLOC_OBJ_CORE)},
          {"cpus", machine.count(HWLOC_OBJ_PU)},
          {"memory_nodes", machine.count(HWLOC_OBJ_NUMANODE)},
          {"cpus_allowed", Machine::describe(cpus.get())},
          {"caches", machine.caches(cpus)},
          {"gpu", device_of_rank(kolo::describe())}};
}

Json of_variables() {
  Json list = Json::array();
  for (const kolo::Setting& setting : kolo::settings()) {
    list.push_back({{"name", setting.name},
                    {"value", setting.value},
                    {"default", setting.default_value},
                    {"source", setting.source},
                    {"range", setting.range},
                    {"help", setting.help}});
  }
  return list;
}

Json of_rank() {
  return {{"place", of_place()},
          {"machine", of_machine()},
          {"description", kolo::describe()},
          {"start", kolo::explain_start()},
          {"variables", of_variables()}};
}

// ---------------------------------------------------------------- as text

std::string or_none(const Json& text) {
  return text.get_ref<const std::string&>().empty() ? "not in this build" : text.get<std::string>();
}

void print_build(const Json& build) {
  std::cout << "kolo " << build["version"].get<std::string>() << "\n"
            << "  compiler  " << build["compiler"].get<std::string>() << "\n"
            << "  MPI       " << (build["mpi"] == "" ? "none opened" : build["mpi"].get<std::string>()) << "\n"
            << "  UCX       " << or_none(build["ucx"]) << "\n"
            << "  CUDA      " << or_none(build["cuda"]) << "\n"
            << "  SIMD      " << build["simd"].get<std::string>() << "\n";
}

void print_rank(const Json& one) {
  const Json& machine = one["machine"];
  std::cout << "\nrank " << one["place"]["rank"] << "\n"
            << "  host      " << machine["host"].get<std::string>() << ", process " << machine["pid"] << "\n"
            << "  CPU       " << machine["cpu"].get<std::string>() << "\n"
            << "  has       packages " << machine["packages"] << ", cores " << machine["cores"] << ", CPUs "
            << machine["cpus"] << ", memory nodes " << machine["memory_nodes"] << "\n"
            << "  may use   CPUs " << machine["cpus_allowed"].get<std::string>() << "\n"
            << "  caches  ";
  for (const Json& cache : machine["caches"]) {
    std::cout << "  L" << cache["level"] << " " << cache["size"].get<std::string>() << " (CPUs "
              << cache["shared_by_cpus"].get<std::string>() << ")";
  }
  if (machine["caches"].empty()) std::cout << "  unknown";
  std::cout << "\n";
  std::istringstream description(one["description"].get<std::string>());
  for (std::string line; std::getline(description, line);) std::cout << "  " << line << "\n";
  std::cout << "  ways to start, in this order\n";
  for (const Json& way : one["start"]) std::cout << "    " << way.get<std::string>() << "\n";
}

void print_variables(const Json& variables) {
  std::vector<std::vector<std::string>> rows{{"variable", "value", "default", "from"}};
  for (const Json& variable : variables) {
    rows.push_back({variable["name"].get<std::string>(), variable["value"].get<std::string>(),
                    variable["default"].get<std::string>(), variable["source"].get<std::string>()});
  }
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::cout << "\n";
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += "  " + row[i] + std::string(widths[i] - row[i].size(), ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    std::cout << line << "\n";
  }
}

/// Those that are not as on rank 0.
Json differing(const Json& variables, const Json& of_rank_0) {
  Json list = Json::array();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (variables[i] != of_rank_0[i]) list.push_back(variables[i]);
  }
  return list;
}

void print(const Json& build, const std::vector<Json>& ranks) {
  print_build(build);
  for (const Json& one : ranks) {
    print_rank(one);
    const bool first = &one == &ranks.front();
    const Json variables = first ? one["variables"] : differing(one["variables"], ranks.front()["variables"]);
    if (!variables.empty()) print_variables(variables);
    if (!first && variables.empty()) std::cout << "  variables: as on rank 0\n";
  }
}

// ---------------------------------------------------------------- the program

po::options_description describe_flags(Flags& flags) {
  po::options_description options("flags");
  options.add_options()                                                                         //
      ("help,h", po::bool_switch(&flags.help), "print this")                                    //
      ("version", po::bool_switch(&flags.version), "print the library's version")               //
      ("all,a", po::bool_switch(&flags.all), "print every rank, in order, not only rank 0")     //
      ("devices,d", po::bool_switch(&flags.devices), "print this machine's GPUs, and no more")  //
      ("json,j", po::bool_switch(&flags.json), "print JSON");
  return options;
}

Flags parse(int argc, char** argv) {
  Flags flags;
  po::variables_map given;
  const auto style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  po::store(po::command_line_parser(argc, argv).options(describe_flags(flags)).positional({}).style(style).run(),
            given);
  po::notify(given);
  return flags;
}

void print_help() {
  Flags flags;
  std::cout << "Prints what this Kolo is, what it runs on, and how it is set.\n\n"
               "  kolo-info                     this process, a world of one\n"
               "  mpirun -np 4 kolo-info --all  every rank of a job\n"
               "  kolo-info --devices           this machine's GPUs, and which of them CUDA shows this process\n\n"
            << describe_flags(flags)
            << "\nExit status: 0 done; 1 ranks could not find each other, or failed; 2 the flags are wrong, or a\n"
               "variable in the environment is.\n";
}

/// The words of all ranks that are to be printed; on rank 0 only, elsewhere empty.
std::vector<Json> gather(bool all) {
  const std::string mine = of_rank().dump();
  std::vector<Json> ranks;
  const std::vector<std::string> texts = all ? kolo::allgather_object(mine) : std::vector<std::string>{mine};
  if (kolo::rank() == 0) {
    for (const std::string& text : texts) ranks.push_back(Json::parse(text));
  }
  return ranks;
}

Json of_devices() {
  Json list = Json::array();
  for (const kolo::DeviceInfo& device : kolo::devices()) {
    list.push_back({{"machine_number", device.machine_number},
                    {"process_number", device.process_number ? Json(*device.process_number) : Json()},
                    {"name", device.name},
                    {"uuid", device.uuid},
                    {"memory_bytes", device.memory_bytes},
                    {"free_bytes", device.free_bytes},
                    {"driver", device.driver}});
  }
  return list;
}

void print_devices(const Flags& flags) {
  if (flags.json) {
    std::cout << Json{{"devices", of_devices()}}.dump(2) << "\n";
  } else {
    std::cout << kolo::describe_devices();
  }
}

/// In the words of a start that has failed.
std::string ways_to_start() {
  std::string text = "ways to start, in this order";
  for (const std::string& way : kolo::explain_start()) text += "\n  " + way;
  return text;
}

void run(const Flags& flags) {
  std::optional<kolo::Session> session;
  try {
    session.emplace();
  } catch (const kolo::Error& error) {
    throw kolo::Error(error.code(), error.status().message() + "\n" + ways_to_start());
  }
  const std::vector<Json> ranks = gather(flags.all);
  if (ranks.empty()) return;
  if (flags.json) {
    std::cout << Json{{"build", of_build()}, {"ranks", ranks}}.dump(2) << "\n";
  } else {
    print(of_build(), ranks);
  }
  tools::flush_output();  // before the ranks part
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Flags flags = parse(argc, argv);
    if (flags.help) {
      print_help();
    } else if (flags.version) {
      std::cout << "kolo-info " << kolo::built_with().version << "\n";
    } else if (flags.devices) {
      print_devices(flags);
    } else {
      run(flags);
    }
    tools::flush_output();
    return 0;
  } catch (const po::error& error) {
    std::cerr << "kolo-info: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const kolo::Error& error) {
    std::cerr << "kolo-info: " << error.status().message() << "\n";
    return error.code() == kolo::ErrorCode::invalid_setting ? 2 : 1;
  } catch (const std::exception& error) {
    std::cerr << "kolo-info: " << error.what() << "\n";
    return 1;
  }
}
