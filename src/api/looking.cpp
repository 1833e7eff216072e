// SPDX-License-Identifier: Apache-2.0
#include <kolo/looking.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include <kolo/error.hpp>
#include <kolo/objects.hpp>

#include "api/context_impl.hpp"
#include "base/clock.hpp"
#include "base/fields.hpp"
#include "base/settings.hpp"
#include "base/text.hpp"
#include "base/write_file.hpp"
#include "recorder/process.hpp"
#include "timeline/timeline.hpp"
#include "why/explain.hpp"
#include "why/flight_record.hpp"

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

void write_flight_records(const std::string& to, const std::string& directory) {
  const why::Job job = why::find_job(directory, base::process_environment());
  std::error_code error;
  std::filesystem::create_directories(to, error);  // if not, the first file says why
  for (const why::FlightRecord& record : why::flight_records(job.observed))
    base::write_file(to + "/kolo_rank_" + std::to_string(record.rank), record.pickle);
}

std::string to_json(const JobReport& report) { return why::json_of(report); }
std::string to_text(const JobReport& report, bool with_ranks) { return why::text_of(report, with_ranks); }

JobReport explain_job(const std::string& directory) {
  return why::explain(why::find_job(directory, base::process_environment()));
}

}  // namespace kolo
