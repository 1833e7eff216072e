// SPDX-License-Identifier: Apache-2.0
//
// Lists, as JSON.
#include <string>
#include <utility>
#include <vector>

#include <kolo/devices.hpp>
#include <kolo/info.hpp>
#include <kolo/kolo.h>
#include <kolo/looking.hpp>

#include "base/quote.hpp"
#include "c/arguments.hpp"
#include "c/guard.hpp"

namespace kolo::c {
namespace {

/// Names, and values that are JSON already.
using Fields = std::vector<std::pair<const char*, std::string>>;

std::string object(const Fields& fields) {
  std::string json;
  for (const auto& [name, value] : fields) json += (json.empty() ? "{\"" : ", \"") + std::string(name) + "\": " + value;
  return json + '}';
}

template <class List, class FieldsOf>
std::string array(const List& list, const FieldsOf& fields_of) {
  std::string json = "[";
  for (const auto& one : list) json += (json.size() == 1 ? "\n" : ",\n") + object(fields_of(one));
  return json + ']';
}

Fields fields_of_setting(const Setting& setting) {
  return {{"name", base::quoted_json(setting.name)},
          {"value", base::quoted_json(setting.value)},
          {"default", base::quoted_json(setting.default_value)},
          {"source", base::quoted_json(setting.source)},
          {"range", base::quoted_json(setting.range)},
          {"help", base::quoted_json(setting.help)}};
}

Fields fields_of_device(const DeviceInfo& device) {
  return {{"machine_number", std::to_string(device.machine_number)},
          {"process_number", device.process_number ? std::to_string(*device.process_number) : "null"},
          {"name", base::quoted_json(device.name)},
          {"uuid", base::quoted_json(device.uuid)},
          {"memory_bytes", std::to_string(device.memory_bytes)},
          {"free_bytes", std::to_string(device.free_bytes)},
          {"driver", base::quoted_json(device.driver)}};
}

}  // namespace
}  // namespace kolo::c

using namespace kolo::c;

kolo_status kolo_settings(const kolo_group* group, kolo_result** result) {
  return guarded([&] {
    const kolo::Group& its = given_group(group);
    return give_bytes(result, [&] { return std::vector{array(kolo::settings(its), fields_of_setting)}; });
  });
}

kolo_status kolo_devices(kolo_result** result) {
  return guarded(
      [&] { return give_bytes(result, [] { return std::vector{array(kolo::devices(), fields_of_device)}; }); });
}

kolo_status kolo_explain_job(const char* directory, kolo_result** result) {
  return guarded([&] {
    return give_bytes(
        result, [&] { return std::vector{kolo::to_json(kolo::explain_job(directory == nullptr ? "" : directory))}; });
  });
}
