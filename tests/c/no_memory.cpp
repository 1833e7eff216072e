// SPDX-License-Identifier: Apache-2.0
//
// Functions of C where there is no memory. Each call is made again and again: first its first allocation fails, then
// its second, and so on, until one gets through. A call that fails returns KOLO_OUT_OF_MEMORY with a sentence, and has
// no effect: it can be made again, and meets the other rank's call then. Rank 0 is the one that lacks memory.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include <kolo/dlpack.h>
#include <kolo/kolo.h>

#include "check.h"

namespace {

/// How many allocations of this thread still succeed; negative: all.
thread_local std::int64_t allowance = -1;

void* allocate(std::size_t bytes) {
  if (allowance == 0) {
    allowance = -1;
    throw std::bad_alloc();
  }
  if (allowance > 0) --allowance;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

/// How many calls failed before one got through.
template <class Call>
int failures_of(const char* what, const Call& call) {
  for (int allowed = 0;; ++allowed) {
    allowance = allowed;
    const kolo_status status = call();
    allowance = -1;
    if (status == KOLO_OK) return allowed;
    if (status != KOLO_OUT_OF_MEMORY || std::string(kolo_last_error()).empty()) {
      std::fprintf(stderr, "%s, allocation %d: %s: %s\n", what, allowed, kolo_status_name(status), kolo_last_error());
      std::exit(1);
    }
  }
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

/// A call of both ranks, which returns a handle. Rank 0 lacks memory for it at first.
template <class Start>
void both(int32_t rank, const char* what, const Start& start) {
  kolo_handle* handle = nullptr;
  if (rank == 0) {
    CHECK(failures_of(what, [&] { return start(&handle); }) > 0);
  } else {
    OK(start(&handle));
  }
  CHECK(handle != nullptr);
  OK(kolo_wait(handle, -1.0));
}

/// A call that does nothing elsewhere.
template <class Call>
void here(int32_t rank, const char* what, const Call& call) {
  if (rank == 0) {
    CHECK(failures_of(what, call) > 0);
  } else {
    OK(call());
  }
}

void collectives(kolo_group* world, int32_t rank) {
  float in[4] = {1, 2, 3, 4}, out[8];
  kolo_tensor input = tensor_of(in, KOLO_FLOAT32, 4), output = tensor_of(out, KOLO_FLOAT32, 4);
  kolo_tensor wide = tensor_of(out, KOLO_FLOAT32, 8);
  for (const char* const name :
       {"a name that is too long for a string without memory", static_cast<const char*>(nullptr)}) {
    both(rank, "allreduce",
         [&](kolo_handle** handle) { return kolo_allreduce(world, name, &input, &output, nullptr, handle); });
    CHECK(out[3] == 8);
    both(rank, "allgather into",
         [&](kolo_handle** handle) { return kolo_allgather_into(world, name, &input, &wide, nullptr, handle); });
    CHECK(out[7] == 4);
    kolo_result* result = nullptr;
    both(rank, "allgather",
         [&](kolo_handle** handle) { return kolo_allgather(world, name, &input, nullptr, &result, handle); });
    OK(kolo_result_release(result));
    both(rank, "barrier", [&](kolo_handle** handle) { return kolo_barrier(world, name, nullptr, handle); });
  }
  const kolo_named_tensor list[2] = {{"first of the group", input}, {"second of the group", output}};
  both(rank, "grouped", [&](kolo_handle** handle) {
    return kolo_grouped_allreduce(world, "the group's name, which is long", list, 2, nullptr, handle);
  });
}

void prepared_calls(kolo_group* world, int32_t rank) {
  float number = 1;
  kolo_tensor tensor = tensor_of(&number, KOLO_FLOAT32, 1);
  kolo_call call = KOLO_CALL_INIT;
  kolo_prepared* prepared = nullptr;
  call.in = call.out = &tensor;
  here(rank, "prepare", [&] { return kolo_prepare(world, "prepared, and its name is long", &call, &prepared); });
  both(rank, "start", [&](kolo_handle** handle) { return kolo_start(prepared, handle); });
  CHECK(number == 2);
  OK(kolo_prepared_release(prepared));
}

void messages(kolo_group* world, int32_t rank) {
  float number = static_cast<float>(rank);
  kolo_tensor tensor = tensor_of(&number, KOLO_FLOAT32, 1);
  both(rank, "message", [&](kolo_handle** handle) {
    return rank == 0 ? kolo_send(world, &tensor, 1, 7, nullptr, handle)
                     : kolo_recv(world, &tensor, 0, 7, nullptr, nullptr, handle);
  });
  CHECK(number == 0);
  number = static_cast<float>(rank);
  both(rank, "message back", [&](kolo_handle** handle) {
    return rank == 1 ? kolo_send(world, &tensor, 0, 7, nullptr, handle)
                     : kolo_recv(world, &tensor, 1, 7, nullptr, nullptr, handle);
  });
  CHECK(number == 1);
}

template <class Ask>
void information(int32_t rank, const char* what, const Ask& ask) {
  kolo_result* result = nullptr;
  here(rank, what, [&] { return ask(&result); });
  OK(kolo_result_release(result));
}

kolo_status one_rank(void* /*unused*/, kolo_context* context) {
  kolo_group* const world = kolo_world(context);
  int32_t rank = -1;
  OK(kolo_rank(world, &rank));
  collectives(world, rank);
  prepared_calls(world, rank);
  messages(world, rank);
  information(rank, "metrics", [&](kolo_result** result) { return kolo_metrics(world, result); });
  information(rank, "describe", [&](kolo_result** result) { return kolo_describe(world, result); });
  information(rank, "settings", [&](kolo_result** result) { return kolo_settings(world, result); });
  // More memory than there is.
  kolo_arena* arena = nullptr;
  FAILS(KOLO_OUT_OF_MEMORY, kolo_arena_make(world, SIZE_MAX / 4, KOLO_CPU, 0, nullptr, &arena), "");
  OK(kolo_barrier(world, nullptr, nullptr, nullptr));
  return KOLO_OK;
}

}  // namespace

int main() {
  if (kolo_run_local(2, one_rank, nullptr, nullptr) != KOLO_OK) {
    std::fprintf(stderr, "%s\n", kolo_last_error());
    return 1;
  }
  std::puts("PASS");
  return 0;
}
