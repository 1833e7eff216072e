// SPDX-License-Identifier: Apache-2.0
//
// Looking at tensors of a device: what it did, in timelines, and the checks of NaN and of replicas.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <kolo/kolo.hpp>

#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {
namespace {

using Json = nlohmann::json;

// ---------------------------------------------------------------- timelines

/// One event of a timeline, in nanoseconds.
struct Shown {
  std::string name;
  std::string row;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t bytes = 0;
  Json arguments;
};

std::int64_t nanoseconds(const Json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

class DeviceTimeline : public CudaTest {
 protected:
  DeviceTimeline() {
    std::string pattern = ::testing::TempDir() + "deviceXXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr) << pattern;
    folder_ = pattern;
  }
  ~DeviceTimeline() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path() const { return folder_ + "/run.json"; }
  /// A rank's spans, in the order of the file.
  [[nodiscard]] std::vector<Shown> spans_of(int rank) const {
    std::ifstream file(path());
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::map<int, std::string> rows;
    std::vector<Shown> spans;
    for (const Json& event : Json::parse(text)) {
      if (event["pid"] != rank) continue;
      if (event["name"] == "thread_name") rows[event["tid"]] = event["args"]["name"];
      if (event["ph"] != "X") continue;
      const std::int64_t begin = nanoseconds(event["ts"]);
      spans.push_back({event["name"], rows[event["tid"]], begin, begin + nanoseconds(event["dur"]),
                       event["args"].value("bytes", std::int64_t{0}), event["args"]});
    }
    return spans;
  }
  /// What a rank's device did for the batch in which this tensor ran, all of it within that.
  [[nodiscard]] static std::vector<Shown> of_batch(const std::vector<Shown>& spans, const std::string& tensor) {
    const auto host = std::find_if(spans.begin(), spans.end(), [&](const Shown& one) {
      return one.row == tensor && one.arguments.contains("batch");
    });
    std::vector<Shown> found;
    if (host == spans.end()) {
      ADD_FAILURE() << "no batch of " << tensor;
      return found;
    }
    for (const Shown& one : spans) {
      if (one.row.rfind("device: ", 0) != 0 || one.arguments["batch"] != host->arguments["batch"]) continue;
      EXPECT_GE(one.begin, host->begin) << one.name << " of " << tensor;
      EXPECT_LE(one.begin, one.end) << one.name << " of " << tensor;
      EXPECT_LE(one.end, host->end) << one.name << " of " << tensor;
      found.push_back(one);
    }
    return found;
  }
  /// "pack on device: nccl", ... in order.
  [[nodiscard]] static std::vector<std::string> places(const std::vector<Shown>& spans) {
    std::vector<std::string> places;
    places.reserve(spans.size());
    for (const Shown& one : spans) places.push_back(one.name + " on " + one.row);
    return places;
  }
  static void expect_one_after_another(const std::vector<Shown>& spans) {
    for (std::size_t i = 1; i < spans.size(); ++i)
      EXPECT_LE(spans[i - 1].end, spans[i].begin) << spans[i - 1].name << ", then " << spans[i].name;
  }

  std::string folder_;
};

using Places = std::vector<std::string>;

TEST_F(DeviceTimeline, HasWhatTheDeviceDidForEachBatch) {
  constexpr std::int64_t kSmall = 1000;     // floats
  constexpr std::int64_t kLarge = 200'000;  // of which a fusion buffer of 1 MiB holds one
  on_devices(2, options(), [&](const RankStream& stream) {
    const DeviceTensor a(DType::float32, kSmall, stream, always(0));
    const DeviceTensor b(DType::float32, kSmall, stream, always(0));
    const DeviceTensor c(DType::float32, kLarge, stream, always(0));
    const DeviceTensor d(DType::float32, kLarge, stream, always(0));
    const std::vector<NamedView> small{{"a", a.view()}, {"b", b.view()}};
    const std::vector<NamedView> large{{"c", c.view()}, {"d", d.view()}};
    allreduce("before", a.view());
    start_timeline(path());
    allreduce("lone", c.view());
    grouped_allreduce("small", small);
    grouped_allreduce("large", large);
    allreduce(a.view());
    stop_timeline();
    allreduce("after", a.view());
    emulated::acquire_all();
  });
  for (int rank = 0; rank < 2; ++rank) {
    SCOPED_TRACE(rank);
    const std::vector<Shown> spans = spans_of(rank);
    const std::vector<Shown> lone = of_batch(spans, "lone");
    ASSERT_EQ(places(lone), (Places{"nccl on device: nccl"}));
    EXPECT_EQ(lone[0].bytes, 4 * kLarge);
    EXPECT_EQ(lone[0].arguments["in_place"], true);

    const std::vector<Shown> small = of_batch(spans, "small");
    ASSERT_EQ(places(small), (Places{"pack on device: nccl", "nccl on device: nccl", "unpack on device: nccl"}));
    expect_one_after_another(small);
    EXPECT_EQ(small[0].bytes, 8 * kSmall);
    EXPECT_EQ(small[1].bytes, 8 * kSmall);
    EXPECT_EQ(small[1].arguments["in_place"], false);
    EXPECT_EQ(small[2].bytes, 8 * kSmall);

    const std::vector<Shown> large = of_batch(spans, "large");
    const Places of_step{"pack on device: pack", "nccl on device: nccl", "unpack on device: unpack"};
    ASSERT_EQ(large.size(), 6U) << "two steps";
    std::int64_t bytes = 0;
    for (std::size_t step = 0; step < 2; ++step) {
      const std::vector<Shown> one(large.begin() + 3 * step, large.begin() + 3 * step + 3);
      EXPECT_EQ(places(one), of_step);
      expect_one_after_another(one);
      bytes += one[0].bytes;
      if (step == 0) continue;
      for (std::size_t i = 0; i < 3; ++i) EXPECT_LE(large[i].end, one[i].begin) << "on the same stream";
    }
    EXPECT_EQ(bytes, 8 * kLarge);

    EXPECT_EQ(places(of_batch(spans, "unnamed")), (Places{"nccl on device: nccl"}));
    const auto on_device =
        std::count_if(spans.begin(), spans.end(), [](const Shown& one) { return one.row.rfind("device: ", 0) == 0; });
    EXPECT_EQ(on_device, 11) << "of no other batches";
  }
}

TEST_F(DeviceTimeline, OfTheStagedBackendHasCopiesAndTheCpu) {
  on_devices(2, options().with_setting("KOLO_GPU_BACKEND", "staged"), [&](const RankStream& stream) {
    const DeviceTensor a(DType::float32, 1000, stream, always(0));
    start_timeline(path());
    allreduce("a", a.view());
    stop_timeline();
    emulated::acquire_all();
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<Shown> spans = of_batch(spans_of(rank), "a");
    ASSERT_EQ(places(spans), (Places{"pack on device: pack", "staged on device: staged", "unpack on device: unpack"}));
    expect_one_after_another(spans);
  }
}

/// Two groups have streams of their own, and no two spans of a stream overlap.
TEST_F(DeviceTimeline, OfGroupsHasARowForEachStream) {
  on_devices(2, options(), [&](const RankStream& stream) {
    const DeviceTensor a(DType::float32, 1000, stream, always(0));
    const DeviceTensor b(DType::float32, 1000, stream, always(0));
    const Group other = Group::of({1, 0});
    allreduce("a", a.view());
    allreduce({other, "b"}, b.view());
    start_timeline(path());
    for (int round = 0; round < 10; ++round) {
      std::vector<Handle> handles;
      handles.push_back(allreduce_async("a", a.view()));
      handles.push_back(allreduce_async({other, "b"}, b.view()));
      wait_all(handles);
    }
    stop_timeline();
    emulated::acquire_all();
  });
  for (int rank = 0; rank < 2; ++rank) {
    std::map<std::string, std::vector<Shown>> by_row;
    for (const Shown& one : spans_of(rank)) {
      if (one.row.rfind("device: ", 0) == 0) by_row[one.row].push_back(one);
    }
    ASSERT_EQ(by_row.size(), 2U);
    std::set<bool> of_group;
    for (const auto& [row, spans] : by_row) {
      EXPECT_EQ(spans.size(), 10U) << row;
      for (const Shown& one : spans) EXPECT_EQ(one.arguments.contains("group"), spans[0].arguments.contains("group"));
      of_group.insert(spans[0].arguments.contains("group"));
      expect_one_after_another(spans);
    }
    EXPECT_EQ(of_group.size(), 2U);
  }
}

/// What the device does lies within its batch all the same.
TEST_F(DeviceTimeline, OfADeviceWhoseClockGoesWrong) {
  constexpr int kRounds = 100;
  for (const double rate : {0.9, 1.1}) {
    SCOPED_TRACE(rate);
    emulated::Config config = machine();
    config.clock_rate = rate;
    emulated::reset(config);
    on_devices(2, options(), [&](const RankStream& stream) {
      const DeviceTensor a(DType::float32, 1000, stream, always(0));
      allreduce("a", a.view());
      start_timeline(path());
      for (int round = 0; round < kRounds; ++round) allreduce("a", a.view());
      stop_timeline();
      emulated::acquire_all();
    });
    for (int rank = 0; rank < 2; ++rank) {
      std::map<std::int64_t, std::pair<Shown, Shown>> batches;  // on the host, on the device
      for (const Shown& one : spans_of(rank)) {
        if (one.name == "allreduce") batches[one.arguments["batch"]].first = one;
        if (one.name == "nccl") batches[one.arguments["batch"]].second = one;
      }
      EXPECT_EQ(batches.size(), static_cast<std::size_t>(kRounds));
      for (const auto& [number, batch] : batches) {
        EXPECT_GE(batch.second.begin, batch.first.begin) << number;
        EXPECT_LT(batch.second.begin, batch.second.end) << number;
        EXPECT_LE(batch.second.end, batch.first.end) << number;
      }
    }
    expect_no_reports();
  }
}

/// The timeline then lacks rows of that rank's device, and nothing else is lost. The next one has them again.
TEST_F(DeviceTimeline, ThatCannotBeToldEndsWithAWarning) {
  struct Case {
    const char* api;
    std::uint64_t nth;  // from when the tensor is submitted
  };
  for (const auto& [api, nth] : {Case{"cudaEventElapsedTime", 1}, Case{"cudaEventRecord", 2}}) {
    SCOPED_TRACE(api);
    emulated::reset(machine());
    std::mutex mutex;
    std::vector<std::string> said;
    const Options with = options().with_log_sink([&](const LogRecord& one) {
      const std::lock_guard<std::mutex> lock(mutex);
      said.push_back(std::to_string(one.rank) + ": " + one.message);
    });
    on_devices(2, with, [&, api = api, nth = nth](const RankStream& stream) {
      const DeviceTensor a(DType::float32, 1000, stream, always(0));
      allreduce("a", a.view());
      start_timeline(path());
      allreduce("a", a.view());
      together(1, [&] { emulated::inject({.api = api, .nth = nth, .code = cudaErrorUnknown, .device = 1}); });
      for (int i = 0; i < 3; ++i) allreduce("a", a.view());
      stop_timeline();
      const auto count = [&](int of) {
        const std::vector<Shown> spans = spans_of(of);
        return std::count_if(spans.begin(), spans.end(), [](const Shown& one) { return one.name == "nccl"; });
      };
      together(0, [&] { EXPECT_EQ(std::pair(count(0), count(1)), std::pair(4L, 1L)); });
      start_timeline(path());
      allreduce("a", a.view());
      stop_timeline();
      together(0, [&] { EXPECT_EQ(count(1), 1); });
      emulated::acquire_all();
    });
    EXPECT_EQ(said, (std::vector<std::string>{std::string("1: the timeline has no more rows of the device: ") + api +
                                              " failed: cudaErrorUnknown (cudaErrorUnknown)"}));
    expect_no_reports();
  }
}

/// A program captures a stream of its own in the strictest mode, from before the first batch that is timed.
TEST_F(DeviceTimeline, DoesNotDisturbACapture) {
  for (const char* backend : {"nccl", "staged"}) {
    SCOPED_TRACE(backend);
    const RankStream captured;
    on_devices(2, options().with_setting("KOLO_GPU_BACKEND", backend), [&](const RankStream& stream) {
      const DeviceTensor a(DType::float32, 1000, stream, always(0));
      stream.synchronize();
      cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // of this thread's own calls
      ok(cudaThreadExchangeStreamCaptureMode(&mode));
      barrier();
      if (rank() == 0) ok(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
      start_timeline(path());
      for (int round = 0; round < 3; ++round) allreduce("a", a.view());
      stop_timeline();
      cudaGraph_t graph = nullptr;
      if (rank() == 0) ok(cudaStreamEndCapture(captured, &graph));
      emulated::acquire_all();
    });
    EXPECT_FALSE(of_batch(spans_of(0), "a").empty());
    expect_no_reports();
  }
}

// ---------------------------------------------------------------- NaN

class DeviceNan : public CudaTest {
 protected:
  static Options options() { return CudaTest::options().with_setting("KOLO_CHECK_NAN", "1"); }
  static void set_nan(DType dtype, Bytes& bytes, std::int64_t element) {
    const auto put = [&](auto bits) {
      std::memcpy(bytes.data() + element * static_cast<std::int64_t>(sizeof bits), &bits, sizeof bits);
    };
    if (dtype == DType::float64) put(std::uint64_t{0xfff8000000000001});
    if (dtype == DType::float32) put(std::uint32_t{0x7f800001});
    if (dtype == DType::float16) put(std::uint16_t{0xfc01});
    if (dtype == DType::bfloat16) put(std::uint16_t{0x7fff});
  }
};

TEST_F(DeviceNan, IsRefusedWithItsPlace) {
  on_devices(2, options(), [](const RankStream& stream) {
    for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
      SCOPED_TRACE(to_string(dtype));
      const auto elements = static_cast<std::int64_t>((std::size_t{3} << 19) / size_of(dtype));  // 1.5 MiB
      const std::int64_t bad = elements - 1000;  // not in the first piece that is read
      const DeviceTensor x(dtype, elements, stream, /*misalignment=*/size_of(dtype));
      const auto zeros = Bytes(x.bytes());
      Bytes contents = zeros;
      set_nan(dtype, contents, bad);
      set_nan(dtype, contents, bad + 7);
      const std::string rest = "element " + std::to_string(bad) + " of " + std::to_string(elements) +
                               " is NaN on rank " + std::to_string(rank()) +
                               " in step 1 (KOLO_CHECK_NAN); it was not submitted";
      x.write(zeros);
      allreduce("w", x.view());
      Prepared prepared = prepare("p", Call::allreduce(x.view()));
      emulated::acquire_all();
      x.write(contents);  // in a while: the stream has it
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { allreduce("w", x.view()); }),
                "allreduce of \"w\": " + rest);
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { allreduce(x.view()); }), "unnamed allreduce: " + rest);
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { Handle lost = allreduce_async(x.view()); }),
                "unnamed allreduce: " + rest);
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { static_cast<void>(prepared.start()); }),
                "allreduce of \"p\": " + rest);
      const std::vector<NamedView> members{{"w1", x.view()}};
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { grouped_allreduce("g", members); }),
                "allreduce of \"w1\": " + rest);
      broadcast("b", x.view(), 0);  // nothing is added
      emulated::acquire_all();
      x.write(zeros);
      allreduce("w", x.view());
      emulated::acquire_all();
      prepared.start().wait();
      emulated::acquire_all();
    }
    const DeviceTensor number(DType::int32, 10, stream);
    number.write(Bytes(number.bytes(), 0xff));
    allreduce("i", number.view());
    stream.synchronize();
    emulated::acquire_all();
  });
}

