// SPDX-License-Identifier: Apache-2.0
#include "base/fields.hpp"

#include <charconv>
#include <cstddef>
#include <optional>

#include "base/text.hpp"

namespace kolo::base {

std::string join_fields(const std::vector<std::string>& fields) {
  std::string joined;
  for (const std::string& field : fields) joined += std::to_string(field.size()) + ":" + field;
  return joined;
}

void throw_unreadable() {
  throw Error(ErrorCode::transport,
              "a rank sent what this release of Kolo cannot read; all ranks must run the same release");
}

std::vector<std::string> split_fields(const std::string& joined) {
  std::vector<std::string> fields;
  const char* at = joined.data();
  const char* const end = at + joined.size();
  while (at != end) {
    std::size_t length = 0;
    const auto [colon, result] = std::from_chars(at, end, length);
    if (result != std::errc() || colon == end || *colon != ':' || length > static_cast<std::size_t>(end - colon - 1)) {
      throw_unreadable();
    }
    fields.emplace_back(colon + 1, length);
    at = colon + 1 + length;
  }
  return fields;
}

ErrorCode error_code_of(const std::string& field) {
  const std::optional<int> code = parse_number<int>(field);
  if (!code || *code < 0 || *code >= kErrorCodeCount) throw_unreadable();
  return static_cast<ErrorCode>(*code);
}

std::string join_status(const Status& status) {
  return join_fields({std::to_string(static_cast<int>(status.code())), status.message()});
}

Status split_status(const std::string& joined) {
  const std::vector<std::string> fields = split_fields(joined);
  if (fields.size() != 2) throw_unreadable();
  return {error_code_of(fields[0]), fields[1]};
}

}  // namespace kolo::base
