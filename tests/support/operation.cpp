// SPDX-License-Identifier: Apache-2.0
#include "tests/support/operation.hpp"

#include <algorithm>
#include <cstring>
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
  static constexpr const char* kNamesOfKinds[] = {"allreduce",      "allreduce_into", "grouped_allreduce", "broadcast",
                                                  "broadcast_into", "allgather",      "allgather_into",    "barrier"};
  std::string text = std::string(kNamesOfKinds[static_cast<int>(operation.kind)]) + " '" + operation.name + "' of " +
                     std::string(to_string(operation.dtype)) + ", " + std::string(to_string(operation.op)) +
                     (operation.scaled ? ", scaled" : "") + (operation.prepared ? ", prepared" : "") + ", root " +
                     std::to_string(operation.root) + ", elements";
  for (const std::int64_t length : operation.lengths) text += " " + std::to_string(length);
  return text;
}

Memory::Memory(DType dtype, std::int64_t elements, std::size_t misalignment)
    : dtype_(dtype), elements_(elements), begin_(kBorder + misalignment),
      size_(static_cast<std::size_t>(elements) * size_of(dtype)), bytes_(begin_ + size_ + kBorder, kPoison) {}

void Memory::poison() { std::fill(bytes_.begin(), bytes_.end(), kPoison); }

void Memory::check_borders() const {
  const auto untouched = [](std::byte byte) { return byte == kPoison; };
  const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(begin_);
  const auto end = begin + static_cast<std::ptrdiff_t>(size_);
  if (!std::all_of(bytes_.begin(), begin, untouched)) throw Wrong("bytes before the tensor were written");
  if (!std::all_of(end, bytes_.end(), untouched)) throw Wrong("bytes behind the tensor were written");
}

InFlight::InFlight(Context& context, Operation operation, Random& own)
    : context_(context), operation_(std::move(operation)) {
  const auto misalignment = [&] { return chance(own, 50) ? 0 : static_cast<std::size_t>(draw(own, 64)); };
  std::vector<std::int64_t> lengths = operation_.lengths;
  if (gathers()) lengths = {operation_.lengths[static_cast<std::size_t>(context.rank())]};
  for (const std::int64_t length : lengths) inputs_.emplace_back(operation_.dtype, length, misalignment());
  if (operation_.kind == Kind::allgather_into) {
    lengths = {std::accumulate(operation_.lengths.begin(), operation_.lengths.end(), std::int64_t{0})};
  }
  if (apart()) outputs_.emplace_back(operation_.dtype, lengths[0], misalignment());
}

bool InFlight::gathers() const { return operation_.kind == Kind::allgather || operation_.kind == Kind::allgather_into; }

bool InFlight::broadcasts() const {
  return operation_.kind == Kind::broadcast || operation_.kind == Kind::broadcast_into;
}

bool InFlight::apart() const {
  return operation_.kind == Kind::allreduce_into || operation_.kind == Kind::broadcast_into ||
         operation_.kind == Kind::allgather_into;
}

AllreduceOptions InFlight::options() const {
  AllreduceOptions options = AllreduceOptions{}.with_op(operation_.op);
  if (operation_.scaled) options.with_prescale(2).with_postscale(1.5);
  return options;
}

std::vector<NamedView> InFlight::members() {
  std::vector<NamedView> members;
  for (Memory& input : inputs_) members.push_back({"member " + std::to_string(members.size()), input.view()});
  return members;
}

void InFlight::prepare() {
  if (operation_.kind == Kind::grouped) {
    prepared_ = prepare_grouped_allreduce(context_, operation_.name, members(), options());
  } else if (operation_.kind == Kind::broadcast) {
    prepared_ = prepare_broadcast(context_, operation_.name, inputs_[0].view(), operation_.root);
  } else {
    prepared_ = prepare_allreduce(context_, operation_.name, inputs_[0].view(), options());
  }
}

