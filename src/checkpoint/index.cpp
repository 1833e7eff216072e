// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/index.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <map>
#include <set>

#include <kolo/parameters.hpp>

#include "base/hash.hpp"

namespace kolo::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the hashes and the files are little-endian");

// Format 1, of builds before the first release, had one count of steps for all parameters of an optimizer of
// LibTorch's.
constexpr std::int64_t kFormat = 2;
constexpr std::string_view kMagic = "{\"kolo_checkpoint\":";
constexpr std::string_view kFirstLine = "{\"kolo_checkpoint\":2,\"block_bytes\":1048576,\"xxh64\":";
constexpr std::string_view kPartPrefix = "part-";
constexpr std::string_view kPartSuffix = ".safetensors";
constexpr std::string_view kEndOfFirstLine = ",\n";

std::string quoted_hash(std::uint64_t hash) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text(18, '"');
  for (std::size_t i = 0; i < 16; ++i) text[16 - i] = digits[(hash >> (4 * i)) & 15U];
  return text;
}

/// "a,b,c" of a list, each item by `item`.
template <class List, class Item>
std::string joined(const List& list, const Item& item) {
  std::string text;
  for (const auto& each : list) {
    if (!text.empty()) text += ',';
    text += item(each);
  }
  return text;
}

std::string encode_file(const IndexedFile& file) {
  return "\n{\"name\":" + quoted_json(file.name) + ",\"bytes\":" + std::to_string(file.bytes) +
         ",\"header_bytes\":" + std::to_string(file.header_bytes) +
         ",\"header_xxh64\":" + quoted_hash(file.header_hash) + '}';
}

std::string encode_tensor(const IndexedTensor& tensor, const std::vector<IndexedFile>& files) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  const auto piece = [&](const Piece& one) {
    return "\n{\"first\":" + number(one.first) + ",\"count\":" + number(one.count) +
           ",\"file\":" + quoted_json(files.at(one.file).name) + ",\"offset\":" + number(one.offset) + ",\"xxh64\":[" +
           joined(one.hashes, quoted_hash) + "]}";
  };
  return "\n{\"name\":" + quoted_json(tensor.name) + ",\"dtype\":\"" + std::string(to_string(tensor.dtype)) +
         "\",\"shape\":[" + joined(tensor.shape, number) + "],\"pieces\":[" + joined(tensor.pieces, piece) + "]}";
}

