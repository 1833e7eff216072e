// SPDX-License-Identifier: Apache-2.0
//
// The example's checkpoints: written whole or not at all, read whole or not at all.
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "examples/train_digits/checkpoint.hpp"

namespace train_digits {
namespace {

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() : folder_(testing::TempDir() + "kolo-checkpoint-" + std::to_string(::getpid())) {
    std::filesystem::create_directory(folder_);
  }
  ~Checkpoint() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name = "model") const { return folder_ + "/" + name; }
  [[nodiscard]] std::size_t files() const {
    const std::filesystem::directory_iterator begin(folder_);
    return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
  }

  std::vector<float> weights_{1.5F, -2.5F, 3.5F, 4.5F};
  std::vector<double> moments_{0.1, 0.2};
  std::int64_t epoch_ = 7;

  std::vector<kolo::NamedView> tensors() {
    return {{"epoch", kolo::view(&epoch_, kolo::Shape{})},
            {"weights", kolo::view(weights_.data(), kolo::Shape{2, 2})},
            {"moments", kolo::view(moments_)}};
  }

 private:
  std::string folder_;
};

template <class Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

TEST_F(Checkpoint, GivesBackWhatWasSaved) {
  save_checkpoint(path(), tensors());
  weights_ = {0, 0, 0, 0};
  moments_ = {0, 0};
  epoch_ = 0;
  load_checkpoint(path(), tensors());
  EXPECT_EQ(weights_, (std::vector<float>{1.5F, -2.5F, 3.5F, 4.5F}));
  EXPECT_EQ(moments_, (std::vector<double>{0.1, 0.2}));
  EXPECT_EQ(epoch_, 7);
  EXPECT_EQ(files(), 1U) << "nothing temporary is left";
}

TEST_F(Checkpoint, AWriteThatFailsLeavesTheOldOne) {
  save_checkpoint(path(), tensors());
  std::filesystem::create_directory(path("folder"));
  epoch_ = 8;
  EXPECT_NE(refusal([&] { save_checkpoint(path("folder"), tensors()); }).find("rename: Is a directory"),
            std::string::npos);
  EXPECT_EQ(files(), 2U) << "nothing temporary is left";
  EXPECT_NE(refusal([&] { save_checkpoint(path("no-such/model"), tensors()); }).find("open: No such file"),
            std::string::npos);
  load_checkpoint(path(), tensors());
  EXPECT_EQ(epoch_, 7);
}

// The disk is full in the middle of the file, as far as the writer can tell.
TEST_F(Checkpoint, AFileCutShortIsNotKept) {
  save_checkpoint(path(), tensors());
  epoch_ = 8;
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &usual), 0);
  const rlimit few{20, usual.rlim_max};
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
  const std::string text = refusal([&] { save_checkpoint(path(), tensors()); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &usual), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(text.find("write: File too large"), std::string::npos) << text;
  EXPECT_EQ(files(), 1U) << "nothing temporary is left";
  load_checkpoint(path(), tensors());
  EXPECT_EQ(epoch_, 7);
}

TEST_F(Checkpoint, EveryDamageIsNoticedAndNothingIsTouched) {
  const std::string good = encode(tensors());
  const std::vector<float> before = weights_;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_NE(refusal([&] { decode(bad, tensors()); }), "nothing") << "byte " << i;
    EXPECT_NE(refusal([&] { decode(good.substr(0, i), tensors()); }), "nothing") << "cut at " << i;
  }
  EXPECT_NE(refusal([&] { decode(good + "x", tensors()); }), "nothing");
  EXPECT_EQ(weights_, before);
  EXPECT_EQ(refusal([&] { decode(good, tensors()); }), "nothing");
}

TEST_F(Checkpoint, SaysWhatDoesNotFit) {
  save_checkpoint(path(), tensors());
  std::vector<kolo::NamedView> others = tensors();
  others[1].view = kolo::view(weights_);
  epoch_ = 1;
  EXPECT_EQ(refusal([&] { load_checkpoint(path(), others); }),
            path() + ": holds 'weights float32 [2, 2]' where this program has 'weights float32 [4]'");
  EXPECT_EQ(epoch_, 1) << "entries before the one that does not fit are left alone too";
  others.pop_back();
  EXPECT_EQ(refusal([&] { load_checkpoint(path(), others); }),
            path() + ": holds 3 tensors; this program has 2 (another --optimizer?)");
  EXPECT_EQ(refusal([&] { load_checkpoint(path("none"), others); }), path("none") + ": cannot be read");
  std::ofstream(path("text")) << "hello";
  EXPECT_EQ(refusal([&] { load_checkpoint(path("text"), others); }),
            path("text") + ": is not a checkpoint of this program and version ('kolo train_digits checkpoint 1')");
}

}  // namespace
}  // namespace train_digits
