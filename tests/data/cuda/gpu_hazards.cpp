// SPDX-License-Identifier: Apache-2.0
//
// What the program may do on its GPU beside Kolo, on a real device with ranks as processes. Run by scripts/gpu-check.
//
//     mpirun -np 2 gpu_hazards capture    # a thread captures graphs, in CUDA's strictest mode, while others reduce
//     mpirun -np 2 gpu_hazards freed      # an arena is destroyed while work that reads it waits on the device; and
//                                         # others, whose memory must become the device's again
//     mpirun -np 2 gpu_hazards contexts   # says where each rank is, and stays until standard input ends
//
// Prints what went wrong; exit status 0 when nothing did.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <kolo/cuda.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/kolo.hpp>

#include "bench/cuda_events.hpp"
#include "bench/gpu_times/spin.hpp"

namespace {

using kolo_bench::check;

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&raw_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~Stream() { static_cast<void>(cudaStreamDestroy(raw_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t raw() const { return raw_; }
  void synchronize() const { check(cudaStreamSynchronize(raw_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t raw_ = nullptr;
};

class Floats {
 public:
  explicit Floats(std::size_t count) : count_(count) { check(cudaMalloc(&data_, bytes()), "cudaMalloc"); }
  ~Floats() { static_cast<void>(cudaFree(data_)); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  [[nodiscard]] float* data() const { return static_cast<float*>(data_); }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(float); }
  void set(float value, const Stream& stream) const {
    const std::vector<float> values(count_, value);
    check(cudaMemcpyAsync(data_, values.data(), bytes(), cudaMemcpyHostToDevice, stream.raw()), "cudaMemcpyAsync");
    stream.synchronize();
  }
  /// How many of the first `count` are not `value`.
  [[nodiscard]] std::size_t wrong(float value, std::size_t count, const Stream& stream) const {
    std::vector<float> values(count);
    check(cudaMemcpyAsync(values.data(), data_, count * sizeof(float), cudaMemcpyDeviceToHost, stream.raw()),
          "cudaMemcpyAsync");
    stream.synchronize();
    std::size_t wrong = 0;
    for (const float one : values) wrong += one == value ? 0U : 1U;
    return wrong;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

/// A thread that captures small graphs, one after another, until it is destroyed, and replays each. In the mode
/// "global" a call of any thread that might disturb a capture is refused, or ends the capture.
class Capturer {
 public:
  explicit Capturer(int device) : device_(device), thread_([this] { run(); }) {}
  ~Capturer() { stop(); }
  Capturer(const Capturer&) = delete;
  Capturer& operator=(const Capturer&) = delete;

  void stop() {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] int captured() const { return captured_; }
  [[nodiscard]] int lost() const { return lost_; }
  [[nodiscard]] const std::string& why() const { return why_; }  ///< after `stop`

 private:
  void run() {
    try {
      check(cudaSetDevice(device_), "cudaSetDevice");
      const Stream stream;
      while (!stopped_) {
        capture(stream);
        ++captured_;
      }
    } catch (const std::exception& error) {
      ++lost_;
      why_ = error.what();
    }
  }
  void capture(const Stream& stream) {
    check(cudaStreamBeginCapture(stream.raw(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    for (int i = 0; i < 10; ++i) {
      kolo_bench::spin(1, stream.raw());
      std::this_thread::yield();
    }
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream.raw(), &graph), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphLaunch(executable, stream.raw()), "cudaGraphLaunch");
    stream.synchronize();
    check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }

  const int device_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int> captured_ = 0, lost_ = 0;
  std::string why_;
  std::thread thread_;
};

/// This thread's own calls disturb no capture.
void relax() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
}

/// All-reduces with new names and sizes in each round, of the world and of a group that is made anew.
std::size_t reduce(int rounds, int first, const Floats& values, const Stream& stream) {
  std::size_t wrong = 0;
  const auto ranks = static_cast<float>(kolo::size());
  for (int round = first; round < first + rounds; ++round) {
    values.set(1, stream);
    const auto view = kolo::cuda::view(values.data(), values.count() >> (round % 8), stream.raw());
    const std::string name = "round " + std::to_string(round);
    kolo::allreduce(name, view);
    float sum = ranks;
    if (round % 10 == 0) {
      kolo::allreduce({kolo::world().split(0), name}, view);
      sum *= ranks;
    }
    wrong += values.wrong(sum, values.count() >> (round % 8), stream);
  }
  return wrong;
}

/// Once while communicators are made, and once after that.
bool captures_beside_traffic(int device) {
  relax();
  const Stream stream;
  const Floats values(1 << 17);
  bool good = true;
  int round = 0;
  for (const char* when : {"while the first communicator is made", "later"}) {
    Capturer capturer(device);
    while (capturer.captured() < 3 && capturer.lost() == 0) std::this_thread::yield();
    const std::size_t wrong = reduce(50, round, values, stream);
    capturer.stop();
    round += 50;
    std::printf("rank %d, %s: %d captures, lost: %s; wrong values: %zu\n", kolo::rank(), when, capturer.captured(),
                capturer.lost() == 0 ? "none" : capturer.why().c_str(), wrong);
    good = good && capturer.lost() == 0 && wrong == 0;
  }
  return good;
}

/// What lies in an arena is read by work that the program gave to a stream of its own before it destroyed the arena.
bool arena_outlives_its_readers(int device) {
  constexpr std::size_t kCount = 1 << 20;
  constexpr double kBusy = 300'000;  // microseconds: more than all that follows takes without a wait
  const Stream reader, other;
  const Floats copy(kCount), values(1 << 17);
  const auto place = kolo::Device{kolo::DeviceKind::cuda, device};
  std::size_t wrong = 0;
  {
    kolo::GradientArena arena(kCount * sizeof(float), place);
    const kolo::TensorView gradient =
        arena.allocate(kolo::DType::float32, kolo::Shape{std::int64_t{kCount}}, kolo::Stream{reader.raw()});
    const std::vector<float> ones(kCount, 1);
    check(cudaMemcpyAsync(gradient.data(), ones.data(), copy.bytes(), cudaMemcpyHostToDevice, reader.raw()),
          "cudaMemcpyAsync");
    kolo::allreduce("gradient", gradient);
    kolo_bench::spin(kBusy, reader.raw());
    check(cudaMemcpyAsync(copy.data(), gradient.data(), copy.bytes(), cudaMemcpyDeviceToDevice, reader.raw()),
          "cudaMemcpyAsync");
  }
  wrong += reduce(10, 0, values, other);  // with the next batch the arena's memory is given back
  check(cudaStreamSynchronize(reader.raw()), "the work that reads the arena");
  wrong += copy.wrong(static_cast<float>(kolo::size()), kCount, reader);
  std::printf("rank %d: wrong values: %zu\n", kolo::rank(), wrong);
  return wrong == 0;
}

std::int64_t free_bytes() {
  std::size_t free = 0, all = 0;
  check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  return static_cast<std::int64_t>(free);
}

/// How many ranks have this device, where each has that at its place among the machine's ranks.
int ranks_on(int device) {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  return (kolo::size() - device + devices - 1) / devices;
}

/// With the batches that follow its end an arena's memory is the device's again, time after time.
bool arenas_are_given_back(int device) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kBytes = 256 << 20;
  constexpr std::chrono::seconds kPatience(10);
  const Stream stream;
  const Floats values(1 << 10);
  const auto place = kolo::Device{kolo::DeviceKind::cuda, device};
  int round = 1000;  // of names that nobody has used
  for (int i = 0; i < 4; ++i) {
    std::int64_t free_beside = 0;
    {
      const kolo::GradientArena arena(kBytes, place);
      reduce(1, ++round, values, stream);
      kolo::barrier();
      free_beside = free_bytes();
      kolo::barrier();  // no rank destroys its own while another one looks
    }
    const auto until = Clock::now() + kPatience;
    const std::int64_t enough = free_beside + ranks_on(device) * kBytes - kBytes / 4;
    bool everyone_has = false;
    while (!everyone_has) {
      reduce(1, ++round, values, stream);
      const std::int64_t free = free_bytes();
      const int mine = free >= enough ? 2 : Clock::now() < until ? 1 : 0;
      const int state = kolo::allreduce(mine, kolo::ReduceOp::min);
      if (state == 0) {
        std::printf("rank %d: arena %d: %lld bytes are free, %lld beside the arenas, and %lld were to be\n",
                    kolo::rank(), i, static_cast<long long>(free), static_cast<long long>(free_beside),
                    static_cast<long long>(enough));
        return false;
      }
      everyone_has = state == 2;
    }
  }
  std::printf("rank %d: the memory of 4 arenas was given back\n", kolo::rank());
  return true;
}

/// As nvidia-smi writes it.
std::string uuid_of(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    char byte[4];
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(properties.uuid.bytes[i]));
    text += (i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") + std::string(byte);
  }
  return text;
}

/// Collectives of the world and of a group, by this thread and by one that has not called CUDA.
bool stays_for_a_look(int device) {
  const Stream stream;
  const Floats values(1 << 17);
  std::size_t wrong = reduce(20, 0, values, stream);
  const auto view = kolo::cuda::view(values.data(), values.count(), stream.raw());
  values.set(1, stream);
  const kolo::Group world = kolo::world();
  std::async(std::launch::async, [&] { kolo::allreduce({world, "by another thread"}, view); }).get();
  wrong += values.wrong(static_cast<float>(kolo::size()), values.count(), stream);
  std::printf("process %d of rank %d uses %s; wrong values: %zu\n", static_cast<int>(getpid()), kolo::rank(),
              uuid_of(device).c_str(), wrong);
  std::fflush(stdout);
  while (kolo::rank() == 0 && std::getchar() != EOF) {
  }
  kolo::barrier();
  return wrong == 0;
}

bool run(const std::string& mode, int device) {
  if (mode == "capture") return captures_beside_traffic(device);
  if (mode == "contexts") return stays_for_a_look(device);
  const bool is_read_first = arena_outlives_its_readers(device);
  return arenas_are_given_back(device) && is_read_first;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode != "capture" && mode != "freed" && mode != "contexts") {
    std::fprintf(stderr, "usage: gpu_hazards capture|freed|contexts\n");
    return 2;
  }
  try {
    kolo::Session session;
    const int device = kolo::cuda::bind();
    return run(mode, device) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_hazards: %s\n", error.what());
    return 1;
  }
}
