// SPDX-License-Identifier: Apache-2.0
//
// A message is one tag byte and its fields in the order of the struct. Unsigned numbers are LEB128 varints; signed ones
// are zigzag varints; doubles are their eight bytes; a list is its length and its items. Lists of ranks and ids hold
// differences from the item before, since they mostly ascend or come from one run of numbers: one byte each.
//
// A list's length is compared with the bytes that are left, by the fewest that an item takes; and a list of structs
// grows as they are read. So what a decoder allocates is bounded by a constant times what it has read.
#include "control/codec.hpp"

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <kolo/error.hpp>

#include "control/ranges.hpp"
#include "core/dtype.hpp"
#include "core/reduce_op.hpp"

namespace kolo::control {
namespace {

constexpr auto kLastCode = static_cast<ErrorCode>(kErrorCodeCount - 1);

// ---------------------------------------------------------------- writing

class Writer {
 public:
  explicit Writer(Bytes& out) noexcept : out_(out) {}

  void byte(std::uint8_t value) { out_.push_back(static_cast<std::byte>(value)); }
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<std::uint8_t>(value | 0x80));
    byte(static_cast<std::uint8_t>(value));
  }
  void signed_number(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    number((bits << 1) ^ (value < 0 ? ~std::uint64_t{0} : 0));
  }
  void real(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    for (int shift = 0; shift < 64; shift += 8) byte(static_cast<std::uint8_t>(bits >> shift));
  }
  void text(const std::string& value) {
    number(value.size());
    const auto* data = reinterpret_cast<const std::byte*>(value.data());
    out_.insert(out_.end(), data, data + value.size());
  }
  template <class Integer>
  void list(const std::vector<Integer>& items) {
    number(items.size());
    std::int64_t before = 0;
    for (const Integer item : items) {
      signed_number(std::int64_t{item} - before);
      before = item;
    }
  }

 private:
  Bytes& out_;
};

void write(Writer& w, const core::Signature& s) {
  w.byte(static_cast<std::uint8_t>(s.kind));
  w.byte(static_cast<std::uint8_t>(s.op));
  w.byte(static_cast<std::uint8_t>(s.device));
  w.signed_number(s.root);
  w.real(s.prescale);
  w.real(s.postscale);
  w.byte(static_cast<std::uint8_t>(s.wire));
  w.number(s.tensors.size());
  for (const core::TensorSignature& tensor : s.tensors) {
    w.byte(static_cast<std::uint8_t>(tensor.dtype));
    w.byte(static_cast<std::uint8_t>(tensor.shape.rank()));
    for (const std::int64_t extent : tensor.shape) w.number(static_cast<std::uint64_t>(extent));
    w.number(tensor.place);
  }
  w.number(s.members);
  w.number(s.names.size());
  for (const std::string& name : s.names) w.text(name);
  w.list(s.ranks);
  w.signed_number(s.priority);
}

void write(Writer& w, const Counted& m) {
  w.number(m.id);
  w.number(m.word.generation);
  w.number(m.word.count);
}
void write(Writer& w, const std::vector<Declared::Variant>& variants) {
  w.number(variants.size());
  for (const Declared::Variant& variant : variants) {
    w.byte(variant.signature ? 1 : 0);
    if (variant.signature) write(w, *variant.signature);
    w.list(variant.ranks);
  }
}
void write(Writer& w, const Declared& m) {
  w.number(m.set);
  w.text(m.name);
  w.number(m.round);
  w.number(m.id);
  w.number(m.generation);
  write(w, m.variants);
  w.list(m.members);
}
void write(Writer& w, const Interest& m) {
  w.signed_number(m.rank);
  w.number(m.plan);
  w.number(m.batch);
  w.list(m.lacking);
  w.number(m.round);
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
}
void write(Writer& w, const Missing& m) {
  w.number(m.query);
  w.list(m.ranks);
}
void write(Writer& w, const RankLost& m) {
  w.signed_number(m.rank);
  w.byte(static_cast<std::uint8_t>(m.code));
  w.text(m.reason);
}
void write(Writer& w, const Left& m) {
  w.signed_number(m.rank);
  w.number(m.sequences.size());
  for (const Left::Sequence& sequence : m.sequences) {
    w.number(sequence.set);
    w.number(sequence.calls);
  }
}
void write(Writer& w, const Starved& m) { w.signed_number(m.rank); }
void write(Writer& w, const Answer& m) {
  w.number(m.query);
  w.signed_number(m.rank);
  w.byte(m.submitted ? 1 : 0);
  w.byte(static_cast<std::uint8_t>(m.doing));
  w.list(m.awaited);
  w.text(m.reason);
  w.byte(m.wait ? 1 : 0);
  if (!m.wait) return;
  w.number(m.wait->set);
  w.text(m.wait->name);
  w.number(m.wait->round);
  w.list(m.wait->members);
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
}

