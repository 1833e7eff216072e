// SPDX-License-Identifier: Apache-2.0
#include "optimizer/reductions.hpp"

#include <string>
#include <utility>

#include <kolo/collectives.hpp>

#include "optimizer/compressed_gradient.hpp"
#include "optimizer/elements.hpp"

namespace kolo::optimizer {
namespace {

using Gradients = std::vector<Gradient>;

// ---------------------------------------------------------------- prepared requests

/// Reductions of one call each, which are prepared.
class PreparedReductions : public Reductions {
 public:
  PreparedReductions(const Group& group, const DistributedOptimizerOptions& options, Gradients& gradients)
      : Reductions(group, options, gradients), requests_(gradients.size()) {}

  void prepare_all() {
    for_each_view([&](std::size_t i, const Gradient&) { prepare(i, options_.accumulation_steps); });
  }
  Handle start(std::size_t index, int micro_steps) override {
    if (requests_[index].micro_steps != micro_steps) prepare(index, micro_steps);
    return requests_[index].prepared.start();
  }

 protected:
  [[nodiscard]] virtual Call call_of(const Gradient& gradient, int micro_steps) const = 0;

  template <class CallOptions>
  [[nodiscard]] CallOptions options_of(const Gradient& gradient) const {
    CallOptions reduce;
    reduce.timeout = options_.timeout;
    reduce.send_as = options_.send_gradients_as;
    reduce.priority = gradient.priority;
    return reduce;
  }
  template <class CallOptions>
  static void average(CallOptions& reduce, int micro_steps) {
    reduce.op = ReduceOp::average;
    reduce.postscale = 1.0 / micro_steps;
  }

 private:
  void prepare(std::size_t index, int micro_steps) {
    Request& request = requests_[index];
    request = Request();  // which gives its name back
    request.prepared = reserve(group_, options_.name, gradients_[index].name, call_of(gradients_[index], micro_steps));
    request.micro_steps = micro_steps;
  }

  struct Request {
    Prepared prepared;
    int micro_steps = 0;  // over which an average is; 0: it is not prepared
  };
  std::vector<Request> requests_;  // by gradient
};

class WholeReductions final : public PreparedReductions {
 public:
  using PreparedReductions::PreparedReductions;
  void finish(std::vector<Handle>& handles, int /*micro_steps*/, double /*ranks*/) override { wait_all(handles); }

 private:
  Call call_of(const Gradient& gradient, int micro_steps) const override {
    auto reduce = options_of<AllreduceOptions>(gradient);
    if (options_.op == ReduceOp::average) average(reduce, micro_steps);
    return Call::allreduce(*gradient.view, reduce);
  }
};

class PieceReductions : public PreparedReductions {
 public:
  using PreparedReductions::PreparedReductions;
  void finish(std::vector<Handle>& handles, int micro_steps, double ranks) override {
    wait_all(handles);
    if (options_.op != ReduceOp::average) return;
    for_each_view([&](std::size_t, const Gradient& gradient) {
      if (is_divided_late(gradient, micro_steps)) {
        divide(*gradient.piece, ranks, 1.0 / micro_steps);
      } else if (ranks != size(group_)) {
        divide_anew(gradient, micro_steps, ranks);
      }
    });
  }

 protected:
  Call call_of(const Gradient& gradient, int micro_steps) const override {
    auto reduce = options_of<ReduceScatterOptions>(gradient);
    if (options_.op == ReduceOp::average && !is_divided_late(gradient, micro_steps)) average(reduce, micro_steps);
    return Call::reduce_scatter_into(flat(*gradient.view, 0, gradient.view->elements()), *gradient.piece, reduce);
  }

 private:
  /// Whether this object can divide the average out of the piece as the reduction would.
  [[nodiscard]] bool can_be_divided(const Gradient& gradient) const {
    return !options_.send_gradients_as && !objection_to(*gradient.piece);
  }
  /// The average is divided out of the piece, which has only been summed.
  [[nodiscard]] bool is_divided_late(const Gradient& gradient, int micro_steps) const {
    const auto divisor = static_cast<unsigned>(size(group_)) * static_cast<unsigned>(micro_steps);
    return can_be_divided(gradient) && (divisor & (divisor - 1)) != 0;
  }
  /// Makes an average over all ranks one over so many.
  void divide_anew(const Gradient& gradient, int micro_steps, double ranks) const {
    if (can_be_divided(gradient)) return divide(*gradient.piece, ranks / size(group_) / micro_steps, 1.0 / micro_steps);
    const auto what = [&gradient] {
      return "an average without all ranks of " + quoted_name(gradient.name) + ", which";
    };
    check_computable("ShardedOptimizer", what, *gradient.piece);
    scale(*gradient.piece, size(group_) / ranks);
  }
};

/// Of gradients that lie elsewhere in every step: nothing is prepared.
class MovingPieceReductions final : public PieceReductions {
 public:
  using PieceReductions::PieceReductions;
  Handle start(std::size_t index, int micro_steps) override {
    const Gradient& gradient = gradients_[index];
    return kolo::start({group_, options_.name + '/' + gradient.name}, call_of(gradient, micro_steps));
  }
};

template <class Kind>
std::unique_ptr<Reductions> prepared(const Group& group, const DistributedOptimizerOptions& options,
                                     Gradients& gradients) {
  auto made = std::make_unique<Kind>(group, options, gradients);
  made->prepare_all();
  return made;
}

// ---------------------------------------------------------------- blocks of 8 bits

/// What both kinds in blocks share: the exchange, and what rounding has lost.
class BlockReductions : public Reductions {
 public:
  /// `gathers`: every rank gets all of a gradient.
  BlockReductions(const Group& group, Span<const Parameter> parameters, const DistributedOptimizerOptions& options,
                  Gradients& gradients, bool gathers)
      : Reductions(group, options, gradients), compressed_(gradients.size()) {
    for_each_view([&](std::size_t i, const Gradient& gradient) {
      compressed_[i] = std::make_unique<CompressedGradient>(group, options.name + '/' + gradient.name, *gradient.view,
                                                            gathers, options, gradient.priority);
      places_.push_back({"compression/" + gradient.name, piece_of(group, parameters[i].value)});
    });
  }

