// SPDX-License-Identifier: Apache-2.0
//
// A store in a file that all ranks see.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <kolo/store.hpp>

namespace kolo::launch {

/// Which owners' files are accepted.
enum class Owner : std::uint8_t {
  self,  ///< this user's and root's, if nothing else proves who wrote them
  any,
};

/// One file for each key: at `path`, or in `path` if it is a directory. A value is written to another file and renamed,
/// so that it is never read half written; only the user may read it. The methods throw Error (transport) if the system
/// fails, or if `path` is no file or has another owner.
std::shared_ptr<Store> file_store(std::string path, Owner believed);

}  // namespace kolo::launch
