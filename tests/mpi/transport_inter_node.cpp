// SPDX-License-Identifier: Apache-2.0
//
// Bulk transport by MPI: every pair of ranks, sizes of all kinds, many operations at once, order within a tag.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>

#include "base/settings.hpp"
#include "core/topology.hpp"
#include "mpi/mpi_api.hpp"
#include "mpi/mpi_borrow.hpp"
#include "mpi/mpi_inter_node.hpp"
#include "mpi/mpi_lifetime.hpp"
#include "tests/mpi/report.hpp"

namespace {

using kolo::ErrorCode;
using kolo::testing::Random;
using kolo::testing::Report;
namespace mpi = kolo::mpi;
namespace core = kolo::core;
namespace transport = kolo::transport;
using Operation = transport::InterNode::Operation;

constexpr kolo::base::Duration kPatience = std::chrono::seconds(60);
constexpr std::byte kPoison{0xa5};

std::byte content(std::uint64_t message, std::size_t i) {
  return static_cast<std::byte>(message * 31 + i * 7 + (i >> 9));
}

/// The same on both sides.
std::size_t size_of(std::uint64_t message, std::size_t most) {
  Random random(message);
  switch (random.below(4)) {
  case 0:
    return 0;
  case 1:
    return random.below(64);
  case 2:
    return random.below(5000);
  default:
    return random.below(most);
  }
}

std::uint64_t message_number(int from, int to, int tag, int i) {
  return ((static_cast<std::uint64_t>(from) * 64 + static_cast<std::uint64_t>(to)) * 64 +
          static_cast<std::uint64_t>(tag)) *
             1000 +
         static_cast<std::uint64_t>(i);
}

/// One pair, one direction, one tag: `count` messages that are all in flight at once.
struct Stream {
  int peer;
  int tag;
  bool sending;
};

struct Open {
  Operation operation;
  std::uint64_t message;
  std::byte* memory;
  std::size_t bytes;
  bool sending;
};

void check_arrived(Report& report, const Open& open) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < open.bytes; ++i) wrong += open.memory[i] != content(open.message, i) ? 1 : 0;
  report.equal(wrong, 0u, "wrong bytes in message " + std::to_string(open.message));
  report.check(open.memory[open.bytes] == kPoison, "nothing is written behind message " + std::to_string(open.message));
}

/// Messages of any size from every rank, in the order of each; some of them were sent before anybody listened.
void check_listening(Report& report, transport::InterNode& transport, int rank, int size) {
  constexpr std::size_t kMost = 70000;
  constexpr int kEach = 20;
  const auto bytes_of = [](int from, int i) {
    return 8 + (static_cast<std::size_t>(from) * 7919 + static_cast<std::size_t>(i) * 104729) % (kMost - 8);
  };
  std::vector<Operation> sends;
  for (int i = 0; i < kEach; ++i) {
    for (int to = 0; to < size; ++to) {
      if (to == rank) continue;
      const std::size_t bytes = bytes_of(rank, i);
      std::byte* memory = transport.staging(kMost);
      std::fill(memory, memory + bytes, static_cast<std::byte>(rank * kEach + i));
      sends.push_back(transport.send(to, 1000, memory, bytes));
    }
  }
  transport.listen(1000, kMost);
  transport.expect(true);
  std::vector<int> next(static_cast<std::size_t>(size));
  for (int left = kEach * (size - 1); left > 0;) {
    const std::optional<transport::InterNode::Heard> heard = transport.hear();
    if (!heard) continue;
    --left;
    int& number = next[static_cast<std::size_t>(heard->rank)];
    const auto wanted = static_cast<std::byte>(heard->rank * kEach + number);
    report.equal(heard->bytes, bytes_of(heard->rank, number), "the size of what was heard");
    report.check(std::all_of(heard->data, heard->data + heard->bytes, [&](std::byte one) { return one == wanted; }),
                 "what was heard is whole, and in order");
    ++number;
  }
  report.check(!transport.hear(), "nothing else is heard");
  for (const Operation operation : sends) {
    while (!transport.test(operation)) {
    }
  }
  transport.expect(false);
}

