// SPDX-License-Identifier: Apache-2.0
//
// Which bootstrap a program gets: the launcher's, where it was started by one and this build has MPI; else a world of
// one, without touching MPI.
#pragma once

#include <memory>

#include "api/bootstrap_holder.hpp"

namespace kolo::api {

/// Throws Error (transport): a launcher's variables are set, but this build has no MPI, or MPI cannot be initialised.
std::unique_ptr<detail::BootstrapHolder> launcher_bootstrap();
std::unique_ptr<detail::BootstrapHolder> solo_bootstrap();
/// At the end of the process: finalises an MPI that Kolo initialised, unless there was a fault.
void finalize_at_exit() noexcept;

}  // namespace kolo::api
