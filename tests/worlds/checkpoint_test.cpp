// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints: what one world saved another goes on from, bit for bit, whatever the numbers of ranks and the kinds of
// optimizers; errors are the same on all ranks, and leave the model and the old checkpoint as they were.
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include <kolo/checkpoint.hpp>
#include <kolo/kolo.hpp>
#include <kolo/training.hpp>

#include "errors.hpp"
#include "tests/support/scratch_folder.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::Parameter;
using kolo::Shape;
using kolo::Span;
using kolo::testing::has;
using kolo::testing::run_in;
using kolo::testing::ScratchFolder;
using kolo::testing::sentence_of;
using kolo::testing::worlds;

class CheckpointTest : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name = "step") const { return folder_.path("run/" + name); }
  /// The names in the folder of the checkpoints, and how many there are.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path("run"))) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  const ScratchFolder folder_{"checkpoint"};
};

/// Tensors with more, as many and fewer elements than there are ranks, and one that has more than a block of a hash.
struct Model {
  explicit Model(int seed) {
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{7, 13}, {1}, {200, 3000}, {2, 3}, {0}, {3}, {}}) {
      const auto count = static_cast<std::size_t>(Shape(shape).elements());
      values.emplace_back(count);
      gradients.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) values.back()[i] = number(seed, i);
      list.push_back({"w" + std::to_string(values.size()), kolo::view(values.back().data(), Shape(shape)),
                      kolo::view(gradients.back().data(), Shape(shape))});
    }
    list.insert(list.begin() + 2, {"running mean", kolo::view(buffer), std::nullopt});
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  static float number(int a, std::size_t i) {
    return static_cast<float>(std::sin(1.0 + a * 3.7 + static_cast<double>(i) * 0.37));
  }
  /// Rank 0 alone has gradients, and ranks are summed: so the number of ranks changes nothing.
  void backward(int step) {
    for (std::size_t t = 0; t < gradients.size(); ++t) {
      for (std::size_t i = 0; i < gradients[t].size(); ++i) {
        gradients[t][i] = kolo::rank() == 0 ? number(step + static_cast<int>(t), i) : 0;
      }
    }
    buffer[1] += static_cast<float>(step);
  }

  std::vector<std::vector<float>> values, gradients;
  std::vector<float> buffer{1, 2, 3};
  std::vector<Parameter> list;
};

kolo::AdamW adamw(Span<const Parameter> of) {
  return kolo::AdamW(of, kolo::AdamWOptions().with_learning_rate(0.05).with_weight_decay(0.1));
}

const kolo::DistributedOptimizerOptions kSum = kolo::DistributedOptimizerOptions().with_op(kolo::ReduceOp::sum);

enum class Kind { distributed, sharded, sharded_late };

/// Calls `body` with an optimizer of that kind.
template <class Body>
void with_optimizer(Kind kind, Model& model, const Body& body) {
  if (kind == Kind::distributed) {
    kolo::AdamW local = adamw(model.list);
    kolo::DistributedOptimizer optimizer(local, model.list, kSum);
    body(optimizer);
    return;
  }
  kolo::ShardedOptimizer optimizer(
      model.list, adamw,
      kolo::ShardedOptimizerOptions().with_reduction(kSum).with_gather_late(kind == Kind::sharded_late));
  body(optimizer);
}

template <class Optimizer>
void train(Model& model, Optimizer& optimizer, std::int64_t& step, int steps) {
  for (int i = 0; i < steps; ++i) {
    model.backward(static_cast<int>(step++));
    optimizer.step();
  }
}

/// The values after so many steps without any checkpoint.
std::vector<std::vector<float>> uninterrupted(int steps) {
  std::vector<std::vector<float>> values;
  run_in(1, [&] {
    Model model(1);
    std::int64_t step = 0;
    with_optimizer(Kind::distributed, model, [&](auto& optimizer) { train(model, optimizer, step, steps); });
    values = model.values;
    values.push_back(model.buffer);
  });
  return values;
}

