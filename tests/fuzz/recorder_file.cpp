// SPDX-License-Identifier: Apache-2.0
//
// Recorders' files, the whole way that kolo-why goes: files are found, read, judged and printed, while another thread
// changes them, cuts them off and puts other things in their place. An input is a list of edits of the files of two
// ranks: some before they are read, the others meanwhile, again and again.
#include "fuzz.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/cpu.hpp"
#include "base/hash.hpp"
#include "base/unique_fd.hpp"
#include "recorder/process.hpp"
#include "recorder/reader.hpp"
#include "why/explain.hpp"
#include "why/flight_record.hpp"

namespace kolo::fuzz {
namespace {

namespace fs = std::filesystem;
using recorder::Event;
using recorder::Header;
using recorder::Kind;

/// A small file of one of two ranks: one group, two texts, and these events.
std::string file_of(int rank, const std::vector<recorder::Record>& records) {
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
  header->rank = rank;
  header->size = 2;
  std::memcpy(header->job.data(), "job", 3);
  header->pid = rank == 0 ? static_cast<std::uint64_t>(::getpid()) : ~std::uint64_t{0};  // one runs, one is gone
  header->pid_namespace = recorder::Process::self().pid_namespace;
  const std::string boot = base::system_name();
  std::memcpy(header->boot.data(), boot.data(), std::min(boot.size(), header->boot.size() - 1));
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

/// What files the ranks have before they are edited.
std::vector<std::pair<std::string, std::string>> make_samples() {
  const std::uint64_t group = base::hash_string("group of ranks 0 and 1");
  const std::vector<recorder::Record> fails{
      {1, 7, 1, 4, 0, Kind::submitted, 0},    {2, 7, 1, 2, 0, Kind::batch_begun, 1, 1},
      {2, 8, 1, 0, 0, Kind::batch_member, 0}, {3, 0, 1, 0, 0, Kind::batch_ended, 0},
      {4, 0, 9, 4, 1, Kind::called, 0},       {5, 9, 2, 3, 1, Kind::batch_begun, 4},
      {6, 0, 0, 1, 0, Kind::death_seen, 0},   {7, 0, 0, 1, 0, Kind::blamed, 0},
      {8, 0, 0, 0, 0, Kind::fault, 7},        {8, group, 0, 0, 0, Kind::sentence, 0}};
  const std::vector<recorder::Record> leaves{
      {1, group, 1, 0, 0, Kind::submitted, 11}, {2, 0, 0, 1, 0, Kind::late, 0},      {3, 7, 0, 0, 0, Kind::failed, 3},
      {4, 0, 0, 0, 0, Kind::reported, 10},      {5, 0, 0, 1, 0, Kind::rank_left, 0}, {6, 0, 0, 0, 0, Kind::leaving, 0}};
  return {{file_of(0, {}), file_of(1, {})},
          {file_of(0, fails), file_of(1, {})},
          {file_of(0, leaves), file_of(1, fails)},
          {file_of(0, {}), file_of(1, leaves)}};
}
const std::vector<std::pair<std::string, std::string>>& samples() {
  static const std::vector<std::pair<std::string, std::string>> all = make_samples();
  return all;
}

/// A folder of jobs with one job, for this process.
class Folder {
 public:
  Folder() {
    path_ = (fs::temp_directory_path() / "kolo-fuzz-XXXXXX").string();
    KOLO_CHECK(::mkdtemp(path_.data()) != nullptr);
    fs::create_directory(path_ + "/job");
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string file(int rank) const { return path_ + "/job/rank." + std::to_string(rank); }

 private:
  std::string path_;
};
const Folder& folder() {
  static const Folder it;
  return it;
}

struct Edit {
  enum class What : std::uint8_t { poke, cut, lengthen, restore, remove, fifo, link };
  What what = What::poke;
  int rank = 0;
  std::uint64_t offset = 0;
  std::string_view bytes;
};

Edit read_edit(Input& input) {
  Edit edit;
  const std::uint8_t first = input.byte();
  edit.rank = first & 1;
  edit.what = static_cast<Edit::What>((first >> 1) % 7);
  edit.offset = input.number(2) % 8192;
  if (edit.what == Edit::What::poke) edit.bytes = input.text(1 + input.byte() % 32);
  return edit;
}

void write(Output& out, const Edit& edit) {
  out.number(static_cast<std::uint64_t>(edit.what) << 1 | static_cast<std::uint64_t>(edit.rank)).number(edit.offset, 2);
  if (edit.what == Edit::What::poke) out.number(edit.bytes.size() - 1).text(edit.bytes);
}

/// In memory, of what is parsed without a file.
void apply(const Edit& edit, std::string& content) {
  if (edit.what == Edit::What::cut) content.resize(std::min<std::size_t>(content.size(), edit.offset));
  if (edit.what == Edit::What::poke && edit.offset < content.size())
    content.replace(edit.offset, edit.bytes.size(), edit.bytes);
}

void restore(int rank, const std::string& content) {
  const std::string path = folder().file(rank);
  struct stat about {};
  if (::lstat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) KOLO_CHECK(::unlink(path.c_str()) == 0);
  const base::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  KOLO_CHECK(static_cast<bool>(file));
  KOLO_CHECK(::pwrite(file.get(), content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
  KOLO_CHECK(::ftruncate(file.get(), static_cast<off_t>(content.size())) == 0);
}

/// To the file. What is not there any more, or is no file, stays so until it is restored.
void apply(const Edit& edit, const std::array<std::string, 2>& contents) {
  const std::string path = folder().file(edit.rank);
  const auto swap_for = [&](const auto& make) {
    static_cast<void>(::unlink(path.c_str()));
    KOLO_CHECK(make() == 0);
  };
  switch (edit.what) {
  case Edit::What::poke: {
    const base::UniqueFd file(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file)
      static_cast<void>(!::pwrite(file.get(), edit.bytes.data(), edit.bytes.size(), static_cast<off_t>(edit.offset)));
    break;
  }
  case Edit::What::cut:
    static_cast<void>(!::truncate(path.c_str(), static_cast<off_t>(edit.offset)));
    break;
  case Edit::What::lengthen:
    static_cast<void>(!::truncate(path.c_str(), static_cast<off_t>(edit.offset) << 17U));  // to 1 GiB, with a hole
    break;
  case Edit::What::restore:
    restore(edit.rank, contents[static_cast<std::size_t>(edit.rank)]);
    break;
  case Edit::What::remove:
    static_cast<void>(::unlink(path.c_str()));
    break;
  case Edit::What::fifo:
    swap_for([&] { return ::mkfifo(path.c_str(), 0600); });
    break;
  case Edit::What::link:
    swap_for([&] { return ::symlink("/dev/zero", path.c_str()); });
    break;
  }
}

/// Changes the files until it is destroyed.
class Meddler {
 public:
  Meddler(std::vector<Edit> edits, const std::array<std::string, 2>& contents)
      : edits_(std::move(edits)), contents_(contents) {
    if (edits_.empty()) return;
    thread_ = std::thread([this] {
      while (!is_over_.load(std::memory_order_relaxed)) {
        for (const Edit& edit : edits_) apply(edit, contents_);
      }
    });
  }
  ~Meddler() {
    is_over_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
  }
  Meddler(const Meddler&) = delete;
  Meddler& operator=(const Meddler&) = delete;

 private:
  std::vector<Edit> edits_;
  const std::array<std::string, 2>& contents_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

std::vector<std::byte> bytes_of(const std::string& content) {
  const auto* const data = reinterpret_cast<const std::byte*>(content.data());
  return {data, data + content.size()};
}

/// Of a text that a terminal shows: nothing but plain lines, as many as there are sentences and ranks.
void check_text(const JobReport& report) {
  const std::string text = why::text_of(report, true);
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  KOLO_CHECK(lines == 1 + report.sentences.size() + report.ranks.size());
  KOLO_CHECK(std::all_of(text.begin(), text.end(),
                         [](char c) { return c == '\n' || (static_cast<unsigned char>(c) >= 0x20U && c != 0x7f); }));
}

void explain_what_lies_there() {
  try {
    const why::Job job = why::find_job(folder().path(), [](const char*) { return std::nullopt; });
    const JobReport report = why::explain(job);
    for (const int rank : report.suspects)
      KOLO_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < report.ranks.size());
    check_text(report);
    KOLO_CHECK(why::json_of(report).find('\n') == std::string::npos);
    KOLO_CHECK(why::flight_records(job.observed).size() == job.observed.size());
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::invalid_argument);
  }
}

}  // namespace

void run(std::string_view bytes) {
  Input input(bytes);
  const auto& [rank0, rank1] = samples()[input.byte() % samples().size()];
  std::array<std::string, 2> contents{rank0, rank1};
  for (int edits = input.byte() % 64; edits > 0 && !input.empty(); --edits) {
    const Edit edit = read_edit(input);
    apply(edit, contents[static_cast<std::size_t>(edit.rank)]);
  }
  std::vector<Edit> meanwhile;
  while (!input.empty() && meanwhile.size() < 64) meanwhile.push_back(read_edit(input));

  // Without a race first, as a second copy that differs.
  std::string later = contents[0];
  for (const Edit& edit : meanwhile) {
    if (edit.rank == 0) apply(edit, later);
  }
  if (const std::optional<recorder::Recording> recording = recorder::parse({bytes_of(contents[0]), bytes_of(later)}))
    KOLO_CHECK(recording->rank < recording->size);

  for (const int rank : {0, 1}) restore(rank, contents[static_cast<std::size_t>(rank)]);
  const Meddler meddler(std::move(meanwhile), contents);
  for (int i = 0; i < 3; ++i) explain_what_lies_there();
}

std::vector<std::string> seeds() {
  using What = Edit::What;
  std::vector<std::string> inputs;
  constexpr std::uint64_t kSize = offsetof(Header, size);
  constexpr std::string_view kMany("\x00\x00\x01\x00", 4);
  for (std::uint64_t sample = 0; sample < samples().size(); ++sample) {
    Output still;
    still.number(sample).number(0);
    inputs.push_back(still.bytes());
    Output changed;  // many ranks, and a text that would clear a screen
    changed.number(sample).number(2);
    write(changed, {What::poke, 0, kSize, kMany});
    write(changed, {What::poke, 1, offsetof(Header, host), "\x1b[2J\n- Rank 0"});
    inputs.push_back(changed.bytes());
    for (const What what : {What::cut, What::lengthen, What::remove, What::fifo, What::link, What::poke}) {
      Output meanwhile;
      meanwhile.number(sample).number(0);
      write(meanwhile, {what, 0, what == What::poke ? offsetof(Header, nodes) : 4100, "\xff\xff\xff\x7f"});
      write(meanwhile, {What::restore, 0, 0, {}});
      inputs.push_back(meanwhile.bytes());
    }
  }
  return inputs;
}

}  // namespace kolo::fuzz
