// SPDX-License-Identifier: Apache-2.0
//
// The entry that rank 0 writes into a store for the others: a text, "kolo-1 <proof> <word> <address>|<port> ...".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kolo::launch {

/// A secret and the name of a job, which are both part of what a rank must prove.
struct JobKey {
  std::string secret;  ///< KOLO_JOB_KEY; empty: there is no secret
  std::string job;     ///< "Slurm's step 12.0": distinguishes jobs whose ports are computed from such names
};

struct StoreEntry {
  std::string word;  ///< random, in hex
  std::vector<std::pair<std::string, std::uint16_t>> addresses;
};

/// An address of IPv4 or IPv6, not a name.
[[nodiscard]] bool is_address(const std::string& host);

[[nodiscard]] std::string encode(const StoreEntry& entry, const JobKey& key);
/// Empty unless it is such a text. `proof` is the proof in the text; the caller compares it with `proof_of`.
[[nodiscard]] std::optional<StoreEntry> decode_entry(const std::string& text, std::string& proof);
[[nodiscard]] std::string proof_of(const StoreEntry& entry, const JobKey& key);

}  // namespace kolo::launch
