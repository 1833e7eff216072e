// SPDX-License-Identifier: Apache-2.0
//
// Finding one another: strangers, wrong keys, wrong processes at the given addresses, and those who never come.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include <kolo/error.hpp>

#include "control/tcp/rendezvous.hpp"
#include "tests/control/tcp/raw_peer.hpp"
#include "tests/control/tcp/tree_harness.hpp"
#include "tests/support/descriptors.hpp"

namespace kolo::tcp::testing {
namespace {

using std::chrono::milliseconds;
using Errors = std::vector<std::string>;

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

/// A hello from child to parent and back.
void talk(int self, Node& node) {
  node.channel->expect_close();
  node.send(1 - self, pattern(20, static_cast<std::uint32_t>(self)));
  ASSERT_TRUE(node.serve_until([&] { return node.frames.size() == 1; }));
  EXPECT_EQ(node.frames[0].first, 1 - self);
  EXPECT_TRUE(node.frames[0].second == pattern(20, static_cast<std::uint32_t>(1 - self)));
}

tcp::endpoint first_endpoint(const std::string& addresses) { return decode_addresses(addresses).endpoints.front(); }

TEST(Rendezvous, WorksOnTheInterfaceThatWasAskedFor) {
  TreeOptions options;
  options.interface = "127.0.0.1";
  options.tell = [](int, std::string text) {
    const Addresses listening = decode_addresses(text);
    EXPECT_EQ(listening.endpoints.size(), 1u);
    EXPECT_EQ(listening.endpoints.front().address().to_string(), "127.0.0.1");
    return text;
  };
  EXPECT_EQ(run_tree(options, talk), Errors(2));
}

TEST(Rendezvous, TellsEveryAddressWithOnePort) {
  const Listener listener;
  const Addresses listening = decode_addresses(listener.addresses());
  ASSERT_FALSE(listening.endpoints.empty());
  EXPECT_TRUE(listening.endpoints.back().address().is_loopback());
  for (const tcp::endpoint& endpoint : listening.endpoints) {
    EXPECT_EQ(endpoint.port(), listening.endpoints.front().port());
    EXPECT_FALSE(endpoint.address().is_unspecified());
  }
}

TEST(Rendezvous, RefusesAnInterfaceThatIsNotThere) {
  try {
    Listener listener("no-such-interface");
    FAIL() << "listens on an interface that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_setting);
    expect_contains(error.what(), "KOLO_INTERFACE=no-such-interface matches no address of this machine");
  }
}

TEST(Rendezvous, IgnoresStrangers) {
  std::vector<std::unique_ptr<RawPeer>> strangers;
  TreeOptions options;
  options.tell = [&](int node, std::string text) {
    if (node != 0) return text;
    const tcp::endpoint where = first_endpoint(text);
    for (int i = 0; i < 3; ++i) strangers.push_back(std::make_unique<RawPeer>(where));
    strangers[0]->write(std::string(4096, 'x'));    // garbage
    strangers[1]->write("GET / HTTP/1.1\r\n\r\n");  // waits for an answer
    strangers[2]->write_array(base::make_hello("not our key", base::random_word(),
                                               {1, 2, 1, {}}));  // another job; and none of them goes away
    return text;
  };
  EXPECT_EQ(run_tree(options, talk), Errors(2));
  for (const auto& stranger : strangers) {
    const std::string heard = stranger->read_to_end();
    EXPECT_EQ(heard.substr(0, 8), "KOLOMEET");
    EXPECT_EQ(heard.size(), GreetingBytes().size()) << "a stranger was told more than the greeting";
  }
}

TEST(Rendezvous, ACrowdOfSilentStrangersDoesNotKeepTheChildOut) {
  std::vector<std::unique_ptr<RawPeer>> strangers;
  TreeOptions options;
  options.tell = [&](int node, std::string text) {
    for (int i = 0; node == 0 && i < 300; ++i) strangers.push_back(std::make_unique<RawPeer>(first_endpoint(text)));
    return text;
  };
  EXPECT_EQ(run_tree(options, talk), Errors(2));
}

TEST(Rendezvous, SaysWhatToDoAboutAShortageOfDescriptors) {
  for (const unsigned left : {0U, 3U}) {
    const kolo::testing::FewDescriptors few(left);
    try {
      const Listener listener("127.0.0.1");
      FAIL() << "listens without a descriptor";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::transport);
      expect_contains(error.what(), "Too many open files");
      expect_contains(error.what(), "; the limit is " + few.limit() + " file descriptors: raise it (ulimit -n)");
    }
  }
}

TEST(Rendezvous, TakesUpAcceptingAgainAfterAShortageOfDescriptors) {
  asio::io_context io;
  std::vector<tcp::acceptor> acceptors;
  acceptors.emplace_back(io, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
  RendezvousPlan plan;
  plan.job_key = "key";
  plan.children = {{1, 1}};
  RawPeer stranger(acceptors[0].local_endpoint());  // has the only descriptor that is left
  RawPeer child(acceptors[0].local_endpoint());
  std::thread thread([&] { child.join(1, "key"); });
  {
    const kolo::testing::FewDescriptors few(1);
    EXPECT_EQ(meet(io, acceptors, plan, milliseconds(60000)).size(), 1u);
  }
  thread.join();
}

/// A parent that waits for the leaders of nodes 1 and 2, ranks 1 and 2.
class Parent {
 public:
  Parent() {
    acceptors_.emplace_back(io_, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
    where_ = acceptors_[0].local_endpoint();
    plan_.job_key = "key";
    plan_.children = {{1, 1}, {2, 2}};
    thread_ = std::thread([this] { found_ = meet(io_, acceptors_, plan_, milliseconds(60000)); });
  }
  ~Parent() { thread_.join(); }
  [[nodiscard]] const tcp::endpoint& where() const { return where_; }
  /// Once both are there: what rank 1's connection says first.
  char hear_rank_1() {
    RawPeer(where_).join(2, "key");
    thread_.join();
    thread_ = std::thread([] {});
    char word = 0;
    asio::read(found_.at(1), asio::buffer(&word, 1));
    return word;
  }

 private:
  asio::io_context io_;
  std::vector<tcp::acceptor> acceptors_;
  tcp::endpoint where_;
  RendezvousPlan plan_;
  std::map<int, tcp::socket> found_;
  std::thread thread_;
};

TEST(Rendezvous, AHelloThatIsRepeatedOnAnotherConnectionIsRefused) {
  Parent parent;
  RawPeer child(parent.where());
  const base::HelloBytes hello = base::make_hello("key", child.read_greeting(), {1, 3, 1, {}});
  child.write_array(hello);
  child.read_welcome();
  RawPeer thief(parent.where());
  thief.read_greeting();
  thief.write_array(hello);
  EXPECT_EQ(thief.read_to_end(), "");
  child.write("c");
  EXPECT_EQ(parent.hear_rank_1(), 'c');
}

TEST(Rendezvous, TheParentKeepsTheChildsLatestConnection) {
  Parent parent;
  RawPeer first(parent.where());
  RawPeer second(parent.where());
  RawPeer third(parent.where());
  first.join(1, "key", 1);
  third.join(1, "key", 3);
  // Said before the third hello, and heard after it.
  second.write_array(base::make_hello("key", second.read_greeting(), {1, 3, 2, {}}));
  EXPECT_EQ(second.read_to_end(), "");
  third.write("3");
  EXPECT_EQ(parent.hear_rank_1(), '3');
}

TEST(Rendezvous, AnotherJobsKeyIsRefusedAndBothSaySo) {
  TreeOptions options;
  options.timeout = milliseconds(700);
  options.interface = "127.0.0.1";
  options.key = [](int node) { return node == 0 ? "key of one" : "key of another"; };
  const Errors errors = run_tree(options, [](int, Node&) { ADD_FAILURE() << "connected with a wrong key"; });
  expect_contains(
      errors[0],
      "kolo: not all control connections were made within 0.7 s; node 1 (rank 1) did not connect to 127.0.0.1:");
  expect_contains(errors[0], "is of another job, or has another KOLO_JOB_KEY");
  expect_contains(errors[1], "could not reach node 0 (rank 0): 127.0.0.1:");
  expect_contains(errors[1], ": refused this node");
}

TEST(Rendezvous, ANodeThatIsNoChildIsTurnedAway) {
  Listener listener("127.0.0.1");
  const tcp::endpoint where = first_endpoint(listener.addresses());
  std::thread stranger([&] {
    RawPeer peer(where);
    peer.write_array(base::make_hello("key", peer.read_greeting(), {5, 2, 1, {}}));
    EXPECT_EQ(peer.read_to_end(), "");
  });
  try {
    TcpControlChannel::connect(std::move(listener), one_rank_a_node(0, 2), 8, {"", ""}, "key", milliseconds(500));
    ADD_FAILURE() << "took a node that is no child";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    expect_contains(error.what(), "says it is rank 5, which leads no child of this node");
  }
  stranger.join();
}

/// Listens, greets with a nonce of nobody, and counts what it is told after that.
class Impostor {
 public:
  Impostor() : acceptor_(io_, {asio::ip::make_address("127.0.0.1"), 0}), where_(acceptor_.local_endpoint()) {
    accept();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Impostor() {
    io_.stop();
    thread_.join();
  }
  [[nodiscard]] tcp::endpoint where() const { return where_; }
  [[nodiscard]] int visits() const { return visits_; }
  [[nodiscard]] std::size_t told() const { return told_; }

 private:
  void accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error) return;
      ++visits_;
      const GreetingBytes greeting = make_greeting(base::random_word(), make_nonce());
      asio::write(socket, asio::buffer(greeting), error);
      base::HelloBytes hello;
      told_ += asio::read(socket, asio::buffer(hello), error);
      accept();
    });
  }

