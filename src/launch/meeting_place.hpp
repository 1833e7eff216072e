// SPDX-License-Identifier: Apache-2.0
//
// The state of the public `kolo::MeetingPlace`, its text form in KOLO_STORE, and the store in a file that all ranks
// see.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <kolo/store.hpp>

#include "base/unique_fd.hpp"
#include "launch/directions.hpp"

namespace kolo {

/// Exactly one of these is set: a host, a path, an object.
struct MeetingPlace::State {
  std::string host;
  std::vector<std::uint16_t> ports;
  /// Sockets that are bound but do not listen, one for each address: no other process gets the port, and rank 0 can
  /// still listen there.
  std::vector<base::UniqueFd> kept_ports;
  std::string path;
  std::shared_ptr<Store> store;
};

namespace launch {

/// "tcp://10.0.0.1:29500", "tcp://[::1]:29500", "tcp://name:29500", "file:///shared/job7". `variable` names it in
/// errors. Throws Error (invalid_setting).
[[nodiscard]] MeetingPlace parse_place(const std::string& text, const std::string& variable);

/// Rank 0 listens at the first of these ports that is free.
[[nodiscard]] MeetingPlace place_of_ports(std::string host, std::vector<std::uint16_t> ports);

[[nodiscard]] std::unique_ptr<Directions> directions_to(const MeetingPlace& place, const std::string& interface,
                                                        const JobKey& key);

/// Which owners' files are accepted.
enum class Owner : std::uint8_t {
  self,  ///< this user's and root's, if nothing else proves who wrote them
  any,
};

/// One file for each key: at `path`, or in `path` if it is a directory. A value is written to another file and renamed,
/// so that it is never read half written; only the user may read it. The methods throw Error (transport) if the system
/// fails, or if `path` is no file or has another owner.
std::shared_ptr<Store> file_store(std::string path, Owner believed);

}  // namespace launch

}  // namespace kolo
