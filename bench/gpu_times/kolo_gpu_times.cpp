// SPDX-License-Identifier: Apache-2.0
//
// kolo-gpu-times: when what happens to all-reduces on a GPU.
//
//     mpirun -np 2 kolo-gpu-times lone       # one at a time, from the call until the caller goes on
//     mpirun -np 2 kolo-gpu-times batches    # gradients that come one after another on the device
//
// The times are the program's own around public calls, and those of CUPTI's records: of calls into CUDA, by thread, and
// of kernels. "woken" is the first call into CUDA of another thread than the caller's. Without CUPTI the former remain.
//
// Ranks that share a device have a context each, which take turns there, some milliseconds at a time.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <boost/program_options.hpp>
#include <kolo/cuda.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/kolo.hpp>
#include <nlohmann/json.hpp>

#include "bench/cuda_events.hpp"
#include "spin.hpp"
#include "trace.hpp"

namespace {

namespace po = boost::program_options;
using kolo_bench::check;
using kolo_bench::Nanoseconds;
using kolo_bench::Point;
using kolo_bench::Traced;
using kolo_bench::TracedCall;
using kolo_bench::TracedWork;

struct Flags {
  std::string mode;
  std::int64_t bytes = 0;
  int batches = 0;
  double apart_us = 0;
  int iterations = 0;
  std::string json;
};

constexpr int kWarmUp = 5;

double microseconds(Nanoseconds from, Nanoseconds to) {
  return (static_cast<double>(to) - static_cast<double>(from)) / 1e3;
}

/// Rows of samples, in the order in which their names were given.
class Table {
 public:
  explicit Table(const std::vector<std::string>& names) {
    for (const std::string& name : names) rows_.push_back({name, {}});
  }
  void add(std::string_view name, double value) {
    const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const auto& one) { return one.first == name; });
    row->second.push_back(value);
  }
  /// To stdout and as a record: what has samples.
  [[nodiscard]] nlohmann::ordered_json report() {
    nlohmann::ordered_json record = nlohmann::ordered_json::array();
    std::printf("%-40s %10s %10s %10s %8s\n", "", "median us", "p10", "p90", "samples");
    for (auto& [name, samples] : rows_) {
      if (samples.empty()) continue;
      std::sort(samples.begin(), samples.end());
      const auto at = [&, &values = samples](double part) {
        return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
      };
      std::printf("%-40s %10.2f %10.2f %10.2f %8zu\n", name.c_str(), at(0.5), at(0.1), at(0.9), samples.size());
      record.push_back({{"what", name},
                        {"median_us", at(0.5)},
                        {"p10_us", at(0.1)},
                        {"p90_us", at(0.9)},
                        {"samples", samples.size()}});
    }
    return record;
  }

 private:
  std::vector<std::pair<std::string, std::vector<double>>> rows_;
};

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