void exchange(Report& report, transport::InterNode& transport, int rank, int size, std::size_t most, int count) {
  std::vector<Stream> streams;
  for (int peer = 0; peer < size; ++peer) {
    for (const int tag : {0, 7, 63}) {
      if (peer == rank) continue;
      streams.push_back({peer, tag, true});
      streams.push_back({peer, tag, false});
    }
  }
  std::vector<Open> open;
  Random order(static_cast<std::uint64_t>(rank) + 99);
  for (int i = 0; i < count; ++i) {
    for (const Stream& stream : streams) {
      const std::uint64_t message = stream.sending ? message_number(rank, stream.peer, stream.tag, i)
                                                   : message_number(stream.peer, rank, stream.tag, i);
      const std::size_t bytes = size_of(message, most);
      std::byte* memory = transport.staging(bytes + 1);
      report.equal(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u, "the alignment of staging memory");
      std::fill(memory, memory + bytes + 1, kPoison);
      for (std::size_t b = 0; stream.sending && b < bytes; ++b) memory[b] = content(message, b);
      const Operation operation = stream.sending ? transport.send(stream.peer, stream.tag, memory, bytes)
                                                 : transport.receive(stream.peer, stream.tag, memory, bytes);
      report.check(operation != 0, "an operation has a name");
      open.push_back({operation, message, memory, bytes, stream.sending});
    }
  }
  while (!open.empty()) {
    const std::size_t chosen = order.below(open.size());
    if (!transport.test(open[chosen].operation)) continue;
    if (!open[chosen].sending) check_arrived(report, open[chosen]);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
}

void finish(transport::InterNode& transport, Operation operation) {
  while (!transport.test(operation)) {
  }
}

/// A message that is shorter than asked for is an error, not silence.
void check_short_message(Report& report, transport::InterNode& transport, int rank, int size) {
  if (size < 2 || rank > 1) return;
  std::byte* memory = transport.staging(200);
  if (rank == 0) return finish(transport, transport.send(1, 1, memory, 100));
  const Operation operation = transport.receive(0, 1, memory, 200);
  report.throws(ErrorCode::transport, "rank 0 sent 100 bytes where 200 were due",
                [&] { finish(transport, operation); });
}

void check_world(Report& report, MPI_Comm world) {
  const auto bootstrap = mpi::borrow(world, {}, kPatience);
  const int rank = bootstrap->rank();
  const int size = bootstrap->size();
  report.set_place(rank, size);
  const core::Topology topology = core::make_topology(rank, std::vector<int>(static_cast<std::size_t>(size), 0), 1);
  report.equal(topology.node_count(), size, "virtual nodes of one rank");

  const auto transport = bootstrap->inter_node(topology, kPatience);
  report.equal(std::string(transport->name()), std::string("MPI point-to-point"), "the name");
  exchange(report, *transport, rank, size, 200000, 10);
  // The largest messages that fit a test, cut where a message of more than 1 GiB would be.
  mpi::MpiInterNode in_pieces(mpi::Communicator::duplicate(world, kPatience), 4096);
  exchange(report, in_pieces, rank, size, 300000, 3);
  bootstrap->exchange("test", "", kPatience);

  check_listening(report, *bootstrap->inter_node(topology, kPatience), rank, size);
  bootstrap->exchange("test", "", kPatience);
  check_short_message(report, *bootstrap->inter_node(topology, kPatience), rank, size);
  // A receive that nobody answers stays open: its memory and communicator are kept, and nothing waits.
  if (size > 1) {
    mpi::MpiInterNode abandoned(mpi::Communicator::duplicate(world, kPatience));
    const Operation operation = abandoned.receive((rank + 1) % size, 5, abandoned.staging(1000), 1000);
    report.check(!abandoned.test(operation), "what nobody sends does not arrive");
  }
  bootstrap->exchange("test", "", kPatience);
}

}  // namespace

int main() {
  Report report("transport-inter-node");
  return kolo::testing::run(report, [&] {
    mpi::Lifetime lifetime;
    lifetime.begin(kPatience, kolo::base::process_environment());
    kolo::testing::for_worlds_within_job([&](MPI_Comm world) { check_world(report, world); });
    lifetime.leave_open(true);  // an operation is open, as after a fault
    lifetime.end(kPatience, 0);
    report.check(!mpi::is_finalized(), "after a fault MPI is not finalised");
    MPI_Finalize();  // the test's own, so that mpirun is content
  });
}
