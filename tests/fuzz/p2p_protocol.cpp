// SPDX-License-Identifier: Apache-2.0
//
// A rank that sends and receives, while two others say what they like: messages end, or the job does by an Error; what
// has ended is not touched any more.
#include "fuzz.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <set>

#include <kolo/error.hpp>

#include "data/p2p/protocol.hpp"

namespace kolo::fuzz {
namespace {

constexpr int kRanks = 3;  // this one is rank 0
constexpr std::size_t kMostOpen = 16;

/// What the others say comes from here; what this rank says is counted.
class Peers final : public p2p::Channels {
 public:
  struct Said {
    int source = 1;
    p2p::Frame frame;
    std::vector<std::byte> data;
  };
  std::deque<Said> said;
  bool has_room = true;
  bool permits_reading = true;
  Read outcome = Read::done;
  [[nodiscard]] std::size_t open_permits() const noexcept { return permits_.size(); }

  [[nodiscard]] std::size_t frame_bytes(int) const override { return 2000; }
  [[nodiscard]] bool put(int rank, const p2p::Frame&, const std::byte* data, std::size_t bytes) override {
    KOLO_CHECK(rank > 0 && rank < kRanks);
    const std::vector<std::byte> copy(data, data + bytes);
    return has_room && copy.size() == bytes;
  }
  bool take(p2p::FrameHandler& handler) override {
    if (said.empty() || !handler.wants(said.front().source)) return false;
    const Said one = std::move(said.front());
    said.pop_front();
    handler.on_frame(one.source, one.frame, one.data.data(), one.data.size());
    return true;
  }
  [[nodiscard]] std::uint32_t permit(int, std::size_t) override {
    if (!permits_reading) return 0;
    permits_.insert(++last_permit_);
    return last_permit_;
  }
  void end(std::uint32_t permit) noexcept override { KOLO_CHECK(permits_.erase(permit) == 1); }
  [[nodiscard]] std::uint64_t read_bytes() const noexcept override { return 3000; }
  [[nodiscard]] Read read(int, std::uint32_t, std::byte* to, std::uint64_t, std::size_t bytes) override {
    std::fill_n(to, bytes, std::byte{0x5A});  // of nothing, `to` is null
    return outcome;
  }
  void note_wait(int) noexcept override {}
  [[nodiscard]] int wait_of(int rank) const noexcept override { return (rank + 1) % kRanks; }

 private:
  std::set<std::uint32_t> permits_;
  std::uint32_t last_permit_ = 0;
};

struct Letter {
  std::vector<std::byte> memory;
  p2p::Message message;
};

constexpr std::array<std::size_t, 8> kSizes = {0, 1, 8, 1000, p2p::kWholeBytes, p2p::kWholeBytes + 1, 9000, 20000};
constexpr std::array<std::uint64_t, 4> kSets = {0, 1, 2, 3};

enum class Does : std::uint8_t {
  send,
  receive,
  hear,
  step,
  give_up,
  cancel,
  provide,
  set,
  leave,
  expire,
  peers,
  count
};

class Rank {
 public:
  void run(Input& input) {
    try {
      while (!input.empty()) {
        act(static_cast<Does>(input.byte() % static_cast<int>(Does::count)), input);
        forget_done();
      }
      for (std::size_t left = peers_.said.size(); left > 0; --left) {
        protocol_.progress();
        forget_done();
      }
    } catch (const Error& error) {
      KOLO_CHECK(error.code() == ErrorCode::transport) << error.what();
      protocol_.close(error.status());
    }
    protocol_.close({ErrorCode::shut_down, "the end"});
    for (const auto& letter : letters_) KOLO_CHECK(letter->message.done()) << "a message is open after the end";
    KOLO_CHECK(peers_.open_permits() == 0) << "memory may still be read";
  }

 private:
  void act(Does what, Input& input) {
    switch (what) {
    case Does::send:
      return start(p2p::Message::Role::send, input);
    case Does::receive:
      return start(p2p::Message::Role::receive, input);
    case Does::hear:
      return hear(input);
    case Does::step:
      protocol_.progress();
      for (const auto& letter : letters_) {
        if (letter->message.peer == p2p::kAny) protocol_.await(letter->message);
      }
      return;
    case Does::give_up:
      if (p2p::Message* message = one_of(input)) protocol_.give_up(*message, {ErrorCode::expired, "too late"});
      return;
    case Does::cancel:
      if (p2p::Message* message = one_of(input)) {
        if (message->role == p2p::Message::Role::receive) protocol_.cancel(*message);
      }
      return;
    case Does::provide:
      return provide(input);
    case Does::set:
      return change_sets(input);
    case Does::leave:
      protocol_.on_departed(1 + input.byte() % (kRanks - 1), input.byte() % 2 == 0 ? base::Time::min() : now_);
      return;
    case Does::expire:
      now_ += std::chrono::seconds(1 + input.byte());
      protocol_.expire(now_);
      return;
    case Does::peers:
      return change_peers(input);
    case Does::count:
      return;
    }
  }

