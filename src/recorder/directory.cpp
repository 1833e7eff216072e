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
  return base::parse_number<int>(std::string_view(name).substr(kFilePrefix.size()));
}

}  // namespace

bool is_off(const std::string& setting) { return base::in_lower_case(setting) == "off"; }

std::string directory_of(const std::string& setting, const base::Lookup& environment) {
  if (!setting.empty()) return setting;
  const auto value = [&](const char* name) { return environment(name).value_or(std::string()); };
  std::error_code error;
  if (const std::string runtime = value("XDG_RUNTIME_DIR"); !runtime.empty() && fs::is_directory(runtime, error))
    return runtime + "/kolo";
  const std::string temporary = value("TMPDIR");
  return (temporary.empty() ? "/tmp" : temporary) + "/kolo-" + std::to_string(::geteuid());
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

std::string file_for(const std::string& directory, const std::string& job, int rank) {
  if (!is_job(job)) throw Error(ErrorCode::transport, "rank 0 has sent no name for the job's recorders");
  std::error_code error;
  const std::string parent = fs::path(directory).parent_path().string();
  if (!parent.empty()) fs::create_directories(parent, error);
  make_private(directory);
  make_private(directory + "/" + job);
  return directory + "/" + job + "/" + std::string(kFilePrefix) + std::to_string(rank);
}

std::vector<std::string> files_of(const std::string& job_directory) {
  std::vector<std::pair<int, std::string>> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(job_directory, error)) {
    if (const std::optional<int> rank = rank_of(entry.path())) files.emplace_back(*rank, entry.path().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> paths;
  paths.reserve(files.size());
  for (auto& [rank, path] : files) paths.push_back(std::move(path));
  return paths;
}

std::vector<std::string> jobs_in(const std::string& directory) {
  std::vector<std::pair<fs::file_time_type, std::string>> jobs;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (entry.is_symlink(error) || !entry.is_directory(error) || files_of(entry.path().string()).empty()) continue;
    jobs.emplace_back(fs::last_write_time(entry.path(), error), entry.path().string());
  }
  std::sort(jobs.begin(), jobs.end(), std::greater<>());
  std::vector<std::string> paths;
  paths.reserve(jobs.size());
  for (auto& [time, path] : jobs) paths.push_back(std::move(path));
  return paths;
}

void remove_old(const std::string& directory) noexcept {
  try {
    const std::vector<std::string> jobs = jobs_in(directory);
    if (jobs.size() < kJobsKept) return;
    const std::string boot = boot_id();
    for (std::size_t i = kJobsKept - 1; i < jobs.size(); ++i) {
      const std::vector<std::string> files = files_of(jobs[i]);
      if (!std::all_of(files.begin(), files.end(), [&](const std::string& file) { return is_over(file, boot); }))
        continue;
      for (const std::string& file : files) ::unlink(file.c_str());
      ::rmdir(jobs[i].c_str());
    }
  } catch (const std::exception&) {
    // They stay until another job removes them.
  }
}

}  // namespace kolo::recorder
