// SPDX-License-Identifier: Apache-2.0
//
// The peer on a GPU: the same work by NCCL's own calls on a blocking communicator of its own. All work of one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "job.hpp"
#include "peer.hpp"

namespace kolo_bench {

/// On the current device. Collective. Throws std::runtime_error with NCCL's own words.
std::shared_ptr<Peer> make_nccl_peer(Job& job, cudaStream_t stream);

}  // namespace kolo_bench