/// What element i of a rank's input, or of the result, must be. A broadcast and a gather take the inputs as they are.
std::int64_t InFlight::wanted(std::int64_t i, int rank) const {
  const int ranks = context_.size();
  const std::int64_t at = i + operation_.salt;
  if (gathers() || broadcasts()) return value_of(operation_.dtype, ReduceOp::sum, at, rank, ranks);
  const std::int64_t sum = reduced_value(operation_.dtype, operation_.op, at, ranks);
  return operation_.scaled ? 3 * sum : sum;
}

void InFlight::fill() {
  const ReduceOp op = gathers() || broadcasts() ? ReduceOp::sum : operation_.op;
  for (Memory& output : outputs_) output.poison();
  for (Memory& input : inputs_) {
    input.poison();
    if (broadcasts() && context_.rank() != operation_.root) continue;
    const auto count = static_cast<std::int64_t>(input.size() / size_of(operation_.dtype));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t value = value_of(operation_.dtype, op, i + operation_.salt, context_.rank(), context_.size());
      store(operation_.dtype, input.element(i), value);
    }
  }
}

void InFlight::submit(std::int64_t salt) {
  operation_.salt = salt;
  fill();
  const std::string& name = operation_.name;
  if (operation_.prepared) {
    handle_ = prepared_.start();
    return;
  }
  switch (operation_.kind) {
  case Kind::allreduce:
    handle_ = allreduce_async(context_, name, inputs_[0].view(), options());
    break;
  case Kind::allreduce_into:
    handle_ = allreduce_into_async(context_, name, inputs_[0].view(), outputs_[0].view(), options());
    break;
  case Kind::grouped:
    handle_ = grouped_allreduce_async(context_, name, members(), options());
    break;
  case Kind::broadcast:
    handle_ = broadcast_async(context_, name, inputs_[0].view(), operation_.root);
    break;
  case Kind::broadcast_into:
    handle_ = broadcast_into_async(context_, name, inputs_[0].view(), outputs_[0].view(), operation_.root);
    break;
  case Kind::allgather:
    gathered_ = allgather_async(context_, name, inputs_[0].view());
    break;
  case Kind::allgather_into:
    handle_ = allgather_into_async(context_, name, inputs_[0].view(), outputs_[0].view());
    break;
  case Kind::barrier:
    handle_ = barrier_async(context_, name);
    break;
  }
}

void InFlight::check_elements(const std::byte* got, std::int64_t first, std::int64_t count, int rank) {
  const std::size_t width = size_of(operation_.dtype);
  std::byte want[8];
  for (std::int64_t i = 0; i < count; ++i) {
    store(operation_.dtype, want, wanted(i, rank));
    const std::byte* element = got + static_cast<std::size_t>(first + i) * width;
    if (std::memcmp(element, want, width) == 0) continue;
    std::string text = "element " + std::to_string(first + i) + " is";
    for (std::size_t k = 0; k < width; ++k) text += " " + std::to_string(std::to_integer<int>(element[k]));
    text += ", not";
    for (std::size_t k = 0; k < width; ++k) text += " " + std::to_string(std::to_integer<int>(want[k]));
    throw Wrong(text + " (bytes)");
  }
}

void InFlight::check() {
  if (operation_.kind == Kind::barrier) return;
  for (const Memory& memory : inputs_) memory.check_borders();
  for (const Memory& memory : outputs_) memory.check_borders();
  if (gathers()) {
    const Tensor all = operation_.kind == Kind::allgather ? gathered_.get() : Tensor{};
    const std::byte* got =
        operation_.kind == Kind::allgather ? static_cast<const std::byte*>(all.data()) : outputs_[0].data();
    std::int64_t first = 0;
    for (int rank = 0; rank < context_.size(); ++rank) {
      const std::int64_t count = operation_.lengths[static_cast<std::size_t>(rank)];
      check_elements(got, first, count, rank);
      first += count;
    }
    gathered_ = {};
    return;
  }
  std::deque<Memory>& results = apart() ? outputs_ : inputs_;
  for (Memory& result : results) {
    const auto count = static_cast<std::int64_t>(result.size() / size_of(operation_.dtype));
    check_elements(result.data(), 0, count, operation_.root);
  }
}

}  // namespace kolo::testing
