// SPDX-License-Identifier: Apache-2.0
//
// DeepSpeed's configuration as it is read: what its documentation shows is served, or refused with a sentence that
// names the key and says what to do. What each key does is in libtorch_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "libtorch/deepspeed_config.hpp"
#include "tests/optimizer/errors.hpp"

namespace {

using kolo::DType;
using kolo::libtorch::DeepSpeedConfig;

/// A file with what every file needs, and `rest`; for 4 ranks.
DeepSpeedConfig with(const std::string& rest) {
  return DeepSpeedConfig::parse("ds.json",
                                R"({"train_micro_batch_size_per_gpu": 8, "optimizer": {"type": "AdamW"})" +
                                    (rest.empty() ? "" : ", " + rest) + "}",
                                4);
}
std::string error_with(const std::string& rest) {
  return kolo::test::error_of([&] { static_cast<void>(with(rest)); });
}
DeepSpeedConfig whole(const std::string& text, int ranks = 4) { return DeepSpeedConfig::parse("ds.json", text, ranks); }
std::string error_of(const std::string& text, int ranks = 4) {
  return kolo::test::error_of([&] { static_cast<void>(whole(text, ranks)); });
}

const std::string kSgd = R"("optimizer": {"type": "SGD", "params": {"lr": 0.1}})";

TEST(BatchSizes, TwoGiveTheThird) {
  const auto sizes = [](const std::string& keys) {
    const DeepSpeedConfig config = whole("{" + keys + ", " + kSgd + "}");
    return std::pair(config.micro_batch_size, config.accumulation_steps);
  };
  EXPECT_EQ(sizes(R"("train_batch_size": 64, "gradient_accumulation_steps": 2)"), std::pair(8, 2));
  EXPECT_EQ(sizes(R"("train_batch_size": 64, "train_micro_batch_size_per_gpu": 4)"), std::pair(4, 4));
  EXPECT_EQ(sizes(R"("train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3)"), std::pair(4, 3));
  EXPECT_EQ(sizes(R"("train_batch_size": 64)"), std::pair(16, 1));
  EXPECT_EQ(sizes(R"("train_micro_batch_size_per_gpu": 5)"), std::pair(5, 1));
  EXPECT_EQ(sizes(R"("train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2)"),
            std::pair(8, 2));
}

TEST(BatchSizes, ContradictionsAreTold) {
  const auto error = [](const std::string& keys) { return error_of("{" + keys + kSgd + "}"); };
  EXPECT_EQ(error(""), "invalid_argument: ds.json: train_batch_size: it is missing; write it, or "
                       "train_micro_batch_size_per_gpu, and gradient_accumulation_steps where that is not 1");
  EXPECT_EQ(error(R"("train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 3, )"),
            "invalid_argument: ds.json: train_batch_size: it is 64, but train_micro_batch_size_per_gpu 8 times "
            "gradient_accumulation_steps 3 times 4 ranks is 96; delete one of the three");
  EXPECT_EQ(
      error(R"("train_batch_size": 30, )"),
      "invalid_argument: ds.json: train_batch_size: 30 is no multiple of 4, gradient_accumulation_steps 1 times 4 "
      "ranks; change one of them, or leave train_micro_batch_size_per_gpu and train_batch_size to be found");
  EXPECT_EQ(error(R"("train_batch_size": 64, "train_micro_batch_size_per_gpu": 7, )"),
            "invalid_argument: ds.json: train_batch_size: 64 is no multiple of 28, train_micro_batch_size_per_gpu 7 "
            "times 4 ranks; change one of them, or leave gradient_accumulation_steps and train_batch_size to be found");
}

TEST(Values, OfAWrongTypeOrOutOfRangeAreTold) {
  EXPECT_EQ(error_with(R"("gradient_clipping": "1.0")"),
            "invalid_argument: ds.json: gradient_clipping: it is \"1.0\"; it must be a number, 0.0 or more");
  EXPECT_EQ(error_with(R"("gradient_clipping": -1)"),
            "invalid_argument: ds.json: gradient_clipping: it is -1; it must be a number, 0.0 or more");
  EXPECT_EQ(error_with(R"("steps_per_print": 1.5)"),
            "invalid_argument: ds.json: steps_per_print: it is 1.5; it must be an integer from 0 to 2147483647");
  EXPECT_EQ(
      error_with(R"("gradient_accumulation_steps": "auto")"),
      "invalid_argument: ds.json: gradient_accumulation_steps: \"auto\" is for HuggingFace's Trainer, which puts a "
      "value here; write an integer from 1 to 2147483647");
  EXPECT_EQ(error_with(R"("fp16": true)"),
            "invalid_argument: ds.json: fp16: it is true; it must be an object, { ... }");
  EXPECT_EQ(error_with(R"("fp16": {"enabled": 1})"),
            "invalid_argument: ds.json: fp16.enabled: it is 1; it must be true or false");
  EXPECT_EQ(error_with(R"("fp16": {"enabled": true}, "bf16": {"enabled": true})"),
            "invalid_argument: ds.json: bf16: fp16 is enabled, too; one of them can be");
  EXPECT_EQ(error_with(R"("communication_data_type": "int8")"),
            "invalid_argument: ds.json: communication_data_type: it is \"int8\"; it must be \"fp32\", \"fp16\" or "
            "\"bf16\"");
  EXPECT_EQ(error_of(R"({"train_batch_size": 4})"),
            "invalid_argument: ds.json: optimizer: it is missing; write one of type SGD, Adam or AdamW");
  EXPECT_EQ(error_of(R"({"train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"betas": [0.9]}}})"),
            "invalid_argument: ds.json: optimizer.params.betas: it is [0.9]; it must be two numbers, [0.9, 0.999]");
  EXPECT_EQ(error_of(R"({"train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"betas": [0.9, 1]}}})"),
            "invalid_argument: ds.json: optimizer.params.betas: each must be 0 or more and less than 1");
  EXPECT_EQ(error_with(R"("scheduler": {"type": "WarmupDecayLR"})"),
            "invalid_argument: ds.json: scheduler.params.total_num_steps: it is missing; WarmupDecayLR needs it");
  EXPECT_EQ(error_with(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cosine"}})"),
            "invalid_argument: ds.json: scheduler.params.warmup_type: it is \"cosine\"; it must be \"log\" or "
            "\"linear\"");
}