  void start(p2p::Message::Role role, Input& input) {
    if (letters_.size() >= kMostOpen) return;
    const bool sends = role == p2p::Message::Role::send;
    auto letter = std::make_unique<Letter>();
    p2p::Message& message = letter->message;
    letter->memory.resize(kSizes[input.byte() % kSizes.size()]);
    message.role = role;
    const std::uint8_t kind = input.byte();
    message.dtype = kind % 4 == 0 ? DType::boolean : DType::uint8;
    message.on_device = (kind & 0x10) != 0;
    message.peer = input.byte() % (kRanks + (sends ? 0 : 1)) - (sends ? 0 : 1);
    message.tag = static_cast<std::int32_t>(input.byte() % 3) - (sends ? 0 : 1);
    message.set = kSets[input.byte() % 2];
    message.data = letter->memory.data();
    message.tensor = message.data;
    message.bytes = letter->memory.size();
    message.is_late = sends && (input.byte() % 4 == 3 || message.on_device);
    if (message.on_device) message.owner = &message;  // the protocol tells of its end
    message.begun = now_;
    message.deadline = now_ + std::chrono::seconds(input.byte());
    letters_.push_back(std::move(letter));
    protocol_.start(message);
  }

  void hear(Input& input) {
    Peers::Said said;
    said.source = 1 + input.byte() % (kRanks - 1);
    p2p::Frame& frame = said.frame;
    const std::uint8_t kind = input.byte();
    frame.kind = static_cast<p2p::FrameKind>(kind % 9);
    frame.way = static_cast<p2p::Way>(kind / 9 % 4);  // one that does not exist among them
    frame.id = input.byte() % 8;
    frame.set = kSets[input.byte() % kSets.size()];
    const std::uint8_t how_much = input.byte();
    frame.bytes = how_much < 0xF0 ? kSizes[how_much % kSizes.size()] : input.number(8);
    frame.tag = static_cast<std::int32_t>(input.byte() % 3);
    frame.permit = input.byte() % 3;
    frame.dtype = static_cast<DType>(input.byte() % 2 == 0 ? static_cast<int>(DType::uint8) : input.byte());
    frame.refusal = static_cast<p2p::Refusal>(input.byte() % 6);
    if (frame.kind == p2p::FrameKind::withdrawn || frame.kind == p2p::FrameKind::refused)
      frame.because = static_cast<std::int32_t>(frame.id) - 1;
    // Of a part: mostly one that is due.
    const std::uint8_t length = input.byte();
    const std::size_t limit = std::min<std::uint64_t>(frame.bytes, 20000);
    said.data.resize(length % 2 == 0 && frame.kind == p2p::FrameKind::whole ? limit : kSizes[length % kSizes.size()]);
    peers_.said.push_back(std::move(said));
  }

  void provide(Input& input) {
    p2p::Message* const message = one_of(input);
    if (message == nullptr || !message->is_late) return;
    protocol_.provide(*message, std::min(message->bytes, message->there + 1 + 100 * input.byte()));
  }

  void change_sets(Input& input) {
    const std::uint8_t what = input.byte();
    if ((what & 4) != 0) {
      const int other = 1 + (what >> 4) % (kRanks - 1);
      protocol_.on_found((what & 8) != 0 ? p2p::Direction{0, other} : p2p::Direction{other, 0});
    } else if (what % 2 == 0) {
      protocol_.on_set(++last_set_);
    } else if (last_set_ > 0) {
      protocol_.on_set_gone(1 + input.byte() % last_set_);
    }
  }

  void change_peers(Input& input) {
    const std::uint8_t flags = input.byte();
    peers_.has_room = (flags & 1) == 0;
    peers_.permits_reading = (flags & 2) == 0;
    peers_.outcome = static_cast<p2p::Channels::Read>((flags >> 2) % 3);
  }

  p2p::Message* one_of(Input& input) {
    if (letters_.empty()) return nullptr;
    return &letters_[input.byte() % letters_.size()]->message;
  }

  /// A message that is done belongs to its caller again, who may free it once he has heard of it.
  void forget_done() {
    protocol_.take_news(news_);
    for (const p2p::Message* message : news_.done) KOLO_CHECK(message->done());
    for (const p2p::Message* send : news_.late) KOLO_CHECK(send->is_late);
    std::erase_if(letters_, [](const auto& letter) { return letter->message.done(); });
  }

