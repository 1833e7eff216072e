// SPDX-License-Identifier: Apache-2.0
#include "launch/process_bootstrap.hpp"

#include <utility>

#include <kolo/error.hpp>

#include "base/proof.hpp"
#include "launch/exchange.hpp"
#include "launch/meeting_place.hpp"

namespace kolo::launch {
namespace {

class ProcessBootstrap final : public bootstrap::Bootstrap {
 public:
  ProcessBootstrap(Place place, std::unique_ptr<Directions> directions, std::string reason, std::string secret)
      : place_(std::move(place)), found_by_(directions->describe()), reason_(std::move(reason)),
        secret_(std::move(secret)), exchange_(make_exchange(place_, std::move(directions))) {}

  [[nodiscard]] int rank() const noexcept override { return place_.rank; }
  [[nodiscard]] int size() const noexcept override { return place_.size; }

  std::vector<std::string> exchange(std::string_view label, const std::string& mine, base::Duration patience,
                                    base::Time begun) override {
    if (exchange_ == nullptr) throw Error(ErrorCode::transport, "the start of this job is over");
    return exchange_->exchange(label, mine, patience, begun);
  }

  std::shared_ptr<transport::InterNode> inter_node(const core::Topology& topology,
                                                   base::Duration /*patience*/) override {
    throw Error(ErrorCode::unsupported,
                "this job has " + std::to_string(topology.node_count()) +
                    " nodes, and no MPI has started it that could carry data between them: start it by mpirun, or let "
                    "UCX carry the data (KOLO_TRANSPORT=ucx, with UCX installed on every host; Debian: libucx0)");
  }

  [[nodiscard]] std::string key_from(const std::string& word) const override {
    return secret_.empty() ? word : base::hex_of(base::prove(secret_, "control " + word));
  }

  [[nodiscard]] std::string describe() const override { return found_by_ + ", because " + reason_; }

  void check() const override {
    if (exchange_ != nullptr) exchange_->check();
  }

  void close() noexcept override { exchange_.reset(); }

 private:
  const Place place_;
  const std::string found_by_;
  const std::string reason_;
  const std::string secret_;
  std::unique_ptr<Exchange> exchange_;  // null behind `close`
};

}  // namespace

std::unique_ptr<bootstrap::Bootstrap> meet(const Start& start, const base::Lookup& environment) {
  const JobKey key{environment("KOLO_JOB_KEY").value_or(""), start.job};
  auto directions = directions_to(*start.where, environment("KOLO_INTERFACE").value_or(""), key);
  return std::make_unique<ProcessBootstrap>(start.place, std::move(directions), start.reason, key.secret);
}

}  // namespace kolo::launch
