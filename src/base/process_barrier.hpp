// SPDX-License-Identifier: Apache-2.0
//
// A memory barrier that one thread has all others execute, also those of other processes (membarrier(2)): the side that
// comes often then needs none of its own.
#pragma once

namespace kolo::base {

/// Has this process take part. False: the system cannot do it. Any thread, any number of times.
[[nodiscard]] bool join_process_barriers() noexcept;

/// Every thread of a process that takes part executes a full barrier between the beginning of this call and its end:
/// whatever it stored before is seen by this thread afterwards, and whatever it loads later sees what this thread had
/// stored before. A few microseconds, and an interrupt for each CPU that runs such a thread. The process takes part.
/// False: not this time, for want of memory in the kernel.
[[nodiscard]] bool process_barrier() noexcept;

}  // namespace kolo::base
