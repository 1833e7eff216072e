// SPDX-License-Identifier: Apache-2.0
//
// The parts of a checkpoint that need no ranks: the hash, the index and its reader, and who writes what.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/error.hpp>

#include "base/hash.hpp"
#include "checkpoint/entries.hpp"
#include "checkpoint/index.hpp"
#include "tests/optimizer/errors.hpp"

namespace kolo::checkpoint {
namespace {

using test::error_of;

std::uint64_t hash_of(std::string_view text) { return base::hash_memory(text.data(), text.size()); }

// The first three are published values; the others, for lengths 4, 11, 18, ..., 109, are those of xxhash of PyPI, which
// wraps the reference implementation.
TEST(Xxh64, HasTheValuesOfTheReferenceImplementation) {
  EXPECT_EQ(hash_of(""), 0xEF46DB3751D8E999U);
  EXPECT_EQ(hash_of("a"), 0xD24EC4F1A98C6E5BU);
  EXPECT_EQ(hash_of("abc"), 0x44BC2CF5AD770999U);
  std::string bytes;
  for (int i = 0; i < 109; ++i) bytes += static_cast<char>(i * 7);
  const std::vector<std::uint64_t> wanted{
      0xAE5ACDC00A55AC41U, 0x3A5D6DC1B218A5B6U, 0x7A697A5DDDF73A16U, 0x286C3EE407DB6975U,
      0x91B0CB0931A8C629U, 0x39C20D6F000A8FF7U, 0x84EF1EB63AB3F006U, 0xE3FD1809E8254204U,
      0x4B31EE0DC1830EF0U, 0xF4AEBA5D4EDE41BCU, 0x5E39F46A726E901BU, 0x3D76F05C0D7C2F4EU,
      0xB2B468315047BE57U, 0xD0931963D68A40BDU, 0x8207E028118686BDU, 0x3F6DAB08C115F777U};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(hash_of(std::string_view(bytes).substr(0, 4 + 7 * i)), wanted[i]) << i;
  }
}

Index sample() {
  Index index;
  index.ranks = 3;
  index.numbers = {{"program/step", 100}, {"program/least", INT64_MIN}};
  index.files = {{"part-0.safetensors", 100, 48, 1}, {"part-2.safetensors", 60, 56, 0xFEDCBA9876543210U}};
  index.tensors = {
      {"parameters/\"w\"\\\n\x01\xC3\xA4", DType::float32, Shape{2, 3}, {{0, 4, 0, 48, {7}}, {4, 2, 0, 64, {8}}}},
      {"program/step", DType::int32, Shape{}, {{0, 1, 1, 56, {9}}}},
      {"parameters/none", DType::boolean, Shape{0, 7}, {{0, 0, 1, 60, {}}}}};
  return index;
}

TEST(Index, IsReadAsItWasWritten) {
  const std::string text = encode(sample());
  const Index read = decode(text);
  EXPECT_EQ(encode(read), text);
  EXPECT_EQ(read.ranks, 3);
  EXPECT_EQ(read.numbers, sample().numbers);
  EXPECT_EQ(read.tensors[0].name, sample().tensors[0].name);
  EXPECT_EQ(read.tensors[0].shape, (Shape{2, 3}));
  EXPECT_EQ(read.files[1].header_hash, 0xFEDCBA9876543210U);
  check_whole(read, ErrorCode::io);
}

TEST(Index, IsJson) {
  const nlohmann::json json = nlohmann::json::parse(encode(sample()));
  EXPECT_EQ(json.at("ranks"), 3);
  EXPECT_EQ(json.at("numbers").at("program/least"), INT64_MIN);
  EXPECT_EQ(json.at("tensors").at(0).at("name"), sample().tensors[0].name);
  EXPECT_EQ(json.at("tensors").at(0).at("pieces").at(1).at("file"), "part-0.safetensors");
  EXPECT_EQ(json.at("tensors").at(0).at("pieces").at(1).at("xxh64").at(0), "0000000000000008");
}

TEST(Index, AFlippedByteIsFoundWhereverItIs) {
  const std::string text = encode(sample());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_NE(error_of([&] { static_cast<void>(decode(damaged)); }), "nothing") << i;
    EXPECT_NE(error_of([&] { static_cast<void>(decode(text.substr(0, i))); }), "nothing") << i;
  }
  EXPECT_EQ(error_of([&] { static_cast<void>(decode(text + ' ')); }), "io: is damaged or cut off: its hash is another");
}

/// The error of an index whose hash is right.
std::string error_with(const std::string& find, const std::string& put) {
  const std::string text = encode(sample());
  std::string rest = text.substr(text.find('\n') + 1);
  const std::size_t at = rest.find(find);
  EXPECT_NE(at, std::string::npos);
  rest.replace(at, find.size(), put);
  return error_of([&] { check_whole(decode(first_line_of(rest) + rest), ErrorCode::io); });
}

