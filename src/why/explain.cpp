// SPDX-License-Identifier: Apache-2.0
#include "why/explain.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iomanip>
#include <optional>
#include <utility>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/cpu.hpp"
#include "base/quote.hpp"
#include "base/text.hpp"
#include "core/signature.hpp"
#include "recorder/directory.hpp"

namespace kolo::why {
namespace {

/// Of one job; each takes up to some MiB of memory.
constexpr std::size_t kMostFiles = 4096;
/// Jobs that are looked at.
constexpr std::size_t kMostJobs = 1000;

Life life_of(const recorder::Recording& recording) {
  if (!recording.process.is_in_sight(recording.boot)) return Life::unknown;
  const char state = recording.process.state();
  if (state == 0 || state == 'Z' || state == 'X') return Life::gone;
  return state == 'T' || state == 't' ? Life::stopped : Life::runs;
}

/// Of one directory.
Job read_job(const std::string& directory, uid_t owner) {
  Job job{directory, {}, {}};
  std::vector<recorder::RankFile> files = recorder::files_of(directory);
  if (files.size() > kMostFiles) {
    job.messages.push_back("There are files of " + std::to_string(files.size()) + " ranks; those of the first " +
                           std::to_string(kMostFiles) + " were read.");
    files.resize(kMostFiles);
  }
  std::vector<int> unread;
  for (const recorder::RankFile& file : files) {
    std::optional<recorder::Recording> recording = recorder::read_file(file.path, owner);
    if (!recording || recording->rank != file.rank) {
      unread.push_back(file.rank);
      continue;
    }
    const Life life = life_of(*recording);
    job.observed.push_back({std::move(*recording), life});
  }
  if (!unread.empty() && !job.observed.empty()) {
    job.messages.push_back((unread.size() == 1 ? "The file of " : "The files of ") + core::describe_ranks(unread) +
                           (unread.size() == 1 ? " is no recorder" : " are no recorders") +
                           " of this release of Kolo, or not of the directory's owner.");
  }
  return job;
}

/// The newest job that can be read.
std::optional<Job> newest_in(const std::vector<std::string>& directories, uid_t owner) {
  for (std::size_t i = 0; i < std::min(directories.size(), kMostJobs); ++i) {
    Job job = read_job(directories[i], owner);
    if (job.observed.empty()) continue;
    if (i > 0) {
      job.messages.insert(job.messages.begin(),
                          std::to_string(i) + (i == 1 ? " newer job was" : " newer jobs were") +
                              " passed over: no recorder of this release of Kolo, or not of the directory's owner.");
    }
    return job;
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

/// Now, as CLOCK_MONOTONIC of the recording's boot.
std::int64_t now_of(const recorder::Recording& recording) {
  const std::chrono::nanoseconds monotonic = base::now().time_since_epoch();
  if (recording.boot == base::system_name()) return monotonic.count();
  const std::chrono::nanoseconds day = std::chrono::system_clock::now().time_since_epoch();
  // Of numbers that stand in a file: they wrap.
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(day.count()) -
                                   static_cast<std::uint64_t>(recording.wall_ns) +
                                   static_cast<std::uint64_t>(recording.monotonic_ns));
}

}  // namespace

Job find_job(const std::string& named, const base::Lookup& environment) {
  std::string directory = named;
  if (named.empty()) {
    const std::string setting = environment("KOLO_RECORDER").value_or(std::string());
    directory = recorder::directory_of(recorder::is_off(setting) ? "" : setting, environment);
  }
  const std::optional<uid_t> owner = recorder::owner_of(directory, !named.empty());
  if (owner && named.empty() && *owner != ::geteuid()) {
    refuse(base::quoted(directory) + " belongs to another user (" + std::to_string(*owner) +
           "), and jobs of this user do not record there. Name the directory if you trust its owner");
  }
  std::vector<std::string> jobs;
  bool has_files = false;
  if (owner) {
    has_files = !recorder::files_of(directory).empty();
    jobs = has_files ? std::vector<std::string>{directory} : recorder::jobs_in(directory, *owner);
    if (std::optional<Job> job = newest_in(jobs, *owner)) return std::move(*job);
  }
  if (jobs.empty()) {
    refuse("there is no recorder in " + base::quoted(directory) +
           ": give the directory of a job or of jobs (KOLO_RECORDER). Jobs that ended in order leave none");
  }
  refuse("the files in " + base::quoted(has_files ? directory : jobs.front()) +
         " are no recorders of this release of Kolo, or not of the directory's owner");
}

JobReport explain(const Job& job) {
  JobReport report = judge(job.observed, now_of(job.observed.front().recording));
  report.directory = job.directory;
  report.sentences.insert(report.sentences.begin(), job.messages.begin(), job.messages.end());
  return report;
}

std::string json_of(const JobReport& report) {
  std::string suspects;
  for (const int rank : report.suspects) suspects += (suspects.empty() ? "" : ", ") + std::to_string(rank);
  const auto list = [](const std::vector<std::string>& texts) {
    std::string json;
    for (const std::string& text : texts) json += (json.empty() ? "" : ", ") + base::quoted_json(text);
    return "[" + json + "]";
  };
  std::string ranks;
  for (const RankReport& rank : report.ranks) {
    base::Text seconds;
    seconds << std::fixed << std::setprecision(9) << rank.last_s;
    ranks += (ranks.empty() ? "" : ", ") + ("{\"rank\": " + std::to_string(rank.rank)) +
             ", \"host\": " + base::quoted_json(rank.host) + ", \"pid\": " + std::to_string(rank.pid) +
             ", \"state\": " + base::quoted_json(rank.state) + ", \"last\": " + base::quoted_json(rank.last) +
             ", \"last_s\": " + seconds.str() + ", \"batches\": " + std::to_string(rank.batches) +
             ", \"awaited_batches\": " + std::to_string(rank.awaited_batches) + "}";
  }
  return "{\"directory\": " + base::quoted_json(report.directory) +
         ", \"verdict\": " + base::quoted_json(report.verdict) + ", \"suspects\": [" + suspects +
         "], \"tensors\": " + list(report.tensors) + ", \"sentences\": " + list(report.sentences) + ", \"ranks\": [" +
         ranks + "]}";
}

std::string text_of(const JobReport& report, bool with_ranks) {
  std::string text = base::on_one_line(report.directory) + ": " + report.verdict + "\n";
  for (const std::string& sentence : report.sentences) text += "- " + sentence + "\n";
  for (const RankReport& rank : report.ranks) {
    if (!with_ranks) break;
    text += "  rank " + std::to_string(rank.rank) + " " + rank.state;
    if (rank.pid != 0) text += " (process " + std::to_string(rank.pid) + " on " + rank.host + "); " + rank.last;
    if (rank.batches != 0) {
      text += "; the last to submit " + std::to_string(rank.awaited_batches) + " of " + std::to_string(rank.batches) +
              " batches";
    }
    text += "\n";
  }
  return text;
}

}  // namespace kolo::why
