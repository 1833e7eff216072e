// SPDX-License-Identifier: Apache-2.0
// Four ranks as threads add up their numbers; each must see 0 + 1 + 2 + 3.
#include <atomic>
#include <iostream>

#include <kolo/kolo.hpp>
#include <kolo/mpi.hpp>  // needs no MPI
#if defined(IS_INSTALLED) &&                                                                                           \
    (KOLO_WITH_CUDA != __has_include(<kolo/cuda.hpp>) || KOLO_WITH_LIBTORCH != __has_include(<kolo/libtorch.hpp>))
#error "a part's header is installed with the part, and only then"
#endif

#ifdef KOLO_SETTER
#error "a macro of the library's own"
#endif

int main() {
  std::atomic<int> right{0};
  kolo::run_local(4, [&] {
    const kolo::Group all = kolo::world();
    int sum = kolo::rank();
    kolo::allreduce({all, "sum"}, kolo::view(&sum, 1));
    if (sum == 6 && kolo::allreduce(kolo::rank(), kolo::ReduceOp::sum) == 6) ++right;
  });
  std::cout << "kolo " << kolo::version() << ": " << right << " of 4 ranks agree\n";
  return right == 4 ? 0 : 1;
}
