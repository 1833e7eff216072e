// SPDX-License-Identifier: Apache-2.0
//
// Inputs for the machines of control/: how much of a recording (tests/control/recording.hpp) a machine hears first, and
// what it hears then. So a short input reaches a machine late in its life.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/error.hpp>

#include "fuzz.hpp"
#include "tests/control/recording.hpp"

namespace kolo::fuzz {

inline void write(Output& out, const control::Heard& heard) {
  out.number(static_cast<std::uint64_t>(heard.from)).number(heard.child);
  if (heard.from == control::Heard::From::program) {
    const control::Submission& submission = heard.submission;
    out.number(static_cast<std::uint64_t>(submission.what)).number(submission.set);
    out.number(static_cast<std::uint64_t>(submission.elements)).number(submission.name.size()).text(submission.name);
  } else {
    out.number(heard.bytes.size(), 2);
    out.text({reinterpret_cast<const char*>(heard.bytes.data()), heard.bytes.size()});
  }
}

inline control::Heard read(Input& input) {
  control::Heard heard;
  heard.from = static_cast<control::Heard::From>(input.byte() % 3);
  heard.child = input.byte() % control::kRecordedSize;
  if (heard.from == control::Heard::From::program) {
    heard.submission.what = static_cast<control::Submission::What>(input.byte() % 5);
    heard.submission.set = input.byte();
    heard.submission.elements = input.byte();
    heard.submission.name = input.text(input.byte());
  } else {
    const std::string_view bytes = input.text(input.number(2));
    const auto* const data = reinterpret_cast<const std::byte*>(bytes.data());
    heard.bytes.assign(data, data + bytes.size());
  }
  return heard;
}

/// What the machine says is checked in there.
template <class Machine>
void hear(const control::Recording& recording, std::string_view bytes) {
  Input input(bytes);
  const std::size_t first = std::min<std::size_t>(input.number(2), recording.size());
  Machine machine;
  for (std::size_t i = 0; i < first; ++i) machine.hear(recording[i]);
  try {
    while (!input.empty()) machine.hear(read(input));
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::transport);
  }
}

/// From each place of the recording, what comes next.
inline std::vector<std::string> pieces_of(const control::Recording& recording) {
  constexpr std::size_t kEvents = 6;
  std::vector<std::string> all;
  for (std::size_t first = 0; first < recording.size(); first += kEvents) {
    Output out;
    out.number(first, 2);
    for (std::size_t i = first; i < std::min(first + 2 * kEvents, recording.size()); ++i) write(out, recording[i]);
    all.push_back(out.bytes());
  }
  return all;
}

}  // namespace kolo::fuzz
