// SPDX-License-Identifier: Apache-2.0
//
// What needs no connection: addresses, the handshake's words, the byte queue.
#include <gtest/gtest.h>

#include <set>

#include <kolo/error.hpp>

#include "control/tcp/addresses.hpp"
#include "control/tcp/frame_inbox.hpp"
#include "control/tcp/interfaces.hpp"
#include "control/tcp/rendezvous.hpp"

namespace kolo::tcp {
namespace {

LocalAddress local(const char* interface, const char* address, int prefix) {
  return {interface, asio::ip::make_address(address), prefix};
}

tcp::endpoint at(const char* address) { return {asio::ip::make_address(address), 80}; }

const std::vector<LocalAddress> kMachine = {local("eth0", "10.77.0.2", 24), local("eth1", "192.168.3.9", 20),
                                            local("eth1", "2001:db8::5", 64), local("lo", "127.0.0.1", 8)};

std::string chosen(const std::string& wanted) {
  std::string text;
  for (const LocalAddress& address : select_addresses(kMachine, wanted)) text += address.address.to_string() + " ";
  return text;
}

std::string refusal(const std::string& wanted) {
  try {
    select_addresses(kMachine, wanted);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_setting);
    return error.what();
  }
  return "no error";
}

TEST(Addresses, SurvivesTheJourneyAsText) {
  Addresses addresses;
  addresses.nonce = {0, 1, 2, 0xfe, 0xff, 0x80, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  addresses.endpoints = {{asio::ip::make_address("10.77.0.1"), 1}, {asio::ip::make_address("2001:db8::1"), 65535}};
  const std::string text = encode(addresses);
  EXPECT_EQ(text, "1 000102feff80060708090a0b0c0d0e0f 10.77.0.1|1 2001:db8::1|65535");
  const Addresses read = decode_addresses(text);
  EXPECT_EQ(read.nonce, addresses.nonce);
  EXPECT_EQ(read.endpoints, addresses.endpoints);
}

TEST(Addresses, RefusesWhatIsNone) {
  const std::string nonce = "000102feff80060708090a0b0c0d0e0f";
  const std::vector<std::string> texts = {"",
                                          "1",
                                          "2 " + nonce + " 10.0.0.1|1",
                                          "1 " + nonce,
                                          "1 0001 10.0.0.1|1",
                                          "1 " + nonce.substr(1) + "x 10.0.0.1|1",
                                          "1 " + nonce + " 10.0.0.1",
                                          "1 " + nonce + " 10.0.0.1|",
                                          "1 " + nonce + " 10.0.0.1|65536",
                                          "1 " + nonce + " 10.0.0.1|-1",
                                          "1 " + nonce + " nowhere|1",
                                          "1 " + nonce + " 10.0.0.1" + std::string("\0.9", 3) + "|1"};
  for (const std::string& text : texts) {
    try {
      decode_addresses(text);
      ADD_FAILURE() << "took '" << text << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::transport);
      EXPECT_NE(error.status().message().find("'" + text + "'"), std::string::npos) << error.what();
    }
  }
}

TEST(Addresses, NoncesDiffer) {
  std::set<Nonce> seen;
  for (int i = 0; i < 100; ++i) seen.insert(make_nonce());
  EXPECT_EQ(seen.size(), 100u);
}

TEST(Handshake, TellsWhatIsWrongWithAGreeting) {
  const Nonce nonce = make_nonce();
  const base::Word word = base::random_word();
  base::Word heard{};
  GreetingBytes greeting = make_greeting(word, nonce);
  EXPECT_EQ(judge_greeting(greeting, nonce, heard), "");
  EXPECT_EQ(heard, word);
  EXPECT_EQ(judge_greeting(greeting, make_nonce(), heard), "is another process");
  greeting[8] = 1;
  EXPECT_EQ(judge_greeting(greeting, nonce, heard),
            "speaks version 1 of Kolo's protocol, not 2: all ranks must run the same release");
  greeting[0] = 'x';
  EXPECT_EQ(judge_greeting(greeting, nonce, heard), "does not speak Kolo's protocol");
}

TEST(Interfaces, LoopbackComesLastAndIsThere) {
  const std::vector<LocalAddress> all = local_addresses();
  ASSERT_FALSE(all.empty());
  bool loopback = false;
  for (const LocalAddress& address : all) {
    EXPECT_FALSE(loopback && !address.address.is_loopback()) << address.address << " comes after a loopback address";
    loopback = loopback || address.address.is_loopback();
    EXPECT_GE(address.prefix_length, 0);
    EXPECT_FALSE(address.interface.empty());
  }
  EXPECT_TRUE(loopback);
}

TEST(Interfaces, SelectsByNameAddressAndPrefix) {
  EXPECT_EQ(chosen("eth1"), "192.168.3.9 2001:db8::5 ");
  EXPECT_EQ(chosen("10.77.0.2"), "10.77.0.2 ");
  EXPECT_EQ(chosen("10.77.0.0/24"), "10.77.0.2 ");
  EXPECT_EQ(chosen("192.168.0.0/20"), "192.168.3.9 ");
  EXPECT_EQ(chosen("2001:db8::/32"), "2001:db8::5 ");
  EXPECT_EQ(chosen("0.0.0.0/0"), "10.77.0.2 192.168.3.9 127.0.0.1 ");
  EXPECT_EQ(chosen("lo,eth0"), "10.77.0.2 127.0.0.1 ");
}

TEST(Interfaces, SaysWhatThereIsWhenNothingMatches) {
  const std::string expected =
      "kolo: KOLO_INTERFACE=eth7 matches no address of this machine; give an interface's name, an address or a prefix "
      "like 10.0.0.0/24, of these: eth0 10.77.0.2/24, eth1 192.168.3.9/20, eth1 2001:db8::5/64, lo 127.0.0.1/8";
  EXPECT_EQ(refusal("eth7"), expected);
  for (const char* wanted : {"10.78.0.0/24", "10.77.0.3", "192.168.16.0/20", "10.77.0.0/33", "10.77.0.0/-1", "/24",
                             "10.77.0.0/", "eth", ","}) {
    EXPECT_NE(refusal(wanted), "no error") << wanted;
  }
}

TEST(Interfaces, TriesTheNearestFirst) {
  const std::vector<tcp::endpoint> listening = {at("127.0.0.1"), at("172.17.0.1"), at("2001:db8::9"), at("10.77.0.1")};
  const std::vector<tcp::endpoint> expected = {at("2001:db8::9"), at("10.77.0.1"), at("172.17.0.1"), at("127.0.0.1")};
  EXPECT_EQ(by_promise(listening, kMachine), expected);
  const std::vector<tcp::endpoint> without_v6 = {at("10.77.0.1"), at("172.17.0.1"), at("127.0.0.1")};
  EXPECT_EQ(by_promise(listening, {local("eth0", "10.77.0.2", 24)}), without_v6);
}

TEST(ByteQueue, KeepsBytesInOrderThroughEveryKindOfMove) {
  ByteQueue queue;
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint64_t wrong = 0;
  std::uint32_t random = 1;
  for (int step = 0; step < 2000; ++step) {
    random = random * 1664525u + 1013904223u;
    const std::size_t amount = (random >> 8) % 5000;
    if (random >> 31 == 0) {
      control::Bytes bytes(amount);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(in++ * 31 >> 3);
      queue.append(bytes.data(), bytes.size());
    } else {
      const std::size_t taken = std::min(amount + amount / 8, queue.size());
      for (std::size_t i = 0; i < taken; ++i) {
        wrong += queue.data()[i] != static_cast<std::byte>(out++ * 31 >> 3) ? 1 : 0;
      }
      queue.drop(taken);
    }
    ASSERT_EQ(queue.size(), in - out);
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(out, 1000000u);
}

TEST(ByteQueue, GivesLargeMemoryBack) {
  ByteQueue queue;
  queue.room(std::size_t{16} << 20);
  queue.commit(std::size_t{16} << 20);
  queue.drop(std::size_t{16} << 20);
  queue.room(1);
  EXPECT_LE(queue.free(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace kolo::tcp
