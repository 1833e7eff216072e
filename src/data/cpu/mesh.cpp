// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/mesh.hpp"

#include <algorithm>
#include <utility>

namespace kolo::data::cpu {

Mesh::Mesh(std::shared_ptr<transport::InterNode> transport, int first_tag, std::size_t exchanges,
           const MeshBytes& bytes)
    : transport_(std::move(transport)), first_tag_(first_tag), exchanges_(exchanges),
      memory_(transport_->staging(exchanges * (bytes.outgoing + bytes.incoming))) {
  std::byte* memory = memory_;
  for (Exchange& exchange : exchanges_) {
    exchange.outgoing = std::exchange(memory, memory + bytes.outgoing);
    exchange.incoming = std::exchange(memory, memory + bytes.incoming);
  }
}

Mesh::~Mesh() {
  const auto is_done = [](const Exchange& exchange) { return exchange.messages.empty(); };
  if (std::all_of(exchanges_.begin(), exchanges_.end(), is_done)) transport_->give_back(memory_);
}

void Mesh::send(std::size_t index, int rank, std::size_t offset, std::size_t bytes) {
  Exchange& exchange = exchanges_[index];
  if (bytes > 0) exchange.messages.push_back({exchange.outgoing + offset, bytes, rank, true, 0});
}

void Mesh::receive(std::size_t index, int rank, std::size_t offset, std::size_t bytes) {
  Exchange& exchange = exchanges_[index];
  if (bytes > 0) exchange.messages.push_back({exchange.incoming + offset, bytes, rank, false, 0});
}

bool Mesh::advance(std::size_t index) {
  std::vector<Message>& messages = exchanges_[index].messages;
  const int tag = first_tag_ + static_cast<int>(index);
  bool moved = false;
  for (std::size_t i = 0; i < messages.size();) {
    Message& message = messages[i];
    if (message.operation == 0) {
      moved = true;
      message.operation = message.outgoing ? transport_->send(message.rank, tag, message.data, message.bytes)
                                           : transport_->receive(message.rank, tag, message.data, message.bytes);
    }
    if (!transport_->test(message.operation)) {
      ++i;
      continue;
    }
    moved = true;
    message = messages.back();  // not started yet, perhaps: then it is by the next turn of this loop
    messages.pop_back();
  }
  return moved;
}

void Mesh::add_awaited(std::size_t exchange, std::vector<int>& ranks) const {
  for (const Message& message : exchanges_[exchange].messages) {
    if (message.operation != 0) ranks.push_back(message.rank);
  }
}

}  // namespace kolo::data::cpu
