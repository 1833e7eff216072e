// SPDX-License-Identifier: Apache-2.0
//
// What a save or a load is given: lists of tensors, checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <kolo/checkpoint.hpp>

namespace kolo::checkpoint {

using detail::CheckpointEntries;
using detail::CheckpointEntry;
using detail::Held;

/// Throws `Error` for names that are empty, repeated or not UTF-8, and for memory that is null or of a device.
void check_entries(const CheckpointEntries& entries);

/// What all ranks must give alike, as `check_agreement` compares it: names, types, shapes, and the values of scalars
/// that they hold alike.
[[nodiscard]] std::vector<std::string> shared_by_ranks(const CheckpointEntries& entries);

/// The hashes of the values that ranks hold alike, as a text that another rank compares with its own values.
[[nodiscard]] std::string hashes_of(const CheckpointEntries& entries);
/// Throws `Error` (mismatch) for the first value that is not that of rank 0, whose hashes these are.
void check_alike(const CheckpointEntries& entries, const std::string& hashes_of_root);

/// "parameters/w" float32 [3, 4]
[[nodiscard]] std::string described(const CheckpointEntry& entry);

/// The place in `entries` of what this rank writes: its pieces, what is rank 0's, and its share of what all ranks hold
/// alike. Ranks with equal lists find shares without a word: the largest tensor goes first, and each to the rank with
/// the fewest bytes.
[[nodiscard]] std::vector<std::size_t> written_by(int rank, int size, const CheckpointEntries& entries);

}  // namespace kolo::checkpoint
