// SPDX-License-Identifier: Apache-2.0
//
// A store in a file that all ranks see.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <kolo/store.hpp>

namespace kolo::launch {

/// Whose files are believed.
enum class Owner : std::uint8_t {
  self,  ///< this user's, and root's: where nothing else proves who wrote them
  any,
};

/// One file a key: at `path` itself, or in the directory that is there. A value is written beside it and renamed, so
/// that nobody reads half of it; only the user may read it. Its methods throw Error (transport) for what the system
/// refuses, and for what is no file, or not of this owner.
std::shared_ptr<Store> file_store(std::string path, Owner believed);

}  // namespace kolo::launch
