// SPDX-License-Identifier: Apache-2.0
//
// The two functions that LightGBM asks for: an all-gather, and a reduce-scatter that brings a reducer of its own. The
// reduce-scatter is an all-to-all of the blocks, after which each rank adds up what came for it.
#include <kolo/lightgbm.hpp>

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/error.hpp>
#include <kolo/types.hpp>

#include "lightgbm/sums.hpp"

namespace kolo::lightgbm {
namespace {

// LightGBM's types (its meta.h and c_api.h).
using Bytes = std::int32_t;
using Reducer = void (*)(const char* input, char* output, int type_size, Bytes bytes);
using Init = int (*)(int machines, int rank, void* reduce_scatter, void* allgather);
using Free = int (*)();

struct Attachment {
  Group group;
  Free free = nullptr;
  std::uint64_t calls = 0;
  std::vector<char> parts = {};  ///< of this rank's block, by rank
  std::vector<std::int64_t> splits = {};
};

/// LightGBM's functions get no pointer of ours, and its network is the thread's, too.
thread_local std::optional<Attachment> attachment;

/// The function of the lib_lightgbm that this process has loaded, also one that shows its symbols to nobody (as Python
/// loads it). Null without one.
void* function_of_lightgbm(const char* name) {
  if (void* const found = dlsym(RTLD_DEFAULT, name)) return found;
  const auto look = [](dl_phdr_info* object, std::size_t, void* result) {
    if (std::string_view(object->dlpi_name).find("lib_lightgbm") == std::string_view::npos) return 0;
    *static_cast<void**>(result) = dlopen(object->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
    return 1;
  };
  void* library = nullptr;
  dl_iterate_phdr(look, &library);
  return library == nullptr ? nullptr : dlsym(library, name);
}

TensorView bytes_at(char* data, std::int64_t size) { return {data, DType::uint8, Shape{size}}; }

Attachment& attached() {
  if (!attachment) {
    throw Error(ErrorCode::invalid_argument, "LightGBM reaches for the other ranks after kolo::lightgbm::detach()");
  }
  ++attachment->calls;
  return *attachment;
}

/// LightGBM's blocks lie one behind another, by rank; here it is checked.
std::int64_t end_of(const Bytes* starts, const Bytes* lengths, int blocks) {
  std::int64_t end = 0;
  for (int i = 0; i < blocks; ++i) {
    if (starts[i] != end) throw Error(ErrorCode::unsupported, "LightGBM's blocks do not follow one another");
    end += lengths[i];
  }
  return end;
}

void allgather_for_lightgbm(char* input, Bytes, const Bytes* starts, const Bytes* lengths, int blocks, char* output,
                            Bytes) {
  Attachment& self = attached();
  const int me = rank(self.group);
  const std::int64_t end = end_of(starts, lengths, blocks);
  char* const mine = output + starts[me];
  // The input may begin where the output does.
  if (lengths[me] > 0) std::memmove(mine, input, static_cast<std::size_t>(lengths[me]));
  allgather_into(self.group, bytes_at(mine, lengths[me]), bytes_at(output, end));
}

void reduce_scatter_for_lightgbm(char* input, Bytes bytes, int type_size, const Bytes* starts, const Bytes* lengths,
                                 int blocks, char* output, Bytes, const Reducer& reduce) {
  Attachment& self = attached();
  const int me = rank(self.group);
  const std::int64_t length = lengths[me];
  self.parts.resize(static_cast<std::size_t>(length) * static_cast<std::size_t>(blocks));
  self.splits.assign(lengths, lengths + blocks);
  const std::int64_t end = end_of(starts, lengths, blocks);
  alltoall_into(self.group, bytes_at(input, end), bytes_at(self.parts.data(), length * blocks), self.splits);
  if (length == 0) return;
  const auto part = [&](int of) { return self.parts.data() + length * of; };
  const int sum = add_in_order(blocks, me, bytes, [&](int from, int to) {
    reduce(part(from), part(to), type_size, static_cast<Bytes>(length));
  });
  std::memcpy(output, part(sum), static_cast<std::size_t>(length));
}

}  // namespace

void attach(const Group& group) {
  if (attachment) {
    throw Error(ErrorCode::invalid_argument,
                "kolo::lightgbm::attach() twice on one thread: call kolo::lightgbm::detach() before");
  }
  const auto init = reinterpret_cast<Init>(function_of_lightgbm("LGBM_NetworkInitWithFunctions"));
  const auto free = reinterpret_cast<Free>(function_of_lightgbm("LGBM_NetworkFree"));
  if (init == nullptr || free == nullptr) {
    throw Error(ErrorCode::invalid_argument, "kolo::lightgbm::attach() finds no lib_lightgbm in this process: link "
                                             "it, or import lightgbm before");
  }
  std::vector<int> all(static_cast<std::size_t>(size(group)));
  std::iota(all.begin(), all.end(), 0);
  const Group own = Group::of(group, all, "lightgbm");
  if (init(size(own), rank(own), reinterpret_cast<void*>(&reduce_scatter_for_lightgbm),
           reinterpret_cast<void*>(&allgather_for_lightgbm)) != 0) {
    throw Error(ErrorCode::unsupported, "LightGBM refuses Kolo's functions (LGBM_NetworkInitWithFunctions)");
  }
  attachment.emplace(Attachment{own, free});
}

std::uint64_t calls() noexcept { return attachment ? attachment->calls : 0; }

void detach() {
  if (!attachment) return;
  const Attachment was = std::move(*attachment);
  attachment.reset();
  was.free();
  if (was.calls > 0 || size(was.group) == 1) return;
  throw Error(ErrorCode::invalid_argument,
              "LightGBM has never reached for the other ranks, so each has trained on its own data alone: train on the "
              "thread that has called kolo::lightgbm::attach(), with num_machines=" +
                  std::to_string(size(was.group)) + " and tree_learner=data (or voting)");
}

}  // namespace kolo::lightgbm
