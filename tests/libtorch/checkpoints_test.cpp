// SPDX-License-Identifier: Apache-2.0
//
// What a checkpoint of a LibTorch model holds where ranks differ, and which files are written and read.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <kolo/checkpoint.hpp>
#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

#include "tests/libtorch/ranks.hpp"
#include "tests/optimizer/errors.hpp"

namespace {

namespace kt = kolo::libtorch;
using kolo::test::error_of;
using kolo::test::numbers;
using kolo::test::on_ranks;

class Checkpoints : public testing::Test {
 protected:
  Checkpoints() : folder_("libtorch_checkpoints_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~Checkpoints() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + '/' + name; }

 private:
  std::string folder_;
};

// A checkpoint had the running mean of one rank and the running variance of another.
TEST_F(Checkpoints, RunningMeansAndVariancesAreOfOneRank) {
  on_ranks(3, [&] {
    torch::nn::BatchNorm1d norm(4);
    kt::broadcast_parameters(*norm);
    torch::optim::SGD sgd(norm->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    kt::DistributedOptimizer optimizer(sgd, *norm);
    norm->forward(numbers({5, 4}, kolo::rank(), torch::kFloat)).square().sum().backward();
    optimizer.step();
    const torch::Tensor mean = norm->running_mean.clone(), variance = norm->running_var.clone();
    const torch::Tensor means = kt::allgather(mean.unsqueeze(0)), variances = kt::allgather(variance.unsqueeze(0));
    EXPECT_FALSE(torch::equal(means[0], means[1]));
    kolo::save_checkpoint(path("norm"), kt::views(*norm), optimizer);
    EXPECT_TRUE(torch::equal(norm->running_mean, mean)) << "a save changes nothing";
    kolo::load_checkpoint(path("norm"), kt::views(*norm), optimizer);
    EXPECT_TRUE(torch::equal(norm->running_mean, means[0]));
    EXPECT_TRUE(torch::equal(norm->running_var, variances[0]));
    {
      const torch::NoGradGuard no_grad;
      if (kolo::rank() == 1) norm->bias.add_(1);
    }
    EXPECT_EQ(
        error_of([&] { kolo::save_checkpoint(path("norm"), kt::views(*norm), optimizer); }),
        "mismatch: save_checkpoint: rank 1: \"parameters/bias\" float32 [4] has other values than on rank 0; ranks "
        "must hold the same, of which a checkpoint keeps one: broadcast_parameters and broadcast_optimizer_state "
        "make them equal");
  });
}

// An archive was written as `path.part`, over a file of the user's of that name, and through a link.
TEST_F(Checkpoints, AnArchiveReplacesARegularFileAndNothingElse) {
  std::ofstream(path("model.pt.part")) << "mine";
  std::ofstream(path("victim")) << "mine";
  std::filesystem::create_symlink("victim", path("link"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  on_ranks(2, [&] {
    torch::nn::BatchNorm1d norm(4);
    torch::optim::Adam adam(norm->parameters());
    kt::save_checkpoint(path("model.pt"), *norm, adam, 3);
    kt::save_checkpoint(path("model.pt"), *norm, adam, 4);
    EXPECT_EQ(kt::load_checkpoint(path("model.pt"), *norm, adam), 4);
    const auto refused = [&](const std::string& name, const std::string& kind) {
      EXPECT_EQ(error_of([&] { kt::save_checkpoint(path(name), *norm, adam); }),
                "io: save_checkpoint: rank 0: " + path(name) + ": is " + kind + ", no regular file");
    };
    refused("link", "a symbolic link");
    refused("fifo", "a FIFO");
    EXPECT_EQ(error_of([&] { (void)kt::load_checkpoint(path("fifo"), *norm, adam); }),
              "io: load_checkpoint: rank 0: " + path("fifo") + ": is a FIFO, no regular file");
  });
  for (const char* name : {"model.pt.part", "victim"}) {
    std::ifstream file(path(name));
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "mine") << name;
  }
}

}  // namespace
