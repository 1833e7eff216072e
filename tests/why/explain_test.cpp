// SPDX-License-Identifier: Apache-2.0
//
// From a directory to the text of kolo-why: whose files are read, and what is passed over.
#include "why/explain.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "recorder/directory.hpp"
#include "recorder/recorder.hpp"

namespace kolo::why {
namespace {

namespace fs = std::filesystem;
using recorder::Recorder;

class Explain : public ::testing::Test {
 protected:
  Explain() {
    std::string pattern = ::testing::TempDir() + "explainXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    fs::create_directory(jobs());
    fs::permissions(jobs(), fs::perms::owner_all);
  }
  ~Explain() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string jobs() const { return folder_ + "/jobs"; }
  /// A job of one rank, whose recorder stays, and which began so many hours ago.
  void record(const std::string& job, int hours, int rank = 0) const {
    const Recorder recorder(recorder::file_for(jobs(), job, rank), {job, rank, 2, 0, {0, 0}, "host"});
    age(job, hours);
  }
  void age(const std::string& job, int hours) const {
    fs::last_write_time(jobs() + "/" + job, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  [[nodiscard]] base::Lookup environment() const {
    return [this](const char* name) {
      return std::string(name) == "KOLO_RECORDER" ? std::optional<std::string>(jobs()) : std::nullopt;
    };
  }
  [[nodiscard]] std::string error_of(const std::string& directory) const {
    try {
      return "found " + find_job(directory, environment()).directory;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.status().message();
    }
  }

  std::string folder_;
};

TEST_F(Explain, TheNewestJobThatCanBeReadIsTaken) {
  record("old", 3);
  record("new", 2);
  const std::string passed = " passed over: no recorder of this release of Kolo, or not of the directory's owner.";
  EXPECT_EQ(find_job("", environment()).directory, jobs() + "/new");
  EXPECT_TRUE(find_job("", environment()).messages.empty());
  EXPECT_EQ(find_job(jobs() + "/old", environment()).directory, jobs() + "/old");

  fs::create_directory(jobs() + "/fifo");
  ASSERT_EQ(::mkfifo((jobs() + "/fifo/rank.0").c_str(), 0600), 0);
  EXPECT_EQ(find_job("", environment()).directory, jobs() + "/new");
  EXPECT_EQ(find_job("", environment()).messages, std::vector<std::string>{"1 newer job was" + passed});

  fs::create_directory(jobs() + "/other");
  std::ofstream(jobs() + "/other/rank.0") << "no recorder";
  const Job job = find_job(jobs(), environment());
  EXPECT_EQ(job.messages, std::vector<std::string>{"2 newer jobs were" + passed});
  EXPECT_EQ(explain(job).sentences.front(), "2 newer jobs were" + passed);
  EXPECT_EQ(error_of(jobs() + "/other"), "the files in \"" + jobs() +
                                             "/other\" are no recorders of this release of Kolo, or not of the "
                                             "directory's owner");
}

TEST_F(Explain, FilesOfAJobThatAreNoRecordersAreTold) {
  record("job", 1, 1);
  ASSERT_EQ(::mkfifo((jobs() + "/job/rank.0").c_str(), 0600), 0);
  fs::create_symlink(jobs() + "/job/rank.1", jobs() + "/job/rank.2");
  fs::copy(jobs() + "/job/rank.1", jobs() + "/job/rank.3");  // of rank 1
  const Job job = find_job("", environment());
  EXPECT_EQ(job.observed.size(), 1U);
  EXPECT_EQ(job.messages, std::vector<std::string>{"The files of ranks 0, 2 and 3 are no recorders of this release of "
                                                   "Kolo, or not of the directory's owner."});
}

TEST_F(Explain, NothingIsThere) {
  const std::string said =
      ": give the directory of a job or of jobs (KOLO_RECORDER). Jobs that ended in order leave none";
  EXPECT_EQ(error_of(""), "there is no recorder in \"" + jobs() + "\"" + said);
  EXPECT_EQ(error_of(folder_ + "/mis\x1bsing"), "there is no recorder in \"" + folder_ + "/mis\\x1bsing\"" + said);
}

TEST_F(Explain, ALinkIsFollowedOnlyWhereTheUserNamesIt) {
  record("job", 1);
  fs::create_directory_symlink(jobs(), folder_ + "/link");
  EXPECT_EQ(error_of(folder_ + "/link"), "found " + folder_ + "/link/job");
  fs::create_directory(folder_ + "/more");
  fs::create_directory_symlink(jobs() + "/job", folder_ + "/more/job");
  EXPECT_NE(error_of(folder_ + "/more").find("there is no recorder in "), std::string::npos);
}

TEST_F(Explain, AnotherUsersDirectoryIsReadOnlyWhereItIsNamed) {
  if (::geteuid() != 0) {  // who cannot give files away
    const base::Lookup of_root = [](const char* name) {
      return std::string(name) == "KOLO_RECORDER" ? std::optional<std::string>("/") : std::nullopt;
    };
    EXPECT_THROW(static_cast<void>(find_job("", of_root)), Error);
    return;
  }
  record("job", 1);
  record("job", 1, 1);
  ASSERT_EQ(::chown((jobs() + "/job/rank.0").c_str(), 1, 1), 0);
  EXPECT_EQ(find_job("", environment()).observed.size(), 1U) << "a file of another user in one's own directory";
  ASSERT_EQ(::chown(jobs().c_str(), 1, 1), 0);
  EXPECT_EQ(error_of(""), "\"" + jobs() +
                              "\" belongs to another user (1), and jobs of this user do not record there. Name the "
                              "directory if you trust its owner");
  EXPECT_NE(error_of(jobs()).find("there is no recorder in "), std::string::npos) << "the job is root's";
  ASSERT_EQ(::chown((jobs() + "/job").c_str(), 1, 1), 0);
  const Job job = find_job(jobs(), environment());
  ASSERT_EQ(job.observed.size(), 1U);
  EXPECT_EQ(job.observed.front().recording.rank, 0) << "that of the directory's owner";
}

TEST_F(Explain, TheTextHasALineForASentenceAndARank) {
  JobReport report;
  report.directory = "/there/a\nb";
  report.verdict = "late";
  report.sentences = {"One.", "Two."};
  report.ranks.push_back({0, "host", 7, "runs", "it last ended a step", 1.5, 3, 1});
  report.ranks.push_back({1, "", 0, "no file", "", 0, 0, 0});
  EXPECT_EQ(text_of(report, false), "/there/a\\nb: late\n- One.\n- Two.\n");
  EXPECT_EQ(text_of(report, true),
            "/there/a\\nb: late\n- One.\n- Two.\n"
            "  rank 0 runs (process 7 on host); it last ended a step; the last to submit 1 of 3 batches\n"
            "  rank 1 no file\n");
}

}  // namespace
}  // namespace kolo::why