TEST_F(CheckpointTest, AnyNumberOfRanksAndKindOfOptimizerGoesOnFromAnyOther) {
  const std::vector<std::pair<int, Kind>> stages{
      {4, Kind::sharded}, {3, Kind::sharded_late}, {1, Kind::sharded},     {4, Kind::distributed},
      {3, Kind::sharded}, {2, Kind::distributed},  {1, Kind::distributed}, {4, Kind::sharded}};
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const auto wanted = uninterrupted(2 * static_cast<int>(i + 1));
    SCOPED_TRACE("stage " + std::to_string(i));
    run_in(stages[i].first, [&] {
      Model model(i == 0 ? 1 : 99);
      kolo::LossScaler scaler;
      std::int64_t step = 0;
      double learned = 0.5;
      const auto options =
          kolo::CheckpointOptions().with_loss_scaler(scaler).with_value("step", step).with_value("learned", learned);
      with_optimizer(stages[i].second, model, [&](auto& optimizer) {
        if (i > 0) {
          kolo::load_checkpoint(path(), model.list, optimizer, options);
          EXPECT_EQ(scaler.skipped(), static_cast<int>(i));
          EXPECT_EQ(step, static_cast<int>(2 * i));
          EXPECT_EQ(learned, 0.5 + static_cast<double>(i - 1));
          learned += 1;
        }
        scaler.update(true);
        train(model, optimizer, step, 2);
        kolo::save_checkpoint(path(), model.list, optimizer, options);
      });
      EXPECT_EQ(model.buffer, wanted.back());
      for (std::size_t t = 0; t < model.values.size(); ++t) EXPECT_EQ(model.values[t], wanted[t]) << t;
    });
    EXPECT_EQ(names(), std::vector<std::string>{"step"});
  }
}

TEST_F(CheckpointTest, AnOptimizerAloneIsSavedUnderTheSameNames) {
  run_in(2, [&] {
    Model model(1), other(2);
    kolo::AdamW local = adamw(model.list);
    model.gradients[0][5] = 3;
    local.step();
    kolo::save_checkpoint(path(), model.list, local);
    with_optimizer(Kind::sharded, other, [&](auto& optimizer) {
      kolo::load_checkpoint(path(), other.list, optimizer);
      EXPECT_EQ(other.values, model.values);
    });
    kolo::Sgd sgd(other.list);
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { kolo::load_checkpoint(path(), other.list, sgd); }),
              "load_checkpoint: rank 0: " + path() +
                  ": has no \"optimizer/momentum\" float64 [], which this program has");
  });
}

/// Everything that a safetensors file says, after checking it strictly.
struct Part {
  std::map<std::string, nlohmann::json> tensors;
  std::string data;
  std::size_t header_bytes = 0;

  explicit Part(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    header_bytes = 8 + length;
    data = bytes.substr(header_bytes);
    EXPECT_EQ(length % 8, 0U);
    EXPECT_EQ(bytes.at(8), '{');
    const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, length));
    const std::map<std::string, std::size_t> widths{{"F32", 4}, {"F64", 8}, {"I64", 8}};
    std::map<std::size_t, std::size_t> ranges;
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__") {
        for (const auto& value : tensor) EXPECT_TRUE(value.is_string());
        continue;
      }
      std::size_t size = widths.at(tensor.at("dtype"));
      EXPECT_EQ(tensor.at("data_offsets").at(0).get<std::size_t>() % size, 0U) << "aligned";
      for (const std::size_t extent : tensor.at("shape")) size *= extent;
      EXPECT_EQ(tensor.at("data_offsets").at(1).get<std::size_t>() - tensor.at("data_offsets").at(0).get<std::size_t>(),
                size);
      if (size > 0) ranges.emplace(tensor.at("data_offsets").at(0), tensor.at("data_offsets").at(1));
      tensors.emplace(name, tensor);
    }
    std::size_t next = 0;  // no gaps
    for (const auto& [begin, end] : ranges) {
      EXPECT_EQ(begin, next);
      next = end;
    }
    EXPECT_EQ(next, data.size());
  }
};

TEST_F(CheckpointTest, FilesAreSafetensorsAndTheIndexSaysWhereEachElementIs) {
  run_in(3, [&] {
    Model model(1);
    std::int64_t step = 0;
    with_optimizer(Kind::sharded, model, [&](auto& optimizer) {
      train(model, optimizer, step, 1);
      kolo::save_checkpoint(path(), model.list, optimizer, kolo::CheckpointOptions().with_value("step", step));
    });
    if (kolo::rank() != 0) return;
    std::ifstream file(path() + "/index.json");
    const nlohmann::json index = nlohmann::json::parse(file);
    EXPECT_EQ(index.at("ranks"), 3);
    EXPECT_EQ(index.at("numbers").at("program/step"), 1);
    EXPECT_EQ(index.at("files").size(), 3U);
    std::map<std::string, Part> parts;
    for (const auto& each : index.at("files")) {
      const std::string name = each.at("name");
      parts.emplace(name, path() + "/" + name);
      EXPECT_EQ(each.at("header_bytes"), parts.at(name).header_bytes);
    }
    std::map<std::string, const Parameter*> found;
    for (const Parameter& parameter : model.list) found.emplace("parameters/" + parameter.name, &parameter);
    std::size_t states = 0;
    for (const auto& tensor : index.at("tensors")) {
      const std::string name = tensor.at("name");
      std::size_t elements = 0;
      for (const auto& piece : tensor.at("pieces")) {
        const Part& part = parts.at(piece.at("file"));
        EXPECT_EQ(piece.at("offset"),
                  part.tensors.at(name).at("data_offsets").at(0).get<std::size_t>() + part.header_bytes);
        elements += piece.at("count").get<std::size_t>();
      }
      if (name.rfind("optimizer/mean/", 0) == 0) ++states;
      if (name == "optimizer/mean/w3") {
        EXPECT_EQ(tensor.at("pieces").size(), 3U);
        EXPECT_EQ(tensor.at("shape"), (std::vector<int>{200, 3000}));
        EXPECT_EQ(elements, 600000U);
      }
      if (found.count(name) == 0) continue;
      EXPECT_EQ(tensor.at("pieces").size(), 1U) << "what all have is written once";
      const auto& view = found.at(name)->value;
      const Part& part = parts.at(tensor.at("pieces").at(0).at("file"));
      EXPECT_EQ(part.tensors.at(name).at("shape"), tensor.at("shape"));
      EXPECT_EQ(
          part.data.substr(part.tensors.at(name).at("data_offsets").at(0), static_cast<std::size_t>(view.bytes())),
          std::string(static_cast<const char*>(view.data()), static_cast<std::size_t>(view.bytes())))
          << name;
      found.erase(name);
    }
    EXPECT_TRUE(found.empty());
    EXPECT_EQ(states, 6U) << "one of each parameter that has elements";
  });
}

