// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/peer_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <sys/random.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fields.hpp"
#include "base/system_error.hpp"
#include "base/text.hpp"

namespace kolo::shm {
namespace {

/// Whether all bytes were read; else errno says why.
bool read_process(pid_t process, void* to, const void* from, std::size_t bytes) noexcept {
  auto* destination = static_cast<std::byte*>(to);
  auto source = reinterpret_cast<std::uintptr_t>(from);
  while (bytes > 0) {
    const iovec local{destination, bytes};
    const iovec remote{reinterpret_cast<void*>(source), bytes};
    const ssize_t done = ::process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (done < 0) return false;
    if (done == 0) {
      errno = EFAULT;
      return false;
    }
    destination += done;
    source += static_cast<std::uintptr_t>(done);
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

class ProcessPeers final : public transport::PeerMemory {
 public:
  explicit ProcessPeers(std::vector<pid_t> processes) : processes_(std::move(processes)) {}

  Status read(int local_rank, void* to, const void* from, std::size_t bytes) override {
    const pid_t process = processes_[static_cast<std::size_t>(local_rank)];
    if (read_process(process, to, from, bytes)) return {};
    if (errno == ESRCH) return {ErrorCode::rank_lost, "its process has ended"};
    return {ErrorCode::transport, "process_vm_readv of " + std::to_string(bytes) + " bytes from local rank " +
                                      std::to_string(local_rank) + ": " + base::errno_text(errno)};
  }

  [[nodiscard]] bool reads_by_system() const noexcept override { return true; }

 private:
  const std::vector<pid_t> processes_;  // by local rank
};

class ThreadPeers final : public transport::PeerMemory {
 public:
  Status read(int /*local_rank*/, void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }
  [[nodiscard]] bool reads_by_system() const noexcept override { return false; }
};

/// How other ranks address a rank when they try to read its memory.
struct Sample {
  pid_t process = 0;
  std::uintptr_t address = 0;
  std::uint64_t number = 0;
};

std::string encode(const Sample& sample) {
  return std::to_string(sample.process) + " " + std::to_string(sample.address) + " " + std::to_string(sample.number);
}

Sample decode(const std::string& said) {
  const std::vector<std::string> words = base::words(said);
  if (words.size() == 3) {
    const auto process = base::parse_number<pid_t>(words[0]);
    const auto address = base::parse_number<std::uintptr_t>(words[1]);
    const auto number = base::parse_number<std::uint64_t>(words[2]);
    if (process && *process > 0 && address && number) return {*process, *address, *number};
  }
  base::throw_unreadable();
}

bool is_found(const Sample& sample) {
  std::uint64_t found = 0;
  return read_process(sample.process, &found, reinterpret_cast<const void*>(sample.address), sizeof found) &&
         found == sample.number;
}

}  // namespace

std::shared_ptr<transport::PeerMemory> read_between_processes(const core::Topology& topology,
                                                              const transport::Meeting& meet) {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number))
    base::throw_errno("getrandom", errno);
  const std::vector<std::string> samples =
      meet(encode({::getpid(), reinterpret_cast<std::uintptr_t>(&number), number}));
  std::vector<pid_t> processes;
  bool finds_all = true;
  for (const int rank : topology.nodes[static_cast<std::size_t>(topology.node)]) {
    const Sample sample = decode(samples[static_cast<std::size_t>(rank)]);
    finds_all = finds_all && is_found(sample);
    processes.push_back(sample.process);
  }
  const std::vector<std::string> verdicts = meet(finds_all ? "yes" : "no");
  if (std::any_of(verdicts.begin(), verdicts.end(), [](const std::string& one) { return one != "yes"; }))
    return nullptr;
  return std::make_shared<ProcessPeers>(std::move(processes));
}

std::shared_ptr<transport::PeerMemory> read_between_threads() { return std::make_shared<ThreadPeers>(); }

}  // namespace kolo::shm
