// SPDX-License-Identifier: Apache-2.0
#include "mpi/mpi_exchange.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include <kolo/error.hpp>

#include "base/fields.hpp"
#include "bootstrap/bootstrap.hpp"
#include "mpi/mpi_api.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {
namespace {

constexpr int kTag = 0;
/// How long rank 0 lets MPI deliver a failure after its patience has ended, and how long the others wait for it.
constexpr std::chrono::seconds kFlushPatience{1};

constexpr char kGood = '+';
constexpr char kBad = '-';

[[noreturn]] void give_up(const std::string& why) {
  throw Error(ErrorCode::transport, why + ". MPI operations stay open, so MPI cannot be finalised.");
}

/// How long others wait for rank 0: until it can have named the missing ranks. Rank 0 may have begun later, or may
/// still wait for the receipts of the step before.
base::Duration of_others(base::Duration patience) {
  return bootstrap::after_waiting(bootstrap::after_waiting(patience));
}

std::vector<int> absent(const std::vector<char>& here) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    if (here[rank] == 0) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

void roll_call(MPI_Comm theirs, std::string_view label, base::Duration patience, base::Time begun) {
  auto call = std::make_unique<RollCall>(theirs);
  poll_until(begun + patience, [&] { return call->gathered(); });
  if (call->rank() == 0) call->answer();
  const base::Time last = call->rank() == 0 ? base::now() + kFlushPatience : begun + of_others(patience);
  const bool answered = poll_until(last, [&] { return call->answered(); });
  const std::vector<int> missing = call->rank() == 0 || answered ? absent(call->here()) : std::vector<int>{0};
  if (answered && missing.empty()) return;
  static_cast<void>(call.release());  // MPI may still write there
  give_up(bootstrap::missing_ranks(missing, label, patience));
}

MpiExchange::MpiExchange(Communicator communicator)
    : rank_(communicator.rank()), size_(communicator.size()), communicator_(communicator.raw()),
      transport_(std::move(communicator)) {}

std::vector<std::string> MpiExchange::exchange(std::string_view label, const std::string& mine, base::Duration patience,
                                               base::Time begun) {
  if (size_ == 1) return {mine};
  const std::string said = base::join_fields({std::string(label), mine});
  const std::string answer = rank_ == 0 ? gather(label, said, patience, begun) : report(label, said, patience, begun);
  if (answer.empty() || answer.front() != kGood) give_up(answer.empty() ? "rank 0 sent nothing" : answer.substr(1));
  return base::split_fields(answer.substr(1));
}

/// Rank 0: receives from all ranks, sends the result to all, and waits a little for the receipts. A rank that sends no
/// receipt is missed in the next step, which fails on all ranks; after the last step the engines notice it.
std::string MpiExchange::gather(std::string_view label, const std::string& mine, base::Duration patience,
                                base::Time begun) {
  std::vector<Incoming> others = expect_others();
  if (!hear(others, begun + patience)) {
    std::string news = kBad + bootstrap::missing_ranks(incomplete(others), label, patience);
    // Ranks that are here must get it; ranks that come later find it.
    for (int rank = 1; rank < size_; ++rank) send(rank, news);
    poll_until(base::now() + kFlushPatience, [this] { return flush(); });
    return news;
  }
  hear(receipts_, base::now() + kFlushPatience);  // the receipts come before this step's messages
  std::vector<std::string> said{mine};
  for (const Incoming& one : others) said.push_back(text(one));
  std::string answer = judge(label, said);
  for (int rank = 1; rank < size_; ++rank) send(rank, answer);
  receipts_ = expect_others();
  const base::Time last = base::now() + bootstrap::after_waiting(patience) - patience;
  hear(receipts_, last);
  poll_until(last, [this] { return flush(); });
  return answer;
}

/// All other ranks: send to rank 0, receive the result, and send a receipt. (A completed send may still need a call of
/// the sender's, InterNode::push. Because of the receipts no rank leaves for other work before all have received.)
std::string MpiExchange::report(std::string_view label, const std::string& mine, base::Duration patience,
                                base::Time begun) {
  send(0, mine);
  std::vector<Incoming> answer{expect(0)};
  if (!hear(answer, begun + of_others(patience))) return kBad + bootstrap::missing_ranks({0}, label, patience);
  send(0, {});
  poll_until(base::now() + patience, [this] { return flush(); });
  return text(answer.front());
}

/// The result: all ranks' bytes, or the error that they are at different steps.
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

void MpiExchange::send(int rank, const std::string& bytes) {
  const std::uint64_t length = bytes.size();
  std::byte* const memory = transport_.staging(sizeof length + bytes.size());
  std::memcpy(memory, &length, sizeof length);
  sends_.push_back(transport_.send(rank, kTag, memory, sizeof length));
  if (bytes.empty()) return;
  std::memcpy(memory + sizeof length, bytes.data(), bytes.size());
  sends_.push_back(transport_.send(rank, kTag, memory + sizeof length, bytes.size()));
}

/// Whether all have completed.
bool MpiExchange::flush() {
  sends_.erase(
      std::remove_if(sends_.begin(), sends_.end(), [this](auto operation) { return transport_.test(operation); }),
      sends_.end());
  return sends_.empty();
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

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