TEST_F(CheckpointTest, ADifferenceIsNamedOnEveryRankAndNothingIsLoaded) {
  run_in(3, [&] {
    std::vector<float> a(6, 1), b(2, 2), c(6, 3);
    std::vector<double> wide(2, 4);
    std::int64_t step = 7;
    kolo::Sgd sgd({});
    const std::vector<Parameter> saved{{"a", kolo::view(a.data(), {2, 3})}, {"b", kolo::view(b)}};
    kolo::save_checkpoint(path(), saved, sgd, kolo::CheckpointOptions().with_value("step", step));
    a.assign(6, 10), b.assign(2, 20), step = 70;
    const auto error = [&](std::vector<Parameter> list) {
      return sentence_of(ErrorCode::mismatch, [&] {
        kolo::load_checkpoint(path(), list, sgd, kolo::CheckpointOptions().with_value("step", step));
      });
    };
    const std::string begin = "load_checkpoint: rank 0: " + path() + ": has ";
    EXPECT_EQ(error({{"a", kolo::view(c.data(), {3, 2})}, {"b", kolo::view(wide)}}),
              begin + "\"parameters/a\" float32 [2, 3], this program \"parameters/a\" float32 [3, 2]");
    EXPECT_EQ(error({{"a", kolo::view(a.data(), {2, 3})}, {"b", kolo::view(wide)}}),
              begin + "\"parameters/b\" float32 [2], this program \"parameters/b\" float64 [2]");
    EXPECT_EQ(error({{"a", kolo::view(a.data(), {2, 3})}, {"b", kolo::view(b)}, {"c", kolo::view(c)}}),
              begin + "no \"parameters/c\" float32 [6], which this program has");
    EXPECT_EQ(error({{"a", kolo::view(a.data(), {2, 3})}}),
              begin + "\"parameters/b\" float32 [2], which this program has not");
    EXPECT_EQ(a, std::vector<float>(6, 10));
    EXPECT_EQ(b, std::vector<float>(2, 20));
    EXPECT_EQ(step, 70);
    // One rank's list differs.
    std::vector<Parameter> list{{"a", kolo::view(a.data(), {2, 3})}, {"b", kolo::view(b)}};
    if (kolo::rank() == 2) list[1] = {"b", kolo::view(wide)};
    EXPECT_EQ(error(list), "load_checkpoint: rank 2: " + path() +
                               ": has \"parameters/b\" float32 [2], this program \"parameters/b\" float64 [2]");
    EXPECT_EQ(a, std::vector<float>(6, 10));
    kolo::load_checkpoint(path(), saved, sgd, kolo::CheckpointOptions().with_value("step", step));
    EXPECT_EQ(a, std::vector<float>(6, 1));
    EXPECT_EQ(step, 7);
  });
}

