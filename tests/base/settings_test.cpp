// SPDX-License-Identifier: Apache-2.0
#include "base/settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include <unistd.h>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "base/settings_table.hpp"

namespace kolo::base {
namespace {

using Values = std::map<std::string, std::string>;

Lookup environment_of(const Values& values) {
  return [values](const char* name) -> std::optional<std::string> {
    const auto value = values.find(name);
    if (value == values.end()) return std::nullopt;
    return value->second;
  };
}

Settings load(const Values& environment, const Values& options = {}) {
  return load_settings(environment_of(environment), options);
}

std::string error_of(const Values& environment, const Values& options = {}) {
  try {
    load(environment, options);
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_setting);
    return error.status().message();
  }
}

Setting report_of(const Settings& settings, const std::string& name) {
  for (const Setting& setting : report(settings)) {
    if (setting.name == name) return setting;
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

TEST(Settings, DefaultsWithoutAnEnvironment) {
  const Settings settings = load({});
  EXPECT_TRUE(settings.sources.empty());
  EXPECT_EQ(settings.timeout_s, 600);
  EXPECT_EQ(settings.fusion_threshold_bytes, 16 << 20);
  EXPECT_EQ(settings.slot_bytes, 0);
  EXPECT_EQ(settings.spin_us, -1);
  EXPECT_TRUE(settings.plan);
  EXPECT_EQ(settings.interface, "");
  for (const Setting& setting : report(settings)) {
    EXPECT_EQ(setting.value, setting.default_value) << setting.name;
    EXPECT_EQ(setting.source, "default") << setting.name;
  }
}

TEST(Settings, EveryVariableReachesItsOwnField) {
  const Values environment{{"KOLO_TIMEOUT_S", "1.5"},
                           {"KOLO_STALL_WARNING_S", "2"},
                           {"KOLO_CONNECT_TIMEOUT_S", "3"},
                           {"KOLO_LATCH_TIMEOUT_S", "4"},
                           {"KOLO_ALONE", "1"},
                           {"KOLO_STORE", "file:///job"},
                           {"KOLO_RANK", "14"},
                           {"KOLO_SIZE", "15"},
                           {"KOLO_JOB_KEY", "secret"},
                           {"KOLO_KEEPER", "local:name/word"},
                           {"KOLO_MPI", "libmpi.so.40"},
                           {"KOLO_LOG_LEVEL", "debug"},
                           {"KOLO_PRINT_SETTINGS", "yes"},
                           {"KOLO_FUSION_THRESHOLD", "0"},
                           {"KOLO_OPEN_BATCHES", "5"},
                           {"KOLO_CACHE_CAPACITY", "64"},
                           {"KOLO_PLAN", "off"},
                           {"KOLO_RANKS_PER_NODE", "6"},
                           {"KOLO_TREE_FANOUT", "7"},
                           {"KOLO_INTERFACE", "eth0"},
                           {"KOLO_TRANSPORT", "UCX"},
                           {"KOLO_SLOT_BYTES", "4K"},
                           {"KOLO_SLOTS", "9"},
                           {"KOLO_MESSAGE_RING", "8K"},
                           {"KOLO_LOG_RING", "16K"},
                           {"KOLO_MAILBOX", "10"},
                           {"KOLO_GROUPS", "13"},
                           {"KOLO_SPIN_US", "11"},
                           {"KOLO_ROUTES", "*:none=small"},
                           {"KOLO_CHUNK_BYTES", "3K"},
                           {"KOLO_PAST_CACHE_BYTES", "5M"},
                           {"KOLO_STEP_BYTES", "7K"},
                           {"KOLO_GPU_BACKEND", "Staged"},
                           {"KOLO_GPU_BUFFERS", "12"},
                           {"KOLO_GPU_DIRECT_BYTES", "32K"},
                           {"KOLO_SHARE_DEVICE", "1"},
                           {"KOLO_GPU_MEMORY_LIMIT", "14M"},
                           {"KOLO_LOG_PLACEMENT", "1"},
                           {"KOLO_RECORDER", "/records"},
                           {"KOLO_TIMELINE", "run.json"},
                           {"KOLO_CHECK_NAN", "1"},
                           {"KOLO_CHECK_REPLICAS", "100,-embedding*"},
                           {"KOLO_METRICS_FILE", "kolo.prom"},
                           {"KOLO_METRICS_INTERVAL_S", "5"},
                           {"KOLO_AS_GLOO", "yes"}};
  const Settings settings = load(environment);
  EXPECT_EQ(settings.timeout_s, 1.5);
  EXPECT_EQ(settings.stall_warning_s, 2);
  EXPECT_EQ(settings.connect_timeout_s, 3);
  EXPECT_EQ(settings.latch_timeout_s, 4);
  EXPECT_TRUE(settings.alone);
  EXPECT_EQ(settings.store, "file:///job");
  EXPECT_EQ(settings.rank, 14);
  EXPECT_EQ(settings.size, 15);
  EXPECT_EQ(settings.job_key, "secret");
  EXPECT_EQ(settings.keeper, "local:name/word");
  EXPECT_EQ(settings.mpi, "libmpi.so.40");
  EXPECT_EQ(report_of(settings, "KOLO_JOB_KEY").value, "(not shown)");
  EXPECT_EQ(settings.log_level, LogLevel::debug);
  EXPECT_TRUE(settings.print_settings);
  EXPECT_EQ(settings.fusion_threshold_bytes, 0);
  EXPECT_EQ(settings.open_batches, 5);
  EXPECT_EQ(settings.cache_capacity, 64);
  EXPECT_FALSE(settings.plan);
  EXPECT_EQ(settings.ranks_per_node, 6);
  EXPECT_EQ(settings.tree_fanout, 7);
  EXPECT_EQ(settings.interface, "eth0");
  EXPECT_EQ(settings.transport, Transport::ucx);
  EXPECT_EQ(settings.slot_bytes, 4096);
  EXPECT_EQ(settings.slots, 9);
  EXPECT_EQ(settings.routes, "*:none=small");
  EXPECT_EQ(settings.chunk_bytes, 3072);
  EXPECT_EQ(settings.past_cache_bytes, 5 << 20);
  EXPECT_EQ(settings.step_bytes, 7168);
  EXPECT_EQ(settings.message_ring_bytes, 8192);
  EXPECT_EQ(settings.log_ring_bytes, 16384);
  EXPECT_EQ(settings.mailbox_capacity, 10);
  EXPECT_EQ(settings.groups, 13);
  EXPECT_EQ(settings.spin_us, 11);
  EXPECT_EQ(settings.gpu_backend, GpuBackend::staged);
  EXPECT_EQ(settings.gpu_buffers, 12);
  EXPECT_EQ(settings.gpu_direct_bytes, 32768);
  EXPECT_TRUE(settings.share_device);
  EXPECT_EQ(settings.gpu_memory_limit_bytes, 14 << 20);
  EXPECT_TRUE(settings.log_placement);
  EXPECT_EQ(settings.recorder, "/records");
  EXPECT_EQ(settings.timeline, "run.json");
  EXPECT_TRUE(settings.check_nan);
  EXPECT_EQ(settings.check_replicas, (ReplicaSetting{100, {"embedding*"}}));
  EXPECT_EQ(settings.metrics_file, "kolo.prom");
  EXPECT_EQ(settings.metrics_interval_s, 5);
  EXPECT_TRUE(settings.as_gloo);
  EXPECT_EQ(report(settings).size(), environment.size());
  for (const Setting& setting : report(settings)) {
    EXPECT_EQ(setting.source, "environment") << setting.name;
    EXPECT_NE(setting.value, setting.default_value) << setting.name;
  }
}

TEST(Settings, TheStrongerSourceWins) {
  Values environment{{"HOROVOD_FUSION_THRESHOLD", "1048576"}};
  Setting setting = report_of(load(environment), "KOLO_FUSION_THRESHOLD");
  EXPECT_EQ(setting.value, "1M");
  EXPECT_EQ(setting.source, "HOROVOD_FUSION_THRESHOLD");
  environment["KOLO_FUSION_THRESHOLD"] = "2M";
  setting = report_of(load(environment), "KOLO_FUSION_THRESHOLD");
  EXPECT_EQ(setting.value, "2M");
  EXPECT_EQ(setting.source, "environment");
  setting = report_of(load(environment, {{"KOLO_FUSION_THRESHOLD", "3M"}}), "KOLO_FUSION_THRESHOLD");
  EXPECT_EQ(setting.value, "3M");
  EXPECT_EQ(setting.source, "option");
}

TEST(Settings, AnEmptyValueIsNotSet) {
  const Settings settings =
      load({{"KOLO_TIMEOUT_S", ""}, {"KOLO_STALL_WARNING_S", ""}, {"HOROVOD_STALL_CHECK_TIME_SECONDS", "30"}});
  EXPECT_EQ(settings.timeout_s, 600);
  EXPECT_EQ(settings.stall_warning_s, 30);
}

TEST(Settings, Bytes) {
  const auto slot = [](const std::string& text) { return load({{"KOLO_SLOT_BYTES", text}}).slot_bytes; };
  EXPECT_EQ(slot("4096"), 4096);
  EXPECT_EQ(slot("4K"), 4096);
  EXPECT_EQ(slot("4k"), 4096);
  EXPECT_EQ(slot("4KB"), 4096);
  EXPECT_EQ(slot("4KiB"), 4096);
  EXPECT_EQ(slot("16M"), 16 << 20);
  EXPECT_EQ(load({{"KOLO_MESSAGE_RING", "1G"}}).message_ring_bytes, 1 << 30);
  EXPECT_EQ(load({{"KOLO_FUSION_THRESHOLD", "1T"}}).fusion_threshold_bytes, std::int64_t{1} << 40);
  for (const std::string bad :
       {"4Q", "K", "4 K", "4KK", "-4K", "4.5K", "0x10", "9223372036854775807K", "99999999999999999999", "17M"}) {
    EXPECT_EQ(error_of({{"KOLO_SLOT_BYTES", bad}}),
              "KOLO_SLOT_BYTES is \"" + bad +
                  "\" (environment); expected bytes, such as 65536 or 64K, in the range 0 .. 16M");
  }
}

TEST(Settings, BadValuesNameVariableValueAndRange) {
  EXPECT_EQ(error_of({{"KOLO_SLOTS", "-1"}}),
            "KOLO_SLOTS is \"-1\" (environment); expected an integer in the range 0 .. 64");
  EXPECT_EQ(error_of({{"KOLO_SLOTS", "65"}}),
            "KOLO_SLOTS is \"65\" (environment); expected an integer in the range 0 .. 64");
  EXPECT_EQ(error_of({{"KOLO_SPIN_US", "3us"}}),
            "KOLO_SPIN_US is \"3us\" (environment); expected an integer in the range -1 .. 1000000000");
  EXPECT_EQ(error_of({}, {{"KOLO_PLAN", "maybe"}}),
            "KOLO_PLAN is \"maybe\" (option); expected true or false (also 1 or 0, yes or no, on or off)");
  EXPECT_EQ(error_of({{"HOROVOD_LOG_LEVEL", "loud"}}),
            "HOROVOD_LOG_LEVEL is \"loud\" (alias); expected one of trace, debug, info, warning, error, off");
  for (const std::string bad : {"0", "soon", "-1", "nan", "inf", "1e10", "1s"}) {
    EXPECT_EQ(error_of({{"KOLO_TIMEOUT_S", bad}}), "KOLO_TIMEOUT_S is \"" + bad +
                                                       "\" (environment); expected seconds in the range "
                                                       "0.001 .. 1000000000");
  }
}

TEST(Settings, WhenReplicasAreComparedAndWhich) {
  const auto replicas = [](const std::string& text) { return load({{"KOLO_CHECK_REPLICAS", text}}).check_replicas; };
  EXPECT_EQ(load({}).check_replicas, (ReplicaSetting{0, {}}));
  EXPECT_EQ(replicas("first"), (ReplicaSetting{0, {}}));
  EXPECT_EQ(replicas("off"), (ReplicaSetting{-1, {}}));
  EXPECT_EQ(replicas("0"), (ReplicaSetting{-1, {}}));
  EXPECT_EQ(replicas("100"), (ReplicaSetting{100, {}}));
  EXPECT_EQ(replicas("first,100"), (ReplicaSetting{100, {}}));
  EXPECT_EQ(replicas("-embedding*"), (ReplicaSetting{0, {"embedding*"}}));
  EXPECT_EQ(replicas("first,-*.expert.*,-a b"), (ReplicaSetting{0, {"*.expert.*", "a b"}}));
  EXPECT_EQ(replicas("-a,7,--b"), (ReplicaSetting{7, {"a", "-b"}}));
  for (const std::string text : {"off", "first", "100", "first,-*.expert.*", "100,-embedding*,-b"}) {
    EXPECT_EQ(report_of(load({{"KOLO_CHECK_REPLICAS", text}}), "KOLO_CHECK_REPLICAS").value, text);
  }
  for (const std::string bad : {"never", "-", "first,", ",first", "1,,2", "5,6", "off,-a", "1000000001", "1.5",
                                " first", "first,-a\nKOLO_GROUPS=1"}) {
    EXPECT_EQ(
        error_of({{"KOLO_CHECK_REPLICAS", bad}}),
        "KOLO_CHECK_REPLICAS is \"" + bad +
            "\" (environment); expected words with commas between them: off; or first or a number of steps, from 1 "
            "to 1000000000, and -PATTERN for names to leave out");
  }
}

TEST(Settings, NamesThatAPatternLeavesOut) {
  const auto compares = [](const std::string& pattern, std::string_view name) {
    return ReplicaSetting{0, {"none of these", pattern}}.compares(name);
  };
  EXPECT_TRUE(ReplicaSetting().compares("layer.weight"));
  EXPECT_FALSE(compares("layer.weight", "layer.weight"));
  EXPECT_TRUE(compares("layer", "layer.weight"));
  EXPECT_TRUE(compares("weight", "layer.weight"));
  EXPECT_FALSE(compares("*", ""));
  EXPECT_FALSE(compares("layer*", "layer"));
  EXPECT_FALSE(compares("*.expert.*", "3.expert.w"));
  EXPECT_TRUE(compares("*.expert.*", "expert.w"));
  EXPECT_FALSE(compares("a*b*a", "aabbabba"));
  EXPECT_TRUE(compares("a*b*a", "aabbabb"));
  EXPECT_FALSE(compares("*ab", "aab"));
  EXPECT_TRUE(compares("a?c", "abc"));
}

TEST(Settings, AnOptionOfNoKnownName) {
  EXPECT_EQ(error_of({}, {{"KOLO_TIMEOUT", "3"}}),
            "KOLO_TIMEOUT (option) is not a setting; did you mean KOLO_TIMEOUT_S?");
}

TEST(Settings, BooleansAndLevelsInAnyCase) {
  for (const std::string yes : {"1", "true", "TRUE", "Yes", "on"})
    EXPECT_TRUE(load({{"KOLO_PRINT_SETTINGS", yes}}).print_settings);
  for (const std::string no : {"0", "false", "False", "no", "OFF"}) EXPECT_FALSE(load({{"KOLO_PLAN", no}}).plan);
  EXPECT_EQ(load({{"KOLO_LOG_LEVEL", "TRACE"}}).log_level, LogLevel::trace);
  EXPECT_EQ(load({{"HOROVOD_LOG_LEVEL", "fatal"}}).log_level, LogLevel::off);
}

TEST(Settings, UnknownVariables) {
  const auto sentences = unknown_variables({"PATH", "KOLO_SLOTS", "HOROVOD_CYCLE_TIME", "KOLO_FUSION_TRESHOLD",
                                            "HOROVOD_LOG_LEVEL", "HOROVOD_AUTOTUNE", "MY_KOLO_X"});
  ASSERT_EQ(sentences.size(), 2U);
  EXPECT_EQ(sentences[0],
            "KOLO_FUSION_TRESHOLD is set, but is no variable of Kolo's; did you mean KOLO_FUSION_THRESHOLD?");
  EXPECT_EQ(sentences[1],
            "these variables of Horovod's are set, but Kolo does not read them: HOROVOD_CYCLE_TIME, HOROVOD_AUTOTUNE; "
            "docs/variables.md lists those that it reads");
}

TEST(Settings, RankZerosSharedValuesAreTakenOver) {
  const Settings rank0 = load({{"KOLO_SLOTS", "5"}, {"KOLO_STALL_WARNING_S", "0.1"}, {"KOLO_TIMEOUT_S", "7"}});
  Settings mine = load({{"KOLO_SLOTS", "16"}, {"KOLO_TIMEOUT_S", "9"}, {"KOLO_STALL_WARNING_S", "0.1"}});
  const std::vector<DifferingSetting> differing = adopt_shared(mine, encode_shared(rank0));
  ASSERT_EQ(differing.size(), 1U);
  EXPECT_EQ(differing[0].name, "KOLO_SLOTS");
  EXPECT_EQ(differing[0].here, "16");
  EXPECT_EQ(differing[0].on_root, "5");
  EXPECT_EQ(mine.slots, 5);
  EXPECT_EQ(mine.stall_warning_s, 0.1);
  EXPECT_EQ(mine.timeout_s, 9) << "not shared";
  EXPECT_EQ(report_of(mine, "KOLO_SLOTS").source, "rank 0");
  EXPECT_EQ(report_of(mine, "KOLO_STALL_WARNING_S").source, "environment");
  EXPECT_TRUE(adopt_shared(mine, encode_shared(rank0)).empty());
}

TEST(Settings, WhatAnotherReleaseSendsIsRefusedWhole) {
  const std::string good = encode_shared(load({{"KOLO_SLOTS", "5"}}));
  const std::size_t second_line = good.find('\n') + 1;
  std::string bad_value = good;
  bad_value.replace(bad_value.find("KOLO_SLOTS=5"), 12, "KOLO_SLOTS=65");
  for (const std::string& bad :
       {std::string(), good.substr(second_line), good + "KOLO_X=1\n", bad_value, good.substr(0, good.size() - 1)}) {
    Settings mine = load({});
    try {
      adopt_shared(mine, bad);
      ADD_FAILURE() << "accepted " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_setting);
      EXPECT_NE(error.status().message().find("all ranks must run the same release of Kolo"), std::string::npos);
    }
    EXPECT_EQ(mine.slots, 0);
    EXPECT_TRUE(mine.sources.empty());
  }
}

TEST(SettingsTable, IsSound) {
  std::set<std::string_view> names;
  for (const SettingRow& row : settings_table()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " twice";
    EXPECT_EQ(row.name.rfind("KOLO_", 0), 0U) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    Settings settings;
    EXPECT_TRUE(set_from_text(row, settings, value_text(row, settings))) << row.name << "'s default is out of range";
  }
}

TEST(Settings, SourcesHaveNames) {
  EXPECT_EQ(to_string(SettingSource::default_value), "default");
  EXPECT_EQ(to_string(SettingSource::rank0), "rank 0");
  EXPECT_EQ(to_string(static_cast<SettingSource>(9)), "unknown");
}

TEST(Environment, OfThisProcess) {
  const Lookup lookup = process_environment();
  ASSERT_EQ(::setenv("KOLO_BASE_TEST", "a=b", 1), 0);
  EXPECT_EQ(lookup("KOLO_BASE_TEST"), "a=b");
  const auto names = environment_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "KOLO_BASE_TEST"), 1);
  ASSERT_EQ(::unsetenv("KOLO_BASE_TEST"), 0);
  EXPECT_EQ(lookup("KOLO_BASE_TEST"), std::nullopt);
}

