// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/site.hpp"

#include <exception>
#include <string>

namespace kolo::data::cpu {

std::byte* allocate_output(data::Run& run, const std::vector<std::int64_t>& parts) {
  try {
    return run.allocate(parts);
  } catch (const Error& error) {
    run.status = error.status();
  } catch (const std::exception& error) {
    const bool in_rows = !run.splits.empty();
    const std::int64_t unit = in_rows ? run.row_elements * static_cast<std::int64_t>(size_of(run.dtype)) : 1;
    std::int64_t bytes = 0;
    for (const std::int64_t part : parts) bytes += part * unit;
    run.status =
        Status(ErrorCode::out_of_memory, "no memory for the result of " + std::string(core::to_string(run.kind)) +
                                             ", " + std::to_string(bytes) + " bytes: " + error.what());
  }
  return nullptr;
}

}  // namespace kolo::data::cpu
