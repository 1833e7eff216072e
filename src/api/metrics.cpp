// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <kolo/info.hpp>

#include "api/info.hpp"
#include "base/quote.hpp"

namespace kolo {
namespace {

using M = detail::Counters;

enum class Type : std::uint8_t {
  counter,
  gauge,
  hidden,  ///< no quantity: only in the JSON
};

struct Row {
  std::string_view name;  ///< of the member, and in the JSON
  std::uint64_t M::*value;
  Type type;
  std::string_view prometheus;  ///< without "kolo_", and with the label where there is one
  std::string_view help;
};

// Rows of one name with different labels stand one behind another; the first one has the help.
// clang-format off
constexpr auto kRows = std::to_array<Row>({
    {"submissions", &M::submissions, Type::counter, "submissions_total", "Requests that were submitted."},
    {"signatures_sent", &M::signatures_sent, Type::counter, "signatures_sent_total",
     "Submissions that were described in full."},
    {"counts_published", &M::counts_published, Type::counter, "counts_published_total",
     "Submissions that were published as one count."},
    {"log_entries", &M::log_entries, Type::counter, "log_entries_total", "Entries read from the log."},
    {"log_bytes", &M::log_bytes, Type::counter, "log_bytes_total", "Bytes of these entries."},
    {"batches", &M::batches, Type::counter, "batches_total", "Batches that were begun."},
    {"planned_batches", &M::planned_batches, Type::counter, "planned_batches_total", "Batches of a plan."},
    {"batch_digest", &M::batch_digest, Type::hidden, "", ""},
    {"last_step_digest", &M::last_step_digest, Type::hidden, "", ""},
    {"last_step_batches", &M::last_step_batches, Type::gauge, "last_step_batches",
     "Batches of the step that ended last."},
    {"plans", &M::plans, Type::counter, "plans_total", "Plans that were learned."},
    {"plans_voided", &M::plans_voided, Type::counter, "plans_voided_total", "Plans that are no longer used."},
    {"tensors", &M::tensors, Type::counter, "tensors_total", "Tensors that were reduced, gathered or broadcast."},
    {"bytes", &M::bytes, Type::counter, "bytes_total", "Bytes of these tensors that this rank gave."},
    {"failures", &M::failures, Type::counter, "failures_total", "Requests that failed."},
    {"mismatches", &M::mismatches, Type::counter, "mismatches_total", "Requests about which ranks disagreed."},
    {"stalls", &M::stalls, Type::counter, "stalls_total", "Warnings of requests that waited for long."},
    {"control_frames_sent", &M::control_frames_sent, Type::counter, "control_frames_sent_total",
     "Control messages that this rank sent over TCP."},
    {"control_frames_received", &M::control_frames_received, Type::counter, "control_frames_received_total",
     "Control messages that this rank received over TCP."},
    {"control_bytes_sent", &M::control_bytes_sent, Type::counter, "control_sent_bytes_total",
     "Bytes of the control messages that were sent."},
    {"messages_posted", &M::messages_posted, Type::counter, "messages_posted_total",
     "Control messages to the leader of this rank's node."},
    {"sleeps", &M::sleeps, Type::counter, "sleeps_total", "How often the background thread went to sleep."},
    {"wakeups_sent", &M::wakeups_sent, Type::counter, "wakeups_sent_total", "Wake-ups of peers that slept."},
    {"driven_by_waiters", &M::driven_by_waiters, Type::counter, "driven_total{by=\"waiters\"}",
     "Requests by which thread completed them."},
    {"driven_by_background", &M::driven_by_background, Type::counter, "driven_total{by=\"background\"}", ""},
    {"pushes", &M::pushes, Type::counter, "pushes_total", "How often all ranks were asked to move their transports."},
    {"bytes_in_place", &M::bytes_in_place, Type::counter, "in_place_bytes_total",
     "Bytes that were reduced in a GradientArena, without a copy."},
    {"shortcuts", &M::shortcuts, Type::counter, "shortcuts_total", "Short calls that avoided the log."},
    {"messages_sent", &M::messages_sent, Type::counter, "messages_sent_total", "Messages to other ranks."},
    {"message_bytes_sent", &M::message_bytes_sent, Type::counter, "messages_sent_bytes_total", "Bytes of these."},
    {"messages_received", &M::messages_received, Type::counter, "messages_received_total",
     "Messages from other ranks."},
    {"message_bytes_received", &M::message_bytes_received, Type::counter, "messages_received_bytes_total",
     "Bytes of these."},
    {"device_buffer_bytes", &M::device_buffer_bytes, Type::gauge, "device_buffer_bytes", "Bytes of fusion buffers."},
    {"device_arena_bytes", &M::device_arena_bytes, Type::gauge, "device_arena_bytes", "Bytes of arenas on the GPU."},
    {"device_communicators", &M::device_communicators, Type::counter, "device_communicators_total",
     "Communicators that were made."},
    {"device_batches", &M::device_batches, Type::counter, "device_batches_total", "Batches on the GPU."},
    {"device_portions", &M::device_portions, Type::counter, "device_portions_total", "Portions of these."},
    {"device_bytes_packed", &M::device_bytes_packed, Type::counter, "device_packed_bytes_total",
     "Bytes that were copied into fusion buffers."},
    {"device_bytes_in_place", &M::device_bytes_in_place, Type::counter, "device_in_place_bytes_total",
     "Bytes that collectives read and wrote in place."},
    {"device_calls", &M::device_calls, Type::counter, "device_calls_total", "Collective calls on the GPU."},
    {"device_exchanges", &M::device_exchanges, Type::counter, "device_exchanges_total",
     "Exchanges between hosts of what each brings to collectives on the GPU."},
    {"steps", &M::steps, Type::counter, "steps_total", "Steps that have ended."},
    {"bytes_small", &M::bytes_small, Type::counter, "route_bytes_total{route=\"small\"}",
     "Bytes that this rank gave, by the route that they took."},
    {"bytes_flat", &M::bytes_flat, Type::counter, "route_bytes_total{route=\"flat\"}", ""},
    {"bytes_slots", &M::bytes_slots, Type::counter, "route_bytes_total{route=\"slots\"}", ""},
    {"bytes_between_nodes", &M::bytes_between_nodes, Type::counter, "route_bytes_total{route=\"between_nodes\"}", ""},
    {"bytes_alone", &M::bytes_alone, Type::counter, "route_bytes_total{route=\"alone\"}", ""},
    {"bytes_on_device", &M::bytes_on_device, Type::counter, "route_bytes_total{route=\"device\"}", ""},
    {"awaited_batches", &M::awaited_batches, Type::counter, "awaited_batches_total",
     "Batches for which other ranks waited for this one, which was the last to submit."},
});
// clang-format on

struct CollectiveRow {
  std::string_view name;
  CollectiveCount M::*value;
};

constexpr auto kCollectives = std::to_array<CollectiveRow>({{"allreduce", &M::allreduce},
                                                            {"reduce", &M::reduce},
                                                            {"broadcast", &M::broadcast},
                                                            {"allgather", &M::allgather},
                                                            {"gather", &M::gather},
                                                            {"scatter", &M::scatter},
                                                            {"alltoall", &M::alltoall},
                                                            {"reduce_scatter", &M::reduce_scatter},
                                                            {"barrier", &M::barrier}});

struct HistogramRow {
  std::string_view name;
  Histogram M::*value;
  bool is_duration;  ///< in nanoseconds; Prometheus has seconds
  std::string_view prometheus;
  std::string_view help;
};

// clang-format off
constexpr auto kHistograms = std::to_array<HistogramRow>({
    {"negotiation_ns", &M::negotiation_ns, true, "negotiation_seconds",
     "From when the engine took a request until all ranks had submitted it."},
    {"execution_ns", &M::execution_ns, true, "execution_seconds", "From the begin of a batch until it was done."},
    {"wait_ns", &M::wait_ns, true, "wait_seconds", "How long threads of the program slept inside Kolo."},
    {"batch_requests", &M::batch_requests, false, "batch_requests", "Requests of a batch."},
    {"batch_bytes", &M::batch_bytes, false, "batch_bytes", "Bytes of a batch that this rank gave."},
});
// clang-format on

static_assert(kRows.size() * sizeof(std::uint64_t) + kCollectives.size() * sizeof(CollectiveCount) +
                      kHistograms.size() * sizeof(Histogram) ==
                  sizeof(M),
              "every member has a row");

std::string list_of(const std::vector<std::uint64_t>& numbers) {
  std::string text;
  for (const std::uint64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

/// A whole number of nanoseconds as seconds, exactly, whatever the locale.
std::string seconds_of(std::uint64_t ns) {
  std::string rest = std::to_string(ns % 1'000'000'000);
  rest.insert(0, 9 - rest.size(), '0');
  rest.erase(rest.find_last_not_of('0') + 1);
  return std::to_string(ns / 1'000'000'000) + (rest.empty() ? "" : "." + rest);
}

std::string number_of(const HistogramRow& row, std::uint64_t value) {
  return row.is_duration ? seconds_of(value) : std::to_string(value);
}

void describe(std::string& text, std::string_view name, std::string_view type, std::string_view help) {
  const std::string whole = "kolo_" + std::string(name) + " ";
  text.append("# HELP ").append(whole).append(help).append("\n# TYPE ").append(whole).append(type).append("\n");
}

void add_row(std::string& text, const Row& row, const M& metrics, const std::string& label) {
  const std::size_t brace = std::min(row.prometheus.find('{'), row.prometheus.size());
  const std::string_view name = row.prometheus.substr(0, brace);
  if (!row.help.empty()) describe(text, name, row.type == Type::gauge ? "gauge" : "counter", row.help);
  const std::string_view own = row.prometheus.substr(brace);  // "{route="flat"}", or nothing
  text.append("kolo_").append(name).append("{").append(label);
  if (!own.empty()) text.append(",").append(own.substr(1, own.size() - 2));
  text.append("} ").append(std::to_string(metrics.*row.value)).append("\n");
}

void add_collectives(std::string& text, const M& metrics, const std::string& label) {
  const auto add = [&](std::string_view name, std::string_view help, const auto& value_of) {
    describe(text, name, "counter", help);
    for (const CollectiveRow& row : kCollectives) {
      text.append("kolo_").append(name).append("{").append(label).append(",collective=\"").append(row.name);
      text.append("\"} ").append(value_of(metrics.*row.value)).append("\n");
    }
  };
  using Count = CollectiveCount;
  add("collective_calls_total", "Calls that are over, by collective.",
      [](const Count& its) { return std::to_string(its.calls); });
  add("collective_bytes_total", "Bytes that this rank gave, by collective.",
      [](const Count& its) { return std::to_string(its.bytes); });
  add("collective_seconds_total", "How long batches ran, by collective.",
      [](const Count& its) { return seconds_of(its.ns); });
}

void add_histogram(std::string& text, const HistogramRow& row, const M& metrics, const std::string& label) {
  describe(text, row.prometheus, "histogram", row.help);
  const Histogram& its = metrics.*row.value;
  const std::string name = "kolo_" + std::string(row.prometheus);
  std::uint64_t so_far = 0;
  for (std::size_t i = 0; i < its.counts.size(); ++i) {
    so_far += its.counts[i];
    const std::string bound = i < its.bounds.size() ? number_of(row, its.bounds[i]) : "+Inf";
    text.append(name).append("_bucket{").append(label).append(",le=\"").append(bound).append("\"} ");
    text.append(std::to_string(so_far)).append("\n");
  }
  text += name + "_sum{" + label + "} " + number_of(row, its.sum) + "\n";
  text += name + "_count{" + label + "} " + std::to_string(its.count) + "\n";
}

}  // namespace

std::string metrics_json(const Group& group) {
  const M metrics = detail::counters(group);
  std::string json;
  const auto add = [&json](std::string_view name, const std::string& value) {
    json += (json.empty() ? "{" : ", ") + base::quoted_json(name) + ": " + value;
  };
  for (const Row& row : kRows) add(row.name, std::to_string(metrics.*row.value));
  for (const CollectiveRow& row : kCollectives) {
    const CollectiveCount& its = metrics.*row.value;
    add(row.name, "{\"calls\": " + std::to_string(its.calls) + ", \"bytes\": " + std::to_string(its.bytes) +
                      ", \"ns\": " + std::to_string(its.ns) + "}");
  }
  for (const HistogramRow& row : kHistograms) {
    const Histogram& its = metrics.*row.value;
    add(row.name, "{\"bounds\": " + list_of(its.bounds) + ", \"counts\": " + list_of(its.counts) +
                      ", \"count\": " + std::to_string(its.count) + ", \"sum\": " + std::to_string(its.sum) + "}");
  }
  return json + "}";
}

std::string api::prometheus_of(const M& metrics, int rank) {
  const std::string label = "rank=\"" + std::to_string(rank) + "\"";
  std::string text;
  for (const Row& row : kRows) {
    if (row.type != Type::hidden) add_row(text, row, metrics, label);
  }
  add_collectives(text, metrics, label);
  for (const HistogramRow& row : kHistograms) add_histogram(text, row, metrics, label);
  return text;
}

}  // namespace kolo
