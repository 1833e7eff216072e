// SPDX-License-Identifier: Apache-2.0
//
// A store in a file that all ranks see.
#pragma once

#include <memory>
#include <string>

#include <kolo/store.hpp>

namespace kolo::launch {

/// One file a key: at `path` itself, or in the directory that is there. A value is written beside it and renamed, so
/// that nobody reads half of it; only the user may read it. Its methods throw Error (transport) for what the system
/// refuses.
std::shared_ptr<Store> file_store(std::string path);

}  // namespace kolo::launch
