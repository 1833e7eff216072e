// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include <kolo/detail/names.hpp>

#include "base/quote.hpp"
#include "core/collectives.hpp"
#include "core/device_span.hpp"
#include "timeline/timeline.hpp"

namespace kolo::timeline {
namespace {

using recorder::Kind;
using recorder::Record;

constexpr int kProgramRow = 1;
constexpr int kUnnamedRow = 2;
constexpr int kMessagesRow = 3;
constexpr int kFirstDeviceRow = 4;  // by core::DeviceSpan::Row
constexpr std::array<std::string_view, 5> kDeviceRows{"device: pack", "device: nccl", "device: nccl 2",
                                                      "device: unpack", "device: staged"};
constexpr std::array<std::string_view, 4> kDeviceWork{"pack", "nccl", "staged", "unpack"};  // by core::DeviceSpan::What
constexpr int kFirstTensorRow = 10;
constexpr const char* kMixedCalls = "unnamed calls";  // of several collectives, or made before the timeline began

using base::quoted_json;

std::string field(std::string_view name, std::uint64_t number) {
  return quoted_json(name) + ":" + std::to_string(number);
}

std::string kind_text(std::uint8_t kind) {
  return std::string(core::to_string(static_cast<core::CollectiveKind>(kind)));
}

std::string microseconds(std::uint64_t ns) {
  std::string rest = std::to_string(ns % 1000);
  rest.insert(0, 3 - rest.size(), '0');
  return std::to_string(ns / 1000) + "." + rest;
}

/// "flat", or "flat, slots".
std::string route_text(std::uint8_t routes) {
  constexpr std::array<std::pair<recorder::BatchRoutes, std::string_view>, 5> kNames{
      {{recorder::kAlone, "alone"},
       {recorder::kFlat, "flat"},
       {recorder::kSlots, "slots"},
       {recorder::kBetweenNodes, "between nodes"},
       {recorder::kDevice, "device"}}};
  std::string text;
  for (const auto& [route, name] : kNames) {
    if ((routes & route) != 0) text.append(text.empty() ? "" : ", ").append(name);
  }
  return text;
}

}  // namespace

std::string Writer::metadata(std::string_view what, const std::string& arguments, int row) const {
  return "{\"ph\":\"M\",\"name\":" + quoted_json(what) + ",\"pid\":" + std::to_string(place_.rank) +
         (row == 0 ? "" : ",\"tid\":" + std::to_string(row)) + ",\"args\":{" + arguments + "}}";
}

std::string Writer::sort_index() const {
  return metadata("process_sort_index", field("sort_index", static_cast<std::uint64_t>(place_.rank)));
}

std::string Writer::head() const {
  const std::string name = "rank " + std::to_string(place_.rank) + " on " + place_.host;
  return metadata("process_name", "\"name\":" + quoted_json(name)) + ",\n" + sort_index() + ",\n" +
         metadata("process_labels", "\"labels\":" + quoted_json("clock: " + place_.clock)) + ",\n" +
         row_name(kProgramRow, "program") + row_name(kUnnamedRow, "unnamed") + row_name(kMessagesRow, "messages");
}

std::string Writer::tail() const { return sort_index() + "\n]\n"; }

std::string Writer::name_of(std::uint64_t id) const {
  const auto found = names_.find(id);
  return found == names_.end() ? "tensor " + std::to_string(id) : found->second;
}

int Writer::row_of(std::uint32_t set, std::uint64_t id, std::string& lines) {
  const auto [row, is_new] = rows_.try_emplace({set, id}, kFirstTensorRow + static_cast<int>(rows_.size()));
  if (is_new) {
    const std::string name = name_of(id) + (set == 0 ? "" : " (group " + std::to_string(set) + ")");
    lines += row_name(row->second, name);
  }
  return row->second;
}

std::string Writer::row_name(int row, std::string_view name) const {
  return metadata("thread_name", "\"name\":" + quoted_json(name), row) + ",\n";
}

std::string Writer::begin_of(std::string_view phase, std::string_view name, int row, std::uint64_t time) const {
  const auto shifted = static_cast<std::uint64_t>(static_cast<std::int64_t>(time) + place_.shift_ns);
  return "{\"ph\":" + quoted_json(phase) + ",\"name\":" + quoted_json(name) +
         ",\"pid\":" + std::to_string(place_.rank) + ",\"tid\":" + std::to_string(row) +
         ",\"ts\":" + microseconds(shifted);
}

void Writer::span(std::string& lines, std::string_view name, int row, std::uint64_t from, std::uint64_t to,
                  const std::string& arguments) const {
  lines += begin_of("X", name, row, from) + ",\"dur\":" + microseconds(std::max(to, from) - from) + ",\"args\":{" +
           arguments + "}},\n";
}

void Writer::mark(std::string& lines, std::string_view name, std::uint64_t time) const {
  lines += begin_of("i", name, kProgramRow, time) + ",\"s\":\"p\"},\n";
}

void Writer::begin_batch(const Record& record) {
  Batch& batch = batches_[{record.set, record.round}];
  batch.time = record.time;
  batch.members = record.amount;
  batch.flags = record.detail;
  batch.last = record.last == place_.rank ? -1 : record.last;
  if ((record.detail & recorder::kUnnamed) != 0) {
    for (std::uint32_t i = 0; i < record.amount; ++i) take_call(batch, {record.set, record.id + i});
  } else {
    batch.names.push_back(record.id);
  }
}

/// A call without a name is in the batch.
void Writer::take_call(Batch& batch, const InSet& number) {
  const auto call = calls_.find(number);
  if (call == calls_.end()) return;  // it was made before the timeline began
  const std::string kind = kind_text(call->second.kind);
  batch.calls = batch.calls.empty() || batch.calls == kind ? kind : kMixedCalls;
  batch.bytes += call->second.bytes;
  calls_.erase(call);
}

/// All ranks have submitted this member of a batch that has begun.
void Writer::agree(const Record& record, std::string& lines) {
  const InSet name{record.set, record.id};
  const auto found = requests_.find(name);
  if (found == requests_.end()) return;
  const Request& request = found->second;
  const int last = batches_[{record.set, record.round}].last;
  span(lines, last < 0 ? std::string("negotiate") : "waiting for rank " + std::to_string(last),
       row_of(record.set, record.id, lines), request.time, record.time,
       field("round", request.round) + "," + field("bytes", request.bytes));
  agreed_[name] = request;
  requests_.erase(found);
}

void Writer::end_batch(const Record& record, std::string& lines) {
  const auto found = batches_.find({record.set, record.round});
  if (found == batches_.end()) return;
  const Batch& batch = found->second;
  const std::string about = field("batch", record.round) + "," + field("requests", batch.members) +
                            ((batch.flags & recorder::kPlanned) != 0 ? ",\"planned\":true" : "") +
                            ((batch.flags & recorder::kOnDevice) != 0 ? ",\"device\":true" : "") +
                            (record.detail != 0 ? ",\"route\":" + quoted_json(route_text(record.detail)) : "");
  if (batch.names.empty()) {
    span(lines, batch.calls.empty() ? kMixedCalls : batch.calls, kUnnamedRow, batch.time, record.time,
         about + (batch.last < 0 ? "" : "," + field("waited_for_rank", static_cast<std::uint64_t>(batch.last))) + "," +
             field("bytes", batch.bytes));
  }
  for (const std::uint64_t id : batch.names) {
    const auto request = agreed_.find({record.set, id});
    if (request == agreed_.end()) continue;  // it was submitted before the timeline began
    span(lines, kind_text(request->second.kind), row_of(record.set, id, lines), batch.time, record.time,
         about + "," + field("bytes", request->second.bytes));
    agreed_.erase(request);
  }
  batches_.erase(found);
}

void Writer::add_device_span(const Record& record, std::string& lines) {
  const core::DeviceSpan is = core::DeviceSpan::of_code(record.detail);
  const auto row = static_cast<std::size_t>(is.row);
  const int place = kFirstDeviceRow + static_cast<int>(row);
  if (!device_rows_[row]) {
    lines += row_name(place, kDeviceRows[row]);
    device_rows_[row] = true;
  }
  std::string about = field("batch", record.round);
  if (record.set != 0) about += "," + field("group", record.set);
  about += "," + field("bytes", record.amount);
  if (is.what == core::DeviceSpan::What::nccl) about += is.in_place ? ",\"in_place\":true" : ",\"in_place\":false";
  span(lines, kDeviceWork[static_cast<std::size_t>(is.what)], place, record.time, record.id, about);
}

void Writer::add(const Record& record, std::string& lines) {
  switch (record.kind) {
  case Kind::submitted:
    requests_[{record.set, record.id}] = {record.time, record.round, record.amount, record.detail};
    break;
  case Kind::called:
    calls_[{record.set, record.round}] = {record.time, record.round, record.amount, record.detail};
    break;
  case Kind::batch_begun:
    begin_batch(record);
    if ((record.detail & recorder::kUnnamed) == 0) agree(record, lines);
    break;
  case Kind::batch_member:
    batches_[{record.set, record.round}].names.push_back(record.id);
    agree(record, lines);
    break;
  case Kind::batch_ended:
    end_batch(record, lines);
    break;
  case Kind::device_span:
    add_device_span(record, lines);
    break;
  case Kind::failed:
    requests_.erase({record.set, record.id});
    mark(lines, "failed: " + (record.id != 0 ? name_of(record.id) : std::string("a call")), record.time);
    break;
  case Kind::wait_begun:
    waits_[{record.id, record.round}] = record.time;
    break;
  case Kind::wait_ended: {
    const auto began = waits_.find({record.id, record.round});
    if (began == waits_.end()) break;
    span(lines, record.id != 0 ? "wait for " + name_of(record.id) : std::string("wait"), kProgramRow, began->second,
         record.time, {});
    waits_.erase(began);
    break;
  }
  case Kind::message_open:
    messages_[record.id] = record;
    break;
  case Kind::message_ended: {
    const auto began = messages_.find(record.id);
    if (began == messages_.end()) break;
    const std::string peer =
        began->second.set == recorder::kAnyRank ? "any rank" : "rank " + std::to_string(began->second.set);
    span(lines, (began->second.detail != 0 ? "send to " : "receive from ") + peer, kMessagesRow, began->second.time,
         record.time, field("bytes", began->second.amount));
    messages_.erase(began);
    break;
  }
  case Kind::step_ended:
    mark(lines, "step " + std::to_string(record.amount) + " ends", record.time);
    break;
  case Kind::fault:
    mark(lines, "error", record.time);
    break;
  case Kind::sentence:
    mark(lines, name_of(record.id), record.time);
    break;
  default:
    break;
  }
}

}  // namespace kolo::timeline
