// SPDX-License-Identifier: Apache-2.0
#include "api/launch.hpp"

#include "shm/thread_world.hpp"

namespace kolo::api {

std::unique_ptr<detail::BootstrapHolder> solo_bootstrap() {
  return std::make_unique<detail::BootstrapHolder>(shm::ThreadWorld(1).bootstrap(0));
}

std::unique_ptr<detail::BootstrapHolder> launcher_bootstrap() { return solo_bootstrap(); }

void finalize_at_exit() noexcept {}

}  // namespace kolo::api
