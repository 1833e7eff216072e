// SPDX-License-Identifier: Apache-2.0
#include "libtorch/optimizer_state.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <exception>
#include <sstream>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <kolo/error.hpp>
#include <kolo/libtorch.hpp>
#include <kolo/parameters.hpp>

#include "base/files.hpp"
#include "libtorch/tensors.hpp"

namespace kolo::libtorch {
namespace {

using torch::optim::Optimizer;

std::vector<std::string> entries_of(const Optimizer& optimizer, int root) {
  std::vector<std::string> entries{"root " + std::to_string(root), std::string("class ") + typeid(optimizer).name()};
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& parameters = groups[i].params();
    for (std::size_t j = 0; j < parameters.size(); ++j) {
      entries.push_back("group " + std::to_string(i) + " parameter " + std::to_string(j) + ' ' +
                        describe(parameters[j]));
    }
  }
  return entries;
}

// Where an optimizer's tensors are to lie.
torch::Device device_of(const Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (!group.params().empty()) {
      return group.params().front().device();
    }
  }
  return torch::kCPU;
}

void write_file(const std::string& path, torch::serialize::OutputArchive& archive) {
  base::Replacement file(path);
  std::exception_ptr first;  // LibTorch's writer goes on writing while it is unwound
  archive.save_to([&](const void* data, std::size_t bytes) {
    try {
      if (!first) file.write({static_cast<const char*>(data), bytes});
    } catch (const Error&) {
      first = std::current_exception();
    }
    return bytes;
  });
  if (first) std::rethrow_exception(first);
  file.commit(base::Replacement::Lasts::yes);
}

void read_file(const std::string& path, torch::serialize::InputArchive& archive, torch::Device device) {
  const base::NamedFile file = base::open_named(path);
  const auto read = [&](std::uint64_t position, void* to, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes) {
      const ssize_t got =
          ::pread(file.fd.get(), static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(position + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;  // LibTorch says that the file is damaged
      done += static_cast<std::size_t>(got);
    }
    return done;
  };
  archive.load_from(
      read, [&] { return static_cast<std::size_t>(file.bytes); }, device);
}

}  // namespace

void write_optimizer(torch::serialize::OutputArchive& archive, const Optimizer& optimizer) {
  torch::serialize::OutputArchive state(archive.compilation_unit());
  optimizer.save(state);
  archive.write("state", state);
  // LibTorch 1.13 saves the options and does not load them; so they are read from copies of our own.
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    torch::serialize::OutputArchive options(archive.compilation_unit());
    groups[i].options().serialize(options);
    archive.write("options" + std::to_string(i), options);
  }
}

void read_optimizer(torch::serialize::InputArchive& archive, Optimizer& optimizer) {
  optimizer.state().clear();  // a parameter that has none in the archive has none afterwards
  torch::serialize::InputArchive state;
  archive.read("state", state);
  optimizer.load(state);
  auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    torch::serialize::InputArchive options;
    archive.read("options" + std::to_string(i), options);
    groups[i].options().serialize(options);
  }
}

void broadcast_optimizer_state(const Group& group, Optimizer& optimizer, int root) {
  constexpr std::string_view kCaller = "broadcast_optimizer_state";
  if (root < 0 || root >= size(group)) {
    throw Error(ErrorCode::invalid_argument, std::string(kCaller) + ": root " + std::to_string(root) +
                                                 " is no rank; ranks are 0 to " + std::to_string(size(group) - 1));
  }
  check_agreement(group, kCaller, entries_of(optimizer, root));
  const std::string bytes = on_root(group, kCaller, root, ErrorCode::unsupported, [&] {
    torch::serialize::OutputArchive archive;
    write_optimizer(archive, optimizer);
    std::ostringstream stream;
    archive.save_to(stream);
    return stream.str();
  });
  if (rank(group) == root) {
    return;
  }
  std::istringstream stream(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(stream, device_of(optimizer));
  read_optimizer(archive, optimizer);
}

void save_checkpoint(const Group& group, const std::string& path, const torch::nn::Module& module,
                     const Optimizer& optimizer, std::int64_t number) {
  on_root(group, "save_checkpoint", 0, ErrorCode::io, [&] {
    torch::serialize::OutputArchive archive;
    torch::serialize::OutputArchive model(archive.compilation_unit());
    torch::serialize::OutputArchive state(archive.compilation_unit());
    module.save(model);
    write_optimizer(state, optimizer);
    archive.write("kolo_checkpoint", c10::IValue(static_cast<std::int64_t>(1)));
    archive.write("number", c10::IValue(number));
    archive.write("model", model);
    archive.write("optimizer", state);
    write_file(path, archive);
    return std::string();
  });
}

std::int64_t load_checkpoint(const Group& group, const std::string& path, torch::nn::Module& module,
                             Optimizer& optimizer) {
  const std::string number = on_root(group, "load_checkpoint", 0, ErrorCode::io, [&] {
    torch::serialize::InputArchive archive, model, state;
    read_file(path, archive, device_of(optimizer));
    c10::IValue format, number;
    archive.read("kolo_checkpoint", format);
    archive.read("number", number);
    archive.read("model", model);
    archive.read("optimizer", state);
    module.load(model);
    read_optimizer(state, optimizer);
    return std::to_string(number.toInt());
  });
  broadcast_parameters(group, module, 0);
  broadcast_optimizer_state(group, optimizer, 0);
  return std::stoll(number);
}

}  // namespace kolo::libtorch
