// SPDX-License-Identifier: Apache-2.0
//
// kolo-null-device: what an all-reduce of tensors on GPUs costs the host, on a device that does nothing
// (null_device.hpp).
//
//     mpirun -np 2 kolo-null-device
//
// Beside it, in turns, what a program makes of CUDA and NCCL without Kolo: as PyTorch's ProcessGroupNCCL does, an event
// on the program's stream, a wait of NCCL's own stream for it, ncclAllReduce, an event behind that, and a wait of the
// program's stream for the second event. On this device that is next to nothing, so the difference is what Kolo's own
// code takes, the ranks' agreement included, which the plain way does not have. A real
// device adds the time of each call of CUDA and NCCL to both; docs/gpu.md says how many there are. A build that has
// kolo_torch with CUDA measures its all-reduce, too (job.hpp).
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <boost/program_options.hpp>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <kolo/cuda.hpp>
#include <kolo/kolo.hpp>

#include "bench/kolo_bench/models.hpp"
#include "bench/kolo_bench/samples.hpp"
#include "job.hpp"
#include "null_device.hpp"

namespace {

namespace po = boost::program_options;
using kolo_bench::nccl_all_reduces;
using kolo_bench::Summary;

struct BadFlags : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(int result, const char* call) {
  if (result != 0) throw std::runtime_error(std::string(call) + " failed");
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
  return stream;
}

cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event;
}

/// Tensors on the device, and the program's stream, on which all of them are written.
struct Tensors {
  explicit Tensors(const std::vector<std::int64_t>& elements) {
    for (const std::int64_t count : elements) {
      void* memory = nullptr;
      check(cudaMalloc(&memory, static_cast<std::size_t>(count) * sizeof(float)), "cudaMalloc");
      views.push_back(kolo::cuda::view(static_cast<float*>(memory), static_cast<std::size_t>(count), stream));
      named.push_back({"gradient " + std::to_string(elements.size() - views.size()), views.back()});
    }
  }
  ~Tensors() {
    for (const kolo::TensorView& view : views) static_cast<void>(cudaFree(view.data()));
  }
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;

  const cudaStream_t stream = new_stream();
  std::vector<kolo::TensorView> views;
  std::vector<kolo::NamedView> named;
};

// ---------------------------------------------------------------- what is measured

using Call = std::function<void()>;

/// One all-reduce without a name. Nothing keeps the handle: the stream is behind the result.
Call kolo_lone(const Tensors& tensors) {
  return [&tensors] {
    kolo::Handle handle = kolo::allreduce_async(tensors.views.front());
    kolo::cuda::wait_on(handle, tensors.stream);
  };
}

/// A step, of what `start` begins. A name is free again once its handle says so, as in a loop of training.
Call kolo_step(const Tensors& tensors, const std::function<void(std::vector<kolo::Handle>&)>& start) {
  return [&tensors, start, handles = std::make_shared<std::vector<kolo::Handle>>()] {
    kolo::wait_all(*handles);
    handles->clear();
    start(*handles);
    for (kolo::Handle& handle : *handles) kolo::cuda::wait_on(handle, tensors.stream);
    kolo::end_step();
  };
}

Call kolo_by_name(const Tensors& tensors) {
  return kolo_step(tensors, [&tensors](std::vector<kolo::Handle>& handles) {
    for (const kolo::NamedView& one : tensors.named) handles.push_back(kolo::allreduce_async(one.name, one.view));
  });
}

Call kolo_prepared(const Tensors& tensors) {
  const auto prepared = std::make_shared<std::vector<kolo::Prepared>>();
  for (const kolo::NamedView& one : tensors.named) {
    prepared->push_back(kolo::prepare("prepared " + one.name, kolo::Call::allreduce(one.view)));
  }
  return kolo_step(tensors, [prepared](std::vector<kolo::Handle>& handles) {
    for (kolo::Prepared& one : *prepared) handles.push_back(one.start());
  });
}

Call kolo_grouped(const Tensors& tensors) {
  const auto prepared =
      std::make_shared<kolo::Prepared>(kolo::prepare("all gradients", kolo::Call::grouped_allreduce(tensors.named)));
  return kolo_step(tensors, [prepared](std::vector<kolo::Handle>& handles) { handles.push_back(prepared->start()); });
}

