// SPDX-License-Identifier: Apache-2.0
//
// Settings, and the only access to the environment. Every KOLO_* variable is a row of one table (settings_table.cpp):
// its type, range, help, Horovod's name for it, and whether rank 0's value holds for all ranks. The fields below hold
// the defaults. A new setting is a field here and a row there; tests/base/settings_test.cpp then says how to update
// docs/variables.md.
//
// A value comes from, strongest first: rank 0 (shared settings only), the program's options, the environment, Horovod's
// name in the environment, the default. An empty value in the environment counts as not set.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/info.hpp>
#include <kolo/log.hpp>

namespace kolo::base {

enum class SettingSource : std::uint8_t { default_value, alias, environment, option, rank0 };
/// "default", "alias", "environment", "option", "rank 0".
std::string_view to_string(SettingSource source) noexcept;

/// The backend that reduces tensors on a GPU.
enum class GpuBackend : std::uint8_t { nccl, staged };
/// "nccl", "staged".
std::string_view to_string(GpuBackend backend) noexcept;

/// The transport of data between nodes. A new transport gets a value here.
enum class Transport : std::uint8_t { automatic, ucx, mpi };
/// "auto", "ucx", "mpi".
std::string_view to_string(Transport transport) noexcept;

/// The value of KOLO_CHECK_REPLICAS: when ranks compare the parameters of their optimizers, and which they leave out.
struct ReplicaSetting {
  /// -1: never; 0: before the first step; N: also after every N-th step.
  std::int64_t interval = 0;
  /// Patterns of the names that are left out. `*` matches any run of characters, and all else itself.
  std::vector<std::string> left_out;

  [[nodiscard]] bool compares(std::string_view name) const noexcept;

  friend bool operator==(const ReplicaSetting&, const ReplicaSetting&) = default;
};

/// Words with commas between them: `first`, `off` (or `0`), a number of steps, and `-PATTERN`. Empty if they are not.
std::optional<ReplicaSetting> parse_replica_setting(std::string_view text);
/// The reverse.
std::string to_string(const ReplicaSetting& setting);

/// A plain value. `Settings{}` is all defaults. Sizes are in bytes, times in seconds unless the name says otherwise.
struct Settings {
  double timeout_s = 600;
  double stall_warning_s = 60;
  double connect_timeout_s = 60;
  double latch_timeout_s = 5;
  bool alone = false;
  std::string store;
  std::int64_t rank = -1;
  std::int64_t size = 0;
  std::string job_key;
  std::string keeper;
  std::string mpi;
  LogLevel log_level = LogLevel::warning;
  std::int64_t fusion_threshold_bytes = std::int64_t{16} << 20;
  std::int64_t open_batches = 4;
  std::int64_t cache_capacity = 8192;
  bool plan = true;
  std::int64_t ranks_per_node = 0;
  std::int64_t tree_fanout = 8;
  std::string interface;
  Transport transport = Transport::automatic;
  std::int64_t slot_bytes = 0;
  std::int64_t slots = 0;
  std::string routes;
  std::int64_t chunk_bytes = std::int64_t{32} << 10;
  std::int64_t past_cache_bytes = std::int64_t{4} << 20;
  std::int64_t step_bytes = std::int64_t{16} << 10;
  std::int64_t message_ring_bytes = std::int64_t{256} << 10;
  std::int64_t log_ring_bytes = std::int64_t{1} << 20;
  std::int64_t mailbox_capacity = 4096;
  std::int64_t spin_us = -1;
  bool print_settings = false;
  GpuBackend gpu_backend = GpuBackend::nccl;
  std::int64_t groups = 256;
  std::int64_t gpu_buffers = 3;
  std::int64_t gpu_direct_bytes = std::int64_t{8} << 20;
  bool share_device = false;
  std::int64_t gpu_memory_limit_bytes = 0;
  bool log_placement = false;
  std::string recorder;
  std::string timeline;
  bool check_nan = false;
  ReplicaSetting check_replicas;
  std::string metrics_file;
  double metrics_interval_s = 10;
  bool as_gloo = false;  ///< read by kolo_torch

  /// Where each value came from, by variable; a variable that is not here has its default.
  std::map<std::string, SettingSource, std::less<>> sources;
};

/// A variable's value, if it is set.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

/// The same; an empty value is none, and so is that of a variable without a name.
std::optional<std::string> look_up(const Lookup& lookup, std::string_view name);
/// This process's environment: the only use of getenv. Kolo's own threads may read and change the environment at the
/// same time. The program's threads may read it, too, but must not change it meanwhile.
Lookup process_environment();
/// Sets a variable for a scope, unless it is set. For libraries that can be configured only by the environment.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value);
  ~ScopedVariable();
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* const name_;
  char** before_ = nullptr;
  char** ours_ = nullptr;  ///< null: it was set already
};
/// Sets a variable, for good.
void set_variable(const char* name, const char* value);
/// All variables of this process's environment, as "name=value", with `changes` applied. For starting another program.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes);
/// The names of all variables of this process's environment.
std::vector<std::string> environment_names();

/// Whether this process has other rights than its caller: set-user-ID, set-group-ID, capabilities (AT_SECURE). The
/// caller must not choose the files that it writes: its `process_environment` is `without_files` of the environment.
bool is_privileged() noexcept;
/// Variables that name files (KOLO_TIMELINE, TMPDIR, ...) count as not set. A KOLO_STORE that is a file throws Error
/// (invalid_setting).
Lookup without_files(Lookup lookup);
/// The warning to log of those of these variables that count as not set; empty: none does.
std::string ignored_variables(const std::vector<std::string>& names);

/// Reads all settings. `overrides` are the program's options, by the variables' names. Throws Error(invalid_setting)
/// naming the variable, the value and the allowed range; also for an override of no known name.
Settings load_settings(const Lookup& lookup, const std::map<std::string, std::string>& overrides = {});

/// Warnings to log: a sentence for each name that begins with KOLO_ but is no variable of Kolo's, with the nearest one
/// that is, and one for all of Horovod's variables that Kolo does not read.
std::vector<std::string> unknown_variables(const std::vector<std::string>& names);

/// All settings as text, in the order of the table.
std::vector<Setting> report(const Settings& settings);

/// The shared settings, for `adopt_shared` on another rank.
std::string encode_shared(const Settings& settings);
/// A shared setting whose value differed from rank 0's.
struct DifferingSetting {
  std::string name;
  std::string here;
  std::string on_root;
};
/// Adopts rank 0's shared settings. Returns those that differed here, for a warning. Throws Error(invalid_setting) when
/// the text is not from the same release of Kolo; the settings are then unchanged.
std::vector<DifferingSetting> adopt_shared(Settings& settings, std::string_view encoded);

/// The text of docs/variables.md.
std::string settings_markdown();

}  // namespace kolo::base
