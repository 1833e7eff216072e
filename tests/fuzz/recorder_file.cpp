// SPDX-License-Identifier: Apache-2.0
//
// A recorder's file, as kolo-why reads it, the judgement over what stands there, and the same for PyTorch's tool.
#include "fuzz.hpp"

#include <cstring>
#include <new>
#include <optional>
#include <vector>

#include "base/hash.hpp"
#include "recorder/reader.hpp"
#include "why/flight_record.hpp"
#include "why/why.hpp"

namespace kolo::fuzz {
namespace {

using recorder::Event;
using recorder::Header;
using recorder::Kind;

/// A small file: two ranks, one group, two texts, and these events.
std::string file_of(const std::vector<recorder::Record>& records) {
  std::vector<std::uint64_t> words(1024);
  auto* const bytes = reinterpret_cast<std::byte*>(words.data());
  auto* const header = new (bytes) Header;
  std::uint64_t end = recorder::kHeaderBytes;
  const auto take = [&end](std::uint64_t count, std::size_t size) {
    const recorder::Part part{end, count};
    end += (count * size + 63) / 64 * 64;
    return part;
  };
  header->magic = recorder::kMagic;
  header->version = recorder::kVersion;
  header->size = 2;
  header->nodes = take(2, sizeof(std::int32_t));
  header->sets = take(1, sizeof(recorder::SetRow));
  header->texts = take(128, 1);
  header->driver = take(16, sizeof(Event));
  header->callers = take(2, sizeof(Event));
  header->file_bytes = end;
  header->state.store(2);
  std::uint64_t used = 0;
  for (const std::string text : {"group of ranks 0 and 1", "0 1"}) {
    const std::uint64_t id = base::hash_string(text);
    const auto length = static_cast<std::uint32_t>(text.size());
    std::byte* const at = bytes + header->texts.offset + used;
    std::memcpy(at, &id, sizeof id);
    std::memcpy(at + sizeof id, &length, sizeof length);
    std::memcpy(at + recorder::kTextHead, text.data(), text.size());
    used += recorder::kTextHead + (text.size() + 7) / 8 * 8;
  }
  header->texts_used.store(used);
  auto* const row = reinterpret_cast<recorder::SetRow*>(bytes + header->sets.offset);
  row->set.store(1);
  row->words.store(base::hash_string("group of ranks 0 and 1"));
  row->members.store(base::hash_string("0 1"));
  auto* const events = reinterpret_cast<Event*>(bytes + header->driver.offset);
  for (std::size_t i = 0; i < records.size(); ++i) {
    events[i].time.store(records[i].time);
    events[i].id.store(records[i].id);
    events[i].counts.store(std::uint64_t{records[i].amount} << 32 | records[i].round);
    events[i].what.store(std::uint64_t{static_cast<std::uint16_t>(records[i].last + 1)} << 48 |
                         std::uint64_t{records[i].detail} << 40 |
                         std::uint64_t{static_cast<std::uint8_t>(records[i].kind)} << 32 | records[i].set);
  }
  header->driver_head.store(records.size());
  return {reinterpret_cast<const char*>(bytes), end};
}

}  // namespace

void run(std::string_view input) {
  std::vector<std::uint64_t> aligned(input.size() / 8 + 1);
  std::memcpy(aligned.data(), input.data(), input.size());
  std::optional<recorder::Recording> recording =
      recorder::parse(reinterpret_cast<const std::byte*>(aligned.data()), input.size());
  if (!recording) return;
  KOLO_CHECK(recording->rank < recording->size && recording->nodes.size() == static_cast<std::size_t>(recording->size));
  const why::Judgement judgement = why::judge({{*recording, why::Life::gone}}, 1);
  for (const int rank : judgement.suspects) KOLO_CHECK(rank >= 0 && rank < recording->size);
  KOLO_CHECK(why::flight_records({{*recording, why::Life::gone}}).size() == 1);
}

std::vector<std::string> seeds() {
  const std::uint64_t group = base::hash_string("group of ranks 0 and 1");
  std::vector<recorder::Record> records{
      {1, 7, 1, 4, 0, Kind::submitted, 0},    {2, 7, 1, 2, 0, Kind::batch_begun, 1, 1},
      {2, 8, 1, 0, 0, Kind::batch_member, 0}, {3, 0, 1, 0, 0, Kind::batch_ended, 0},
      {4, 0, 9, 4, 1, Kind::called, 0},       {5, 9, 2, 3, 1, Kind::batch_begun, 4},
      {6, 0, 0, 1, 0, Kind::death_seen, 0},   {7, 0, 0, 1, 0, Kind::blamed, 0},
      {8, 0, 0, 0, 0, Kind::fault, 7},        {8, group, 0, 0, 0, Kind::sentence, 0}};
  std::vector<std::string> files{file_of({}), file_of(records)};
  records = {{1, group, 1, 0, 0, Kind::submitted, 11}, {2, 0, 0, 1, 0, Kind::late, 0},
             {3, 7, 0, 0, 0, Kind::failed, 3},         {4, 0, 0, 0, 0, Kind::announced, 10},
             {5, 0, 0, 1, 0, Kind::rank_left, 0},      {6, 0, 0, 0, 0, Kind::leaving, 0}};
  files.push_back(file_of(records));
  return files;
}

}  // namespace kolo::fuzz
