// SPDX-License-Identifier: Apache-2.0
//
// Every collective on the device, through the public API.
#include <numeric>
#include <tuple>

#include <kolo/call.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/info.hpp>

#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {
namespace {

constexpr DType kReducedByNccl[] = {DType::boolean,  DType::int8,    DType::uint8,  DType::int32,
                                    DType::uint32,   DType::int64,   DType::uint64, DType::float16,
                                    DType::bfloat16, DType::float32, DType::float64};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::int64_t kSizes[] = {0, 1, 7, 8191, 8192, 70000};  // the last is more than a batch
#else
constexpr std::int64_t kSizes[] = {0, 1, 7, 8191, 8192, 70000, 300000};
#endif

/// Number of ranks; KOLO_GPU_BACKEND.
class Collectives : public CudaTest, public ::testing::WithParamInterface<std::tuple<int, const char*>> {
 protected:
  static int ranks() { return std::get<0>(GetParam()); }
  static Options options() {
    return CudaTest::options()
        .with_setting("KOLO_GPU_BACKEND", std::get<1>(GetParam()))
        .with_setting("KOLO_FUSION_THRESHOLD", "256K")
        .with_setting("KOLO_GPU_DIRECT_BYTES", "64K");
  }
};

void reduce_all_ops(DType dtype, cudaStream_t stream, std::int64_t elements, std::size_t misalignment) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
    if (op == ReduceOp::average && !is_floating_point(dtype)) continue;
    const Bytes input = given_values(dtype, op, elements, 0, rank());
    const Bytes wanted = reduced_values(dtype, op, elements, 0);
    const std::string name = std::string(to_string(dtype)) + " " + std::string(to_string(op));
    DeviceTensor inout(dtype, elements, stream, misalignment);
    DeviceTensor in(dtype, elements, stream, misalignment);
    DeviceTensor out(dtype, elements, stream);
    inout.write(input);
    in.write(input);
    Handle in_place = allreduce_async(name, inout.view(), AllreduceOptions{}.with_op(op));
    Handle apart = allreduce_into_async(name + " apart", in.view(), out.view(), AllreduceOptions{}.with_op(op));
    follow(in_place, stream);
    follow(apart, stream);
    EXPECT_EQ(inout.read(), wanted) << name << ", rank " << rank();
    EXPECT_EQ(out.read(), wanted) << name << " apart, rank " << rank();
    EXPECT_EQ(in.read(), input) << name << ": the input, rank " << rank();
    wait_all(Span<Handle>(&in_place, 1));
    wait_all(Span<Handle>(&apart, 1));
  }
}

TEST_P(Collectives, AllreduceOfEveryTypeAndOp) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        for (const DType dtype : kReducedByNccl) reduce_all_ops(dtype, stream, 333, size_of(dtype));
      },
      options());
}

TEST_P(Collectives, AllreduceOfEverySize) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        for (const std::int64_t elements : kSizes) {
          reduce_all_ops(DType::float32, stream, elements, 0);
        }
      },
      options());
}

TEST_P(Collectives, ManyTensorsShareBatches) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        std::vector<std::unique_ptr<DeviceTensor>> tensors;
        for (std::int64_t i = 0; i < 40; ++i) {
          tensors.push_back(
              std::make_unique<DeviceTensor>(i % 3 == 0 ? DType::float16 : DType::float32, i * 97, stream));
        }
        for (int step = 0; step < 4; ++step) {
          std::vector<Handle> handles;
          for (std::size_t i = 0; i < tensors.size(); ++i) {
            const DType dtype = tensors[i]->view().dtype();
            tensors[i]->write(elements_of(
                dtype, tensors[i]->view().elements(), [&](std::int64_t k) { return (k + rank() + step) % 5; }, 5));
            handles.push_back(allreduce_async("t" + std::to_string(i), tensors[i]->view(),
                                              AllreduceOptions{}.with_prescale(2.0).with_postscale(0.5)));
          }
          for (Handle& handle : handles) follow(handle, stream);
          for (const auto& tensor : tensors) {
            const auto sum = [&](std::int64_t k) {
              std::int64_t all = 0;
              for (int r = 0; r < size(); ++r) all += (k + r + step) % 5;
              return all;
            };
            const Bytes wanted = elements_of(tensor->view().dtype(), tensor->view().elements(), sum, 5);
            EXPECT_EQ(tensor->read(), wanted) << "step " << step;
          }
          wait_all(handles);
          end_step();
        }
      },
      options());
}

