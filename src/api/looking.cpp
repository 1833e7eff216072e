// SPDX-License-Identifier: Apache-2.0
#include <kolo/looking.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <kolo/error.hpp>
#include <kolo/objects.hpp>

#include "api/context_impl.hpp"
#include "base/clock.hpp"
#include "base/fields.hpp"
#include "base/quote.hpp"
#include "base/settings.hpp"
#include "base/text.hpp"
#include "base/write_file.hpp"
#include "recorder/directory.hpp"
#include "recorder/process.hpp"
#include "timeline/timeline.hpp"
#include "why/flight_record.hpp"
#include "why/why.hpp"

namespace kolo {

void detail::ContextImpl::set_timeline(std::shared_ptr<timeline::Timeline> timeline) {
  std::shared_ptr<timeline::Timeline> before;
  {
    const base::MutexLock lock(timeline_mutex_);
    engine_->record_to(timeline);
    before = std::exchange(timeline_, std::move(timeline));
  }
  if (before) before->end();
}

namespace {

/// Each rank sends this to the others before a timeline begins.
struct Beginning {
  std::string failure;  ///< why it could not make its machine's file; empty: it could, or need not
  std::string boot;
  std::int64_t clock = 0;  ///< CLOCK_REALTIME - CLOCK_MONOTONIC, in nanoseconds

  [[nodiscard]] std::string encode() const { return base::join_fields({failure, boot, std::to_string(clock)}); }
  static Beginning decode(const std::string& text) {
    const std::vector<std::string> fields = base::split_fields(text);
    const auto clock = fields.size() == 3 ? base::parse_number<std::int64_t>(fields[2]) : std::nullopt;
    if (!clock) base::throw_unreadable();
    return {fields[0], fields[1], *clock};
  }
};

std::int64_t clock_now() {
  using std::chrono::duration_cast;
  using std::chrono::nanoseconds;
  const nanoseconds monotonic = base::now().time_since_epoch();
  return (duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()) - monotonic).count();
}

/// The lowest rank of its machine makes the file for the others.
std::string make_file(const std::string& path, const std::vector<int>& machines, int rank) {
  const int machine = machines[static_cast<std::size_t>(rank)];
  if (std::find(machines.begin(), machines.end(), machine) - machines.begin() != rank) return {};
  try {
    timeline::create(path);
    return {};
  } catch (const Error& error) {
    return error.status().message();
  }
}

}  // namespace

void start_timeline(Context& context, const std::string& path) {
  detail::ContextImpl& impl = context.impl();
  const engine::Engine& engine = impl.engine();
  const int rank = engine.topology().rank;
  const std::vector<int>& machines = impl.machines();
  timeline::Place place{path, rank, recorder::host_name(), 0, "exact"};
  if (machines[static_cast<std::size_t>(rank)] != machines.front()) place.path += "." + place.host;
  const Beginning mine{make_file(place.path, machines, rank), recorder::boot_id(), clock_now()};
  const std::vector<std::string> all = allgather_bytes(context, mine.encode());
  for (std::size_t other = 0; other < all.size(); ++other) {
    const std::string failure = Beginning::decode(all[other]).failure;
    if (!failure.empty()) throw Error(ErrorCode::transport, "rank " + std::to_string(other) + ": " + failure);
  }
  const Beginning root = Beginning::decode(all.front());
  if (root.boot != mine.boot) {
    place.shift_ns = mine.clock - root.clock;
    place.clock = "that of the day, which may differ from rank 0's by some milliseconds";
  }
  impl.set_timeline(std::make_shared<timeline::Timeline>(
      place, [logger = &engine.logger()](const std::string& what) { logger->write(LogLevel::warning, what); }));
}

void stop_timeline(Context& context) { context.impl().set_timeline(nullptr); }

namespace {

/// The directory of the job that is meant.
std::string job_in(std::string directory) {
  const base::Lookup environment = base::process_environment();
  const std::string setting = environment("KOLO_RECORDER").value_or(std::string());
  if (directory.empty()) directory = recorder::directory_of(recorder::is_off(setting) ? "" : setting, environment);
  if (!recorder::files_of(directory).empty()) return directory;
  const std::vector<std::string> jobs = recorder::jobs_in(directory);
  if (jobs.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "there is no recorder in " + base::quoted(directory) +
                    ": give the directory of a job or of jobs (KOLO_RECORDER). Jobs that ended in order leave none");
  }
  return jobs.front();
}

std::vector<why::Observed> observe(const std::string& job) {
  std::vector<why::Observed> observed = why::read_job(job);
  if (observed.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "the files in " + base::quoted(job) + " are no recorders of this release of Kolo");
  }
  return observed;
}

}  // namespace

void write_flight_records(const std::string& to, const std::string& directory) {
  const std::vector<why::FlightRecord> records = why::flight_records(observe(job_in(directory)));
  std::error_code error;
  std::filesystem::create_directories(to, error);  // if not, the first file says why
  for (const why::FlightRecord& record : records)
    base::write_file(to + "/kolo_rank_" + std::to_string(record.rank), record.pickle);
}

std::string to_json(const JobReport& report) {
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

JobReport explain_job(const std::string& directory) {
  JobReport report;
  report.directory = job_in(directory);
  const std::vector<why::Observed> observed = observe(report.directory);
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(base::now().time_since_epoch());
  why::Judgement judgement = why::judge(observed, static_cast<std::uint64_t>(now.count()));
  report.verdict = why::to_string(judgement.verdict);
  report.suspects = std::move(judgement.suspects);
  report.tensors = std::move(judgement.tensors);
  report.sentences = std::move(judgement.sentences);
  for (why::RankLine& line : judgement.ranks) {
    report.ranks.push_back({line.rank, std::move(line.host), line.pid, std::move(line.state), std::move(line.last),
                            line.last_at, line.batches, line.awaited});
  }
  return report;
}

}  // namespace kolo
