// SPDX-License-Identifier: Apache-2.0
//
// Where leaders say that they listen, and which interfaces a user names: text is what it is when it is written again,
// or an Error.
#include "fuzz.hpp"

#include <kolo/error.hpp>

#include "control/tcp/addresses.hpp"
#include "control/tcp/interfaces.hpp"

namespace kolo::fuzz {
namespace {

const std::vector<tcp::LocalAddress>& machine() {
  static const std::vector<tcp::LocalAddress> all = {{"eth0", *tcp::parse_address("10.77.0.2"), 24},
                                                     {"eth0:1", *tcp::parse_address("192.168.3.9"), 20},
                                                     {"ib0", *tcp::parse_address("2001:db8::5"), 64},
                                                     {"lo", *tcp::parse_address("127.0.0.1"), 8}};
  return all;
}

void read(const std::string& text) {
  try {
    const tcp::Addresses addresses = tcp::decode_addresses(text);
    KOLO_CHECK(text.find('\0') == std::string::npos) << "an address has bytes behind a zero byte";
    const tcp::Addresses again = tcp::decode_addresses(encode(addresses));
    KOLO_CHECK(again.nonce == addresses.nonce && again.endpoints == addresses.endpoints);
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::transport);
  }
}

void choose(const std::string& wanted) {
  try {
    KOLO_CHECK(!tcp::select_addresses(machine(), wanted).empty());
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::invalid_setting);
  }
}

}  // namespace

/// The first byte says which.
void run(std::string_view input) {
  if (input.empty()) return;
  const std::string text(input.substr(1));
  input.front() == 'a' ? read(text) : choose(text);
}

std::vector<std::string> seeds() {
  return {"a1 000102feff80060708090a0b0c0d0e0f 10.77.0.1|1 2001:db8::1|65535",
          "a1 000102feff80060708090a0b0c0d0e0f ::ffff:10.0.0.1|80",
          "a1 000102feff80060708090a0b0c0d0e0f fe80::1%lo|80",
          "ieth0,lo",
          "i10.77.0.0/24",
          "i2001:db8::/32,192.168.3.9",
          "i::/0"};
}

}  // namespace kolo::fuzz
