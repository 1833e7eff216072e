// SPDX-License-Identifier: Apache-2.0
//
// Where recorders lie: a directory for each job, in it a file for each rank ("rank.3"), mode 0600.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.hpp"

namespace kolo::recorder {

/// Jobs that are kept, the newest ones. Those that run count, and are never removed.
inline constexpr std::size_t kJobsKept = 16;

/// KOLO_RECORDER is "off".
[[nodiscard]] bool is_off(const std::string& setting);

/// Where jobs lie under this setting: the directory that it names, else "kolo" in the user's runtime directory
/// (XDG_RUNTIME_DIR, if that is this user's), else "kolo-<uid>" in TMPDIR, or in /tmp where there is no such directory.
[[nodiscard]] std::string directory_of(const std::string& setting, const base::Lookup& environment);

/// A name for a job that begins now in this process, which no other job has.
[[nodiscard]] std::string new_job();
/// Whether it is one that `new_job` makes; another process has sent it.
[[nodiscard]] bool is_job(std::string_view name);

/// Makes what lacks of the directories above one that the user has named. If it cannot, `file_for` says so.
void make_parents(const std::string& directory);
/// Makes the directory, and the job's in it, for this user alone, and returns the path of the rank's file there. The
/// directory above is there already. Throws Error (transport): it cannot be made, or belongs to somebody else.
[[nodiscard]] std::string file_for(const std::string& directory, const std::string& job, int rank);

/// Whose directory it is. Nothing: there is none; `follow`: a link to one counts.
[[nodiscard]] std::optional<uid_t> owner_of(const std::string& directory, bool follow);

/// Directories of this owner in the directory that have files of ranks, the newest first. Links do not count. At most
/// `kMostEntries` names are looked at.
[[nodiscard]] std::vector<std::string> jobs_in(const std::string& directory, uid_t owner);
/// A file of a job, by its name.
struct RankFile {
  int rank = 0;
  std::string path;
};
/// The files of a job, by rank; what has other names is left out. At most `kMostEntries` names are looked at.
[[nodiscard]] std::vector<RankFile> files_of(const std::string& job_directory);
inline constexpr std::size_t kMostEntries = 100'000;

/// Removes jobs that have ended, so that with one more at most kJobsKept are left. What is no recorder stays.
void remove_old(const std::string& directory) noexcept;

}  // namespace kolo::recorder
