// SPDX-License-Identifier: Apache-2.0
//
// The index of a checkpoint: which tensor lies where. A file of JSON:
//
//     {"kolo_checkpoint":2,"block_bytes":1048576,"xxh64":"<hash of all that follows this line>",
//     "ranks":2,
//     "numbers":{"program/step":100},
//     "files":[
//     {"name":"part-0.safetensors","bytes":4264,"header_bytes":168,"header_xxh64":"<...>"}],
//     "tensors":[
//     {"name":"parameters/w","dtype":"float32","shape":[32,32],"pieces":[
//     {"first":0,"count":1024,"file":"part-0.safetensors","offset":168,"xxh64":["<of each block of bytes>"]}]}]}
//
// The reader takes what `encode` writes, byte for byte, and nothing else: a reader of any JSON would be larger, and
// would accept files that nobody has written.
//
// The hashes are XXH64 with seed 0 (base/hash.hpp). They find damage. They do not keep out a person who changes a file
// and its hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kolo/error.hpp>
#include <kolo/types.hpp>

namespace kolo::checkpoint {

inline constexpr const char* kIndexName = "index.json";
/// Of the largest index that is written, or read: that of some 20 TB.
inline constexpr std::int64_t kLargestIndex = std::int64_t{1} << 29U;
/// Whether a file of a checkpoint may have this name: the index, or a part.
[[nodiscard]] bool is_file_name(std::string_view name) noexcept;
/// The name of a rank's part.
[[nodiscard]] std::string part_name(int rank);
/// A hash is that of so many bytes of a piece; that of the last block of the rest. So a reader of a part of a piece can
/// check what it reads.
inline constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20U;

/// Elements of a tensor, in row-major order, that lie in one file.
struct Piece {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::size_t file = 0;     ///< in `Index::files`
  std::int64_t offset = 0;  ///< in the file, in bytes
  std::vector<std::uint64_t> hashes;
};

struct IndexedTensor {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;  ///< of the whole tensor
  std::vector<Piece> pieces;
};

struct IndexedFile {
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t header_bytes = 0;  ///< with the length in front of it
  std::uint64_t header_hash = 0;
};

struct Index {
  int ranks = 1;                                              ///< that wrote it
  std::vector<std::pair<std::string, std::int64_t>> numbers;  ///< whole numbers that tensors hold, for people to read
  std::vector<IndexedFile> files;
  std::vector<IndexedTensor> tensors;
};

[[nodiscard]] std::string encode(const Index& index);

/// Throws `Error` (io) with the end of a sentence: "is damaged: ...".
[[nodiscard]] Index decode(std::string_view text);
/// The same for a text that does not begin as `decode` wants it, be it of another format: at most so many bytes of it
/// are looked at.
inline constexpr std::size_t kBeginningBytes = 64;
void check_beginning(std::string_view text);

/// The text's first line holds the hash of the rest; `decode` checks it. For tests: the first line that fits `rest`.
[[nodiscard]] std::string first_line_of(std::string_view rest);

/// Throws `Error` unless every piece lies inside its file and the pieces of each tensor are all of it, each element
/// once. A rank's own index, before it is merged, has pieces of tensors only. `code`: mismatch while it is made, io
/// while it is read.
void check_whole(const Index& index, ErrorCode code);

/// Adds a rank's files and tensors.
void merge(Index& whole, Index part);

/// Whether the bytes are UTF-8, as names in JSON must be.
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

/// A JSON string, with its quotes.
[[nodiscard]] std::string quoted_json(std::string_view text);

}  // namespace kolo::checkpoint
