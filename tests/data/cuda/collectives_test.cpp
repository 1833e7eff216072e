// SPDX-License-Identifier: Apache-2.0
//
// Every collective on the device, through the public API.

#include <kolo/call.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/info.hpp>

#include "tests/data/cuda/any_collective.hpp"

namespace kolo::cuda::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::int64_t kSizes[] = {0, 1, 7, 8191, 8192, 70000};  // the last is more than a batch
#else
constexpr std::int64_t kSizes[] = {0, 1, 7, 8191, 8192, 70000, 300000};
#endif

class Collectives : public CudaWorlds {
 protected:
  static Options options() {
    return CudaWorlds::options()
        .with_setting("KOLO_FUSION_THRESHOLD", "256K")
        .with_setting("KOLO_GPU_DIRECT_BYTES", "64K");
  }
};

/// Each kind through one buffer, through several and where it lies, from and to every root.
TEST_P(Collectives, OfEverySize) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    std::size_t number = 0;
    for (const core::CollectiveKind kind : kKinds) {
      for (const std::int64_t rows : kSizes) {
        for (const bool in_place : {true, false}) {
          for (int root = 0; root < (core::traits_of(kind).rooted ? size() : 1); ++root) {
            AnyArguments arguments;
            arguments.kind = kind;
            arguments.op = static_cast<ReduceOp>(number++ % 5);
            arguments.in_place = in_place;
            arguments.rows = rows;
            arguments.root = root;
            AnyCollective one("x", arguments, stream, number % 3);
            Handle handle = one.start(0);
            finish(handle, one, number % 5 == 0);
            one.expect_result();
            handle.wait();
          }
        }
      }
    }
  });
}

TEST_P(Collectives, ManyTensorsShareBatches) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    std::vector<DeviceTensor> tensors;
    for (std::int64_t i = 0; i < 40; ++i) {
      tensors.emplace_back(i % 3 == 0 ? DType::float16 : DType::float32, i * 97, stream);
    }
    for (int step = 0; step < 4; ++step) {
      std::vector<Handle> handles;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const DType dtype = tensors[i].view().dtype();
        tensors[i].write(elements_of(dtype, tensors[i].view().elements(), 5,
                                     [&](std::int64_t k) { return (k + rank() + step) % 5; }));
        handles.push_back(allreduce_async("t" + std::to_string(i), tensors[i].view(),
                                          AllreduceOptions{}.with_prescale(2.0).with_postscale(0.5)));
      }
      for (Handle& handle : handles) follow(handle, stream);
      for (const auto& tensor : tensors) {
        const auto sum = [&](std::int64_t k) {
          std::int64_t all = 0;
          for (int r = 0; r < size(); ++r) all += (k + r + step) % 5;
          return all;
        };
        const Bytes wanted = elements_of(tensor.view().dtype(), tensor.view().elements(), 5, sum);
        EXPECT_EQ(tensor.read(), wanted) << "step " << step;
      }
      wait_all(handles);
      end_step();
    }
  });
}

TEST_P(Collectives, ABatchOfSeveralPortionsIsDoneWithItsLast) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    constexpr std::int64_t kElements = 600000;  // several buffers
    constexpr std::int64_t kRepeats = 9;
    DeviceTensor x(DType::float32, kElements, stream);
    for (const bool on_host : {false, true}) {
      x.write(elements_of(DType::float32, kElements, kRepeats, [](std::int64_t i) { return i % kRepeats + rank(); }));
      const std::uint64_t before = kolo::detail::counters().device_portions;
      Handle handle = allreduce_async("x", x.view(), AllreduceOptions{}.with_prescale(2.0));
      if (on_host) {
        handle.wait();
        emulated::acquire_all();
      } else {
        follow(handle, stream);
      }
      EXPECT_EQ(x.read(), elements_of(DType::float32, kElements, kRepeats, [](std::int64_t i) {
                  return 2 * (i % kRepeats * size() + size() * (size() - 1) / 2);
                }));
      handle.wait();
      EXPECT_GT(kolo::detail::counters().device_portions, before + 1);
    }
  });
}