/// All tensors by ProcessGroupNCCL's calls: one by one, or as one group of NCCL's.
class Plain {
 public:
  Plain(const Tensors& tensors, bool is_grouped) : tensors_(tensors), is_grouped_(is_grouped) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    check(ncclCommInitRankConfig(&communicator_, kolo::size(), {}, kolo::rank(), &config), "ncclCommInitRankConfig");
    while (ended_.size() < (is_grouped ? 1 : tensors.views.size())) ended_.push_back(new_event());
  }
  void operator()() const {
    if (is_grouped_) check(ncclGroupStart(), "ncclGroupStart");
    for (std::size_t i = 0; i < tensors_.views.size(); ++i) {
      const bool has_events = !is_grouped_ || i == 0;
      if (has_events) {
        check(cudaEventRecord(ready_, tensors_.stream), "cudaEventRecord");
        check(cudaStreamWaitEvent(own_, ready_, 0), "cudaStreamWaitEvent");
      }
      const kolo::TensorView& view = tensors_.views[i];
      check(ncclAllReduce(view.data(), view.data(), static_cast<std::size_t>(view.elements()), ncclFloat32, ncclSum,
                          communicator_, own_),
            "ncclAllReduce");
      if (!is_grouped_) check(cudaEventRecord(ended_[i], own_), "cudaEventRecord");
    }
    if (is_grouped_) {
      check(ncclGroupEnd(), "ncclGroupEnd");
      check(cudaEventRecord(ended_.front(), own_), "cudaEventRecord");
    }
    for (cudaEvent_t event : ended_) check(cudaStreamWaitEvent(tensors_.stream, event, 0), "cudaStreamWaitEvent");
  }

 private:
  const Tensors& tensors_;
  const bool is_grouped_;
  const cudaStream_t own_ = new_stream();
  const cudaEvent_t ready_ = new_event();
  std::vector<cudaEvent_t> ended_;
  ncclComm_t communicator_ = nullptr;
};

// ---------------------------------------------------------------- how

/// Microseconds of a call, by sample.
struct Samples {
  std::vector<double> wall;  ///< of the calling thread, until it goes on
  std::vector<double> cpu;   ///< of all the process's threads
  std::size_t calls = 0;
  std::size_t all_reduces = 0;  ///< NCCL's
};

double cpu_us() {
  timespec now{};
  check(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), "clock_gettime");
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

/// One sample: the mean of several calls in a row, behind a barrier and a call that does not count.
void take_sample(const Call& call, int calls, Samples& samples) {
  kolo::barrier();
  call();
  const std::size_t all_reduces_before = nccl_all_reduces();
  const double cpu_before = cpu_us();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  const std::chrono::duration<double, std::micro> wall = std::chrono::steady_clock::now() - begin;
  samples.wall.push_back(wall.count() / calls);
  samples.cpu.push_back((cpu_us() - cpu_before) / calls);
  samples.calls += static_cast<std::size_t>(calls);
  samples.all_reduces += nccl_all_reduces() - all_reduces_before;
}

/// Of the slowest rank, sample by sample.
Summary summary_of(std::vector<double> samples) {
  kolo::allreduce(kolo::view(samples), kolo::ReduceOp::max);
  return kolo_bench::summarize(std::move(samples));
}

void print(const std::string& what, const Summary& wall, const Summary& cpu, double all_reduces) {
  if (kolo::rank() != 0) return;
  std::printf("%-44s %9.3f %9.3f %9.3f %10.3f %8.1f\n", what.c_str(), wall.median, wall.p10, wall.p90, cpu.median,
              all_reduces);
  std::fflush(stdout);
}

/// Throws where the way did not lead to NCCL.
double all_reduces_of(const std::string& what, const Samples& samples) {
  if (samples.all_reduces < samples.calls) {
    throw std::runtime_error(what + ": " + std::to_string(samples.calls) + " calls made only " +
                             std::to_string(samples.all_reduces) + " of ncclAllReduce");
  }
  return static_cast<double>(samples.all_reduces) / static_cast<double>(samples.calls);
}

