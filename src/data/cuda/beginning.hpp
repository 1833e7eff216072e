// SPDX-License-Identifier: Apache-2.0
//
// How a rank gets what it needs on its device, and how a process set comes to use its devices together
// (cuda_backend.hpp, "The beginning").
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include <kolo/error.hpp>

#include "data/cuda/chosen_device.hpp"
#include "data/cuda/memory_limit.hpp"
#include "data/cuda/set_on_device.hpp"

namespace kolo::cuda {

class Equipment;
struct CudaBackendOptions;
struct DeviceCounters;

/// The driver's.
class Beginning {
 public:
  /// The references are to what outlives it.
  Beginning(const CudaBackendOptions& options, int world_size, std::shared_ptr<MemoryLimit> memory,
            ChosenDevice& device, DeviceCounters& counters) noexcept;
  ~Beginning();
  Beginning(const Beginning&) = delete;
  Beginning& operator=(const Beginning&) = delete;

  /// A rank may have joined before it has had a tensor on a device: then one is chosen for it. Where there is none, the
  /// set's ranks hear why when they meet.
  void choose_if_absent(bool is_absent);
  [[nodiscard]] bool has_device() const noexcept { return no_device_.ok(); }

  /// Goes on with the equipment; true when something moved. `brings_id`: this rank is the first of the set that needs
  /// it, and makes the id of its communicator.
  bool equip(bool brings_id);
  /// Whether the attempt is over; it may have failed.
  [[nodiscard]] bool has_tried() const noexcept { return state_ == State::equipped; }
  /// Null: there is none, or it is being made.
  [[nodiscard]] Equipment* equipment() const noexcept { return has_tried() ? equipment_.get() : nullptr; }
  /// What this rank tells the others: which device it has, or why it has no equipment. Valid when has_tried().
  [[nodiscard]] const Word& word() const noexcept { return mine_; }

  /// Brings a set that is neither ready nor has failed further on its way, while nothing of ours is on the device; true
  /// when something moved.
  bool move_on(SetOnDevice& set);

  /// For an abort: there is none until it is put back.
  [[nodiscard]] std::unique_ptr<Equipment> take_equipment() noexcept;
  void put_back(std::unique_ptr<Equipment> equipment) noexcept;
  /// Gives the equipment back, with the device current. The next one that asks for it tries again.
  void let_go() noexcept;
  /// For the equipment that is being made.
  void wait() noexcept;

 private:
  enum class State : std::uint8_t { unused, equipping, equipped };
  void make_equipment(bool brings_id) noexcept;
  [[nodiscard]] Word word_for(const SetOnDevice& set);
  void meet(SetOnDevice& set);
  void confirm(SetOnDevice& set);

  const CudaBackendOptions& options_;
  const int world_size_;
  const std::shared_ptr<MemoryLimit> memory_;
  ChosenDevice& device_;
  DeviceCounters& counters_;
  State state_ = State::unused;
  Status no_device_;       // why an absent rank, which has had no tensor on a device before, has none; else ok
  std::thread equipping_;  // makes what follows, until equipped_
  std::unique_ptr<Equipment> equipment_;
  Word mine_;
  std::atomic<bool> equipped_{false};
};

}  // namespace kolo::cuda
