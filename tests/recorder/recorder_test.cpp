// SPDX-License-Identifier: Apache-2.0
#include "recorder/recorder.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "base/cpu.hpp"
#include "base/files.hpp"
#include "recorder/directory.hpp"
#include "recorder/reader.hpp"

namespace kolo::recorder {
namespace {

namespace fs = std::filesystem;

class RecorderFile : public ::testing::Test {
 protected:
  RecorderFile() {
    std::string pattern = ::testing::TempDir() + "recorderXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~RecorderFile() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name = "rank.1") const { return folder_ + "/" + name; }
  static Identity identity() { return {"job", 1, 3, 0, {0, 0, 1}, "host"}; }
  [[nodiscard]] Recording read(const std::string& name = "rank.1") const {
    std::optional<Recording> recording = read_file(path(name), ::geteuid());
    EXPECT_TRUE(recording.has_value());
    return recording.value_or(Recording());
  }

  [[nodiscard]] std::vector<std::byte> content(const std::string& name = "rank.1") const {
    return base::read_found(path(name), kMostBytes).value_or(std::vector<std::byte>());
  }
  /// Changes the header of a file that nobody writes any more.
  template <class Change>
  void change(const std::string& file, const Change& change) const {
    std::vector<std::byte> bytes = base::read_found(file, kMostBytes).value();
    change(*reinterpret_cast<Header*>(bytes.data()));
    fs::permissions(file, fs::perms::owner_write, fs::perm_options::add);
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

  std::string folder_;
};

base::Time at_ns(std::int64_t ns) {
  return base::Time(std::chrono::duration_cast<base::Duration>(std::chrono::nanoseconds(ns)));
}

TEST_F(RecorderFile, SaysWhoseItIs) {
  const Recorder recorder(path(), identity());
  const Recording read = this->read();
  EXPECT_EQ(read.job, "job");
  EXPECT_EQ(read.host, "host");
  EXPECT_EQ(read.boot, base::system_name());
  EXPECT_EQ(read.rank, 1);
  EXPECT_EQ(read.size, 3);
  const std::vector<std::byte> bytes = content();
  const Header& header = *reinterpret_cast<const Header*>(bytes.data());
  ASSERT_EQ(header.nodes.count, 3U);
  std::array<std::int32_t, 3> nodes{};
  std::memcpy(nodes.data(), bytes.data() + header.nodes.offset, sizeof nodes);
  EXPECT_EQ(nodes, (std::array<std::int32_t, 3>{0, 0, 1}));
  EXPECT_EQ(read.process.pid, static_cast<std::uint64_t>(::getpid()));
  EXPECT_NE(read.process.state(), 0);
  EXPECT_EQ(read.state, State::starting);
  EXPECT_TRUE(read.events.empty());
  struct stat about {};
  ASSERT_EQ(::stat(path().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0400U);
}

TEST_F(RecorderFile, HasEventsWithTheTimeOfTheirPass) {
  Recorder recorder(path(), identity());
  recorder.set_state(State::running);
  recorder.at(at_ns(1000));
  recorder.text(7, "layer1.weight");
  recorder.record(Kind::submitted, 2, 7, 17, 400, 5);
  recorder.at(at_ns(2000));
  recorder.record(Kind::batch_begun, 2, 7, 3, 1, kPlanned, 32766);
  recorder.sentence("what was said");
  const Recording read = this->read();
  ASSERT_EQ(read.events.size(), 3U);
  const Record& first = read.events[0];
  EXPECT_EQ(first.time, 1000U);
  EXPECT_EQ(first.kind, Kind::submitted);
  EXPECT_EQ(first.set, 2U);
  EXPECT_EQ(first.id, 7U);
  EXPECT_EQ(first.round, 17U);
  EXPECT_EQ(first.amount, 400U);
  EXPECT_EQ(first.detail, 5);
  EXPECT_EQ(first.last, -1);
  EXPECT_EQ(read.events[1].time, 2000U);
  EXPECT_EQ(read.events[1].detail, kPlanned);
  EXPECT_EQ(read.events[1].last, 32766);
  EXPECT_EQ(read.text(7), "layer1.weight");
  EXPECT_EQ(read.text(read.events[2].id), "what was said");
  EXPECT_EQ(read.state, State::running);
  EXPECT_TRUE(read.is_whole);
}

TEST_F(RecorderFile, HasNoRankThatIsTooLarge) {
  Recorder recorder(path(), identity());
  recorder.record(Kind::batch_begun, 0, 7, 3, 1, 0, 32767);
  recorder.record(Kind::batch_begun, 0, 7, 3, 1, 0, 65536);
  for (const Record& record : read().events) EXPECT_EQ(record.last, -1);
}

TEST_F(RecorderFile, KeepsTheNewestEvents) {
  Recorder recorder(path(), identity());
  constexpr std::uint32_t kEvents = 20000;
  for (std::uint32_t i = 0; i < kEvents; ++i) recorder.record(Kind::step_ended, 0, 0, 0, i);
  const Recording read = this->read();
  EXPECT_FALSE(read.is_whole);
  ASSERT_EQ(read.events.size(), 8191U);
  for (std::size_t i = 0; i < read.events.size(); ++i) EXPECT_EQ(read.events[i].amount, kEvents - 8191 + i);
}

TEST_F(RecorderFile, KeepsEachTextOnceUntilThereIsNoSpace) {
  Recorder recorder(path(), identity());
  const std::string longest(1000, 'x');
  for (std::uint64_t id = 1; id <= 1000; ++id) {
    recorder.text(id, longest);
    if (id <= 100) recorder.text(id, "another");
  }
  const Recording read = this->read();
  for (std::uint64_t id = 1; id <= 100; ++id) EXPECT_EQ(read.text(id), longest);
  EXPECT_EQ(read.texts.size(), (112U << 10) / 1016);
  EXPECT_EQ(read.text(1000), "");
}

TEST_F(RecorderFile, HasSpaceForTheLastSentenceWhateverNamesThereWere) {
  Recorder recorder(path(), identity());
  for (std::uint64_t id = 1; id <= 10000; ++id) recorder.text(id, "a name " + std::to_string(id));
  recorder.record(Kind::fault, 0, 0);
  recorder.sentence("rank 2 was lost");
  const Recording read = this->read();
  ASSERT_EQ(read.events.size(), 2U);
  EXPECT_EQ(read.events[1].kind, Kind::sentence);
  EXPECT_EQ(read.text(read.events[1].id), "rank 2 was lost");
}

TEST_F(RecorderFile, KnowsTheGroupsThatThereAre) {
  Recorder recorder(path(), identity());
  recorder.add_set(1, 4, "the group of ranks 0 and 1", {0, 1});
  recorder.add_set(2, 5, "another", {1, 2});
  recorder.remove_set(1);
  recorder.add_set(3, 6, "a third", {2, 1});
  const Recording read = this->read();
  ASSERT_EQ(read.sets.size(), 2U);
  EXPECT_EQ(read.sets.at(3).members, (std::vector<int>{2, 1}));
  const std::vector<std::byte> bytes = content();
  const std::uint64_t rows = reinterpret_cast<const Header*>(bytes.data())->sets.offset;
  EXPECT_EQ(reinterpret_cast<const SetRow*>(bytes.data() + rows)->serial.load(), 6U)
      << "the row of the group that has gone";
  EXPECT_EQ(read.sets.at(2).words, "another");
}

TEST_F(RecorderFile, CountsShortCalls) {
  Recorder recorder(path(), identity());
  for (std::uint64_t i = 1; i <= 5; ++i) recorder.count_fast(0, i);
  recorder.count_fast(1, 9);
  const Recording read = this->read();
  EXPECT_EQ(read.fast_calls, 6U);
  EXPECT_EQ(read.last_fast.at(0), 5U);
  EXPECT_EQ(read.last_fast.at(1), 9U);
}

TEST_F(RecorderFile, OutlivesAProcessThatIsKilled) {
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    Recorder recorder(path(), identity());
    recorder.set_state(State::running);
    recorder.text(3, "w");
    recorder.record(Kind::submitted, 0, 3, 1, 8, 0);
    recorder.record_caller(Kind::wait_begun, 0, 3);
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_NE(std::string("RSD").find(read().process.state()), std::string::npos);  // it may not have come to rest yet
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const Recording read = this->read();
  EXPECT_EQ(read.process.pid, static_cast<std::uint64_t>(child));
  EXPECT_EQ(read.process.state(), 0);
  EXPECT_EQ(read.state, State::running);
  ASSERT_EQ(read.events.size(), 2U);
  EXPECT_EQ(read.events[0].kind, Kind::submitted);
  EXPECT_EQ(read.events[1].kind, Kind::wait_begun);
  EXPECT_EQ(read.text(3), "w");
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(RecorderFile, ThreadsOfTheProgramRecordAtOnce) {
  Recorder recorder(path(), identity());
  constexpr std::uint32_t kEach = 200;
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&recorder, thread] {
      for (std::uint32_t i = 0; i < kEach; ++i) recorder.record_caller(Kind::wait_begun, thread, thread, i, thread);
    });
  }
  std::size_t seen = 0;
  while (seen < 4 * kEach) {  // a reader, meanwhile
    const Recording read = this->read();
    seen = read.events.size();
    for (const Record& record : read.events) EXPECT_EQ(record.id, record.set);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RecorderFile, GoesWithACleanEndAndStaysWithAnother) {
  fs::create_directory(folder_ + "/job");
  {
    Recorder clean(path("job/rank.0"), identity());
    clean.close(true);
    clean.record(Kind::stopped, 0, 0);  // what comes late is lost
  }
  EXPECT_FALSE(fs::exists(folder_ + "/job"));
  Recorder other(path("rank.0"), identity());
  other.close(false);
  EXPECT_EQ(read("rank.0").state, State::closed);
  Recorder faulted(path("rank.2"), identity());
  faulted.set_state(State::faulted);
  faulted.close(false);
  EXPECT_EQ(read("rank.2").state, State::faulted);
}

struct KeepingSink final : Sink {
  void take(const Record& record) noexcept override { records.push_back(record); }
  void name(std::uint64_t id, std::string_view text) noexcept override { names[id] = text; }
  std::vector<Record> records;
  std::map<std::uint64_t, std::string> names;
};

TEST_F(RecorderFile, GivesASinkWhatItRecords) {
  Recorder recorder(path(), identity());
  recorder.at(at_ns(1));
  recorder.text(1, "known before");
  recorder.record(Kind::submitted, 0, 1);
  const auto sink = std::make_shared<KeepingSink>();
  EXPECT_EQ(recorder.sink_number(), 0U);
  recorder.add_sink(sink);
  EXPECT_EQ(recorder.sink_number(), 1U);
  recorder.text(2, "new");
  recorder.record(Kind::batch_begun, 0, 2, 7);
  recorder.record_caller(Kind::wait_begun, 0, 2);
  recorder.tell_sink({5, 0, 7, 0, 0, Kind::device_span});
  recorder.remove_sink();
  EXPECT_EQ(recorder.sink_number(), 0U);
  recorder.tell_sink({6, 0, 7, 0, 0, Kind::device_span});
  recorder.record(Kind::batch_ended, 0, 0, 7);
  ASSERT_EQ(sink->records.size(), 3U);
  EXPECT_EQ(sink->records[0].kind, Kind::batch_begun);
  EXPECT_GT(sink->records[0].time, 1U) << "a sink gets the time of the event, not that of the pass";
  EXPECT_EQ(sink->records[1].kind, Kind::wait_begun);
  EXPECT_EQ(sink->records[2].kind, Kind::device_span) << "which is in no file";
  EXPECT_EQ(sink->records[2].time, 5U);
  EXPECT_EQ(sink->names, (std::map<std::uint64_t, std::string>{{1, "known before"}, {2, "new"}}));
  EXPECT_EQ(read().events.size(), 4U);
}

TEST_F(RecorderFile, RecordsNothingWhereThereIsNoFile) {
  Recorder off;
  EXPECT_FALSE(off.is_on());
  off.record(Kind::submitted, 0, 1);
  off.count_fast(0, 1);
  off.close(true);
  EXPECT_THROW(Recorder(folder_ + "/none/rank.0", identity()), Error);
}

TEST_F(RecorderFile, ReadsNothingFromWhatIsBroken) {
  {
    Recorder recorder(path(), identity());
    recorder.text(1, "a text");
    recorder.record(Kind::submitted, 0, 1);
  }
  const std::vector<std::byte> whole = content();
  const auto parsed = [](const std::vector<std::byte>& bytes) { return parse({bytes, bytes}); };
  EXPECT_TRUE(parsed(whole).has_value());
  for (const std::size_t size : {whole.size() - 1, std::size_t{100}, std::size_t{0}})
    EXPECT_FALSE(parsed({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}).has_value());
  // Every word of the header in turn, by a large number: no byte outside is read, and most are refused.
  for (std::size_t at = 0; at + 8 <= sizeof(Header); at += 8) {
    std::vector<std::byte> bytes = whole;
    std::memset(bytes.data() + at, 0x7f, 8);
    static_cast<void>(parsed(bytes));
  }
}

TEST_F(RecorderFile, TwoCopiesOfWhatChangesMeanwhileSayNothingThatWasNotThere) {
  Recorder recorder(path(), identity());
  recorder.add_set(1, 1, "one", {0, 1});
  recorder.record(Kind::step_ended, 0, 0, 0, 1);
  recorder.record_caller(Kind::wait_begun, 0, 1);
  recorder.record_caller(Kind::wait_begun, 0, 2);
  const std::vector<std::byte> first = content();
  std::vector<std::byte> second = first;
  auto& header = *reinterpret_cast<Header*>(second.data());

  header.size = 2;  // what is constant differs: they are two files
  EXPECT_FALSE(parse({first, second}).has_value());
  header.size = 3;
  EXPECT_FALSE(parse({first, {second.begin(), second.begin() + 8192}}).has_value());  // cut off in between

  reinterpret_cast<Event*>(second.data() + header.callers.offset)->time.store(7);  // was being written
  reinterpret_cast<SetRow*>(second.data() + header.sets.offset)->serial.store(2);  // was being replaced
  header.driver_head.store(header.driver_head + 1);                                // came later
  const Recording read = parse({first, second}).value();
  ASSERT_EQ(read.events.size(), 2U);
  EXPECT_EQ(read.events[0].kind, Kind::step_ended);
  EXPECT_EQ(read.events[1].id, 2U);
  EXPECT_TRUE(read.sets.empty());

  header.driver_head.store(header.driver.count + 3);  // the first events have been overwritten
  EXPECT_EQ(parse({first, second}).value().events.size(), 1U);
  EXPECT_FALSE(parse({first, second}).value().is_whole);
}

TEST_F(RecorderFile, OnlyARegularFileOfItsOwnerIsRead) {
  { const Recorder recorder(path(), identity()); }
  EXPECT_TRUE(read_file(path(), ::geteuid()).has_value());
  EXPECT_FALSE(read_file(path(), ::geteuid() + 1).has_value());
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);  // nobody writes there: who opened it would wait
  fs::create_symlink(path(), path("link"));
  std::ofstream(path("large")) << "x";
  fs::resize_file(path("large"), kMostBytes + 1);
  for (const char* name : {"fifo", "link", "large", "missing"}) {
    EXPECT_FALSE(read_file(path(name), ::geteuid()).has_value()) << name;
    EXPECT_FALSE(is_over(path(name))) << name;
  }
}

TEST_F(RecorderFile, ALimitOfAFilesSizeIsAnErrorAndNoSignal) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{100'000, 100'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    try {
      const Recorder recorder(path(), identity());
    } catch (const Error& error) {
      ::_exit(error.status().message() == path() + ": no space for the recorder: File too large (errno 27); the limit "
                                                   "of a file's size is too low (ulimit -f)"
                  ? 0
                  : 2);
    }
    ::_exit(3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(RecorderFile, AJobOfTooManyRanksIsNotRecorded) {
  try {
    const Recorder recorder(path(), {"job", 0, kMostRanks + 1, 0, {}, "host"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status().message(), "a job of 65537 ranks is not recorded; at most 65536 are");
  }
}

TEST_F(RecorderFile, KnowsAllMembersOfLargeGroups) {
  Recorder recorder(path("rank.1"), {"job", 1, 4096, 0, std::vector<std::int32_t>(4096), "host"});
  std::vector<int> even;
  std::vector<int> squares;  // no runs
  for (int i = 0; i < 2048; ++i) even.push_back(2 * i);
  for (int i = 0; i * i < 4096; ++i) squares.push_back(i * i);
  std::vector<int> backwards(even.rbegin(), even.rend());
  recorder.add_set(1, 1, "even", even);
  recorder.add_set(2, 2, "squares", squares);
  recorder.add_set(3, 3, "few", {7, 3, 4, 5, 9});
  recorder.add_set(4, 4, "backwards", backwards);  // its list is too long
  const Recording read = this->read();
  EXPECT_EQ(read.sets.at(1).members, even);
  EXPECT_EQ(read.sets.at(2).members, squares);
  EXPECT_EQ(read.sets.at(3).members, (std::vector<int>{7, 3, 4, 5, 9}));
  EXPECT_TRUE(read.sets.at(4).members.empty()) << "all or none";
}

TEST_F(RecorderFile, AListOfRanksIsCutBehindAWholeNumber) {
  Recorder recorder(path(), identity());
  std::string list = "ranks";
  while (list.size() <= 9000) list += " 12345";
  recorder.list(1, list);
  EXPECT_EQ(read().text(1).size(), 8189U);
  EXPECT_EQ(read().text(1), list.substr(0, 8189));
}

TEST_F(RecorderFile, LiesInADirectoryOfItsJob) {
  const std::string job = new_job();
  EXPECT_TRUE(is_job(job));
  EXPECT_NE(job, new_job());
  for (const char* bad : {"", ".", "..", "a/b", ".hidden", "a b", "a\n"}) EXPECT_FALSE(is_job(bad)) << bad;
  EXPECT_FALSE(is_job(std::string(101, 'a')));
  const std::string folder = folder_ + "/new/kolo";
  EXPECT_THROW(static_cast<void>(file_for(folder, job, 3)), Error);
  EXPECT_FALSE(fs::exists(folder_ + "/new")) << "only for a directory that the user names";
  make_parents(folder);
  EXPECT_EQ(file_for(folder, job, 3), folder + "/" + job + "/rank.3");
  struct stat about {};
  ASSERT_EQ(::stat((folder + "/" + job).c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700U);
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  EXPECT_THROW(static_cast<void>(file_for(folder, job, 3)), Error);
}

TEST_F(RecorderFile, TheDirectoryIsTheUsers) {
  const auto environment = [this](bool has_runtime, bool has_temporary) {
    return [=, this](const char* name) -> std::optional<std::string> {
      if (has_runtime && std::string(name) == "XDG_RUNTIME_DIR") return folder_;
      if (has_temporary && std::string(name) == "TMPDIR") return std::string("/var/tmp");
      return std::nullopt;
    };
  };
  const std::string own = "kolo-" + std::to_string(::geteuid());
  EXPECT_EQ(directory_of("/there", environment(true, true)), "/there");
  EXPECT_EQ(directory_of("", environment(true, true)), folder_ + "/kolo");
  EXPECT_EQ(directory_of("", environment(false, true)), "/var/tmp/" + own);
  EXPECT_EQ(directory_of("", environment(false, false)), "/tmp/" + own);
  // One that is not there is not made.
  const auto missing = [this](const char*) -> std::optional<std::string> { return folder_ + "/missing"; };
  EXPECT_EQ(directory_of("", missing), "/tmp/" + own);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(folder_.c_str(), 1, 1), 0);
    EXPECT_EQ(directory_of("", environment(true, true)), "/var/tmp/" + own) << "it is that of the caller of sudo";
  }
  EXPECT_TRUE(is_off("OFF"));
  EXPECT_FALSE(is_off(""));
}

TEST_F(RecorderFile, AJobThatHasFailedMayGoThoughItsProcessRuns) {
  std::vector<std::unique_ptr<Recorder>> recorders;
  for (int i = 0; i < 20; ++i) {
    const std::string job = "job" + std::to_string(i);
    recorders.push_back(std::make_unique<Recorder>(file_for(folder_, job, 0), Identity{job, 0, 1, 0, {0}, "host"}));
  }
  remove_old(folder_);
  EXPECT_EQ(jobs_in(folder_, ::geteuid()).size(), 20U);
  for (const auto& recorder : recorders) recorder->set_state(State::faulted);
  recorders.clear();
  remove_old(folder_);
  EXPECT_EQ(jobs_in(folder_, ::geteuid()).size(), kJobsKept - 1);
}

/// In a process that has ended.
template <class Function>
void in_a_child(const Function& function) {
  const pid_t child = ::fork();
  if (child == 0) {
    function();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(RecorderFile, WhatCannotBeSeenFromHereGoesAfterADay) {
  in_a_child([this] {  // killed: it does not say that it has ended
    static_cast<void>(new Recorder(path(), identity()));
  });
  EXPECT_TRUE(is_over(path()));
  const auto far = [this](const auto& where) {
    change(path(), where);
    EXPECT_FALSE(is_over(path()));
    change(path(), [](Header& header) { header.wall_ns -= std::chrono::nanoseconds(std::chrono::hours(25)).count(); });
    EXPECT_TRUE(is_over(path()));
    change(path(), [](Header& header) { header.wall_ns += std::chrono::nanoseconds(std::chrono::hours(25)).count(); });
  };
  std::uint64_t own = 0;
  far([&own](Header& header) { own = std::exchange(header.pid_namespace, header.pid_namespace + 1); });
  far([](Header& header) { header.pid_namespace = 0; });
  far([&own](Header& header) {
    header.pid_namespace = own;
    header.boot[0] = header.boot[0] == 'x' ? 'y' : 'x';
  });

  change(path(), [](Header& header) { header.version = kVersion - 1; });
  EXPECT_FALSE(is_over(path()));
  fs::last_write_time(path(), fs::file_time_type::clock::now() - std::chrono::hours(25));
  EXPECT_TRUE(is_over(path()));
  change(path(), [](Header& header) { header.magic[0] = 'x'; });
  fs::last_write_time(path(), fs::file_time_type::clock::now() - std::chrono::hours(25));
  EXPECT_FALSE(is_over(path())) << "no recorder: it stays";
}

TEST_F(RecorderFile, AJobHasOneFileARank) {
  for (const char* name : {"rank.0", "rank.12", "rank.012", "rank.+1", "rank.-1", "rank.x", "rank.", "other"})
    std::ofstream(path(name)) << "x";
  std::vector<std::string> found;
  for (const RankFile& file : files_of(folder_)) found.push_back(file.path);
  EXPECT_EQ(found, (std::vector<std::string>{path("rank.0"), path("rank.12")}));
}

TEST_F(RecorderFile, SixteenJobsAreKeptAndThoseThatRun) {
  // A child's recorders are those of a process that has ended; this process's run.
  const pid_t child = ::fork();
  if (child == 0) {
    for (int i = 0; i < 20; ++i) {
      const Recorder ended(file_for(folder_, "ended" + std::to_string(i), 0), {"ended", 0, 1, 0, {0}, "host"});
    }
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const Recorder runs(file_for(folder_, "runs", 0), {"runs", 0, 1, 0, {0}, "host"});
  fs::create_directory(folder_ + "/foreign");
  std::ofstream(folder_ + "/foreign/rank.0") << "no recorder";
  for (const std::string name : {"runs", "foreign"})
    fs::last_write_time(folder_ + "/" + name, fs::file_time_type::clock::now() - std::chrono::hours(1));
  fs::create_directory_symlink(folder_ + "/runs", folder_ + "/leads_elsewhere");
  ASSERT_EQ(jobs_in(folder_, ::geteuid()).size(), 22U);
  remove_old(folder_);
  EXPECT_EQ(jobs_in(folder_, ::geteuid()).size(), kJobsKept - 1 + 2);
  EXPECT_TRUE(fs::exists(folder_ + "/runs/rank.0"));
  EXPECT_TRUE(fs::exists(folder_ + "/foreign/rank.0"));
}

}  // namespace
}  // namespace kolo::recorder
