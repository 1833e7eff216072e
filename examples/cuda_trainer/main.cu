// SPDX-License-Identifier: Apache-2.0
//
// A trainer in raw CUDA, made to train on many GPUs: handwritten digits by a network with one hidden layer. Each gradient
// is reduced as soon as the kernel that computes it has been enqueued, and no step waits on the host for its own work: the
// stream waits. The host is at most one step ahead of the device, because a tensor's name is in use until the reduction
// under it has completed.
//
//     mpirun -np 4 cuda_trainer            # one rank a GPU
//
// Options: --epochs N (30), --per-rank-batch N (32), --data FILE.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <kolo/cuda.hpp>
#include <kolo/kolo.hpp>

#include "examples/cuda_trainer/layers.hpp"
#include "examples/train_digits/digits.hpp"

namespace cuda_trainer {

void check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(result));
}

template <class Body>
__global__ void run(Body body, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) body(i);
}

template <class Body>
void for_each(int count, cudaStream_t stream, const Body& body) {
  constexpr int kThreads = 128;
  run<<<(count + kThreads - 1) / kThreads, kThreads, 0, stream>>>(body, count);
  check(cudaGetLastError());
}

template <class T>
class Array {
 public:
  explicit Array(std::size_t size) : size_(size) {
    check(cudaMalloc(&data_, size * sizeof(T)));
    check(cudaMemset(data_, 0, size * sizeof(T)));
  }
  explicit Array(const std::vector<T>& values) : Array(values.size()) { set(values); }
  ~Array() { static_cast<void>(cudaFree(data_)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  void set(const std::vector<T>& values) {
    check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  [[nodiscard]] std::vector<T> get() const {
    std::vector<T> values(size_);
    check(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

std::vector<float> random_weights(int inputs, int outputs, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, std::sqrt(2.0F / static_cast<float>(inputs)));
  std::vector<float> weights(static_cast<std::size_t>(inputs) * static_cast<std::size_t>(outputs));
  std::generate(weights.begin(), weights.end(), [&] { return normal(engine); });
  return weights;
}

struct Parameter {
  std::string name;
  Array<float> value, gradient, velocity;
  kolo::Handle reduction;

  Parameter(std::string its_name, const std::vector<float>& initial)
      : name(std::move(its_name)), value(initial), gradient(initial.size()), velocity(initial.size()) {}

  void broadcast(cudaStream_t stream) {
    kolo::broadcast(name, kolo::cuda::view(value.data(), value.size(), stream), /*root=*/0);
  }
  /// Call when the kernel that computes the gradient has been enqueued.
  void reduce(cudaStream_t stream) {
    if (reduction.valid()) reduction.wait();  // the last step's
    reduction = kolo::allreduce_async(name + ".grad", kolo::cuda::view(gradient.data(), gradient.size(), stream),
                                      kolo::AllreduceOptions{}.with_op(kolo::ReduceOp::average));
  }
  void update(cudaStream_t stream) {
    kolo::cuda::wait_on(reduction, stream);
    for_each(static_cast<int>(value.size()), stream,
             Update{value.data(), velocity.data(), gradient.data(), /*learning_rate=*/0.1F, /*momentum=*/0.9F});
  }
};

constexpr int kPixels = 64;
constexpr int kHidden = 128;
constexpr int kClasses = 10;

class Network {
 public:
  Network(unsigned seed, int most_rows, cudaStream_t stream)
      : w1_("w1", random_weights(kPixels, kHidden, seed)), b1_("b1", std::vector<float>(kHidden)),
        w2_("w2", random_weights(kHidden, kClasses, seed + 1)), b2_("b2", std::vector<float>(kClasses)),
        x_(static_cast<std::size_t>(most_rows * kPixels)), h_(static_cast<std::size_t>(most_rows * kHidden)),
        scores_(static_cast<std::size_t>(most_rows * kClasses)), d_(scores_.size()), dh_(h_.size()), stream_(stream) {}

  void broadcast() {
    for (Parameter* parameter : {&w1_, &b1_, &w2_, &b2_}) parameter->broadcast(stream_);
  }

  /// Scores of the images `rows`, of which there are `batch`.
  void forward(const float* images, const int* rows, int batch) {
    for_each(batch * kPixels, stream_, Gather{images, rows, x_.data(), kPixels});
    for_each(batch * kHidden, stream_,
             Dense{x_.data(), w1_.value.data(), b1_.value.data(), h_.data(), kPixels, kHidden, true});
    for_each(batch * kClasses, stream_,
             Dense{h_.data(), w2_.value.data(), b2_.value.data(), scores_.data(), kHidden, kClasses, false});
  }

  void backward(const int* labels, const int* rows, int batch) {
    for_each(batch, stream_, ScoreGradient{scores_.data(), labels, rows, d_.data(), kClasses, batch});
    for_each(kHidden * kClasses, stream_,
             WeightGradient{h_.data(), d_.data(), w2_.gradient.data(), kHidden, kClasses, batch});
    w2_.reduce(stream_);
    for_each(kClasses, stream_, BiasGradient{d_.data(), b2_.gradient.data(), kClasses, batch});
    b2_.reduce(stream_);
    for_each(batch * kHidden, stream_,
             InputGradient{d_.data(), w2_.value.data(), h_.data(), dh_.data(), kHidden, kClasses});
    for_each(kPixels * kHidden, stream_,
             WeightGradient{x_.data(), dh_.data(), w1_.gradient.data(), kPixels, kHidden, batch});
    w1_.reduce(stream_);
    for_each(kHidden, stream_, BiasGradient{dh_.data(), b1_.gradient.data(), kHidden, batch});
    b1_.reduce(stream_);
  }

  void update() {
    for (Parameter* parameter : {&w2_, &b2_, &w1_, &b1_}) parameter->update(stream_);
    kolo::end_step();
  }

  [[nodiscard]] std::vector<float> scores() const {
    check(cudaStreamSynchronize(stream_));
    return scores_.get();
  }

 private:
  Parameter w1_, b1_, w2_, b2_;
  Array<float> x_, h_, scores_, d_, dh_;
  cudaStream_t stream_;
};

struct Options {
  int epochs = 30;
  int batch = 32;
  std::string data = DIGITS_CSV;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) throw std::runtime_error(flag + " needs a value");
    if (flag == "--epochs") {
      options.epochs = std::stoi(argv[i + 1]);
    } else if (flag == "--per-rank-batch") {
      options.batch = std::stoi(argv[i + 1]);
    } else if (flag == "--data") {
      options.data = argv[i + 1];
    } else {
      throw std::runtime_error("unknown option " + flag + "; there are --epochs, --per-rank-batch and --data");
    }
  }
  if (options.epochs < 1 || options.batch < 1) throw std::runtime_error("epochs and batches are 1 or more");
  return options;
}

std::vector<int> as_ints(const train_digits::Rows& rows) { return {rows.begin(), rows.end()}; }

double accuracy(Network& network, const Array<float>& images, const std::vector<std::uint8_t>& labels,
                const train_digits::Rows& rows) {
  const Array<int> which(as_ints(rows));
  network.forward(images.data(), which.data(), static_cast<int>(rows.size()));
  const std::vector<float> scores = network.scores();
  int right = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto first = scores.begin() + static_cast<std::ptrdiff_t>(i * kClasses);
    right += std::max_element(first, first + kClasses) - first == labels[rows[i]] ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(rows.size());
}

void train(const Options& options) {
  kolo::Session session;
  kolo::cuda::bind();
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    const train_digits::Digits digits = train_digits::load_digits(options.data);
    const train_digits::Split split = train_digits::split(digits.size(), digits.size() * 4 / 5);
    const Array<float> images(digits.pixels);
    const Array<int> labels(std::vector<int>(digits.labels.begin(), digits.labels.end()));
    const int most = std::max(options.batch, static_cast<int>(split.held_out.size()));
    Network network(/*seed=*/static_cast<unsigned>(kolo::rank()), most, stream);  // every rank starts differently ...
    network.broadcast();                                                          // ... and now the same

    const kolo::DistributedSampler sampler(split.training.size());
    Array<int> rows((split.training.size() + static_cast<std::size_t>(kolo::size())));
    for (int epoch = 0; epoch < options.epochs; ++epoch) {
      std::vector<int> mine;
      for (const std::size_t place : sampler.epoch(static_cast<std::size_t>(epoch))) {
        mine.push_back(static_cast<int>(split.training[place]));
      }
      check(cudaStreamSynchronize(stream));  // the last epoch's steps read the rows that are now replaced
      rows.set(mine);
      const int steps = static_cast<int>(mine.size()) / options.batch;  // whole batches, as many on every rank
      for (int step = 0; step < steps; ++step) {
        const int* now = rows.data() + step * options.batch;
        network.forward(images.data(), now, options.batch);
        network.backward(labels.data(), now, options.batch);
        network.update();
      }
    }
    if (kolo::rank() == 0) {
      std::printf("%d ranks, %d epochs: accuracy %.4f on %zu images that were held out\n", kolo::size(), options.epochs,
                  accuracy(network, images, digits.labels, split.held_out), split.held_out.size());
    }
    check(cudaStreamSynchronize(stream));
  }
  check(cudaStreamDestroy(stream));
}

}  // namespace cuda_trainer

int main(int argc, char** argv) {
  try {
    cuda_trainer::train(cuda_trainer::parse(argc, argv));
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_trainer: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
