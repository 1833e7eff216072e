// SPDX-License-Identifier: Apache-2.0
//
// A message is one of a variant's alternatives: the alternative's index as a byte, and its fields.
//
// The fields of every struct that messages consist of stand here in the order in which they are sent, which is that of
// the struct. Writer and reader go through the same list. A list that leaves a field out does not compile.
#include "control/codec.hpp"

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <variant>

#include <kolo/error.hpp>

#include "control/codec_bytes.hpp"
#include "core/element_types.hpp"

namespace kolo::control {
namespace codec {

template <>
inline constexpr auto kLast<ErrorCode> = static_cast<ErrorCode>(kErrorCodeCount - 1);
template <>
inline constexpr auto kLast<core::CollectiveKind> = core::kLastCollective;
template <>
inline constexpr auto kLast<ReduceOp> = core::kLastReduceOp;
template <>
inline constexpr auto kLast<DType> = core::kLastDType;
template <>
inline constexpr auto kLast<DeviceKind> = DeviceKind::cuda;
template <>
inline constexpr auto kLast<core::Wire> = core::kLastWire;
template <>
inline constexpr auto kLast<Doing> = Doing::standing;
template <>
inline constexpr auto kLast<PlanEnd> = PlanEnd::joined;

/// These are the fields of the struct: all of them, in its order.
template <class Struct, class... Field>
constexpr std::tuple<Field Struct::*...> fields(Field Struct::*... field) {
  static_assert(
      requires(Field... values) { Struct{values...}; }, "not in the order of the struct");
  static_assert(
      !requires(Field... values) {
        Struct{values..., {}};
      },
      "a field is missing");
  return {field...};
}

// ---------------------------------------------------------------- parts of messages

template <>
inline constexpr auto kFields<CountWord> = fields(&CountWord::generation, &CountWord::count);
template <>
inline constexpr auto kFields<core::TensorSignature> = fields(&core::TensorSignature::dtype,
                                                              &core::TensorSignature::shape,
                                                              &core::TensorSignature::place);
template <>
inline constexpr auto
    kFields<core::Signature> = fields(&core::Signature::kind, &core::Signature::op, &core::Signature::device,
                                      &core::Signature::root, &core::Signature::prescale, &core::Signature::postscale,
                                      &core::Signature::wire, &core::Signature::tensors, &core::Signature::members,
                                      &core::Signature::names, &core::Signature::ranks, &core::Signature::priority);

template <>
inline constexpr auto kFields<Request> = fields(&Request::set, &Request::name, &Request::round, &Request::members,
                                                &Request::join, &Request::serial);

// ---------------------------------------------------------------- up

template <>
inline constexpr auto kFields<Counted> = fields(&Counted::id, &Counted::word, &Counted::last);
template <>
inline constexpr auto kFields<Declared::Variant> = fields(&Declared::Variant::signature, &Declared::Variant::ranks);
template <>
inline constexpr auto kFields<Declared> = fields(&Declared::set, &Declared::name, &Declared::round, &Declared::id,
                                                 &Declared::generation, &Declared::variants, &Declared::members,
                                                 &Declared::last);
template <>
inline constexpr auto kFields<PartAwaited> = fields(&PartAwaited::rank, &PartAwaited::plan, &PartAwaited::batch,
                                                    &PartAwaited::lacking, &PartAwaited::round);
template <>
inline constexpr auto kFields<Overdue> = fields(&Overdue::rank, &Overdue::request, &Overdue::waited_s,
                                                &Overdue::deadline, &Overdue::running, &Overdue::kind, &Overdue::asked,
                                                &Overdue::alone);
template <>
inline constexpr auto kFields<RankLost> = fields(&RankLost::rank, &RankLost::code, &RankLost::reason);
template <>
inline constexpr auto kFields<Departed::Sequence> = fields(&Departed::Sequence::set, &Departed::Sequence::calls,
                                                           &Departed::Sequence::passed);
template <>
inline constexpr auto kFields<Departed> = fields(&Departed::rank, &Departed::sequences);
template <>
inline constexpr auto kFields<Deserted> = fields(&Deserted::rank, &Deserted::by);
template <>
inline constexpr auto kFields<Starved> = fields(&Starved::rank);
template <>
inline constexpr auto kFields<Answer> = fields(&Answer::query, &Answer::rank, &Answer::submitted, &Answer::doing,
                                               &Answer::awaited, &Answer::wait);
template <>
inline constexpr auto kFields<Joined::Submission> = fields(&Joined::Submission::name, &Joined::Submission::round,
                                                           &Joined::Submission::id, &Joined::Submission::signature);
template <>
inline constexpr auto kFields<Joined> = fields(&Joined::rank, &Joined::set, &Joined::read, &Joined::steps,
                                               &Joined::submissions, &Joined::calls, &Joined::counts,
                                               &Joined::sequence);
template <>
inline constexpr auto
    kFields<SequenceGrown::Repeat> = fields(&SequenceGrown::Repeat::number, &SequenceGrown::Repeat::count,
                                            &SequenceGrown::Repeat::signature, &SequenceGrown::Repeat::variants);
template <>
inline constexpr auto kFields<SequenceGrown> = fields(&SequenceGrown::set, &SequenceGrown::first,
                                                      &SequenceGrown::repeats, &SequenceGrown::last);

// ---------------------------------------------------------------- down: the log

template <>
inline constexpr auto kFields<Assigned> = fields(&Assigned::id, &Assigned::generation, &Assigned::set, &Assigned::name,
                                                 &Assigned::signature);
template <>
inline constexpr auto kFields<Evicted> = fields(&Evicted::id, &Evicted::generation);
template <>
inline constexpr auto kFields<BatchAppended> = fields(&BatchAppended::set, &BatchAppended::members,
                                                      &BatchAppended::last);
template <>
inline constexpr auto kFields<PlanDefined> = fields(&PlanDefined::plan, &PlanDefined::set, &PlanDefined::batches);
template <>
inline constexpr auto kFields<PlanVoided> = fields(&PlanVoided::plan, &PlanVoided::why);
template <>
inline constexpr auto kFields<PlannedBatch> = fields(&PlannedBatch::plan, &PlannedBatch::number, &PlannedBatch::last);
template <>
inline constexpr auto kFields<Failed> = fields(&Failed::request, &Failed::code, &Failed::message);
template <>
inline constexpr auto kFields<Query> = fields(&Query::query, &Query::request, &Query::asker);
template <>
inline constexpr auto kFields<SequenceAppended::Repeat> = fields(&SequenceAppended::Repeat::count,
                                                                 &SequenceAppended::Repeat::signature);
template <>
inline constexpr auto kFields<SequenceAppended> = fields(&SequenceAppended::set, &SequenceAppended::calls,
                                                         &SequenceAppended::repeats, &SequenceAppended::last);
template <>
inline constexpr auto kFields<SequenceFailed> = fields(&SequenceFailed::set, &SequenceFailed::call,
                                                       &SequenceFailed::code, &SequenceFailed::message);
template <>
inline constexpr auto kFields<SequenceEnded> = fields(&SequenceEnded::set, &SequenceEnded::last, &SequenceEnded::code,
                                                      &SequenceEnded::message);
template <>
inline constexpr auto kFields<Stalled> = fields(&Stalled::request, &Stalled::waited_s, &Stalled::missing,
                                                &Stalled::kind, &Stalled::asked, &Stalled::silent);
template <>
inline constexpr auto kFields<SetAdded> = fields(&SetAdded::set, &SetAdded::base, &SetAdded::generation,
                                                 &SetAdded::members, &SetAdded::name);
template <>
inline constexpr auto kFields<SetRemoved> = fields(&SetRemoved::set);
template <>
inline constexpr auto kFields<RankDeparted> = fields(&RankDeparted::rank, &RankDeparted::because, &RankDeparted::gone);
template <>
inline constexpr auto kFields<RankJoined> = fields(&RankJoined::set, &RankJoined::rank, &RankJoined::submissions,
                                                   &RankJoined::counts, &RankJoined::sequence);
template <>
inline constexpr auto kFields<JoinEnded> = fields(&JoinEnded::set, &JoinEnded::last, &JoinEnded::steps,
                                                  &JoinEnded::code, &JoinEnded::message, &JoinEnded::calls);
template <>
inline constexpr auto kFields<Faulted> = fields(&Faulted::code, &Faulted::rank, &Faulted::message);
template <>
inline constexpr auto kFields<Push> = std::tuple<>{};
template <>
inline constexpr auto kFields<Closed> = std::tuple<>{};

}  // namespace codec

namespace {

using codec::Reader;
using codec::Writer;

template <class Variant>
void encode_variant(const Variant& message, Bytes& out) {
  Writer writer(out);
  writer.byte(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& value) { writer.put(value); }, message);
}

template <class Variant, std::size_t Index = 0>
Variant decode_alternative(Reader& reader, std::size_t tag) {
  if constexpr (Index == std::variant_size_v<Variant>) {
    refuse("its kind is unknown");
  } else {
    if (tag != Index) return decode_alternative<Variant, Index + 1>(reader, tag);
    std::variant_alternative_t<Index, Variant> value;
    reader.get(value);
    return value;
  }
}

template <class Variant>
Variant decode_variant(ByteView bytes) {
  Reader reader(bytes);
  const std::size_t tag = reader.byte();
  Variant message = decode_alternative<Variant>(reader, tag);
  if (reader.remaining() != 0) refuse("it is longer than its contents");
  return message;
}

}  // namespace

void encode(const UpMessage& message, Bytes& out) { encode_variant(message, out); }
void encode(const LogEntry& entry, Bytes& out) { encode_variant(entry, out); }

UpMessage decode_up(ByteView bytes) { return decode_variant<UpMessage>(bytes); }
LogEntry decode_log(ByteView bytes) { return decode_variant<LogEntry>(bytes); }

}  // namespace kolo::control
