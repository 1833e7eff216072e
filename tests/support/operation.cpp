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
  static constexpr const char* kNamesOfKinds[] = {
      "allreduce",           "allreduce_into", "grouped_allreduce", "broadcast",
      "broadcast_into",      "allgather",      "allgather_into",    "reduce_scatter",
      "reduce_scatter_into", "reduce",         "reduce_into",       "gather",
      "gather_into",         "scatter_into",   "alltoall",          "alltoall_into (equal)",
      "alltoall_into",       "barrier"};
  static_assert(std::size(kNamesOfKinds) == kKinds);
  static constexpr const char* kNamesOfForms[] = {"",          ", synchronous",   ", prepared",
                                                  ", grouped", ", grouped_async", ", a prepared group"};
  std::string text = std::string(kNamesOfKinds[static_cast<int>(operation.kind)]) + " '" + operation.name + "' of " +
                     std::string(to_string(operation.dtype)) + ", " + std::string(to_string(operation.op)) +
                     (operation.scaled ? ", scaled" : "") +
                     (operation.send_as ? ", as " + std::string(to_string(*operation.send_as)) : "") +
                     kNamesOfForms[static_cast<int>(operation.form)] +
                     (operation.in_place ? *operation.in_place ? ", in place" : ", apart" : "") + ", root " +
                     std::to_string(operation.root) + ", rows of " + std::to_string(operation.width) + ":";
  for (const std::int64_t length : operation.lengths) text += " " + std::to_string(length);
  return text;
}

