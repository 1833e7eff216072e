// SPDX-License-Identifier: Apache-2.0
//
// What the pipeline (cuda_backend.cpp) knows of batches that are open.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "data/backend.hpp"
#include "data/cuda/carrier.hpp"
#include "data/cuda/cuda_backend.hpp"
#include "data/cuda/device_times.hpp"
#include "data/cuda/equipment.hpp"
#include "data/cuda/events.hpp"
#include "data/cuda/portions.hpp"
#include "data/cuda/set_on_device.hpp"
#include "data/cuda/tables.hpp"

namespace kolo::cuda {

/// A batch on its way, or the end of a set.
struct CudaBackend::OpenJob {
  data::Job* job = nullptr;
  std::shared_ptr<SetOnDevice> set;
  bool ends_set = false;  // no batch: the set gives back what it has
  bool over = false;      // nothing of it is on the device
  std::size_t planned_runs = 0;
  bool planned = false;
  std::optional<PortionPlanner> planner;
  std::vector<Portion> portions;
  std::vector<PortionStamps> stamps;  // by portion; empty: it is not timed
  bool alone = false;                 // all of it on the carrier's stream
  std::size_t packed_portions = 0;
  std::shared_ptr<const PooledEvent> end;  // recorded behind the last unpack
  std::vector<Uneven> uneven;  // of runs whose rows differ by rank, while the ranks tell each other about them
};

/// A portion in a buffer.
struct CudaBackend::Flight {
  OpenJob* open = nullptr;
  Load load;
  ChunkTable* table = nullptr;
  Stamps* unpack_stamps = nullptr;  // around the unpack; null: it is not timed
  bool last = false;
  bool under_way = false;
};

/// All that calls and kernels which are under way may use.
struct CudaBackend::Leftovers {
  PrimaryContextPtr context;
  std::unique_ptr<Equipment> equipment;
  std::map<core::SetId, std::shared_ptr<SetOnDevice>> sets;
  std::deque<std::unique_ptr<OpenJob>> jobs;
  std::deque<Flight> flights;
  std::vector<std::shared_ptr<void>> regions;
};

}  // namespace kolo::cuda
