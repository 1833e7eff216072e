// SPDX-License-Identifier: Apache-2.0
//
// What the opaque pointers of kolo.h point to.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/call.hpp>
#include <kolo/context.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/handle.hpp>
#include <kolo/kolo.h>
#include <kolo/types.hpp>

struct kolo_group {
  kolo::Group group;
  bool is_world = false;  ///< part of a context, which releases it
};

struct kolo_context {
  enum class Kind { process, separate, borrowed };

  kolo_context(Kind its_kind, kolo::Context& its_context)
      : kind(its_kind), context(&its_context), world{its_context, true} {}
  /// A separate one.
  explicit kolo_context(kolo::Context its_own)
      : kind(Kind::separate), own(std::move(its_own)), context(&*own), world{*context, true} {}

  Kind kind;
  std::optional<kolo::Context> own;
  kolo::Context* context;  ///< gone with the process's own, which `world` knows
  kolo_group world;
};

struct kolo_handle {
  kolo::Handle handle;
  /// Writes what the caller wants of an operation that has succeeded. May be empty.
  std::function<void(kolo::Handle&)> write_outputs;
  bool is_receive = false;
};

struct kolo_result {
  std::optional<kolo::CallResult> call;  ///< of a collective
  std::vector<std::string> bytes;        ///< of anything else
};

struct kolo_prepared {
  kolo::Prepared prepared;
};

struct kolo_arena {
  kolo::GradientArena arena;
};
