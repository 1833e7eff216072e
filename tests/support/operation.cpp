// SPDX-License-Identifier: Apache-2.0
#include "tests/support/operation.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "tests/support/exact_values.hpp"

namespace kolo::testing {
namespace {

constexpr std::size_t kBorder = 64;
constexpr std::byte kPoison{0xA5};

}  // namespace

std::string describe(const Operation& operation) {
  static constexpr const char* kNamesOfKinds[] = {"allreduce",
                                                  "allreduce_into",
                                                  "grouped_allreduce",
                                                  "broadcast",
                                                  "broadcast_into",
                                                  "allgather",
                                                  "allgather_into",
                                                  "reduce_scatter",
                                                  "reduce_scatter_into",
                                                  "reduce",
                                                  "reduce_into",
                                                  "gather",
                                                  "gather_into",
                                                  "scatter_into",
                                                  "alltoall",
                                                  "alltoall_into (equal)",
                                                  "barrier"};
  static_assert(std::size(kNamesOfKinds) == kKinds);
  std::string text = std::string(kNamesOfKinds[static_cast<int>(operation.kind)]) + " '" + operation.name + "' of " +
                     std::string(to_string(operation.dtype)) + ", " + std::string(to_string(operation.op)) +
                     (operation.scaled ? ", scaled" : "") +
                     (operation.send_as ? ", as " + std::string(to_string(*operation.send_as)) : "") +
                     (operation.prepared ? ", prepared" : "") + ", root " + std::to_string(operation.root) +
                     ", elements";
  for (const std::int64_t length : operation.lengths) text += " " + std::to_string(length);
  return text;
}

Memory::Memory(DType dtype, std::int64_t elements, std::size_t misalignment, const Room& room)
    : dtype_(dtype), elements_(elements), begin_(kBorder + misalignment),
      size_(static_cast<std::size_t>(elements) * size_of(dtype)), all_(begin_ + size_ + kBorder) {
  if (room) bytes_ = room(all_);
  if (!bytes_) bytes_ = {new std::byte[all_], std::default_delete<std::byte[]>()};
  poison();
}

void Memory::poison() { std::fill_n(bytes_.get(), all_, kPoison); }

void Memory::check_borders() const {
  const auto untouched = [](std::byte byte) { return byte == kPoison; };
  const std::byte* first = bytes_.get();
  if (!std::all_of(first, first + begin_, untouched)) throw Wrong("bytes before the tensor were written");
  if (!std::all_of(first + begin_ + size_, first + all_, untouched)) {
    throw Wrong("bytes behind the tensor were written");
  }
}

void Memory::check_poison() const {
  const auto untouched = [](std::byte byte) { return byte == kPoison; };
  if (!std::all_of(bytes_.get(), bytes_.get() + all_, untouched)) throw Wrong("memory that is no output was written");
}

InFlight::InFlight(const Group& group, Operation operation, Random& own, const Room& room)
    : group_(group), operation_(std::move(operation)) {
  const auto add = [&](std::deque<Memory>& to, std::int64_t elements) {
    const std::size_t misalignment = chance(own, 50) ? 0 : static_cast<std::size_t>(draw(own, 64));
    to.emplace_back(operation_.dtype, elements, misalignment, room);
  };
  const int rank = kolo::rank(group);
  const int ranks = kolo::size(group);
  switch (operation_.kind) {
  case Kind::grouped:
    for (const std::int64_t elements : operation_.lengths) add(inputs_, elements);
    break;
  case Kind::allgather:
  case Kind::allgather_into:
  case Kind::gather:
  case Kind::gather_into: {
    add(inputs_, length(rank));
    const bool gets = rank == operation_.root || operation_.kind == Kind::allgather_into;
    if (is({Kind::allgather, Kind::gather}) || !(gets || chance(own, 50))) break;
    add(outputs_, std::accumulate(operation_.lengths.begin(), operation_.lengths.end(), std::int64_t{0}));
    const auto before = operation_.lengths.begin() + rank;
    if (gets && chance(own, 50)) place_ = std::accumulate(operation_.lengths.begin(), before, std::int64_t{0});
    break;
  }
  case Kind::scatter_into: {
    const auto begin = operation_.lengths.begin();
    add(inputs_, rank == operation_.root ? std::accumulate(begin, operation_.lengths.end(), std::int64_t{0}) : 3);
    if (rank == operation_.root && chance(own, 50)) {
      place_ = std::accumulate(begin, begin + rank, std::int64_t{0});
    } else {
      add(outputs_, length(rank));
    }
    break;
  }
  case Kind::alltoall:
  case Kind::alltoall_into:
    add(inputs_, sent_before(rank, ranks));
    if (operation_.kind == Kind::alltoall_into) add(outputs_, sent_before(rank, ranks));
    break;
  case Kind::reduce_scatter_into:
    add(inputs_, length(0));
    if (chance(own, 50)) add(outputs_, first_row(rank + 1) - first_row(rank));
    break;
  case Kind::reduce_into:
    add(inputs_, length(0));
    if (rank == operation_.root || chance(own, 50)) add(outputs_, length(0));
    break;
  default:
    add(inputs_, length(0));
    if (is({Kind::allreduce_into, Kind::broadcast_into})) add(outputs_, length(0));
  }
}

bool InFlight::is(std::initializer_list<Kind> kinds) const {
  return std::find(kinds.begin(), kinds.end(), operation_.kind) != kinds.end();
}

bool InFlight::reduces() const {
  return is({Kind::allreduce, Kind::allreduce_into, Kind::grouped, Kind::reduce_scatter, Kind::reduce_scatter_into,
             Kind::reduce, Kind::reduce_into});
}

std::int64_t InFlight::split(int from, int to) const {
  return operation_.kind == Kind::alltoall ? length(from * size(group_) + to) : length(0);
}

std::int64_t InFlight::sent_before(int from, int to) const {
  std::int64_t sum = 0;
  for (int rank = 0; rank < to; ++rank) sum += split(from, rank);
  return sum;
}

std::int64_t InFlight::first_row(int rank) const {
  const std::int64_t ranks = size(group_);
  return length(0) / ranks * rank + std::min<std::int64_t>(rank, length(0) % ranks);
}

AllreduceOptions InFlight::options() const {
  AllreduceOptions options = AllreduceOptions{}.with_op(operation_.op);
  if (operation_.scaled) options.with_prescale(2).with_postscale(1.5);
  options.send_as = operation_.send_as;
  return options;
}

ReduceOptions InFlight::reduce_options() const {
  const AllreduceOptions same = options();
  ReduceOptions options = ReduceOptions(same.op).with_prescale(same.prescale).with_postscale(same.postscale);
  options.send_as = same.send_as;
  return options;
}

std::vector<NamedView> InFlight::members() {
  std::vector<NamedView> members;
  for (Memory& input : inputs_) members.push_back({"member " + std::to_string(members.size()), input.view()});
  return members;
}

bool InFlight::can_prepare() const {
  return !is({Kind::allgather, Kind::gather, Kind::reduce_scatter, Kind::alltoall, Kind::barrier});
}

void InFlight::prepare() {
  if (operation_.kind == Kind::grouped) {
    prepared_ = prepare_grouped_allreduce(group_, operation_.name, members(), options());
  } else if (operation_.kind == Kind::broadcast) {
    prepared_ = prepare_broadcast(group_, operation_.name, inputs_[0].view(), operation_.root);
  } else if (operation_.kind == Kind::allreduce) {
    prepared_ = prepare_allreduce(group_, operation_.name, inputs_[0].view(), options());
  } else {
    prepared_ = kolo::prepare(group_, operation_.name, call());
  }
}

TensorView InFlight::input() {
  const TensorView all = inputs_[0].view();
  if (!place_ || outputs_.empty()) return all;
  return {outputs_[0].element(*place_), operation_.dtype, all.shape()};
}

TensorView InFlight::output() {
  if (!outputs_.empty()) return outputs_[0].view();
  const auto rows_of_input = [&](std::int64_t first, std::int64_t count) {
    return TensorView(inputs_[0].element(first), operation_.dtype, Shape{count});
  };
  if (place_) return rows_of_input(*place_, length(rank(group_)));
  if (operation_.kind != Kind::reduce_scatter_into) return inputs_[0].view();
  const std::int64_t first = first_row(rank(group_));
  return rows_of_input(first, first_row(rank(group_) + 1) - first);
}

/// The splits of a scatter; none where all are equal.
std::vector<std::int64_t> InFlight::dealt() const {
  const std::vector<std::int64_t>& all = operation_.lengths;
  const bool even = std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) == all.end();
  return even ? std::vector<std::int64_t>() : all;
}

