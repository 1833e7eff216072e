// SPDX-License-Identifier: Apache-2.0
//
// Calls that read their peers' memory, and a rank that gives up while its memory has not been read.
#include "engine/express_routes.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

namespace kolo::engine {
namespace {

using control::Express;
using core::CollectiveKind;

constexpr std::int64_t kElements = 1000;

/// Ranks of one process: a peer's memory is this one's.
class OwnMemory final : public transport::PeerMemory {
 public:
  [[nodiscard]] bool reads_by_system() const noexcept override { return false; }
  Status read(int, void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  [[nodiscard]] bool is_readable(const void*, std::size_t) override { return true; }
};

class WithdrawnMemory : public ::testing::TestWithParam<CollectiveKind> {
 protected:
  struct End {
    End(const base::Columns& columns, int rank)
        : express(columns, kCapacity, rank),
          routes(express, {std::make_shared<OwnMemory>(), {0, 1}, {0, 1}}, limits()) {
      std::iota(input.begin(), input.end(), 1.0F);
    }
    static ExpressLimits limits() { return {256, 16, 1 << 20}; }
    [[nodiscard]] ExpressCall call(CollectiveKind kind) {
      ExpressCall call;
      call.kind = kind;
      call.shape = kind == CollectiveKind::allgather ? Shape{} : Shape{kElements};
      auto* const out = reinterpret_cast<std::byte*>(output.data());
      call.buffer = {reinterpret_cast<const std::byte*>(input.data()), out, kElements};
      call.make_room = [out](const std::vector<std::int64_t>&) { return out; };
      return call;
    }
    Express express;
    ExpressRoutes routes;
    std::vector<float> input = std::vector<float>(kElements);
    std::vector<float> output = std::vector<float>(2 * kElements, -1.0F);
  };

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
  };
  static constexpr std::size_t kCapacity = 256;
  std::unique_ptr<std::byte, Free> memory_{
      static_cast<std::byte*>(::operator new (2 * control::Express::column_bytes(kCapacity), std::align_val_t{4096}))};
  const base::Columns columns_ = base::Columns::in_a_row(memory_.get(), control::Express::column_bytes(kCapacity), 2);
  End patient_{columns_, 1};
  End root_{columns_, 0};
};

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

}  // namespace
}  // namespace kolo::engine