TEST_F(CheckpointTest, RanksThatWouldSaveDifferentThingsAreToldSo) {
  run_in(2, [&] {
    std::vector<float> a(6, 1);
    std::int64_t step = kolo::rank();
    kolo::Sgd sgd({});
    const std::vector<Parameter> list{{"a", kolo::view(a)}};
    const auto save = [&](const std::string& to, const std::vector<Parameter>& what, ErrorCode code) {
      return sentence_of(
          code, [&] { kolo::save_checkpoint(to, what, sgd, kolo::CheckpointOptions().with_value("step", step)); });
    };
    EXPECT_TRUE(
        has(save(path(), list, ErrorCode::mismatch), {"save_checkpoint", "program/step int64 [] = 0x0000000000000000",
                                                      "program/step int64 [] = 0x0000000000000001"}));
    step = 1;
    EXPECT_TRUE(has(save(kolo::rank() == 0 ? path() : path("other"), list, ErrorCode::mismatch), {"path ", "other"}));
    EXPECT_EQ(save(path(), {{"a", kolo::view(a)}, {"a", kolo::view(a)}}, ErrorCode::invalid_argument),
              "save_checkpoint: rank 0: two tensors are named \"parameters/a\"; names must differ");
    EXPECT_EQ(save(path(), {{"", kolo::view(a)}}, ErrorCode::invalid_argument),
              "save_checkpoint: rank 0: \"parameters/\" has no name behind the '/'; every tensor needs its own");
    EXPECT_EQ(save(path(), {{"\xFF", kolo::view(a)}}, ErrorCode::invalid_argument),
              "save_checkpoint: rank 0: \"parameters/\\xff\" is not UTF-8; names must be");
    EXPECT_EQ(save(path(), {{kolo::rank() == 1 ? "\xFF" : "a", kolo::view(a)}}, ErrorCode::invalid_argument),
              "save_checkpoint: rank 1: \"parameters/\\xff\" is not UTF-8; names must be");
    EXPECT_EQ(save(path() + "/..", list, ErrorCode::invalid_argument),
              "save_checkpoint: rank 0: \"" + path() + "/..\" is no name for a folder");
  });
}

TEST_F(CheckpointTest, AFlippedByteIsNamed) {
  run_in(2, [&] {
    Model model(1), other(2);
    std::int64_t step = 0;
    with_optimizer(Kind::sharded, model, [&](auto& optimizer) {
      train(model, optimizer, step, 1);
      kolo::save_checkpoint(path(), model.list, optimizer);
    });
    with_optimizer(Kind::sharded, other, [&](auto& optimizer) {
      for (const char* name : {"part-0.safetensors", "part-1.safetensors", "index.json"}) {
        const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path() + '/' + name));
        for (int i = 0; i < 12; ++i) {
          const std::int64_t at = i == 11 ? size - 1 : size / 11 * i;
          const auto flip = [&] {
            kolo::barrier();
            if (kolo::rank() == 0) {
              std::fstream file(path() + '/' + name, std::ios::in | std::ios::out | std::ios::binary);
              file.seekg(at);
              const auto byte = static_cast<char>(file.get() ^ 0x10);
              file.seekp(at);
              file.put(byte);
            }
            kolo::barrier();
          };
          flip();
          const std::string sentence =
              sentence_of(ErrorCode::io, [&] { kolo::load_checkpoint(path(), other.list, optimizer); });
          EXPECT_TRUE(has(sentence, {path().c_str(), name, "damaged"})) << at;
          if (name[0] == 'p' && i > 0) {
            EXPECT_TRUE(has(sentence, {"is damaged: a byte from ", " is not what was written"})) << at;
          }
          flip();
        }
      }
      EXPECT_EQ(other.values, Model(2).values) << "nothing was loaded";
      kolo::load_checkpoint(path(), other.list, optimizer);
      EXPECT_EQ(other.values, model.values);
    });
  });
}

TEST_F(CheckpointTest, FilesThatAreMissingOrCutOffAreNamed) {
  run_in(2, [&] {
    std::vector<float> a(600, 1), b(500, 2), gradient(600);
    kolo::Sgd sgd({});
    const std::vector<Parameter> list{{"a", kolo::view(a), kolo::view(gradient)},
                                      {"b", kolo::view(b), kolo::view(gradient.data(), b.size())}};
    const auto error = [&] { return sentence_of(ErrorCode::io, [&] { kolo::load_checkpoint(path(), list, sgd); }); };
    EXPECT_EQ(error(), "load_checkpoint: rank 0: " + path() + "/index.json: open: No such file or directory");
    kolo::save_checkpoint(path(), list, sgd);
    const auto once = [](const std::function<void()>& body) {
      kolo::barrier();
      if (kolo::rank() == 0) body();
      kolo::barrier();
    };
    const std::string part = path() + "/part-1.safetensors";
    const auto size = std::filesystem::file_size(part);
    kolo::barrier();
    once([&] { std::filesystem::resize_file(part, size - 1); });
    EXPECT_EQ(error(), "load_checkpoint: rank 0: " + part + ": has " + std::to_string(size - 1) +
                           " bytes; the index says " + std::to_string(size));
    once([&] { std::filesystem::remove(part); });
    EXPECT_EQ(error(), "load_checkpoint: rank 0: " + part + ": open: No such file or directory");
  });
}

