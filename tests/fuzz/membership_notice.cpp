// SPDX-License-Identifier: Apache-2.0
//
// A message between a process of an elastic job and its keeper: it is decoded, or refused with an Error.
#include "fuzz.hpp"

#include <kolo/error.hpp>

#include "membership/notice.hpp"

namespace kolo::fuzz {

void run(std::string_view input) {
  try {
    const membership::Notice notice = membership::decode(std::string(input));
    KOLO_CHECK(notice.topic != membership::Topic::next || notice.rank < notice.size);
    KOLO_CHECK(membership::decode(membership::encode(notice)) == notice);
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::transport) << error.what();
  }
}

std::vector<std::string> seeds() {
  using membership::Topic;
  return {membership::encode({Topic::ready, 12, 0, 0, {}}), membership::encode({Topic::next, 3, 1, 4, {}}),
          membership::encode({Topic::entry, 3, 0, 0, "kolo-1 a b 10.0.0.1|29500"}),
          membership::encode({Topic::farewell, 0, 0, 0, "done"})};
}

}  // namespace kolo::fuzz