  Handle start(std::size_t index, int /*micro_steps*/) override {
    return compressed_[index]->start(*gradients_[index].view);
  }

  std::vector<ConstNamedView> state() override {
    std::vector<ConstNamedView> views;
    for_each_view([&](std::size_t i, const Gradient& gradient) {
      views.push_back({"compression/" + gradient.name, compressed_[i]->lost()});
    });
    return views;
  }
  std::vector<NamedView> begin_load() override {
    std::vector<NamedView> views;
    for_each_view([&](std::size_t i, const Gradient& gradient) {
      views.push_back({"compression/" + gradient.name, compressed_[i]->lost_to_load()});
    });
    return views;
  }
  void end_load() override {
    for_each_view([&](std::size_t i, const Gradient&) { compressed_[i]->load_lost(); });
  }
  Span<const Parameter> places() const override { return places_; }

 protected:
  /// Calls `body` with each gradient that was started and its handle, in the order of the starts, once the pieces of
  /// the others have come.
  template <class Body>
  void as_they_come(std::vector<Handle>& handles, const Body& body) {
    std::vector<std::size_t> order(handles.size());
    for_each_view([&](std::size_t i, const Gradient& gradient) { order[*gradient.at] = i; });
    for (std::size_t at = 0; at < handles.size(); ++at) {
      handles[at].wait();
      body(order[at], handles[at]);
    }
  }

  std::vector<std::unique_ptr<CompressedGradient>> compressed_;  // by gradient; null: a buffer

 private:
  std::vector<Parameter> places_;
};

class WholeBlockReductions final : public BlockReductions {
 public:
  using BlockReductions::BlockReductions;
  void finish(std::vector<Handle>& handles, int micro_steps, double /*ranks*/) override {
    const double divisor = options_.op == ReduceOp::average ? static_cast<double>(size(group_)) * micro_steps : 1;
    as_they_come(handles, [&](std::size_t i, Handle& handle) {
      const TensorView piece = piece_of(group_, *gradients_[i].view);
      compressed_[i]->sum(piece);
      if (divisor != 1) divide(piece, divisor, 1);
      handle = compressed_[i]->start_gather(piece, divisor);
    });
    wait_all(handles);
    for_each_view([&](std::size_t i, const Gradient& gradient) { compressed_[i]->finish(*gradient.view); });
  }
};

class PieceBlockReductions final : public BlockReductions {
 public:
  using BlockReductions::BlockReductions;
  void finish(std::vector<Handle>& handles, int micro_steps, double ranks) override {
    as_they_come(handles, [&](std::size_t i, const Handle&) {
      const TensorView& piece = *gradients_[i].piece;
      compressed_[i]->sum(piece);
      if (options_.op == ReduceOp::average) divide(piece, ranks, 1.0 / micro_steps);
    });
  }
};

}  // namespace

std::unique_ptr<Reductions> Reductions::make(const Group& group, Span<const Parameter> parameters,
                                             const DistributedOptimizerOptions& options, Gradients& gradients,
                                             detail::GradientReducer::Gets gets) {
  using Gets = detail::GradientReducer::Gets;
  if (options.compression == Compression::int8_blocks) {
    if (gets == Gets::all) return std::make_unique<WholeBlockReductions>(group, parameters, options, gradients, true);
    return std::make_unique<PieceBlockReductions>(group, parameters, options, gradients, false);
  }
  if (gets == Gets::all) return prepared<WholeReductions>(group, options, gradients);
  if (gets == Gets::own_piece) return prepared<PieceReductions>(group, options, gradients);
  return std::make_unique<MovingPieceReductions>(group, options, gradients);
}

}  // namespace kolo::optimizer
