// SPDX-License-Identifier: Apache-2.0
//
// One collective of any kind on tensors of a device, with what it must give: for tests that go through all of them, in
// order or at random. Made alike on all ranks of a group, with the same arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/backend.hpp"
#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {

inline constexpr core::CollectiveKind kKinds[] = {
    core::CollectiveKind::allreduce,      core::CollectiveKind::broadcast, core::CollectiveKind::allgather,
    core::CollectiveKind::reduce_scatter, core::CollectiveKind::alltoall,  core::CollectiveKind::alltoall_splits,
    core::CollectiveKind::reduce,         core::CollectiveKind::gather,    core::CollectiveKind::scatter,
    core::CollectiveKind::alltoall_known};

inline constexpr DType kTypes[] = {DType::boolean,  DType::int8,    DType::int16,  DType::int32,  DType::int64,
                                   DType::uint8,    DType::uint16,  DType::uint32, DType::uint64, DType::float16,
                                   DType::bfloat16, DType::float32, DType::float64};

struct AnyArguments {
  core::CollectiveKind kind = core::CollectiveKind::allreduce;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  bool in_place = true;    ///< where the kind has that: else with an output of its own
  std::int64_t rows = 1;   ///< roughly; what differs by rank is made of it
  std::int64_t width = 1;  ///< elements of a row
  int root = 0;
  bool scaled = false;  ///< with a prescale and a postscale, where the type and the operation allow it
  std::optional<DType> send_as;
};

/// Whether `KOLO_GPU_BACKEND` can run it.
inline bool is_supported(const AnyArguments& arguments, bool nccl) {
  if (!core::traits_of(arguments.kind).reduces) return true;
  if (!exact::is_defined(arguments.dtype, arguments.op)) return false;
  if (nccl && exact::is_bitwise(arguments.op))
    return arguments.dtype == DType::boolean && arguments.op != ReduceOp::bit_xor;
  return !nccl || (arguments.dtype != DType::int16 && arguments.dtype != DType::uint16);
}

inline std::string to_string(const AnyArguments& arguments) {
  std::string text = std::string(core::to_string(arguments.kind)) + " of " + std::to_string(arguments.rows) + "x" +
                     std::to_string(arguments.width) + " " + std::string(kolo::to_string(arguments.dtype));
  if (core::traits_of(arguments.kind).reduces) text += ", " + std::string(kolo::to_string(arguments.op));
  if (arguments.scaled) text += ", scaled";
  if (arguments.send_as) text += ", sent as " + std::string(kolo::to_string(*arguments.send_as));
  return text + (arguments.in_place ? ", in place" : ", apart");
}

class AnyCollective {
 public:
  /// `misalignment` in elements; of this rank alone.
  AnyCollective(std::string name, const AnyArguments& arguments, cudaStream_t stream, std::size_t misalignment,
                const Group& group = world())
      : name_(std::move(name)), is_(arguments), stream_(stream), group_(group) {
    is_.scaled =
        is_.scaled && is_floating_point(is_.dtype) && is_.op == ReduceOp::sum && core::traits_of(is_.kind).reduces;
    if (is_.kind == core::CollectiveKind::reduce_scatter) is_.rows += size();
    for (int to = 0; to < size(); ++to) splits_.push_back(split(rank(), to));
    for (int from = 0; from < size(); ++from) received_splits_.push_back(split(from, rank()));
    const bool has_in_place = is_.kind == core::CollectiveKind::allreduce ||
                              is_.kind == core::CollectiveKind::broadcast || is_.kind == core::CollectiveKind::reduce ||
                              is_.kind == core::CollectiveKind::reduce_scatter;
    is_.in_place = is_.in_place && has_in_place;
    const std::size_t offset = misalignment * size_of(is_.dtype);
    in_ = std::make_unique<DeviceTensor>(is_.dtype, input_rows(rank()) * is_.width, stream, offset);
    if (!is_.in_place) out_ = std::make_unique<DeviceTensor>(is_.dtype, output_rows() * is_.width, stream, offset);
  }