/// Takes the text apart, front to back. Throws `Error` (io) where it is not what `encode` writes.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  [[nodiscard]] std::string_view rest() const { return text_.substr(at_); }
  /// Takes the text if it comes next.
  bool takes(std::string_view wanted) {
    if (rest().substr(0, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }
  void expect(std::string_view wanted) {
    if (!takes(wanted)) fail("'" + std::string(wanted) + "'");
  }
  /// Whole numbers without leading zeros.
  std::int64_t number(std::int64_t least = 0) {
    std::int64_t value = 0;
    const std::string_view digits = rest().substr(0, 20);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const auto length = static_cast<std::size_t>(end - digits.data());
    if (error != std::errc() || value < least || std::to_string(value).size() != length) fail("a number");
    at_ += length;
    return value;
  }
  std::uint64_t hash() {
    std::uint64_t value = 0;
    const std::string_view digits = rest().substr(0, 18);
    if (digits.size() == 18) std::from_chars(digits.data() + 1, digits.data() + 17, value, 16);
    if (quoted_hash(value) != digits) fail("a hash of 16 digits");
    at_ += digits.size();
    return value;
  }
  std::string string() {
    expect("\"");
    std::string value;
    while (!takes("\"")) value += character();
    return value;
  }
  /// "[", items with commas between, "]"; `[]` is empty. `close` is the end.
  template <class Item>
  void list(std::string_view close, const Item& item) {
    if (takes(close)) return;
    do {
      item();
    } while (takes(","));
    expect(close);
  }
  void end() {
    if (at_ != text_.size()) fail("the end of the file");
  }
  [[noreturn]] void fail(const std::string& wanted) const {
    throw Error(ErrorCode::io, "is damaged: byte " + std::to_string(at_) + " should begin " + wanted);
  }

 private:
  char character() {
    const std::string_view left = rest();
    if (left.empty() || static_cast<unsigned char>(left.front()) < 0x20) fail("a character");
    if (left.front() != '\\') {
      ++at_;
      return left.front();
    }
    if (takes("\\\"")) return '"';
    if (takes("\\\\")) return '\\';
    unsigned value = 0;
    const std::string_view escape = left.substr(0, 6);
    if (escape.size() == 6) std::from_chars(escape.data() + 4, escape.data() + 6, value, 16);
    const auto byte = static_cast<char>(value);
    if (value >= 0x20 || quoted_json({&byte, 1}) != '"' + std::string(escape) + '"') fail("an escaped character");
    at_ += escape.size();
    return byte;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

Shape parse_shape(Parser& parser) {
  std::vector<std::int64_t> extents;
  parser.list("]", [&] { extents.push_back(parser.number()); });
  try {
    return Shape(extents);
  } catch (const Error&) {
    parser.fail("a shape");
  }
}

using FileNumbers = std::map<std::string, std::size_t, std::less<>>;

Piece parse_piece(Parser& parser, const FileNumbers& files) {
  Piece piece;
  parser.expect("\n{\"first\":");
  piece.first = parser.number();
  parser.expect(",\"count\":");
  piece.count = parser.number();
  parser.expect(",\"file\":");
  const auto file = files.find(parser.string());
  if (file == files.end()) parser.fail("what follows the name of a file of the list");
  piece.file = file->second;
  parser.expect(",\"offset\":");
  piece.offset = parser.number();
  parser.expect(",\"xxh64\":[");
  parser.list("]", [&] { piece.hashes.push_back(parser.hash()); });
  parser.expect("}");
  return piece;
}

IndexedTensor parse_tensor(Parser& parser, const FileNumbers& files) {
  IndexedTensor tensor;
  parser.expect("\n{\"name\":");
  tensor.name = parser.string();
  parser.expect(",\"dtype\":");
  const std::optional<DType> dtype = parse_dtype(parser.string());
  if (!dtype) parser.fail("what follows an element type");
  tensor.dtype = *dtype;
  parser.expect(",\"shape\":[");
  tensor.shape = parse_shape(parser);
  parser.expect(",\"pieces\":[");
  parser.list("]", [&] { tensor.pieces.push_back(parse_piece(parser, files)); });
  parser.expect("}");
  return tensor;
}

IndexedFile parse_file(Parser& parser) {
  IndexedFile file;
  parser.expect("\n{\"name\":");
  file.name = parser.string();
  if (file.name.empty() || file.name.front() == '.' || file.name.find('/') != std::string::npos) {
    parser.fail("what follows the name of a file of this folder");
  }
  parser.expect(",\"bytes\":");
  file.bytes = parser.number();
  parser.expect(",\"header_bytes\":");
  file.header_bytes = parser.number();
  parser.expect(",\"header_xxh64\":");
  file.header_hash = parser.hash();
  parser.expect("}");
  return file;
}

/// Throws unless the piece's bytes lie behind its file's header and have as many hashes as they need.
void check_place(const Piece& piece, const IndexedTensor& tensor, const Index& index, ErrorCode code) {
  const IndexedFile& file = index.files[piece.file];
  const std::int64_t bytes = piece.count * static_cast<std::int64_t>(size_of(tensor.dtype));
  const std::int64_t blocks = bytes / kBlockBytes + (bytes % kBlockBytes == 0 ? 0 : 1);
  if (piece.offset < file.header_bytes || piece.offset > file.bytes || bytes > file.bytes - piece.offset ||
      piece.hashes.size() != static_cast<std::size_t>(blocks)) {
    throw Error(code, "has a piece of " + quoted_name(tensor.name) + " that does not fit " + quoted_name(file.name));
  }
}

void check_tensor(const IndexedTensor& tensor, const Index& index, ErrorCode code) {
  std::vector<const Piece*> pieces;
  for (const Piece& piece : tensor.pieces) pieces.push_back(&piece);
  std::sort(pieces.begin(), pieces.end(), [](const Piece* a, const Piece* b) {
    return std::pair(a->first, a->count) < std::pair(b->first, b->count);
  });
  const auto refuse = [&](std::int64_t element, const char* what) {
    throw Error(code, "has element " + std::to_string(element) + " of " + quoted_name(tensor.name) + ' ' +
                          to_string(tensor.shape) + what);
  };
  const std::int64_t elements = tensor.shape.elements();
  std::int64_t next = 0;
  for (const Piece* piece : pieces) {
    if (piece->first > next) refuse(next, " nowhere");
    if (piece->first < next) refuse(piece->first, " more than once");
    if (piece->count > elements - next) refuse(elements, ", which there is not");
    check_place(*piece, tensor, index, code);
    next += piece->count;
  }
  if (next < elements) refuse(next, " nowhere");
}

}  // namespace

std::string first_line_of(std::string_view rest) {
  return std::string(kFirstLine) + quoted_hash(base::hash_memory(rest.data(), rest.size())) +
         std::string(kEndOfFirstLine);
}

std::string encode(const Index& index) {
  const auto number = [](const std::pair<std::string, std::int64_t>& one) {
    return quoted_json(one.first) + ':' + std::to_string(one.second);
  };
  const auto tensor = [&](const IndexedTensor& one) { return encode_tensor(one, index.files); };
  const std::string rest = "\"ranks\":" + std::to_string(index.ranks) + ",\n\"numbers\":{" +
                           joined(index.numbers, number) + "},\n\"files\":[" + joined(index.files, encode_file) +
                           "],\n\"tensors\":[" + joined(index.tensors, tensor) + "]}\n";
  return first_line_of(rest) + rest;
}

void check_beginning(std::string_view text) {
  Parser parser(text.substr(0, kBeginningBytes));
  if (!parser.takes(kMagic)) throw Error(ErrorCode::io, "is no index of a checkpoint of Kolo's, or is damaged");
  const std::int64_t format = parser.number();
  if (format < kFormat) {
    throw Error(ErrorCode::io, "is of format " + std::to_string(format) +
                                   ", which builds before Kolo 0.2 wrote; this one reads format " +
                                   std::to_string(kFormat) + ". Train on from an older state, or anew");
  }
  if (format > kFormat) {
    throw Error(ErrorCode::io, "is of format " + std::to_string(format) +
                                   ", of a later release of Kolo; this one reads " + "format " +
                                   std::to_string(kFormat) + ". Load it with that release");
  }
}

Index decode(std::string_view text) {
  check_beginning(text);
  Parser parser(text);
  parser.expect(kFirstLine);
  const std::uint64_t hash = parser.hash();
  parser.expect(kEndOfFirstLine);
  if (hash != base::hash_memory(parser.rest().data(), parser.rest().size())) {
    throw Error(ErrorCode::io, "is damaged or cut off: its hash is another");
  }
  Index index;
  parser.expect("\"ranks\":");
  index.ranks = static_cast<int>(std::min<std::int64_t>(parser.number(1), std::numeric_limits<int>::max()));
  parser.expect(",\n\"numbers\":{");
  parser.list("}", [&] {
    std::string name = parser.string();
    parser.expect(":");
    index.numbers.emplace_back(std::move(name), parser.number(std::numeric_limits<std::int64_t>::min()));
  });
  parser.expect(",\n\"files\":[");
  FileNumbers files;
  parser.list("]", [&] {
    index.files.push_back(parse_file(parser));
    if (!files.emplace(index.files.back().name, index.files.size() - 1).second) parser.fail("what follows a new name");
  });
  parser.expect(",\n\"tensors\":[");
  std::set<std::string> names;
  parser.list("]", [&] {
    index.tensors.push_back(parse_tensor(parser, files));
    if (!names.insert(index.tensors.back().name).second) parser.fail("what follows a tensor of a new name");
  });
  parser.expect("}\n");
  parser.end();
  return index;
}

bool is_file_name(std::string_view name) noexcept {
  if (name == kIndexName) return true;
  if (name.size() <= kPartPrefix.size() + kPartSuffix.size() || name.substr(0, kPartPrefix.size()) != kPartPrefix ||
      name.substr(name.size() - kPartSuffix.size()) != kPartSuffix) {
    return false;
  }
  const std::string_view number =
      name.substr(kPartPrefix.size(), name.size() - kPartPrefix.size() - kPartSuffix.size());
  return std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string part_name(int rank) { return std::string(kPartPrefix) + std::to_string(rank) + std::string(kPartSuffix); }

void check_whole(const Index& index, ErrorCode code) {
  for (const IndexedTensor& tensor : index.tensors) check_tensor(tensor, index, code);
}

void merge(Index& whole, Index part) {
  std::map<std::string_view, IndexedTensor*> known;
  for (IndexedTensor& tensor : whole.tensors) known.emplace(tensor.name, &tensor);
  std::vector<IndexedTensor> added;
  for (IndexedTensor& tensor : part.tensors) {
    for (Piece& piece : tensor.pieces) piece.file += whole.files.size();
    const auto found = known.find(tensor.name);
    if (found == known.end()) {
      added.push_back(std::move(tensor));
      continue;
    }
    std::vector<Piece>& pieces = found->second->pieces;
    std::move(tensor.pieces.begin(), tensor.pieces.end(), std::back_inserter(pieces));
  }
  std::move(part.files.begin(), part.files.end(), std::back_inserter(whole.files));
  std::move(part.numbers.begin(), part.numbers.end(), std::back_inserter(whole.numbers));
  std::move(added.begin(), added.end(), std::back_inserter(whole.tensors));
}

bool is_utf8(std::string_view text) noexcept {
  constexpr std::array<std::uint32_t, 4> least{0, 0x80, 0x800, 0x10000};
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t more = lead < 0x80   ? 0
                             : lead < 0xC0 ? 4
                             : lead < 0xE0 ? 1
                             : lead < 0xF0 ? 2
                             : lead < 0xF8 ? 3
                                           : 4;
    if (more == 4 || more >= text.size() - i) return false;
    std::uint32_t code = more == 0 ? lead : lead & (0x3FU >> more);
    for (std::size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0U) != 0x80) return false;
      code = code << 6U | (next & 0x3FU);
    }
    if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    i += more + 1;
  }
  return true;
}

std::string quoted_json(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (byte < 0x20) {
      quoted += {'\\', 'u', '0', '0', digits[byte >> 4U], digits[byte & 15U]};
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace kolo::checkpoint
