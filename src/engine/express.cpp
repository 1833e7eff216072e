// SPDX-License-Identifier: Apache-2.0
//
// Unnamed all-reduces that need not go by the log: what an engine adds to negotiation/express.hpp is how to wait.
//
// A peer that is on its way is looked for without touching the engine: for about as long as it takes a rank with a CPU
// of its own to get there, or as many turns as it takes ranks that share CPUs to have had theirs. After that the peer
// may be waiting for something this engine owes it (an asynchronous operation, a leader's relaying), so the caller
// drives the engine, if nobody does, while it looks. When a waiter's patience is over the call is demoted to the log,
// where waiting costs nothing, has a deadline, and finds out who is missing.
#include <algorithm>

#include "engine/engine.hpp"
#include "kernels/reduce.hpp"

namespace kolo::engine {
namespace {

/// Turns given away before the engine is driven: every rank that shares this CPU should have had one.
constexpr int kTurns = 64;
/// The longest patience, whatever KOLO_SPIN_US says: nobody looks at deadlines meanwhile.
constexpr std::chrono::milliseconds kPatience{10};

}  // namespace

negotiation::ExpressShape express_shape(const base::Settings& settings, const core::Topology& topology) {
  negotiation::ExpressShape shape;
  const bool has_one = topology.node_count() == 1 && settings.express_bytes > 0;
  shape.ranks = has_one ? topology.local_size() : 0;
  shape.payload_bytes = static_cast<std::size_t>(settings.express_bytes);
  return shape;
}

bool Engine::express_allreduce(const Buffer& buffer, DType dtype, const Shape& shape, const AllreduceOptions& options) {
  const std::size_t bytes = static_cast<std::size_t>(buffer.elements) * size_of(dtype);
  if (!express_ || !express_open_.load(std::memory_order_acquire) || bytes > express_->capacity()) {
    decline_express();
    return false;
  }
  using negotiation::Express;
  express_->say(Express::tag_of(options.op, dtype, shape, options.prescale, options.postscale), buffer.input, bytes);
  if (await_express() != Express::Verdict::together) return false;
  for (int rank = 0; rank < express_->ranks(); ++rank) {
    express_inputs_[static_cast<std::size_t>(rank)] =
        rank == topology_.local_rank ? buffer.input : express_->input_of(rank, bytes);
  }
  const std::int64_t divisor = options.op == ReduceOp::average ? topology_.size : 1;
  kernels::reduce({dtype, options.op, {options.prescale, options.postscale, divisor}}, express_inputs_.data(),
                  express_->ranks(), buffer.output, buffer.elements);
  const auto add = [](std::atomic<std::uint64_t>& counter, std::uint64_t amount) {  // one writer at a time
    counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  };
  add(expressed_, 1);
  add(expressed_bytes_, bytes);
  return true;
}

void Engine::decline_express() {
  if (!express_) return;
  if (express_open_.load(std::memory_order_acquire)) {
    express_->say_by_log();
  } else {
    express_->pass_over();
  }
}

negotiation::Express::Verdict Engine::await_express() {
  using negotiation::Express;
  base::Waiter waiter(wait_policy_);
  Express::Verdict verdict = express_->look();
  for (int steps = wait_policy_.pauses_before_yield + kTurns; steps > 0 && verdict == Express::Verdict::undecided;
       --steps) {
    waiter.step();
    verdict = express_->look();
  }
  if (verdict != Express::Verdict::undecided) return verdict;
  const auto decided = [this] { return express_->look() != Express::Verdict::undecided; };
  help_until(decided, base::now() + std::min<base::Duration>(wait_policy_.active, kPatience));
  return express_->demote();
}

}  // namespace kolo::engine