TEST_F(CheckpointTest, AFullDiskIsAnErrorOnEveryRankAndTheOldCheckpointStays) {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  run_in(2, [&] {
    std::vector<float> large(1000000, 1), small(10, 2);
    kolo::Sgd sgd({});
    const std::vector<Parameter> list{{"large", kolo::view(large)}, {"small", kolo::view(small)}};
    kolo::save_checkpoint(path(), list, sgd);
    small.assign(10, 3);
    const auto limit = [](rlim_t bytes, rlim_t most) {
      kolo::barrier();
      const rlimit limits{bytes, most};
      if (kolo::rank() == 0) {
        EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limits), 0);
      }
      kolo::barrier();
    };
    limit(100000, old.rlim_max);
    const std::string sentence = sentence_of(ErrorCode::io, [&] { kolo::save_checkpoint(path(), list, sgd); });
    limit(old.rlim_cur, old.rlim_max);
    EXPECT_TRUE(has(sentence, {"save_checkpoint: rank 0: ", "/part-0.safetensors: write: File too large"}));
    if (kolo::rank() == 0) {
      EXPECT_EQ(names(), std::vector<std::string>{"step"});
    }
    kolo::load_checkpoint(path(), list, sgd);
    EXPECT_EQ(small, std::vector<float>(10, 2));
    kolo::save_checkpoint(path(), list, sgd);
  });
  static_cast<void>(std::signal(SIGXFSZ, before));
}

TEST_F(CheckpointTest, WhatIsNoCheckpointIsNotReplaced) {
  std::filesystem::create_directories(path() + "/mine");
  std::filesystem::create_directories(path("empty"));
  std::ofstream(path("file")) << "a file";
  run_in(2, [&] {
    std::vector<float> a(6, 1);
    kolo::Sgd sgd({});
    const std::vector<Parameter> list{{"a", kolo::view(a)}};
    const auto error = [&](const std::string& to) {
      return sentence_of(ErrorCode::io, [&] { kolo::save_checkpoint(to, list, sgd); });
    };
    EXPECT_EQ(error(path()), "save_checkpoint: rank 0: " + path() + ": is there already, and is not replaced: " +
                                 path() + "/index.json: open: No such file or directory");
    EXPECT_EQ(error(path("file")),
              "save_checkpoint: rank 0: " + path("file") + ": is there already, and is not replaced: it is no folder");
    EXPECT_EQ(error(path("file") + "/step"), "save_checkpoint: rank 0: " + path("file") + ": mkdir: Not a directory");
    kolo::save_checkpoint(path("empty") + "/", list, sgd);
    kolo::load_checkpoint(path("empty"), list, sgd);
  });
  EXPECT_EQ(names(), (std::vector<std::string>{"empty", "file", "step"}));
}

/// A save of one value in one process, and its error.
std::string error_of_a_save(const std::string& path) {
  std::string sentence;
  run_in(1, [&] {
    std::vector<float> a(6, 1);
    kolo::Sgd sgd({});
    const std::vector<Parameter> list{{"a", kolo::view(a)}};
    try {
      kolo::save_checkpoint(path, list, sgd);
    } catch (const kolo::Error& error) {
      sentence = error.status().message();
    }
  });
  return sentence;
}

// A folder of the user's own, which holds a file of that name, was deleted.
TEST_F(CheckpointTest, AFolderWithAnIndexOfSomethingElseIsNotReplaced) {
  std::filesystem::create_directories(path());
  std::ofstream(path() + "/index.json") << R"({"pages": ["mine"]})";
  std::ofstream(path() + "/thesis.tex") << "mine";
  EXPECT_EQ(error_of_a_save(path()), "save_checkpoint: " + path() + ": is there already, and is not replaced: " +
                                         path() + "/index.json: is no index of a checkpoint of Kolo's, or is damaged");
  EXPECT_TRUE(std::filesystem::exists(path() + "/thesis.tex"));
  EXPECT_EQ(names(), std::vector<std::string>{"step"});
}

// A user's own file in a checkpoint's folder was deleted by the next save.
TEST_F(CheckpointTest, AFileOfTheUsersInACheckpointIsKept) {
  EXPECT_EQ(error_of_a_save(path()), "");
  for (const char* name : {"notes.txt", "part-7.safetensors", "folder/notes.txt"}) {
    const std::string file = path() + '/' + name;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file) << "mine";
    const std::string top = std::filesystem::path(name).begin()->string();
    EXPECT_EQ(error_of_a_save(path()), "save_checkpoint: " + path() + ": is not replaced: it holds \"" + top +
                                           "\", which is no file of the checkpoint that is there");
    EXPECT_TRUE(std::filesystem::exists(file));
    std::filesystem::remove_all(path() + '/' + top);
  }
  EXPECT_EQ(error_of_a_save(path()), "");
}

