// SPDX-License-Identifier: Apache-2.0
//
// Every place in the CUDA backend that orders work, waits or asks is left out in turn, and the emulated device has to
// notice: what nobody misses is superfluous, or not tested. The list of places is made by running the workloads, and
// compared with the text of src/data/cuda, so that none is left out of the list.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <kolo/cuda.hpp>
#include <kolo/gradient_arena.hpp>
#include <kolo/kolo.hpp>

#include "data/cuda/cuda_api.hpp"
#include "data/cuda/device.hpp"
#include "data/cuda/tables.hpp"
#include "support_for_tests.hpp"

namespace kolo::emulated {
namespace {

constexpr std::size_t kCount = 400 << 10;  // floats of a gradient: two steps, so that buffers are used again
constexpr std::size_t kLarge = 512 << 10;  // of one that NCCL reduces where it lies
constexpr std::size_t kGradients = 5;      // of which the first is the large one

Options options(const char* backend) {
  return Options{}
      .with_setting("KOLO_GPU_BACKEND", backend)
      .with_setting("KOLO_GPU_BUFFERS", "2")
      .with_setting("KOLO_FUSION_THRESHOLD", "1M")
      .with_setting("KOLO_GPU_DIRECT_BYTES", "2M")
      .with_setting("KOLO_TIMEOUT_S", "60");
}

/// A rank's gradients, and what it does with them on two streams: `backward_` writes, `optimizer_` reads.
class Trainer {
 public:
  Trainer() : device_(cuda::bind()), backward_(new_stream()), optimizer_(new_stream()), read_(new_event()) {
    EXPECT_EQ(device_, rank());
    for (std::size_t i = 0; i < kGradients; ++i) {
      counts_.push_back(i > 0 ? kCount : kLarge);
      gradients_.push_back(new_memory<float>(counts_.back()));
      copies_.push_back(new_memory<float>(counts_.back()));
    }
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer() {
    for (float* memory : gradients_) EXPECT_EQ(cudaFree(memory), cudaSuccess);
    for (float* memory : copies_) EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(backward_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(optimizer_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(read_), cudaSuccess);
  }

  /// Everything is submitted as backward produces it, and nothing is waited for by the host.
  std::vector<Handle> step(int number) {
    std::vector<Handle> handles;
    for (std::size_t i = 0; i < kGradients; ++i) {
      ok(cudaMemsetAsync(gradients_[i], number, counts_[i] * sizeof(float), backward_));
      handles.push_back(
          allreduce_async("gradient " + std::to_string(i), cuda::view(gradients_[i], counts_[i], backward_)));
    }
    return handles;
  }
  /// All gradients in one batch, and then the copies in another.
  std::vector<Handle> grouped_steps() {
    std::vector<Handle> handles;
    for (const std::vector<float*>* memory : {&gradients_, &copies_}) {
      std::vector<NamedView> views;
      for (std::size_t i = 0; i < kGradients; ++i) {
        ok(cudaMemsetAsync((*memory)[i], 0, counts_[i] * sizeof(float), backward_));
        views.push_back({std::to_string(i), cuda::view((*memory)[i], counts_[i], backward_)});
      }
      // The first goes through a buffer, the other one is reduced where it lies.
      const auto options =
          AllreduceOptions{}.with_op(ReduceOp::average).with_prescale(memory == &gradients_ ? 2.0 : 1.0);
      handles.push_back(grouped_allreduce_async("group " + std::to_string(handles.size()), views, options));
    }
    return handles;
  }
  void use(std::vector<Handle>& handles) {
    for (std::size_t i = 0; i < kGradients; ++i) {
      cuda::wait_on(handles[i], optimizer_);
      ok(cudaMemcpyAsync(copies_[i], gradients_[i], counts_[i] * sizeof(float), cudaMemcpyDeviceToDevice, optimizer_));
    }
    ok(cudaEventRecord(read_, optimizer_));
    ok(cudaStreamWaitEvent(backward_, read_, 0));
  }
  /// The memory is the program's again: the host has been told so.
  void reuse() {
    acquire_all();
    ok(cudaStreamSynchronize(backward_));
    for (std::size_t i = 0; i < kGradients; ++i) {
      ok(cudaMemsetAsync(gradients_[i], 0, counts_[i] * sizeof(float), optimizer_));
      ok(cudaMemsetAsync(copies_[i], 0, counts_[i] * sizeof(float), optimizer_));
    }
    ok(cudaStreamSynchronize(optimizer_));
  }

 private:
  int device_;  // first: what follows is made on it
  cudaStream_t backward_;
  cudaStream_t optimizer_;
  cudaEvent_t read_;
  std::vector<std::size_t> counts_;
  std::vector<float*> gradients_;
  std::vector<float*> copies_;
};

void steps_on_the_device(const char* backend) {
  run_local(
      2,
      [] {
        Trainer trainer;
        for (int number = 0; number < 3; ++number) {
          std::vector<Handle> handles = trainer.step(number);
          trainer.use(handles);
          wait_all(handles);
        }
        trainer.reuse();
      },
      options(backend));
}

void steps_that_the_host_waits_for(const char* backend) {
  run_local(
      2,
      [] {
        Trainer trainer;
        for (int number = 0; number < 2; ++number) {
          std::vector<Handle> handles = trainer.step(number);
          for (Handle& handle : handles) handle.on_done([](const Status&) {});  // for which a bell rings
          wait_all(handles);
          trainer.reuse();
        }
      },
      options(backend));
}

/// Steps of the world and of a group that comes and goes, behind one another.
void steps_in_groups(const char* backend) {
  run_local(
      2,
      [] {
        cuda::bind();
        cudaStream_t stream = new_stream();
        float* data = new_memory<float>(kCount);
        for (int round = 0; round < 3; ++round) {
          const Group all = Group::of({1, 0});
          for (const Group& group : {all, world()}) {
            ok(cudaMemsetAsync(data, round, kCount * sizeof(float), stream));
            Handle handle = allreduce_async({group, "x"}, cuda::view(data, kCount, stream));
            cuda::wait_on(handle, stream);
            ok(cudaMemsetAsync(data, 0, kCount * sizeof(float), stream));
            handle.wait();
          }
        }
        acquire_all();
        ok(cudaStreamSynchronize(stream));
        ok(cudaFree(data));
        ok(cudaStreamDestroy(stream));
      },
      options(backend));
}

/// Small batches, all of them on one stream, between large ones, which use the same fusion buffers on others. Nothing
/// but these orders the two.
void small_and_large_batches(const char* backend) {
  constexpr std::size_t kSmall = 1000;  // floats
  run_local(
      2,
      [] {
        cuda::bind();
        cudaStream_t streams[2] = {new_stream(), new_stream()};
        std::vector<float*> data;
        std::vector<NamedView> views[2];
        // The large ones fill a buffer each, so that the small ones use another one each time.
        for (const std::size_t large : {0, 0, 1, 1, 1}) {
          const std::size_t count = large == 0 ? kSmall : kCount;
          data.push_back(new_memory<float>(count));
          ok(cudaMemsetAsync(data.back(), 0, count * sizeof(float), streams[large]));
          views[large].push_back({std::to_string(data.size()), cuda::view(data.back(), count, streams[large])});
        }
        std::vector<Handle> handles;
        for (int round = 0; round < 6; ++round) {
          for (const std::size_t large : {0, 1}) {
            handles.push_back(
                grouped_allreduce_async(std::to_string(large) + " " + std::to_string(round), views[large]));
            cuda::wait_on(handles.back(), streams[large]);
          }
        }
        wait_all(handles);
        acquire_all();
        for (cudaStream_t stream : streams) ok(cudaStreamSynchronize(stream));
        for (float* memory : data) ok(cudaFree(memory));
        for (cudaStream_t stream : streams) ok(cudaStreamDestroy(stream));
      },
      options(backend).with_setting("KOLO_GPU_DIRECT_BYTES", "1G"));
}

/// Tables for which there is no room beside those before.
void tables_that_are_made_anew(const char* /*backend*/) {
  constexpr std::size_t kBytes = 4096;
  ok(cudaSetDevice(0));
  {
    cuda::Tables tables(2);  // of a chunk each
    const cuda::OwnStream stream;
    auto* buffer = new_memory<std::byte>(kBytes);
    std::byte* inputs[3];
    for (std::byte*& input : inputs) {
      input = new_memory<std::byte>(kBytes);
      ok(cudaMemsetAsync(input, 0, kBytes, stream.raw()));
    }
    for (int round = 0; round < 10; ++round) {
      for (std::byte* input : inputs) {
        cuda::Segment segment;
        segment.input = segment.output = input;
        segment.bytes = kBytes;
        cuda::ChunkTable* table = nullptr;
        while (table == nullptr) table = tables.find({segment}, stream.raw());
        cuda::launch({table->chunks(), table->count(), cuda::Direction::pack, buffer}, 1, stream.raw());
        table->used(stream);
      }
    }
    EXPECT_EQ(tables.made(), 30U) << "of which two are there at a time";
    ok(cudaStreamSynchronize(stream.raw()));
    for (std::byte* input : inputs) ok(cudaFree(input));
    ok(cudaFree(buffer));
  }
}

/// A kernel of the program's reads an arena when that is destroyed, and it is given back with a later batch.
void an_arena_that_is_read_when_it_goes(const char* backend) {
  constexpr std::size_t kBytes = kCount * sizeof(float);
  run_local(
      2,
      [] {
        const Device device{DeviceKind::cuda, cuda::bind()};
        cudaStream_t reader = new_stream();
        cudaStream_t stream = new_stream();
        auto* copy = new_memory<float>(kCount);
        auto* other = new_memory<float>(10);
        ok(cudaMemsetAsync(other, 0, 10 * sizeof(float), stream));
        {
          GradientArena arena(kBytes, device);
          const TensorView gradient = arena.allocate(DType::float32, Shape{kCount}, Stream{reader});
          ok(cudaMemsetAsync(gradient.data(), 0, kBytes, reader));
          Handle handle = allreduce_async("gradient", gradient);
          cuda::wait_on(handle, reader);
          handle.wait();
          ok(cudaMemcpyAsync(copy, gradient.data(), kBytes, cudaMemcpyDeviceToDevice, reader));
        }
        for (int i = 0; i < 3; ++i) allreduce("other", cuda::view(other, 10, stream));
        acquire_all();
        ok(cudaStreamSynchronize(stream));
        ok(cudaStreamSynchronize(reader));
        ok(cudaFree(copy));
        ok(cudaFree(other));
        ok(cudaStreamDestroy(stream));
        ok(cudaStreamDestroy(reader));
      },
      options(backend));
}

/// One batch of many steps. The tensor is written again behind the batch: behind its last step, not an earlier one.
void a_tensor_of_many_steps(const char* backend) {
  constexpr std::size_t kHuge = std::size_t{3} << 20;  // floats
  run_local(
      2,
      [] {
        cuda::bind();
        cudaStream_t stream = new_stream();
        float* data = new_memory<float>(kHuge);
        ok(cudaMemsetAsync(data, 0, kHuge * sizeof(float), stream));
        Handle handle = allreduce_async("huge", cuda::view(data, kHuge, stream));
        cuda::wait_on(handle, stream);  // behind the last step
        ok(cudaMemsetAsync(data, 0, kHuge * sizeof(float), stream));
        handle.wait();
        acquire_all();
        ok(cudaStreamSynchronize(stream));
        ok(cudaFree(data));
        ok(cudaStreamDestroy(stream));
      },
      options(backend).with_setting("KOLO_GPU_DIRECT_BYTES", "1G"));
}

/// Messages of more pieces than there are, sent as soon as they are written, written over behind their sends, and read
/// behind their receives; and again by a host that has waited.
void messages_in_both_directions(const char* backend) {
  constexpr std::size_t kBytes = std::size_t{3} << 20;
  run_local(
      2,
      [] {
        cuda::bind();
        cudaStream_t writes = new_stream();
        cudaStream_t reads = new_stream();
        cudaEvent_t read = new_event();
        auto* out = new_memory<unsigned char>(kBytes);
        auto* in = new_memory<unsigned char>(kBytes);
        auto* copies = new_memory<unsigned char>(kBytes);
        ok(cudaMemsetAsync(in, 0, kBytes, writes));
        for (int round = 0; round < 3; ++round) {
          ok(cudaMemsetAsync(out, round, kBytes, writes));
          Handle sent = send_async(cuda::view(out, kBytes, writes), 1 - rank());
          Future<Received> got = recv_async(cuda::view(in, kBytes, writes), 1 - rank());
          cuda::wait_on(sent, reads);
          ok(cudaMemsetAsync(out, 100, kBytes, reads));
          cuda::wait_on(got, reads);
          ok(cudaMemcpyAsync(copies, in, kBytes, cudaMemcpyDeviceToDevice, reads));
          ok(cudaEventRecord(read, reads));
          ok(cudaStreamWaitEvent(writes, read, 0));
          sent.wait();
          got.wait();
        }
        Handle sent = send_async(cuda::view(out, kBytes, writes), 1 - rank());
        recv(cuda::view(in, kBytes, writes), 1 - rank());
        sent.wait();
        acquire_all();
        ok(cudaMemsetAsync(in, 0, kBytes, reads));  // the memory is the program's again
        ok(cudaMemsetAsync(out, 0, kBytes, reads));
        ok(cudaStreamSynchronize(reads));
        for (unsigned char* memory : {out, in, copies}) ok(cudaFree(memory));
        ok(cudaStreamDestroy(writes));
        ok(cudaStreamDestroy(reads));
        ok(cudaEventDestroy(read));
      },
      options(backend));
}

/// Sends messages from rank 1 to rank 0 until the devices pass them.
void introduce(cudaStream_t stream) {
  auto* memory = new_memory<unsigned char>(1);
  for (std::uint64_t before = 0, after = 0; after == before; after = calls("ncclRecv")) {
    barrier();
    before = calls("ncclRecv");
    barrier();
    if (rank() == 1) send(cuda::view(memory, 1, stream), 0);
    if (rank() == 0) recv(cuda::view(memory, 1, stream), 1);
    barrier();
  }
  barrier();
  acquire_all();
  ok(cudaFree(memory));
}

/// A message that never comes, because its sender's NCCL has lost it, when a collective fails.
void a_fault_beside_a_message(const char* backend) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const auto body = [] {
    cuda::bind();
    cudaStream_t writes = new_stream();
    cudaStream_t reads = new_stream();
    auto* memory = new_memory<unsigned char>(kBytes);
    auto* gradient = new_memory<float>(kLarge);
    introduce(writes);
    ok(cudaMemsetAsync(memory, 0, kBytes, writes));
    ok(cudaMemsetAsync(gradient, 0, kLarge * sizeof(float), writes));
    allreduce("gradient", cuda::view(gradient, kLarge, writes));  // devices are empty where a communicator is made
    if (rank() == 1) {
      Failure lost;
      lost.api = "ncclSend";
      lost.device = 1;
      lost.code = ncclSuccess;
      lost.effect = Failure::Effect::vanish;
      inject(lost);
      Failure failure = lost;
      failure.api = "ncclAllReduce";
      failure.code = ncclInternalError;
      failure.effect = Failure::Effect::fail;
      inject(failure);
    }
    barrier();
    const auto view = cuda::view(memory, kBytes, writes);
    std::vector<Handle> handles;
    handles.push_back(rank() == 1 ? send_async(view, 0) : Handle(recv_async(view, 1)));
    EXPECT_TRUE(cuda::wait_given(handles.front(), std::chrono::minutes(1)));
    handles.push_back(allreduce_async("gradient", cuda::view(gradient, kLarge, writes)));
    int failed = 0;
    for (Handle& handle : handles) {
      try {
        handle.wait();
      } catch (const Error&) {
        ++failed;
      }
    }
    EXPECT_GE(failed, 1);
    acquire_all();
    ok(cudaStreamSynchronize(writes));
    ok(cudaMemsetAsync(memory, 1, kBytes, reads));
    ok(cudaMemsetAsync(gradient, 1, kLarge * sizeof(float), reads));
    ok(cudaStreamSynchronize(reads));
    ok(cudaFree(memory));
    ok(cudaFree(gradient));
    ok(cudaStreamDestroy(writes));
    ok(cudaStreamDestroy(reads));
  };
  try {
    run_local(2, body, options(backend).with_setting("KOLO_GPU_DIRECT_BYTES", "1M"));
  } catch (const Error&) {
    // The world's, on all ranks.
  }
}

/// Gradients that are neither packed nor unpacked.
void steps_in_an_arena(const char* backend) {
  constexpr std::size_t kBytes = kCount * sizeof(float);
  run_local(
      2,
      [] {
        const Device device{DeviceKind::cuda, cuda::bind()};
        cudaStream_t backward = new_stream();
        cudaStream_t optimizer = new_stream();
        cudaEvent_t read = new_event();
        auto* copies = new_memory<float>(2 * kCount);
        {
          GradientArena arena(2 * kBytes, device);
          std::vector<TensorView> gradients;
          for (int i = 0; i < 2; ++i) {
            gradients.push_back(arena.allocate(DType::float32, Shape{kCount}, Stream{backward}));
          }
          for (int number = 0; number < 3; ++number) {
            std::vector<Handle> handles;
            for (std::size_t i = 0; i < 2; ++i) {
              ok(cudaMemsetAsync(gradients[i].data(), number, kBytes, backward));
              handles.push_back(allreduce_async("gradient " + std::to_string(i), gradients[i]));
            }
            for (std::size_t i = 0; i < 2; ++i) {
              cuda::wait_on(handles[i], optimizer);
              ok(cudaMemcpyAsync(copies + i * kCount, gradients[i].data(), kBytes, cudaMemcpyDeviceToDevice,
                                 optimizer));
            }
            ok(cudaEventRecord(read, optimizer));
            ok(cudaStreamWaitEvent(backward, read, 0));
            wait_all(handles);
          }
          acquire_all();
          ok(cudaStreamSynchronize(backward));
        }
        ok(cudaFree(copies));
        ok(cudaStreamDestroy(backward));
        ok(cudaStreamDestroy(optimizer));
        ok(cudaEventDestroy(read));
      },
      options(backend));
}

/// Rank 1 stops taking part in one batch, behind which its unpack then waits, and fails in the middle of the next, a
/// group of calls that reduce tensors where they lie. When the handles say so, the memory is the program's.
void a_fault_on_the_way(const char* backend) {
  Failure lost;
  lost.api = "ncclAllReduce";
  lost.nth = 1;
  lost.device = 1;
  lost.code = ncclSuccess;
  lost.effect = Failure::Effect::vanish;
  inject(lost);
  Failure failure = lost;
  failure.nth = 4;
  failure.code = ncclInternalError;
  failure.effect = Failure::Effect::fail;
  inject(failure);
  const auto body = [] {
    Trainer trainer;
    int failed = 0;
    for (Handle& handle : trainer.grouped_steps()) {
      try {
        handle.wait();
      } catch (const Error&) {
        ++failed;  // the world's, on all ranks: what matters here is what touches the memory from now on
      }
    }
    EXPECT_EQ(failed, 2);
    trainer.reuse();
  };
  try {
    run_local(
        2, body,
        options(backend).with_setting("KOLO_FUSION_THRESHOLD", "64M").with_setting("KOLO_GPU_DIRECT_BYTES", "1M"));
  } catch (const Error&) {
    // As above.
  }
}

struct Workload {
  const char* backend;
  void (*run)(const char*);
  unsigned lateness = Config{}.lateness;
};
const Workload kWorkloads[] = {{"nccl", steps_on_the_device},
                               {"staged", steps_on_the_device},
                               {"nccl", steps_that_the_host_waits_for},
                               {"staged", steps_that_the_host_waits_for},
                               {"nccl", a_fault_on_the_way},
                               // What NCCL was asked for is on its stream at once, and not ended with the call.
                               {"nccl", a_fault_on_the_way, 0},
                               {"nccl", steps_in_an_arena},
                               {"nccl", steps_in_groups},
                               {"staged", steps_in_groups},
                               {"nccl", a_tensor_of_many_steps},
                               {"staged", a_tensor_of_many_steps},
                               {"nccl", small_and_large_batches},
                               {"nccl", tables_that_are_made_anew},
                               {"nccl", an_arena_that_is_read_when_it_goes},
                               {"nccl", messages_in_both_directions},
                               {"staged", messages_in_both_directions},
                               {"nccl", a_fault_beside_a_message},
                               {"nccl", a_fault_beside_a_message, 0}};

/// Runs a workload on a new machine, without what happens at `left_out`; what the machine had to say.
std::vector<Report> reports_of(const Workload& workload, const std::string& left_out) {
  Config config;
  config.devices = 2;
  config.lateness = workload.lateness;
  reset(config);
  if (!left_out.empty()) leave_out(left_out);
  try {
    workload.run(workload.backend);
  } catch (const Error&) {
    if (left_out.empty()) throw;  // else NCCL may have refused what was called too early, and said why
  }
  drain();
  return take_reports();
}

/// Whether a line calls a member by which Event and OwnStream synchronise, or memory waits for the device.
bool synchronises(const std::string& line) {
  if (line.find(", site)") != std::string::npos) return false;  // for its caller
  for (const std::string name :
       {"record(", "mark(", "mark_of_caller(", "hold_back(", "reached(", "synchronize(", "free_when_idle("}) {
    for (const std::string access : {".", "->"})
      if (line.find(access + name) != std::string::npos) return true;
  }
  return false;
}

/// Every such call in src/data/cuda: "src/data/cuda/x.cpp:12".
std::set<std::string> places_in_the_text() {
  std::set<std::string> places;
  for (const char* room : {"src/data/cuda"}) {
    for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(KOLO_SOURCE_DIR) / room)) {
      std::ifstream text(file.path());
      std::string line;
      for (int number = 1; std::getline(text, line); ++number) {
        line = line.substr(0, line.find("//"));
        if (!synchronises(line)) continue;
        places.insert(std::string(room) + "/" + file.path().filename().string() + ":" + std::to_string(number));
      }
    }
  }
  return places;
}

/// The first report of any workload; empty: none. Whether work is under way when a fault comes is chance, so each has a
/// few tries.
std::string what_is_said_without(const std::string& place) {
  constexpr int kTries = 5;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    for (const Workload& workload : kWorkloads) {
      const std::vector<Report> reports = reports_of(workload, place);
      if (!reports.empty()) return reports.front().text;
    }
  }
  return {};
}

TEST(Mutation, EveryOrderInTheBackendIsMissedWhenItIsLeftOut) {
  std::set<std::string> places;
  for (const Workload& workload : kWorkloads) {
    for (const Report& report : reports_of(workload, {})) {
      ADD_FAILURE() << workload.backend << ": " << to_string(report.kind) << ": " << report.text;
    }
    for (const SyncSite& site : sync_sites()) places.insert(site.place);
  }
  EXPECT_EQ(places, places_in_the_text());

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  places.clear();  // what is left out is a race in earnest, and poison that is read: sanitizers say so as well, and end
#endif
  for (const std::string& place : places) {
    const std::string said = what_is_said_without(place);
    std::printf("without %s: %s\n", place.c_str(), said.empty() ? "nothing" : said.c_str());
    EXPECT_FALSE(said.empty()) << place << " is left out: nobody notices";
  }
  std::printf("left out in turn, and noticed: %zu places\n", places.size());
  reset();
}

}  // namespace
}  // namespace kolo::emulated
