// SPDX-License-Identifier: Apache-2.0
//
// What comes over a connection between rank 0 and another one, in whatever pieces: frames, or an Error.
#include "fuzz.hpp"

#include <algorithm>

#include <kolo/error.hpp>

#include "launch/connection.hpp"

namespace kolo::fuzz {
namespace {

constexpr std::size_t kLongest = 300;

}  // namespace

/// The first byte says how long the pieces are in which the rest comes.
void run(std::string_view bytes) {
  Input input(bytes);
  const std::size_t piece = std::size_t{input.byte()} + 1;
  launch::FrameReader reader(kLongest);
  try {
    while (!input.empty()) {
      const std::string_view came = input.text(piece);
      reader.append(came.data(), came.size());
      while (const auto received = reader.take("rank 0")) {
        KOLO_CHECK(received->frame.body.size() <= kLongest);
        launch::FrameReader again(kLongest);
        const launch::EncodedFrame encoded(received->frame);
        again.append(encoded.bytes.data(), encoded.bytes.size());
        again.append(reinterpret_cast<const char*>(received->proof.data()), received->proof.size());
        const auto back = again.take("rank 0");
        KOLO_CHECK(back && back->frame.body == received->frame.body && back->frame.step == received->frame.step &&
                   back->frame.type == received->frame.type && back->proof == received->proof);
      }
      KOLO_CHECK(!reader.is_full()) << "a frame is whole, and was not taken";
    }
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::transport);
  }
}

std::vector<std::string> seeds() {
  std::string frames;
  for (const launch::Frame& frame :
       {launch::Frame{launch::FrameType::contribution, 1, "first"}, launch::Frame{launch::FrameType::waiting, 2, ""},
        launch::Frame{launch::FrameType::failure, 3, std::string(kLongest, 'x')},
        launch::Frame{launch::FrameType::notice, 0, "a notice"}}) {
    frames += launch::EncodedFrame(frame).bytes + std::string(sizeof(base::Word), 'p');
  }
  return {'\0' + frames, '\6' + frames, '\xff' + frames, '\xff' + frames.substr(0, 60)};
}

}  // namespace kolo::fuzz
