// SPDX-License-Identifier: Apache-2.0
#include "recorder/directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include <kolo/error.hpp>

#include "base/proof.hpp"
#include "base/system_error.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "recorder/reader.hpp"

namespace kolo::recorder {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFilePrefix = "rank.";
constexpr std::size_t kLongestJob = 100;
constexpr std::size_t kLongestProgram = 32;

bool is_plain(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::string text(32, '\0');
  text.resize(std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts));
  return text;
}

/// Makes a directory of this user alone, or finds it.
void make_private(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) base::throw_errno("mkdir " + path, errno);
  const base::UniqueFd found(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!found) base::throw_errno("open " + path, errno);
  struct stat about {};
  if (::fstat(found.get(), &about) != 0) base::throw_errno("stat " + path, errno);
  if (about.st_uid != ::geteuid() || (about.st_mode & 022) != 0) {
    throw Error(ErrorCode::transport, path + " belongs to another user, or others may write there");
  }
}

std::optional<int> rank_of(const fs::path& file) {
  const std::string name = file.filename().string();
  if (name.compare(0, kFilePrefix.size(), kFilePrefix) != 0) return std::nullopt;
  const std::optional<int> rank = base::parse_number<int>(std::string_view(name).substr(kFilePrefix.size()));
  // One name a rank: no "rank.007".
  if (!rank || *rank < 0 || name.size() != kFilePrefix.size() + std::to_string(*rank).size()) return std::nullopt;
  return rank;
}

/// Names in a directory, at most kMostEntries.
std::vector<fs::path> entries_of(const std::string& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end && entries.size() < kMostEntries;
       at.increment(error)) {
    entries.push_back(at->path());
  }
  return entries;
}

}  // namespace

bool is_off(const std::string& setting) { return base::in_lower_case(setting) == "off"; }

std::string directory_of(const std::string& setting, const base::Lookup& environment) {
  if (!setting.empty()) return setting;
  const auto value = [&](const char* name) { return environment(name).value_or(std::string()); };
  // Another user's is the caller's of sudo.
  if (const std::string runtime = value("XDG_RUNTIME_DIR"); !runtime.empty() && owner_of(runtime, true) == ::geteuid())
    return runtime + "/kolo";
  const std::string temporary = value("TMPDIR");
  const bool has_temporary = !temporary.empty() && owner_of(temporary, true).has_value();
  return (has_temporary ? temporary : "/tmp") + "/kolo-" + std::to_string(::geteuid());
}

std::string new_job() {
  std::string program;
  for (const char* c = program_invocation_short_name; *c != '\0' && program.size() < kLongestProgram; ++c)
    program += is_plain(*c) ? *c : '_';
  if (program.empty() || program.front() == '.') program = "program";
  return program + "." + time_text() + "." + std::to_string(::getpid()) + "." +
         base::hex_of(base::random_word()).substr(0, 6);
}

bool is_job(std::string_view name) {
  return !name.empty() && name.size() <= kLongestJob && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), is_plain);
}

void make_parents(const std::string& directory) {
  std::error_code error;
  const fs::path parent = fs::path(directory).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
}

std::string file_for(const std::string& directory, const std::string& job, int rank) {
  if (!is_job(job)) throw Error(ErrorCode::transport, "rank 0 has sent no name for the job's recorders");
  make_private(directory);
  make_private(directory + "/" + job);
  return directory + "/" + job + "/" + std::string(kFilePrefix) + std::to_string(rank);
}

std::optional<uid_t> owner_of(const std::string& directory, bool follow) {
  struct stat about {};
  if ((follow ? ::stat(directory.c_str(), &about) : ::lstat(directory.c_str(), &about)) != 0) return std::nullopt;
  if (!S_ISDIR(about.st_mode)) return std::nullopt;
  return about.st_uid;
}

std::vector<RankFile> files_of(const std::string& job_directory) {
  std::vector<RankFile> files;
  for (const fs::path& entry : entries_of(job_directory)) {
    if (const std::optional<int> rank = rank_of(entry)) files.push_back({*rank, entry.string()});
  }
  std::sort(files.begin(), files.end(), [](const RankFile& a, const RankFile& b) { return a.rank < b.rank; });
  return files;
}

std::vector<std::string> jobs_in(const std::string& directory, uid_t owner) {
  std::vector<std::pair<fs::file_time_type, std::string>> jobs;
  for (const fs::path& entry : entries_of(directory)) {
    if (owner_of(entry.string(), false) != owner || files_of(entry.string()).empty()) continue;
    std::error_code error;
    jobs.emplace_back(fs::last_write_time(entry, error), entry.string());
  }
  std::sort(jobs.begin(), jobs.end(), std::greater<>());
  std::vector<std::string> paths;
  paths.reserve(jobs.size());
  for (auto& [time, path] : jobs) paths.push_back(std::move(path));
  return paths;
}

void remove_old(const std::string& directory) noexcept {
  try {
    const std::vector<std::string> jobs = jobs_in(directory, ::geteuid());
    for (std::size_t i = kJobsKept - 1; i < jobs.size(); ++i) {
      const std::vector<RankFile> files = files_of(jobs[i]);
      if (!std::all_of(files.begin(), files.end(), [](const RankFile& file) { return is_over(file.path); })) continue;
      for (const RankFile& file : files) ::unlink(file.path.c_str());
      ::rmdir(jobs[i].c_str());
    }
  } catch (const std::exception&) {
    // They stay until another job removes them.
  }
}

}  // namespace kolo::recorder
