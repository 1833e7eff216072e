// SPDX-License-Identifier: Apache-2.0
#include "control/tcp/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include <kolo/error.hpp>

#include "base/system_error.hpp"

namespace kolo::tcp {
namespace {

bool share_prefix(const asio::ip::address& a, const asio::ip::address& b, int length) {
  if (a.is_v4() != b.is_v4()) return false;
  const auto bits = static_cast<unsigned short>(length);
  if (a.is_v4())
    return asio::ip::network_v4(a.to_v4(), bits).network() == asio::ip::network_v4(b.to_v4(), bits).network();
  return asio::ip::network_v6(a.to_v6(), bits).network() == asio::ip::network_v6(b.to_v6(), bits).network();
}

int count_ones(const asio::ip::address& netmask) {
  if (netmask.is_v4()) return std::popcount(netmask.to_v4().to_uint());
  int ones = 0;
  for (const std::uint8_t byte : netmask.to_v6().to_bytes()) ones += std::popcount(byte);
  return ones;
}

std::optional<asio::ip::address> to_address(const sockaddr* raw) {
  if (raw == nullptr) return std::nullopt;
  if (raw->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, raw, sizeof v4);
    return asio::ip::address_v4(ntohl(v4.sin_addr.s_addr));
  }
  if (raw->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, raw, sizeof v6);
    asio::ip::address_v6::bytes_type bytes;
    std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
    return asio::ip::address_v6(bytes);
  }
  return std::nullopt;
}

/// Whether one item of KOLO_INTERFACE names this address; nothing when the item is neither of the three forms.
std::optional<bool> names(std::string_view item, const LocalAddress& local) {
  if (item == local.interface) return true;
  const std::size_t slash = item.find('/');
  const std::optional<asio::ip::address> address = parse_address(std::string(item.substr(0, slash)));
  if (!address) return std::nullopt;
  if (slash == std::string_view::npos) return *address == local.address;
  const std::string_view digits = item.substr(slash + 1);
  int length = -1;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (failure != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (length < 0 || length > (address->is_v4() ? 32 : 128)) return std::nullopt;
  return share_prefix(*address, local.address, length);
}

std::string list(const std::vector<LocalAddress>& addresses) {
  std::string text;
  for (const LocalAddress& local : addresses) {
    text += (text.empty() ? "" : ", ") + local.interface + " " + local.address.to_string() + "/" +
            std::to_string(local.prefix_length);
  }
  return text.empty() ? "none" : text;
}

int preference(const LocalAddress& local) {
  return (local.address.is_loopback() ? 2 : 0) + (local.address.is_v6() ? 1 : 0);
}

}  // namespace

std::optional<asio::ip::address> parse_address(const std::string& text) {
  // make_address ends at a zero, and takes any text as the scope of an address, which means something on one machine.
  if (text.find_first_of(std::string_view("\0%", 2)) != std::string::npos) return std::nullopt;
  error_code error;
  const auto address = asio::ip::make_address(text, error);
  if (error) return std::nullopt;
  return address;
}

std::vector<LocalAddress> local_addresses() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) base::throw_errno("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(raw, &::freeifaddrs);
  std::vector<LocalAddress> found;
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_UP) == 0) continue;
    const std::optional<asio::ip::address> address = to_address(entry->ifa_addr);
    if (!address || (address->is_v6() && address->to_v6().is_link_local())) continue;
    const std::optional<asio::ip::address> netmask = to_address(entry->ifa_netmask);
    const int whole = address->is_v4() ? 32 : 128;
    found.push_back({entry->ifa_name, *address, netmask ? count_ones(*netmask) : whole});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const LocalAddress& a, const LocalAddress& b) { return preference(a) < preference(b); });
  return found;
}

std::vector<LocalAddress> select_addresses(const std::vector<LocalAddress>& all, const std::string& wanted) {
  std::vector<LocalAddress> chosen;
  for (const LocalAddress& local : all) {
    for (std::size_t begin = 0; begin <= wanted.size();) {
      const std::size_t end = std::min(wanted.find(',', begin), wanted.size());
      if (names(std::string_view(wanted).substr(begin, end - begin), local).value_or(false)) {
        chosen.push_back(local);
        break;
      }
      begin = end + 1;
    }
  }
  if (chosen.empty()) {
    throw Error(ErrorCode::invalid_setting,
                "KOLO_INTERFACE=" + wanted +
                    " matches no address of this machine; give an interface's name, an address or a prefix like "
                    "10.0.0.0/24, of these: " +
                    list(all));
  }
  return chosen;
}

std::optional<std::string> interface_of(const asio::ip::address& address, const std::vector<LocalAddress>& all) {
  const bool is_mapped = address.is_v6() && address.to_v6().is_v4_mapped();
  const asio::ip::address plain = is_mapped ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()) : address;
  const auto local = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.address == plain; });
  if (local == all.end()) return std::nullopt;
  return local->interface.substr(0, local->interface.find(':'));
}

bool same_subnet(const LocalAddress& mine, const asio::ip::address& other) {
  return share_prefix(mine.address, other, mine.prefix_length);
}

}  // namespace kolo::tcp