/// A way to do what is measured.
struct Contestant {
  std::string name;
  Call call;
  Samples samples = {};
};

/// They take turns, sample by sample.
void measure(const std::string& what, std::vector<Contestant> contestants, int calls, int rounds) {
  constexpr int kWarm = 20;  // Kolo's plans are made, and NCCL has connected
  for (const Contestant& one : contestants) {
    for (int i = 0; i < kWarm; ++i) one.call();
  }
  for (int round = 0; round < rounds; ++round) {
    for (Contestant& one : contestants) take_sample(one.call, calls, one.samples);
  }
  for (const Contestant& one : contestants) {
    const double all_reduces = all_reduces_of(what, one.samples);
    print(what + ", " + one.name, summary_of(one.samples.wall), summary_of(one.samples.cpu), all_reduces);
  }
}

void measure_lone(std::int64_t bytes, const Tensors& tensors, kolo_bench::Job& job, int rounds) {
  constexpr int kCalls = 200;
  std::vector<Contestant> contestants{{"Kolo", kolo_lone(tensors)}};
  if (Call call = job.by_torch(bytes)) contestants.push_back({"kolo_torch", std::move(call)});
  contestants.push_back({"plain", Plain(tensors, false)});
  measure("all-reduce of " + std::to_string(bytes) + " bytes", std::move(contestants), kCalls, rounds);
}

void measure_step(const std::string& how, Call with_kolo, Plain plain, int rounds) {
  constexpr int kSteps = 5;
  measure("ResNet-50 " + how, {{"Kolo", std::move(with_kolo)}, {"plain", std::move(plain)}}, kSteps, rounds);
}

void run(int rounds) {
  std::deque<Tensors> tensors;  // outlive the job, whose end is that of what is still open
  kolo_bench::Job job;
  if (kolo::rank() == 0) {
    std::printf("%d ranks, %d samples of each in turns; of the slowest rank\n%-44s %9s %9s %9s %10s %8s\n",
                kolo::size(), rounds, "", "median us", "p10", "p90", "CPU us", "of NCCL");
  }
  for (const std::int64_t bytes : {std::int64_t{8}, std::int64_t{1} << 20, std::int64_t{64} << 20}) {
    const Tensors& one = tensors.emplace_back(std::vector{bytes / static_cast<std::int64_t>(sizeof(float))});
    measure_lone(bytes, one, job, rounds);
  }
  std::vector<std::int64_t> elements = kolo_bench::find_model("resnet50").tensors;
  std::reverse(elements.begin(), elements.end());  // as a backward pass computes them
  const Tensors& gradients = tensors.emplace_back(elements);
  measure_step("by name", kolo_by_name(gradients), Plain(gradients, false), rounds);
  measure_step("prepared", kolo_prepared(gradients), Plain(gradients, false), rounds);
  measure_step("grouped", kolo_grouped(gradients), Plain(gradients, true), rounds);
}

/// 0: help was printed.
int parse_rounds(int argc, char** argv) {
  int rounds = 0;
  po::options_description options("flags");
  auto add = options.add_options();
  add("help,h", "print this");
  add("rounds", po::value(&rounds)->value_name("N")->default_value(200), "samples of each row, at least 1");
  po::variables_map given;
  try {
    po::store(po::command_line_parser(argc, argv).options(options).positional({}).run(), given);
    po::notify(given);
  } catch (const po::error& error) {
    throw BadFlags(error.what());
  }
  if (given.count("help") != 0) {
    std::cout << "Measures what all-reduces of tensors on GPUs cost the host, on a device that does nothing.\n\n"
              << options
              << "\nCPU: of all threads of a rank. of NCCL: calls of ncclAllReduce.\n"
                 "Exit status: 0 done, 1 the job failed, or a call did not lead to NCCL; 2 the flags are wrong.\n";
    return 0;
  }
  if (rounds < 1) throw BadFlags("--rounds is at least 1");
  return rounds;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (const int rounds = parse_rounds(argc, argv)) run(rounds);
    return 0;
  } catch (const BadFlags& error) {
    std::cerr << "kolo-null-device: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "kolo-null-device: " << error.what() << "\n";
    return 1;
  }
}
