// SPDX-License-Identifier: Apache-2.0

/// @file
/// All of Kolo that needs only the standard library. The adapters kolo/mpi.hpp, kolo/cuda.hpp and kolo/libtorch.hpp are
/// included separately; kolo/config.hpp says which of them this build has.
///
/// @mainpage
/// - Start, end and place in the job: kolo::Session, kolo::init, kolo::shutdown, kolo::run_local, kolo::Context,
///   kolo::Group; kolo::rank, kolo::size and so on (context.hpp)
/// - Collectives, and the rules for all of them: collectives.hpp; kolo::Where (group and name); kolo::Handle; small
///   values: objects.hpp; prepared and grouped calls: kolo::Call (call.hpp); uneven data: kolo::join (join.hpp)
/// - From one rank to another: kolo::send, kolo::recv (point_to_point.hpp)
/// - Training: training.hpp, with kolo::DistributedOptimizer, kolo::DistributedSampler, kolo::broadcast_parameters
/// - Gradients that are reduced where they lie: kolo::GradientArena
/// - Tensors are views of the caller's memory: kolo::TensorView, kolo::view (types.hpp)
/// - Errors: kolo::Error, kolo::ErrorCode
/// - Jobs whose ranks may come and go: kolo::elastic (elastic.hpp)
/// - Information: kolo::describe, kolo::settings, kolo::metrics (info.hpp); kolo::devices; kolo::Options::log_sink
/// - For programs that have MPI: kolo::mpi::bootstrap
/// - For C, and whatever can call C: kolo/kolo.h
#ifndef KOLO_KOLO_HPP
#define KOLO_KOLO_HPP

#include <kolo/call.hpp>
#include <kolo/collectives.hpp>
#include <kolo/config.hpp>
#include <kolo/context.hpp>
#include <kolo/devices.hpp>
#include <kolo/elastic.hpp>
#include <kolo/error.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/handle.hpp>
#include <kolo/info.hpp>
#include <kolo/join.hpp>
#include <kolo/log.hpp>
#include <kolo/looking.hpp>
#include <kolo/objects.hpp>
#include <kolo/options.hpp>
#include <kolo/point_to_point.hpp>
#include <kolo/store.hpp>
#include <kolo/training.hpp>
#include <kolo/types.hpp>
#include <kolo/where.hpp>

#endif  // KOLO_KOLO_HPP
