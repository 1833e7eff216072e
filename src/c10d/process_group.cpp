// SPDX-License-Identifier: Apache-2.0
#include "c10d/process_group.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <kolo/collectives.hpp>

#include "c10d/device_work.hpp"
#include "c10d/errors.hpp"
#include "c10d/streams.hpp"

namespace kolo::c10d {
namespace {

const at::Tensor& only(const char* call, const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1) {
    raise(call, ErrorCode::invalid_argument,
          "it takes one tensor of each rank, and " + std::to_string(tensors.size()) + " were given");
  }
  return tensors.front();
}

const std::vector<at::Tensor>& only(const char* call, const std::vector<std::vector<at::Tensor>>& lists) {
  if (lists.size() != 1) {
    raise(call, ErrorCode::invalid_argument,
          "it takes one list of tensors of each rank, and " + std::to_string(lists.size()) + " were given");
  }
  return lists.front();
}

void check_one_a_rank(const char* call, const char* what, const std::vector<at::Tensor>& tensors, int ranks) {
  if (tensors.size() == static_cast<std::size_t>(ranks)) return;
  raise(call, ErrorCode::invalid_argument,
        "the list of " + std::string(what) + " has " + std::to_string(tensors.size()) + " tensors; on " +
            std::to_string(ranks) + " ranks it must have as many");
}

void check_same_length(const char* call, std::size_t outputs, std::size_t inputs) {
  if (outputs == inputs) return;
  raise(call, ErrorCode::invalid_argument,
        std::to_string(outputs) + " outputs were given for " + std::to_string(inputs) +
            " inputs; there must be as many");
}

void check_same_type(const char* call, const Packed& output, const Packed& input) {
  if (output.type() == input.type()) return;
  raise(call, ErrorCode::invalid_argument,
        std::string("the output is of type ") + c10::toString(output.type()) + " and the input of " +
            c10::toString(input.type()) + "; they must be the same");
}

void check_elements(const char* call, const char* what, std::int64_t given, std::int64_t wanted) {
  if (given == wanted) return;
  raise(call, ErrorCode::invalid_argument,
        "the " + std::string(what) + " has " + std::to_string(given) + " elements; it must have " +
            std::to_string(wanted));
}

/// One Work stands for all operations, and one stream of one device waits for it.
void check_same_device(const char* call, const std::vector<Arguments>& operations) {
  const Arguments& first = operations.front();
  const at::Device expected = (first.in.empty() ? first.out : first.in).device();
  for (const Arguments& arguments : operations) {
    for (const Packed* packed : {&arguments.in, &arguments.out}) {
      if (packed->empty() || packed->device() == expected) continue;
      raise(call, ErrorCode::invalid_argument,
            "the tensors are on " + expected.str() + " and " + packed->device().str() + "; one device is needed");
    }
  }
}

/// Kolo's rows have elements: of tensors that have none there are no rows.
Rows rows_of(std::int64_t count, std::int64_t length) { return length == 0 ? Rows{0, 1} : Rows{count, length}; }

std::vector<at::Tensor> joined(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// Every rank's tensor as a row, where they have as many elements; else each element is one, so that their number may
/// differ by rank.
Arguments gathering(const char* call, std::vector<at::Tensor> outputs, const at::Tensor& input, int rank, int size) {
  Arguments arguments{Packed::to_read(call, {input}), Packed::to_write(call, std::move(outputs))};
  const std::int64_t numel = arguments.in.numel();
  arguments.in_rows = rows_of(1, numel);
  if (arguments.out.empty()) return arguments;
  check_same_type(call, arguments.out, arguments.in);
  if (arguments.out.tensors().size() > 1) {
    check_elements(call, "input", numel, arguments.out.tensors()[static_cast<std::size_t>(rank)].numel());
  }
  if (arguments.out.is_even()) check_elements(call, "output", arguments.out.numel(), numel * size);
  if (arguments.out.is_even() && numel > 0) {
    arguments.out_rows = {size, numel};
  } else {
    arguments.in_rows = {numel, 1};
    arguments.out_rows = {arguments.out.numel(), 1};
  }
  return arguments;
}

Arguments reduce_scattering(const char* call, const at::Tensor& output, std::vector<at::Tensor> inputs, int size) {
  Arguments arguments{Packed::to_read(call, std::move(inputs)), Packed::to_write(call, {output})};
  check_same_type(call, arguments.out, arguments.in);
  check_elements(call, "input", arguments.in.numel(), arguments.out.numel() * size);
  arguments.in_rows = rows_of(size, arguments.out.numel());
  arguments.out_rows = rows_of(1, arguments.out.numel());
  return arguments;
}

/// A reduce for each rank's part.
std::vector<Arguments> reduces_of_parts(const char* call, const at::Tensor& output,
                                        const std::vector<at::Tensor>& inputs, std::size_t rank) {
  const at::Tensor& mine = inputs[rank];
  std::vector<Arguments> operations;
  for (std::size_t root = 0; root < inputs.size(); ++root) {
    operations.push_back({{}, Packed::in_place(call, root == rank ? output : inputs[root]), static_cast<int>(root)});
  }
  check_same_type(call, operations[rank].out, Packed::to_read(call, {mine}));
  check_elements(call, "output", output.numel(), mine.numel());
  operations[rank].out.fill_from(mine);
  return operations;
}

}  // namespace

ProcessGroupKolo::ProcessGroupKolo(const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
                                   std::chrono::milliseconds timeout, World::AtExit at_exit)
    : ProcessGroupKolo(
          translated("init_process_group", [&] { return World::join(store, rank, size, timeout, timeout, at_exit); }),
          timeout) {}

ProcessGroupKolo::ProcessGroupKolo(std::shared_ptr<World> world, std::chrono::milliseconds timeout)
    : Backend(world->context().rank(), world->context().size()), world_(std::move(world)), group_(world_->context()),
      is_world_(true), timeout_(bounded(timeout)) {}

ProcessGroupKolo::ProcessGroupKolo(const ProcessGroupKolo& parent, const std::vector<int>& ranks,
                                   const std::string& name, std::chrono::milliseconds timeout)
    : Backend(static_cast<int>(std::find(ranks.begin(), ranks.end(), parent.rank_) - ranks.begin()),
              static_cast<int>(ranks.size())),
      world_(parent.world_), group_(translated("new_group", [&] { return Group::of(parent.group(), ranks, name); })),
      is_world_(false), timeout_(bounded(timeout)) {}

ProcessGroupKolo::ProcessGroupKolo(const ProcessGroupKolo& other, std::string name)
    : Backend(other.rank_, other.size_), world_(other.world_), group_(other.group_), is_world_(false),
      name_(std::move(name)), timeout_(other.timeout_.load()) {}

ProcessGroupKolo::~ProcessGroupKolo() = default;

World& ProcessGroupKolo::world() const {
  if (!world_) {
    raise("process group", ErrorCode::not_initialized,
          "it has no ranks: it was made with enable_reconfigure, and torch.distributed._reconfigure gives it some");
  }
  return *world_;
}

const Group& ProcessGroupKolo::group() const {
  (void)world();
  return *group_;
}

std::chrono::milliseconds ProcessGroupKolo::or_default(std::chrono::milliseconds timeout) const {
  return timeout == ::c10d::kUnsetTimeout || timeout == kNoTimeout ? timeout_.load() : bounded(timeout);
}

void ProcessGroupKolo::note_device([[maybe_unused]] const std::string& call, at::Device device) {
  if (!device.is_cuda()) return;
#ifdef KOLO_C10D_HAS_NATIVE_STREAMS
  const auto bound = getBoundDeviceId();
  if (bound && bound->is_cuda() && *bound != device) {
    raise(call, ErrorCode::invalid_argument,
          "the tensor is on " + device.str() + ", and this process group was made for " + bound->str() +
              " (device_id)");
  }
#endif
  cuda_device_ = device.index();
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::start(Occasion occasion, const std::function<void(Operation&)>& begin) {
  world().sweep();
  occasion.rank = rank_;
  auto operation = std::make_unique<Operation>();
  try {
    translated(occasion.call, [&] { begin(*operation); });
  } catch (...) {
    operation->abandon(occasion.call + ": not all of its operations could be started");
    throw;
  }
  const bool is_on_cuda = !operation->buffers.empty() && operation->buffers.back().device().is_cuda();
  if (is_on_cuda) return c10::make_intrusive<DeviceWork>(world_, std::move(occasion), std::move(operation));
  return c10::make_intrusive<Work>(world_, std::move(occasion), std::move(operation));
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::start(const Kind& kind, std::vector<Arguments> operations, Tensors results,
                                                  std::chrono::milliseconds timeout, const Reduction& reduction) {
  check_same_device(kind.call, operations);
  Occasion occasion{kind.call, kind.type, kind.title, {}, std::move(results), or_default(timeout), ++sequence_};
  for (Arguments& arguments : operations) {
    const Packed& tensors = arguments.in.empty() ? arguments.out : arguments.in;
    arguments.reduction = reduction;
    arguments.divides = kind.reduces && is_average_of_integers(tensors.type(), reduction.op);
    if (arguments.divides) arguments.reduction.op = ReduceOp::sum;
    arguments.timeout = occasion.timeout;
    arguments.elements =
        kind.reduces ? reduced_elements(kind.call, tensors.type(), reduction.op) : moved_elements(tensors.type());
    if (!name_.empty())
      arguments.name = operations.size() == 1 ? name_ : name_ + '.' + std::to_string(&arguments - operations.data());
    occasion.inputs.insert(occasion.inputs.end(), tensors.tensors().begin(), tensors.tensors().end());
    note_device(kind.call, tensors.device());
  }
  return start(std::move(occasion), [&](Operation& operation) {
    std::vector<Packed> to_divide, to_unpack;
    for (Arguments& arguments : operations) {
      operation.handles.push_back(kind.start(group(), arguments));
      if (arguments.divides && (kind.describe != kReduce.describe || arguments.root == rank_))
        to_divide.push_back(arguments.out);
      if (arguments.out.needs_unpacking()) to_unpack.push_back(arguments.out);
      for (Packed* packed : {&arguments.in, &arguments.out}) {
        if (!packed->empty()) operation.buffers.push_back(std::move(*packed));
      }
    }
    if (to_divide.empty() && to_unpack.empty()) return;
    operation.finish = [to_divide = std::move(to_divide), to_unpack = std::move(to_unpack), divisor = size_] {
      for (const Packed& packed : to_divide) packed.divide_by(divisor);
      for (const Packed& packed : to_unpack) packed.unpack();
    };
  });
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) {
  Arguments arguments{
      {}, Packed::in_place(kBroadcast.call, only(kBroadcast.call, tensors)), static_cast<int>(options.rootRank)};
  return start(kBroadcast, {std::move(arguments)}, tensors, options.timeout);
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(kAllreduce.call, tensors);
  if (tensor.is_sparse()) return sparse_allreduce(tensor, options);
  Arguments arguments{{}, Packed::in_place(kAllreduce.call, tensor)};
  return start(kAllreduce, {std::move(arguments)}, tensors, options.timeout,
               reduction_of(kAllreduce.call, options.reduceOp));
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::allreduce_sparse(Tensors& tensors,
                                                             const ::c10d::AllreduceOptions& options) {
  return allreduce(tensors, options);
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::allreduce_coalesced(Tensors& tensors,
                                                                const ::c10d::AllreduceCoalescedOptions& options) {
  std::vector<Arguments> operations;
  for (const at::Tensor& tensor : tensors)
    operations.push_back({{}, Packed::in_place(kAllreduceCoalesced.call, tensor)});
  return start(kAllreduceCoalesced, std::move(operations), tensors, options.timeout,
               reduction_of(kAllreduceCoalesced.call, options.reduceOp));
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) {
  Arguments arguments{
      {}, Packed::in_place(kReduce.call, only(kReduce.call, tensors)), static_cast<int>(options.rootRank)};
  return start(kReduce, {std::move(arguments)}, tensors, options.timeout, reduction_of(kReduce.call, options.reduceOp));
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                      const ::c10d::AllgatherOptions& options) {
  const at::Tensor& input = only(kAllgather.call, inputs);
  const Tensors& list = only(kAllgather.call, outputs);
  check_one_a_rank(kAllgather.call, "outputs", list, size_);
  return start(kAllgather, {gathering(kAllgather.call, list, input, rank_, size_)}, list, options.timeout);
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const ::c10d::AllgatherOptions& options) {
  return start(kAllgatherBase, {gathering(kAllgatherBase.call, {output}, input, rank_, size_)}, {output},
               options.timeout);
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                                const ::c10d::AllgatherOptions& options) {
  // One list of outputs for each rank, each with an output for each input.
  if (outputs.size() != static_cast<std::size_t>(size_))
    check_same_length(kAllgatherCoalesced.call, outputs.size(), size_);
  std::vector<Arguments> operations;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors from_each;
    for (const Tensors& of_rank : outputs) {
      check_same_length(kAllgatherCoalesced.call, of_rank.size(), inputs.size());
      from_each.push_back(of_rank[i]);
    }
    operations.push_back(gathering(kAllgatherCoalesced.call, std::move(from_each), inputs[i], rank_, size_));
  }
  return start(kAllgatherCoalesced, std::move(operations), joined(outputs), options.timeout);
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                            const ::c10d::AllgatherOptions& options) {
  check_same_length(kAllgatherIntoTensorCoalesced.call, outputs.size(), inputs.size());
  std::vector<Arguments> operations;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operations.push_back(gathering(kAllgatherIntoTensorCoalesced.call, {outputs[i]}, inputs[i], rank_, size_));
  }
  return start(kAllgatherIntoTensorCoalesced, std::move(operations), outputs, options.timeout);
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                   const ::c10d::GatherOptions& options) {
  const at::Tensor& input = only(kGather.call, inputs);
  Tensors list;
  if (rank_ == options.rootRank) {
    list = only(kGather.call, outputs);
    check_one_a_rank(kGather.call, "outputs", list, size_);
  }
  Arguments arguments = gathering(kGather.call, list, input, rank_, size_);
  arguments.root = static_cast<int>(options.rootRank);
  return start(kGather, {std::move(arguments)}, std::move(list), options.timeout);
}

#ifdef KOLO_C10D_HAS_GATHER_SINGLE
ProcessGroupKolo::WorkPtr ProcessGroupKolo::gather_single(at::Tensor& output, at::Tensor& input,
                                                          const ::c10d::GatherOptions& options) {
  Tensors outputs;
  if (rank_ == options.rootRank) outputs.push_back(output);
  Arguments arguments = gathering(kGather.call, outputs, input, rank_, size_);
  arguments.root = static_cast<int>(options.rootRank);
  return start(kGather, {std::move(arguments)}, std::move(outputs), options.timeout);
}
#endif

ProcessGroupKolo::WorkPtr ProcessGroupKolo::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                    const ::c10d::ScatterOptions& options) {
  const at::Tensor& output = only(kScatter.call, outputs);
  Arguments arguments{{}, Packed::to_write(kScatter.call, {output}), static_cast<int>(options.rootRank)};
  arguments.out_rows = rows_of(1, arguments.out.numel());
  if (rank_ == options.rootRank) {
    const Tensors& list = only(kScatter.call, inputs);
    check_one_a_rank(kScatter.call, "inputs", list, size_);
    arguments.in = Packed::to_read(kScatter.call, list);
    check_same_type(kScatter.call, arguments.out, arguments.in);
    if (!arguments.in.is_even()) {
      raise(kScatter.call, ErrorCode::invalid_argument, "the inputs have different numbers of elements");
    }
    check_elements(kScatter.call, "output", arguments.out.numel(), list.front().numel());
    arguments.in_rows = rows_of(size_, list.front().numel());
  }
  return start(kScatter, {std::move(arguments)}, outputs, options.timeout);
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                           const ::c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(kReduceScatter.call, outputs);
  const Tensors& list = only(kReduceScatter.call, inputs);
  check_one_a_rank(kReduceScatter.call, "inputs", list, size_);
  const auto is_like_first = [&](const at::Tensor& input) { return input.numel() == list.front().numel(); };
  if (!std::all_of(list.begin(), list.end(), is_like_first)) {
    const char* call = kReduceScatterUneven.call;
    return start(kReduceScatterUneven, reduces_of_parts(call, output, list, static_cast<std::size_t>(rank_)), outputs,
                 options.timeout, reduction_of(call, options.reduceOp));
  }
  return start(kReduceScatter, {reduce_scattering(kReduceScatter.call, output, list, size_)}, outputs, options.timeout,
               reduction_of(kReduceScatter.call, options.reduceOp));
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                 const ::c10d::ReduceScatterOptions& options) {
  return start(kReduceScatterBase, {reduce_scattering(kReduceScatterBase.call, output, {input}, size_)}, {output},
               options.timeout, reduction_of(kReduceScatterBase.call, options.reduceOp));
}

ProcessGroupKolo::WorkPtr
ProcessGroupKolo::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                  const ::c10d::ReduceScatterOptions& options) {
  const Kind& kind = kReduceScatterTensorCoalesced;
  check_same_length(kind.call, outputs.size(), inputs.size());
  std::vector<Arguments> operations;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operations.push_back(reduce_scattering(kind.call, outputs[i], {inputs[i]}, size_));
  }
  return start(kind, std::move(operations), outputs, options.timeout, reduction_of(kind.call, options.reduceOp));
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<std::int64_t>& output_splits,
                                                          std::vector<std::int64_t>& input_splits,
                                                          const ::c10d::AllToAllOptions& options) {
  const char* call = kAlltoallBase.call;
  Arguments arguments{Packed::to_read(call, {input}), Packed::to_write(call, {output})};
  check_same_type(call, arguments.out, arguments.in);
  const auto rows = [call](const at::Tensor& tensor, const char* what) {
    if (tensor.dim() == 0) raise(call, ErrorCode::invalid_argument, std::string("the ") + what + " is a scalar");
    Rows seen{tensor.size(0), 1};
    for (std::int64_t i = 1; i < tensor.dim(); ++i) seen.length *= tensor.size(i);
    return seen;
  };
  arguments.in_rows = rows(input, "input");
  arguments.out_rows = rows(output, "output");
  // Either list says that lengths may differ; a list that is missing stands for equal parts.
  const auto splits_or_even = [&](const std::vector<std::int64_t>& splits, const Rows& seen, const char* what) {
    if (splits.empty()) {
      if (seen.count % size_ != 0) {
        raise(call, ErrorCode::invalid_argument,
              "the " + std::string(what) + " has " + std::to_string(seen.count) + " rows, which " +
                  std::to_string(size_) + " ranks cannot share evenly");
      }
      return std::vector<std::int64_t>(static_cast<std::size_t>(size_), seen.count / size_);
    }
    std::int64_t sum = 0;
    for (const std::int64_t rows_of_one : splits) sum += rows_of_one;
    if (splits.size() != static_cast<std::size_t>(size_) || sum != seen.count) {
      raise(call, ErrorCode::invalid_argument,
            "the " + std::string(what) + " splits must be one number for each of the " + std::to_string(size_) +
                " ranks, and " + std::to_string(seen.count) + " together");
    }
    return splits;
  };
  std::vector<std::int64_t> splits = splits_or_even(input_splits, arguments.in_rows, "input");
  std::vector<std::int64_t> received = splits_or_even(output_splits, arguments.out_rows, "output");
  if (!input_splits.empty() || !output_splits.empty()) {
    arguments.splits = std::move(splits);
    arguments.received_splits = std::move(received);
  }
  return start(kAlltoallBase, {std::move(arguments)}, {output}, options.timeout);
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const ::c10d::AllToAllOptions& options) {
  check_one_a_rank(kAlltoall.call, "outputs", outputs, size_);
  check_one_a_rank(kAlltoall.call, "inputs", inputs, size_);
  Arguments arguments{Packed::to_read(kAlltoall.call, inputs), Packed::to_write(kAlltoall.call, outputs)};
  check_same_type(kAlltoall.call, arguments.out, arguments.in);
  // Lengths may differ, here or on another rank.
  arguments.in_rows = {arguments.in.numel(), 1};
  arguments.out_rows = {arguments.out.numel(), 1};
  for (const at::Tensor& input : inputs) arguments.splits.push_back(input.numel());
  for (const at::Tensor& output : outputs) arguments.received_splits.push_back(output.numel());
  return start(kAlltoall, {std::move(arguments)}, outputs, options.timeout);
}

