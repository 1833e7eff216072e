// SPDX-License-Identifier: Apache-2.0
#include "timeline/timeline.hpp"

#include <new>
#include <utility>

#include <kolo/error.hpp>

#include "base/files.hpp"
#include "base/quote.hpp"
#include "base/system_error.hpp"
#include "base/text.hpp"
#include "timeline/timeline_file.hpp"

namespace kolo::timeline {
namespace {

std::string seconds_of(base::Duration duration) { return base::spell(base::to_seconds(duration)) + " s"; }

/// Opens a file on a thread that is left if the file system hangs.
base::UniqueFd open_within(base::Duration patience, const std::string& path, base::Start start) {
  const auto file = std::make_shared<base::UniqueFd>();
  const bool is_open = base::run_within(patience, "the thread that opens a timeline", [file, path, start] {
    *file = base::open_to_write(path, start);
    if (start == base::Start::append) return;
    if (const int error = base::write_all(file->get(), "[\n"))
      throw Error(ErrorCode::io, base::escaped(path) + ": write: " + base::errno_text(error));
  });
  if (is_open) return std::move(*file);
  throw Error(ErrorCode::io, base::escaped(path) + ": it could not be opened within " + seconds_of(patience) +
                                 "; its file system hangs");
}

}  // namespace

void create(const std::string& path) { static_cast<void>(open_within(base::kFilePatience, path, base::Start::empty)); }

Timeline::Timeline(const Place& place, Report report)
    : Timeline(place, open_within(place.patience, place.path, base::Start::append), std::move(report)) {}

Timeline::Timeline(const Place& place, base::UniqueFd file, Report report)
    : patience_(place.patience), output_(std::make_shared<TimelineFile>(place, std::move(file), std::move(report))),
      thread_("the timeline's thread", [output = output_] { output->run(); }) {}

void Timeline::end() noexcept {
  if (std::exchange(has_ended_, true)) return;
  output_->end();
  if (thread_.ends_by(base::after(base::now(), patience_))) return;
  try {
    output_->report("the timeline ends here: " + base::escaped(output_->path()) + " did not take the rest within " +
                    seconds_of(patience_) + "; its file system hangs, or is too slow");
  } catch (const std::bad_alloc&) {  // the sentence is lost, too
  }
  output_->leave();
}

void Timeline::take(const recorder::Record& record) noexcept { output_->put({record, {}}); }

void Timeline::name(std::uint64_t id, std::string_view text) noexcept {
  try {
    Item item;
    item.record.id = id;
    item.text = text.empty() ? std::string_view(" ") : text;
    output_->put(std::move(item));
  } catch (const std::bad_alloc&) {
    output_->count_lost();
  }
}

}  // namespace kolo::timeline