/// What gives no result of its own, but is no group.
Call InFlight::call() {
  const TensorView in = input();
  const TensorView out = output();
  const auto at_root = outputs_.empty() ? std::nullopt : std::optional<TensorView>(out);
  const int root = operation_.root;
  switch (operation_.kind) {
  case Kind::allreduce:
    return Call::allreduce(in, options());
  case Kind::allreduce_into:
    return Call::allreduce_into(in, out, options());
  case Kind::broadcast:
    return Call::broadcast(in, root);
  case Kind::broadcast_into:
    return Call::broadcast_into(in, out, root);
  case Kind::allgather_into:
    return Call::allgather_into(in, out);
  case Kind::reduce_scatter_into:
    return Call::reduce_scatter_into(in, out, options());
  case Kind::reduce:
    return Call::reduce(in, root, reduce_options());
  case Kind::reduce_into:
    return Call::reduce_into(in, at_root, root, reduce_options());
  case Kind::gather_into:
    return Call::gather_into(in, at_root, root);
  case Kind::scatter_into:
    return Call::scatter_into(in, out, root, dealt());
  case Kind::alltoall_into:
    return Call::alltoall_into(in, out);
  default:
    throw std::logic_error("there is no such call as a value");
  }
}

/// What element i of the result must be: of a reduction, or else of what `rank` gave.
std::int64_t InFlight::wanted(std::int64_t i, int rank) const {
  const int ranks = size(group_);
  const std::int64_t at = i + operation_.salt;
  if (!reduces()) return value_of(operation_.dtype, ReduceOp::sum, at, rank, ranks);
  const std::int64_t sum = reduced_value(operation_.dtype, operation_.op, at, ranks);
  return operation_.scaled ? 3 * sum : sum;
}