TEST_P(Collectives, ABatchOfSeveralPortionsIsDoneWithItsLast) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        constexpr std::int64_t kElements = 600000;  // several buffers
        constexpr std::int64_t kRepeats = 9;
        DeviceTensor x(DType::float32, kElements, stream);
        for (const bool on_host : {false, true}) {
          x.write(elements_of(
              DType::float32, kElements, [](std::int64_t i) { return i % kRepeats + rank(); }, kRepeats));
          const std::uint64_t before = kolo::detail::counters().device_portions;
          Handle handle = allreduce_async("x", x.view(), AllreduceOptions{}.with_prescale(2.0));
          if (on_host) {
            handle.wait();
            emulated::acquire_all();
          } else {
            follow(handle, stream);
          }
          EXPECT_EQ(x.read(),
                    elements_of(
                        DType::float32, kElements,
                        [](std::int64_t i) { return 2 * (i % kRepeats * size() + size() * (size() - 1) / 2); },
                        kRepeats));
          handle.wait();
          EXPECT_GT(kolo::detail::counters().device_portions, before + 1);
        }
      },
      options());
}

TEST_P(Collectives, GroupsAndPreparedRequests) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        DeviceTensor a(DType::float64, 1000, stream);
        DeviceTensor b(DType::int32, 50000, stream);
        const NamedView members[] = {{"a", a.view()}, {"b", b.view()}};
        Prepared prepared = prepare("group", Call::grouped_allreduce(members));
        const std::int64_t own = rank();
        const std::int64_t ranks = size();
        for (int step = 0; step < 3; ++step) {
          a.write(elements_of(DType::float64, 1000, [&](std::int64_t i) { return i + own * step; }));
          b.write(elements_of(DType::int32, 50000, [&](std::int64_t i) { return i - own * step; }));
          Handle handle = prepared.start();
          follow(handle, stream);
          const std::int64_t ranks_sum = ranks * (ranks - 1) / 2;
          EXPECT_EQ(a.read(),
                    elements_of(DType::float64, 1000, [&](std::int64_t i) { return i * ranks + ranks_sum * step; }));
          EXPECT_EQ(b.read(),
                    elements_of(DType::int32, 50000, [&](std::int64_t i) { return i * ranks - ranks_sum * step; }));
          handle.wait();
        }
      },
      options());
}

