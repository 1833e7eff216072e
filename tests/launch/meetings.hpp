// SPDX-License-Identifier: Apache-2.0
//
// Ranks that meet, as threads, by real sockets.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <kolo/error.hpp>

#include "base/mutex.hpp"
#include "launch/exchange.hpp"
#include "launch/meeting_place.hpp"

namespace kolo::launch {

using Words = std::vector<std::string>;
constexpr auto kLong = std::chrono::seconds(30);
constexpr auto kSome = std::chrono::seconds(1);          // others must come meanwhile
constexpr auto kShort = std::chrono::milliseconds(300);  // nobody comes

inline Place place_of(int rank, int size) { return {rank, size, "KOLO_RANK", "KOLO_SIZE"}; }

inline std::unique_ptr<Exchange> join(const MeetingPlace& where, Place place, const std::string& secret = {}) {
  return make_exchange(place, directions_to(where, "", {secret, "a test"}));
}

inline std::string sentence_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.status().message();
  }
  return "no error";
}

/// Numbers of processes and ports are not the same twice.
inline std::string steady(std::string text) {
  // Static: compiling an expression writes to the locale, which several threads must not do at once.
  static const std::regex process("process [0-9]+");
  static const std::regex port("127\\.0\\.0\\.1:[0-9]+");
  return std::regex_replace(std::regex_replace(text, process, "process P"), port, "127.0.0.1:PORT");
}

/// Each on a thread of its own; what each got, or its sentence.
inline Words run(const std::vector<std::function<std::string()>>& ranks) {
  Words results(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        results[i] = ranks[i]();
      } catch (const Error& error) {
        results[i] = error.status().message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::string& result : results) result = steady(result);
  return results;
}

/// A job's: another process that runs the same test has others.
inline std::vector<std::uint16_t> own_ports(const std::string& job) {
  return ports_of(job + " " + std::to_string(::getpid()));
}

inline std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += word + ";";
  return text;
}

/// One step.
inline std::function<std::string()> rank_of(const MeetingPlace& where, Place place, base::Duration patience = kLong,
                                            const std::string& secret = {}) {
  return [=] {
    const auto exchange = join(where, place, secret);
    return joined(exchange->exchange("settings", "word " + std::to_string(place.rank), patience, base::now()));
  };
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "kolo-launch-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A program's own.
class MapStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const base::MutexLock lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::optional<std::string> get(const std::string& key, std::chrono::nanoseconds timeout) override {
    const base::MutexLock lock(mutex_);
    const base::Time deadline = base::now() + timeout;
    while (values_.count(key) == 0) {
      if (!changed_.wait_until(mutex_, deadline)) return std::nullopt;
    }
    return values_[key];
  }

 private:
  base::Mutex mutex_;
  base::ConditionVariable changed_;
  std::map<std::string, std::string> values_ KOLO_GUARDED_BY(mutex_);
};

/// Three steps.
inline void expect_meeting(const MeetingPlace& where, int size, const std::string& secret = {}) {
  std::vector<std::function<std::string()>> ranks;
  std::string all;
  for (int rank = 0; rank < size; ++rank) {
    all += "word " + std::to_string(rank) + ";";
    ranks.push_back([=] {
      const auto exchange = join(where, place_of(rank, size), secret);
      std::string last;
      for (int step = 0; step < 3; ++step) {
        last = joined(exchange->exchange("step", "word " + std::to_string(rank), kLong, base::now()));
      }
      return last;
    });
  }
  EXPECT_EQ(run(ranks), Words(static_cast<std::size_t>(size), all));
}

}  // namespace kolo::launch