void InFlight::fill() {
  const ReduceOp op = reduces() ? operation_.op : ReduceOp::sum;
  const bool takes = is({Kind::broadcast, Kind::broadcast_into}) && rank(group_) != operation_.root;
  for (Memory& output : outputs_) output.poison();
  for (Memory& input : inputs_) {
    input.poison();
    if (takes) continue;
    std::byte* to = place_ && !outputs_.empty() ? outputs_[0].element(*place_) : input.data();
    store_repeating(operation_.dtype, to, input.elements(), [&, rank = rank(group_)](std::int64_t i) {
      return value_of(operation_.dtype, op, i + operation_.salt, rank, size(group_));
    });
  }
}

Call InFlight::as_call(std::int64_t salt) {
  operation_.salt = salt;
  fill();
  return call();
}

void InFlight::submit(std::int64_t salt) {
  operation_.salt = salt;
  fill();
  if (operation_.prepared) {
    handle_ = prepared_.start();
  } else {
    start();
  }
}

void InFlight::start() {
  const std::string& name = operation_.name;
  const TensorView in = input();
  const TensorView out = output();
  std::vector<std::int64_t> splits;
  switch (operation_.kind) {
  case Kind::allreduce:
    handle_ = name.empty() ? allreduce_async(group_, in, options()) : allreduce_async(group_, name, in, options());
    break;
  case Kind::allreduce_into:
    handle_ = name.empty() ? allreduce_into_async(group_, in, out, options())
                           : allreduce_into_async(group_, name, in, out, options());
    break;
  case Kind::grouped:
    handle_ = name.empty() ? grouped_allreduce_async(group_, members(), options())
                           : grouped_allreduce_async(group_, name, members(), options());
    break;
  case Kind::broadcast:
    handle_ = name.empty() ? broadcast_async(group_, in, operation_.root)
                           : broadcast_async(group_, name, in, operation_.root);
    break;
  case Kind::broadcast_into:
    handle_ = name.empty() ? broadcast_into_async(group_, in, out, operation_.root)
                           : broadcast_into_async(group_, name, in, out, operation_.root);
    break;
  case Kind::allgather:
    gathered_ = name.empty() ? allgather_async(group_, in) : allgather_async(group_, name, in);
    break;
  case Kind::allgather_into:
    handle_ = name.empty() ? allgather_into_async(group_, in, out) : allgather_into_async(group_, name, in, out);
    break;
  case Kind::reduce_scatter:
    gathered_ =
        name.empty() ? reduce_scatter_async(group_, in, options()) : reduce_scatter_async(group_, name, in, options());
    break;
  case Kind::reduce_scatter_into:
    handle_ = name.empty() ? reduce_scatter_into_async(group_, in, out, options())
                           : reduce_scatter_into_async(group_, name, in, out, options());
    break;
  case Kind::reduce:
    handle_ = name.empty() ? reduce_async(group_, in, operation_.root, reduce_options())
                           : reduce_async(group_, name, in, operation_.root, reduce_options());
    break;
  case Kind::reduce_into: {
    const auto output = outputs_.empty() ? std::nullopt : std::optional<TensorView>(out);
    handle_ = name.empty() ? reduce_into_async(group_, in, output, operation_.root, reduce_options())
                           : reduce_into_async(group_, name, in, output, operation_.root, reduce_options());
    break;
  }
  case Kind::gather:
    gathered_ =
        name.empty() ? gather_async(group_, in, operation_.root) : gather_async(group_, name, in, operation_.root);
    break;
  case Kind::gather_into:
    handle_ =
        name.empty()
            ? gather_into_async(group_, in, outputs_.empty() ? std::nullopt : std::optional<TensorView>(out),
                                operation_.root)
            : gather_into_async(group_, name, in, outputs_.empty() ? std::nullopt : std::optional<TensorView>(out),
                                operation_.root);
    break;
  case Kind::scatter_into: {
    const bool gives = rank(group_) == operation_.root || operation_.salt % 2 == 0;
    handle_ = name.empty() ? scatter_into_async(group_, gives ? std::optional<ConstTensorView>(in) : std::nullopt, out,
                                                operation_.root, dealt())
                           : scatter_into_async(group_, name, gives ? std::optional<ConstTensorView>(in) : std::nullopt,
                                                out, operation_.root, dealt());
    break;
  }
  case Kind::alltoall:
    for (int to = 0; to < size(group_); ++to) splits.push_back(split(rank(group_), to));
    exchanged_ = name.empty() ? alltoall_async(group_, in, splits) : alltoall_async(group_, name, in, splits);
    break;
  case Kind::alltoall_into:
    handle_ = name.empty() ? alltoall_into_async(group_, in, out) : alltoall_into_async(group_, name, in, out);
    break;
  case Kind::barrier:
    handle_ = name.empty() ? barrier_async(group_) : barrier_async(group_, name);
    break;
  }
}