TEST(Values, EachNumberHasARange) {
  const auto optimizer = [](const std::string& type, const std::string& params) {
    return error_of(R"({"train_batch_size": 4, "optimizer": {"type": ")" + type + R"(", "params": {)" + params + "}}}");
  };
  const std::string begin = "invalid_argument: ds.json: ";
  const std::string no_integer = "; it must be an integer from ";
  for (const std::string key : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    for (const std::string value : {"0", "-1", "2147483648", "1e300"}) {
      const std::string shown = value == "1e300" ? "1e+300" : value;
      EXPECT_EQ(error_of("{\"" + key + "\": " + value + "}"),
                begin + key + ": it is " + shown + no_integer + "1 to 2147483647");
    }
  }
  EXPECT_EQ(error_with(R"("steps_per_print": 4294967296)"),
            begin + "steps_per_print: it is 4294967296" + no_integer + "0 to 2147483647");
  EXPECT_EQ(error_with(R"("zero_optimization": {"stage": -1})"),
            begin + "zero_optimization.stage: it is -1" + no_integer + "0 to 2147483647");
  EXPECT_EQ(error_with(R"("fp16": {"initial_scale_power": 128})"),
            begin + "fp16.initial_scale_power: it is 128" + no_integer + "0 to 126");
  EXPECT_EQ(error_with(R"("fp16": {"loss_scale_window": 0})"),
            begin + "fp16.loss_scale_window: it is 0" + no_integer + "1 to 2147483647");
  EXPECT_EQ(error_with(R"("fp16": {"hysteresis": 0})"),
            begin + "fp16.hysteresis: it is 0" + no_integer + "1 to 2147483647");
  EXPECT_EQ(error_with(R"("fp16": {"loss_scale": 1e39})"),
            begin + "fp16.loss_scale: it is 1e+39; it must be a number from 0.0 to 1e+38");
  EXPECT_EQ(error_with(R"("fp16": {"min_loss_scale": 0})"),
            begin + "fp16.min_loss_scale: it is 0; it must be a number from 1e-38 to 1e+38");
  for (const std::string key : {"lr", "weight_decay", "momentum", "dampening"}) {
    EXPECT_EQ(optimizer("SGD", "\"" + key + "\": -1"),
              begin + "optimizer.params." + key + ": it is -1; it must be a number, 0.0 or more");
  }
  EXPECT_EQ(optimizer("SGD", R"("nesterov": true)"),
            begin + "optimizer.params.nesterov: it needs a momentum of more than 0, and no dampening");
  EXPECT_EQ(optimizer("Adam", R"("eps": -1)"),
            begin + "optimizer.params.eps: it is -1; it must be a number, 0.0 or more");
  EXPECT_EQ(error_with(R"("scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 0}})"),
            begin + "scheduler.params.total_num_steps: it is 0" + no_integer + "1 to 2147483647");
  for (const std::string key : {"warmup_min_lr", "warmup_max_lr"}) {
    EXPECT_EQ(error_with(R"("scheduler": {"type": "WarmupLR", "params": {")" + key + "\": -1}}"),
              begin + "scheduler.params." + key + ": it is -1; it must be a number, 0.0 or more");
  }
  EXPECT_EQ(error_with(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": -1}})"),
            begin + "scheduler.params.warmup_num_steps: it is -1" + no_integer + "0 to 2147483647");
  EXPECT_EQ(with(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}})").schedule->warmup_steps, 2);
}

