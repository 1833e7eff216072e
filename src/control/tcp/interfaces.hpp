// SPDX-License-Identifier: Apache-2.0
//
// The addresses of this machine, and which of them the control channel may use.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/tcp/asio.hpp"

namespace kolo::tcp {

struct LocalAddress {
  std::string interface;
  asio::ip::address address;
  int prefix_length = 0;
};

/// Empty unless the whole text is an address, without a scope.
std::optional<asio::ip::address> parse_address(const std::string& text);

/// IPv4 and IPv6 addresses of interfaces that are up; IPv4 first, loopback last. Link-local IPv6 addresses are left
/// out: they mean nothing without the name of an interface, which differs by machine.
std::vector<LocalAddress> local_addresses();

/// The addresses that `wanted` names: a comma-separated list of interface names ("eth0"), addresses ("10.77.0.2") and
/// prefixes ("10.77.0.0/24"). Throws Error(invalid_setting) when none is left, saying which there are.
std::vector<LocalAddress> select_addresses(const std::vector<LocalAddress>& all, const std::string& wanted);

/// The interface that has this address, which may be IPv4 in IPv6's form; its name is a device's, also where the
/// address is an alias's ("eth0:1").
std::optional<std::string> interface_of(const asio::ip::address& address, const std::vector<LocalAddress>& all);

/// Whether `other` lies in the subnet that `mine` is of.
bool same_subnet(const LocalAddress& mine, const asio::ip::address& other);

}  // namespace kolo::tcp
