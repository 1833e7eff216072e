// SPDX-License-Identifier: Apache-2.0

/// @file
/// All of Kolo that needs nothing but the standard library. Adapters are apart: kolo/mpi.hpp, kolo/cuda.hpp,
/// kolo/libtorch.hpp; kolo/config.hpp says which of them there are.
///
/// @mainpage
/// - Life and place: kolo::Session, kolo::init, kolo::shutdown, kolo::run_local, kolo::Context, kolo::Group;
///   kolo::rank, kolo::size and so on (context.hpp)
/// - Collectives, and what holds for all of them: collectives.hpp; kolo::Handle; small values: objects.hpp; collectives
///   as values, to prepare any of them, or to make several as one: kolo::Call (call.hpp); uneven data: kolo::join
/// - From one rank to another: kolo::send, kolo::recv (point_to_point.hpp)
/// - Training: training.hpp, with kolo::DistributedOptimizer, kolo::DistributedSampler, kolo::broadcast_parameters
/// - Gradients that are reduced where they lie: kolo::GradientArena
/// - Tensors are views of the caller's memory: kolo::TensorView, kolo::view (types.hpp)
/// - What may go wrong: kolo::Error, kolo::ErrorCode
/// - Looking: kolo::describe, kolo::settings, kolo::metrics (info.hpp); kolo::devices; kolo::Options::log_sink
/// - For programs that have MPI: kolo::mpi::bootstrap
#ifndef KOLO_KOLO_HPP
#define KOLO_KOLO_HPP

#include <kolo/call.hpp>
#include <kolo/collectives.hpp>
#include <kolo/config.hpp>
#include <kolo/context.hpp>
#include <kolo/devices.hpp>
#include <kolo/error.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/handle.hpp>
#include <kolo/info.hpp>
#include <kolo/log.hpp>
#include <kolo/objects.hpp>
#include <kolo/options.hpp>
#include <kolo/point_to_point.hpp>
#include <kolo/store.hpp>
#include <kolo/training.hpp>
#include <kolo/types.hpp>

#endif  // KOLO_KOLO_HPP