/// All-gathers of other types and lengths as one operation, prepared and not, and reductions to a root.
TEST_P(Collectives, GroupsOfCalls) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        const auto bytes_of = [](int of) {
          return elements_of(DType::uint8, of + 1, [&](std::int64_t) { return of; });
        };
        Bytes all, all_floats;
        for (int r = 0; r < size(); ++r) {
          const Bytes part = bytes_of(r);
          all.insert(all.end(), part.begin(), part.end());
          const Bytes floats = elements_of(DType::float32, 5, [&](std::int64_t i) { return i + 10 * r; });
          all_floats.insert(all_floats.end(), floats.begin(), floats.end());
        }
        DeviceTensor bytes(DType::uint8, rank() + 1, stream);
        DeviceTensor floats(DType::float32, 5, stream);
        DeviceTensor bytes_out(DType::uint8, static_cast<std::int64_t>(all.size()), stream);
        DeviceTensor floats_out(DType::float32, 5 * size(), stream);
        bytes.write(bytes_of(rank()));
        const Bytes given = elements_of(DType::float32, 5, [](std::int64_t i) { return i + 10 * rank(); });
        floats.write(given);
        const std::vector<Call> calls{Call::allgather_into(bytes.view(), bytes_out.view()),
                                      Call::allgather_into(floats.view(), floats_out.view())};
        Prepared prepared = prepare("prepared", Call::grouped(calls));
        for (int step = 0; step < 4; ++step) {
          ok(cudaMemsetAsync(bytes_out.data(), 0xA5, bytes_out.bytes(), stream));
          ok(cudaMemsetAsync(floats_out.data(), 0xA5, floats_out.bytes(), stream));
          Handle handle = step % 2 == 0 ? prepared.start() : grouped_async("group", calls);
          follow(handle, stream);
          EXPECT_EQ(bytes_out.read(), all) << step;
          EXPECT_EQ(floats_out.read(), all_floats) << step;
          handle.wait();
        }
        const int root = size() - 1;
        DeviceTensor more(DType::int32, 3, stream);
        more.write(elements_of(DType::int32, 3, [](std::int64_t i) { return i; }));
        Handle sums = grouped_async("sums", {Call::reduce(floats.view(), root), Call::reduce(more.view(), root)});
        follow(sums, stream);
        const int n = size();
        EXPECT_EQ(floats.read(), rank() == root ? elements_of(DType::float32, 5,
                                                              [=](std::int64_t i) { return n * i + 5 * n * (n - 1); })
                                                : given);
        EXPECT_EQ(more.read(),
                  elements_of(DType::int32, 3, [=](std::int64_t i) { return rank() == root ? n * i : i; }));
        sums.wait();
      },
      options());
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        for (int root = 0; root < size(); ++root) {
          for (const DType dtype : {DType::int16, DType::boolean, DType::float32}) {
            const std::int64_t elements = 100000;
            DeviceTensor inout(dtype, elements, stream);
            DeviceTensor in(dtype, 10, stream);
            DeviceTensor out(dtype, 10, stream);
            const auto value = [&](int of) { return [of](std::int64_t i) { return i % 100 + of; }; };
            inout.write(elements_of(dtype, elements, value(rank()), 100));
            in.write(elements_of(dtype, 10, value(rank())));
            Handle large = broadcast_async("large", inout.view(), root);
            Handle small = broadcast_into_async("small", in.view(), out.view(), root);
            follow(large, stream);
            follow(small, stream);
            EXPECT_EQ(inout.read(), elements_of(dtype, elements, value(root), 100));
            EXPECT_EQ(out.read(), elements_of(dtype, 10, value(root)));
            large.wait();
            small.wait();
          }
        }
      },
      options());
}

TEST_P(Collectives, ReduceToEveryRoot) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        for (int root = 0; root < size(); ++root) {
          const bool is_root = rank() == root;
          for (const DType dtype : {DType::int32, DType::float16, DType::float32}) {
            for (const std::int64_t elements : kSizes) {
              const Bytes given = given_values(dtype, ReduceOp::sum, elements, 0, rank());
              const Bytes wanted = reduced_values(dtype, ReduceOp::sum, elements, 0);
              const Bytes untouched = elements_of(
                  dtype, elements, [](std::int64_t) { return 3; }, 1);
              DeviceTensor inout(dtype, elements, stream);
              DeviceTensor in(dtype, elements, stream);
              DeviceTensor out(dtype, elements, stream);
              inout.write(given);
              in.write(given);
              out.write(untouched);
              Handle in_place = reduce_async("in place", inout.view(), root);
              Handle apart = reduce_into_async("apart", in.view(), out.view(), root);
              follow(in_place, stream);
              follow(apart, stream);
              const std::string what = std::to_string(elements) + " " + std::string(to_string(dtype));
              EXPECT_EQ(inout.read(), is_root ? wanted : given) << what;
              EXPECT_EQ(out.read(), is_root ? wanted : untouched) << what;
              EXPECT_EQ(in.read(), given) << what;
              in_place.wait();
              apart.wait();
            }
          }
        }
      },
      options());
}

