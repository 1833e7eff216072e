// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are out of data join, and the others go on with tensors of their devices.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/gradient_arena.hpp>
#include <kolo/join.hpp>

#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {
namespace {

class Joins : public CudaWorlds {
 protected:
  static Options options() { return CudaWorlds::options().with_setting("KOLO_GPU_DIRECT_BYTES", "4K"); }
};

/// What rank `of` gives; of averages over 1 to 4 ranks multiples.
std::int64_t given_by(DType dtype, ReduceOp op, std::int64_t i, int of) {
  if (dtype == DType::boolean) return (of + i) % 3 == 0;
  return ((of + i) % 4 + 1) * (op == ReduceOp::average ? 12 : 1);
}
/// What becomes of it where these ranks give something, and an average is over so many.
std::int64_t reduced_by(DType dtype, ReduceOp op, std::int64_t i, const std::vector<int>& left, std::int64_t divisor) {
  std::int64_t result = given_by(dtype, op, i, left.front());
  for (std::size_t r = 1; r < left.size(); ++r) {
    const std::int64_t value = given_by(dtype, op, i, left[r]);
    const bool least = op == ReduceOp::min || (op == ReduceOp::product && dtype == DType::boolean);
    const bool most = op == ReduceOp::max || (op == ReduceOp::sum && dtype == DType::boolean);
    if (least) result = std::min(result, value);
    if (most) result = std::max(result, value);
    if (!least && !most) result = op == ReduceOp::product ? result * value : result + value;
  }
  return op == ReduceOp::average ? result / divisor : result;
}
constexpr std::int64_t kPeriod = 12;

/// An all-reduce of the ranks that are left.
class Reduction {
 public:
  Reduction(std::string name, DType dtype, std::int64_t elements, AllreduceOptions how, cudaStream_t stream)
      : name_(std::move(name)), dtype_(dtype), how_(how), stream_(stream),
        tensor_(dtype, elements, stream, size_of(dtype)) {}

  void start() {
    tensor_.write(elements_of(dtype_, tensor_.view().elements(), kPeriod,
                              [this](std::int64_t i) { return given_by(dtype_, how_.op, i, rank()); }));
    handle_ = allreduce_async(name_, tensor_.view(), how_);
  }
  void expect(const std::vector<int>& left, std::int64_t divisor) {
    follow(handle_, stream_);
    EXPECT_EQ(tensor_.read(),
              elements_of(dtype_, tensor_.view().elements(), kPeriod,
                          [&](std::int64_t i) { return reduced_by(dtype_, how_.op, i, left, divisor); }))
        << name_ << ", of " << left.size() << " ranks, on rank " << rank();
    handle_.wait();
  }