TEST(BatchSizes, ProductsOfLargeNumbersAreTold) {
  EXPECT_EQ(error_of(R"({"train_micro_batch_size_per_gpu": 1073741824, )" + kSgd + "}"),
            "invalid_argument: ds.json: train_batch_size: train_micro_batch_size_per_gpu 1073741824 times "
            "gradient_accumulation_steps 1 times 4 ranks is more than 2147483647; write smaller numbers");
  EXPECT_EQ(
      error_of(R"({"train_micro_batch_size_per_gpu": 2147483647, "gradient_accumulation_steps": 2147483647, )" + kSgd +
                   "}",
               1 << 20),
      "invalid_argument: ds.json: train_batch_size: train_micro_batch_size_per_gpu 2147483647 times "
      "gradient_accumulation_steps 2147483647 times 1048576 ranks is more than 2147483647; write smaller numbers");
  EXPECT_EQ(error_of(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1073741824, )" + kSgd + "}"),
            "invalid_argument: ds.json: train_batch_size: 8 is no multiple of 4294967296, "
            "train_micro_batch_size_per_gpu 1073741824 times 4 ranks; change one of them, or leave "
            "gradient_accumulation_steps and train_batch_size to be found");
  EXPECT_EQ(whole(R"({"train_micro_batch_size_per_gpu": 2147483647, )" + kSgd + "}", 1).micro_batch_size, 2147483647);
}