TEST_P(Collectives, GroupsAndPreparedRequests) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
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
  });
}

/// All-gathers of other types and lengths as one operation, prepared and not, and reductions to a root.
TEST_P(Collectives, GroupsOfCalls) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    const auto bytes_of = [](int of) { return elements_of(DType::uint8, of + 1, always(of)); };
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
    DeviceTensor more(DType::int32, 3, stream, [](std::int64_t i) { return i; });
    Handle sums = grouped_async("sums", {Call::reduce(floats.view(), root), Call::reduce(more.view(), root)});
    follow(sums, stream);
    const int n = size();
    EXPECT_EQ(floats.read(),
              rank() == root ? elements_of(DType::float32, 5, [=](std::int64_t i) { return n * i + 5 * n * (n - 1); })
                             : given);
    EXPECT_EQ(more.read(), elements_of(DType::int32, 3, [=](std::int64_t i) { return rank() == root ? n * i : i; }));
    sums.wait();
  });
}

/// Who is not the root may give an output, which is left as it is.
TEST_P(Collectives, ReduceWritesToItsRootAlone) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    for (int root = 0; root < size(); ++root) {
      const DeviceTensor in(DType::float32, 100, stream, always(1));
      const DeviceTensor out(DType::float32, 100, stream, always(3));
      EXPECT_EQ(result_of(reduce_into_async("x", in.view(), out.view(), root), out),
                elements_of(DType::float32, 100, always(rank() == root ? size() : 3)));
    }
  });
}

TEST_P(Collectives, AllgatherInPlaceOfUnevenRows) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    constexpr std::int64_t kWidth = 21;
    for (const std::int64_t most : {0, 3, 2000}) {
      const auto rows_of = [&](int of) { return of == 1 ? 0 : most + of; };
      std::int64_t before = 0;
      Bytes wanted;
      for (int r = 0; r < size(); ++r) {
        if (r < rank()) before += rows_of(r);
        const Bytes part = elements_of(DType::int16, rows_of(r) * kWidth, [&](std::int64_t i) { return i + r * 1000; });
        wanted.insert(wanted.end(), part.begin(), part.end());
      }
      const DeviceTensor out(DType::int16, static_cast<std::int64_t>(wanted.size() / 2), stream, always(-1));
      const TensorView place(out.data() + before * kWidth * 2, DType::int16, Shape{rows_of(rank()), kWidth},
                             own_device(), Stream{stream});
      write(place, elements_of(DType::int16, place.elements(), [](std::int64_t i) { return i + rank() * 1000; }));
      EXPECT_EQ(result_of(allgather_into_async("x", place, out.view()), out), wanted) << most;
    }
  });
}

/// Of which the hosts tell each other nothing.
TEST_P(Collectives, AllgatherOfEqualRows) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    for (const std::int64_t elements : {0, 3, 2000}) {
      DeviceTensor in(DType::int16, elements, stream, [](std::int64_t i) { return i + rank() * 1000; });
      DeviceTensor out(DType::int16, elements * size(), stream);
      const std::uint64_t before = kolo::detail::counters().device_exchanges;
      const auto wanted = elements_of(DType::int16, elements * size(),
                                      [&](std::int64_t i) { return i % elements + i / elements * 1000; });
      EXPECT_EQ(result_of(start({world(), "equal"}, Call::allgather_equal_into(in.view(), out.view())), out), wanted)
          << elements;
      out.write(elements_of(DType::int16, elements * size(), always(-1)));
      const TensorView place = out.view();
      std::byte* const mine = out.data() + static_cast<std::size_t>(elements) * 2 * static_cast<std::size_t>(rank());
      if (elements > 0) ok(cudaMemcpyAsync(mine, in.data(), in.bytes(), cudaMemcpyDeviceToDevice, stream));
      const TensorView part(mine, DType::int16, Shape{elements}, place.device(), place.stream());
      EXPECT_EQ(result_of(start({world(), "equal in place"}, Call::allgather_equal_into(part, place)), out), wanted)
          << elements << " in place";
      EXPECT_EQ(kolo::detail::counters().device_exchanges, before);
    }
    DeviceTensor in(DType::int16, 4, stream, always(1));
    DeviceTensor out(DType::int16, 4 * size(), stream);
    allgather_into("uneven", in.view(), out.view());
    EXPECT_EQ(kolo::detail::counters().device_exchanges, 2U);
    stream.synchronize();
    emulated::acquire_all();
  });
}