TEST_F(CheckpointTest, ALinkToACheckpointIsNotReplaced) {
  EXPECT_EQ(error_of_a_save(path()), "");
  std::filesystem::create_symlink("step", path("latest"));
  for (const char* end : {"", "/"}) {
    EXPECT_EQ(error_of_a_save(path("latest") + end),
              "save_checkpoint: " + path("latest") +
                  ": is not replaced: it is a symbolic link; save under the path that it leads to, or remove the link");
  }
  EXPECT_TRUE(std::filesystem::is_symlink(path("latest")));
}

// What somebody put into the folder of a killed save stays.
TEST_F(CheckpointTest, WhatNoSaveHasWrittenIsNeverRemoved) {
  const std::string dead = path(".kolo-saving-0123456789abcdef");
  std::filesystem::create_directories(dead);
  std::ofstream(dead + "/part-0.safetensors") << "half";
  std::ofstream(dead + "/notes.txt") << "mine";
  std::ofstream(dead + ".lock").flush();
  EXPECT_EQ(error_of_a_save(path()), "");
  EXPECT_TRUE(std::filesystem::exists(dead + "/notes.txt"));
  EXPECT_FALSE(std::filesystem::exists(dead + "/part-0.safetensors"));
}

// Each rank may compute buffers from its own batches: running means, of which a checkpoint took one from one rank and
// the next from another.
TEST_F(CheckpointTest, BuffersComeWholeFromRank0) {
  run_in(3, [&] {
    const auto own = static_cast<float>(kolo::rank());
    std::vector<float> mean(3000, own), variance(3000, 10 + own), count{20 + own}, w(5, 7), gradient(5);
    std::int64_t batches = kolo::rank();
    kolo::Sgd sgd({});
    const std::vector<Parameter> list{{"mean", kolo::view(mean)},
                                      {"variance", kolo::view(variance)},
                                      {"count", kolo::view(count)},
                                      {"batches", kolo::view(&batches, Shape{})},
                                      {"w", kolo::view(w), kolo::view(gradient)}};
    kolo::save_checkpoint(path(), list, sgd);
    EXPECT_EQ(mean, std::vector<float>(3000, own)) << "a save changes nothing";
    kolo::load_checkpoint(path(), list, sgd);
    EXPECT_EQ(mean, std::vector<float>(3000, 0));
    EXPECT_EQ(variance, std::vector<float>(3000, 10));
    EXPECT_EQ(count, std::vector<float>{20});
    EXPECT_EQ(batches, 0);
  });
}

TEST_F(CheckpointTest, WhatMustBeAlikeAndIsNotIsNamedAndNotMixed) {
  run_in(3, [&] {
    std::vector<float> w(4, 1), v(3, 2), gradient(4);
    std::vector<double> value(2, 3);
    const std::vector<Parameter> list{{"w", kolo::view(w), kolo::view(gradient)},
                                      {"v", kolo::view(v), kolo::view(gradient.data(), 3)}};
    kolo::Sgd sgd(list, kolo::SgdOptions().with_momentum(0.5));
    const auto options = kolo::CheckpointOptions().with_values({{"value", kolo::view(value)}});
    const auto error = [&] {
      return sentence_of(ErrorCode::mismatch, [&] { kolo::save_checkpoint(path(), list, sgd, options); });
    };
    const std::string end =
        " has other values than on rank 0; ranks must hold the same, of which a checkpoint keeps one: "
        "broadcast_parameters and broadcast_optimizer_state make them equal";
    if (kolo::rank() == 2) v[1] = 0;
    EXPECT_EQ(error(), "save_checkpoint: rank 2: \"parameters/v\" float32 [3]" + end);
    v[1] = 2;
    if (kolo::rank() == 1) gradient[0] = 1;
    sgd.step();
    kolo::broadcast_parameters(list);
    EXPECT_EQ(error(), "save_checkpoint: rank 1: \"optimizer/momentum/w\" float32 [4]" + end);
    kolo::broadcast_optimizer_state(sgd);
    if (kolo::rank() == 1) value[1] = 0;
    EXPECT_EQ(error(), "save_checkpoint: rank 1: \"program/value\" float64 [2]" + end);
    EXPECT_FALSE(std::filesystem::exists(path()));
    value[1] = 3;
    kolo::save_checkpoint(path(), list, sgd, options);
  });
}

/// Counts the steps of each parameter, as LibTorch's optimizers do.
struct Counting {
  explicit Counting(Span<const Parameter> of) {
    for (const Parameter& piece : of) counts.emplace_back(piece.name, 0);
  }
  void step() {
    for (auto& [name, count] : counts) ++count;
  }
  std::vector<kolo::NamedView> state() {
    std::vector<kolo::NamedView> views;
    for (auto& [name, count] : counts) views.push_back({"step/" + name, kolo::view(&count, Shape{})});
    return views;
  }
  std::vector<std::pair<std::string, std::int64_t>> counts;
};

