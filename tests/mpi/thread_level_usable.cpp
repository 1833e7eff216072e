// SPDX-License-Identifier: Apache-2.0
//
// MPI initialised by the program, with the thread level that the first argument names: who may drive the transport, and
// that those who may can.
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "base/settings.hpp"
#include "core/topology.hpp"
#include "mpi/mpi_api.hpp"
#include "mpi/mpi_borrow.hpp"
#include "mpi/mpi_lifetime.hpp"
#include "tests/mpi/report.hpp"

namespace {

using kolo::ErrorCode;
using kolo::testing::Report;
namespace mpi = kolo::mpi;
namespace core = kolo::core;
namespace transport = kolo::transport;

constexpr kolo::base::Duration kPatience = std::chrono::seconds(60);

mpi::ThreadLevel level_named(const std::string& name) {
  for (const auto level : {mpi::ThreadLevel::single, mpi::ThreadLevel::funneled, mpi::ThreadLevel::serialized,
                           mpi::ThreadLevel::multiple}) {
    if (name == mpi::to_string(level)) return level;
  }
  throw kolo::Error(ErrorCode::invalid_argument, "the first argument is SINGLE, FUNNELED, SERIALIZED or MULTIPLE");
}

/// A ring: everyone to the next.
void pass_on(Report& report, transport::InterNode& transport, int rank, int size) {
  int* sent = reinterpret_cast<int*>(transport.staging(sizeof(int)));
  int* received = reinterpret_cast<int*>(transport.staging(sizeof(int)));
  *sent = rank * 100;
  *received = -1;
  const auto in = transport.receive((rank + size - 1) % size, 3, reinterpret_cast<std::byte*>(received), sizeof(int));
  const auto out = transport.send((rank + 1) % size, 3, reinterpret_cast<std::byte*>(sent), sizeof(int));
  const auto finish = [&](transport::InterNode::Operation operation) {
    while (!transport.test(operation)) {
      if (transport.callers() != nullptr) transport.callers()->move();
    }
  };
  finish(in);
  finish(out);
  report.equal(*received, (rank + size - 1) % size * 100, "what the rank before passed on");
}

/// Who may call MPI's transport: nobody but those whom the rule names.
void check_level(Report& report, mpi::ThreadLevel level, MPI_Comm world) {
  const auto gate = std::make_shared<transport::CallerGate>();
  const auto bootstrap = mpi::borrow(world, {}, kPatience, gate);
  const int rank = bootstrap->rank();
  const int size = bootstrap->size();
  report.set_place(rank, size);
  report.check(bootstrap->describe().find("thread level " + std::string(mpi::to_string(level))) != std::string::npos,
               bootstrap->describe());
  const auto transport = bootstrap->inter_node(
      core::make_topology(rank, std::vector<int>(static_cast<std::size_t>(size), 0), 1), kPatience);
  transport::Callers* const callers = transport->callers();
  report.equal(callers != nullptr, level != mpi::ThreadLevel::multiple, "whether only some threads may call");
  if (callers != nullptr) {
    report.check(&callers->changes() == &gate->changes(), "the gate is the one that was handed in");
    report.check(callers->may_move_here(), "this thread may");
    std::thread([&] {
      report.equal(callers->may_move_here(), level == mpi::ThreadLevel::serialized, "whether any thread may");
    }).join();
  }
  pass_on(report, *transport, rank, size);
  std::thread([&] {
    if (level >= mpi::ThreadLevel::serialized) {
      pass_on(report, *transport, rank, size);
      bootstrap->exchange("test", "", kPatience);
    } else {
      report.throws(ErrorCode::unsupported, "only the thread that did may join a job",
                    [&] { mpi::borrow(MPI_COMM_WORLD, {}, kPatience, gate); });
    }
  }).join();
  pass_on(report, *transport, rank, size);
}

}  // namespace

int main(int argc, char** argv) {
  Report report(std::string("thread-level ") + (argc > 1 ? argv[1] : "?"));
  return kolo::testing::run(report, [&] {
    const mpi::ThreadLevel level = level_named(argc > 1 ? argv[1] : "");
    const int wanted[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    int provided = -1;
    MPI_Init_thread(&argc, &argv, wanted[static_cast<int>(level)], &provided);
    report.check(mpi::thread_level() == level,
                 "MPI gives the level that was asked for: " + std::string(mpi::to_string(mpi::thread_level())));
    mpi::Lifetime lifetime;
    lifetime.begin(kPatience, kolo::base::process_environment());  // finds it initialised
    check_level(report, level, MPI_COMM_WORLD);
    check_level(report, level, MPI_COMM_SELF);
    lifetime.end(kPatience, 0);
    report.check(!mpi::is_finalized(), "the program's MPI is left to the program");
    MPI_Finalize();
  });
}
