// SPDX-License-Identifier: Apache-2.0
//
// What ranks tell each other in a step of the start: fields, and whose part has failed.
#include "fuzz.hpp"

#include <algorithm>

#include <kolo/error.hpp>

#include "base/fields.hpp"
#include "bootstrap/bootstrap.hpp"

namespace kolo::fuzz {
namespace {

/// Rank 0 of a world whose other ranks say what the input says.
class Others final : public bootstrap::Bootstrap {
 public:
  explicit Others(std::vector<std::string> said) : said_(std::move(said)) {}
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(said_.size()) + 1; }
  std::vector<std::string> exchange(std::string_view /*label*/, const std::string& mine, base::Duration /*patience*/,
                                    base::Time /*begun*/) override {
    std::vector<std::string> all = said_;
    all.insert(all.begin(), mine);
    return all;
  }
  std::shared_ptr<transport::NodeLink> join_node(const core::Topology& /*topology*/, std::size_t /*bytes*/,
                                                 const std::string& /*job_key*/, base::Duration /*patience*/) override {
    return nullptr;
  }
  std::shared_ptr<transport::InterNode> inter_node(const core::Topology& /*topology*/,
                                                   base::Duration /*patience*/) override {
    return nullptr;
  }
  [[nodiscard]] std::string describe() const override { return {}; }

 private:
  std::vector<std::string> said_;
};

}  // namespace

void run(std::string_view input) {
  std::vector<std::string> fields;
  try {
    fields = base::split_fields(std::string(input));
    KOLO_CHECK(base::split_fields(base::join_fields(fields)) == fields);
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::transport);
  }
  Others others(fields);
  try {
    const auto all = bootstrap::take_step(others, "step", base::Duration{}, [] { return std::string("mine"); });
    KOLO_CHECK(all.size() == fields.size() + 1 && all.front() == "mine");
  } catch (const Error& error) {
    KOLO_CHECK(error.code() != ErrorCode::ok && static_cast<int>(error.code()) < kErrorCodeCount);
  }
}

std::vector<std::string> seeds() {
  const std::string well = base::join_fields({"0", "said"});
  return {base::join_fields({well, well}), base::join_fields({well, base::join_fields({"10", "it has failed"})}),
          base::join_fields({base::join_fields({"7", "timeout"}), base::join_fields({"256", ""})}), "0:", "3:abc1:x"};
}

}  // namespace kolo::fuzz
