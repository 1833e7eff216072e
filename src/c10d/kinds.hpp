// SPDX-License-Identifier: Apache-2.0
//
// The collectives as rows of a table: what PyTorch calls each, and which of Kolo's calls it is.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <kolo/call.hpp>
#include <kolo/context.hpp>
#include <kolo/handle.hpp>

#include "c10d/tensor_memory.hpp"
#include "c10d/versions.hpp"

namespace kolo::c10d {

/// What one of Kolo's operations is given. A call of several tensors ("coalesced") makes several of them.
struct Arguments {
  Packed in{};   ///< of what works in place, nothing
  Packed out{};  ///< of a rooted call, nothing where this rank has no part in it
  int root = 0;
  std::vector<std::int64_t> splits{};           ///< rows for each rank; none: evenly
  std::vector<std::int64_t> received_splits{};  ///< where there are splits: rows from each rank
  Rows in_rows{0, 0};                           // of what does not work in place
  Rows out_rows{0, 0};
  // Filled in by whoever starts it:
  Elements elements{DType::uint8, 1};
  Reduction reduction{};
  bool divides = false;  ///< by the number of ranks, afterwards
  std::chrono::milliseconds timeout{};
  std::string name{};  ///< of a call with a name; empty: the order of the calls is the name
};

struct Kind {
  const char* call;   ///< what messages begin with
  const char* title;  ///< the profiler's name
  ::c10d::OpType type;
  bool reduces;
  Call (*describe)(const Arguments& arguments);

  [[nodiscard]] std::shared_ptr<Handle> start(const Group& group, const Arguments& arguments) const;
};

extern const Kind kAllreduce, kAllreduceCoalesced, kBroadcast, kReduce, kAllgather, kAllgatherBase, kAllgatherCoalesced,
    kAllgatherIntoTensorCoalesced, kGather, kScatter, kReduceScatter, kReduceScatterUneven, kReduceScatterBase,
    kReduceScatterTensorCoalesced, kAlltoall, kAlltoallBase;

}  // namespace kolo::c10d