TEST(Index, OnlyWhatIsWrittenIsRead) {
  EXPECT_EQ(error_with("\"ranks\":3", "\"ranks\":03"), "io: is damaged: byte 79 should begin a number");
  EXPECT_EQ(error_with("\"ranks\":3", "\"ranks\": 3"), "io: is damaged: byte 79 should begin a number");
  EXPECT_NE(error_with("float32", "float31"), "nothing");
  EXPECT_NE(error_with("[2,3]", "[2,-3]"), "nothing");
  EXPECT_NE(error_with("\\u000a", "\\u0041"), "nothing");
  EXPECT_NE(error_with("part-2", "../t-2"), "nothing");
  EXPECT_NE(error_with("part-2", "part-0"), "nothing");
  EXPECT_NE(error_with("0000000000000009", "000000000000000G"), "nothing");
}

TEST(Index, AnotherFormatIsNamed) {
  std::string text = encode(sample());
  text[text.find(":2,") + 1] = '1';
  EXPECT_EQ(
      error_of([&] { static_cast<void>(decode(text)); }),
      "io: is of format 1, which builds before Kolo 0.2 wrote; this one reads format 2. Train on from an older state, "
      "or anew");
  text[text.find(":1,") + 1] = '3';
  EXPECT_EQ(error_of([&] { static_cast<void>(decode(text)); }),
            "io: is of format 3, of a later release of Kolo; this one reads format 2. Load it with that release");
  EXPECT_EQ(error_of([&] { static_cast<void>(decode(R"({"pages": 3})")); }),
            "io: is no index of a checkpoint of Kolo's, or is damaged");
}

TEST(Index, NamesOfFiles) {
  for (const char* name : {"index.json", "part-0.safetensors", "part-123.safetensors"}) {
    EXPECT_TRUE(is_file_name(name)) << name;
  }
  EXPECT_EQ(part_name(12), "part-12.safetensors");
  for (const char* name : {"", "part-.safetensors", "part-1.safetensors.old", "part-1x.safetensors", "index.json~",
                           "part-0", "notes.txt"}) {
    EXPECT_FALSE(is_file_name(name)) << name;
  }
}

TEST(Index, PiecesAreAllOfATensorAndLieInTheirFiles) {
  const std::string w = R"("parameters/\"w\"\\\n\x01)"
                        "\xC3\xA4\"";
  EXPECT_EQ(error_with("\"first\":4", "\"first\":5"), "io: has element 4 of " + w + " [2, 3] nowhere");
  EXPECT_EQ(error_with("\"first\":4", "\"first\":3"), "io: has element 3 of " + w + " [2, 3] more than once");
  EXPECT_EQ(error_with("\"count\":2", "\"count\":1"), "io: has element 5 of " + w + " [2, 3] nowhere");
  EXPECT_EQ(error_with("\"count\":2", "\"count\":3"), "io: has element 6 of " + w + " [2, 3], which there is not");
  EXPECT_EQ(error_with("\"offset\":64", "\"offset\":93"),
            "io: has a piece of " + w + " that does not fit \"part-0.safetensors\"");
  EXPECT_EQ(error_with("\"offset\":48", "\"offset\":47"),
            "io: has a piece of " + w + " that does not fit \"part-0.safetensors\"");
  EXPECT_EQ(error_with(",\"xxh64\":[\"0000000000000009\"]", ",\"xxh64\":[]"),
            "io: has a piece of \"program/step\" that does not fit \"part-2.safetensors\"");
}

TEST(Utf8, IsWhatTheStandardSays) {
  for (const char* good : {"", "w", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xC1\xBF", "\xC2", "\xC2w", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xEF\xBF",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xFF"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

TEST(Entries, EachIsWrittenByOneRankAndTheBytesAreSpread) {
  std::vector<double> memory(1000);
  CheckpointEntries entries;
  for (std::int64_t i = 0; i < 40; ++i) {
    entries.push_back(
        {"t" + std::to_string(i), view(memory.data(), static_cast<std::size_t>(i)), Shape{i}, Held::alike});
  }
  entries.push_back({"piece", view(memory.data(), 5), Shape{20}, Held::piece, 5});
  entries.push_back({"buffer", view(memory.data(), 60), Shape{60}, Held::apart});
  std::vector<int> writers(entries.size());
  for (int rank = 0; rank < 3; ++rank) {
    std::int64_t bytes = 0;
    for (const std::size_t i : written_by(rank, 3, entries)) {
      ++writers[i];
      bytes += entries[i].view.bytes();
    }
    EXPECT_NEAR(static_cast<double>(bytes), (39 * 40 / 2 + 60) * 8 / 3 + 40, 40 * 8) << rank;
  }
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(writers[i], 1) << i;
  EXPECT_EQ(writers[40], 3) << "every rank has a piece of its own";
  EXPECT_EQ(writers[41], 1);
  EXPECT_EQ(written_by(1, 3, {entries[41]}).size(), 0U) << "buffers are rank 0's";
}

}  // namespace
}  // namespace kolo::checkpoint