void write(Writer& w, const Assigned& m) {
  w.number(m.id);
  w.number(m.generation);
  w.number(m.set);
  w.text(m.name);
  write(w, m.signature);
}
void write(Writer& w, const Evicted& m) {
  w.number(m.id);
  w.number(m.generation);
}
void write(Writer& w, const BatchAppended& m) {
  w.number(m.set);
  w.list(m.members);
}
void write(Writer& w, const PlanDefined& m) {
  w.number(m.plan);
  w.number(m.set);
  w.number(m.batches.size());
  for (const auto& batch : m.batches) w.list(batch);
}
void write(Writer& w, const PlanVoided& m) {
  w.number(m.plan);
  w.byte(static_cast<std::uint8_t>(m.why));
}
void write(Writer& w, const PlannedBatch& m) {
  w.number(m.plan);
  w.number(m.number);
}
void write(Writer& w, const Failed& m) {
  w.number(m.set);
  w.text(m.name);
  w.number(m.round);
  w.byte(static_cast<std::uint8_t>(m.code));
  w.text(m.message);
  w.list(m.members);
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
void write(Writer& w, const Stalled& m) {
  w.number(m.set);
  w.text(m.name);
  w.real(m.waited_s);
  w.list(m.missing);
  w.list(m.members);
  w.byte(m.join ? 1 : 0);
  w.number(m.round);
  w.byte(static_cast<std::uint8_t>(m.kind));
}
void write(Writer& w, const SetAdded& m) {
  w.number(m.set);
  w.number(m.base);
  w.number(m.generation);
  w.list(m.members);
  w.text(m.name);
}
void write(Writer& w, const SetRemoved& m) { w.number(m.set); }
void write(Writer& w, const RankLeft& m) { w.signed_number(m.rank); }
void write(Writer& w, const Faulted& m) {
  w.byte(static_cast<std::uint8_t>(m.code));
  w.signed_number(m.rank);
  w.text(m.message);
}
void write(Writer&, const Closed&) {}
void write(Writer&, const Push&) {}
void write(Writer& w, const RankJoined& m) {
  w.number(m.set);
  w.signed_number(m.rank);
  w.number(m.submissions.size());
  for (const std::string& name : m.submissions) w.text(name);
  w.byte(m.counts ? 1 : 0);
  w.number(m.sequence);
}
void write(Writer& w, const SequenceAppended& m) {
  w.number(m.set);
  w.number(m.calls);
  w.number(m.repeats.size());
  for (const SequenceAppended::Repeat& repeat : m.repeats) {
    w.number(repeat.count);
    write(w, repeat.signature);
  }
}
void write(Writer& w, const SequenceFailed& m) {
  w.number(m.set);
  w.number(m.call);
  w.byte(static_cast<std::uint8_t>(m.code));
  w.text(m.message);
}
void write(Writer& w, const SequenceEnded& m) {
  w.number(m.set);
  w.number(m.last);
  w.byte(static_cast<std::uint8_t>(m.code));
  w.text(m.message);
}
void write(Writer& w, const JoinEnded& m) {
  w.number(m.set);
  w.signed_number(m.last);
  w.number(m.steps);
  w.byte(static_cast<std::uint8_t>(m.code));
  w.text(m.message);
  w.number(m.calls);
}

// ---------------------------------------------------------------- reading

class Reader {
 public:
  explicit Reader(ByteView bytes) noexcept : bytes_(bytes) {}

  [[nodiscard]] std::size_t left() const noexcept { return bytes_.size() - at_; }

  std::uint8_t byte() {
    if (left() == 0) refuse("it ends too early");
    return static_cast<std::uint8_t>(bytes_[at_++]);
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint8_t next = byte();
      const std::uint64_t bits = next & 0x7fU;
      if (shift == 63 && bits > 1) refuse("a number has more than 64 bits");
      value |= bits << shift;
      if ((next & 0x80U) == 0) return value;
    }
    refuse("a number has more than 64 bits");
  }
  template <class Integer>
  Integer number_up_to(std::uint64_t most) {
    const std::uint64_t value = number();
    if (value > most) refuse("a number is too large");
    return static_cast<Integer>(value);
  }
  template <class Integer>
  Integer number_of() {
    return number_up_to<Integer>(std::numeric_limits<Integer>::max());
  }
  std::int64_t signed_number() {
    const std::uint64_t value = number();
    return static_cast<std::int64_t>((value >> 1) ^ ((value & 1) != 0 ? ~std::uint64_t{0} : 0));
  }
  std::int32_t rank() { return small_number("a rank is out of range"); }
  std::int32_t small_number(const char* why_not) {
    const std::int64_t value = signed_number();
    if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max()) {
      refuse(why_not);
    }
    return static_cast<std::int32_t>(value);
  }
  template <class Enum>
  Enum choice(Enum last) {
    const std::uint8_t value = byte();
    if (value > static_cast<std::uint8_t>(last)) refuse("a choice is unknown");
    return static_cast<Enum>(value);
  }
  bool flag() {
    const std::uint8_t value = byte();
    if (value > 1) refuse("a flag is neither 0 nor 1");
    return value == 1;
  }
  double real() {
    std::uint64_t bits = 0;
    for (int shift = 0; shift < 64; shift += 8) bits |= std::uint64_t{byte()} << shift;
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  /// The length of a list whose items take at least so many bytes each.
  std::size_t length(std::size_t least_bytes = 1) {
    const std::uint64_t value = number();
    if (value > left() / least_bytes) refuse("a list is longer than the message");
    return static_cast<std::size_t>(value);
  }
  template <class Item, class ReadItem>
  void items(std::vector<Item>& items, std::size_t least_bytes, const ReadItem& read_item) {
    for (std::size_t left = length(least_bytes); left > 0; --left) read_item(items.emplace_back());
  }
  std::string text() {
    const std::size_t size = length();
    std::string value(reinterpret_cast<const char*>(bytes_.data() + at_), size);
    at_ += size;
    return value;
  }
  template <class Integer>
  std::vector<Integer> list() {
    std::vector<Integer> items(length());
    std::int64_t before = 0;
    for (Integer& item : items) {
      // Both below 2^33 in size, so their sum does not overflow.
      const std::int64_t step = signed_number();
      constexpr std::int64_t kMost = std::int64_t{1} << 33;
      if (step < -kMost || step > kMost) refuse("a list's item is out of range");
      before += step;
      if (before < std::int64_t{std::numeric_limits<Integer>::min()} ||
          before > std::int64_t{std::numeric_limits<Integer>::max()}) {
        refuse("a list's item is out of range");
      }
      item = static_cast<Integer>(before);
    }
    return items;
  }

 private:
  ByteView bytes_;
  std::size_t at_ = 0;
};

