// SPDX-License-Identifier: Apache-2.0
//
//     saving_job <path> <ranks> <descriptor> [--once]
//
// Loads the checkpoint, if there is one, and checks that it is one whole state: all tensors are what they are in the
// step that it holds. Then it saves one step after the other, by turns here and in the background, until it is killed;
// with --once a single one. It tells the descriptor, a pipe: "rank <pid>" of each rank, "loaded <step>", and "saved
// <step>" when a save has returned.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/kolo.hpp>

namespace {

/// Short lines arrive whole, from any rank.
void tell(int descriptor, const std::string& line) {
  if (::write(descriptor, (line + '\n').data(), line.size() + 1) != static_cast<ssize_t>(line.size() + 1)) {
    throw std::runtime_error("the pipe is closed");
  }
}

/// A model of 3 MB, with as much state, of which every number says to which step it belongs.
class Job {
 public:
  explicit Job(bool is_sharded) {
    for (const std::size_t count : {300000, 7, 1, 400000, 65}) {
      values_.emplace_back(count);
      gradients_.emplace_back(count);
    }
    for (std::size_t i = 0; i < values_.size(); ++i) {
      list_.push_back({"w" + std::to_string(i), kolo::view(values_[i]), kolo::view(gradients_[i])});
    }
    const auto make = [](kolo::Span<const kolo::Parameter> of) { return kolo::AdamW(of); };
    if (is_sharded) {
      sharded_.emplace(list_, make);
    } else {
      alone_.emplace(list_);
    }
  }

  void load(const std::string& path) {
    with([&](auto& optimizer) { kolo::load_checkpoint(path, list_, optimizer, options()); });
    each([this](float value, std::int64_t i) {
      if (value != expected(i)) throw std::runtime_error("a number is not that of step " + std::to_string(step_));
      return value;
    });
  }
  void save(const std::string& path, kolo::CheckpointWriter& writer) {
    ++step_;
    each([this](float, std::int64_t i) { return expected(i); });
    if (step_ % 2 == 0) {
      with([&](auto& optimizer) { kolo::save_checkpoint(path, list_, optimizer, options()); });
      return;
    }
    with([&](auto& optimizer) { writer.save(path, list_, optimizer, options()); });
    each([](float, std::int64_t) { return -1.0F; });  // it has a copy
    writer.wait();
  }
  [[nodiscard]] std::int64_t step() const { return step_; }

 private:
  kolo::CheckpointOptions options() { return kolo::CheckpointOptions().with_value("step", step_); }
  [[nodiscard]] float expected(std::int64_t i) const { return static_cast<float>(step_ * 100 + i % 97); }

  template <class Body>
  void with(const Body& body) {
    if (sharded_) {
      body(*sharded_);
    } else {
      body(*alone_);
    }
  }
  /// Every number becomes what `function` makes of it and its place in its tensor (0 for the optimizer's state, which
  /// may be a piece). Scalars of the state are not touched.
  template <class Function>
  void each(const Function& function) {
    for (std::vector<float>& values : values_) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = function(values[i], static_cast<std::int64_t>(i));
    }
    for (const kolo::NamedView& state : sharded_ ? sharded_->optimizer().state() : alone_->state()) {
      if (state.view.shape().rank() == 0) continue;
      auto* const numbers = static_cast<float*>(state.view.data());
      for (std::int64_t i = 0; i < state.view.elements(); ++i) numbers[i] = function(numbers[i], 0);
    }
  }

  std::vector<std::vector<float>> values_, gradients_;
  std::vector<kolo::Parameter> list_;
  std::optional<kolo::ShardedOptimizer<kolo::AdamW>> sharded_;
  std::optional<kolo::AdamW> alone_;
  std::int64_t step_ = 0;
};

void run(const std::string& path, int descriptor, bool once) {
  tell(descriptor, "rank " + std::to_string(::getpid()));
  Job job(kolo::size() != 2);
  struct stat status {};
  const bool is_there = ::stat(path.c_str(), &status) == 0;
  if (kolo::allreduce(is_there, kolo::ReduceOp::max)) job.load(path);
  if (kolo::rank() == 0) tell(descriptor, "loaded " + std::to_string(job.step()));
  kolo::CheckpointWriter writer;
  do {
    job.save(path, writer);
    if (kolo::rank() == 0) tell(descriptor, "saved " + std::to_string(job.step()));
  } while (!once);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  try {
    kolo::run_forked(std::atoi(argv[2]),
                     [&] { run(argv[1], std::atoi(argv[3]), argc > 4 && std::string_view(argv[4]) == "--once"); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "saving_job: %s\n", error.what());
    return 1;
  }
}