 private:
  const std::string name_;
  const DType dtype_;
  const AllreduceOptions how_;
  const cudaStream_t stream_;
  DeviceTensor tensor_;
  Handle handle_;
};

std::vector<std::unique_ptr<Reduction>> all_reductions(cudaStream_t stream) {
  std::vector<std::unique_ptr<Reduction>> all;
  const auto add = [&](DType dtype, std::int64_t elements, const AllreduceOptions& how) {
    all.push_back(std::make_unique<Reduction>("r" + std::to_string(all.size()), dtype, elements, how, stream));
  };
  for (const DType dtype :
       {DType::boolean, DType::uint8, DType::int32, DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
      if (op == ReduceOp::average && !is_floating_point(dtype)) continue;
      for (const std::int64_t elements : {5, 3001}) add(dtype, elements, op);  // large ones are reduced where they lie
      if (dtype != DType::float32 && dtype != DType::float64) continue;
      for (const DType narrow : {DType::float16, DType::bfloat16}) {
        add(dtype, 1003, AllreduceOptions(op).with_send_as(narrow));
      }
    }
    if (!is_floating_point(dtype)) continue;
    add(dtype, 7, AllreduceOptions{}.with_prescale(2.0).with_postscale(0.5));
    add(dtype, 7, AllreduceOptions(ReduceOp::average).with_prescale(-4.0).with_postscale(-0.25));
    add(dtype, 7, AllreduceOptions(ReduceOp::max).with_prescale(0.5).with_postscale(2.0));
  }
  add(DType::float32, 300'001, ReduceOp::average);  // more than a buffer holds
  return all;
}

std::vector<int> left_in(const std::vector<int>& steps, int step) {
  std::vector<int> left;
  for (std::size_t r = 0; r < steps.size(); ++r) {
    if (steps[r] > step) left.push_back(static_cast<int>(r));
  }
  return left;
}

TEST_P(Joins, TheOthersReduceAsIfTheyWereAlone) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    const auto all = all_reductions(stream);
    DeviceTensor zeros(DType::float32, 2000, stream);
    Bytes negative(zeros.bytes());
    for (std::size_t i = 3; i < negative.size(); i += 4) negative[i] = 0x80;  // -0.0
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::vector<int> steps;  // of each rank
      for (int r = 0; r < size(); ++r) steps.push_back(epoch == 0 ? r + 1 : epoch == 1 ? size() - r - 1 : r);
      for (int step = 0; step < steps[static_cast<std::size_t>(rank())]; ++step) {
        const std::vector<int> left = left_in(steps, step);
        for (const auto& one : all) one->start();
        zeros.write(negative);
        Handle zeros_of_all = allreduce_async("zeros", zeros.view());
        std::vector<float> host(300, 1.0F);
        Handle of_host = allreduce_async("host", kolo::view(host));
        for (const auto& one : all) one->expect(left, static_cast<std::int64_t>(left.size()));
        follow(zeros_of_all, stream);
        EXPECT_TRUE(zeros.read() == negative) << "a sum of -0.0";
        zeros_of_all.wait();
        of_host.wait();
        EXPECT_EQ(host, std::vector<float>(300, static_cast<float>(left.size())));
      }
      EXPECT_EQ(join(), epoch == 1 ? 0 : size() - 1);
    }
    all.front()->start();
    std::vector<int> everybody;
    for (int r = 0; r < size(); ++r) everybody.push_back(r);
    all.front()->expect(everybody, size());
  });
}

TEST_P(Joins, AveragesMayCountTheAbsent) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    const std::vector<int> left{0};
    for (const DType dtype : {DType::float16, DType::float32}) {
      for (const bool sent_as : {false, true}) {
        AllreduceOptions how(ReduceOp::average);
        if (sent_as) how.send_as = DType::bfloat16;
        Reduction reduction("x", dtype, 100, how, stream);
        if (rank() == 0) {
          reduction.start();
          reduction.expect(left, size());
        }
        EXPECT_EQ(join(JoinOptions().with_counts_in_averages(true)), 0);
      }
    }
  });
}

/// What is not reduced by all: to and from a root, gathers of other lengths, rows that are dealt out; and tensors that
/// lie in an arena.
TEST_P(Joins, EveryOtherCollective) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    const Device device = own_device();
    GradientArena arena(1 << 16, device);
    const TensorView inside = arena.allocate(DType::float32, Shape{100}, Stream{stream});
    const auto floats = [](std::int64_t n, int value) { return elements_of(DType::float32, n, 1, always(value)); };
    std::vector<int> steps;
    for (int r = 0; r < size(); ++r) steps.push_back(r + 1);
    for (int step = 0; step <= rank(); ++step) {
      const std::vector<int> left = left_in(steps, step);
      const int root = left.front();
      int sum = 0, rows = 0;
      Bytes gathered;
      for (const int r : left) {
        sum += r + 1;
        rows += r + 1;
        const Bytes part = floats(3 * (r + 1), r + 1);
        gathered.insert(gathered.end(), part.begin(), part.end());
      }
      const Bytes mine = floats(3000, rank() + 1);
      DeviceTensor reduced(DType::float32, 3000, stream), told(DType::float32, 3000, stream);
      DeviceTensor part(DType::float32, 3 * (rank() + 1), stream), all(DType::float32, 3 * rows, stream);
      DeviceTensor at_root(DType::float32, 3 * rows, stream);
      DeviceTensor dealt(DType::float32, 40 * size(), stream), own(DType::float32, 40, stream);
      reduced.write(mine);
      told.write(mine);
      part.write(floats(3 * (rank() + 1), rank() + 1));
      dealt.write(floats(40 * size(), rank() + 1));
      write(inside, floats(100, rank() + 1));
      std::vector<Handle> open;
      open.push_back(reduce_async("reduce", reduced.view(), root));
      open.push_back(broadcast_async("broadcast", told.view(), left.back()));
      open.push_back(allgather_into_async("allgather", part.view(Shape{rank() + 1, 3}), all.view(Shape{rows, 3})));
      open.push_back(gather_into_async(
          "gather", part.view(Shape{rank() + 1, 3}),
          rank() == root ? std::optional<TensorView>(at_root.view(Shape{rows, 3})) : std::nullopt, root));
      open.push_back(reduce_scatter_into_async("reduce_scatter", dealt.view(Shape{size(), 40}), own.view(Shape{1, 40}),
                                               ReduceScatterOptions{}));
      open.push_back(allreduce_async("inside", inside));
      for (Handle& handle : open) follow(handle, stream);
      EXPECT_EQ(reduced.read(), rank() == root ? floats(3000, sum) : mine);
      EXPECT_EQ(told.read(), floats(3000, left.back() + 1));
      EXPECT_EQ(all.read(), gathered);
      if (rank() == root) {
        EXPECT_EQ(at_root.read(), gathered);
      }
      EXPECT_EQ(own.read(), floats(40, sum));
      EXPECT_EQ(read(inside), floats(100, sum));
      wait_all(open);
    }
    EXPECT_EQ(join(), size() - 1);
    emulated::acquire_all();
  });
}

