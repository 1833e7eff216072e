// SPDX-License-Identifier: Apache-2.0
//
// The control channel between real processes: addresses exchanged by MPI, one leader a node, machines cut into virtual
// nodes of 0 (not), 1, 2 and 3 ranks, trees of different width.
#include <algorithm>
#include <chrono>

#include "base/cpu.hpp"
#include "control/control_channel.hpp"
#include "control/tcp/control_tree.hpp"
#include "core/topology.hpp"
#include "tests/mpi/internals.hpp"

namespace {

using kolo::testing::Report;
namespace mpi = kolo::mpi;
namespace bootstrap = kolo::bootstrap;
namespace control = kolo::control;
namespace core = kolo::core;
namespace tcp = kolo::tcp;
namespace base = kolo::base;

constexpr base::Duration kPatience = std::chrono::seconds(60);
constexpr int kFrames = 20;

control::Bytes frame_of(int from, int to, int i) {
  kolo::testing::Random random(static_cast<std::uint64_t>((from * 64 + to) * 64 + i));
  control::Bytes frame(i % 5 == 0 ? 0 : random.below(i == 7 ? 3000000 : 3000));
  for (std::byte& byte : frame) byte = static_cast<std::byte>(random.next());
  return frame;
}

class Talker : public control::ControlChannel::Handler {
 public:
  Talker(Report& report, int node, control::ControlChannel& channel) : report_(report), node_(node), channel_(channel) {
    channel.attach(poller_, 1);
    peers_ = channel.children();
    if (channel.parent()) peers_.push_back(*channel.parent());
    heard_.resize(peers_.size());
  }

  void on_frame(int node, control::ByteView frame) override {
    const auto peer = std::find(peers_.begin(), peers_.end(), node);
    report_.check(peer != peers_.end(), "a frame comes from a neighbour");
    int& count = heard_[static_cast<std::size_t>(peer - peers_.begin())];
    const control::Bytes expected = frame_of(node, node_, count);
    report_.check(std::equal(frame.begin(), frame.end(), expected.begin(), expected.end()),
                  "frame " + std::to_string(count) + " from node " + std::to_string(node));
    ++count;
  }
  void on_lost(int node, const std::string& reason) override { lost_.emplace_back(node, reason); }

  /// Everybody tells everybody next to him everything.
  void talk() {
    for (int i = 0; i < kFrames; ++i) {
      for (const int peer : peers_) {
        const control::Bytes frame = frame_of(node_, peer, i);
        channel_.send(peer, {frame.data(), frame.size()});
      }
    }
    serve_until([&] {
      return channel_.flushed() &&
             std::all_of(heard_.begin(), heard_.end(), [](int count) { return count == kFrames; });
    });
    report_.equal(lost_.size(), 0u, "lost neighbours");
  }
  /// The end of node 0 is told to its children, and nobody else notices.
  void lose_the_root(bool child_of_root) {
    if (!child_of_root) return;
    serve_until([&] { return !lost_.empty(); });
    report_.equal(lost_.size(), 1u, "lost neighbours");
    report_.equal(lost_.front().second, std::string("connection closed by node 0 (rank 0)"), "the reason");
  }

 private:
  template <class Done>
  void serve_until(Done done) {
    std::vector<base::Poller::Event> events;
    while (!done()) {
      poller_.wait(std::chrono::seconds(60), events);
      if (events.empty()) throw kolo::Error(kolo::ErrorCode::timeout, "nothing came for a minute");
      channel_.service(*this);
    }
  }

  Report& report_;
  int node_;
  control::ControlChannel& channel_;
  base::Poller poller_;
  std::vector<int> peers_;
  std::vector<int> heard_;
  std::vector<std::pair<int, std::string>> lost_;
};

void grow_a_tree(Report& report, bootstrap::Bootstrap& bootstrap, int ranks_per_node, int fanout) {
  const std::vector<int> machines =
      core::number_machines(bootstrap.exchange("machine", base::machine_name(), kPatience));
  const core::Topology topology = core::make_topology(bootstrap.rank(), machines, ranks_per_node);
  std::optional<tcp::Listener> listener;
  if (topology.is_leader()) listener.emplace();
  const auto addresses = bootstrap.exchange("address", listener ? listener->addresses() : "", kPatience);
  if (listener) {
    const auto channel = tcp::TcpControlChannel::connect(std::move(*listener), topology, fanout, addresses,
                                                         "the key of this job", std::chrono::seconds(60));
    report.check(channel->children() == topology.tree_children(topology.node, fanout), "the children");
    report.equal(channel->parent().value_or(-1),
                 topology.node == 0 ? -1 : core::Topology::tree_parent(topology.node, fanout), "the parent");
    Talker talker(report, topology.node, *channel);
    talker.talk();
    bootstrap.exchange("test", "", kPatience);
    if (topology.node != 0) talker.lose_the_root(channel->parent() == 0);
    // Node 0 closes now; the others stay until its children have noticed.
    if (topology.node != 0) bootstrap.exchange("test", "", kPatience);
  } else {
    bootstrap.exchange("test", "", kPatience);
    bootstrap.exchange("test", "", kPatience);
  }
  if (topology.rank == 0) bootstrap.exchange("test", "", kPatience);
}

}  // namespace

int main() {
  Report report("transport-tree");
  return kolo::testing::run(report, [&] {
    mpi::Lifetime lifetime;
    kolo::testing::begin(lifetime, kPatience);
    kolo::testing::for_worlds_within_job([&](MPI_Comm world) {
      const auto bootstrap = mpi::borrow(world, kPatience);
      report.set_place(bootstrap->rank(), bootstrap->size());
      for (const int ranks_per_node : {0, 1, 2, 3}) {
        for (const int fanout : {1, 2, 8}) grow_a_tree(report, *bootstrap, ranks_per_node, fanout);
      }
    });
    lifetime.end(kPatience, 0);
  });
}
