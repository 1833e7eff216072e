// SPDX-License-Identifier: Apache-2.0
//
// A memory barrier that one thread makes all others execute, also in other processes (membarrier(2)). The side that
// runs often then needs no barrier of its own.
#pragma once

namespace kolo::base {

/// Makes this process take part. False: the system does not support it. Any thread, any number of times.
[[nodiscard]] bool join_process_barriers() noexcept;

/// Every thread of a process that takes part executes a full barrier between the beginning of this call and its end:
/// whatever it stored before is seen by this thread afterwards, and whatever it loads later sees what this thread had
/// stored before. Costs a few microseconds, and an interrupt for each CPU that runs such a thread. This process must
/// take part. False: it failed, because the kernel had no memory.
[[nodiscard]] bool process_barrier() noexcept;

}  // namespace kolo::base
