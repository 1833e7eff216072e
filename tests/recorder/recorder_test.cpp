// SPDX-License-Identifier: Apache-2.0
#include "recorder/recorder.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

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
    std::optional<Recording> recording = read_file(path(name));
    EXPECT_TRUE(recording.has_value());
    return recording.value_or(Recording());
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
  EXPECT_EQ(read.boot, boot_id());
  EXPECT_EQ(read.rank, 1);
  EXPECT_EQ(read.size, 3);
  EXPECT_EQ(read.nodes, (std::vector<std::int32_t>{0, 0, 1}));
  EXPECT_EQ(read.process.pid, static_cast<std::uint64_t>(::getpid()));
  EXPECT_NE(read.process.state(), 0);
  EXPECT_EQ(read.state, State::starting);
  EXPECT_TRUE(read.events.empty());
  struct stat about {};
  ASSERT_EQ(::stat(path().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U);
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
  EXPECT_EQ(read.sets.at(3).serial, 6U);
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
  std::ifstream file(path(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto parsed = [](const std::string& bytes) {
    std::vector<std::uint64_t> words(bytes.size() / 8 + 1);  // aligned
    std::memcpy(words.data(), bytes.data(), bytes.size());
    return parse(reinterpret_cast<const std::byte*>(words.data()), bytes.size());
  };
  EXPECT_TRUE(parsed(whole).has_value());
  EXPECT_FALSE(parsed(whole.substr(0, whole.size() - 1)).has_value());
  EXPECT_FALSE(parsed(whole.substr(0, 100)).has_value());
  EXPECT_FALSE(parsed("").has_value());
  // Every word of the header in turn, by a large number: no byte outside is read, and most are refused.
  for (std::size_t at = 0; at + 8 <= sizeof(Header); at += 8) {
    std::string bytes = whole;
    bytes.replace(at, 8, std::string(8, '\x7f'));
    static_cast<void>(parsed(bytes));
  }
}

TEST_F(RecorderFile, LiesInADirectoryOfItsJob) {
  const std::string job = new_job();
  EXPECT_TRUE(is_job(job));
  EXPECT_NE(job, new_job());
  for (const char* bad : {"", ".", "..", "a/b", ".hidden", "a b", "a\n"}) EXPECT_FALSE(is_job(bad)) << bad;
  EXPECT_FALSE(is_job(std::string(101, 'a')));
  const std::string folder = folder_ + "/new/kolo";
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
  EXPECT_EQ(jobs_in(folder_).size(), 20U);
  for (const auto& recorder : recorders) recorder->set_state(State::faulted);
  recorders.clear();
  remove_old(folder_);
  EXPECT_EQ(jobs_in(folder_).size(), kJobsKept - 1);
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
  ASSERT_EQ(jobs_in(folder_).size(), 22U);
  remove_old(folder_);
  EXPECT_EQ(jobs_in(folder_).size(), kJobsKept - 1 + 2);
  EXPECT_TRUE(fs::exists(folder_ + "/runs/rank.0"));
  EXPECT_TRUE(fs::exists(folder_ + "/foreign/rank.0"));
}

}  // namespace
}  // namespace kolo::recorder
