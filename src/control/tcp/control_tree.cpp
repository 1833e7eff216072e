// SPDX-License-Identifier: Apache-2.0
#include "control/tcp/control_tree.hpp"

#include <algorithm>
#include <utility>

#include <boost/system/system_error.hpp>
#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/system_error.hpp"
#include "base/text.hpp"
#include "control/tcp/asio.hpp"
#include "control/tcp/interfaces.hpp"
#include "control/tcp/link.hpp"
#include "control/tcp/rendezvous.hpp"

namespace kolo::tcp {

namespace {

/// The first timer opens the io_context's descriptors, which may fail.
std::unique_ptr<asio::io_context> make_io_context() {
  try {
    auto io = std::make_unique<asio::io_context>(1);
    const asio::steady_timer first(*io);
    return io;
  } catch (const boost::system::system_error& error) {
    base::throw_errno("making the event loop of the control channel", error.code().value());
  }
}

}  // namespace

struct Listener::State {
  // Each listener has its own, because no other thread may use its sockets. It is on the heap, because sockets refer to
  // it. Nothing runs on it once the channel is connected.
  std::unique_ptr<asio::io_context> io = make_io_context();
  std::vector<tcp::acceptor> acceptors;
  Addresses listening;
  std::string text;
};

namespace {

tcp::acceptor listen(asio::io_context& io, const tcp::endpoint& endpoint, bool both_families) {
  tcp::acceptor acceptor(io);
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) close_on_exec(acceptor.native_handle());
  if (!error && both_families) acceptor.set_option(asio::ip::v6_only(false), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    base::Text text;
    text << "cannot listen for control connections on " << endpoint.address() << ": " << error.message()
         << base::remedy(error.value());
    throw Error(ErrorCode::transport, text.str());
  }
  return acceptor;
}

/// One port for all addresses.
void listen_everywhere(Listener::State& state, const std::vector<LocalAddress>& addresses) {
  const bool any_v6 =
      std::any_of(addresses.begin(), addresses.end(), [](const LocalAddress& a) { return a.address.is_v6(); });
  const tcp::endpoint any(any_v6 ? tcp::v6() : tcp::v4(), 0);
  state.acceptors.push_back(listen(*state.io, any, any_v6));
  const std::uint16_t port = state.acceptors.front().local_endpoint().port();
  for (const LocalAddress& local : addresses) state.listening.endpoints.emplace_back(local.address, port);
}

void listen_on(Listener::State& state, const std::vector<LocalAddress>& addresses) {
  for (const LocalAddress& local : addresses) {
    state.acceptors.push_back(listen(*state.io, tcp::endpoint(local.address, 0), false));
    state.listening.endpoints.push_back(state.acceptors.back().local_endpoint());
  }
}

/// Empty: the other side is of this machine, or the interface is gone.
std::string interface_to_another_machine(const tcp::socket& socket, const std::vector<LocalAddress>& ours) {
  error_code gone;
  const auto here = interface_of(socket.local_endpoint(gone).address(), ours);
  const auto there = interface_of(socket.remote_endpoint(gone).address(), ours);
  return here && !there ? *here : std::string();
}

/// Whether the other side has an address of this machine: the connection then goes over its loopback interface.
bool is_looped(const tcp::socket& socket, const std::vector<LocalAddress>& ours) {
  error_code gone;
  return interface_of(socket.remote_endpoint(gone).address(), ours).has_value();
}

}  // namespace

Listener::Listener(const std::string& interface) : state_(std::make_unique<State>()) {
  const std::vector<LocalAddress> all = local_addresses();
  if (interface.empty()) {
    if (all.empty()) {
      throw Error(ErrorCode::transport,
                  "this machine has no network address, not even a loopback interface that is up");
    }
    listen_everywhere(*state_, all);
  } else {
    listen_on(*state_, select_addresses(all, interface));
  }
  state_->listening.nonce = make_nonce();
  state_->text = encode(state_->listening);
}

Listener::Listener(Listener&&) noexcept = default;
Listener& Listener::operator=(Listener&&) noexcept = default;
Listener::~Listener() = default;

const std::string& Listener::addresses() const noexcept { return state_->text; }

struct TcpControlChannel::State {
  std::unique_ptr<asio::io_context> io;  // before the links, whose sockets refer to it
  std::optional<int> parent;
  std::vector<int> children;
  std::vector<std::string> interfaces;
  std::vector<int> loopback_nodes;
  std::vector<std::unique_ptr<Link>> links;  // the parent first
  bool close_is_expected = false;
};

