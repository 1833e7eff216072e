// SPDX-License-Identifier: Apache-2.0
//
// Everything a data-parallel trainer needs on top of the collectives. docs/writing-a-trainer.md shows it at work.
#ifndef KOLO_TRAINING_HPP
#define KOLO_TRAINING_HPP

#include <kolo/checkpoint.hpp>
#include <kolo/distributed_optimizer.hpp>
#include <kolo/loss_scaler.hpp>
#include <kolo/mesh.hpp>
#include <kolo/optimizers.hpp>
#include <kolo/parameters.hpp>
#include <kolo/sampler.hpp>
#include <kolo/sharded_optimizer.hpp>

#endif  // KOLO_TRAINING_HPP