  asio::io_context io_;
  tcp::acceptor acceptor_;
  const tcp::endpoint where_;
  std::atomic<int> visits_ = 0;
  std::atomic<std::size_t> told_ = 0;
  std::thread thread_;
};

TEST(Rendezvous, AnotherProcessAtAGivenAddressIsPassedByAndToldNothing) {
  Impostor impostor;
  TreeOptions options;
  options.interface = "127.0.0.1";
  options.tell = [&](int, std::string text) {
    Addresses listening = decode_addresses(text);
    listening.endpoints.insert(listening.endpoints.begin(), impostor.where());
    return encode(listening);
  };
  EXPECT_EQ(run_tree(options, talk), Errors(2));
  EXPECT_GE(impostor.visits(), 1);
  EXPECT_EQ(impostor.told(), 0u);
}

TEST(Rendezvous, SaysWhatEachAddressAnswered) {
  Impostor impostor;
  tcp::endpoint closed;
  {
    asio::io_context io;
    closed = tcp::acceptor(io, {asio::ip::make_address("127.0.0.1"), 0}).local_endpoint();
  }
  Addresses parent;
  parent.nonce = make_nonce();
  parent.endpoints = {impostor.where(), closed};
  try {
    TcpControlChannel::connect(Listener(), one_rank_a_node(1, 2), 8, {encode(parent), ""}, "key", milliseconds(500));
    ADD_FAILURE() << "connected to nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    expect_contains(error.what(), "could not reach node 0 (rank 0): 127.0.0.1:" +
                                      std::to_string(impostor.where().port()) + ": what answers is another process; ");
    expect_contains(error.what(), "127.0.0.1:" + std::to_string(closed.port()) + ": Connection refused");
  }
}

