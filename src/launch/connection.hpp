// SPDX-License-Identifier: Apache-2.0
//
// The bytes that ranks exchange when they meet (exchange.hpp): frames, and the proof after each; and frames over a
// connected socket, without blocking.
//
// The session key comes from the handshake (base/handshake.hpp). A process between rank 0 and a rank that has passed on
// their handshake can read frames, but cannot change, remove or insert one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/proof.hpp"
#include "base/unique_fd.hpp"

namespace kolo::launch {

/// exchange.hpp says which rank sends which; notice_link.hpp is about notices.
enum class FrameType : std::uint8_t { contribution = 1, waiting = 2, result = 3, failure = 4, notice = 5 };

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

/// The two sides of a connection.
struct Session {
  base::Word key{};
  bool is_root = false;  ///< whether this is rank 0's end
  std::string peer;      ///< for sentences: "rank 0", "rank 3 (process 12 at 10.0.0.2:4711)"
};

/// One thread at a time.
class Connection {
 public:
  /// `longest`: the longest body that the other side may send.
  Connection(base::UniqueFd fd, Session session, std::size_t longest)
      : fd_(std::move(fd)), session_(std::move(session)), reader_(longest) {}

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// The events to wait for, as poll(2) names them.
  [[nodiscard]] short events() const noexcept;
  /// Empty while the connection is open; then the reason: "Connection reset by peer (errno 104)", "it was closed".
  /// Frames that arrived before can still be taken.
  [[nodiscard]] const std::string& lost() const noexcept { return lost_; }

  void send(const Frame& frame) { send(EncodedFrame(frame)); }
  void send(const EncodedFrame& frame);
  [[nodiscard]] bool flushed() const noexcept { return unsent_.empty(); }
  /// Sends and receives as much as possible without blocking.
  void pump();
  /// The next frame, once it is whole. Throws Error (transport) for bytes that are no frame, a frame that is too long,
  /// or one with a wrong proof.
  [[nodiscard]] std::optional<Frame> take();

 private:
  void send_some();
  void receive_some();

  base::UniqueFd fd_;
  Session session_;
  FrameReader reader_;
  std::uint64_t frames_sent_ = 0;
  std::uint64_t frames_taken_ = 0;
  std::string unsent_;
  std::string lost_;
};

}  // namespace kolo::launch
