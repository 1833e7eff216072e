// SPDX-License-Identifier: Apache-2.0
#include "data/kernels/peer_copy.hpp"

#include "data/kernels/reduction.hpp"

namespace kolo::kernels {

void PeerCopy::operator()(void* to, const void* from, std::int64_t bytes) const {
  if (bytes < static_cast<std::int64_t>(kLeastBytes)) return copy(to, from, bytes);
  return stores_ == Stores::through_cache ? copy_ahead(to, from, bytes) : copy_past_cache(to, from, bytes);
}

}  // namespace kolo::kernels
