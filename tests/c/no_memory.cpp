// SPDX-License-Identifier: Apache-2.0
//
// Functions of C where there is no memory. Each is called in many jobs of two ranks: in the first job its first
// allocation on rank 0 fails, in the second job its second, and so on, until one job lacks nothing. A call that fails
// returns KOLO_OUT_OF_MEMORY and has had no effect: made again, it meets the other rank's. What fails behind the call,
// in the engine, ends the job on both ranks with a sentence that says why.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <thread>

#include <kolo/dlpack.h>
#include <kolo/kolo.h>

#include "check.h"

namespace {

constexpr std::int64_t kAll = -1;

/// How many allocations of this thread still succeed.
thread_local std::int64_t allowance = kAll;
thread_local bool was_short = false;

void* allocate(std::size_t bytes) {
  if (allowance == 0) {
    allowance = kAll;
    was_short = true;
    throw std::bad_alloc();
  }
  if (allowance > 0) --allowance;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

/// What one rank does in a job: one call that may lack memory, and its result.
struct Case {
  const char* what;
  /// Makes the call; a handle says that the other rank makes it, too.
  kolo_status (*call)(kolo_group* world, int32_t rank, kolo_handle** handle);
  bool asks_engine = true;
};

constexpr const char* kLongName = "a name that is too long for a string without memory of its own";

float in[2][4], out[2][8];  // by rank
kolo_result* results[2];

kolo_tensor input_of(int32_t rank) { return tensor_of(in[rank], KOLO_FLOAT32, 4); }
kolo_tensor output_of(int32_t rank, int64_t elements = 4) { return tensor_of(out[rank], KOLO_FLOAT32, elements); }

kolo_status allreduce(kolo_group* world, const char* name, int32_t rank, kolo_handle** handle) {
  const kolo_tensor input = input_of(rank), output = output_of(rank);
  return kolo_allreduce(world, name, &input, &output, nullptr, handle);
}

constexpr Case kCases[] = {
    {"allreduce by name",
     [](kolo_group* world, int32_t rank, kolo_handle** handle) { return allreduce(world, kLongName, rank, handle); }},
    {"allreduce without a name",
     [](kolo_group* world, int32_t rank, kolo_handle** handle) { return allreduce(world, nullptr, rank, handle); }},
    {"allgather into",
     [](kolo_group* world, int32_t rank, kolo_handle** handle) {
       const kolo_tensor input = input_of(rank), output = output_of(rank, 8);
       return kolo_allgather_into(world, kLongName, &input, &output, nullptr, handle);
     }},
    {"allgather",
     [](kolo_group* world, int32_t rank, kolo_handle** handle) {
       const kolo_tensor input = input_of(rank);
       return kolo_allgather(world, kLongName, &input, nullptr, &results[rank], handle);
     }},
    {"broadcast",
     [](kolo_group* world, int32_t rank, kolo_handle** handle) {
       const kolo_tensor input = input_of(rank);
       return kolo_broadcast(world, kLongName, &input, &input, 0, nullptr, handle);
     }},
    {"barrier", [](kolo_group* world, int32_t /*rank*/,
                   kolo_handle** handle) { return kolo_barrier(world, nullptr, nullptr, handle); }},
    {"grouped",
     [](kolo_group* world, int32_t rank, kolo_handle** handle) {
       const kolo_named_tensor list[] = {{"first of the group", input_of(rank)},
                                         {"second of the group", output_of(rank)}};
       return kolo_grouped_allreduce(world, kLongName, list, 2, nullptr, handle);
     }},
    {"prepared",
     [](kolo_group* world, int32_t rank, kolo_handle** handle) {
       const kolo_tensor input = input_of(rank);
       kolo_call call = KOLO_CALL_INIT;
       kolo_prepared* prepared = nullptr;
       call.in = call.out = &input;
       kolo_status status = kolo_prepare(world, kLongName, &call, &prepared);
       if (status == KOLO_OK) status = kolo_start(prepared, handle);
       if (prepared != nullptr) OK(kolo_prepared_release(prepared));
       return status;
     }},
    {"send",
     [](kolo_group* world, int32_t rank, kolo_handle** handle) {
       const kolo_tensor input = input_of(rank);
       return rank == 0 ? kolo_send(world, &input, 1, 7, nullptr, handle)
                        : kolo_recv(world, &input, 0, 7, nullptr, nullptr, handle);
     }},
    {"receive",
     [](kolo_group* world, int32_t rank, kolo_handle** handle) {
       const kolo_tensor input = input_of(rank);
       return rank == 1 ? kolo_send(world, &input, 0, 7, nullptr, handle)
                        : kolo_recv(world, &input, 1, 7, nullptr, nullptr, handle);
     }},
    {"metrics",
     [](kolo_group* world, int32_t rank, kolo_handle** /*handle*/) { return kolo_metrics(world, &results[rank]); },
     false},
    {"describe",
     [](kolo_group* world, int32_t rank, kolo_handle** /*handle*/) { return kolo_describe(world, &results[rank]); },
     false},
    {"settings",
     [](kolo_group* world, int32_t rank, kolo_handle** /*handle*/) { return kolo_settings(world, &results[rank]); },
     false},
};

struct Job {
  const Case* its;
  std::int64_t allowed;       ///< allocations of rank 0's call
  bool engines_sleep;         ///< when it is made
  bool was_short = false;     ///< one more was wanted
  std::atomic<int> ready{0};  ///< ranks that have left the barrier before the call
  std::atomic<int> ended{0};  ///< ranks whose job has ended for want of memory behind the call
};

void check_no_memory(const Job& job, kolo_status wanted, kolo_status status) {
  const std::string sentence = kolo_last_error();
  if (status == wanted && sentence.find("memory") != std::string::npos) return;
  std::fprintf(stderr, "%s, allocation %d: %s: %s\n", job.its->what, static_cast<int>(job.allowed),
               kolo_status_name(status), sentence.c_str());
  std::exit(1);
}

kolo_status note_end(Job& job, kolo_status status) {
  check_no_memory(job, KOLO_TRANSPORT, status);
  ++job.ended;
  return KOLO_OK;
}

/// Returns when each engine's own thread of this process sleeps: then the thread that calls does its work.
void wait_until_engines_sleep() {
  for (bool all = false; !all;) {
    std::this_thread::yield();
    all = true;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream file(thread.path() / "stat");
      std::string stat;
      std::getline(file, stat);  // "123 (name) S ..."; nothing where the thread has ended
      if (stat.find("(kolo-engine)") != std::string::npos && stat.find("(kolo-engine) S") == std::string::npos)
        all = false;
    }
  }
}

kolo_status one_rank(void* given, kolo_context* context) {
  Job& job = *static_cast<Job*>(given);
  kolo_group* const world = kolo_world(context);
  kolo_handle* handle = nullptr;
  int32_t rank = -1;
  OK(kolo_rank(world, &rank));
  for (float& number : in[rank]) number = static_cast<float>(rank + 1);
  results[rank] = nullptr;

  if (job.engines_sleep) {
    OK(kolo_barrier(world, nullptr, nullptr, nullptr));
    for (++job.ready; job.ready < 2;) std::this_thread::yield();  // the call may end the job for who is still inside
    wait_until_engines_sleep();
  }
  was_short = false;
  allowance = rank == 0 ? job.allowed : kAll;
  kolo_status status = job.its->call(world, rank, &handle);
  allowance = kAll;
  if (rank == 0) job.was_short = was_short;
  if (status == KOLO_TRANSPORT) return note_end(job, status);  // the other rank's lack came first
  if (status != KOLO_OK) {
    check_no_memory(job, KOLO_OUT_OF_MEMORY, status);
    CHECK(rank == 0 && handle == nullptr && results[rank] == nullptr);
    OK(job.its->call(world, rank, &handle));
  }
  if (handle != nullptr) {
    status = kolo_wait(handle, -1.0);
    if (status != KOLO_OK) return note_end(job, status);
  }
  OK(kolo_result_release(results[rank]));
  // The job goes on, or has ended behind a call that was over on this rank.
  status = allreduce(world, "afterwards", rank, nullptr);
  return status == KOLO_OK ? KOLO_OK : note_end(job, status);
}

int check_cases(bool engines_sleep) {
  for (const Case& one : kCases) {
    if (engines_sleep && !one.asks_engine) continue;
    int failed = 0, ended = 0;
    for (std::int64_t allowed = 0;; ++allowed) {
      Job job{&one, allowed, engines_sleep};
      if (kolo_run_local(2, one_rank, &job, nullptr) != KOLO_OK) {
        std::fprintf(stderr, "%s: %s\n", one.what, kolo_last_error());
        return 1;
      }
      CHECK(job.ended == 0 || (job.ended == 2 && job.was_short));
      if (!job.was_short) break;
      ++(job.ended > 0 ? ended : failed);
    }
    std::printf("%s, %s: %d allocations failed at the call, %d behind it\n", one.what,
                engines_sleep ? "engines asleep" : "engines awake", failed, ended);
    CHECK(failed > 0);
  }
  return 0;
}

}  // namespace

int main() {
  if (check_cases(false) != 0) return 1;
  // The thread that calls then does what the engine would, and lacks memory there, too.
  CHECK(::setenv("KOLO_SPIN_US", "0", 1) == 0);
  if (check_cases(true) != 0) return 1;
  std::puts("PASS");
  return 0;
}
