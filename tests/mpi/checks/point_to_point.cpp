// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives between processes: random exchanges in the world and in groups, and long ones in a ring, with
// peers' memory read and not.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "tests/mpi/checks/check.hpp"
#include "tests/support/messages.hpp"

namespace {

using kolo::Group;
using kolo::testing::Report;

void exchange(Report& report) {
  const std::vector<Group> groups{kolo::world(), kolo::world().split(kolo::rank() % 2, -kolo::rank())};
  for (std::uint64_t round = 0; round < 12; ++round) {
    for (const Group& group : groups) {
      const std::string problem = kolo::testing::exchange_messages(group, round, 12, round % 4 == 0 ? 200000 : 9000);
      report.check(problem.empty(), problem);
    }
  }
  const int ranks = kolo::size(), previous = (kolo::rank() + ranks - 1) % ranks;
  for (const std::size_t elements : {std::size_t{1}, std::size_t{20000}, std::size_t{3} << 20}) {
    std::vector<std::int32_t> out(elements, kolo::rank()), in(elements + 1, -1);
    kolo::Handle sent = kolo::send_async(kolo::const_view(out), (kolo::rank() + 1) % ranks, 4);
    const kolo::Received got = kolo::recv(kolo::view(in), previous, 4);
    sent.wait();
    const bool whole =
        std::count(in.begin(), in.end(), previous) == static_cast<std::ptrdiff_t>(elements) && in.back() == -1;
    report.check(whole && got.elements == static_cast<std::int64_t>(elements),
                 "a ring of " + std::to_string(elements) + " elements");
    std::fill(in.begin(), in.end(), -1);
    for (int time = 0; time < 10; ++time) {
      const kolo::Received next =
          kolo::sendrecv(kolo::const_view(out), (kolo::rank() + 1) % ranks, kolo::view(in), previous);
      report.check(next.elements == got.elements && next.source == previous, "the length of a sendrecv");
    }
    report.check(std::count(in.begin(), in.end(), previous) == static_cast<std::ptrdiff_t>(elements) && in.back() == -1,
                 "a sendrecv of " + std::to_string(elements) + " elements");
  }
}

const kolo::testing::Registered registered(
    {"point_to_point", exchange, {kolo::Options{}, kolo::Options{}.with_setting("KOLO_ROUTES", "message:none=peers")}});

}  // namespace
