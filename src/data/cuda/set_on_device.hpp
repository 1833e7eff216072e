// SPDX-License-Identifier: Apache-2.0
//
// What a rank has on its device of a process set that it is a member of. The set's members meet by themselves, in the
// first batch of the set on a device: they tell each other over a data plane of their own what they use and lack
// (`Word`), and with NCCL make a communicator, and tell each other whether they could. The device's memory and
// streams are the rank's, for all its sets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "data/cuda/host_plane.hpp"
#include "data/device.hpp"

namespace kolo::cuda {

struct NcclLink;

/// The driver's.
struct SetOnDevice {
  /// `confirming`: they tell each other whether they have connected; `dropping`: one has not.
  enum class Stage : std::uint8_t { unused, meeting, connecting, confirming, dropping, ready, failed };

  explicit SetOnDevice(data::DeviceSet which) : is(std::move(which)) {}
  void make_plane() {
    plane.emplace(is.make_plane());
    exchange.emplace(*plane);
  }
  /// As a rank of the world.
  [[nodiscard]] int member(int rank) const {
    return is.members.empty() ? rank : is.members[static_cast<std::size_t>(rank)];
  }

  const data::DeviceSet is;
  Stage stage = Stage::unused;
  std::uint64_t buffers_taken = 0;   ///< by portions so far, as many on all ranks: whose turn a buffer is
  std::uint64_t looked_at = 0;       ///< CudaBackend::looks_
  Status failure;                    ///< of every batch, once the set has failed
  std::optional<HostPlane> plane;    ///< from its first batch on; each of them in the order of the set's batches
  std::optional<Exchange> exchange;  ///< over the plane
  NcclLink* link = nullptr;          ///< with NCCL, from when it begins to connect: the carrier's
};

/// What the members of a set tell each other before they use their devices together: one rank's word.
struct Word {
  std::string problem;        ///< why it cannot use its device; empty: it can
  bool lacks_memory = false;  ///< that is the problem
  std::string uuid;           ///< of its device
  std::string bus;            ///< with NCCL: the machine and the bus id, by which that tells GPUs apart
  bool shares = false;        ///< another context of its process uses that by NCCL
  std::string id;             ///< of the new communicator: from the set's rank 0, with NCCL
};
[[nodiscard]] std::string encode(const Word& word);
[[nodiscard]] Word decode(const std::string& text);
/// Of the exception that is being handled.
[[nodiscard]] Word problem_of_exception();

/// Whether the set can use its devices, from what all its ranks have said, by rank of the set. All of them come to the
/// same.
[[nodiscard]] Status judge(const SetOnDevice& set, const std::vector<Word>& said, bool share_device);

}  // namespace kolo::cuda