  [[nodiscard]] const AnyArguments& arguments() const { return is_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  /// Writes the input, as the stream's work, and submits.
  [[nodiscard]] Handle start(std::int64_t step) {
    step_ = step;
    in_->write(input(rank()));
    const TensorView in = in_->view(Shape{input_rows(rank()), is_.width});
    const TensorView out = out_ ? out_->view(Shape{output_rows(), is_.width}) : in;
    switch (is_.kind) {
    case core::CollectiveKind::allreduce:
      return out_ ? allreduce_into_async({group_, name_}, in, out, options<AllreduceOptions>())
                  : allreduce_async({group_, name_}, in, options<AllreduceOptions>());
    case core::CollectiveKind::broadcast:
      return out_ ? broadcast_into_async({group_, name_}, in, out, is_.root)
                  : broadcast_async({group_, name_}, in, is_.root);
    case core::CollectiveKind::reduce:
      if (!out_) return reduce_async({group_, name_}, in, is_.root, options<ReduceOptions>());
      return reduce_into_async({group_, name_}, in, is_root() ? std::optional<TensorView>(out) : std::nullopt, is_.root,
                               options<ReduceOptions>());
    case core::CollectiveKind::allgather:
      return allgather_into_async({group_, name_}, in, out);
    case core::CollectiveKind::gather:
      return gather_into_async({group_, name_}, in, is_root() ? std::optional<TensorView>(out) : std::nullopt,
                               is_.root);
    case core::CollectiveKind::scatter:
      return scatter_into_async({group_, name_}, is_root() ? std::optional<ConstTensorView>(in) : std::nullopt, out,
                                is_.root, splits_);
    case core::CollectiveKind::alltoall:
      return alltoall_into_async({group_, name_}, in, out);
    case core::CollectiveKind::alltoall_splits:
      return alltoall_into_async({group_, name_}, in, out, splits_);
    case core::CollectiveKind::alltoall_known:
      return alltoall_known_into_async({group_, name_}, in, out, splits_, received_splits_);
    default:
      return reduce_scatter_into_async({group_, name_}, in, out_ ? out : own_rows(), options<ReduceScatterOptions>());
    }
  }

  /// Once its stream is behind it.
  void expect_result() const {
    const std::string what = name_ + ", " + to_string(is_) + ", step " + std::to_string(step_) + ", rank " +
                             std::to_string(rank()) + " of " + std::to_string(size()) + " (" +
                             std::to_string(kolo::rank()) + " of the world)";
    if ((is_.kind == core::CollectiveKind::reduce || is_.kind == core::CollectiveKind::gather) && !is_root()) {
      EXPECT_EQ(in_->read(), input(rank())) << what << ": the input";
      return;
    }
    Bytes got = (out_ ? *out_ : *in_).read();
    if (is_.kind == core::CollectiveKind::reduce_scatter && !out_) {  // the others' rows are undefined
      const auto* begin = got.data() + own().begin * row_bytes();
      got = Bytes(begin, begin + own().count * row_bytes());
    }
    EXPECT_EQ(got, wanted()) << what;
    if (out_) {
      EXPECT_EQ(in_->read(), input(rank())) << what << ": the input";
    }
  }

 private:
  template <class Options>
  [[nodiscard]] Options options() const {
    Options options(is_.op);
    if (is_.scaled) options.with_prescale(2.0).with_postscale(0.5);
    options.send_as = is_.send_as;
    return options;
  }
  // Of the group.
  [[nodiscard]] int rank() const { return kolo::rank(group_); }
  [[nodiscard]] int size() const { return kolo::size(group_); }
  [[nodiscard]] bool is_root() const { return is_.root == rank(); }
  [[nodiscard]] data::RowsOf own() const { return {is_.rows, rank(), size()}; }
  [[nodiscard]] std::int64_t row_bytes() const { return is_.width * static_cast<std::int64_t>(size_of(is_.dtype)); }
  [[nodiscard]] std::int64_t split(int from, int to) const { return (is_.rows + from + 2 * to) % 3 * is_.rows / 2; }
  [[nodiscard]] TensorView own_rows() const {
    const TensorView all = in_->view();
    return {static_cast<std::byte*>(all.data()) + own().begin * row_bytes(), is_.dtype, Shape{own().count, is_.width},
            all.device(), all.stream()};
  }
  [[nodiscard]] std::int64_t input_rows(int of) const {
    switch (is_.kind) {
    case core::CollectiveKind::allgather:
    case core::CollectiveKind::gather:
      return of == 1 ? 0 : is_.rows + of;
    case core::CollectiveKind::alltoall:
      return is_.rows * size();
    case core::CollectiveKind::scatter:
    case core::CollectiveKind::alltoall_splits:
    case core::CollectiveKind::alltoall_known: {
      std::int64_t rows = 0;
      for (int to = 0; to < size(); ++to) rows += split(is_.kind == core::CollectiveKind::scatter ? is_.root : of, to);
      return rows;
    }
    default:
      return is_.rows;
    }
  }
  [[nodiscard]] std::int64_t output_rows() const {
    std::int64_t rows = 0;
    switch (is_.kind) {
    case core::CollectiveKind::allgather:
    case core::CollectiveKind::gather:
      for (int from = 0; from < size(); ++from) rows += input_rows(from);
      return rows;
    case core::CollectiveKind::alltoall_splits:
    case core::CollectiveKind::alltoall_known:
      for (int from = 0; from < size(); ++from) rows += split(from, rank());
      return rows;
    case core::CollectiveKind::scatter:
      return split(is_.root, rank());
    case core::CollectiveKind::reduce_scatter:
      return own().count;
    default:
      return input_rows(rank());
    }
  }
  [[nodiscard]] Bytes input(int of) const {
    return given_values(is_.dtype, is_.op, input_rows(of) * is_.width, step_, of, size());
  }
  [[nodiscard]] Bytes wanted() const {
    const std::int64_t first = is_.kind == core::CollectiveKind::reduce_scatter ? own().begin * is_.width : 0;
    if (core::traits_of(is_.kind).reduces) {
      const std::int64_t rows = first > 0 || is_.kind == core::CollectiveKind::reduce_scatter ? own().count : is_.rows;
      return reduced_values(is_.dtype, is_.op, rows * is_.width, first + step_, size());
    }
    if (is_.kind == core::CollectiveKind::broadcast) return input(is_.root);
    Bytes all;
    for (int from = 0; from < size(); ++from) {
      if (is_.kind == core::CollectiveKind::scatter && from != is_.root) continue;
      const Bytes said = input(from);
      std::int64_t skip = 0;
      std::int64_t rows = input_rows(from);
      if (is_.kind == core::CollectiveKind::alltoall) {
        skip = rank() * is_.rows;
        rows = is_.rows;
      } else if (is_.kind == core::CollectiveKind::alltoall_splits ||
                 is_.kind == core::CollectiveKind::alltoall_known || is_.kind == core::CollectiveKind::scatter) {
        for (int to = 0; to < rank(); ++to) skip += split(from, to);
        rows = split(from, rank());
      }
      all.insert(all.end(), said.begin() + skip * row_bytes(), said.begin() + (skip + rows) * row_bytes());
    }
    return all;
  }

  const std::string name_;
  AnyArguments is_;
  const cudaStream_t stream_;
  const Group group_;
  std::int64_t step_ = 0;
  std::vector<std::int64_t> splits_;
  std::vector<std::int64_t> received_splits_;
  std::unique_ptr<DeviceTensor> in_;
  std::unique_ptr<DeviceTensor> out_;
};

/// The collective's stream is behind it, or the host.
inline void finish(Handle& handle, const AnyCollective& collective, bool on_host) {
  if (!on_host) {
    follow(handle, collective.stream());
    return;
  }
  handle.wait();
  emulated::acquire_all();
}

}  // namespace kolo::cuda::test
