// SPDX-License-Identifier: Apache-2.0

/// @file
/// LightGBM over Kolo: its data- and voting-parallel learners use a group in place of sockets and a list of machines.
/// No header of LightGBM is needed; its library is the one that the process has loaded.
///
///     kolo::init();
///     kolo::lightgbm::attach(kolo::world());
///     ... LGBM_DatasetCreateFromMat, LGBM_BoosterCreate, LGBM_BoosterUpdateOneIter ...
///     // with "tree_learner=data num_machines=N" among the parameters, N the group's size
///     kolo::lightgbm::detach();
///
/// LightGBM keeps its network by thread: attach on the thread that makes the datasets and trains.
#ifndef KOLO_LIGHTGBM_HPP
#define KOLO_LIGHTGBM_HPP

#include <cstdint>

#include <kolo/context.hpp>
#include <kolo/export.hpp>

namespace kolo::lightgbm {

/// From now on LightGBM, on this thread, reaches the other ranks of the group through Kolo. Collective: every rank of
/// the group calls it, on the thread that will train. It makes a group of its own, so that LightGBM's calls and the
/// program's have nothing to do with each other. In a group of one LightGBM stays alone. Sums are added in the order of
/// LightGBM's own network, so models are the same to the last bit.
///
/// If a collective fails, LightGBM's function returns -1, and LGBM_GetLastError has Kolo's sentence.
///
/// Throws `Error`: invalid_argument if no lib_lightgbm is loaded, or this thread has attached already; and what
/// `Group::of` throws.
KOLO_API void attach(const Group& group);

/// How many collectives LightGBM has run on this thread since `attach`; 0 if it is not attached.
[[nodiscard]] KOLO_API std::uint64_t calls() noexcept;

/// LightGBM is alone again on this thread; models stay. Does nothing if the thread has not attached. Throws `Error`
/// (invalid_argument) if LightGBM has never called, though the group has several ranks: then what was trained was
/// trained on this rank's data alone. The sentence says what to look at. The thread is detached all the same.
KOLO_API void detach();

}  // namespace kolo::lightgbm

#endif