/// Zeros on the device: their sums are as good as any.
class Gradient {
 public:
  explicit Gradient(std::int64_t bytes) : count_(static_cast<std::size_t>(bytes) / sizeof(float)) {
    check(cudaMalloc(&data_, count_ * sizeof(float)), "cudaMalloc");
    check(cudaMemset(data_, 0, count_ * sizeof(float)), "cudaMemset");
  }
  ~Gradient() { static_cast<void>(cudaFree(data_)); }
  Gradient(const Gradient&) = delete;
  Gradient& operator=(const Gradient&) = delete;
  [[nodiscard]] kolo::TensorView on(const Stream& stream) const {
    return kolo::cuda::view(static_cast<float*>(data_), count_, stream.raw());
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

bool is_nccl(const TracedWork& work) { return work.name.find("nccl") != std::string::npos; }
bool is_move(const TracedWork& work) { return work.name.find("move_kernel") != std::string::npos; }
bool is_spin(const TracedWork& work) { return work.name.find("spin_kernel") != std::string::npos; }

/// Null where there is no record of it.
const TracedCall* launch_of(const TracedWork& work, const Traced& traced) {
  const auto call = std::find_if(traced.calls.begin(), traced.calls.end(),
                                 [&](const TracedCall& one) { return one.correlation == work.correlation; });
  return call == traced.calls.end() ? nullptr : &*call;
}

/// Of one all-reduce that was called at `begin` and of which everything has ended.
void add_traced(const Traced& traced, Nanoseconds begin, Table& table) {
  const pid_t caller = gettid();
  const auto woken = std::find_if(traced.calls.begin(), traced.calls.end(),
                                  [&](const TracedCall& call) { return call.thread != caller && call.begin >= begin; });
  if (woken != traced.calls.end()) table.add("woken", microseconds(begin, woken->begin));
  const auto add_launch = [&](const char* name, const TracedWork& work) {
    if (const TracedCall* call = launch_of(work, traced)) table.add(name, microseconds(begin, call->begin));
  };
  const TracedWork *packed = nullptr, *unpacked = nullptr;
  bool carried = false;
  for (const TracedWork& work : traced.work) {
    if (work.begin < begin) continue;
    if (is_nccl(work) && !carried) {
      carried = true;
      add_launch("NCCL's kernel launched", work);
      table.add("NCCL's kernel begins", microseconds(begin, work.begin));
      table.add("carried", microseconds(begin, work.end));
    } else if (is_move(work)) {
      if (packed == nullptr) add_launch("pack launched", work);
      (packed == nullptr ? packed : unpacked) = &work;
    }
  }
  if (packed != nullptr) table.add("packed", microseconds(begin, packed->end));
  if (unpacked != nullptr) {
    add_launch("unpack launched", *unpacked);
    table.add("unpacked", microseconds(begin, unpacked->end));
  }
}

nlohmann::ordered_json measure_lone(const Flags& flags) {
  const Stream stream;
  const Gradient gradient(flags.bytes);
  Table table({"submitted", "woken", "pack launched", "packed", "NCCL's kernel launched", "NCCL's kernel begins",
               "carried", "unpack launched", "unpacked", "given", "caller awake", "device done"});
  for (int i = -kWarmUp; i < flags.iterations; ++i) {
    kolo::barrier();
    static_cast<void>(kolo_bench::take_trace());
    std::atomic<Nanoseconds> given = 0;
    const Nanoseconds begin = kolo_bench::trace_now();
    kolo::Handle handle = kolo::allreduce_async("lone", gradient.on(stream));
    const Nanoseconds submitted = kolo_bench::trace_now();
    kolo::cuda::on_given(handle, [&given] { given = kolo_bench::trace_now(); });
    kolo::cuda::wait_on(handle, stream.raw());
    const Nanoseconds awake = kolo_bench::trace_now();
    stream.synchronize();
    const Nanoseconds done = kolo_bench::trace_now();
    handle.wait();
    while (given == 0) std::this_thread::yield();  // the callback may be under way
    const Traced traced = kolo_bench::take_trace();
    if (i < 0) continue;
    table.add("submitted", microseconds(begin, submitted));
    add_traced(traced, begin, table);
    table.add("given", microseconds(begin, given));
    table.add("caller awake", microseconds(begin, awake));
    table.add("device done", microseconds(begin, done));
  }
  if (kolo::rank() != 0) return {};
  std::printf("# %lld bytes, %d ranks; microseconds after the call\n", static_cast<long long>(flags.bytes),
              kolo::size());
  return {{"ranks", kolo::size()}, {"bytes", flags.bytes}, {"times", table.report()}};
}

/// Gradients of one backward pass, which come `apart_us` after one another on the stream that computes them; the
/// results are taken on a stream each.
class Backward {
 public:
  explicit Backward(const Flags& flags) : apart_us_(flags.apart_us) {
    for (int i = 0; i < flags.batches; ++i) {
      gradients_.push_back(std::make_unique<Gradient>(flags.bytes));
      takers_.push_back(std::make_unique<Stream>());
    }
    ready_ = std::vector<Point>(gradients_.size());
    results_ = std::vector<Point>(gradients_.size());
  }

  void run() {
    std::vector<kolo::Handle> handles;
    for (std::size_t k = 0; k < gradients_.size(); ++k) {
      kolo_bench::spin(apart_us_, stream_.raw());
      ready_[k].record(stream_.raw());
      handles.push_back(kolo::allreduce_async("gradient " + std::to_string(k), gradients_[k]->on(stream_)));
    }
    for (std::size_t k = 0; k < gradients_.size(); ++k) {
      kolo::cuda::wait_on(handles[k], takers_[k]->raw());
      results_[k].record(takers_[k]->raw());
    }
    for (kolo::Handle& handle : handles) handle.wait();
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  /// Microseconds from gradient k to its result.
  [[nodiscard]] double result_after(std::size_t k) const { return results_[k].microseconds_since(ready_[k]); }

 private:
  const double apart_us_;
  Stream stream_;
  std::vector<std::unique_ptr<Gradient>> gradients_;
  std::vector<std::unique_ptr<Stream>> takers_;
  std::vector<Point> ready_, results_;
};

nlohmann::ordered_json measure_batches(const Flags& flags) {
  const auto count = static_cast<std::size_t>(flags.batches);
  std::vector<std::string> begins, results, names;
  for (std::size_t k = 0; k < count; ++k) {
    begins.push_back("NCCL's kernel " + std::to_string(k) + " after gradient " + std::to_string(k));
    results.push_back("result " + std::to_string(k) + " after gradient " + std::to_string(k));
    names.insert(names.end(), {begins.back(), results.back()});
  }
  Table table(names);
  Backward backward(flags);
  int late = 0, kernels = 0;
  std::uint64_t batches = 0;
  for (int i = -kWarmUp; i < flags.iterations; ++i) {
    kolo::barrier();
    static_cast<void>(kolo_bench::take_trace());
    const std::uint64_t before = kolo::detail::counters().device_batches;
    backward.run();
    batches = kolo::detail::counters().device_batches - before;
    const Traced traced = kolo_bench::take_trace();
    if (i < 0) continue;
    std::vector<TracedWork> spins, nccl;
    std::copy_if(traced.work.begin(), traced.work.end(), std::back_inserter(spins), is_spin);
    std::copy_if(traced.work.begin(), traced.work.end(), std::back_inserter(nccl), is_nccl);
    for (std::size_t k = 0; k < count; ++k) {
      if (nccl.size() == count && spins.size() == count) {
        table.add(begins[k], microseconds(spins[k].end, nccl[k].begin));
        kernels += k + 1 < count ? 1 : 0;
        late += k + 1 < count && nccl[k].begin >= spins[k + 1].end ? 1 : 0;
      }
      table.add(results[k], backward.result_after(k));
    }
  }
  if (kolo::rank() != 0) return {};
  std::printf("# %d gradients of %lld bytes, %.0f us apart, %d ranks, %llu batches\n", flags.batches,
              static_cast<long long>(flags.bytes), flags.apart_us, kolo::size(),
              static_cast<unsigned long long>(batches));
  nlohmann::ordered_json times = table.report();
  std::printf("# behind the next gradient: %d of %d kernels of NCCL\n", late, kernels);
  return {{"ranks", kolo::size()}, {"bytes", flags.bytes}, {"apart_us", flags.apart_us},
          {"batches", batches},    {"kernels", kernels},   {"late", late},
          {"times", times}};
}

Flags parse(int argc, char** argv) {
  Flags flags;
  po::options_description options("kolo-gpu-times lone|batches [flags]: when what happens to all-reduces on a GPU");
  auto add = options.add_options();
  add("help,h", "this text");
  add("mode", po::value(&flags.mode)->required(), "lone or batches");
  add("bytes", po::value(&flags.bytes)->default_value(65536), "of a tensor");
  add("batches", po::value(&flags.batches)->default_value(8), "gradients of a backward pass");
  add("apart", po::value(&flags.apart_us)->default_value(1000), "microseconds of the device from one to the next");
  add("iterations,n", po::value(&flags.iterations)->default_value(50), "samples");
  add("json", po::value(&flags.json), "write the record there, too");
  po::positional_options_description place;
  place.add("mode", 1);
  po::variables_map values;
  po::store(po::command_line_parser(argc, argv).options(options).positional(place).run(), values);
  if (values.count("help") != 0) {
    std::cout << options << "\n";
    flags.mode = "help";
    return flags;
  }
  po::notify(values);
  if (flags.mode != "lone" && flags.mode != "batches") throw std::invalid_argument("the mode is lone or batches");
  if (flags.bytes < 4 || flags.batches < 1 || flags.iterations < 1 || flags.apart_us < 0) {
    throw std::invalid_argument("--bytes is at least 4, --batches and --iterations are at least 1, --apart at least 0");
  }
  return flags;
}

int run(const Flags& flags) {
  if (flags.mode == "help") return 0;
  const std::string untraced = kolo_bench::begin_trace();
  kolo::Session session;
  kolo::cuda::bind();
  if (!untraced.empty() && kolo::rank() == 0) std::printf("# no records of CUPTI: %s\n", untraced.c_str());
  const nlohmann::ordered_json record = flags.mode == "lone" ? measure_lone(flags) : measure_batches(flags);
  if (kolo::rank() == 0 && !flags.json.empty()) {
    std::ofstream stream(flags.json);
    stream << record.dump(2) << "\n";
    stream.close();
    if (!stream) throw std::runtime_error("cannot write '" + flags.json + "'");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const po::error& error) {
    std::cerr << "kolo-gpu-times: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::invalid_argument& error) {
    std::cerr << "kolo-gpu-times: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "kolo-gpu-times: " << error.what() << "\n";
    return 1;
  }
}