/// Rank `from` has so many rows for rank `to` in a round: none for some.
std::int64_t rows_for(int from, int to, int round) { return (from + 2 * to + round) % 4; }

/// By NCCL nobody is asked, and NCCL connects no two ranks anew when the numbers change.
TEST_P(Collectives, AnAllToAllWhoseSplitsAreKnownAsksNobody) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    const std::uint64_t before = kolo::detail::counters().device_exchanges;
    for (int round = 0; round < 5; ++round) {
      std::vector<std::int64_t> splits, received;
      std::int64_t in_rows = 0, out_rows = 0;
      Bytes given, wanted;
      const auto append = [](Bytes& bytes, int from, int to, std::int64_t rows) {
        const Bytes more =
            elements_of(DType::int32, 3 * rows, [&](std::int64_t i) { return 1000 * from + 100 * to + i; });
        bytes.insert(bytes.end(), more.begin(), more.end());
      };
      for (int other = 0; other < size(); ++other) {
        splits.push_back(rows_for(rank(), other, round));
        received.push_back(rows_for(other, rank(), round));
        append(given, rank(), other, splits.back());
        append(wanted, other, rank(), received.back());
        in_rows += splits.back();
        out_rows += received.back();
      }
      DeviceTensor in(DType::int32, 3 * in_rows, stream);
      DeviceTensor out(DType::int32, 3 * out_rows, stream);
      in.write(given);
      EXPECT_EQ(result_of(alltoall_known_into_async("known", in.view(Shape{in_rows, 3}), out.view(Shape{out_rows, 3}),
                                                    splits, received),
                          out),
                wanted);
    }
    if (!is_staged()) {
      EXPECT_EQ(kolo::detail::counters().device_exchanges, before);
    }
    emulated::acquire_all();
    barrier();
  });
}

TEST_P(Collectives, AllgatherWithoutRoomFailsEverywhereAndTheJobGoesOn) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    DeviceTensor in(DType::float32, 4, stream, always(rank()));
    DeviceTensor out(DType::float32, 4 * size() + (rank() == 0 ? 1 : 0), stream);
    EXPECT_THROW(allgather_into_async("gather", in.view(), out.view()).wait(), Error);
    EXPECT_EQ(result_of(allreduce_async("after", in.view()), in),
              elements_of(DType::float32, 4, always(size() * (size() - 1) / 2)));
  });
}

TEST_P(Collectives, TensorsOfTheCpuAndTheDeviceInOneBatch) {
  on_devices(ranks(), options(), [](const RankStream& stream) {
    DeviceTensor device(DType::float32, 100, stream);
    for (int step = 0; step < 5; ++step) {
      std::vector<float> host(100, static_cast<float>(rank() + step));
      device.write(elements_of(DType::float32, 100, always(rank() + step)));
      Handle a = allreduce_async("device", device.view());
      Handle b = allreduce_async("host", kolo::view(host));
      b.wait();
      a.wait();
      const int sum = size() * (size() - 1) / 2 + step * size();
      EXPECT_EQ(host, std::vector<float>(100, static_cast<float>(sum)));
      emulated::acquire_all();
      EXPECT_EQ(device.read(), elements_of(DType::float32, 100, always(sum)));
      barrier();
      end_step();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, ::testing::ValuesIn(worlds_of({1, 2, 4})), name_of_world);

}  // namespace
}  // namespace kolo::cuda::test
