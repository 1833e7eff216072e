// SPDX-License-Identifier: Apache-2.0
#include "hierarchy/lane.hpp"

#include <algorithm>
#include <utility>

namespace kolo::hierarchy {

namespace {

std::size_t lines(std::int64_t elements, std::size_t element_bytes) noexcept {
  return (static_cast<std::size_t>(elements) * element_bytes + 63) / 64 * 64;
}

/// The most that an exchange's three regions hold, over all element types.
struct Sizes {
  std::size_t partial = 0;
  std::size_t incoming = 0;
  std::size_t result = 0;

  Sizes(std::size_t slot_bytes, int lanes, int nodes) noexcept {
    for (const std::size_t element : {1, 2, 4, 8}) {
      const std::size_t accumulator = element == 2 ? 4 : element;  // 16-bit floats are summed in 32
      const auto slot = static_cast<std::int64_t>(slot_bytes / element);
      const std::int64_t share = part_of(slot, 0, lanes, line_of(element)).elements;
      const std::int64_t segment = part_of(share, 0, nodes, line_of(element)).elements;
      partial = std::max(partial, lines(share, accumulator));
      incoming = std::max(incoming, lines(segment, accumulator));
      result = std::max(result, lines(share, element));
    }
  }
};

}  // namespace

Lane::Lane(std::shared_ptr<core::InterNode> transport, LanePlace place, int first_tag, std::size_t exchanges,
           std::size_t slot_bytes, int lanes)
    : transport_(std::move(transport)), place_(std::move(place)), first_tag_(first_tag), exchanges_(exchanges) {
  const Sizes sizes(slot_bytes, lanes, nodes());
  std::byte* memory = transport_->staging(exchanges * (sizes.partial + sizes.incoming + sizes.result));
  for (Exchange& exchange : exchanges_) {
    exchange.partial = std::exchange(memory, memory + sizes.partial);
    exchange.incoming = std::exchange(memory, memory + sizes.incoming);
    exchange.result = std::exchange(memory, memory + sizes.result);
  }
}

void Lane::start_allreduce(std::size_t index, const kernels::Reduction& reduction, std::int64_t elements) {
  Exchange& exchange = exchanges_[index];
  exchange.reduction = reduction;
  exchange.element_bytes = size_of(reduction.dtype);
  exchange.accumulator_bytes = size_of(kernels::accumulator_of(reduction.dtype));
  exchange.elements = elements;
  exchange.broadcast = false;
  exchange.step = 0;
  exchange.steps = 2 * (nodes() - 1);
}

void Lane::start_broadcast(std::size_t index, std::size_t element_bytes, std::int64_t elements, int root_node) {
  Exchange& exchange = exchanges_[index];
  exchange.element_bytes = element_bytes;
  exchange.elements = elements;
  exchange.broadcast = true;
  exchange.root_node = root_node;
  exchange.step = 0;
  exchange.steps = 2;  // to have it, and to pass it on
}

bool Lane::advance(std::size_t index) {
  Exchange& exchange = exchanges_[index];
  bool moved = false;
  while (exchange.step < exchange.steps) {
    if (!exchange.under_way) {
      exchange.under_way = true;
      moved = true;
      exchange.broadcast ? begin_broadcast_step(exchange, first_tag_ + static_cast<int>(index))
                         : begin_step(exchange, first_tag_ + static_cast<int>(index));
    }
    if (exchange.receiving != 0 && transport_->test(exchange.receiving)) exchange.receiving = 0;
    if (exchange.sending != 0 && transport_->test(exchange.sending)) exchange.sending = 0;
    if (exchange.receiving != 0 || exchange.sending != 0) return moved;
    if (!exchange.broadcast) end_step(exchange);
    exchange.under_way = false;
    ++exchange.step;
    moved = true;
  }
  return moved;
}

Part Lane::segment(const Exchange& exchange, int which) const noexcept {
  return part_of(exchange.elements, ring(which), nodes(), line_of(exchange.element_bytes));
}

void Lane::begin_step(Exchange& exchange, int tag) {
  const int node = place_.node;
  const int scatter_steps = nodes() - 1;
  if (exchange.step < scatter_steps) {
    const Part out = segment(exchange, node - exchange.step);
    const Part in = segment(exchange, node - exchange.step - 1);
    const std::size_t width = exchange.accumulator_bytes;
    receive(exchange, tag, exchange.incoming, static_cast<std::size_t>(in.elements) * width);
    send(exchange, tag, exchange.partial + static_cast<std::size_t>(out.begin) * width,
         static_cast<std::size_t>(out.elements) * width);
  } else {
    const int gathered = exchange.step - scatter_steps;
    const Part out = segment(exchange, node + 1 - gathered);
    const Part in = segment(exchange, node - gathered);
    const std::size_t width = exchange.element_bytes;
    receive(exchange, tag, exchange.result + static_cast<std::size_t>(in.begin) * width,
            static_cast<std::size_t>(in.elements) * width);
    send(exchange, tag, exchange.result + static_cast<std::size_t>(out.begin) * width,
         static_cast<std::size_t>(out.elements) * width);
  }
}

void Lane::begin_broadcast_step(Exchange& exchange, int tag) {
  const int place = ring(place_.node - exchange.root_node);
  const std::size_t bytes = static_cast<std::size_t>(exchange.elements) * exchange.element_bytes;
  if (exchange.step == 0 && place > 0) receive(exchange, tag, exchange.result, bytes);
  if (exchange.step == 1 && place < nodes() - 1) send(exchange, tag, exchange.result, bytes);
}

void Lane::end_step(Exchange& exchange) {
  const int scatter_steps = nodes() - 1;
  if (exchange.step >= scatter_steps) return;
  const Part in = segment(exchange, place_.node - exchange.step - 1);
  std::byte* sums = exchange.partial + static_cast<std::size_t>(in.begin) * exchange.accumulator_bytes;
  kernels::combine(exchange.reduction, sums, exchange.incoming, in.elements);
  if (exchange.step == scatter_steps - 1) {
    kernels::finish(exchange.reduction, sums,
                    exchange.result + static_cast<std::size_t>(in.begin) * exchange.element_bytes, in.elements);
  }
}

// A segment may be empty, on both sides alike: then nothing is sent and nothing expected.
void Lane::send(Exchange& exchange, int tag, const std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  exchange.sending = transport_->send(place_.ranks[static_cast<std::size_t>(ring(place_.node + 1))], tag, data, bytes);
}

void Lane::receive(Exchange& exchange, int tag, std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  exchange.receiving =
      transport_->receive(place_.ranks[static_cast<std::size_t>(ring(place_.node - 1))], tag, data, bytes);
}

}  // namespace kolo::hierarchy
