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
#include <kolo/objects.hpp>
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
  int ranks = 1;
  Free free = nullptr;
  std::uint64_t calls = 0;
  /// The training has ended or failed on all ranks, and LightGBM has not called since: no rank waits for this one.
  bool is_over = false;
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

/// What the ranks say of their trainings once one has ended its own while another one goes on.
constexpr std::string_view kGoesOn = "g", kComplete = "c", kError = "e";  // with the error behind it

std::string listed(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

/// After calls that do not meet, which all ranks learn of, each says whether it trains. Throws the sentence, the same
/// on all ranks; returns if all train: then they train differently.
void tell_who_has_ended(const Group& group, const std::string& own) {
  std::vector<int> training, ended;
  std::string error;
  for (const std::string& said : allgather_bytes(group, own)) {
    const int rank = static_cast<int>(training.size() + ended.size());
    (said == kGoesOn ? training : ended).push_back(rank);
    if (error.empty() && said.substr(0, 1) == kError) error = said.substr(1);
  }
  if (ended.empty() || training.empty()) return;
  throw Error(ErrorCode::mismatch, "LightGBM's training has ended on " + listed(ended) +
                                       (error.empty() ? "" : ", by an error (" + error + "),") + " and goes on on " +
                                       listed(training) +
                                       (error.empty() ? ": end it at the same iteration on every rank; early stopping "
                                                        "does if all ranks give the same validation rows"
                                                      : ""));
}

/// Runs a collective of LightGBM's.
template <class Collective>
void meet(Attachment& self, const Collective& collective) {
  try {
    collective();
  } catch (const Error& error) {
    self.is_over = true;
    if (error.code() == ErrorCode::mismatch) tell_who_has_ended(self.group, std::string(kGoesOn));
    throw;
  }
}

/// Meets the other ranks where LightGBM meets them no more: a barrier is a call that LightGBM does not make.
void end_training_of(Attachment& self, std::string_view reason) {
  if (std::exchange(self.is_over, true)) return;
  try {
    barrier(self.group);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_initialized || error.code() == ErrorCode::shut_down) return;
    if (error.code() == ErrorCode::mismatch) {
      tell_who_has_ended(self.group, reason.empty() ? std::string(kComplete) : std::string(kError).append(reason));
    }
    throw;
  }
}

Attachment& attached() {
  if (!attachment) {
    throw Error(ErrorCode::invalid_argument, "LightGBM reaches for the other ranks after kolo::lightgbm::detach()");
  }
  ++attachment->calls;
  attachment->is_over = false;
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
  meet(self, [&] { allgather_into(self.group, bytes_at(mine, lengths[me]), bytes_at(output, end)); });
}

void reduce_scatter_for_lightgbm(char* input, Bytes bytes, int type_size, const Bytes* starts, const Bytes* lengths,
                                 int blocks, char* output, Bytes, const Reducer& reduce) {
  Attachment& self = attached();
  const int me = rank(self.group);
  const std::int64_t length = lengths[me];
  self.parts.resize(static_cast<std::size_t>(length) * static_cast<std::size_t>(blocks));
  self.splits.assign(lengths, lengths + blocks);
  const std::int64_t end = end_of(starts, lengths, blocks);
  meet(self, [&] {
    alltoall_into(self.group, bytes_at(input, end), bytes_at(self.parts.data(), length * blocks), self.splits);
  });
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
  attachment.emplace(Attachment{own, size(own), free});
}

std::uint64_t calls() noexcept { return attachment ? attachment->calls : 0; }

void end_training(std::string_view reason) {
  if (attachment) end_training_of(*attachment, reason);
}

void detach() {
  if (!attachment) return;
  Attachment was = std::move(*attachment);
  attachment.reset();
  was.free();
  end_training_of(was, {});
  if (was.calls > 0 || was.ranks == 1) return;
  throw Error(ErrorCode::invalid_argument,
              "LightGBM has never reached for the other ranks, so each has trained on its own data alone: train on the "
              "thread that has called kolo::lightgbm::attach(), with num_machines=" +
                  std::to_string(was.ranks) + " and tree_learner=data (or voting)");
}

}  // namespace kolo::lightgbm
