// SPDX-License-Identifier: Apache-2.0
//
// The way from a directory to what kolo-why prints: finds a job, reads its recorders, judges them.
//
// Whose files are read: without a name, those of this process's effective user, in a directory that is that user's. In
// a directory that the user names, those of its owner, whoever that is: so root may look at a user's job, and at
// nothing that a third one has put there. Only regular files are read, no links, a bounded part of each and of all
// (recorder/reader.hpp).
#pragma once

#include <string>
#include <vector>

#include <kolo/looking.hpp>

#include "base/settings.hpp"
#include "why/why.hpp"

namespace kolo::why {

/// The recorders of one job.
struct Job {
  std::string directory;
  std::vector<Observed> observed;     ///< never empty; by rank
  std::vector<std::string> messages;  ///< what was passed over, a sentence each
};

/// The job in the directory, or the newest job in it that can be read; empty: where jobs of this user record. Throws
/// Error (invalid_argument): there is none, or the directory belongs to another user.
[[nodiscard]] Job find_job(const std::string& directory, const base::Lookup& environment);

[[nodiscard]] JobReport explain(const Job& job);

/// What the functions of these names in kolo/looking.hpp return.
[[nodiscard]] std::string json_of(const JobReport& report);
[[nodiscard]] std::string text_of(const JobReport& report, bool with_ranks);

}  // namespace kolo::why
