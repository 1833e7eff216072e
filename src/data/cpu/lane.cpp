// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/lane.hpp"

#include <algorithm>
#include <utility>

#include "base/machine.hpp"

namespace kolo::data::cpu {

namespace {

std::size_t lines(std::size_t bytes) noexcept { return base::round_up(bytes, 64); }

std::size_t sums_bytes(std::int64_t elements, const WireFormat& format) noexcept {
  return static_cast<std::size_t>(elements) * size_of(format.sums());
}

/// Whether a sum is of the type of its elements, and so finished by the same pass that adds it.
bool is_finished_alike(const WireFormat& format) noexcept {
  return format.is_plain() && format.sums() == format.memory();
}

/// What is left to do after the nodes: prescaling was done within them.
kernels::Reduction among_nodes(kernels::Reduction reduction) {
  reduction.scaling.prescale = 1;
  return reduction;
}

/// The most that an exchange's three regions hold, over all formats.
struct Sizes {
  std::size_t partial = 0;
  std::size_t incoming = 0;
  std::size_t result = 0;

  Sizes(const LaneShape& shape, int nodes) noexcept {
    for_each_wire_format([&](const WireFormat& format) {
      const std::int64_t slot = format.elements_in(shape.slot_bytes);
      const std::int64_t share = part_of(slot, 0, shape.lanes, format.granule()).elements;
      const std::int64_t segment = part_of(share, 0, nodes, format.granule()).elements;
      partial = std::max(partial, lines(sums_bytes(share, format)));
      incoming = std::max(incoming, static_cast<std::size_t>(nodes - 1) * lines(sums_bytes(segment, format)));
      result = std::max(result, lines(format.bytes(share)));
    });
    incoming = std::max(incoming, partial);  // from one other node, whole
  }
};

}  // namespace

Lane::Lane(std::shared_ptr<transport::InterNode> transport, LanePlace place, int first_tag, const LaneShape& shape)
    : transport_(std::move(transport)), place_(std::move(place)), first_tag_(first_tag), step_bytes_(shape.step_bytes),
      exchanges_(shape.exchanges), inputs_(place_.ranks.size()) {
  const Sizes sizes(shape, nodes());
  incoming_bytes_ = sizes.incoming;
  memory_ = transport_->staging(exchanges_.size() * (sizes.partial + sizes.incoming + sizes.result));
  std::byte* memory = memory_;
  for (Exchange& exchange : exchanges_) {
    exchange.partial = std::exchange(memory, memory + sizes.partial);
    exchange.incoming = std::exchange(memory, memory + sizes.incoming);
    exchange.result = std::exchange(memory, memory + sizes.result);
  }
}

Lane::~Lane() {
  const auto is_done = [](const Exchange& exchange) { return exchange.phase == Phase::done; };
  if (std::all_of(exchanges_.begin(), exchanges_.end(), is_done)) transport_->give_back(memory_);
}

void Lane::start_reduce(std::size_t index, const WireFormat& format, const kernels::Reduction& reduction,
                        std::int64_t elements, int to_node) {
  Exchange& exchange = exchanges_[index];
  exchange.format = format;
  exchange.reduction = reduction;
  exchange.sum_bytes = size_of(format.sums());
  exchange.elements = elements;
  exchange.broadcast = false;
  exchange.to_node = to_node;
  exchange.whole = goes_whole(exchange);
  exchange.adds_late = exchange.whole && is_finished_alike(format);
  exchange.phase = Phase::start;
}

void Lane::start_broadcast(std::size_t index, std::size_t bytes, int root_node) {
  Exchange& exchange = exchanges_[index];
  exchange.broadcast = true;
  exchange.broadcast_bytes = bytes;
  exchange.root_node = root_node;
  exchange.phase = Phase::start;
}

/// Whether one step costs less than two, which carry fewer bytes between more than two nodes.
bool Lane::goes_whole(const Exchange& exchange) const noexcept {
  const auto others = static_cast<std::size_t>(nodes() - 1);
  const WireFormat& format = exchange.format;
  const std::int64_t part = part_of(exchange.elements, 0, nodes(), format.granule()).elements;
  const std::size_t in_one = others * sums_bytes(exchange.elements, format);
  const std::size_t in_two = others * (sums_bytes(part, format) + format.bytes(part));
  return in_one <= in_two + step_bytes_ && others * lines(sums_bytes(exchange.elements, format)) <= incoming_bytes_;
}

bool Lane::advance(std::size_t index) {
  Exchange& exchange = exchanges_[index];
  bool moved = false;
  while (exchange.phase != Phase::done && go_on(exchange, first_tag_ + static_cast<int>(index))) moved = true;
  return moved;
}

/// True when something moved.
bool Lane::go_on(Exchange& exchange, int tag) {
  switch (exchange.phase) {
  case Phase::start:
    exchange.broadcast ? receive_broadcast(exchange, tag) : send_parts(exchange, tag);
    exchange.phase = exchange.broadcast ? Phase::pass_on : Phase::add;
    return true;
  case Phase::add:
    if (!complete(exchange.parts)) return false;
    if (!exchange.adds_late) add_up(exchange);
    send_result(exchange, tag);
    exchange.phase = Phase::collect;
    return true;
  case Phase::collect:
    if (!complete(exchange.results)) return false;
    exchange.phase = Phase::rest;
    return true;
  case Phase::pass_on:
    if (!complete(exchange.results)) return false;
    pass_on(exchange, tag);
    exchange.phase = Phase::rest;
    return true;
  case Phase::rest:
    if (!complete(exchange.sent)) return false;
    exchange.phase = Phase::done;
    return true;
  case Phase::done:
    break;
  }
  return false;
}

/// What a node adds up: a part of the share, or all of it or nothing. The same on all nodes.
Part Lane::segment(const Exchange& exchange, int node) const noexcept {
  if (exchange.whole) return {0, is_wanted(exchange, node) ? exchange.elements : 0};
  return part_of(exchange.elements, node, nodes(), exchange.format.granule());
}

std::byte* Lane::incoming(const Exchange& exchange, int node) const noexcept {
  const auto place = static_cast<std::size_t>(node < place_.node ? node : node - 1);
  return exchange.incoming + place * lines(sums_bytes(segment(exchange, place_.node).elements, exchange.format));
}

/// Asks for all that will come - the partial sums of a node are its first message, and finished elements its second -
/// and sends partial sums, to the next node first: so that no node is sent to by all at once.
void Lane::send_parts(Exchange& exchange, int tag) {
  const std::size_t width = exchange.sum_bytes;
  const WireFormat& format = exchange.format;
  const Part own = segment(exchange, place_.node);
  for (int distance = 1; distance < nodes(); ++distance) {
    const int from = ring(place_.node - distance);
    receive(exchange.parts, from, tag, incoming(exchange, from), static_cast<std::size_t>(own.elements) * width);
    if (exchange.whole || !is_wanted(exchange, place_.node)) continue;
    const Part theirs = segment(exchange, from);
    receive(exchange.results, from, tag, exchange.result + format.bytes(theirs.begin), format.bytes(theirs.elements));
  }
  for (int distance = 1; distance < nodes(); ++distance) {
    const int to = ring(place_.node + distance);
    const Part theirs = segment(exchange, to);
    send(exchange, to, tag, exchange.partial + static_cast<std::size_t>(theirs.begin) * width,
         static_cast<std::size_t>(theirs.elements) * width);
  }
}

/// Points `inputs_` at all nodes' partial sums of the own segment, from element `first` of it on.
void Lane::point_at_sums(const Exchange& exchange, std::int64_t first) {
  const std::size_t width = exchange.sum_bytes;
  const auto own = static_cast<std::size_t>(segment(exchange, place_.node).begin);
  for (int node = 0; node < nodes(); ++node) {
    const std::byte* sums = node == place_.node ? exchange.partial + own * width : incoming(exchange, node);
    inputs_[static_cast<std::size_t>(node)] = sums + static_cast<std::size_t>(first) * width;
  }
}

/// Adds all nodes' partial sums of the own segment and finishes them, in one pass where the types allow.
void Lane::add_up(Exchange& exchange) {
  const Part own = segment(exchange, place_.node);
  point_at_sums(exchange, 0);
  std::byte* result = exchange.result + exchange.format.bytes(own.begin);
  const kernels::Reduction rest = among_nodes(exchange.reduction);
  if (is_finished_alike(exchange.format)) {
    kernels::reduce(rest, inputs_.data(), nodes(), result, own.elements);
    return;
  }
  std::byte* sum = incoming(exchange, place_.node == 0 ? 1 : 0);  // not the own sums: they may be on their way still
  kernels::reduce({exchange.format.sums(), rest.op, {}}, inputs_.data(), nodes(), sum, own.elements);
  exchange.format.finish(rest, sum, result, own.elements);
}

void Lane::deliver(std::size_t index, std::int64_t first, std::int64_t elements, void* const* outputs, int copies) {
  const Exchange& exchange = exchanges_[index];
  if (exchange.adds_late) {
    point_at_sums(exchange, first);
    kernels::reduce_to_all(among_nodes(exchange.reduction), inputs_.data(), nodes(), outputs, copies, elements);
    return;
  }
  const std::byte* result = exchange.result + exchange.format.bytes(first);
  const auto bytes = static_cast<std::int64_t>(exchange.format.bytes(elements));
  for (int i = 0; i < copies; ++i) kernels::copy(outputs[i], result, bytes);
}

void Lane::send_result(Exchange& exchange, int tag) {
  if (exchange.whole) return;
  const Part own = segment(exchange, place_.node);
  for (int distance = 1; distance < nodes(); ++distance) {
    const int to = ring(place_.node + distance);
    if (!is_wanted(exchange, to)) continue;
    send(exchange, to, tag, exchange.result + exchange.format.bytes(own.begin), exchange.format.bytes(own.elements));
  }
}

void Lane::receive_broadcast(Exchange& exchange, int tag) {
  if (place_.node == exchange.root_node) return;
  receive(exchange.results, ring(place_.node - 1), tag, exchange.result, exchange.broadcast_bytes);
}

void Lane::pass_on(Exchange& exchange, int tag) {
  const int next = ring(place_.node + 1);
  if (next == exchange.root_node) return;
  send(exchange, next, tag, exchange.result, exchange.broadcast_bytes);
}

/// Whether all have; forgets those that have.
bool Lane::complete(std::vector<Message>& messages) {
  std::erase_if(messages, [&](const Message& message) { return transport_->test(message.operation); });
  return messages.empty();
}

void Lane::add_awaited(std::size_t exchange, std::vector<int>& ranks) const {
  for (const auto* messages :
       {&exchanges_[exchange].parts, &exchanges_[exchange].results, &exchanges_[exchange].sent}) {
    for (const Message& message : *messages) ranks.push_back(place_.ranks[static_cast<std::size_t>(message.node)]);
  }
}

// A segment may be empty, on both sides alike: then nothing is sent and nothing expected.
void Lane::send(Exchange& exchange, int node, int tag, const std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  exchange.sent.push_back({transport_->send(place_.ranks[static_cast<std::size_t>(node)], tag, data, bytes), node});
}

void Lane::receive(std::vector<Message>& messages, int node, int tag, std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  messages.push_back({transport_->receive(place_.ranks[static_cast<std::size_t>(node)], tag, data, bytes), node});
}

}  // namespace kolo::data::cpu
