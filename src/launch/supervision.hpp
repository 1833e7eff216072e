// SPDX-License-Identifier: Apache-2.0
//
// Processes that end even if the one that started them is killed. The system ends a dead process's own children
// (PR_SET_PDEATHSIG), but not theirs, and a rank may run below a shell. So there are two processes: this one waits, and
// the keeper, its child, has the ranks. What loses its parent becomes a child of the keeper. If this process dies, the
// keeper kills everything that it has; if the keeper dies, this process does.
#pragma once

#include <functional>

namespace kolo::launch {

/// Runs `body` in the keeper, and returns its exit status, or how it was killed, as waitpid does. `body` gives
/// `lifeline` to `run_processes`. This thread takes the signals of TakenSignals meanwhile, and passes them on to the
/// keeper. Throws Error: what `body` throws; or the keeper cannot be started (transport).
[[nodiscard]] int run_supervised(const std::function<int(int lifeline)>& body);

}  // namespace kolo::launch