TEST(Environment, APrivilegedProgramWritesToNoFileThatItsCallerHasNamed) {
  const std::map<std::string, std::string> all{{"KOLO_TIMELINE", "/etc/passwd"},
                                               {"HOROVOD_TIMELINE", "/etc/passwd"},
                                               {"KOLO_METRICS_FILE", "/etc/passwd"},
                                               {"KOLO_RECORDER", "/etc"},
                                               {"XDG_RUNTIME_DIR", "/etc"},
                                               {"TMPDIR", "/etc"},
                                               {"KOLO_TIMEOUT_S", "3"},
                                               {"RANK", "1"},
                                               {"KOLO_STORE", "tcp://host:1"}};
  const auto lookup_in = [](const std::map<std::string, std::string>& variables) {
    return without_files([variables](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  std::vector<std::string> names;
  std::vector<std::string> read;
  for (const auto& [name, value] : all) {
    names.push_back(name);
    if (const auto said = lookup_in(all)(name.c_str())) read.push_back(name + "=" + *said);
  }
  EXPECT_EQ(read, (std::vector<std::string>{"KOLO_STORE=tcp://host:1", "KOLO_TIMEOUT_S=3", "RANK=1"}));
  EXPECT_EQ(
      ignored_variables(names),
      "this program has other rights than its caller (set-user-ID, set-group-ID or capabilities), and so does not "
      "write to files that the environment names; not read: HOROVOD_TIMELINE, KOLO_METRICS_FILE, KOLO_RECORDER, "
      "KOLO_TIMELINE, TMPDIR, XDG_RUNTIME_DIR");
  EXPECT_EQ(ignored_variables({"RANK", "KOLO_TIMEOUT_S"}), "");
  try {
    static_cast<void>(load_settings(lookup_in({{"KOLO_STORE", "file:///etc/shadow"}})));
    ADD_FAILURE() << "a file of the caller's";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_setting);
    EXPECT_EQ(error.status().message(),
              "KOLO_STORE is \"file:///etc/shadow\", but this program has other rights than its caller, who has chosen "
              "that file: expected tcp://host:port, or a place that the program chooses (Options::with_store)");
  }
  EXPECT_FALSE(is_privileged());
}

TEST(SettingsMarkdown, IsWhatIsCommitted) {
  const std::filesystem::path page = KOLO_SOURCE_DIR "/docs/variables.md";
  std::ifstream stream(page);
  ASSERT_TRUE(stream) << page;
  const std::string committed{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (committed == settings_markdown()) return;
  const auto current = std::filesystem::path(testing::TempDir()) / "variables.md";
  std::ofstream(current) << settings_markdown();
  FAIL() << "docs/variables.md is not what the table says; the current page is " << current << ", copy it there";
}

TEST(Environment, AChangeLeavesWhatOtherThreadsMayBeReadingAsItIs) {
  char** const before = environ;
  const std::vector<char*> entries(before, before + environment_names().size() + 1);
  {
    const ScopedVariable one("KOLO_TEST_ONE", "1");
    const ScopedVariable two("KOLO_TEST_TWO", "2");
    EXPECT_EQ(process_environment()("KOLO_TEST_ONE"), "1");
    EXPECT_EQ(process_environment()("KOLO_TEST_TWO"), "2");
    const ScopedVariable is_set("KOLO_TEST_ONE", "another");
    EXPECT_EQ(process_environment()("KOLO_TEST_ONE"), "1");
    EXPECT_EQ(std::vector<char*>(before, before + entries.size()), entries);
  }
  EXPECT_EQ(environ, before);
  set_variable("KOLO_TEST_ONE", "1");
  set_variable("KOLO_TEST_ONE", "again");
  EXPECT_EQ(process_environment()("KOLO_TEST_ONE"), "again");
  EXPECT_EQ(environment_names().size(), entries.size());
  EXPECT_EQ(std::vector<char*>(before, before + entries.size()), entries);
  ::unsetenv("KOLO_TEST_ONE");
}

TEST(Environment, AVariableOfAScopeGoesAlsoWhenTheEnvironmentHasChangedMeanwhile) {
  {
    const ScopedVariable one("KOLO_TEST_ONE", "1");
    ::setenv("KOLO_TEST_TWO", "2", 1);
  }
  EXPECT_EQ(process_environment()("KOLO_TEST_ONE"), std::nullopt);
  EXPECT_EQ(process_environment()("KOLO_TEST_TWO"), "2");
  ::unsetenv("KOLO_TEST_TWO");
}

}  // namespace
}  // namespace kolo::base