/// The check waits for the stream, which waits for collectives of both ranks: they run meanwhile.
TEST_F(DeviceNan, IsLookedForBehindCollectivesOnTheSameStream) {
  for (const char* backend : {"nccl", "staged"}) {
    on_devices(2, options().with_setting("KOLO_GPU_BACKEND", backend), [](const RankStream& stream) {
      const DeviceTensor x(DType::float32, 1000, stream);
      Bytes contents = elements_of(DType::float32, 1000, always(1));
      x.write(contents);
      for (int round = 0; round < 5; ++round) {
        Handle handle = allreduce_async("x" + std::to_string(round), x.view());
        wait_on(handle, stream);
      }
      if (rank() == 0) set_nan(DType::float32, contents, 3);
      x.write(contents);
      const std::string said = sentence_of(ErrorCode::invalid_argument, [&] {
        Handle handle = allreduce_async("x", x.view());
        wait_on(handle, stream);
      });
      if (rank() == 0) {
        EXPECT_EQ(said.rfind("allreduce of \"x\": element 3 of 1000 is NaN on rank 0", 0), 0U) << said;
        x.write(elements_of(DType::float32, 1000, always(1)));
        Handle handle = allreduce_async("x", x.view());
        wait_on(handle, stream);
      } else {
        EXPECT_EQ(said, "(nothing was thrown)");
      }
      EXPECT_EQ(x.read(), elements_of(DType::float32, 1000, always(2)));
      emulated::acquire_all();
    });
    expect_no_reports();
  }
}

