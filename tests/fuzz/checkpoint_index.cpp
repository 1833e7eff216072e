// SPDX-License-Identifier: Apache-2.0
//
// The index of a checkpoint: what lies behind its first line, for which a right hash is made.
#include "fuzz.hpp"

#include <kolo/error.hpp>
#include <kolo/parameters.hpp>

#include "base/quote.hpp"
#include "checkpoint/index.hpp"

// Its own file in src/api needs an engine.
std::string kolo::quoted_name(std::string_view name) { return base::quoted(name); }

namespace kolo::fuzz {
namespace {

std::string rest_of(const checkpoint::Index& index) {
  const std::string text = encode(index);
  return text.substr(text.find('\n') + 1);
}

}  // namespace

void run(std::string_view input) {
  static_cast<void>(checkpoint::is_utf8(input));
  try {
    const std::string text = checkpoint::first_line_of(input) + std::string(input);
    const checkpoint::Index index = checkpoint::decode(text);
    KOLO_CHECK(encode(index) == text) << "another text means the same";
    check_whole(index, ErrorCode::io);
    for (const checkpoint::IndexedTensor& tensor : index.tensors) {
      std::int64_t elements = 0;
      for (const checkpoint::Piece& piece : tensor.pieces) {
        elements += piece.count;
        const std::int64_t bytes = piece.count * static_cast<std::int64_t>(size_of(tensor.dtype));
        KOLO_CHECK(piece.offset + bytes <= index.files.at(piece.file).bytes);
      }
      KOLO_CHECK(elements == tensor.shape.elements());
    }
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::io);
  }
}

std::vector<std::string> seeds() {
  checkpoint::Index index;
  std::vector<std::string> texts{rest_of(index)};
  index.ranks = 3;
  index.numbers = {{"program/step", 100}, {"program/least", INT64_MIN}};
  index.files = {{"part-0.safetensors", 100, 48, 1}, {"part-2.safetensors", 60, 56, 0xFEDCBA9876543210U}};
  index.tensors = {{"parameters/\"w\"\\\n", DType::float32, Shape{2, 3}, {{0, 4, 0, 48, {7}}, {4, 2, 0, 64, {8}}}},
                   {"program/step", DType::int32, Shape{}, {{0, 1, 1, 56, {9}}}},
                   {"parameters/none", DType::boolean, Shape{0, 7}, {{0, 0, 1, 60, {}}}}};
  texts.push_back(rest_of(index));
  return texts;
}

}  // namespace kolo::fuzz
