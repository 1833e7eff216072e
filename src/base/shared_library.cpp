// SPDX-License-Identifier: Apache-2.0
#include "base/shared_library.hpp"

#include <dlfcn.h>

namespace kolo::base {
namespace {

/// The folder of Python's packages, seen from kolopy/libkolo.so; empty: not known. (A program that has Kolo in itself
/// may be known by the name by which it was called: nothing is opened from a folder that depends on where that was.)
std::string folder_of_packages() {
  Dl_info own{};
  if (::dladdr(reinterpret_cast<const void*>(&folder_of_packages), &own) == 0 || own.dli_fname == nullptr) return {};
  const std::string file = own.dli_fname;
  return file.rfind('/', 0) == 0 ? file.substr(0, file.rfind('/')) + "/../" : std::string();
}

}  // namespace

void* open_shared_library(const std::string& name, const std::string& in_packages, std::string& why) {
  if (void* const loaded = ::dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD); loaded != nullptr) return loaded;
  if (const std::string packages = folder_of_packages(); !packages.empty()) {
    const std::string file = packages + in_packages + "/" + name;
    if (void* const of_package = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); of_package != nullptr)
      return of_package;
  }
  void* const found = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (found != nullptr) return found;
  const char* const said = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc has one for each thread
  why = said == nullptr ? name : said;
  return nullptr;
}

}  // namespace kolo::base
