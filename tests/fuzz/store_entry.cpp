// SPDX-License-Identifier: Apache-2.0
//
// What a store holds where rank 0 should have left its address.
#include "fuzz.hpp"

#include "launch/directions.hpp"

namespace kolo::fuzz {
namespace {

const launch::JobKey kKey{"secret", "a job"};

}  // namespace

void run(std::string_view input) {
  std::string proof;
  const auto entry = launch::decode_entry(std::string(input), proof);
  if (!entry) return;
  for (const auto& [address, port] : entry->addresses) {
    KOLO_CHECK(address.find_first_not_of("0123456789abcdefABCDEF.:") == std::string::npos) << address;
  }
  std::string proof_again;
  const auto again = launch::decode_entry(encode(*entry, kKey), proof_again);
  KOLO_CHECK(again && again->word == entry->word && again->addresses == entry->addresses);
  KOLO_CHECK(proof_again == proof_of(*again, kKey));
}

std::vector<std::string> seeds() {
  const std::string word(64, 'a');
  return {encode({word, {}}, kKey), encode({word, {{"10.0.0.1", 29500}}}, kKey),
          encode({word, {{"::1", 1}, {"fe80::1234:5678", 65535}, {"::ffff:1.2.3.4", 80}}}, kKey),
          encode({word, {{"fe80::1%eth0", 1}}}, kKey)};
}

}  // namespace kolo::fuzz