TEST(Values, OfDeepNestsAreTold) {
  const std::string sentence = "invalid_argument: ds.json: objects and lists are nested more than 32 deep; DeepSpeed's "
                               "are 3 deep";
  EXPECT_EQ(error_of(std::string(200'000, '[')), sentence);
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(error_of(objects), sentence);
}

TEST(Documentation, AllThatIsNotServedIsToldAtOnce) {
  EXPECT_EQ(
      error_of(R"({"train_batch_size": 4, "optimizer": {"type": "Lamb", "params": {"lr": 1}},
                         "zero_optimization": {"stage": 3, "overlap_comm": true}, "fp16": {"auto_cast": true},
                         "prescale_gradients": true})"),
      "unsupported: ds.json: 5 entries are not served: optimizer.type: \"Lamb\" is not served; write SGD, Adam or "
      "AdamW. fp16.auto_cast: the program casts its inputs to float16; delete the key. zero_optimization.stage: it "
      "is 3; 0, 1 and 2 are served: with 2 each rank has all parameters, and its share of gradients and optimizer "
      "state. zero_optimization.overlap_comm: gradients are always reduced while the backward pass goes on; delete "
      "the key. prescale_gradients: an average is divided where its type has room; delete the key");
}

TEST(Values, AFileThatIsNoJsonIsTold) {
  EXPECT_EQ(error_of("{").rfind("invalid_argument: ds.json: it is no JSON: ", 0), 0U);
  EXPECT_EQ(error_of("[]"), "invalid_argument: ds.json: it is []; it must be an object, { ... }");
  EXPECT_EQ(error_of(R"({"train_batch_size": 4, "train_batch_size": 8})"),
            "invalid_argument: ds.json: the key \"train_batch_size\" stands twice in one object; delete one");
}

// The examples of DeepSpeed's page on its configuration and of its tutorials, which are served.
TEST(Documentation, ServesWhatItShows) {
  const DeepSpeedConfig adam = whole(R"({"train_batch_size": 32, "optimizer": {
    "type": "Adam",
    "params": {
      "lr": 0.001,
      "betas": [
        0.8,
        0.999
      ],
      "eps": 1e-8,
      "weight_decay": 3e-7
    }
  }})");
  EXPECT_EQ(adam.optimizer, DeepSpeedConfig::Optimizer::adamw);  // its Adam decays as AdamW does
  EXPECT_EQ(adam.betas, std::pair(0.8, 0.999));
  EXPECT_EQ(adam.weight_decay, 3e-7);
  EXPECT_EQ(
      whole(R"({"train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})").optimizer,
      DeepSpeedConfig::Optimizer::adam);
  EXPECT_EQ(
      whole(R"({"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"torch_adam": true}}})").weight_decay,
      1e-2);

  const auto warmup = with(R"("scheduler": {
      "type": "WarmupLR",
      "params": {
          "warmup_min_lr": 0,
          "warmup_max_lr": 0.001,
          "warmup_num_steps": 1000
      }
  })")
                          .schedule;
  ASSERT_TRUE(warmup.has_value());
  EXPECT_EQ(warmup->warmup_steps, 1000);
  EXPECT_EQ(warmup->rate_after(0), 0);
  EXPECT_EQ(warmup->rate_after(1), 0);
  EXPECT_DOUBLE_EQ(warmup->rate_after(100), 0.001 * std::log(100.0) / std::log(1000.0));
  EXPECT_EQ(warmup->rate_after(5000), 0.001);

  const DeepSpeedConfig half = with(R"("fp16": {
    "enabled": true,
    "auto_cast": false,
    "loss_scale": 0,
    "initial_scale_power": 16,
    "loss_scale_window": 1000,
    "hysteresis": 2,
    "consecutive_hysteresis": false,
    "min_loss_scale": 1,
    "fp16_master_weights_and_grads": false
})");
  EXPECT_EQ(half.precision, DType::float16);
  EXPECT_EQ(half.loss_scaler.loss_scale_window, 1000);
  EXPECT_EQ(half.loss_scaler.hysteresis, 2);
  EXPECT_FALSE(with(R"("fp16": {"enabled": false})").precision.has_value());
  EXPECT_EQ(with(R"("bf16": { "enabled": true })").precision, DType::bfloat16);
  EXPECT_EQ(with(R"("gradient_clipping": 1.0)").gradient_clipping, 1.0);
  EXPECT_FALSE(with(R"("gradient_clipping": 0.0)").gradient_clipping.has_value());
  EXPECT_EQ(with(R"("zero_optimization": { "stage": 1 })").stage, 1);
  EXPECT_EQ(with(R"("zero_optimization": { "stage": 2 })").stage, 2);
  EXPECT_EQ(with(R"("communication_data_type": "fp16")").communication, DType::float16);
  EXPECT_FALSE(with(R"("communication_data_type": "fp32")").communication.has_value());
  EXPECT_FALSE(with(R"("fp16": {"enabled": true}, "communication_data_type": "fp16")").communication.has_value());
  EXPECT_EQ(with(R"("steps_per_print": 2000)").steps_per_print, 2000);

  const auto decay = with(R"("scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 100,
      "warmup_max_lr": 0.01, "warmup_num_steps": 10, "warmup_type": "linear"}})")
                         .schedule;
  ASSERT_TRUE(decay.has_value());
  EXPECT_DOUBLE_EQ(decay->rate_after(6), 0.005);
  EXPECT_DOUBLE_EQ(decay->rate_after(11), 0.01);
  EXPECT_DOUBLE_EQ(decay->rate_after(56), 0.005);
  EXPECT_EQ(decay->rate_after(500), 0);
}

struct Refused {
  const char* fragment;
  const char* sentence;
};

