// SPDX-License-Identifier: Apache-2.0
#include "data/layout.hpp"

#include "base/check.hpp"

namespace kolo::data {
namespace {

Run make_prototype(const core::Signature& signature, DType dtype, std::int64_t divisor) {
  Run run;
  run.kind = signature.kind;
  run.dtype = dtype;
  run.op = signature.op == ReduceOp::average ? ReduceOp::sum : signature.op;
  run.divisor = signature.op == ReduceOp::average ? divisor : 1;
  run.prescale = signature.prescale;
  run.postscale = signature.postscale;
  run.wire = core::wire_of(dtype, signature.wire);
  run.root = signature.root;
  return run;
}

/// Whether elements of both may lie in one stream.
bool can_share(const Run& a, const Run& b) {
  return core::traits_of(a.kind).fuses && a.kind == b.kind && a.dtype == b.dtype && a.root == b.root && a.op == b.op &&
         a.wire == b.wire && a.divisor == b.divisor && a.prescale == b.prescale && a.postscale == b.postscale;
}

RunLayout& run_for(Layout& layout, const Run& prototype) {
  for (RunLayout& run : layout.runs) {
    if (can_share(run.prototype, prototype)) return run;
  }
  return layout.runs.emplace_back(RunLayout{prototype, {}});
}

/// Whether a run of this kind is known by its elements alone.
bool is_plain(core::CollectiveKind kind) {
  const core::CollectiveTraits& traits = core::traits_of(kind);
  return traits.fuses && traits.shapes == core::Shapes::same;
}

}  // namespace

Layout make_layout(const std::vector<const core::Signature*>& members, std::int64_t divisor) {
  KOLO_CHECK(divisor >= 1) << "an average over " << divisor << " ranks";
  Layout layout;
  for (std::uint32_t member = 0; member < members.size(); ++member) {
    const core::Signature& signature = *members[member];
    const core::CollectiveTraits& traits = core::traits_of(signature.kind);
    if (traits.shapes == core::Shapes::none) continue;
    for (std::uint32_t tensor = 0; tensor < signature.tensors.size(); ++tensor) {
      const core::TensorSignature& part = signature.tensors[tensor];
      RunLayout& run = run_for(layout, make_prototype(signature, part.dtype, divisor));
      // Where the signature leaves the first dimension out, how much each rank has is known to the rank alone.
      const std::int64_t elements = traits.rows_differ ? 0 : part.shape.elements();
      if (traits.rows_differ) run.prototype.row_elements = part.shape.elements();
      if (traits.shapes == core::Shapes::own_rows) run.prototype.rows = part.shape[0];
      run.pieces.push_back({member, tensor, elements});
      run.prototype.elements += elements;
      if (signature.tensors.size() != 1 || !is_plain(signature.kind)) continue;
      // More of the same: many calls of one signature share the object.
      for (; member + 1 < members.size() && members[member + 1] == &signature; run.prototype.elements += elements) {
        run.pieces.push_back({++member, 0, elements});
      }
    }
  }
  return layout;
}

}  // namespace kolo::data
