// SPDX-License-Identifier: Apache-2.0
//
// transport::PeerMemory: between processes by process_vm_readv(2), between threads by a plain copy.
//
// The system may not let a process read another's memory: another user, a container without the capability, Yama's
// ptrace_scope. It is therefore tried once, when the context is made: each rank tells the others its process and the
// address of a random number, and each must be able to read all numbers.
#pragma once

#include <memory>

#include "core/topology.hpp"
#include "transport/node_link.hpp"
#include "transport/regions.hpp"

namespace kolo::shm {

/// NodeLink::peer_memory between processes; calls `meet` twice.
std::shared_ptr<transport::PeerMemory> read_between_processes(const core::Topology& topology,
                                                              const transport::Meeting& meet);
/// The same between threads.
std::shared_ptr<transport::PeerMemory> read_between_threads();

}  // namespace kolo::shm