TcpControlChannel::TcpControlChannel(std::unique_ptr<State> state) : state_(std::move(state)) {}
TcpControlChannel::~TcpControlChannel() = default;

std::unique_ptr<TcpControlChannel> TcpControlChannel::connect(Listener listener, const core::Topology& topology,
                                                              int fanout, const std::vector<std::string>& addresses,
                                                              const std::string& job_key,
                                                              std::chrono::milliseconds timeout) {
  KOLO_CHECK(topology.is_leader()) << "rank " << topology.rank << " leads no node and has no control channel";
  KOLO_CHECK(static_cast<int>(addresses.size()) == topology.size) << addresses.size() << " addresses";
  RendezvousPlan plan;
  plan.rank = topology.rank;
  plan.ranks = topology.size;
  plan.job_key = job_key;
  plan.nonce = listener.state_->listening.nonce;
  plan.listened_at = listener.state_->listening.endpoints;
  for (const int child : topology.tree_children(topology.node, fanout)) {
    plan.children.push_back({child, topology.leader_of(child)});
  }
  if (topology.node != 0) {
    const int node = core::Topology::tree_parent(topology.node, fanout);
    const int rank = topology.leader_of(node);
    Addresses listening = decode_addresses(addresses[static_cast<std::size_t>(rank)]);
    plan.parent.push_back({node, rank});
    plan.parent_nonce = listening.nonce;
    plan.parent_endpoints = by_promise(std::move(listening.endpoints), local_addresses());
  }

  auto state = std::make_unique<State>();
  state->io = std::move(listener.state_->io);
  // Moved here to be destroyed before the io_context that they refer to.
  std::vector<tcp::acceptor> acceptors = std::move(listener.state_->acceptors);
  std::map<int, tcp::socket> sockets = meet(*state->io, acceptors, plan, timeout);
  const std::vector<LocalAddress> ours = local_addresses();
  const auto add = [&](const Neighbour& who) {
    const std::string interface = interface_to_another_machine(sockets.at(who.node), ours);
    std::vector<std::string>& known = state->interfaces;
    if (!interface.empty() && std::find(known.begin(), known.end(), interface) == known.end())
      known.push_back(interface);
    if (is_looped(sockets.at(who.node), ours)) state->loopback_nodes.push_back(who.node);
    state->links.push_back(std::make_unique<Link>(who.node, who.leader_rank, std::move(sockets.at(who.node))));
  };
  for (const Neighbour& parent : plan.parent) {
    state->parent = parent.node;
    add(parent);
  }
  for (const Neighbour& child : plan.children) {
    state->children.push_back(child.node);
    add(child);
  }
  return std::unique_ptr<TcpControlChannel>(new TcpControlChannel(std::move(state)));
}

const std::vector<std::string>& TcpControlChannel::interfaces() const noexcept { return state_->interfaces; }
const std::vector<int>& TcpControlChannel::loopback_nodes() const noexcept { return state_->loopback_nodes; }

std::optional<int> TcpControlChannel::parent() const noexcept { return state_->parent; }
const std::vector<int>& TcpControlChannel::children() const noexcept { return state_->children; }

std::vector<int> TcpControlChannel::descriptors() const {
  std::vector<int> all;
  for (const auto& link : state_->links) {
    if (const int fd = link->descriptor(); fd >= 0) all.push_back(fd);
  }
  return all;
}

void TcpControlChannel::attach(base::Poller& poller, std::uint64_t tag) {
  for (const auto& link : state_->links) link->attach(poller, tag);
}

void TcpControlChannel::send(int node, control::ByteView frame) {
  const auto link = std::find_if(state_->links.begin(), state_->links.end(),
                                 [&](const auto& candidate) { return candidate->node() == node; });
  KOLO_CHECK(link != state_->links.end()) << "node " << node << " is neither parent nor child";
  (*link)->send(frame);
}

void TcpControlChannel::service(Handler& handler) {
  for (const auto& link : state_->links) {
    const std::optional<Link::End> end = link->service(handler);
    if (end && !(state_->close_is_expected && end->departure)) handler.on_lost(link->node(), end->reason);
  }
}

bool TcpControlChannel::flushed() const noexcept {
  return std::all_of(state_->links.begin(), state_->links.end(), [](const auto& link) { return link->flushed(); });
}

void TcpControlChannel::expect_close() noexcept { state_->close_is_expected = true; }

}  // namespace kolo::tcp
