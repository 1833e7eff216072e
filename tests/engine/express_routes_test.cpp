// SPDX-License-Identifier: Apache-2.0
//
// Calls that read their peers' memory: who decides that they do, and a rank that gives up while its memory has not been
// read.
#include "engine/express_routes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace kolo::engine {
namespace {

using control::Express;
using core::CollectiveKind;

constexpr std::int64_t kElements = 1000;

/// Ranks of one process: a peer's memory is this one's.
class OwnMemory final : public transport::PeerMemory {
 public:
  explicit OwnMemory(std::function<void()>& meanwhile) : meanwhile_(meanwhile) {}
  [[nodiscard]] bool reads_by_system() const noexcept override { return false; }
  Status read(int, void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    if (meanwhile_) meanwhile_();
    return {};
  }
  Status write(int, const Target& target, const void* from, std::size_t bytes) override {
    std::memcpy(reinterpret_cast<void*>(target.address.load()), from, bytes);
    return {};
  }
  [[nodiscard]] bool sees_writers() const noexcept override { return true; }
  [[nodiscard]] bool may_be_writing(int, int) const noexcept override { return true; }
  [[nodiscard]] bool is_readable(const void*, std::size_t) override { return readable; }
  bool readable = true;

 private:
  std::function<void()>& meanwhile_;
};

/// Of two ranks.
class Memory {
 public:
  explicit Memory(std::size_t capacity) : column_(Express::column_bytes(capacity)) {
    std::memset(memory_.get(), 0, 2 * column_);
  }
  [[nodiscard]] base::Columns columns() const { return base::Columns::in_a_row(memory_.get(), column_, 2); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
  };
  const std::size_t column_;
  const std::unique_ptr<std::byte, Free> memory_{
      static_cast<std::byte*>(::operator new (2 * column_, std::align_val_t{4096}))};
};

class DirectCalls : public ::testing::TestWithParam<CollectiveKind> {
 protected:
  struct End {
    End(const base::Columns& columns, int rank)
        : express(columns, kCapacity, rank),
          routes(express, {std::make_shared<OwnMemory>(meanwhile), {0, 1}, {0, 1}}, limits()) {
      std::iota(input.begin(), input.end(), 1.0F);
    }
    static ExpressLimits limits() { return {256, 16, 1 << 20, 1 << 20}; }
    [[nodiscard]] ExpressCall call(CollectiveKind kind) {
      ExpressCall call;
      call.kind = kind;
      call.shape = kind == CollectiveKind::allgather ? Shape{} : Shape{kElements};
      auto* const out = reinterpret_cast<std::byte*>(output.data());
      call.buffer = {reinterpret_cast<const std::byte*>(input.data()), out, kElements};
      call.make_room = [out](const std::vector<std::int64_t>&) { return out; };
      return call;
    }
    std::function<void()> meanwhile;  ///< while this rank reads
    Express express;
    ExpressRoutes routes;
    std::vector<float> input = std::vector<float>(kElements);
    std::vector<float> output = std::vector<float>(2 * kElements, -1.0F);
  };

