// SPDX-License-Identifier: Apache-2.0
//
// Long messages between hosts through sockets that hold little, with nothing to do after each for those who have sent:
// what Open MPI then holds back (transport/inter_node.hpp, `push`) must come all the same. With the argument `unpushed`
// nothing may have had to be pushed.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/info.hpp>

int main(int argc, char** argv) {
  int failures = 0;
  {
    const kolo::Session session;
    const int rank = kolo::rank();
    const auto ranks = static_cast<std::size_t>(kolo::size());
    constexpr int kSteps = 200;
    for (int step = 0; step < kSteps; ++step) {
      const std::size_t part = 20'000 + static_cast<std::size_t>(step) * 7919 % 50'000;
      std::vector<std::int32_t> in(part * ranks);
      for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = static_cast<std::int32_t>(i / part) * 1000 + rank * 100 + step % 100;
      std::vector<std::int32_t> out(in.size(), -1);
      kolo::alltoall_into("alltoall", kolo::const_view(in), kolo::view(out));
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (out[i] == rank * 1000 + static_cast<std::int32_t>(i / part) * 100 + step % 100) continue;
        std::printf("FAIL rank %d: element %zu of step %d is %d\n", rank, i, step, out[i]);
        ++failures;
        break;
      }
    }
    const auto pushes = static_cast<std::int64_t>(kolo::detail::counters().pushes);
    if (argc > 1 && std::string(argv[1]) == "unpushed" && pushes > 0) ++failures;
    failures = kolo::allreduce(failures, kolo::ReduceOp::sum);
    if (rank == 0)
      std::printf("%s %d ranks, pushed %lld times\n", failures == 0 ? "PASS" : "FAIL", kolo::size(),
                  static_cast<long long>(pushes));
  }
  return failures == 0 ? 0 : 1;
}
