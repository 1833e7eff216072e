// SPDX-License-Identifier: Apache-2.0
#include "mpi/mpi_exchange.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include <kolo/error.hpp>

#include "base/fields.hpp"
#include "bootstrap/bootstrap.hpp"
#include "mpi/mpi_api.hpp"

namespace kolo::mpi {
namespace {

constexpr int kTag = 0;
/// How long rank 0 lets MPI work on the bad news after its patience has ended, and the others wait for them.
constexpr std::chrono::seconds kFlushPatience{1};

constexpr char kGood = '+';
constexpr char kBad = '-';

[[noreturn]] void give_up(const std::string& why) {
  throw Error(ErrorCode::transport, why + ". MPI operations stay open, so MPI cannot be finalised.");
}

std::vector<int> absent(const std::vector<char>& here) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    if (here[rank] == 0) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

void roll_call(MPI_Comm theirs, base::Duration patience) {
  constexpr std::string_view kLabel = "roll call";
  const base::Time until = base::now() + patience;
  auto call = std::make_unique<RollCall>(theirs);
  poll_until(until, [&] { return call->gathered(); });
  if (call->rank() == 0) call->answer();
  const base::Time last =
      call->rank() == 0 ? base::now() + kFlushPatience : base::now() + bootstrap::after_waiting(patience);
  const bool answered = poll_until(last, [&] { return call->answered(); });
  const std::vector<int> missing = call->rank() == 0 || answered ? absent(call->here()) : std::vector<int>{0};
  if (answered && missing.empty()) return;
  static_cast<void>(call.release());  // MPI may still write there
  give_up(bootstrap::missing_ranks(missing, kLabel, patience));
}

/// What comes from one rank: its length, then the bytes.
struct MpiExchange::Incoming {
  int rank = 0;
  std::byte* memory = nullptr;
  std::uint64_t length = 0;
  transport::InterNode::Operation operation = 0;
  bool has_length = false;
  bool complete = false;
};

MpiExchange::MpiExchange(Communicator communicator)
    : rank_(communicator.rank()), size_(communicator.size()), communicator_(communicator.raw()),
      transport_(std::move(communicator)) {}

std::vector<std::string> MpiExchange::exchange(std::string_view label, const std::string& mine,
                                               base::Duration patience) {
  if (size_ == 1) return {mine};
  const std::string said = base::join_fields({std::string(label), mine});
  const std::string answer = rank_ == 0 ? gather(label, said, patience) : report(label, said, patience);
  if (answer.empty() || answer.front() != kGood) give_up(answer.empty() ? "rank 0 said nothing" : answer.substr(1));
  return base::split_fields(answer.substr(1));
}

/// Rank 0: hears everybody, then tells everybody.
std::string MpiExchange::gather(std::string_view label, const std::string& mine, base::Duration patience) {
  const base::Time until = base::now() + patience;
  std::vector<Incoming> others = expect_others();
  const bool complete = hear(others, until);
  std::vector<std::string> said{mine};
  for (const Incoming& one : others) said.push_back(text(one));
  const std::string answer =
      complete ? judge(label, said) : kBad + bootstrap::missing_ranks(incomplete(others), label, patience);
  std::vector<transport::InterNode::Operation> open;
  for (int rank = 1; rank < size_; ++rank) send(rank, answer, open);
  if (!complete) {
    // Those who are there must hear of it; the others, should they come, find it.
    poll_until(base::now() + kFlushPatience, [&] { return flush(open); });
    return answer;
  }
  std::vector<Incoming> receipts = expect_others();
  if (hear(receipts, base::now() + patience) && flush(open)) return answer;
  return kBad + bootstrap::missing_ranks(incomplete(receipts), label, patience);
}

/// All others: tell rank 0, hear from it, and say so. (A send that has completed may still wait for a call of the
/// sender's, InterNode::push: with receipts nobody leaves for other work before all have heard.)
std::string MpiExchange::report(std::string_view label, const std::string& mine, base::Duration patience) {
  std::vector<transport::InterNode::Operation> open;
  send(0, mine, open);
  std::vector<Incoming> answer{expect(0)};
  if (!hear(answer, base::now() + bootstrap::after_waiting(patience)))
    return kBad + bootstrap::missing_ranks({0}, label, patience);
  send(0, {}, open);
  poll_until(base::now() + patience, [&] { return flush(open); });
  return text(answer.front());
}

/// Everybody's words, or that they are at different steps.
std::string MpiExchange::judge(std::string_view label, const std::vector<std::string>& said) const {
  std::vector<std::string> all;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    std::vector<std::string> fields = base::split_fields(said[rank]);
    if (fields.size() != 2 || fields[0] != label) {
      return kBad + ("rank " + std::to_string(rank) + " is at another step of the start than rank 0, which is at \"") +
             std::string(label) + "\": do all run the same release of Kolo?";
    }
    all.push_back(std::move(fields[1]));
  }
  return kGood + base::join_fields(all);
}

void MpiExchange::send(int rank, const std::string& bytes, std::vector<transport::InterNode::Operation>& open) {
  const std::uint64_t length = bytes.size();
  std::byte* const memory = transport_.staging(sizeof length + bytes.size());
  std::memcpy(memory, &length, sizeof length);
  open.push_back(transport_.send(rank, kTag, memory, sizeof length));
  if (bytes.empty()) return;
  std::memcpy(memory + sizeof length, bytes.data(), bytes.size());
  open.push_back(transport_.send(rank, kTag, memory + sizeof length, bytes.size()));
}

/// Whether all have completed.
bool MpiExchange::flush(std::vector<transport::InterNode::Operation>& open) {
  open.erase(std::remove_if(open.begin(), open.end(), [this](auto operation) { return transport_.test(operation); }),
             open.end());
  return open.empty();
}

MpiExchange::Incoming MpiExchange::expect(int rank) {
  Incoming incoming;
  incoming.rank = rank;
  incoming.memory = transport_.staging(sizeof incoming.length);
  incoming.operation = transport_.receive(rank, kTag, incoming.memory, sizeof incoming.length);
  return incoming;
}

std::vector<MpiExchange::Incoming> MpiExchange::expect_others() {
  std::vector<Incoming> all;
  for (int rank = 1; rank < size_; ++rank) all.push_back(expect(rank));
  return all;
}

/// Whether all came in time.
bool MpiExchange::hear(std::vector<Incoming>& all, base::Time until) {
  return poll_until(until, [&] {
    for (Incoming& one : all) advance(one);
    return incomplete(all).empty();
  });
}

void MpiExchange::advance(Incoming& incoming) {
  if (incoming.complete || !transport_.test(incoming.operation)) return;
  if (incoming.has_length) {
    incoming.complete = true;
    return;
  }
  incoming.has_length = true;
  std::memcpy(&incoming.length, incoming.memory, sizeof incoming.length);
  incoming.complete = incoming.length == 0;
  if (incoming.complete) return;
  incoming.memory = transport_.staging(incoming.length);
  incoming.operation = transport_.receive(incoming.rank, kTag, incoming.memory, incoming.length);
}

std::vector<int> MpiExchange::incomplete(const std::vector<Incoming>& all) {
  std::vector<int> ranks;
  for (const Incoming& one : all) {
    if (!one.complete) ranks.push_back(one.rank);
  }
  return ranks;
}

std::string MpiExchange::text(const Incoming& incoming) {
  return {reinterpret_cast<const char*>(incoming.memory), incoming.complete ? incoming.length : 0};
}

}  // namespace kolo::mpi
