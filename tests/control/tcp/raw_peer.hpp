// SPDX-License-Identifier: Apache-2.0
//
// A peer that does what no channel would: speaks the protocol byte by byte, over a blocking socket.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "control/tcp/addresses.hpp"
#include "control/tcp/asio.hpp"

namespace kolo::tcp::testing {

/// In a greeting, behind magic and version.
inline constexpr std::size_t kWordAt = 12;

class RawPeer {
 public:
  explicit RawPeer(const tcp::endpoint& endpoint) : socket_(io_) { socket_.connect(endpoint); }

  void write(const std::string& bytes) { asio::write(socket_, asio::buffer(bytes)); }
  template <class Bytes>
  void write_array(const Bytes& bytes) {
    asio::write(socket_, asio::buffer(bytes));
  }
  /// The random word of the parent's greeting.
  base::Word read_greeting() {
    GreetingBytes greeting;
    asio::read(socket_, asio::buffer(greeting));
    base::Word word{};
    std::copy_n(greeting.begin() + kWordAt, word.size(), word.begin());
    return word;
  }
  base::WelcomeBytes read_welcome() {
    base::WelcomeBytes welcome;
    asio::read(socket_, asio::buffer(welcome));
    return welcome;
  }
  /// Everything until the other side ends the connection.
  std::string read_to_end() {
    std::string all;
    std::array<char, 4096> part;
    for (;;) {
      error_code error;
      const std::size_t got = socket_.read_some(asio::buffer(part), error);
      all.append(part.data(), got);
      if (error) return all;
    }
  }
  /// The handshake of a child, who says this many-th hello.
  void join(int rank, const std::string& key, std::int64_t number = 1) {
    write_array(base::make_hello(key, read_greeting(), {rank, 2, number, {}}));
    read_welcome();
  }
  void close() { socket_.close(); }
  /// Closes as the system does for a process that was killed with input unread.
  void reset() {
    socket_.set_option(asio::socket_base::linger(true, 0));
    socket_.close();
  }

 private:
  asio::io_context io_;
  tcp::socket socket_;
};

}  // namespace kolo::tcp::testing
