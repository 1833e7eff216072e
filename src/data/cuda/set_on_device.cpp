// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/set_on_device.hpp"

#include <exception>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "base/fields.hpp"

namespace kolo::cuda {

std::string encode(const Word& word) {
  return base::join_fields(
      {word.problem, word.lacks_memory ? "memory" : "", word.uuid, word.bus, word.shares ? "shares" : "", word.id});
}

Word decode(const std::string& text) {
  std::vector<std::string> fields = base::split_fields(text);
  KOLO_CHECK(fields.size() == 6);
  Word word;
  word.problem = std::move(fields[0]);
  word.lacks_memory = !fields[1].empty();
  word.uuid = std::move(fields[2]);
  word.bus = std::move(fields[3]);
  word.shares = !fields[4].empty();
  word.id = std::move(fields[5]);
  return word;
}

Word problem_of_exception() {
  Word word;
  try {
    throw;
  } catch (const Error& error) {
    word.problem = error.status().message();
    word.lacks_memory = error.code() == ErrorCode::out_of_memory;
  } catch (const std::bad_alloc& error) {
    word.problem = error.what();
    word.lacks_memory = true;
  } catch (const std::exception& error) {
    word.problem = error.what();
  }
  return word;
}

Status judge(const SetOnDevice& set, const std::vector<Word>& said, bool share_device) {
  const auto name = [&](std::size_t rank) { return std::to_string(set.member(static_cast<int>(rank))); };
  const auto of = [&](std::size_t rank) { return "rank " + name(rank) + " cannot use its GPU: "; };
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    if (said[rank].problem.empty()) continue;
    return Status(said[rank].lacks_memory ? ErrorCode::out_of_memory : ErrorCode::unsupported,
                  of(rank) + said[rank].problem);
  }
  if (share_device || said.size() == 1) return {};  // a rank alone waits for nobody on its device
  for (std::size_t a = 0; a < said.size(); ++a) {
    for (std::size_t b = a + 1; b < said.size(); ++b) {
      if (said[a].uuid != said[b].uuid && !said[a].bus.empty() && said[a].bus == said[b].bus) {
        return Status(ErrorCode::unsupported, "ranks " + name(a) + " and " + name(b) +
                                                  " use two instances of one GPU (MIG), between which NCCL does not "
                                                  "work: give each rank a GPU of its own, or set "
                                                  "KOLO_GPU_BACKEND=staged");
      }
      if (said[a].uuid != said[b].uuid) continue;
      return Status(ErrorCode::unsupported, "ranks " + name(a) + " and " + name(b) +
                                                " use the same GPU: give each rank one of its own (kolo::cuda::bind "
                                                "does), or set KOLO_SHARE_DEVICE=1");
    }
  }
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    if (!said[rank].shares) continue;
    return Status(ErrorCode::unsupported,
                  of(rank) +
                      "another context of its process uses it by NCCL, and nothing orders the two. Shut that context "
                      "down first, or set KOLO_GPU_BACKEND=staged for one of them, or KOLO_SHARE_DEVICE=1 where the "
                      "program never has collectives of both open at a time");
  }
  return {};
}

}  // namespace kolo::cuda
