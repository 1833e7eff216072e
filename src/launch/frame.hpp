// SPDX-License-Identifier: Apache-2.0
//
// What ranks say to each other as they meet (exchange.hpp), as bytes: frames, and the proof behind each. No socket
// here; connection.hpp has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/proof.hpp"

namespace kolo::launch {

/// exchange.hpp tells who sends which.
enum class FrameType : std::uint8_t { contribution = 1, waiting = 2, result = 3, failure = 4 };

struct Frame {
  FrameType type = FrameType::contribution;
  std::uint32_t step = 0;
  std::string body;
};

/// A frame as it is sent, without its proof, which is another on each connection.
struct EncodedFrame {
  explicit EncodedFrame(const Frame& frame);
  std::string bytes;
  base::Word digest;
};

/// What stands behind a frame: HMAC(session key, the direction, how many went before it in that direction, a digest of
/// it).
[[nodiscard]] base::Word proof_of_frame(const base::Word& key, bool by_root, std::uint64_t number,
                                        const base::Word& digest);

/// One direction of a connection. Trusts nothing: bytes become frames, or an Error (transport).
class FrameReader {
 public:
  /// `longest`: of a body.
  explicit FrameReader(std::size_t longest) : longest_(longest) {}

  void append(const char* bytes, std::size_t size) { received_.append(bytes, size); }
  /// More is here than the longest frame: `take` decides, before more is received.
  [[nodiscard]] bool is_full() const noexcept;

  struct Received {
    Frame frame;
    base::Word digest{};
    base::Word proof{};  ///< as it came: the caller compares it
  };
  /// The next frame, once it is whole with its proof. Throws Error (transport) for bytes that are no frame, and for one
  /// that is too long; `peer` is who sent them: "rank 0".
  [[nodiscard]] std::optional<Received> take(std::string_view peer);

 private:
  std::size_t longest_;
  std::string received_;
};

}  // namespace kolo::launch
