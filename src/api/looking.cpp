// SPDX-License-Identifier: Apache-2.0
#include <kolo/looking.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>

#include <kolo/error.hpp>
#include <kolo/objects.hpp>

#include "api/access.hpp"
#include "api/context_impl.hpp"
#include "base/clock.hpp"
#include "base/cpu.hpp"
#include "base/fields.hpp"
#include "base/files.hpp"
#include "base/settings.hpp"
#include "base/text.hpp"
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
struct Clock {
  std::string boot;
  std::int64_t offset = 0;  ///< CLOCK_REALTIME - CLOCK_MONOTONIC, in nanoseconds

  [[nodiscard]] std::string encode() const { return base::join_fields({boot, std::to_string(offset)}); }
  static Clock decode(const std::string& text) {
    const std::vector<std::string> fields = base::split_fields(text);
    const auto offset = fields.size() == 2 ? base::parse_number<std::int64_t>(fields[1]) : std::nullopt;
    if (!offset) base::throw_unreadable();
    return {fields[0], *offset};
  }
};

std::int64_t offset_now() {
  using std::chrono::duration_cast;
  using std::chrono::nanoseconds;
  const nanoseconds monotonic = base::now().time_since_epoch();
  return (duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()) - monotonic).count();
}

/// All ranks take a part of the start, or all of them fail alike. None goes on before all have.
void take_part(Context& context, const std::function<void()>& part) {
  Status mine;
  try {
    part();
  } catch (const Error& error) {
    mine = error.status();
  }
  const std::string code = mine.ok() ? std::string() : std::to_string(static_cast<int>(mine.code()));
  const std::vector<std::string> all = allgather_bytes(context, base::join_fields({code, mine.message()}));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<std::string> fields = base::split_fields(all[rank]);
    if (fields.size() != 2) base::throw_unreadable();
    if (fields[0].empty()) continue;
    throw Error(base::error_code_of(fields[0]), "rank " + std::to_string(rank) + ": " + fields[1]);
  }
}

}  // namespace

void start_timeline(Context& context, const std::string& path) {
  detail::ContextImpl& impl = api::impl_of(context);
  const engine::Engine& engine = impl.engine();
  const int rank = engine.topology().rank;
  const std::vector<int>& machines = impl.machines();
  const int machine = machines[static_cast<std::size_t>(rank)];
  timeline::Place place{path, rank, base::host_name(), 0, "exact"};
  if (machine != machines.front()) place.path += "." + place.host;
  impl.set_timeline(nullptr);  // the one before may have the same file
  const Clock mine{base::system_name(), offset_now()};
  const Clock root = Clock::decode(allgather_bytes(context, mine.encode()).front());
  if (root.boot != mine.boot) {
    place.shift_ns = mine.offset - root.offset;
    place.clock = "that of the day, which may differ from rank 0's by some milliseconds";
  }
  // The lowest rank of a machine makes the file for the others.
  take_part(context, [&] {
    if (std::find(machines.begin(), machines.end(), machine) - machines.begin() == rank) timeline::create(place.path);
  });
  std::shared_ptr<timeline::Timeline> started;
  take_part(context, [&] {
    started = std::make_shared<timeline::Timeline>(
        place, [logger = &engine.logger()](const std::string& what) { logger->write(LogLevel::warning, what); });
  });
  impl.set_timeline(std::move(started));
}

void stop_timeline(Context& context) { api::impl_of(context).set_timeline(nullptr); }

void write_flight_records(const std::string& to, const std::string& directory) {
  const why::Job job = why::find_job(directory, base::process_environment());
  std::error_code error;
  std::filesystem::create_directories(to, error);  // if not, the first file says why
  for (const why::FlightRecord& record : why::flight_records(job.observed))
    base::replace_file(to + "/kolo_rank_" + std::to_string(record.rank), record.pickle);
}

std::string to_json(const JobReport& report) { return why::json_of(report); }
std::string to_text(const JobReport& report, bool with_ranks) { return why::text_of(report, with_ranks); }

JobReport explain_job(const std::string& directory) {
  return why::explain(why::find_job(directory, base::process_environment()));
}

}  // namespace kolo
