// SPDX-License-Identifier: Apache-2.0
#include "api/metrics_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <utility>

#include "api/info.hpp"
#include "base/start_thread.hpp"
#include "base/system_error.hpp"
#include "base/thread_name.hpp"
#include "base/write_file.hpp"

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
  // Of this process alone: ranks of several machines may write to one directory.
  const std::string next = path_ + "." + std::to_string(::getpid()) + ".new";
  try {
    base::write_file(next, to_prometheus(metrics_of(*engine_), engine_->topology().rank));
    if (::rename(next.c_str(), path_.c_str()) != 0) base::throw_errno("rename to " + path_, errno);
  } catch (const std::exception& error) {
    ::unlink(next.c_str());
    has_failed_ = true;
    engine_->logger().write(LogLevel::warning,
                            std::string("metrics are written no more (KOLO_METRICS_FILE): ") + error.what());
  }
}

}  // namespace kolo::api
