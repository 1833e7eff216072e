// SPDX-License-Identifier: Apache-2.0
//
// Messages from ranks to the sequencer: how each is written, and how it is read.
#include <string>
#include <utility>
#include <vector>

#include "control/codec/bytes.hpp"

namespace kolo::control {
namespace codec {
namespace {

void write(Writer& w, const Counted& m) {
  w.number(m.id);
  w.number(m.word.generation);
  w.number(m.word.count);
  w.signed_number(m.last);
}
void read(Reader& r, Counted& m) {
  m.id = r.number_of<core::TensorId>();
  m.word.generation = r.number_of<std::uint16_t>();
  m.word.count = r.number_up_to<std::uint64_t>((std::uint64_t{1} << CountWord::kCountBits) - 1);
  m.last = r.rank();
}

void write(Writer& w, const std::vector<Declared::Variant>& variants) {
  w.number(variants.size());
  for (const Declared::Variant& variant : variants) {
    w.byte(variant.signature ? 1 : 0);
    if (variant.signature) write(w, *variant.signature);
    w.list(variant.ranks);
  }
}
void read(Reader& r, std::vector<Declared::Variant>& variants) {
  r.items(variants, 2, [&r](Declared::Variant& variant) {
    if (r.flag()) read(r, variant.signature.emplace());
    variant.ranks = r.list<std::int32_t>();
  });
}

void write(Writer& w, const Declared& m) {
  w.number(m.set);
  w.text(m.name);
  w.number(m.round);
  w.number(m.id);
  w.number(m.generation);
  write(w, m.variants);
  w.list(m.members);
  w.signed_number(m.last);
}
void read(Reader& r, Declared& m) {
  m.set = r.number_of<core::SetId>();
  m.name = r.text();
  m.round = r.number();
  m.id = r.number_of<core::TensorId>();
  m.generation = r.number_of<std::uint16_t>();
  read(r, m.variants);
  m.members = r.list<std::int32_t>();
  m.last = r.rank();
}

void write(Writer& w, const PartAwaited& m) {
  w.signed_number(m.rank);
  w.number(m.plan);
  w.number(m.batch);
  w.list(m.lacking);
  w.number(m.round);
}
void read(Reader& r, PartAwaited& m) {
  m.rank = r.rank();
  m.plan = r.number_of<std::uint32_t>();
  m.batch = r.number_of<std::uint32_t>();
  m.lacking = r.list<core::TensorId>();
  m.round = r.number();
}

void write(Writer& w, const Overdue& m) {
  w.signed_number(m.rank);
  w.number(m.set);
  w.text(m.name);
  w.number(m.round);
  w.real(m.waited_s);
  w.byte(m.deadline ? 1 : 0);
  w.byte(m.running ? 1 : 0);
  w.list(m.members);
  w.byte(m.join ? 1 : 0);
  w.byte(static_cast<std::uint8_t>(m.kind));
  w.byte(m.asked ? 1 : 0);
}
void read(Reader& r, Overdue& m) {
  m.rank = r.rank();
  m.set = r.number_of<core::SetId>();
  m.name = r.text();
  m.round = r.number();
  m.waited_s = r.real();
  m.deadline = r.flag();
  m.running = r.flag();
  m.members = r.list<std::int32_t>();
  m.join = r.flag();
  m.kind = r.choice(core::kLastCollective);
  m.asked = r.flag();
}

void write(Writer& w, const Missing& m) {
  w.number(m.query);
  w.list(m.ranks);
}
void read(Reader& r, Missing& m) {
  m.query = r.number();
  m.ranks = r.list<std::int32_t>();
}

void write(Writer& w, const RankLost& m) {
  w.signed_number(m.rank);
  w.byte(static_cast<std::uint8_t>(m.code));
  w.text(m.reason);
}
void read(Reader& r, RankLost& m) {
  m.rank = r.rank();
  m.code = r.choice(kLastCode);
  m.reason = r.text();
}

void write(Writer& w, const Departed& m) {
  w.signed_number(m.rank);
  w.number(m.sequences.size());
  for (const Departed::Sequence& sequence : m.sequences) {
    w.number(sequence.set);
    w.number(sequence.calls);
    w.number(sequence.passed);
  }
}
void read(Reader& r, Departed& m) {
  m.rank = r.rank();
  r.items(m.sequences, 3, [&r](Departed::Sequence& sequence) {
    sequence.set = r.number_of<core::SetId>();
    sequence.calls = r.number();
    sequence.passed = r.number();
  });
}

void write(Writer& w, const Deserted& m) {
  w.signed_number(m.rank);
  w.signed_number(m.by);
}
void read(Reader& r, Deserted& m) {
  m.rank = r.rank();
  m.by = r.rank();
}

void write(Writer& w, const Starved& m) { w.signed_number(m.rank); }
void read(Reader& r, Starved& m) { m.rank = r.rank(); }

void write(Writer& w, const Answer& m) {
  w.number(m.query);
  w.signed_number(m.rank);
  w.byte(m.submitted ? 1 : 0);
  w.byte(static_cast<std::uint8_t>(m.doing));
  w.list(m.awaited);
  w.byte(m.wait ? 1 : 0);
  if (!m.wait) return;
  w.number(m.wait->set);
  w.text(m.wait->name);
  w.number(m.wait->round);
  w.list(m.wait->members);
}
void read(Reader& r, Answer& m) {
  m.query = r.number();
  m.rank = r.rank();
  m.submitted = r.flag();
  m.doing = r.choice(Doing::standing);
  m.awaited = r.list<std::int32_t>();
  if (!r.flag()) return;
  Answer::Wait wait;
  wait.set = r.number_of<core::SetId>();
  wait.name = r.text();
  wait.round = r.number();
  wait.members = r.list<std::int32_t>();
  m.wait = std::move(wait);  // clang 14 does not compile m.wait.emplace()
}

void write(Writer& w, const Joined& m) {
  w.signed_number(m.rank);
  w.number(m.set);
  w.number(m.read);
  w.number(m.steps);
  w.number(m.submissions.size());
  for (const Joined::Submission& submission : m.submissions) {
    w.text(submission.name);
    w.number(submission.round);
    w.number(submission.id);
    write(w, submission.signature);
  }
  w.number(m.calls);
  w.byte(m.counts ? 1 : 0);
  w.number(m.sequence);
}
void read(Reader& r, Joined& m) {
  m.rank = r.rank();
  m.set = r.number_of<core::SetId>();
  m.read = r.number();
  m.steps = r.number();
  r.items(m.submissions, 28, [&r](Joined::Submission& submission) {
    submission.name = r.text();
    submission.round = r.number();
    submission.id = r.number_of<core::TensorId>();
    read(r, submission.signature);
  });
  m.calls = r.number();
  m.counts = r.flag();
  m.sequence = r.number();
}

void write(Writer& w, const SequenceGrown& m) {
  w.number(m.set);
  w.number(m.first);
  w.number(m.repeats.size());
  for (const SequenceGrown::Repeat& repeat : m.repeats) {
    w.number(repeat.number);
    w.number(repeat.count);
    w.byte(repeat.signature ? 1 : 0);
    if (repeat.signature) write(w, *repeat.signature);
    write(w, repeat.variants);
  }
  w.signed_number(m.last);
}
void read(Reader& r, SequenceGrown& m) {
  m.set = r.number_of<core::SetId>();
  m.first = r.number();
  r.items(m.repeats, 4, [&r](SequenceGrown::Repeat& repeat) {
    repeat.number = r.number_of<std::uint32_t>();
    repeat.count = r.number();
    if (r.flag()) read(r, repeat.signature.emplace());
    read(r, repeat.variants);
  });
  m.last = r.rank();
}

constexpr auto kWriteMessage = [](Writer& w, const auto& m) { write(w, m); };
constexpr auto kReadMessage = [](Reader& r, auto& m) { read(r, m); };

}  // namespace
}  // namespace codec

void encode(const UpMessage& message, Bytes& out) { codec::encode_variant(message, out, codec::kWriteMessage); }

UpMessage decode_up(ByteView bytes) { return codec::decode_variant<UpMessage>(bytes, codec::kReadMessage); }

}  // namespace kolo::control
