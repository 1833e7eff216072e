// SPDX-License-Identifier: Apache-2.0
#include "api/metrics_file.hpp"

#include <exception>
#include <filesystem>
#include <utility>

#include "api/info.hpp"
#include "base/files.hpp"
#include "base/quote.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"

namespace kolo::api {

std::string metrics_path(const std::string& setting, int rank) {
  const std::string number = std::to_string(rank);
  std::string path = setting;
  std::size_t at = path.find("%r");
  if (at != std::string::npos) {
    for (; at != std::string::npos; at = path.find("%r", at + number.size())) path.replace(at, 2, number);
    return path;
  }
  if (rank == 0) return path;
  const std::filesystem::path whole(path);
  return (whole.parent_path() / whole.stem()).string() + "." + number + whole.extension().string();
}

MetricsFile::MetricsFile(std::shared_ptr<engine::Engine> engine, std::string path, base::Duration interval)
    : engine_(std::move(engine)), path_(std::move(path)), interval_(interval) {
  thread_ = base::start_thread("the thread of the metrics", [this] { run(); });
}

MetricsFile::~MetricsFile() {
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void MetricsFile::run() {
  base::set_thread_name("kolo-metrics");
  for (bool ends = false; !ends && !has_failed_;) {
    {
      const base::MutexLock lock(mutex_);
      const base::Time until = base::after(base::now(), interval_);
      while (!ends_ && changed_.wait_until(mutex_, until)) {
      }
      ends = ends_;
    }
    write();
  }
}

void MetricsFile::write() {
  try {
    std::string text = prometheus_of(counters_of(*engine_), engine_->topology().rank);
    const bool is_written =
        base::run_within(base::kFilePatience, "the thread that writes metrics",
                         [path = path_, text = std::move(text)] { base::replace_file(path, text); });
    if (is_written) return;
    give_up(base::escaped(path_) + ": it could not be written within " +
            base::spell(base::to_seconds(base::kFilePatience)) + " s; its file system hangs");
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

void MetricsFile::give_up(const std::string& why) {
  has_failed_ = true;
  engine_->logger().write(LogLevel::warning, "metrics are written no more (KOLO_METRICS_FILE): " + why);
}

}  // namespace kolo::api