  static constexpr std::size_t kCapacity = 256;
  const Memory memory_{kCapacity};
  const base::Columns columns_ = memory_.columns();
  End patient_{columns_, 1};
  End root_{columns_, 0};
};

using WithdrawnMemory = DirectCalls;

/// The root's deadline passes before its peer has come to read: the peer must not take what is there then for data.
TEST_P(WithdrawnMemory, IsNoResult) {
  const ExpressCall at_root = root_.call(GetParam());
  const ExpressCall at_peer = patient_.call(GetParam());
  root_.express.speak(root_.routes.prepare(at_root));
  patient_.express.speak(patient_.routes.prepare(at_peer));
  ASSERT_EQ(root_.express.look(), Express::Verdict::together);
  ASSERT_EQ(patient_.express.look(), Express::Verdict::together);
  const auto gives_up = [](const std::function<bool()>& there) {
    if (!there()) throw Error(ErrorCode::timeout, "no patience");
  };
  EXPECT_THROW(root_.routes.run(at_root, gives_up), Error);
  root_.input.assign(kElements, 99.0F);  // it is the caller's again
  try {
    patient_.routes.run(at_peer, gives_up);
    FAIL() << "stale memory passed for a result";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    EXPECT_EQ(error.status().message(), "rank 0 gave up the call before its peers had read its data");
  }
}

/// Between threads a copy of memory that has gone would crash.
TEST_P(WithdrawnMemory, StaysUntilAThreadHasReadIt) {
  const ExpressCall at_root = root_.call(GetParam());
  const ExpressCall at_peer = patient_.call(GetParam());
  root_.express.speak(root_.routes.prepare(at_root));
  patient_.express.speak(patient_.routes.prepare(at_peer));
  ASSERT_EQ(root_.express.look(), Express::Verdict::together);
  ASSERT_EQ(patient_.express.look(), Express::Verdict::together);
  const auto gives_up = [](const std::function<bool()>& there) {
    if (!there()) throw Error(ErrorCode::timeout, "no patience");
  };
  std::atomic<bool> is_reading{false};
  std::thread impatient;
  patient_.meanwhile = [&] {
    is_reading = true;
    impatient = std::thread([&] {
      EXPECT_THROW(root_.routes.run(at_root, gives_up), Error);
      EXPECT_FALSE(is_reading) << "its caller could have freed the memory";
    });
    while (!root_.express.has_withdrawn(0)) std::this_thread::yield();
    is_reading = false;
  };
  EXPECT_THROW(patient_.routes.run(at_peer, gives_up), Error);
  impatient.join();
}

/// Nor is it read after that.
TEST_P(WithdrawnMemory, IsNotReadByAThread) {
  const ExpressCall at_root = root_.call(GetParam());
  const ExpressCall at_peer = patient_.call(GetParam());
  root_.express.speak(root_.routes.prepare(at_root));
  patient_.express.speak(patient_.routes.prepare(at_peer));
  ASSERT_EQ(root_.express.look(), Express::Verdict::together);
  ASSERT_EQ(patient_.express.look(), Express::Verdict::together);
  root_.express.withdraw();
  patient_.meanwhile = [] { ADD_FAILURE() << "it may be gone"; };
  EXPECT_THROW(patient_.routes.run(at_peer, [](const std::function<bool()>&) {}), Error);
}

TEST_P(WithdrawnMemory, IsNotWhatHasBeenReadInTime) {
  const ExpressCall at_root = root_.call(GetParam());
  const ExpressCall at_peer = patient_.call(GetParam());
  root_.express.speak(root_.routes.prepare(at_root));
  patient_.express.speak(patient_.routes.prepare(at_peer));
  ASSERT_EQ(root_.express.look(), Express::Verdict::together);
  ASSERT_EQ(patient_.express.look(), Express::Verdict::together);
  bool root_has_run = false;
  const auto drives = [&](const std::function<bool()>& there) {
    if (there()) return;
    if (!root_has_run) {
      root_has_run = true;
      root_.routes.run(at_root, [](const std::function<bool()>&) {});
    }
    EXPECT_TRUE(there());
  };
  patient_.routes.run(at_peer, drives);
  const std::size_t from = GetParam() == CollectiveKind::alltoall ? 0 : kElements - 1;
  EXPECT_EQ(patient_.output[from],
            GetParam() == CollectiveKind::alltoall ? root_.input[kElements / 2] : root_.input[from]);
}

INSTANTIATE_TEST_SUITE_P(Direct, WithdrawnMemory,
                         ::testing::Values(CollectiveKind::broadcast, CollectiveKind::allgather,
                                           CollectiveKind::alltoall),
                         [](const auto& info) { return std::string(core::to_string(info.param)); });

using Decided = DirectCalls;

/// Rank 0 is the root of all that have one. The slow way takes milliseconds more.
TEST_P(Decided, ByOneRankForWhatHasBeenFaster) {
  const auto no_wait = [](const std::function<bool()>& there) { ASSERT_TRUE(there()); };
  const auto by_log = [&](bool log_is_slow) {
    const ExpressCall at_root = root_.call(GetParam());
    const ExpressCall at_peer = patient_.call(GetParam());
    const Express::Tag root_says = root_.routes.prepare(at_root);
    const Express::Tag peer_says = patient_.routes.prepare(at_peer);
    EXPECT_NE(peer_says, Express::kByLog) << "who does not decide offers its memory";
    const bool goes_by_log = root_says == Express::kByLog;
    root_.express.speak(root_says);
    patient_.express.speak(peer_says);
    if (goes_by_log == log_is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (goes_by_log) {
      EXPECT_EQ(patient_.express.look(), Express::Verdict::by_log);
    } else {
      EXPECT_EQ(patient_.express.look(), Express::Verdict::together);
      root_.express.finish();  // before the peer waits for that
      patient_.routes.run(at_peer, no_wait);
      root_.routes.run(at_root, no_wait);
    }
    for (End* end : {&root_, &patient_}) end->routes.note_end(end->routes.decision_on(end->express.call()));
    return goes_by_log;
  };
  EXPECT_FALSE(by_log(false));
  int log = 0;
  for (int call = 0; call < 40; ++call) log += by_log(false) ? 1 : 0;
  EXPECT_GT(log, 20) << "it was tried, and is faster";
  EXPECT_TRUE(by_log(false));
  int direct = 0;
  for (int call = 0; call < 300; ++call) direct += by_log(true) ? 0 : 1;
  EXPECT_GT(direct, 150) << "it has become slower";
}

/// The shortest that may be read are short enough to be carried as well.
TEST_P(Decided, ByNobodyWhereTheyCouldBeCarried) {
  for (int call = 0; call < 100; ++call) {
    ExpressCall at_root = root_.call(GetParam());
    at_root.shape = GetParam() == CollectiveKind::allgather ? Shape{} : Shape{10};
    at_root.buffer.elements = 10;
    EXPECT_NE(root_.routes.prepare(at_root), Express::kByLog);
    EXPECT_EQ(root_.routes.decision_on(root_.express.call()).between, nullptr);
  }
}

/// Whenever memory is to be read a rank is late, and the others end in the log after all.
TEST_P(Decided, ForTheLogWhereRanksThatReadAreLate) {
  int direct = 0;
  for (int call = 0; call < 300; ++call) {
    const bool late = root_.routes.prepare(root_.call(GetParam())) != Express::kByLog;
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    direct += late ? 1 : 0;
    root_.routes.note_end(root_.routes.decision_on(root_.express.call()));
  }
  EXPECT_LT(direct, 50) << "a try that ended in the log is a try";
}

/// Other threads make calls as well: the next one has begun before the last one's end is noted.
TEST_P(Decided, ThoughTheNextCallHasBegun) {
  int log = 0;
  ExpressRoutes::Decision last;
  for (int call = 0; call < 100; ++call) {
    const bool by_log = root_.routes.prepare(root_.call(GetParam())) == Express::kByLog;
    log += by_log ? 1 : 0;
    root_.routes.note_end(last);
    last = root_.routes.decision_on(root_.express.call());
    ASSERT_NE(last.between, nullptr);
    EXPECT_EQ(last.way == ExpressRoutes::Way::by_log, by_log);
    EXPECT_EQ(root_.routes.decision_on(root_.express.call() - 1).between, nullptr);
  }
  EXPECT_GT(log, 0);
}

/// Ranks with CPUs of their own, and calls that can be carried and read: each says beside its word what it does.
class CarriedOrRead : public ::testing::TestWithParam<std::tuple<CollectiveKind, bool, bool>> {
 protected:
  static constexpr std::int64_t kElements = 50000;  // more than a root reads at once, and no multiple of that
  static constexpr std::size_t kCapacity = 256 << 10;
  struct End {
    End(const base::Columns& columns, int rank, bool cpu_of_its_own)
        : express(columns, kCapacity, rank),
          routes(express, {std::make_shared<OwnMemory>(meanwhile), {0, 1}, {0, 1}, cpu_of_its_own},
                 {kCapacity, kCapacity, 1 << 20, 1 << 20}) {
      for (std::size_t i = 0; i < input.size(); ++i)
        input[i] = static_cast<float>(i * 2 + static_cast<std::size_t>(rank));
    }
    [[nodiscard]] ExpressCall call(CollectiveKind kind) {
      ExpressCall call;
      call.kind = kind;
      call.shape = kind == CollectiveKind::allgather ? Shape{} : Shape{kElements};
      if (kind == CollectiveKind::scatter) {
        call.shape = Shape{};
        splits = {kElements / 2, kElements / 2};
        call.splits = splits;
      }
      auto* const out = reinterpret_cast<std::byte*>(output.data());
      call.buffer = {reinterpret_cast<const std::byte*>(input.data()), out, kElements};
      call.make_room = [out](const std::vector<std::int64_t>&) { return out; };
      return call;
    }
    std::function<void()> meanwhile;
    Express express;
    ExpressRoutes routes;
    std::vector<std::int64_t> splits;
    std::vector<float> input = std::vector<float>(kElements);
    std::vector<float> output = std::vector<float>(2 * kElements, -1.0F);
  };
  [[nodiscard]] float expected(int rank, std::size_t at) const {
    const auto value = [](std::size_t i, int from) {
      return static_cast<float>(i * 2 + static_cast<std::size_t>(from));
    };
    const auto all = static_cast<std::size_t>(kElements);
    switch (std::get<0>(GetParam())) {
    case CollectiveKind::broadcast:
      return at < all ? value(at, 0) : -1;
    case CollectiveKind::reduce:
      return at < all && rank == 0 ? value(at, 0) + value(at, 1) : -1;
    case CollectiveKind::gather:
      if (rank != 0) return -1;
      [[fallthrough]];
    case CollectiveKind::allgather:
      return value(at % all, at < all ? 0 : 1);
    case CollectiveKind::scatter:
      return at < all / 2 ? value(at + (rank == 0 ? 0 : all / 2), 0) : -1;
    default:  // all-to-all
      return at < all ? value(at % (all / 2) + (rank == 0 ? 0 : all / 2), at < all / 2 ? 0 : 1) : -1;
    }
  }
};

/// The ranks run side by side, as ranks do; they find out by themselves which way is faster, so both are gone.
TEST_P(CarriedOrRead, BringTheSame) {
  const Memory memory(kCapacity);
  const base::Columns columns = memory.columns();
  const auto [kind, first_has_cpu, second_has_cpu] = GetParam();
  End first(columns, 0, first_has_cpu);
  End second(columns, 1, second_has_cpu);
  std::array<int, 2> read{};
  const auto rank = [&, kind = kind](End& end, int own) {
    for (int call = 0; call < 60; ++call) {
      std::fill(end.output.begin(), end.output.end(), -1.0F);
      const ExpressCall what = end.call(kind);
      end.express.speak(end.routes.prepare(what));
      while (end.express.look() == Express::Verdict::undecided) std::this_thread::yield();
      ASSERT_EQ(end.express.look(), Express::Verdict::together);
      end.routes.run(what, [](const std::function<bool()>& there) {
        while (!there()) std::this_thread::yield();
      });
      const ExpressRoutes::Decision decision = end.routes.decision_on(end.express.call());
      read[static_cast<std::size_t>(own)] += decision.way == ExpressRoutes::Way::direct ? 1 : 0;
      end.routes.end_call();
      for (std::size_t i = 0; i < end.output.size(); ++i) ASSERT_EQ(end.output[i], expected(own, i)) << "element " << i;
    }
  };
  std::thread other([&] { rank(second, 1); });
  rank(first, 0);
  other.join();
  const auto gives = [kind = kind](int own) {
    if (kind == CollectiveKind::broadcast || kind == CollectiveKind::scatter) return own == 0;
    if (kind == CollectiveKind::gather || kind == CollectiveKind::reduce) return own == 1;
    return true;
  };
  for (const int own : {0, 1}) {
    const bool chooses = gives(own) && (own == 0 ? first_has_cpu : second_has_cpu);
    EXPECT_EQ(read[static_cast<std::size_t>(own)] > 0, chooses) << "rank " << own;
    EXPECT_LT(read[static_cast<std::size_t>(own)], 60);
  }
}

/// Two ranks that share CPUs, one after the other: nobody waits for what is carried.
class ByTurns : public ::testing::TestWithParam<CollectiveKind> {
 protected:
  static constexpr std::size_t kCapacity = 64 << 10;
  struct End {
    End(const base::Columns& columns, int rank)
        : memory(std::make_shared<OwnMemory>(meanwhile)), express(columns, kCapacity, rank),
          routes(express, {memory, {0, 1}, {0, 1}}, {kCapacity, kCapacity, 1 << 20, 1 << 20}) {
      meanwhile = [this] { ++reads; };
    }
    std::function<void()> meanwhile;
    std::shared_ptr<OwnMemory> memory;
    Express express;
    ExpressRoutes routes;
    std::vector<std::int64_t> splits;
    std::vector<std::uint8_t> input, output;
    int reads = 0;

    [[nodiscard]] ExpressCall call(CollectiveKind kind, std::size_t bytes_for_one) {
      const std::size_t bytes = kind == CollectiveKind::broadcast ? bytes_for_one : 2 * bytes_for_one;
      input.assign(bytes, static_cast<std::uint8_t>(express.local_rank() + 1));
      output.assign(2 * bytes, 0);
      ExpressCall call;
      call.kind = kind;
      call.dtype = DType::uint8;
      call.shape = kind == CollectiveKind::scatter ? Shape{} : Shape{static_cast<std::int64_t>(bytes)};
      splits.assign(2, static_cast<std::int64_t>(bytes_for_one));
      if (kind == CollectiveKind::scatter) call.splits = splits;
      call.buffer = {reinterpret_cast<const std::byte*>(input.data()), reinterpret_cast<std::byte*>(output.data()),
                     static_cast<std::int64_t>(bytes)};
      call.make_room = [this](const std::vector<std::int64_t>&) { return reinterpret_cast<std::byte*>(output.data()); };
      return call;
    }
  };
};

TEST_P(ByTurns, ReadMoreThan16KiBThatCanBeRead) {
  const Memory memory(kCapacity);
  const base::Columns columns = memory.columns();
  End root(columns, 0);
  End peer(columns, 1);
  for (const bool readable : {false, true}) {  // what could be read once is not asked for again
    for (const std::size_t bytes : {std::size_t{16} << 10, std::size_t{20} << 10}) {
      root.memory->readable = peer.memory->readable = readable;
      root.reads = peer.reads = 0;
      const ExpressCall at_root = root.call(GetParam(), bytes);
      const ExpressCall at_peer = peer.call(GetParam(), bytes);
      root.express.speak(root.routes.prepare(at_root));
      peer.express.speak(peer.routes.prepare(at_peer));
      ASSERT_EQ(root.express.look(), Express::Verdict::together) << "what can be carried does not go by the log";
      ASSERT_EQ(peer.express.look(), Express::Verdict::together);
      std::thread other([&] {
        peer.routes.run(at_peer, [](const std::function<bool()>& there) {
          while (!there()) std::this_thread::yield();
        });
      });
      root.routes.run(at_root, [](const std::function<bool()>& there) {
        while (!there()) std::this_thread::yield();
      });
      other.join();
      EXPECT_EQ(peer.reads > 0, readable && bytes > 16 << 10) << bytes << " bytes, readable: " << readable;
      EXPECT_EQ(std::count(peer.output.begin(), peer.output.begin() + static_cast<std::ptrdiff_t>(bytes), 1),
                static_cast<std::ptrdiff_t>(bytes));
      root.routes.end_call();
      peer.routes.end_call();
    }
  }
}

/// A root that reduces alone tells its peers before it adds the last piece, but not before it has read that.
TEST(ReduceInPlace, IsReadBeforeItsPeersGoOn) {
  constexpr std::size_t kCapacity = 16 << 10;
  const Memory memory(kCapacity);
  const base::Columns columns = memory.columns();
  Express at_root(columns, kCapacity, 0);
  Express at_peer(columns, kCapacity, 1);
  std::function<void()> after_read;
  std::function<void()> nothing;
  const ExpressLimits limits{kCapacity, kCapacity, 1 << 20, 1 << 20};
  ExpressRoutes root(at_root, {std::make_shared<OwnMemory>(after_read), {0, 1}, {0, 1}, true}, limits);
  ExpressRoutes peer(at_peer, {std::make_shared<OwnMemory>(nothing), {0, 1}, {0, 1}, true}, limits);
  constexpr std::size_t kElements = 100000;  // several pieces
  std::vector<float> inout(kElements, 1), theirs(kElements, 2);
  ExpressCall call;
  call.kind = CollectiveKind::reduce;
  call.shape = Shape{static_cast<std::int64_t>(kElements)};
  const auto with = [&](std::vector<float>& data) {
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    call.buffer = {bytes, bytes, static_cast<std::int64_t>(kElements)};
    return call;
  };
  const ExpressCall root_call = with(inout);
  const ExpressCall peer_call = with(theirs);
  at_root.speak(root.prepare(root_call));
  at_peer.speak(peer.prepare(peer_call));
  ASSERT_EQ(at_root.look(), Express::Verdict::together);
  ASSERT_EQ(at_peer.look(), Express::Verdict::together);
  int reads = 0;
  after_read = [&] {
    EXPECT_FALSE(at_peer.has_finished(0)) << "the peer's memory is still being read";
    ++reads;
  };
  root.run(root_call, [](const std::function<bool()>& there) { ASSERT_TRUE(there()); });
  EXPECT_GT(reads, 1);
  EXPECT_TRUE(at_peer.has_finished(0));
  EXPECT_EQ(inout, std::vector<float>(kElements, 3));
  peer.run(peer_call, [](const std::function<bool()>& there) { ASSERT_TRUE(there()); });
}

INSTANTIATE_TEST_SUITE_P(Direct, ByTurns,
                         ::testing::Values(CollectiveKind::broadcast, CollectiveKind::scatter,
                                           CollectiveKind::alltoall),
                         [](const auto& info) { return std::string(core::to_string(info.param)); });

INSTANTIATE_TEST_SUITE_P(Direct, CarriedOrRead,
                         ::testing::Combine(::testing::Values(CollectiveKind::broadcast, CollectiveKind::reduce,
                                                              CollectiveKind::allgather, CollectiveKind::gather,
                                                              CollectiveKind::scatter, CollectiveKind::alltoall),
                                            ::testing::Bool(), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(core::to_string(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "Own" : "Shared") +
                                  (std::get<2>(info.param) ? "Own" : "Shared");
                         });

INSTANTIATE_TEST_SUITE_P(Direct, Decided,
                         ::testing::Values(CollectiveKind::broadcast, CollectiveKind::allgather, CollectiveKind::gather,
                                           CollectiveKind::alltoall),
                         [](const auto& info) { return std::string(core::to_string(info.param)); });

}  // namespace
}  // namespace kolo::engine
