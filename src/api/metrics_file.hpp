// SPDX-License-Identifier: Apache-2.0
//
// KOLO_METRICS_FILE: a rank's metrics as a file that a thread replaces now and then, whole: a reader sees either the
// last one or the new one. If it cannot be written, or its file system hangs, there is one warning, and the job goes
// on.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "engine/engine.hpp"

namespace kolo::api {

/// What the setting means for a rank: "kolo.prom" is "kolo.1.prom" for rank 1, and "kolo-%r.prom" "kolo-1.prom".
[[nodiscard]] std::string metrics_path(const std::string& setting, int rank);

class MetricsFile {
 public:
  /// Writes it every `interval`, until the end. Throws Error (transport): there is no thread.
  MetricsFile(std::shared_ptr<engine::Engine> engine, std::string path, base::Duration interval);
  /// Writes it a last time. Before the engine's end; not on a thread that drives it.
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

 private:
  void run();
  void write();
  void give_up(const std::string& why);

  const std::shared_ptr<engine::Engine> engine_;
  const std::string path_;
  const base::Duration interval_;
  bool has_failed_ = false;  ///< the thread's
  base::Mutex mutex_;
  base::ConditionVariable changed_;
  bool ends_ KOLO_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace kolo::api