/// `count` elements that must be those from `first` on of the result, or of what `rank` gave.
void InFlight::check_elements(const std::byte* got, std::int64_t count, std::int64_t first, int rank) {
  const std::size_t width = size_of(operation_.dtype);
  const std::size_t bytes = static_cast<std::size_t>(count) * width;
  const std::unique_ptr<std::byte[]> want(new std::byte[bytes]);
  store_repeating(operation_.dtype, want.get(), count, [&](std::int64_t i) { return wanted(first + i, rank); });
  if (bytes == 0 || std::memcmp(got, want.get(), bytes) == 0) return;
  const std::size_t wrong = static_cast<std::size_t>(std::mismatch(got, got + bytes, want.get()).first - got) / width;
  std::string text = "element " + std::to_string(wrong) + " of " + std::to_string(count) + " is";
  const auto append = [&](const std::byte* elements) {
    for (std::size_t k = 0; k < width; ++k) {
      text += " " + std::to_string(std::to_integer<int>(elements[wrong * width + k]));
    }
  };
  append(got);
  text += ", not";
  append(want.get());
  throw Wrong(text + " (bytes)");
}

/// Elements of a reduction's input that are no part of its result are left alone.
void InFlight::check_given(std::int64_t begin, std::int64_t end) {
  const std::size_t bytes = static_cast<std::size_t>(end - begin) * size_of(operation_.dtype);
  const std::unique_ptr<std::byte[]> given(new std::byte[bytes]);
  store_repeating(operation_.dtype, given.get(), end - begin, [&, rank = rank(group_)](std::int64_t i) {
    return value_of(operation_.dtype, operation_.op, begin + i + operation_.salt, rank, size(group_));
  });
  if (bytes == 0 || std::memcmp(inputs_[0].element(begin), given.get(), bytes) == 0) return;
  throw Wrong("an element of the input from " + std::to_string(begin) + " on was written");
}