ProcessGroupKolo::WorkPtr ProcessGroupKolo::barrier(const ::c10d::BarrierOptions& options) {
  Occasion occasion{"barrier", ::c10d::OpType::BARRIER,     "kolo:barrier", {},
                    {},        or_default(options.timeout), ++sequence_};
  const int device = options.device_ids.empty() ? cuda_device_.load() : static_cast<int>(options.device_ids.front());
  if (takes_cuda() && device >= 0) {
    wait_for_current_stream(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device)));
  }
  const BarrierOptions barrier = BarrierOptions{}.with_timeout(occasion.timeout);
  return start(std::move(occasion), [&](Operation& operation) {
    operation.handles.push_back(std::make_shared<Handle>(barrier_async(group(), barrier)));
  });
}

void ProcessGroupKolo::abandon(const std::string& reason) {
  if (world_) world_->abandon(reason);
}

void ProcessGroupKolo::shutdown() {
  if (!is_world_ || !world_) return;
  translated("destroy_process_group", [&] { world_->leave(); });
}

#ifdef KOLO_C10D_HAS_SPLIT
c10::intrusive_ptr<::c10d::Backend> ProcessGroupKolo::split(const c10::intrusive_ptr<::c10d::Store>&,
                                                            const std::vector<int>& ranks,
                                                            const c10::intrusive_ptr<Options>& options) {
  // PyTorch asks all ranks of the group; those that get no part of it get nothing.
  if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()) return nullptr;
  return c10::make_intrusive<ProcessGroupKolo>(*this, ranks, options->group_name, options->timeout);
}

c10::intrusive_ptr<::c10d::Backend::Options> ProcessGroupKolo::getBackendOptions() {
  return c10::make_intrusive<Options>("kolo", timeout_.load());
}
#endif

}  // namespace kolo::c10d