// Some ranks have no piece of a parameter with few elements, and so no number of it.
TEST_F(CheckpointTest, ANumberOfEachParameterIsSavedByAnyKindOfOptimizer) {
  const auto sharded = [](const Model& model) {
    return kolo::ShardedOptimizer(
        model.list, [](Span<const Parameter> mine) { return Counting(mine); },
        kolo::ShardedOptimizerOptions().with_reduction(kSum));
  };
  run_in(4, [&] {
    Model model(1);
    auto optimizer = sharded(model);
    for (auto& [name, count] : optimizer.optimizer().counts) count = static_cast<std::int64_t>(name.back());
    kolo::save_checkpoint(path(), model.list, optimizer);
    if (kolo::rank() == 1) optimizer.optimizer().counts[0].second = 0;
    EXPECT_TRUE(has(sentence_of(ErrorCode::mismatch, [&] { kolo::save_checkpoint(path(), model.list, optimizer); }),
                    {"save_checkpoint: rank 1: \"optimizer/step/w1\" int64 [] has other values than on rank 0"}));
  });
  const auto check = [](const Counting& counting) {
    for (const auto& [name, count] : counting.counts) EXPECT_EQ(count, name.back()) << name;
  };
  for (const int ranks : {1, 3}) {
    run_in(ranks, [&] {
      Model model(2);
      auto optimizer = sharded(model);
      kolo::load_checkpoint(path(), model.list, optimizer);
      check(optimizer.optimizer());
      std::vector<Parameter> trained;
      for (const Parameter& one : model.list) {
        if (one.gradient && one.value.elements() > 0) trained.push_back(one);
      }
      Counting alone(trained);
      kolo::load_checkpoint(path(), model.list, alone);
      check(alone);
    });
  }
}

// It gave each rank the piece of rank 0's.
TEST_F(CheckpointTest, AStateInPiecesIsNotBroadcast) {
  run_in(2, [] {
    std::vector<float> value(1), gradient(1);  // rank 1 has none of it
    const std::vector<Parameter> list{{"w", kolo::view(value), kolo::view(gradient)}};
    kolo::ShardedOptimizer optimizer(list, adamw);
    EXPECT_EQ(
        sentence_of(ErrorCode::unsupported, [&] { kolo::broadcast_optimizer_state(optimizer); }),
        "broadcast_optimizer_state: the state lies in pieces, of which each rank has its own; save_checkpoint and "
        "load_checkpoint take such a state from one run to another");
  });
}

TEST_F(CheckpointTest, OnlyRegularFilesAreRead) {
  EXPECT_EQ(error_of_a_save(path()), "");
  run_in(2, [&] {
    std::vector<float> a(6);
    kolo::Sgd sgd({});
    const std::vector<Parameter> list{{"a", kolo::view(a)}};
    const auto error = [&] { return sentence_of(ErrorCode::io, [&] { kolo::load_checkpoint(path(), list, sgd); }); };
    const auto with = [&](const std::string& file, const std::function<void(const std::string&)>& make) {
      kolo::barrier();
      if (kolo::rank() == 0) {
        std::filesystem::rename(file, file + ".kept");
        make(file);
      }
      kolo::barrier();
      const std::string sentence = error();
      kolo::barrier();
      if (kolo::rank() == 0) std::filesystem::rename(file + ".kept", file);
      kolo::barrier();
      return sentence;
    };
    const auto fifo = [](const std::string& file) { EXPECT_EQ(::mkfifo(file.c_str(), 0600), 0); };
    for (const char* name : {"/index.json", "/part-0.safetensors"}) {
      EXPECT_EQ(with(path() + name, fifo),
                "load_checkpoint: rank 0: " + path() + name + ": is a FIFO, no regular file");
    }
    // 3 GiB without a block on the disk: no memory is taken for it.
    const auto large = [](const std::string& beginning) {
      return [beginning](const std::string& file) {
        std::ofstream(file) << beginning;
        std::filesystem::resize_file(file, std::uintmax_t{3} << 30U);
      };
    };
    const std::string index = path() + "/index.json";
    EXPECT_EQ(with(index, large("")),
              "load_checkpoint: rank 0: " + index + ": is no index of a checkpoint of Kolo's, or is damaged");
    EXPECT_EQ(with(index, large("{\"kolo_checkpoint\":2,")),
              "load_checkpoint: rank 0: " + index + ": has 3221225472 bytes; at most 536870912 are expected");
    EXPECT_EQ(
        with(index, large("{\"kolo_checkpoint\":1,")),
        "load_checkpoint: rank 0: " + index +
            ": is of format 1, which builds before Kolo 0.2 wrote; this one reads format 2. Train on from an older "
            "state, or anew");
    kolo::load_checkpoint(path(), list, sgd);
    EXPECT_EQ(a, std::vector<float>(6, 1));
  });
}