void InFlight::check_gathered() {
  const Tensor all = is({Kind::allgather, Kind::gather}) ? gathered_.get() : Tensor{};
  if (is({Kind::gather, Kind::gather_into}) && rank(group_) != operation_.root) {
    if (all.elements() > 0) throw Wrong("a rank that is not the root has a result");
    for (const Memory& output : outputs_) output.check_poison();
    return;
  }
  const auto* got = outputs_.empty() ? static_cast<const std::byte*>(all.data()) : outputs_[0].data();
  for (int rank = 0; rank < size(group_); ++rank) {
    check_elements(got, length(rank), 0, rank);
    got += static_cast<std::size_t>(length(rank)) * size_of(operation_.dtype);
  }
}

void InFlight::check_exchanged() {
  const AlltoallResult all = operation_.kind == Kind::alltoall ? exchanged_.get() : AlltoallResult{};
  const auto* got = outputs_.empty() ? static_cast<const std::byte*>(all.output.data()) : outputs_[0].data();
  for (int from = 0; from < size(group_); ++from) {
    const std::int64_t count = split(from, rank(group_));
    if (outputs_.empty() && all.received_splits.at(static_cast<std::size_t>(from)) != count) {
      throw Wrong("received splits are wrong");
    }
    check_elements(got, count, sent_before(from, rank(group_)), from);
    got += static_cast<std::size_t>(count) * size_of(operation_.dtype);
  }
}

void InFlight::check_scattered() {
  const std::int64_t first = first_row(rank(group_));
  const std::int64_t count = first_row(rank(group_) + 1) - first;
  const Tensor rows = operation_.kind == Kind::reduce_scatter ? gathered_.get() : Tensor{};
  const auto* got = operation_.kind == Kind::reduce_scatter ? static_cast<const std::byte*>(rows.data())
                    : outputs_.empty()                      ? inputs_[0].element(first)
                                                            : outputs_[0].data();
  check_elements(got, count, first, 0);
  check_given(0, first);
  check_given(first + count, length(0));
}

void InFlight::check_at_root() {
  if (rank(group_) != operation_.root) {
    check_given(0, length(0));
    for (const Memory& output : outputs_) output.check_poison();
  } else if (outputs_.empty()) {
    check_elements(inputs_[0].data(), length(0), 0, operation_.root);
  } else {
    check_given(0, length(0));
    check_elements(outputs_[0].data(), length(0), 0, operation_.root);
  }
}

void InFlight::check_dealt() {
  const int rank = kolo::rank(group_);
  const auto begin = operation_.lengths.begin();
  check_elements(inputs_[0].data(), inputs_[0].elements(), 0, rank);
  const std::int64_t first = std::accumulate(begin, begin + rank, std::int64_t{0});
  if (!outputs_.empty()) check_elements(outputs_[0].data(), length(rank), first, operation_.root);
}

void InFlight::check() {
  if (operation_.kind == Kind::barrier) return;
  for (const Memory& memory : inputs_) memory.check_borders();
  for (const Memory& memory : outputs_) memory.check_borders();
  if (is({Kind::allgather, Kind::allgather_into, Kind::gather, Kind::gather_into})) return check_gathered();
  if (is({Kind::scatter_into})) return check_dealt();
  if (is({Kind::alltoall, Kind::alltoall_into})) return check_exchanged();
  if (is({Kind::reduce_scatter, Kind::reduce_scatter_into})) return check_scattered();
  if (is({Kind::reduce, Kind::reduce_into})) return check_at_root();
  for (Memory& result : outputs_.empty() ? inputs_ : outputs_) {
    check_elements(result.data(), result.elements(), 0, operation_.root);
  }
}

}  // namespace kolo::testing
