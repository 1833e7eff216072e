// SPDX-License-Identifier: Apache-2.0
//
// A peer that does what no channel would: speaks the protocol byte by byte, over a blocking socket.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "control/tcp/asio.hpp"
#include "control/tcp/handshake.hpp"

namespace kolo::tcp::testing {

class RawPeer {
 public:
  explicit RawPeer(const tcp::endpoint& endpoint) : socket_(io_) { socket_.connect(endpoint); }

  void write(const std::string& bytes) { asio::write(socket_, asio::buffer(bytes)); }
  template <class Bytes>
  void write_array(const Bytes& bytes) {
    asio::write(socket_, asio::buffer(bytes));
  }
  GreetingBytes read_greeting() {
    GreetingBytes greeting;
    asio::read(socket_, asio::buffer(greeting));
    return greeting;
  }
  std::uint8_t read_byte() {
    std::uint8_t byte = 0;
    asio::read(socket_, asio::buffer(&byte, 1));
    return byte;
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
  /// The handshake of a child.
  void join(int node, const std::string& key) {
    read_greeting();
    write_array(make_hello(node, key));
    read_byte();
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
