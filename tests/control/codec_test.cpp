// SPDX-License-Identifier: Apache-2.0
#include "control/codec.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "tests/support/control_samples.hpp"

namespace kolo::control {
namespace {

TEST(Codec, BringsEveryMessageBack) {
  for (const UpMessage& message : sample_up()) {
    const UpMessage back = decode_up(encoded(message));
    EXPECT_EQ(back.index(), message.index());
    EXPECT_EQ(encoded(back), encoded(message));
  }
  ASSERT_EQ(sample_log().size(), std::variant_size_v<LogEntry>);
  for (const LogEntry& entry : sample_log()) {
    const LogEntry back = decode_log(encoded(entry));
    EXPECT_EQ(back.index(), entry.index());
    EXPECT_EQ(encoded(back), encoded(entry));
  }
}

TEST(Codec, BringsEveryFieldBack) {
  const auto declared = std::get<Declared>(decode_up(encoded(sample_up()[2])));
  EXPECT_EQ(declared.set, 7U);
  EXPECT_EQ(declared.name, "layer1.weight");
  EXPECT_EQ(declared.round, 3U);
  EXPECT_EQ(declared.id, core::kNoTensor);
  EXPECT_EQ(declared.generation, 0);
  ASSERT_EQ(declared.variants.size(), 2U);
  EXPECT_EQ(declared.variants[0].signature, sample_signature());
  EXPECT_EQ(declared.variants[0].signature->names, sample_signature().names);
  EXPECT_EQ(declared.variants[0].ranks, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_FALSE(declared.variants[1].signature.has_value());
  EXPECT_TRUE(declared.members.empty());
  EXPECT_EQ(std::get<Declared>(decode_up(encoded(sample_up()[4]))).members, (std::vector<std::int32_t>{1, 1023}));
  const auto overdue = std::get<Overdue>(decode_up(encoded(sample_up()[6])));
  EXPECT_EQ(overdue.waited_s, kWaited);
  EXPECT_TRUE(overdue.deadline);
  EXPECT_TRUE(overdue.running);
  EXPECT_EQ(overdue.request.members, (std::vector<std::int32_t>{2, 900}));
  const auto deserted = std::get<Deserted>(decode_up(encoded(sample_up()[15])));
  EXPECT_EQ(deserted.rank, 1023);
  EXPECT_EQ(deserted.by, 0);
  EXPECT_EQ(std::get<Deserted>(decode_up(encoded(sample_up()[16]))).by, -1);
  const auto answer = std::get<Answer>(decode_up(encoded(sample_up()[10])));
  EXPECT_TRUE(answer.submitted);
  EXPECT_EQ(answer.doing, Doing::standing);
  EXPECT_EQ(answer.awaited, (std::vector<std::int32_t>{0, 7}));
  ASSERT_TRUE(answer.wait.has_value());
  EXPECT_EQ(answer.wait->set, 3U);
  EXPECT_EQ(answer.wait->name, "y");
  EXPECT_EQ(answer.wait->round, kMost);
  EXPECT_EQ(answer.wait->members, (std::vector<std::int32_t>{2, 5}));
  EXPECT_FALSE(overdue.request.join);
  EXPECT_FALSE(overdue.asked);
  EXPECT_TRUE(std::get<Overdue>(decode_up(encoded(sample_up()[13]))).asked);
  EXPECT_TRUE(overdue.alone);
  EXPECT_TRUE(std::get<Overdue>(decode_up(encoded(sample_up()[13]))).request.join);
  const auto joined = std::get<Joined>(decode_up(encoded(sample_up()[12])));
  EXPECT_EQ(joined.rank, 3);
  EXPECT_EQ(joined.set, 7U);
  EXPECT_EQ(joined.read, kMost);
  EXPECT_EQ(joined.steps, 12U);
  ASSERT_EQ(joined.submissions.size(), 2U);
  EXPECT_EQ(joined.submissions[0].round, 18U);
  EXPECT_EQ(joined.submissions[0].id, 0U);
  EXPECT_EQ(joined.submissions[1].name, "x");
  EXPECT_EQ(joined.submissions[1].id, core::kNoTensor);
  EXPECT_EQ(joined.submissions[1].signature, sample_signature());
  const auto awaited = std::get<PartAwaited>(decode_up(encoded(sample_up()[5])));
  EXPECT_EQ(awaited.lacking, (std::vector<core::TensorId>{17, 3, core::kNoTensor}));
  EXPECT_EQ(awaited.round, 99U);
  const auto plan = std::get<PlanDefined>(decode_log(encoded(sample_log()[3])));
  EXPECT_EQ(plan.batches, (std::vector<std::vector<core::TensorId>>{{3, 4, 5}, {}, {6}}));
  const auto added = std::get<SetAdded>(decode_log(encoded(sample_log()[9])));
  EXPECT_EQ(added.base, core::kFirstRow);
  EXPECT_EQ(added.generation, 2);
  EXPECT_EQ(added.members, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(added.name, "add");
  EXPECT_EQ(std::get<Failed>(decode_log(encoded(sample_log()[6]))).request.members, (std::vector<std::int32_t>{0, 3}));
  EXPECT_EQ(std::get<Query>(decode_log(encoded(sample_log()[7]))).request.members, (std::vector<std::int32_t>{0, 3}));
  const auto stalled = std::get<Stalled>(decode_log(encoded(sample_log()[8])));
  EXPECT_EQ(stalled.request.members, (std::vector<std::int32_t>{4, 5, 6}));
  EXPECT_EQ(stalled.request.round, kMost);
  EXPECT_EQ(stalled.kind, core::CollectiveKind::barrier);
  EXPECT_TRUE(stalled.asked);
  EXPECT_EQ(std::get<Overdue>(decode_up(encoded(sample_up()[13]))).kind, core::kLastCollective);
  EXPECT_EQ(std::get<SetRemoved>(decode_log(encoded(sample_log()[10]))).set, 1U);
  const auto absent = std::get<RankJoined>(decode_log(encoded(sample_log()[15])));
  EXPECT_EQ(absent.set, 1U);
  EXPECT_EQ(absent.rank, 5);
  EXPECT_EQ(absent.submissions, (std::vector<std::string>{"", "x"}));
  const auto ended = std::get<JoinEnded>(decode_log(encoded(sample_log()[16])));
  EXPECT_EQ(ended.set, 1U);
  EXPECT_EQ(ended.last, 6);
  EXPECT_EQ(ended.steps, kMost);
  EXPECT_EQ(ended.code, ErrorCode::ok);
  EXPECT_TRUE(std::get<Query>(decode_log(encoded(LogEntry(Query{1, {0, "", 1, {}, true}})))).request.join);
  EXPECT_TRUE(std::get<Stalled>(decode_log(encoded(LogEntry(Stalled{{0, "", 1, {}, true}, 1, {}})))).request.join);
  const auto faulted = std::get<Faulted>(decode_log(encoded(sample_log()[12])));
  EXPECT_EQ(faulted.rank, -1);
  EXPECT_EQ(faulted.code, ErrorCode::timeout);
}

TEST(Codec, IsShortWhereStepsAreSteady) {
  EXPECT_EQ(encoded(LogEntry(PlannedBatch{100, 120, 63})).size(), 4U);
  EXPECT_EQ(encoded(UpMessage(Counted{120, {3, 120}})).size(), 5U);
  EXPECT_LE(encoded(sample_up()[0]).size(), 17U);
}

template <class Decode>
void expect_refused(Decode decode, const Bytes& bytes, const char* why) {
  try {
    decode(bytes);
    ADD_FAILURE() << "accepted; expected: " << why;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    EXPECT_EQ(error.status().message(), std::string("a control message is not valid: ") + why);
  }
}

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(Codec, SaysWhyItRefuses) {
  const auto up = [](const Bytes& bytes) { return decode_up(bytes); };
  const auto log = [](const Bytes& bytes) { return decode_log(bytes); };
  expect_refused(up, {}, "it ends too early");
  expect_refused(up, bytes_of({200}), "its kind is unknown");
  expect_refused(log, bytes_of({200}), "its kind is unknown");
  expect_refused(log, bytes_of({5, 1}), "it ends too early");
  expect_refused(log, bytes_of({5, 1, 1, 0, 0}), "it is longer than its contents");
  expect_refused(log, bytes_of({5, 0xff, 0xff, 0xff, 0xff, 0x1f, 0}), "a number is too large");
  expect_refused(up, bytes_of({5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2}),
                 "a number has more than 64 bits");
  expect_refused(up, bytes_of({5, 0xff, 0xff, 0xff, 0xff, 0x7f}), "a number is out of range");
  expect_refused(log, bytes_of({2, 0, 0xff, 0xff, 0xff, 0x7f}), "a list is longer than the message");
  expect_refused(log, bytes_of({2, 0, 1, 1}), "a list's item is out of range");
  expect_refused(log, bytes_of({12, kErrorCodeCount, 0, 0}), "a choice is unknown");
  expect_refused(up, bytes_of({3, 0, 0, 0, 0, 0, 2}), "a flag is neither 0 nor 1");
}

/// Either a message or an Error; what is accepted encodes again.
template <class Decode>
bool survives(Decode decode, const Bytes& bytes) {
  try {
    const auto message = decode(bytes);
    const Bytes again = encoded(message);
    EXPECT_EQ(encoded(decode(again)), again);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    return false;
  }
}

void mutate(Bytes& bytes, std::mt19937_64& random) {
  const std::size_t at = bytes.empty() ? 0 : random() % bytes.size();
  switch (random() % 5) {
  case 0:
    if (!bytes.empty()) bytes[at] = static_cast<std::byte>(random());
    break;
  case 1:
    if (!bytes.empty()) bytes[at] ^= static_cast<std::byte>(1U << (random() % 8));
    break;
  case 2:
    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::byte>(random()));
    break;
  case 3:
    if (!bytes.empty()) bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
    break;
  default:
    bytes.resize(at);
  }
}

TEST(Codec, SurvivesMutations) {
  std::mt19937_64 random(1);
  std::size_t accepted = 0;
  for (int turn = 0; turn < 4000; ++turn) {
    for (const UpMessage& message : sample_up()) {
      Bytes bytes = encoded(message);
      for (std::uint64_t i = 0; i <= random() % 3; ++i) mutate(bytes, random);
      accepted += survives([](const Bytes& b) { return decode_up(b); }, bytes) ? 1U : 0U;
    }
    for (const LogEntry& entry : sample_log()) {
      Bytes bytes = encoded(entry);
      for (std::uint64_t i = 0; i <= random() % 3; ++i) mutate(bytes, random);
      accepted += survives([](const Bytes& b) { return decode_log(b); }, bytes) ? 1U : 0U;
    }
  }
  EXPECT_GT(accepted, 1000U);
  EXPECT_LT(accepted, 4000U * 24U);
}

TEST(Codec, SurvivesNoise) {
  std::mt19937_64 random(2);
  for (int turn = 0; turn < 100000; ++turn) {
    Bytes bytes(random() % 40);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 3 == 0 ? random() % 8 : random());
    survives([](const Bytes& b) { return decode_up(b); }, bytes);
    survives([](const Bytes& b) { return decode_log(b); }, bytes);
  }
}

TEST(Codec, AllocatesNoMoreThanItsInputJustifies) {
  // Lists that claim 2^40 items: refused by their length, before anything is reserved.
  const Bytes many = bytes_of({0xff, 0xff, 0xff, 0xff, 0xff, 0x1f});
  for (const int tag : {2, 3}) {
    Bytes bytes = bytes_of({tag, 0});
    if (tag == 3) bytes.push_back(std::byte{0});
    bytes.insert(bytes.end(), many.begin(), many.end());
    expect_refused([](const Bytes& b) { return decode_log(b); }, bytes, "a list is longer than the message");
  }
  // As many as there are bytes left, of items that take more than one each.
  Bytes variants = encoded(UpMessage(Declared{0, "", 1, 0, 0, {}}));
  variants.resize(variants.size() - 2);  // no members, and who was last
  variants.back() = std::byte{100};
  variants.resize(variants.size() + 100);
  expect_refused([](const Bytes& b) { return decode_up(b); }, variants, "a list is longer than the message");
}

}  // namespace
}  // namespace kolo::control
