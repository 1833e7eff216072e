// SPDX-License-Identifier: Apache-2.0
//
// kolo-pack: how fast gradients go into fusion buffers and out again, beside a plain copy of as many bytes from one
// place on the device to another. The CUDA backend's own planner, tables and kernel, without negotiation and without
// NCCL; tensors of all sizes are packed, none is left where it lies. One device, one process.
//
//     kolo-bench step --model resnet50 --list > shapes
//     kolo-pack --shapes shapes
//
// Both read and write every byte once, so their bandwidths are compared as bytes / time; the share is the copy's time
// over theirs. Each sample is one pass over all tensors between two events of the device's; passes take turns. The
// unpack halves what it moves, as an average of two ranks would.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <boost/program_options.hpp>
#include <kolo/info.hpp>
#include <nlohmann/json.hpp>

#include "bench/cuda_events.hpp"
#include "data/cuda/device.hpp"
#include "data/cuda/kernels.hpp"
#include "data/cuda/tables.hpp"

namespace {

namespace po = boost::program_options;
using kolo_bench::check;
using kolo_bench::Point;

struct Flags {
  std::vector<std::int64_t> tensors;  ///< elements of each
  std::int64_t buffer_bytes = 0;
  int buffers = 3;
  int iterations = 50;
  std::string json;
};

struct Summary {
  double median, p10, p90;
};
Summary summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) {
    return samples[static_cast<std::size_t>(part * static_cast<double>(samples.size() - 1))];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

/// The gradients: every tensor in memory of its own, as a framework would have it, and what comes out likewise.
class Packing {
 public:
  explicit Packing(const Flags& flags)
      : processors_(kolo::cuda::device_info(0).processors),
        buffer_bytes_(static_cast<std::size_t>(flags.buffer_bytes)) {
    kolo::data::Run run;
    run.postscale = 0.5;
    for (const std::int64_t elements : flags.tensors) {
      const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
      inputs_.emplace_back(bytes);
      outputs_.emplace_back(bytes);
      run.pieces.push_back({inputs_.back().data(), outputs_.back().data(), elements});
      run.elements += elements;
    }
    bytes_ = run.elements * static_cast<std::int64_t>(sizeof(float));
    kolo::cuda::PortionLimits limits;
    limits.buffer_bytes = buffer_bytes_;
    kolo::cuda::PortionPlanner planner(limits);
    planner.add(run);
    portions_ = planner.take();
    tables_ = std::make_unique<kolo::cuda::Tables>(portions_.size() * limits.chunks);
    for (int i = 0; i < flags.buffers; ++i) buffers_.emplace_back(buffer_bytes_);
    copy_from_ = kolo::cuda::DeviceMemory(static_cast<std::size_t>(bytes_));
    copy_to_ = kolo::cuda::DeviceMemory(static_cast<std::size_t>(bytes_));
    check(cudaMemsetAsync(copy_from_.data(), 1, copy_from_.size(), stream_.raw()), "cudaMemsetAsync");
    stream_.synchronize();
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t portions() const { return portions_.size(); }

  void pack_all() {
    for (std::size_t i = 0; i < portions_.size(); ++i) move(i, kolo::cuda::Direction::pack);
  }
  void unpack_all() {
    for (std::size_t i = 0; i < portions_.size(); ++i) move(i, kolo::cuda::Direction::unpack);
  }
  void copy_all() {
    check(
        cudaMemcpyAsync(copy_to_.data(), copy_from_.data(), copy_from_.size(), cudaMemcpyDeviceToDevice, stream_.raw()),
        "cudaMemcpyAsync");
  }
  /// Elements that are not half of what went in, after each portion went into a buffer and out.
  std::int64_t count_wrong() {
    std::vector<float> host;
    for (const auto& input : inputs_) {
      host.resize(input.size() / sizeof(float));
      for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i % 1021) * 2;
      check(cudaMemcpy(input.data(), host.data(), input.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    for (std::size_t i = 0; i < portions_.size(); ++i) {
      move(i, kolo::cuda::Direction::pack);
      move(i, kolo::cuda::Direction::unpack);
    }
    stream_.synchronize();
    std::int64_t wrong = 0;
    for (const auto& output : outputs_) {
      host.resize(output.size() / sizeof(float));
      check(cudaMemcpy(host.data(), output.data(), output.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
      for (std::size_t i = 0; i < host.size(); ++i) wrong += host[i] == static_cast<float>(i % 1021) ? 0 : 1;
    }
    return wrong;
  }

  template <class Pass>
  double time(Pass pass) {
    begin_.record(stream_.raw());
    pass();
    end_.record(stream_.raw());
    return end_.microseconds_since(begin_);
  }

 private:
  void move(std::size_t portion, kolo::cuda::Direction direction) {
    kolo::cuda::ChunkTable* const table = tables_->find(portions_[portion].segments, stream_.raw());
    if (table == nullptr) throw std::runtime_error("no table is free");
    kolo::cuda::launch({table->chunks(), table->count(), direction, buffers_[portion % buffers_.size()].data()},
                       kolo::cuda::kernels::blocks_for(table->count(), processors_), stream_.raw());
    table->used(stream_);
  }

  const int processors_;
  const std::size_t buffer_bytes_;
  std::int64_t bytes_ = 0;
  kolo::cuda::OwnStream stream_;
  std::vector<kolo::cuda::DeviceMemory> inputs_, outputs_, buffers_;
  kolo::cuda::DeviceMemory copy_from_, copy_to_;
  std::vector<kolo::cuda::Portion> portions_;
  std::unique_ptr<kolo::cuda::Tables> tables_;
  Point begin_, end_;
};

int measure(const Flags& flags) {
  const kolo::cuda::DeviceCount count = kolo::cuda::count_devices();
  if (count.devices == 0) throw std::invalid_argument("there is no CUDA device: " + count.why);
  kolo::cuda::load_kernels();
  Packing packing(flags);
  const std::int64_t wrong = packing.count_wrong();
  std::vector<double> pack, unpack, copy;
  for (int i = -3; i < flags.iterations; ++i) {  // the first ones warm up
    const double times[] = {packing.time([&] { packing.pack_all(); }), packing.time([&] { packing.unpack_all(); }),
                            packing.time([&] { packing.copy_all(); })};
    if (i < 0) continue;
    pack.push_back(times[0]);
    unpack.push_back(times[1]);
    copy.push_back(times[2]);
  }
  nlohmann::ordered_json record{
      {"device", kolo::cuda::device_info(0).name}, {"tensors", flags.tensors.size()}, {"bytes", packing.bytes()},
      {"buffer_bytes", flags.buffer_bytes},        {"launches", packing.portions()},  {"wrong", wrong}};
  const double copied = summarize(copy).median;
  std::printf("# %zu tensors, %.1f MB, %zu launches a pass; median, p10 and p90 in microseconds; GB = 1e9 bytes\n",
              flags.tensors.size(), static_cast<double>(packing.bytes()) / 1e6, packing.portions());
  const std::pair<const char*, const std::vector<double>*> rows[] = {
      {"copy", &copy}, {"pack", &pack}, {"unpack", &unpack}};
  for (const auto& [name, samples] : rows) {
    const Summary summary = summarize(*samples);
    const double bandwidth = static_cast<double>(packing.bytes()) / summary.median / 1e3;
    std::printf("%-7s %10.2f %10.2f %10.2f  %8.1f GB/s read and written each  %5.1f %% of the copy\n", name,
                summary.median, summary.p10, summary.p90, bandwidth, 100 * copied / summary.median);
    record[name] = {{"time_us", summary.median},
                    {"time_p10_us", summary.p10},
                    {"time_p90_us", summary.p90},
                    {"gb_per_s", bandwidth},
                    {"of_copy", copied / summary.median}};
  }
  std::printf("# wrong values: %lld\n", static_cast<long long>(wrong));
  if (!flags.json.empty()) {
    std::ofstream stream(flags.json);
    stream << record.dump(2) << "\n";
    stream.close();
    if (!stream) throw std::runtime_error("cannot write '" + flags.json + "'");
  }
  return wrong == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  Flags flags;
  std::string shapes;
  po::options_description options("kolo-pack [flags]: packing and unpacking gradients on a GPU, beside a copy");
  auto add = options.add_options();
  add("help,h", "this text");
  add("shapes", po::value(&shapes)->required(), "a file with the elements of each tensor, one a line");
  add("buffer-bytes", po::value(&flags.buffer_bytes)->default_value(std::int64_t{16} << 20),
      "of a buffer: tensors that share a launch");
  add("buffers", po::value(&flags.buffers)->default_value(3), "used in turns");
  add("iterations,n", po::value(&flags.iterations)->default_value(50), "samples");
  add("json", po::value(&flags.json), "write the record there, too");
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, options), values);
  if (values.count("help") != 0) return std::cout << options << "\n", 0;
  po::notify(values);
  std::ifstream stream(shapes);
  for (std::int64_t elements = 0; stream >> elements;) flags.tensors.push_back(elements);
  if (flags.tensors.empty() || !stream.eof()) {
    throw std::invalid_argument("'" + shapes + "' is no list of numbers of elements");
  }
  flags.buffer_bytes = flags.buffer_bytes / 16 * 16;
  if (flags.buffer_bytes < (1 << 16) || flags.buffer_bytes > (1 << 27)) {
    throw std::invalid_argument("--buffer-bytes is from 65536 to 134217728");
  }
  if (flags.buffers < 1 || flags.iterations < 1)
    throw std::invalid_argument("--buffers and --iterations are at least 1");
  return measure(flags);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const po::error& error) {
    std::cerr << "kolo-pack: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::invalid_argument& error) {
    std::cerr << "kolo-pack: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "kolo-pack: " << error.what() << "\n";
    return 1;
  }
}
