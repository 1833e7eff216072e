// SPDX-License-Identifier: Apache-2.0
#include "job.hpp"

#include <algorithm>
#include <thread>

#include <kolo/kolo.hpp>

#include "mpi_check.hpp"

namespace kolo_bench {
namespace {

/// Every rank, and whoever waits gives its CPU away meanwhile. MPI_Barrier may keep it (Open MPI gives it away only
/// where it knows that ranks outnumber the CPUs, which it counts by host): then ranks that have finished what is
/// measured, and wait here, take whole time slices from those that have not, and that is what would be measured.
void gather_all() {
  constexpr int kLooksBeforeYield = 100;  // about 20 us: ranks with a CPU each leave together
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
  int done = 0;
  for (int look = 0;; ++look) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    if (look >= kLooksBeforeYield) std::this_thread::yield();
  }
}

class KoloJob final : public Job {
 public:
  [[nodiscard]] int rank() const override { return kolo::rank(); }
  [[nodiscard]] int size() const override { return kolo::size(); }
  [[nodiscard]] int nodes() const override { return nodes_; }
  // MPI's, where it is there: what follows is often MPI's turn.
  void barrier() override {
    if (has_mpi_) {
      gather_all();
    } else {
      kolo::barrier();
    }
  }
  void max(std::vector<double>& values) override {
    kolo::allreduce(kolo::view(values), kolo::AllreduceOptions{}.with_op(kolo::ReduceOp::max));
  }
  [[nodiscard]] std::int64_t sum(std::int64_t value) override { return kolo::allreduce(value, kolo::ReduceOp::sum); }
  void broadcast(std::vector<char>& bytes) override {
    kolo::broadcast({bytes.data(), kolo::DType::uint8, kolo::Shape{static_cast<std::int64_t>(bytes.size())}}, 0);
  }

 private:
  kolo::Session session_;
  const bool has_mpi_ = mpi_is_up();
  const int nodes_ = kolo::allreduce(kolo::local_rank() == 0 ? 1 : 0, kolo::ReduceOp::sum);
};

class MpiJob final : public Job {
 public:
  explicit MpiJob(int level) {
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, level, &provided), "MPI_Init_thread");
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    MPI_Comm node = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
    int local = 0;
    check_mpi(MPI_Comm_rank(node, &local), "MPI_Comm_rank");
    check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
    nodes_ = static_cast<int>(sum(local == 0 ? 1 : 0));
  }
  ~MpiJob() override { MPI_Finalize(); }
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] int nodes() const override { return nodes_; }
  void barrier() override { gather_all(); }
  void max(std::vector<double>& values) override {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                            MPI_COMM_WORLD),
              "MPI_Allreduce");
  }
  [[nodiscard]] std::int64_t sum(std::int64_t value) override {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
    return value;
  }
  void broadcast(std::vector<char>& bytes) override {
    check_mpi(MPI_Bcast(bytes.data(), static_cast<int>(bytes.size()), MPI_CHAR, 0, MPI_COMM_WORLD), "MPI_Bcast");
  }

 private:
  int rank_ = 0;
  int size_ = 1;
  int nodes_ = 1;
};

}  // namespace

std::unique_ptr<Job> make_kolo_job() { return std::make_unique<KoloJob>(); }
std::unique_ptr<Job> make_mpi_job(bool threads) {
  return std::make_unique<MpiJob>(threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
}

}  // namespace kolo_bench