// The same, of what is not served.
TEST(Documentation, RefusesTheRestAndSaysWhatToDo) {
  for (const Refused& one : {
           Refused{
               R"("zero_optimization": {"stage": 3})",
               "zero_optimization.stage: it is 3; 0, 1 and 2 are served: with 2 each rank has all parameters, and its "
               "share of gradients and optimizer state"},
           Refused{
               R"("zero_optimization": {"stage": 2, "overlap_comm": true})",
               "zero_optimization.overlap_comm: gradients are always reduced while the backward pass goes on; delete "
               "the key"},
           Refused{R"("zero_optimization": {"stage": 2, "contiguous_gradients": true})",
                   "zero_optimization.contiguous_gradients: Kolo chooses this by itself; delete the key"},
           Refused{R"("zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8})",
                   "zero_optimization.reduce_bucket_size: Kolo chooses this by itself; delete the key"},
           Refused{R"("zero_optimization": {"stage": 2, "allgather_partitions": true})",
                   "zero_optimization.allgather_partitions: Kolo chooses this by itself; delete the key"},
           Refused{
               R"("zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}})",
               "zero_optimization.offload_optimizer: the optimizer's state and the parameters are in the CPU's memory "
               "anyway; delete the key"},
           Refused{R"("zero_optimization": {"stage": 2, "cpu_offload": true})",
                   "zero_optimization.cpu_offload: the optimizer's state and the parameters are in the CPU's memory "
                   "anyway; delete the key"},
           Refused{R"("zero_optimization": {"stage": 2, "stage3_max_live_parameters": 1e9})",
                   "zero_optimization.stage3_max_live_parameters: this belongs to stage 3, which is not served; delete "
                   "the key, and take stage 2"},
           Refused{R"("zero_optimization": {"stage": 2, "zero_quantized_gradients": true})",
                   "zero_optimization.zero_quantized_gradients: this is not served; communication_data_type sends "
                   "gradients as 16 bits"},
           Refused{R"("fp16": {"enabled": true, "auto_cast": true})",
                   "fp16.auto_cast: the program casts its inputs to float16; delete the key"},
           Refused{
               R"("fp16": {"enabled": true, "consecutive_hysteresis": true})",
               "fp16.consecutive_hysteresis: hysteresis begins anew when the scale has been doubled; delete the key"},
           Refused{R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})",
                   "bf16.bf16_master_weights_and_grads: the optimizer steps copies in float32, and there are no other "
                   "ways; delete the key"},
           Refused{
               R"("fp16": {"enabled": true}, "communication_data_type": "fp32")",
               "communication_data_type: gradients of 16 bits travel as they are, and are summed in float32; delete "
               "the key"},
           Refused{R"("amp": {"enabled": true, "opt_level": "O1"})",
                   "amp: this needs NVIDIA's Apex; write fp16 or bf16 instead"},
           Refused{R"("torch_autocast": {"enabled": true, "dtype": "bfloat16"})",
                   "torch_autocast: write fp16 or bf16 instead, or cast in the program"},
           Refused{R"("prescale_gradients": true)",
                   "prescale_gradients: an average is divided where its type has room; delete the key"},
           Refused{R"("sparse_gradients": true)",
                   "sparse_gradients: gradients must be dense; make the embedding without sparse gradients, and delete "
                   "the key"},
           Refused{R"("wall_clock_breakdown": false)",
                   "wall_clock_breakdown: this is not served; measure in the program, and delete the key"},
           Refused{R"("activation_checkpointing": {"partition_activations": false})",
                   "activation_checkpointing: this is the model's own business; write it there, and delete the key"},
           Refused{R"("elasticity": {"enabled": true, "max_train_batch_size": 2000})",
                   "elasticity: the number of ranks is that of the job; delete the key"},
           Refused{R"("flops_profiler": {"enabled": true, "profile_step": 1})",
                   "flops_profiler: this is not served; delete the key"},
           Refused{
               R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4}})",
               "scheduler.type: \"OneCycle\" is not served; write WarmupLR or WarmupDecayLR, or set the rate in the "
               "program (engine.optimizer())"},
           Refused{R"("scheduler": {"type": "WarmupLR", "params": {"cos_min_ratio": 0.1}})",
                   "scheduler.params.cos_min_ratio: this is not served; delete the key"},
       }) {
    EXPECT_EQ(error_with(one.fragment), std::string("unsupported: ds.json: ") + one.sentence) << one.fragment;
  }
  EXPECT_EQ(error_of(R"({"train_batch_size": 4, "optimizer": {"type": "OneBitAdam", "params": {"lr": 0.0002}}})"),
            "unsupported: ds.json: optimizer.type: \"OneBitAdam\" is not served; write SGD, Adam or AdamW");
  EXPECT_EQ(error_of(R"({"train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"max_grad_norm": 1}}})"),
            "unsupported: ds.json: optimizer.params.max_grad_norm: write gradient_clipping at the top of the file");
  EXPECT_EQ(error_of(R"({"train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"bias_correction": false}}})"),
            "unsupported: ds.json: optimizer.params.bias_correction: the means are always corrected; delete the key");
}

}  // namespace
