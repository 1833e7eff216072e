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
#include <string_view>

#include <kolo/context.hpp>
#include <kolo/export.hpp>

namespace kolo::lightgbm {

/// From now on LightGBM, on this thread, reaches the other ranks of the group through Kolo. Collective: every rank of
/// the group calls it, on the thread that will train. It makes a group of its own, so that LightGBM's calls and the
/// program's have nothing to do with each other. In a group of one LightGBM stays alone. Sums are added in the order of
/// LightGBM's own network, so models are the same to the last bit.
///
/// If a collective fails, LightGBM's function returns -1, and LGBM_GetLastError has Kolo's sentence. All ranks end a
/// training at the same iteration. If one ends it while others go on (by early stopping, or by an error), the others'
/// collective and its own `end_training` or `detach` fail with one sentence, which names the ranks.
///
/// Throws `Error`: invalid_argument if no lib_lightgbm is loaded, or this thread has attached already; and what
/// `Group::of` throws.
KOLO_API void attach(const Group& group);

/// How many collectives LightGBM has run on this thread since `attach`; 0 if it is not attached.
[[nodiscard]] KOLO_API std::uint64_t calls() noexcept;

/// A training has ended on this rank. `reason`: the error that has ended it, which the others are told; empty: it is
/// complete. Collective: returns when every rank of the group has called it or `detach`. Throws `Error` (mismatch) if
/// LightGBM goes on on another rank. Does nothing if the thread has not attached, if LightGBM has not called since the
/// last `end_training`, or if a collective of LightGBM's has failed: then the others know.
KOLO_API void end_training(std::string_view reason = {});

/// LightGBM is alone again on this thread; models stay. Does nothing if the thread has not attached. Collective, for it
/// ends a training, as `end_training` does. Throws `Error` (invalid_argument) if LightGBM has never called, though the
/// group has several ranks: then what was trained was trained on this rank's data alone. The sentence says what to look
/// at. The thread is detached all the same.
KOLO_API void detach();

}  // namespace kolo::lightgbm

#endif
