// SPDX-License-Identifier: Apache-2.0
//
// All of Kolo that needs nothing but the standard library. Adapters are apart: <kolo/mpi.hpp>.
#ifndef KOLO_KOLO_HPP
#define KOLO_KOLO_HPP

#include <kolo/collectives.hpp>
#include <kolo/context.hpp>
#include <kolo/error.hpp>
#include <kolo/handle.hpp>
#include <kolo/info.hpp>
#include <kolo/log.hpp>
#include <kolo/objects.hpp>
#include <kolo/options.hpp>
#include <kolo/training.hpp>
#include <kolo/types.hpp>

#endif  // KOLO_KOLO_HPP