TEST(Rendezvous, NamesTheChildrenThatNeverCame) {
  try {
    TcpControlChannel::connect(Listener("127.0.0.1"), one_rank_a_node(0, 4), 2, {"", "", "", ""}, "key",
                               milliseconds(300));
    ADD_FAILURE() << "complete without children";
  } catch (const Error& error) {
    expect_contains(error.what(), "node 1 (rank 1), node 2 (rank 2) did not connect to 127.0.0.1:");
  }
}

TEST(Rendezvous, AHalfHandshakeBeforeTheChildsDoesNoHarm) {
  Listener listener("127.0.0.1");
  const std::string addresses = listener.addresses();
  RawPeer half(first_endpoint(addresses));
  half.write("KOLO");
  std::thread child([&] {
    Node node(TcpControlChannel::connect(Listener("127.0.0.1"), one_rank_a_node(1, 2), 8, {addresses, ""}, "key",
                                         milliseconds(60000)));
    talk(1, node);
  });
  Node node(TcpControlChannel::connect(std::move(listener), one_rank_a_node(0, 2), 8, {addresses, ""}, "key",
                                       milliseconds(60000)));
  talk(0, node);
  child.join();
}

TEST(Rendezvous, AChildWhoseHandshakeBreaksTriesAgain) {
  asio::io_context io;
  tcp::acceptor acceptor(io, {asio::ip::make_address("127.0.0.1"), 0});
  Addresses parent;
  parent.nonce = make_nonce();
  parent.endpoints = {acceptor.local_endpoint()};
  std::thread child([&] {
    Node node(TcpControlChannel::connect(Listener(), one_rank_a_node(1, 2), 8, {encode(parent), ""}, "key",
                                         milliseconds(60000)));
    node.send(0, {std::byte{'x'}});
    ASSERT_TRUE(node.serve_until([&] { return !node.lost.empty(); }));
  });
  const base::Word word = base::random_word();
  const GreetingBytes greeting = make_greeting(word, parent.nonce);
  base::HelloBytes hello;
  for (const char* last_word : {"before the greeting", "after the greeting", "after the hello"}) {
    SCOPED_TRACE(last_word);
    tcp::socket socket = acceptor.accept();
    if (last_word == std::string("before the greeting")) continue;
    asio::write(socket, asio::buffer(greeting));
    if (last_word == std::string("after the hello")) asio::read(socket, asio::buffer(hello));
  }
  tcp::socket socket = acceptor.accept();
  asio::write(socket, asio::buffer(greeting));
  asio::read(socket, asio::buffer(hello));
  std::string wrong;
  const std::optional<base::Hello> said = base::judge_hello("key", word, hello, wrong);
  ASSERT_TRUE(said) << wrong;
  EXPECT_EQ(said->rank, 1);
  EXPECT_GE(said->number, 2);
  asio::write(socket, asio::buffer(base::make_welcome("key", word, said->word)));
  std::array<char, 5> frame{};
  asio::read(socket, asio::buffer(frame));
  EXPECT_EQ(std::string(frame.data(), frame.size()), std::string("\x01\0\0\0x", 5));
  socket.close();
  child.join();
}

}  // namespace
}  // namespace kolo::tcp::testing
