// SPDX-License-Identifier: Apache-2.0
//
// The text of KOLO_ROUTES.
#include "data/cpu/routes.hpp"

#include <kolo/error.hpp>

#include "fuzz.hpp"

namespace kolo::fuzz {

namespace cpu = data::cpu;

/// What a table says can be given again. Errors are those of a setting, and name the variable.
void run(std::string_view input) {
  try {
    const cpu::RouteTable table(input);
    const std::optional<std::size_t> longest = table.longest_small(100);
    for (const int ranks : {1, 2, 3, 8, 9, 100}) {
      const std::vector<std::string> entries = table.describe(ranks, true);
      std::string text;
      for (const std::string& entry : entries) text += entry + ";";
      KOLO_CHECK(cpu::RouteTable(text).describe(ranks, true) == entries) << text;
      const cpu::Routes routes(table, ranks);
      for (const core::CollectiveTraits& traits : core::kCollectives) {
        KOLO_CHECK(!routes.may_take(traits.kind, cpu::Route::small, longest.value_or(0) + 1)) << traits.name;
      }
    }
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::invalid_setting);
    KOLO_CHECK(error.status().message().rfind("KOLO_ROUTES is ", 0) == 0);
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = {"", "*:none=small", "*@2-8:0-64K=small,8K-=peers", "message:none=peers;*:0-=flat"};
  for (const std::string& entry : cpu::RouteTable().describe(4, true)) all.push_back(entry);
  return all;
}

}  // namespace kolo::fuzz
