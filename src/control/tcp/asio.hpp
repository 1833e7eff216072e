// SPDX-License-Identifier: Apache-2.0
//
// Includes Boost.Asio. Only files of this module use it, and only through this header: Boost 1.74's coroutine header
// uses std::exchange without including <utility>, which C++20 compilers reject.
#pragma once

// clang-format off
#include <utility>
// clang-format on
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/error_code.hpp>

namespace kolo::tcp {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

}  // namespace kolo::tcp
