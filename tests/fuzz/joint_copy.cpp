// SPDX-License-Identifier: Apache-2.0
//
// A copy that two ranks make together, whose state lies in memory that other processes write: whatever stands there,
// what is copied lies inside of the message.
#include "fuzz.hpp"

#include <cstring>
#include <memory>

#include "transport/joint_copy.hpp"

namespace kolo::fuzz {
namespace {

constexpr std::size_t kBytes = std::size_t{100} << 10;

class Memory final : public transport::PeerMemory {
 public:
  Status read(int, void*, const void*, std::size_t) override { return {}; }
  Status write(int, const Target&, const void* from, std::size_t bytes) override {
    const auto* const data = static_cast<const std::byte*>(from);
    const std::vector<std::byte> copy(data, data + bytes);
    return copy.size() == bytes ? Status() : Status(ErrorCode::transport, "no");
  }
  [[nodiscard]] bool sees_writers() const noexcept override { return true; }
  [[nodiscard]] bool may_be_writing(int, int) const noexcept override { return true; }
  [[nodiscard]] bool reads_by_system() const noexcept override { return true; }
};

}  // namespace

/// What each side does, and what another process writes into the state meanwhile.
void run(std::string_view bytes) {
  Input input(bytes);
  transport::JointCopy copy{};
  const std::vector<std::byte> data(kBytes);
  std::vector<std::byte> to(kBytes);
  Memory memory;
  transport::JointCopy::Number number = copy.open(to.data(), kBytes);
  const auto data_of = [&](const transport::JointCopy::Piece& piece) {
    return transport::is_within(piece, kBytes) ? data.data() + piece.begin : nullptr;
  };
  while (!input.empty()) {
    switch (input.byte() % 5) {
    case 0: {
      const transport::JointCopy::Piece piece = copy.take();
      if (transport::is_within(piece, kBytes)) std::memset(to.data() + piece.begin, 1, piece.bytes);
      break;
    }
    case 1:
      static_cast<void>(copy.help(memory, 0, number, data_of));
      break;
    case 2:
      static_cast<void>(copy.revoke(memory, 1, base::Duration::zero()));
      number = copy.open(to.data(), kBytes);
      break;
    default: {
      const std::size_t at = input.byte() % sizeof copy;
      const std::string_view written = input.text(std::min<std::size_t>(input.byte() % 9, sizeof copy - at));
      if (!written.empty()) std::memcpy(reinterpret_cast<std::byte*>(&copy) + at, written.data(), written.size());
    }
    }
  }
}

std::vector<std::string> seeds() {
  Output overwritten;
  overwritten.number(3).number(24).number(8).number(0, 8).number(0).number(1);
  return {std::string(12, '\0'), std::string(12, '\1'), std::string("\0\1\0\1\1\2\0\1\1", 9), overwritten.bytes()};
}

}  // namespace kolo::fuzz