TEST_P(Collectives, AllgatherOfUnevenRows) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        for (const std::int64_t most : {0, 3, 2000}) {
          const auto rows_of = [&](int of) { return of == 1 ? 0 : most + of; };
          std::int64_t total = 0;
          for (int r = 0; r < size(); ++r) total += rows_of(r);
          DeviceTensor in(DType::int16, rows_of(rank()) * 21, stream);
          DeviceTensor out(DType::int16, total * 21, stream);
          in.write(elements_of(DType::int16, rows_of(rank()) * 21, [](std::int64_t i) { return i + rank() * 1000; }));
          Handle handle = allgather_into_async("gather", in.view(Shape{rows_of(rank()), 21}), out.view());
          follow(handle, stream);
          Bytes wanted;
          for (int r = 0; r < size(); ++r) {
            const auto part = elements_of(DType::int16, rows_of(r) * 21, [&](std::int64_t i) { return i + r * 1000; });
            wanted.insert(wanted.end(), part.begin(), part.end());
          }
          EXPECT_EQ(out.read(), wanted) << most;
          handle.wait();
          std::int64_t before = 0;
          for (int r = 0; r < rank(); ++r) before += rows_of(r);
          out.write(elements_of(DType::int16, total * 21, [&](std::int64_t i) {
            return i >= before * 21 && i < (before + rows_of(rank())) * 21 ? i - before * 21 + rank() * 1000 : -1;
          }));
          const TensorView whole = out.view();
          const TensorView place(out.data() + before * 21 * 2, DType::int16, Shape{rows_of(rank()), 21}, whole.device(),
                                 whole.stream());
          Handle in_place = allgather_into_async("gather in place", place, whole);
          follow(in_place, stream);
          EXPECT_EQ(out.read(), wanted) << most << " in place";
          in_place.wait();
        }
      },
      options());
}

/// Of which the hosts tell each other nothing.
TEST_P(Collectives, AllgatherOfEqualRows) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        for (const std::int64_t elements : {0, 3, 2000}) {
          DeviceTensor in(DType::int16, elements, stream);
          DeviceTensor out(DType::int16, elements * size(), stream);
          const auto own = elements_of(DType::int16, elements, [](std::int64_t i) { return i + rank() * 1000; });
          in.write(own);
          const std::uint64_t before = kolo::detail::counters().device_exchanges;
          Handle handle = start({world(), "equal"}, Call::allgather_equal_into(in.view(), out.view()));
          follow(handle, stream);
          const auto wanted = elements_of(DType::int16, elements * size(),
                                          [&](std::int64_t i) { return i % elements + i / elements * 1000; });
          EXPECT_EQ(out.read(), wanted) << elements;
          handle.wait();
          out.write(elements_of(DType::int16, elements * size(), [](std::int64_t) { return -1; }));
          const TensorView place = out.view();
          std::byte* const mine =
              out.data() + static_cast<std::size_t>(elements) * 2 * static_cast<std::size_t>(rank());
          if (elements > 0) ok(cudaMemcpyAsync(mine, in.data(), in.bytes(), cudaMemcpyDeviceToDevice, stream));
          const TensorView part(mine, DType::int16, Shape{elements}, place.device(), place.stream());
          Handle in_place = start({world(), "equal in place"}, Call::allgather_equal_into(part, place));
          follow(in_place, stream);
          EXPECT_EQ(out.read(), wanted) << elements << " in place";
          in_place.wait();
          EXPECT_EQ(kolo::detail::counters().device_exchanges, before);
        }
        DeviceTensor in(DType::int16, 4, stream);
        DeviceTensor out(DType::int16, 4 * size(), stream);
        in.write(elements_of(DType::int16, 4, [](std::int64_t) { return 1; }));
        allgather_into("uneven", in.view(), out.view());
        EXPECT_EQ(kolo::detail::counters().device_exchanges, 2U);
        stream.synchronize();
        emulated::acquire_all();
      },
      options());
}

TEST_P(Collectives, AllgatherWithoutRoomFailsEverywhereAndTheJobGoesOn) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        DeviceTensor in(DType::float32, 4, stream);
        in.write(elements_of(DType::float32, 4, [](std::int64_t) { return rank(); }));
        DeviceTensor out(DType::float32, 4 * size() + (rank() == 0 ? 1 : 0), stream);
        EXPECT_THROW(allgather_into_async("gather", in.view(), out.view()).wait(), Error);
        Handle after = allreduce_async("after", in.view());
        follow(after, stream);
        EXPECT_EQ(in.read(), elements_of(DType::float32, 4, [](std::int64_t) { return size() * (size() - 1) / 2; }));
        after.wait();
      },
      options());
}