/// The others' first tensor on a device is its first, too.
TEST_P(Joins, ARankThatHasHadNoTensorOnADevice) {
  run_local(
      ranks(),
      [] {
        if (rank() > 0) {
          EXPECT_EQ(join(), 0);
          return;
        }
        bind();
        const RankStream stream;
        Reduction reduction("x", DType::float32, 5000, ReduceOp::sum, stream);
        for (int step = 0; step < 3; ++step) {
          reduction.start();
          reduction.expect({0}, 1);
        }
        EXPECT_EQ(join(), 0);
      },
      options());
}

TEST_P(Joins, InAGroupWhileTheWorldGoesOn) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    std::vector<int> members;
    for (int r = size() - 1; r >= 0; --r) members.push_back(r);
    const Group group = Group::of(members);
    DeviceTensor x(DType::float32, 2000, stream), y(DType::float32, 2000, stream);
    const auto ones = elements_of(DType::float32, 2000, 1, always(1));
    std::optional<Future<int>> joined;
    if (rank() > 0) joined = join_async(group);
    for (int step = 0; step < 4; ++step) {
      x.write(ones);
      Handle of_world = allreduce_async("x", x.view());
      if (rank() == 0) {
        y.write(ones);
        EXPECT_EQ(result_of(allreduce_async({group, "x"}, y.view()), y), ones);
      }
      follow(of_world, stream);
      EXPECT_EQ(x.read(), elements_of(DType::float32, 2000, 1, always(size())));
      of_world.wait();
    }
    if (rank() == 0) joined = join_async(group);
    EXPECT_EQ(joined->get(), size() - 1) << "rank 0 is the group's last";
  });
}

#ifndef KOLO_ON_REAL_DEVICE
TEST_P(Joins, ARankWithoutADeviceSaysSo) {
  emulated::Config config = machine();
  config.devices = ranks();  // of one all ranks would take a part
  emulated::reset(config);
  run_local(
      ranks() + 1,
      [] {
        if (rank() == size() - 1) {
          EXPECT_LT(join(), size() - 1);
          return;
        }
        bind();
        {
          const RankStream stream;
          DeviceTensor x(DType::float32, 10, stream, always(1));
          const std::string last = std::to_string(size() - 1);
          EXPECT_EQ(sentence_of(ErrorCode::unsupported, [&] { allreduce_async("x", x.view()).wait(); }),
                    "rank " + last + " cannot use its GPU: rank " + last + " of this machine has no device: only " +
                        last + " are visible; KOLO_SHARE_DEVICE=1 lets ranks share them");
          emulated::acquire_all();
          stream.synchronize();
        }
        EXPECT_EQ(allreduce(1, ReduceOp::sum), size() - 1) << "the job goes on";
        EXPECT_LT(join(), size() - 1);
      },
      options());
}
#endif

INSTANTIATE_TEST_SUITE_P(Worlds, Joins, ::testing::ValuesIn(worlds_of({2, 4}, false)), name_of_world);

}  // namespace
}  // namespace kolo::cuda::test