Shape read_shape(Reader& r) {
  const std::uint8_t rank = r.byte();
  if (rank > Shape::kMaxRank) refuse("a shape has too many dimensions");
  std::int64_t extents[Shape::kMaxRank] = {};
  for (std::uint8_t i = 0; i < rank; ++i) extents[i] = r.number_of<std::int64_t>();
  try {
    return Shape(extents, rank);
  } catch (const Error& error) {
    refuse(error.what());
  }
}

void read(Reader& r, core::Signature& s) {
  s.kind = r.choice(core::kLastCollective);
  s.op = r.choice(core::kLastReduceOp);
  s.device = r.choice(DeviceKind::cuda);
  s.root = r.rank();
  s.prescale = r.real();
  s.postscale = r.real();
  s.wire = r.choice(core::kLastWire);
  r.items(s.tensors, 3, [&r](core::TensorSignature& tensor) {
    tensor.dtype = r.choice(core::kLastDType);
    tensor.shape = read_shape(r);
    tensor.place = r.number();
  });
  s.members = r.number();
  r.items(s.names, 1, [&r](std::string& name) { name = r.text(); });
  s.ranks = r.list<std::int32_t>();
  s.priority = r.small_number("a priority is out of range");
}

void read(Reader& r, Counted& m) {
  m.id = r.number_of<core::TensorId>();
  m.word.generation = r.number_of<std::uint16_t>();
  m.word.count = r.number_up_to<std::uint64_t>((std::uint64_t{1} << CountWord::kCountBits) - 1);
}
void read(Reader& r, std::vector<Declared::Variant>& variants) {
  r.items(variants, 2, [&r](Declared::Variant& variant) {
    if (r.flag()) read(r, variant.signature.emplace());
    variant.ranks = r.list<std::int32_t>();
  });
}
void read(Reader& r, Declared& m) {
  m.set = r.number_of<core::SetId>();
  m.name = r.text();
  m.round = r.number();
  m.id = r.number_of<core::TensorId>();
  m.generation = r.number_of<std::uint16_t>();
  read(r, m.variants);
  m.members = r.list<std::int32_t>();
}
void read(Reader& r, Interest& m) {
  m.rank = r.rank();
  m.plan = r.number_of<std::uint32_t>();
  m.batch = r.number_of<std::uint32_t>();
  m.lacking = r.list<core::TensorId>();
  m.round = r.number();
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
}
void read(Reader& r, Missing& m) {
  m.query = r.number();
  m.ranks = r.list<std::int32_t>();
}
void read(Reader& r, RankLost& m) {
  m.rank = r.rank();
  m.code = r.choice(kLastCode);
  m.reason = r.text();
}
void read(Reader& r, Left& m) {
  m.rank = r.rank();
  r.items(m.sequences, 2, [&r](Left::Sequence& sequence) {
    sequence.set = r.number_of<core::SetId>();
    sequence.calls = r.number();
  });
}
void read(Reader& r, Starved& m) { m.rank = r.rank(); }
void read(Reader& r, Answer& m) {
  m.query = r.number();
  m.rank = r.rank();
  m.submitted = r.flag();
  m.doing = r.choice(Doing::standing);
  m.awaited = r.list<std::int32_t>();
  m.reason = r.text();
  if (!r.flag()) return;
  Answer::Wait wait;
  wait.set = r.number_of<core::SetId>();
  wait.name = r.text();
  wait.round = r.number();
  wait.members = r.list<std::int32_t>();
  m.wait = std::move(wait);  // clang 14 does not compile m.wait.emplace()
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
void read(Reader& r, SequenceGrown& m) {
  m.set = r.number_of<core::SetId>();
  m.first = r.number();
  r.items(m.repeats, 4, [&r](SequenceGrown::Repeat& repeat) {
    repeat.number = r.number_of<std::uint32_t>();
    repeat.count = r.number();
    if (r.flag()) read(r, repeat.signature.emplace());
    read(r, repeat.variants);
  });
}

void read(Reader& r, Assigned& m) {
  m.id = r.number_of<core::TensorId>();
  m.generation = r.number_of<std::uint16_t>();
  m.set = r.number_of<core::SetId>();
  m.name = r.text();
  read(r, m.signature);
}
void read(Reader& r, Evicted& m) {
  m.id = r.number_of<core::TensorId>();
  m.generation = r.number_of<std::uint16_t>();
}
void read(Reader& r, BatchAppended& m) {
  m.set = r.number_of<core::SetId>();
  m.members = r.list<core::TensorId>();
}
void read(Reader& r, PlanDefined& m) {
  m.plan = r.number_of<std::uint32_t>();
  m.set = r.number_of<core::SetId>();
  r.items(m.batches, 1, [&r](std::vector<core::TensorId>& batch) { batch = r.list<core::TensorId>(); });
}
void read(Reader& r, PlanVoided& m) {
  m.plan = r.number_of<std::uint32_t>();
  m.why = r.choice(PlanEnd::joined);
}
void read(Reader& r, PlannedBatch& m) {
  m.plan = r.number_of<std::uint32_t>();
  m.number = r.number_of<std::uint32_t>();
}
void read(Reader& r, Failed& m) {
  m.set = r.number_of<core::SetId>();
  m.name = r.text();
  m.round = r.number();
  m.code = r.choice(kLastCode);
  m.message = r.text();
  m.members = r.list<std::int32_t>();
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
void read(Reader& r, Stalled& m) {
  m.set = r.number_of<core::SetId>();
  m.name = r.text();
  m.waited_s = r.real();
  m.missing = r.list<std::int32_t>();
  m.members = r.list<std::int32_t>();
  m.join = r.flag();
  m.round = r.number();
  m.kind = r.choice(core::kLastCollective);
}
void read(Reader& r, SetAdded& m) {
  m.set = r.number_of<core::SetId>();
  m.base = r.number_of<core::TensorId>();
  m.generation = r.number_of<std::uint16_t>();
  m.members = r.list<std::int32_t>();
  m.name = r.text();
}
void read(Reader& r, SetRemoved& m) { m.set = r.number_of<core::SetId>(); }
void read(Reader& r, RankLeft& m) { m.rank = r.rank(); }
void read(Reader& r, Faulted& m) {
  m.code = r.choice(kLastCode);
  m.rank = r.rank();
  m.message = r.text();
}
void read(Reader&, Closed&) {}
void read(Reader&, Push&) {}
void read(Reader& r, RankJoined& m) {
  m.set = r.number_of<core::SetId>();
  m.rank = r.rank();
  r.items(m.submissions, 1, [&r](std::string& name) { name = r.text(); });
  m.counts = r.flag();
  m.sequence = r.number();
}
void read(Reader& r, SequenceAppended& m) {
  m.set = r.number_of<core::SetId>();
  m.calls = r.number();
  r.items(m.repeats, 26, [&r](SequenceAppended::Repeat& repeat) {
    repeat.count = r.number();
    read(r, repeat.signature);
  });
}
void read(Reader& r, SequenceFailed& m) {
  m.set = r.number_of<core::SetId>();
  m.call = r.number();
  m.code = r.choice(kLastCode);
  m.message = r.text();
}
void read(Reader& r, SequenceEnded& m) {
  m.set = r.number_of<core::SetId>();
  m.last = r.number();
  m.code = r.choice(kLastCode);
  m.message = r.text();
}
void read(Reader& r, JoinEnded& m) {
  m.set = r.number_of<core::SetId>();
  m.last = r.rank();
  m.steps = r.number();
  m.code = r.choice(kLastCode);
  m.message = r.text();
  m.calls = r.number();
}

// ---------------------------------------------------------------- variants: the tag is the alternative's index

template <class Variant>
void encode_variant(const Variant& message, Bytes& out) {
  Writer w(out);
  w.byte(static_cast<std::uint8_t>(message.index()));
  std::visit([&w](const auto& value) { write(w, value); }, message);
}

template <class Variant, std::size_t Index = 0>
Variant decode_alternative(Reader& r, std::size_t tag) {
  if constexpr (Index == std::variant_size_v<Variant>) {
    refuse("its kind is unknown");
  } else {
    if (tag != Index) return decode_alternative<Variant, Index + 1>(r, tag);
    std::variant_alternative_t<Index, Variant> value;
    read(r, value);
    return value;
  }
}

template <class Variant>
Variant decode_variant(ByteView bytes) {
  Reader r(bytes);
  const std::size_t tag = r.byte();
  Variant message = decode_alternative<Variant>(r, tag);
  if (r.left() != 0) refuse("it is longer than its contents");
  return message;
}

}  // namespace

void encode(const UpMessage& message, Bytes& out) { encode_variant(message, out); }
void encode(const LogEntry& entry, Bytes& out) { encode_variant(entry, out); }

UpMessage decode_up(ByteView bytes) { return decode_variant<UpMessage>(bytes); }
LogEntry decode_log(ByteView bytes) { return decode_variant<LogEntry>(bytes); }

}  // namespace kolo::control