TEST_P(Collectives, AlltoallWithAndWithoutSplits) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        const std::int64_t each = 5;
        DeviceTensor in(DType::int32, each * size(), stream);
        DeviceTensor out(DType::int32, each * size(), stream);
        in.write(elements_of(DType::int32, each * size(), [](std::int64_t i) { return rank() * 1000 + i; }));
        Handle even = alltoall_into_async("even", in.view(), out.view());
        follow(even, stream);
        EXPECT_EQ(out.read(), elements_of(DType::int32, each * size(),
                                          [&](std::int64_t i) { return i / each * 1000 + rank() * each + i % each; }));
        even.wait();

        // Rank r sends r + s rows of 3 to rank s.
        std::vector<std::int64_t> splits;
        std::int64_t arriving = 0;
        for (int s = 0; s < size(); ++s) {
          splits.push_back(rank() + s);
          arriving += rank() + s;
        }
        const std::int64_t rows = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
        DeviceTensor ragged(DType::float64, rows * 3, stream);
        DeviceTensor result(DType::float64, arriving * 3, stream);
        ragged.write(elements_of(DType::float64, rows * 3, [](std::int64_t i) { return rank() * 10000 + i; }));
        Handle uneven =
            alltoall_into_async("uneven", ragged.view(Shape{rows, 3}), result.view(Shape{arriving, 3}), splits);
        follow(uneven, stream);
        Bytes wanted;
        for (int r = 0; r < size(); ++r) {
          std::int64_t before = 0;
          for (int s = 0; s < rank(); ++s) before += r + s;
          const auto part =
              elements_of(DType::float64, (r + rank()) * 3, [&](std::int64_t i) { return r * 10000 + before * 3 + i; });
          wanted.insert(wanted.end(), part.begin(), part.end());
        }
        EXPECT_EQ(result.read(), wanted);
        uneven.wait();
      },
      options());
}

TEST_P(Collectives, ReduceScatter) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        for (const std::int64_t rows : {1, 5, 8, 4096}) {
          const std::int64_t width = 12;
          DeviceTensor in(DType::float32, rows * width, stream);
          const std::int64_t mine = rows / size() + (rank() < rows % size() ? 1 : 0);
          const std::int64_t begin = rows / size() * rank() + std::min<std::int64_t>(rank(), rows % size());
          DeviceTensor out(DType::float32, mine * width, stream);
          in.write(elements_of(
              DType::float32, rows * width, [](std::int64_t i) { return (i % 50 + rank()) * size(); }, 50));
          Handle handle = reduce_scatter_into_async("rs", in.view(Shape{rows, width}), out.view(Shape{mine, width}),
                                                    ReduceOp::average);
          follow(handle, stream);
          EXPECT_EQ(out.read(),
                    elements_of(
                        DType::float32, mine * width,
                        [&](std::int64_t i) { return (i + begin * width) % 50 * size() + size() * (size() - 1) / 2; },
                        50));
          handle.wait();
        }
      },
      options());
}

TEST_P(Collectives, TensorsOfTheCpuAndTheDeviceInOneBatch) {
  run_local(
      ranks(),
      [] {
        bind();
        const RankStream stream;
        DeviceTensor device(DType::float32, 100, stream);
        for (int step = 0; step < 5; ++step) {
          std::vector<float> host(100, static_cast<float>(rank() + step));
          device.write(elements_of(DType::float32, 100, [&](std::int64_t) { return rank() + step; }));
          Handle a = allreduce_async("device", device.view());
          Handle b = allreduce_async("host", kolo::view(host));
          b.wait();
          a.wait();
          const int sum = size() * (size() - 1) / 2 + step * size();
          EXPECT_EQ(host, std::vector<float>(100, static_cast<float>(sum)));
          emulated::acquire_all();
          EXPECT_EQ(device.read(), elements_of(DType::float32, 100, [&](std::int64_t) { return sum; }));
          barrier();
          end_step();
        }
      },
      options());
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<int, const char*>>& info) {
  return std::to_string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
}

#ifdef KOLO_ON_REAL_DEVICE
// Ranks as threads share the one device; NCCL wants each of those in a process of its own.
INSTANTIATE_TEST_SUITE_P(OfOne, Collectives, ::testing::Combine(::testing::Values(1), ::testing::Values("nccl")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Staged, Collectives,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Values("staged")), name_of);
#else
INSTANTIATE_TEST_SUITE_P(Worlds, Collectives,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Values("nccl", "staged")), name_of);
#endif

}  // namespace
}  // namespace kolo::cuda::test
