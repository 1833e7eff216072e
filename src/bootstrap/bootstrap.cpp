// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>

#include <kolo/error.hpp>

#include "base/fields.hpp"
#include "base/text.hpp"
#include "core/signature.hpp"

namespace kolo::bootstrap {
namespace {

constexpr std::chrono::seconds kLeastSlack{1};

/// Runs `part`. The status has the text that it returned, or the reason why it failed.
Status run(const std::function<std::string()>& part) {
  try {
    return {ErrorCode::ok, part()};
  } catch (const Error& error) {
    return error.status();
  } catch (const std::exception& error) {
    return {ErrorCode::transport, error.what()};
  }
}

/// The rank whose failure is reported: the first with a reason of its own, else the first that waited for another.
std::optional<std::size_t> culprit(const std::vector<Status>& reports) {
  std::optional<std::size_t> found;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].ok()) continue;
    if (reports[rank].code() != ErrorCode::timeout) return rank;
    if (!found) found = rank;
  }
  return found;
}

}  // namespace

std::vector<std::string> take_step(Bootstrap& bootstrap, std::string_view label, base::Duration patience,
                                   const std::function<std::string()>& part) {
  const base::Time begun = base::now();
  const Status mine = run(part);
  if (bootstrap.size() == 1) {
    if (!mine.ok()) throw Error(mine);
    return {mine.message()};
  }
  std::vector<Status> reports;
  for (const std::string& bytes : bootstrap.exchange(label, base::join_status(mine), patience, begun))
    reports.push_back(base::split_status(bytes));
  if (const auto rank = culprit(reports)) {
    const Status& why = reports[*rank];
    throw Error(why.code() == ErrorCode::timeout ? ErrorCode::transport : why.code(),
                "rank " + std::to_string(*rank) + ": " + why.message());
  }
  std::vector<std::string> texts;
  texts.reserve(reports.size());
  for (const Status& report : reports) texts.push_back(report.message());
  return texts;
}

base::Duration after_waiting(base::Duration patience) noexcept {
  return patience + std::max<base::Duration>(patience / 4, kLeastSlack);
}

std::string missing_ranks(const std::vector<int>& ranks, std::string_view label, base::Duration patience) {
  return core::describe_ranks(ranks) + " did not reach the step \"" + std::string(label) + "\" of the start within " +
         base::spell(base::to_seconds(patience), 4) +
         " s (KOLO_CONNECT_TIMEOUT_S): a process has not joined yet, is stopped, or has ended";
}

}  // namespace kolo::bootstrap
