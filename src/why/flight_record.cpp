// SPDX-License-Identifier: Apache-2.0
#include "why/flight_record.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "base/quote.hpp"
#include "core/collectives.hpp"

namespace kolo::why {
namespace {

using core::CollectiveKind;
using recorder::Kind;
using recorder::Record;
using recorder::Recording;

/// Of the format, as torch 2.15 writes it.
constexpr std::string_view kVersion = "2.10";

/// Writes values of Python, by the second protocol of pickle.
class Pickle {
 public:
  Pickle() { text_ = "\x80\x02"; }
  Pickle& begin_dict() { return put("}("); }
  Pickle& end_dict() { return put("u"); }
  Pickle& begin_list() { return put("]("); }
  Pickle& end_list() { return put("e"); }
  Pickle& begin_tuple() { return put("("); }
  Pickle& end_tuple() { return put("t"); }
  Pickle& none() { return put("N"); }
  Pickle& boolean(bool value) { return put(value ? "\x88" : "\x89"); }
  /// Of text that may contain any bytes.
  Pickle& text(std::string_view value) {
    const std::string escaped = base::escaped(value);
    put("X");
    little_endian(escaped.size(), 4);
    return put(escaped);
  }
  Pickle& number(std::uint64_t value) {
    put("\x8a\x09");  // nine bytes: the last one says that it is not negative
    return little_endian(value, 8).put(std::string_view("\0", 1));
  }
  [[nodiscard]] std::string end() { return std::move(put(".").text_); }

 private:
  Pickle& put(std::string_view bytes) {
    text_ += bytes;
    return *this;
  }
  Pickle& little_endian(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }

  std::string text_;
};

/// PyTorch's name of a collective, and whether every rank gives, and gets, as many bytes.
struct Named {
  CollectiveKind kind;
  std::string_view name;
  bool is_even = false;
};

constexpr Named kNames[] = {{CollectiveKind::allreduce, "all_reduce", true},
                            {CollectiveKind::broadcast, "broadcast", true},
                            {CollectiveKind::reduce, "reduce", true},
                            {CollectiveKind::allgather, "all_gather_v"},
                            {CollectiveKind::allgather_equal, "all_gather_v"},
                            {CollectiveKind::alltoall, "all_to_all"},
                            {CollectiveKind::alltoall_splits, "all_to_all"},
                            {CollectiveKind::alltoall_known, "all_to_all"},
                            {CollectiveKind::reduce_scatter, "reduce_scatter_v"},
                            {CollectiveKind::gather, "gather"},
                            {CollectiveKind::scatter, "scatter"},
                            {CollectiveKind::add_process_set, "split"},
                            {CollectiveKind::message, "send", true}};

Named named(std::uint8_t kind) {
  const auto is_its = [kind](const Named& one) { return static_cast<std::uint8_t>(one.kind) == kind; };
  const auto* const found = std::find_if(std::begin(kNames), std::end(kNames), is_its);
  return found != std::end(kNames) ? *found : Named{CollectiveKind::barrier, "barrier"};
}

/// A request on one rank.
struct Entry {
  std::uint64_t created = 0;  ///< times of the rank's own clock; 0: not yet
  std::uint64_t started = 0;
  std::uint64_t completed = 0;
  std::uint64_t bytes = 0;
  std::uint8_t kind = 0;

  [[nodiscard]] std::string_view state() const noexcept {
    return completed != 0 ? "completed" : started != 0 ? "started" : "scheduled";
  }
};
using Entries = std::map<Request, Entry>;

/// The requests of one rank.
class Collecting {
 public:
  explicit Collecting(const Recording& recording) {
    for (const Record& record : recording.events) note(record);
  }
  [[nodiscard]] Entries take() { return std::move(entries_); }

