// SPDX-License-Identifier: Apache-2.0
//
// ResNet-50 (He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2015,
// https://arxiv.org/abs/1512.03385), as torchvision builds it: the stride of a bottleneck is that of its 3 x 3
// convolution. 161 parameters, 25.6 million numbers.
#pragma once

#include <array>
#include <cstdint>

#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace torch_resnet {

inline torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

class BottleneckImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 4;

  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride)
      : conv1_(convolution(in, width, 1, 1)), conv2_(convolution(width, width, 3, stride)),
        conv3_(convolution(width, width * kExpansion, 1, 1)), bn1_(width), bn2_(width), bn3_(width * kExpansion) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("conv2", conv2_);
    register_module("bn2", bn2_);
    register_module("conv3", conv3_);
    register_module("bn3", bn3_);
    if (stride != 1 || in != width * kExpansion) {
      shortcut_ = register_module("shortcut", torch::nn::Sequential(convolution(in, width * kExpansion, 1, stride),
                                                                    torch::nn::BatchNorm2d(width * kExpansion)));
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::relu(bn1_(conv1_(x)));
    y = torch::relu(bn2_(conv2_(y)));
    y = bn3_(conv3_(y));
    return torch::relu(y + (shortcut_.is_empty() ? x : shortcut_->forward(x)));
  }

 private:
  torch::nn::Conv2d conv1_, conv2_, conv3_;
  torch::nn::BatchNorm2d bn1_, bn2_, bn3_;
  torch::nn::Sequential shortcut_{nullptr};
};
TORCH_MODULE(Bottleneck);

class ResNet50Impl : public torch::nn::Module {
 public:
  explicit ResNet50Impl(std::int64_t classes = 1000)
      : conv1_(torch::nn::Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)), bn1_(64),
        fc_(512 * BottleneckImpl::kExpansion, classes) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    constexpr std::array<std::int64_t, 4> kBlocks{3, 4, 6, 3};
    std::int64_t in = 64, width = 64;
    for (std::size_t stage = 0; stage < kBlocks.size(); ++stage, width *= 2) {
      for (std::int64_t block = 0; block < kBlocks[stage]; ++block) {
        blocks_->push_back(Bottleneck(in, width, stage > 0 && block == 0 ? 2 : 1));
        in = width * BottleneckImpl::kExpansion;
      }
    }
    register_module("blocks", blocks_);
    register_module("fc", fc_);
  }

  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = torch::relu(bn1_(conv1_(images)));
    x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    x = blocks_->forward(x);
    return fc_(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Sequential blocks_;
  torch::nn::Linear fc_;
};
TORCH_MODULE(ResNet50);

}  // namespace torch_resnet
