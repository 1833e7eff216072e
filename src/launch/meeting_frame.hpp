// SPDX-License-Identifier: Apache-2.0
//
// The bytes that ranks exchange when they meet (exchange.hpp): frames, and the proof after each. It has no socket;
// connection.hpp has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/proof.hpp"

namespace kolo::launch {

/// exchange.hpp says which rank sends which.
enum class FrameType : std::uint8_t { contribution = 1, waiting = 2, result = 3, failure = 4 };

struct Frame {
  FrameType type = FrameType::contribution;
  std::uint32_t step = 0;
  std::string body;
};

/// A frame as it is sent, without its proof, which differs on each connection.
struct EncodedFrame {
  explicit EncodedFrame(const Frame& frame);
  std::string bytes;
  base::Word digest;
};

/// The proof of a frame: HMAC(session key, the direction, the number of earlier frames in that direction, a digest of
/// the frame).
[[nodiscard]] base::Word proof_of_frame(const base::Word& key, bool by_root, std::uint64_t number,
                                        const base::Word& digest);

/// Reads one direction of a connection. Any bytes become frames, or an Error (transport).
class FrameReader {
 public:
  /// `longest`: of a body.
  explicit FrameReader(std::size_t longest) : longest_(longest) {}

  void append(const char* bytes, std::size_t size) { received_.append(bytes, size); }
  /// More bytes are here than the longest frame has: call `take` before more is received.
  [[nodiscard]] bool is_full() const noexcept;

  struct Received {
    Frame frame;
    base::Word digest{};
    base::Word proof{};  ///< as received: the caller compares it
  };
  /// The next frame, once it is whole with its proof. Throws Error (transport) for bytes that are no frame, and for one
  /// that is too long; `peer` names the sender: "rank 0".
  [[nodiscard]] std::optional<Received> take(std::string_view peer);

 private:
  std::size_t longest_;
  std::string received_;
};

}  // namespace kolo::launch