Memory::Memory(DType dtype, std::int64_t elements, std::size_t misalignment, const Room& room, Accelerator* accelerator)
    : dtype_(dtype), elements_(elements), begin_(kBorder + misalignment),
      size_(static_cast<std::size_t>(elements) * size_of(dtype)), all_(begin_ + size_ + kBorder),
      accelerator_(accelerator) {
  if (room) bytes_ = room(all_);
  if (accelerator_) there_ = accelerator_->allocate(all_);
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

void Memory::write() {
  if (accelerator_) accelerator_->write(there_.get(), bytes_.get(), all_);
}
void Memory::read() {
  if (accelerator_) accelerator_->read(bytes_.get(), there_.get(), all_);
}

InFlight::InFlight(const Group& group, Operation operation, Random& own, const Room& room, Accelerator* accelerator)
    : group_(group), operation_(std::move(operation)), accelerator_(accelerator) {
  add_memory(own, room);
  const Form form = operation_.form;
  if (form == Form::grouped || form == Form::grouped_async || form == Form::prepared_group) add_company(own, room);
}

void InFlight::add_memory(Random& own, const Room& room) {
  const auto add = [&](std::deque<Memory>& to, std::int64_t elements) {
    std::size_t misalignment = chance(own, 50) ? 0 : static_cast<std::size_t>(draw(own, 64));
    if (accelerator_) misalignment -= misalignment % size_of(operation_.dtype);
    to.emplace_back(operation_.dtype, elements, misalignment, room, accelerator_);
  };
  const auto in_place = [&] {
    const bool drawn = chance(own, 50);
    return operation_.in_place.value_or(drawn);
  };
  const int rank = kolo::rank(group_);
  const int ranks = this->ranks();
  const auto received = [&] {
    std::int64_t sum = 0;
    for (int from = 0; from < ranks; ++from) sum += split(from, rank);
    return sum;
  };
  const bool is_root = rank == operation_.root;
  switch (operation_.kind) {
  case Kind::grouped:
    for (std::size_t i = 0; i < operation_.lengths.size(); ++i) add(inputs_, length(static_cast<int>(i)));
    break;
  case Kind::allgather:
  case Kind::allgather_into:
  case Kind::gather:
  case Kind::gather_into: {
    add(inputs_, length(rank));
    const bool gets = is_root || operation_.kind == Kind::allgather_into;
    if (is({Kind::allgather, Kind::gather}) || !(gets || chance(own, 50))) break;
    add(outputs_, length_before(ranks));
    if (gets && in_place()) place_ = length_before(rank);
    break;
  }
  case Kind::scatter_into:
    add(inputs_, is_root ? length_before(ranks) : 3 * operation_.width);
    if (is_root && in_place()) {
      place_ = length_before(rank);
    } else {
      add(outputs_, length(rank));
    }
    break;
  case Kind::alltoall:
  case Kind::alltoall_into:
  case Kind::alltoall_splits_into:
    add(inputs_, sent_before(rank, ranks));
    if (operation_.kind == Kind::alltoall) break;
    add(outputs_, received());
    break;
  case Kind::reduce_scatter_into:
    add(inputs_, length(0));
    if (!in_place()) add(outputs_, first_of(rank + 1) - first_of(rank));
    break;
  case Kind::reduce_into:
    add(inputs_, length(0));
    if (is_root || chance(own, 50)) add(outputs_, length(0));
    break;
  default:
    add(inputs_, length(0));
    if (is({Kind::allreduce_into, Kind::broadcast_into})) add(outputs_, length(0));
  }
}

/// Two more of its kind: one of another type, half as long and with longer rows, and one of the same without rows.
void InFlight::add_company(Random& own, const Room& room) {
  for (const std::int64_t part : {2, 0}) {
    Operation other = operation_;
    other.form = Form::asynchronous;
    if (part > 0 && is_floating_point(other.dtype)) {
      other.dtype = other.dtype == DType::float64 ? DType::float32 : DType::float64;
    } else if (part > 0 && other.dtype != DType::boolean) {
      other.dtype = other.dtype == DType::int32 ? DType::uint8 : DType::int32;
    }
    if (part > 0) ++other.width;
    for (std::int64_t& length : other.lengths) length = part > 0 ? length / part : 0;
    company_.push_back(std::make_unique<InFlight>(group_, std::move(other), own, room, accelerator_));
  }
}

bool InFlight::is(std::initializer_list<Kind> kinds) const {
  return std::find(kinds.begin(), kinds.end(), operation_.kind) != kinds.end();
}

bool InFlight::reduces() const {
  return is({Kind::allreduce, Kind::allreduce_into, Kind::grouped, Kind::reduce_scatter, Kind::reduce_scatter_into,
             Kind::reduce, Kind::reduce_into});
}

std::int64_t InFlight::length_before(int i) const {
  return std::accumulate(operation_.lengths.begin(), operation_.lengths.begin() + i, std::int64_t{0}) *
         operation_.width;
}

std::int64_t InFlight::split(int from, int to) const {
  return length(differs_by_pair(operation_.kind) ? from * size(group_) + to : 0);
}

std::int64_t InFlight::sent_before(int from, int to) const {
  std::int64_t sum = 0;
  for (int rank = 0; rank < to; ++rank) sum += split(from, rank);
  return sum;
}

std::int64_t InFlight::first_of(int rank) const {
  const std::int64_t ranks = size(group_);
  const std::int64_t rows = operation_.lengths[0];
  return (rows / ranks * rank + std::min<std::int64_t>(rank, rows % ranks)) * operation_.width;
}

/// What element i of the result must be: of a reduction, or else of what `rank` gave.
std::int64_t InFlight::wanted(std::int64_t i, int rank) const {
  const std::int64_t at = i + operation_.salt;
  if (!reduces()) return value_of(operation_.dtype, ReduceOp::sum, at, rank, ranks());
  const std::int64_t sum = reduced_value(operation_.dtype, operation_.op, at, ranks());
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
      return value_of(operation_.dtype, op, i + operation_.salt, rank, ranks());
    });
  }
  for (Memory& memory : inputs_) memory.write();
  for (Memory& memory : outputs_) memory.write();
  for (const auto& one : company_) {
    one->operation_.salt = operation_.salt;
    one->fill();
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

void InFlight::check_shape(const Tensor& result, std::int64_t elements) const {
  if (result.shape() != shape_of(elements)) throw Wrong("the result has shape " + to_string(result.shape()));
}

/// Elements of the input that are no part of the result are left alone.
void InFlight::check_given(std::int64_t begin, std::int64_t end) {
  const std::size_t bytes = static_cast<std::size_t>(end - begin) * size_of(operation_.dtype);
  const std::unique_ptr<std::byte[]> given(new std::byte[bytes]);
  const ReduceOp op = reduces() ? operation_.op : ReduceOp::sum;
  store_repeating(operation_.dtype, given.get(), end - begin, [&, rank = rank(group_)](std::int64_t i) {
    return value_of(operation_.dtype, op, begin + i + operation_.salt, rank, ranks());
  });
  if (bytes == 0 || std::memcmp(inputs_[0].element(begin), given.get(), bytes) == 0) return;
  throw Wrong("an element of the input from " + std::to_string(begin) + " on was written");
}

/// An input that lies elsewhere than the result is left alone.
void InFlight::check_inputs_apart() {
  const bool apart =
      is({Kind::allreduce_into, Kind::broadcast_into, Kind::allgather, Kind::allgather_into, Kind::gather,
          Kind::gather_into, Kind::alltoall, Kind::alltoall_into, Kind::alltoall_splits_into});
  if (!apart || place_) return;
  if (is({Kind::broadcast_into}) && rank(group_) != operation_.root) return inputs_[0].check_poison();
  check_given(0, inputs_[0].elements());
}

void InFlight::check_gathered() {
  if (gathered_.valid()) got_.output = gathered_.get();
  const Tensor all = is({Kind::allgather, Kind::gather}) ? std::move(got_.output) : Tensor{};
  if (is({Kind::gather, Kind::gather_into}) && rank(group_) != operation_.root) {
    if (all.elements() > 0) throw Wrong("a rank that is not the root has a result");
    for (const Memory& output : outputs_) output.check_poison();
    return;
  }
  if (outputs_.empty()) check_shape(all, length_before(ranks()));
  const auto* got = outputs_.empty() ? static_cast<const std::byte*>(all.data()) : outputs_[0].data();
  for (int rank = 0; rank < ranks(); ++rank) {
    check_elements(got, length(rank), 0, rank);
    got += static_cast<std::size_t>(length(rank)) * size_of(operation_.dtype);
  }
}

void InFlight::check_exchanged() {
  if (exchanged_.valid()) got_ = exchanged_.get();
  const AlltoallResult all = std::move(got_);
  const auto* got = outputs_.empty() ? static_cast<const std::byte*>(all.output.data()) : outputs_[0].data();
  std::int64_t received = 0;
  for (int from = 0; from < size(group_); ++from) {
    const std::int64_t count = split(from, rank(group_));
    if (outputs_.empty() && all.received_splits.at(static_cast<std::size_t>(from)) * operation_.width != count) {
      throw Wrong("received splits are wrong");
    }
    check_elements(got, count, sent_before(from, rank(group_)), from);
    got += static_cast<std::size_t>(count) * size_of(operation_.dtype);
    received += count;
  }
  if (outputs_.empty()) check_shape(all.output, received);
}

void InFlight::check_scattered() {
  const std::int64_t first = first_of(rank(group_));
  const std::int64_t count = first_of(rank(group_) + 1) - first;
  if (gathered_.valid()) got_.output = gathered_.get();
  const Tensor rows = std::move(got_.output);
  const bool apart = operation_.kind == Kind::reduce_scatter || !outputs_.empty();
  if (operation_.kind == Kind::reduce_scatter) check_shape(rows, count);
  const auto* got = operation_.kind == Kind::reduce_scatter ? static_cast<const std::byte*>(rows.data())
                    : apart                                 ? outputs_[0].data()
                                                            : inputs_[0].element(first);
  check_elements(got, count, first, 0);
  check_given(0, apart ? length(0) : first);
  check_given(apart ? length(0) : first + count, length(0));
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
  check_elements(inputs_[0].data(), inputs_[0].elements(), 0, rank);
  if (!outputs_.empty()) check_elements(outputs_[0].data(), length(rank), length_before(rank), operation_.root);
}

void InFlight::check() {
  for (const auto& one : company_) one->check();
  if (operation_.kind == Kind::barrier) return;
  for (std::deque<Memory>* memories : {&inputs_, &outputs_}) {
    for (Memory& memory : *memories) {
      memory.read();
      memory.check_borders();
    }
  }
  check_inputs_apart();
  if (is({Kind::allgather, Kind::allgather_into, Kind::gather, Kind::gather_into})) return check_gathered();
  if (is({Kind::scatter_into})) return check_dealt();
  if (is({Kind::alltoall, Kind::alltoall_into, Kind::alltoall_splits_into})) return check_exchanged();
  if (is({Kind::reduce_scatter, Kind::reduce_scatter_into})) return check_scattered();
  if (is({Kind::reduce, Kind::reduce_into})) return check_at_root();
  for (Memory& result : outputs_.empty() ? inputs_ : outputs_) {
    check_elements(result.data(), result.elements(), 0, operation_.root);
  }
}

}  // namespace kolo::testing
