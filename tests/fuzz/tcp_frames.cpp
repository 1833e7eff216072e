// SPDX-License-Identifier: Apache-2.0
//
// What comes over a connection between leaders, in whatever pieces: frames, or a bad length.
#include "fuzz.hpp"

#include <algorithm>
#include <cstring>

#include "control/tcp/frame_inbox.hpp"

namespace kolo::fuzz {

/// The first byte says how long the pieces are in which the rest comes.
void run(std::string_view bytes) {
  Input input(bytes);
  const std::size_t piece = std::size_t{input.byte()} + 1;
  const std::string_view sent = input.rest();
  tcp::FrameInbox inbox;
  std::string taken;
  for (std::size_t at = 0; at < sent.size();) {
    const std::size_t came = std::min(piece, sent.size() - at);
    auto* const room = inbox.room();
    KOLO_CHECK(inbox.free() >= came) << "there is no room for what comes";
    std::memcpy(room, sent.data() + at, came);
    inbox.commit(came);
    at += came;
    while (const auto frame = inbox.take()) {
      Output head;
      taken += head.number(frame->size(), tcp::kLengthBytes).bytes();
      taken.append(reinterpret_cast<const char*>(frame->data()), frame->size());
    }
    if (inbox.bad_length() != 0) break;
  }
  KOLO_CHECK(sent.substr(0, taken.size()) == taken) << "frames are not what was sent";
  KOLO_CHECK(inbox.bad_length() == 0 || inbox.bad_length() > tcp::kMaxFrameBytes);
}

std::vector<std::string> seeds() {
  Output frames;
  for (const std::size_t bytes : {0, 1, 200, 3}) {
    frames.number(bytes, tcp::kLengthBytes).text(std::string(bytes, 'x'));
  }
  return {'\0' + frames.bytes(), '\7' + frames.bytes(), '\xff' + frames.bytes(),
          Output().number(3).text("\xff\xff\xff\x3f...").bytes(),
          Output().number(3).number(0x40000001, 4).text("....").bytes()};
}

}  // namespace kolo::fuzz