  Peers peers_;
  p2p::Protocol protocol_{0, kRanks, peers_, {std::uint64_t{20} << 10, std::uint64_t{60} << 10}};
  std::vector<std::unique_ptr<Letter>> letters_;
  p2p::News news_;
  std::uint64_t last_set_ = 0;
  base::Time now_{std::chrono::seconds(1000)};
};

Output& add(Output& out, Does what) { return out.number(static_cast<std::uint64_t>(what)); }

constexpr std::uint64_t kOnDevice = 0x11;

void add_message(Output& out, Does way, int peer, std::size_t size, bool is_late = false, std::uint64_t kind = 1) {
  add(out, way).number(size).number(kind).number(static_cast<std::uint64_t>(peer + (way == Does::receive ? 1 : 0)));
  out.number(way == Does::receive ? 1 : 0).number(0);
  if (way == Does::send) out.number(is_late ? 3 : 0);
  out.number(100);
}

void add_frame(Output& out, p2p::FrameKind kind, std::uint64_t id, std::size_t size, std::uint64_t permit = 0,
               std::uint64_t length = 0, p2p::Way way = p2p::Way::host) {
  add(out, Does::hear)
      .number(0)
      .number(static_cast<std::uint64_t>(kind) + 9 * static_cast<std::uint64_t>(way))
      .number(id)
      .number(0)
      .number(size);
  out.number(0).number(permit).number(0).number(0).number(length);
  add(out, Does::step);
}

}  // namespace

void run(std::string_view bytes) {
  Input input(bytes);
  Rank().run(input);
}

/// How messages go, each way that there is.
std::vector<std::string> seeds() {
  using Kind = p2p::FrameKind;
  constexpr std::size_t kLong = 6;  // 9000 bytes
  std::vector<std::string> all;
  const auto seed = [&](auto fill) {
    Output out;
    fill(out);
    all.push_back(out.bytes());
  };
  for (const int peer : {-1, 1}) {
    seed([&](Output& out) {
      add_message(out, Does::receive, peer, 3);
      add_frame(out, Kind::whole, 1, 3);
    });
    seed([&](Output& out) {
      add_frame(out, Kind::announced, 1, kLong);
      add_message(out, Does::receive, peer, kLong);
      add_frame(out, Kind::part, 1, 0, 0, 3);
      add_frame(out, Kind::withdrawn, 1, 0);
    });
    seed([&](Output& out) {
      add_message(out, Does::receive, peer, kLong);
      add_frame(out, Kind::announced, 1, kLong, 1);
      for (int i = 0; i < 4; ++i) add(out, Does::step);
    });
    for (const std::size_t size : {std::size_t{0}, kLong}) {
      seed([&](Output& out) {
        add_message(out, Does::receive, peer, size);
        add_frame(out, Kind::announced, 1, size, 1);
        for (int i = 0; i < 4; ++i) add(out, Does::step);
      });
    }
  }
  for (const Kind answer : {Kind::wanted, Kind::taken, Kind::refused}) {
    seed([&](Output& out) {
      add_message(out, Does::send, 1, kLong);
      add_frame(out, answer, 1, 3, 2);
      for (int i = 0; i < 4; ++i) add(out, Does::step);
      add_frame(out, Kind::taken, 1, 0);
    });
  }
  seed([&](Output& out) {
    add_message(out, Does::send, 1, kLong, true);
    add_frame(out, Kind::wanted, 1, 0);
    for (int i = 0; i < 4; ++i) add(out, Does::provide).number(0).number(40);
    add(out, Does::leave).number(0).number(1);
    add(out, Does::expire).number(200);
  });
  for (const p2p::Way way : {p2p::Way::introduce, p2p::Way::device}) {
    seed([&](Output& out) {
      add(out, Does::set).number(4);  // the devices of ranks 1 and 0 have found each other
      add_message(out, Does::receive, 1, kLong, false, kOnDevice);
      add_frame(out, Kind::announced, 1, kLong, 0, 0, way);
    });
    seed([&](Output& out) {
      add(out, Does::set).number(12);  // those of ranks 0 and 1
      add_message(out, Does::send, 1, kLong, true, kOnDevice);
      add_message(out, Does::send, 1, kLong, true, kOnDevice);
      add(out, Does::give_up).number(1);
      for (const std::uint64_t id : {1, 2}) add_frame(out, Kind::wanted, id, 0, 0, 0, way);
      for (int i = 0; i < 4; ++i) add(out, Does::provide).number(0).number(40);
    });
  }
  seed([&](Output& out) {
    add(out, Does::set).number(0);
    add_message(out, Does::send, 0, kLong);
    add_message(out, Does::receive, 0, kLong);
    add(out, Does::peers).number(1);
    add_message(out, Does::send, 2, 3);
    add(out, Does::give_up).number(0);
    add(out, Does::set).number(1).number(0);
  });
  return all;
}

}  // namespace kolo::fuzz