 private:
  void note(const Record& record) {
    switch (record.kind) {
    case Kind::submitted:
      add({record.set, record.id, record.round}, record);
      break;
    case Kind::called:
      add({record.set, 0, record.round}, record);
      break;
    case Kind::batch_begun:
      batches_.erase({record.set, record.round});
      if ((record.detail & recorder::kUnnamed) == 0) {
        begin_name(record);
      } else {
        begin_calls(record);
      }
      break;
    case Kind::batch_member:
      begin_name(record);
      break;
    case Kind::batch_ended:
      for (const Request& request : batches_[{record.set, record.round}]) entries_[request].completed = record.time;
      batches_.erase({record.set, record.round});
      break;
    case Kind::group_made:  // it has no batch
      if (const auto found = first_open(0, record.id); found != entries_.end())
        found->second.started = found->second.completed = record.time;
      break;
    default:
      break;
    }
  }

  void add(const Request& request, const Record& record) {
    entries_[request] = {record.time, 0, 0, record.amount, record.detail};
  }
  /// A name's first request that has not begun, as it has one at a time.
  [[nodiscard]] Entries::iterator first_open(std::uint32_t set, std::uint64_t id) {
    auto found = entries_.lower_bound({set, id, 0});
    const auto is_its = [&] { return found != entries_.end() && found->first.set == set && found->first.id == id; };
    while (is_its() && found->second.started != 0) ++found;
    return is_its() ? found : entries_.end();
  }
  void begin_name(const Record& record) {
    const auto found = first_open(record.set, record.id);
    if (found != entries_.end()) begin(record, *found);  // else it was submitted before the first event that is left
  }
  void begin_calls(const Record& record) {
    const std::uint64_t end = record.id + record.amount;
    for (auto found = entries_.lower_bound({record.set, 0, static_cast<std::uint32_t>(record.id)});
         found != entries_.end() && found->first.set == record.set && found->first.id == 0 && found->first.round < end;
         ++found) {
      begin(record, *found);
    }
  }
  void begin(const Record& record, Entries::value_type& entry) {
    entry.second.started = record.time;
    batches_[{record.set, record.round}].push_back(entry.first);
  }