TEST_F(DeviceNan, IsNotLookedForInAStreamThatIsCaptured) {
  on_devices(1, options(), [](const RankStream& stream) {
    const DeviceTensor x(DType::float32, 10, stream);
    x.write(Bytes(x.bytes()));
    stream.synchronize();
    ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_TRUE(
        refused(ErrorCode::invalid_argument, "the stream is being captured", [&] { allreduce("x", x.view()); }));
    cudaGraph_t graph = nullptr;
    ok(cudaStreamEndCapture(stream, &graph));
  });
}

// ---------------------------------------------------------------- replicas

class DeviceReplicas : public CudaTest {};

TEST_F(DeviceReplicas, ThatDifferAreNamed) {
  constexpr std::int64_t kElements = 300'000;  // more than a piece that is read
  on_devices(4, options(), [](const RankStream& stream) {
    const DeviceTensor a(DType::float32, 100, stream);
    const DeviceTensor b(DType::float32, kElements, stream);
    std::vector<float> on_host(100, 1);
    const auto ones = [](std::int64_t elements) { return elements_of(DType::float32, elements, always(1)); };
    Bytes of_b = ones(kElements);
    a.write(ones(100));
    b.write(of_b);
    // Where a value lies does not matter.
    const TensorView first = rank() == 3 ? kolo::view(on_host) : a.view();
    const std::vector<Parameter> parameters{{"a", first}, {"b", b.view()}};
    check_replicas(parameters);
    if (rank() == 2) of_b.back() ^= 1;
    b.write(of_b);
    std::string said;
    try {
      check_replicas(parameters);
    } catch (const Error& error) {
      said = error.status().message();
    }
    EXPECT_EQ(said, "parameter \"b\" is not the same on all ranks: rank 2 holds other values than ranks 0, 1 and 3");
    emulated::acquire_all();
  });
}

}  // namespace
}  // namespace kolo::cuda::test
