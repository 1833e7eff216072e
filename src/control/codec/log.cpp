// SPDX-License-Identifier: Apache-2.0
//
// Entries of the log: how each is written, and how it is read.
#include <string>
#include <vector>

#include "control/codec/bytes.hpp"

namespace kolo::control {
namespace codec {
namespace {

void write(Writer& w, const Assigned& m) {
  w.number(m.id);
  w.number(m.generation);
  w.number(m.set);
  w.text(m.name);
  write(w, m.signature);
}
void read(Reader& r, Assigned& m) {
  m.id = r.number_of<core::TensorId>();
  m.generation = r.number_of<std::uint16_t>();
  m.set = r.number_of<core::SetId>();
  m.name = r.text();
  read(r, m.signature);
}

void write(Writer& w, const Evicted& m) {
  w.number(m.id);
  w.number(m.generation);
}
void read(Reader& r, Evicted& m) {
  m.id = r.number_of<core::TensorId>();
  m.generation = r.number_of<std::uint16_t>();
}

void write(Writer& w, const BatchAppended& m) {
  w.number(m.set);
  w.list(m.members);
  w.signed_number(m.last);
}
void read(Reader& r, BatchAppended& m) {
  m.set = r.number_of<core::SetId>();
  m.members = r.list<core::TensorId>();
  m.last = r.rank();
}

void write(Writer& w, const PlanDefined& m) {
  w.number(m.plan);
  w.number(m.set);
  w.number(m.batches.size());
  for (const auto& batch : m.batches) w.list(batch);
}
void read(Reader& r, PlanDefined& m) {
  m.plan = r.number_of<std::uint32_t>();
  m.set = r.number_of<core::SetId>();
  r.items(m.batches, 1, [&r](std::vector<core::TensorId>& batch) { batch = r.list<core::TensorId>(); });
}

void write(Writer& w, const PlanVoided& m) {
  w.number(m.plan);
  w.byte(static_cast<std::uint8_t>(m.why));
}
void read(Reader& r, PlanVoided& m) {
  m.plan = r.number_of<std::uint32_t>();
  m.why = r.choice(PlanEnd::joined);
}

void write(Writer& w, const PlannedBatch& m) {
  w.number(m.plan);
  w.number(m.number);
  w.signed_number(m.last);
}
void read(Reader& r, PlannedBatch& m) {
  m.plan = r.number_of<std::uint32_t>();
  m.number = r.number_of<std::uint32_t>();
  m.last = r.rank();
}

void write(Writer& w, const Failed& m) {
  w.number(m.set);
  w.text(m.name);
  w.number(m.round);
  w.byte(static_cast<std::uint8_t>(m.code));
  w.text(m.message);
  w.list(m.members);
}
void read(Reader& r, Failed& m) {
  m.set = r.number_of<core::SetId>();
  m.name = r.text();
  m.round = r.number();
  m.code = r.choice(kLastCode);
  m.message = r.text();
  m.members = r.list<std::int32_t>();
}

void write(Writer& w, const Query& m) {
  w.number(m.query);
  w.number(m.set);
  w.text(m.name);
  w.number(m.round);
  w.byte(m.deadline ? 1 : 0);
  w.list(m.members);
  w.byte(m.join ? 1 : 0);
}
void read(Reader& r, Query& m) {
  m.query = r.number();
  m.set = r.number_of<core::SetId>();
  m.name = r.text();
  m.round = r.number();
  m.deadline = r.flag();
  m.members = r.list<std::int32_t>();
  m.join = r.flag();
}

void write(Writer& w, const SequenceAppended& m) {
  w.number(m.set);
  w.number(m.calls);
  w.number(m.repeats.size());
  for (const SequenceAppended::Repeat& repeat : m.repeats) {
    w.number(repeat.count);
    write(w, repeat.signature);
  }
  w.signed_number(m.last);
}
void read(Reader& r, SequenceAppended& m) {
  m.set = r.number_of<core::SetId>();
  m.calls = r.number();
  r.items(m.repeats, 26, [&r](SequenceAppended::Repeat& repeat) {
    repeat.count = r.number();
    read(r, repeat.signature);
  });
  m.last = r.rank();
}

void write(Writer& w, const SequenceFailed& m) {
  w.number(m.set);
  w.number(m.call);
  w.byte(static_cast<std::uint8_t>(m.code));
  w.text(m.message);
}
void read(Reader& r, SequenceFailed& m) {
  m.set = r.number_of<core::SetId>();
  m.call = r.number();
  m.code = r.choice(kLastCode);
  m.message = r.text();
}

void write(Writer& w, const SequenceEnded& m) {
  w.number(m.set);
  w.number(m.last);
  w.byte(static_cast<std::uint8_t>(m.code));
  w.text(m.message);
}
void read(Reader& r, SequenceEnded& m) {
  m.set = r.number_of<core::SetId>();
  m.last = r.number();
  m.code = r.choice(kLastCode);
  m.message = r.text();
}

void write(Writer& w, const Stalled& m) {
  w.number(m.set);
  w.text(m.name);
  w.real(m.waited_s);
  w.list(m.missing);
  w.list(m.members);
  w.byte(m.join ? 1 : 0);
  w.number(m.round);
  w.byte(static_cast<std::uint8_t>(m.kind));
  w.byte(m.asked ? 1 : 0);
}
void read(Reader& r, Stalled& m) {
  m.set = r.number_of<core::SetId>();
  m.name = r.text();
  m.waited_s = r.real();
  m.missing = r.list<std::int32_t>();
  m.members = r.list<std::int32_t>();
  m.join = r.flag();
  m.round = r.number();
  m.kind = r.choice(core::kLastCollective);
  m.asked = r.flag();
}

void write(Writer& w, const SetAdded& m) {
  w.number(m.set);
  w.number(m.base);
  w.number(m.generation);
  w.list(m.members);
  w.text(m.name);
}
void read(Reader& r, SetAdded& m) {
  m.set = r.number_of<core::SetId>();
  m.base = r.number_of<core::TensorId>();
  m.generation = r.number_of<std::uint16_t>();
  m.members = r.list<std::int32_t>();
  m.name = r.text();
}

void write(Writer& w, const SetRemoved& m) { w.number(m.set); }
void read(Reader& r, SetRemoved& m) { m.set = r.number_of<core::SetId>(); }

void write(Writer& w, const RankDeparted& m) {
  w.signed_number(m.rank);
  w.signed_number(m.because);
}
void read(Reader& r, RankDeparted& m) {
  m.rank = r.rank();
  m.because = r.rank();
}

void write(Writer& w, const RankJoined& m) {
  w.number(m.set);
  w.signed_number(m.rank);
  w.number(m.submissions.size());
  for (const std::string& name : m.submissions) w.text(name);
  w.byte(m.counts ? 1 : 0);
  w.number(m.sequence);
}
void read(Reader& r, RankJoined& m) {
  m.set = r.number_of<core::SetId>();
  m.rank = r.rank();
  r.items(m.submissions, 1, [&r](std::string& name) { name = r.text(); });
  m.counts = r.flag();
  m.sequence = r.number();
}

void write(Writer& w, const JoinEnded& m) {
  w.number(m.set);
  w.signed_number(m.last);
  w.number(m.steps);
  w.byte(static_cast<std::uint8_t>(m.code));
  w.text(m.message);
  w.number(m.calls);
}
void read(Reader& r, JoinEnded& m) {
  m.set = r.number_of<core::SetId>();
  m.last = r.rank();
  m.steps = r.number();
  m.code = r.choice(kLastCode);
  m.message = r.text();
  m.calls = r.number();
}

void write(Writer& w, const Faulted& m) {
  w.byte(static_cast<std::uint8_t>(m.code));
  w.signed_number(m.rank);
  w.text(m.message);
}
void read(Reader& r, Faulted& m) {
  m.code = r.choice(kLastCode);
  m.rank = r.rank();
  m.message = r.text();
}

void write(Writer&, const Push&) {}
void read(Reader&, Push&) {}

void write(Writer&, const Closed&) {}
void read(Reader&, Closed&) {}

constexpr auto kWriteEntry = [](Writer& w, const auto& m) { write(w, m); };
constexpr auto kReadEntry = [](Reader& r, auto& m) { read(r, m); };

}  // namespace
}  // namespace codec

void encode(const LogEntry& entry, Bytes& out) { codec::encode_variant(entry, out, codec::kWriteEntry); }

LogEntry decode_log(ByteView bytes) { return codec::decode_variant<LogEntry>(bytes, codec::kReadEntry); }

}  // namespace kolo::control
