// SPDX-License-Identifier: Apache-2.0
//
// The libraries of this process, as opening.hpp asks for them.
#include <dlfcn.h>
#include <link.h>

#include <string>
#include <string_view>
#include <vector>

#include "mpi/library/opening.hpp"

namespace kolo::mpi {
namespace {

/// Every MPI has this one, and tools that stand before an MPI do not.
constexpr const char* kOwnSymbol = "PMPI_Init_thread";

template <class Function>
Function symbol(void* handle, const char* name) {
  return reinterpret_cast<Function>(::dlsym(handle, name));
}

/// The object that has the address.
const link_map* object_of(void* address) {
  Dl_info info{};
  void* map = nullptr;
  if (address == nullptr || ::dladdr1(address, &info, &map, RTLD_DL_LINKMAP) == 0) return nullptr;
  return static_cast<const link_map*>(map);
}

const link_map* object_of_handle(void* handle) {
  link_map* map = nullptr;
  return ::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 ? map : nullptr;
}

/// Whether this object itself is an MPI, and not one that loads it.
bool is_mpi(void* handle) {
  const link_map* const object = object_of_handle(handle);
  return object != nullptr && object == object_of(::dlsym(handle, kOwnSymbol));
}

const Abi* abi_of(void* handle) {
  using Ask = int (*)(int*, int*);
  int major = -1;
  int minor = -1;
  if (const auto ask = symbol<Ask>(handle, "MPI_Abi_get_version"); ask != nullptr) ask(&major, &minor);
  if (major > 0) {
    // MPICH 4.3 had a draft of this ABI, in which thread levels and handlers of errors were other numbers.
    int release = 0;
    const auto version = symbol<Ask>(handle, "MPI_Get_version");
    const bool is_final = version != nullptr && version(&release, &minor) == 0 && release >= 5;
    return major == 1 && is_final ? &standard::abi : nullptr;
  }
  if (::dlsym(handle, "ompi_mpi_comm_world") != nullptr) return &openmpi::abi;
  return ::dlsym(handle, "MPIR_Dup_fn") != nullptr ? &mpich::abi : nullptr;
}

Loaded look_at(void* handle) {
  Loaded found;
  found.handle = handle;
  const link_map* const object = object_of_handle(handle);
  found.file = object == nullptr || *object->l_name == '\0' ? "the program itself" : object->l_name;
  found.abi = is_mpi(handle) ? abi_of(handle) : nullptr;
  const auto initialized = symbol<int (*)(int*)>(handle, "MPI_Initialized");
  const auto finalized = symbol<int (*)(int*)>(handle, "MPI_Finalized");
  int begun = 0;
  int ended = 0;
  if (found.abi != nullptr && initialized != nullptr && finalized != nullptr) {
    found.is_initialized = initialized(&begun) == 0 && begun != 0 && finalized(&ended) == 0 && ended == 0;
  }
  return found;
}

/// Whether an object of this name claims to be an MPI, so that one with a strange ABI is not passed over.
bool has_name_of_mpi(std::string_view file) {
  const std::string_view name = file.substr(file.rfind('/') + 1);
  return name.rfind("libmpi.so", 0) == 0 || name.rfind("libmpich.so", 0) == 0 || name.rfind("libmpi_abi.so", 0) == 0;
}

std::vector<Loaded> loaded() {
  std::vector<std::string> names;
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* all) {
        static_cast<std::vector<std::string>*>(all)->emplace_back(object->dlpi_name);
        return 0;
      },
      &names);
  std::vector<Loaded> found;
  for (const std::string& name : names) {  // the program's own is empty
    void* const handle = ::dlopen(name.empty() ? nullptr : name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    if (is_mpi(handle)) {
      const Loaded one = look_at(handle);
      if (one.abi != nullptr || has_name_of_mpi(one.file)) {
        found.push_back(one);
        continue;
      }
    }
    ::dlclose(handle);
  }
  return found;
}

Loaded open_file(const char* file) {
  void* const handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return look_at(handle);
  const char* const why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc has one for each thread
  return {nullptr, why == nullptr ? file : why, nullptr, false};
}

}  // namespace

Linker process_linker() { return {loaded, open_file}; }

void* find_symbol(void* handle, const char* name) {
  // mpicc makes programs that have a copy of the library's data, which the library then uses itself. The first object
  // that the loader finds has it, and before the library's functions those that the program has put in their place.
  const bool is_global = object_of(::dlsym(RTLD_DEFAULT, kOwnSymbol)) == object_of_handle(handle);
  void* const found = is_global ? ::dlsym(RTLD_DEFAULT, name) : nullptr;
  return found != nullptr ? found : ::dlsym(handle, name);
}

}  // namespace kolo::mpi