TEST_F(CheckpointTest, WhatKilledSavesHaveLeftIsRemovedByTheNextOne) {
  const std::string dead = path(".kolo-saving-0123456789abcdef"), alive = path(".kolo-saving-fedcba9876543210");
  for (const std::string& each : {dead, alive}) {
    std::filesystem::create_directories(each);
    std::ofstream(each + "/part-0.safetensors") << "half";
    std::ofstream(each + ".lock").flush();
  }
  const int lock = ::open((alive + ".lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  const auto save = [&] {
    run_in(1, [&] {
      kolo::Sgd sgd({});
      kolo::save_checkpoint(path(), {}, sgd);
    });
  };
  save();
  EXPECT_EQ(names(),
            (std::vector<std::string>{".kolo-saving-fedcba9876543210", ".kolo-saving-fedcba9876543210.lock", "step"}));
  ::close(lock);
  save();
  EXPECT_EQ(names(), std::vector<std::string>{"step"});
}

TEST_F(CheckpointTest, AWriterWritesWhatWasThereWhileTheProgramGoesOn) {
  run_in(4, [&] {
    Model model(1), other(2);
    kolo::CheckpointWriter writer;
    writer.wait();
    EXPECT_FALSE(writer.is_writing());
    std::int64_t step = 0;
    std::vector<std::vector<float>> saved;
    with_optimizer(Kind::sharded, model, [&](auto& optimizer) {
      for (int i = 0; i < 5; ++i) {
        train(model, optimizer, step, 1);
        writer.save(path("step-" + std::to_string(i)), model.list, optimizer,
                    kolo::CheckpointOptions().with_value("step", step));
        saved = model.values;
        for (int k = 0; k < 20; ++k) {  // calls without a name, and objects, beside the writer's own
          EXPECT_EQ(kolo::allreduce(k, kolo::ReduceOp::sum), 4 * k);
          EXPECT_EQ(kolo::broadcast_object(k + kolo::rank(), 1), k + 1);
        }
      }
      train(model, optimizer, step, 1);
      writer.wait();
    });
    with_optimizer(Kind::distributed, other, [&](auto& optimizer) {
      kolo::load_checkpoint(path("step-4"), other.list, optimizer, kolo::CheckpointOptions().with_value("step", step));
      EXPECT_EQ(step, 5);
      EXPECT_EQ(other.values, saved);
      train(other, optimizer, step, 1);
    });
    EXPECT_EQ(other.values, model.values);
  });
  EXPECT_EQ(names().size(), 5U);
}

TEST_F(CheckpointTest, AWriterTellsItsErrorOnce) {
  std::filesystem::create_directories(path() + "/mine");
  run_in(2, [&] {
    std::vector<float> a(6, 1);
    kolo::Sgd sgd({});
    const std::vector<Parameter> list{{"a", kolo::view(a)}};
    kolo::CheckpointWriter writer;
    writer.save(path(), list, sgd);
    const std::string sentence = "save_checkpoint: rank 0: " + path() +
                                 ": is there already, and is not replaced: " + path() +
                                 "/index.json: open: No such file or directory";
    EXPECT_EQ(sentence_of(ErrorCode::io, [&] { writer.wait(); }), sentence);
    writer.wait();
    writer.save(path(), list, sgd);
    EXPECT_EQ(sentence_of(ErrorCode::io, [&] { writer.save(path("good"), list, sgd); }), sentence);
    writer.save(path("good"), list, sgd);
  });
  EXPECT_EQ(names(), (std::vector<std::string>{"good", "step"}));
}

TEST_F(CheckpointTest, AShardedStateIsSavedByItsOwnGroup) {
  run_in(4, [&] {
    Model model(1);
    const kolo::Group pair = kolo::world().split(kolo::rank() / 2);
    kolo::ShardedOptimizer optimizer(pair, model.list, adamw, kolo::ShardedOptimizerOptions().with_reduction(kSum));
    EXPECT_TRUE(has(sentence_of(ErrorCode::mismatch, [&] { kolo::save_checkpoint(path(), model.list, optimizer); }),
                    {"save_checkpoint: rank 0: has element 0 of \"optimizer/mean/w1\" [7, 13] more than once"}));
    const std::string own = path("pair-" + std::to_string(kolo::rank() / 2));
    kolo::save_checkpoint(pair, own, model.list, optimizer);
    kolo::load_checkpoint(pair, own, model.list, optimizer);
  });
  EXPECT_EQ(names(), (std::vector<std::string>{"pair-0", "pair-1"}));
}

}  // namespace