  Entries entries_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Request>> batches_;  ///< by set and number
};

/// A time of the rank's clock, as that of the day. (Of numbers that stand in a file: they wrap.)
std::uint64_t day_time(const Recording& recording, std::uint64_t time) {
  return time + static_cast<std::uint64_t>(recording.wall_ns) - static_cast<std::uint64_t>(recording.monotonic_ns);
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return "[" + text + "]";
}

/// A set as the format names it: (name, what the program calls it).
struct Group {
  std::string name;
  std::string words;
  std::vector<int> ranks;
};
std::map<std::uint32_t, Group> groups_of(const Recording& recording) {
  std::map<std::uint32_t, Group> groups;
  Group& world = groups[0];
  world = {"0", "default_pg", {}};
  for (int rank = 0; rank < recording.size; ++rank) world.ranks.push_back(rank);
  for (const auto& [set, its] : recording.sets) groups[set] = {std::to_string(set), its.words, its.members};
  return groups;
}

void add_times(Pickle& pickle, const Recording& recording, const Entry& entry) {
  const auto time = [&](std::string_view name, std::uint64_t value) {
    pickle.text(name);
    if (value == 0) {
      pickle.none();
    } else {
      pickle.number(day_time(recording, value));
    }
  };
  time("time_created_ns", entry.created);
  time("time_discovered_started_ns", entry.started);
  time("time_discovered_completed_ns", entry.completed);
}

/// The name of a tensor is shown in the place of a stack.
void add_frames(Pickle& pickle, const std::string& name, std::uint32_t round) {
  pickle.text("frames").begin_list();
  if (!name.empty())
    pickle.begin_dict().text("name").text(name).text("filename").text("round").text("line").number(round).end_dict();
  pickle.end_list();
}

void add_entry(Pickle& pickle, const Recording& recording, const Group& group, const Request& request,
               const Entry& entry, std::uint64_t number, std::uint64_t record_id) {
  const Named its = named(entry.kind);
  pickle.begin_dict().text("record_id").number(record_id).text("pg_id").number(request.set);
  pickle.text("process_group").begin_tuple().text(group.name).text(group.words).end_tuple();
  pickle.text("collective_seq_id").number(number).text("p2p_seq_id").number(0).text("op_id").number(number);
  // "c10d" is PyTorch's word for a backend that it does not know.
  pickle.text("profiling_name").text("c10d:" + std::string(its.name));
  for (const char* name : {"input_sizes", "output_sizes"}) {
    pickle.text(name).begin_list().begin_list().number(its.is_even ? entry.bytes : 0).end_list().end_list();
  }
  for (const char* name : {"input_dtypes", "output_dtypes"}) pickle.text(name).begin_list().text("Byte").end_list();
  pickle.text("state").text(entry.state()).text("retired").boolean(entry.completed != 0);
  pickle.text("timeout_ms").number(0).text("is_p2p").boolean(false);
  add_times(pickle, recording, entry);
  add_frames(pickle, recording.text(request.id), request.round);
  pickle.end_dict();
}

std::string pickle_of(const Recording& recording, const Entries& entries,
                      const std::map<Request, std::uint64_t>& numbers) {
  const std::map<std::uint32_t, Group> groups = groups_of(recording);
  Pickle pickle;
  pickle.begin_dict().text("version").text(kVersion).text("pg_config").begin_dict();
  for (const auto& [set, group] : groups) {
    pickle.text(group.name).begin_dict().text("name").text(group.name).text("desc").text(group.words);
    pickle.text("ranks").text(list_of(group.ranks)).end_dict();
  }
  pickle.end_dict().text("entries").begin_list();
  std::vector<std::pair<std::uint64_t, const Entries::value_type*>> ordered;
  for (const auto& one : entries) {
    const auto number = numbers.find(one.first);
    if (number != numbers.end() && groups.count(one.first.set) > 0) ordered.emplace_back(number->second, &one);
  }
  std::sort(ordered.begin(), ordered.end());
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    const auto& [request, entry] = *ordered[i].second;
    add_entry(pickle, recording, groups.at(request.set), request, entry, ordered[i].first, i);
  }
  return pickle.end_list().end_dict().end();
}

/// By request: its number, from 1.
std::map<Request, std::uint64_t> number(const std::vector<Observed>& observed, const std::vector<Entries>& all) {
  std::map<Request, std::uint64_t> first;  // when it was submitted first
  std::uint64_t begin = 0;                 // from when on every rank has its events
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Recording& recording = observed[i].recording;
    if (!recording.is_whole && !recording.events.empty())
      begin = std::max(begin, day_time(recording, recording.events.front().time));
    for (const auto& [request, entry] : all[i]) {
      const std::uint64_t time = day_time(recording, entry.created);
      const auto known = first.emplace(request, time).first;
      known->second = std::min(known->second, time);
    }
  }
  std::vector<std::pair<std::uint64_t, Request>> ordered;
  for (const auto& [request, time] : first) {
    if (time >= begin) ordered.emplace_back(time, request);
  }
  std::sort(ordered.begin(), ordered.end());
  std::map<Request, std::uint64_t> numbers;
  for (std::size_t i = 0; i < ordered.size(); ++i) numbers[ordered[i].second] = i + 1;
  return numbers;
}

}  // namespace

std::vector<FlightRecord> flight_records(const std::vector<Observed>& observed) {
  std::vector<Entries> all;
  all.reserve(observed.size());
  for (const Observed& one : observed) all.push_back(Collecting(one.recording).take());
  const std::map<Request, std::uint64_t> numbers = number(observed, all);
  std::vector<FlightRecord> records;
  for (std::size_t i = 0; i < all.size(); ++i)
    records.push_back({observed[i].recording.rank, pickle_of(observed[i].recording, all[i], numbers)});
  return records;
}

}  // namespace kolo::why
