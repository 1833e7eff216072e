// SPDX-License-Identifier: Apache-2.0
//
// Sections are read key by key. What is left over is a key that is not served. All of them are told in one error, each
// with what to do, from the table where DeepSpeed has such a key.
#include "libtorch/deepspeed_config.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include <kolo/error.hpp>
#include <kolo/parameters.hpp>

#include "base/text.hpp"

namespace kolo::libtorch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kOwnWay = "Kolo chooses this by itself; delete the key";
constexpr std::string_view kCpu =
    "the optimizer's state and the parameters are in the CPU's memory anyway; delete the key";
constexpr std::string_view kStage3 = "this belongs to stage 3, which is not served; delete the key, and take stage 2";
constexpr std::string_view kNoSuch = "this is not served; delete the key";

struct Advice {
  std::string_view path;  // all keys that begin with it
  std::string_view sentence;
};
// The first that fits counts.
constexpr Advice kAdvice[] = {
    {"zero_optimization.allgather_", kOwnWay},
    {"zero_optimization.overlap_comm", "gradients are always reduced while the backward pass goes on; delete the key"},
    {"zero_optimization.reduce_", kOwnWay},
    {"zero_optimization.contiguous_gradients", kOwnWay},
    {"zero_optimization.round_robin_gradients", kOwnWay},
    {"zero_optimization.compute_grad_norm", "the norm is computed where it is needed; delete the key"},
    {"zero_optimization.load_from_fp32_weights", "a checkpoint always has the copies in float32; delete the key"},
    {"zero_optimization.elastic_checkpoint", "any number of ranks reads a checkpoint; delete the key"},
    {"zero_optimization.ignore_unused_parameters",
     "a parameter that was not used has a gradient of zero; delete the key"},
    {"zero_optimization.cpu_offload", kCpu},
    {"zero_optimization.offload_", kCpu},
    {"zero_optimization.stage3_", kStage3},
    {"zero_optimization.sub_group_size", kStage3},
    {"zero_optimization.zero_hpz_partition_size", kStage3},
    {"zero_optimization.zero_quantized_weights", kStage3},
    {"zero_optimization.zero_quantized_gradients",
     "this is not served; communication_data_type sends gradients as 16 bits"},
    {"fp16.auto_cast", "the program casts its inputs to float16; delete the key"},
    {"fp16.consecutive_hysteresis", "hysteresis begins anew when the scale has been doubled; delete the key"},
    {"fp16.fp16_master_weights_and_grads", "the optimizer steps copies in float32; delete the key"},
    {"bf16.", "the optimizer steps copies in float32, and there are no other ways; delete the key"},
    {"optimizer.params.bias_correction", "the means are always corrected; delete the key"},
    {"optimizer.params.max_grad_norm", "write gradient_clipping at the top of the file"},
    {"optimizer.params.fused", kOwnWay},
    {"optimizer.params.foreach", kOwnWay},
    {"prescale_gradients", "an average is divided where its type has room; delete the key"},
    {"gradient_predivide_factor", "an average is divided where its type has room; delete the key"},
    {"gradient_allreduce_op", "gradients are averaged; multiply the learning rate by the number of ranks for a sum"},
    {"sparse_gradients", "gradients must be dense; make the embedding without sparse gradients, and delete the key"},
    {"amp", "this needs NVIDIA's Apex; write fp16 or bf16 instead"},
    {"torch_autocast", "write fp16 or bf16 instead, or cast in the program"},
    {"data_types", "gradients add up in the parameters' type; delete the key"},
    {"grad_accum_dtype", "gradients add up in the parameters' type; delete the key"},
    {"zero_allow_untested_optimizer", "the optimizers that are served are tested; delete the key"},
    {"zero_force_ds_cpu_optimizer", kOwnWay},
    {"disable_allgather", kOwnWay},
    {"wall_clock_breakdown", "this is not served; measure in the program, and delete the key"},
    {"memory_breakdown", "this is not served; measure in the program, and delete the key"},
    {"dump_state", "this is not served; kolo-info shows settings; delete the key"},
    {"activation_checkpointing", "this is the model's own business; write it there, and delete the key"},
    {"checkpoint", "save_checkpoint always writes in parallel; delete the key"},
    {"pipeline", "write a pipeline with kolo::Mesh, send and receive; delete the key"},
    {"elasticity", "the number of ranks is that of the job; delete the key"},
};

constexpr int kLargest = std::numeric_limits<int>::max();
/// Of what becomes a loss scale, which float32 holds.
constexpr double kLeastScale = 1e-38, kLargestScale = 1e38;
constexpr int kDeepest = 32;

/// Keys and values that are not served, with what to do.
using Unserved = std::vector<std::string>;

// An object of the file, with the path to it.
class Section {
 public:
  Section(std::string file, std::string path, const Json& json, Unserved& unserved)
      : file_(std::move(file)), path_(std::move(path)), json_(json), unserved_(unserved) {
    if (!json.is_object()) refuse("", "it is " + shown(json) + "; it must be an object, { ... }");
  }

  [[nodiscard]] bool has(const char* key) const { return json_.contains(key); }

  /// The value, or what stands in `otherwise`; from `least` to `most`, which is finite.
  double number(const char* key, double otherwise, double least, double most = std::numeric_limits<double>::max()) {
    const Json* const value = find(key);
    if (value == nullptr) return otherwise;
    const std::string what = most == std::numeric_limits<double>::max()
                                 ? "a number, " + Json(least).dump() + " or more"
                                 : "a number from " + Json(least).dump() + " to " + Json(most).dump();
    if (!value->is_number()) wrong(key, *value, what);
    const double got = value->get<double>();
    if (!(got >= least && got <= most)) wrong(key, *value, what);
    return got;
  }
  int integer(const char* key, int otherwise, int least, int most = kLargest) {
    const Json* const value = find(key);
    if (value == nullptr) return otherwise;
    const std::string what = "an integer from " + std::to_string(least) + " to " + std::to_string(most);
    if (!value->is_number()) wrong(key, *value, what);
    const double got = value->get<double>();
    if (!(got >= least && got <= most && got == std::floor(got))) wrong(key, *value, what);
    return static_cast<int>(got);
  }
  bool boolean(const char* key, bool otherwise) {
    const Json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) wrong(key, *value, "true or false");
    return value->get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) {
    const Json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) wrong(key, *value, "a text");
    return value->get<std::string>();
  }
  std::pair<double, double> pair(const char* key, std::pair<double, double> otherwise) {
    const Json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_array() || value->size() != 2 || !(*value)[0].is_number() || !(*value)[1].is_number()) {
      wrong(key, *value, "two numbers, [0.9, 0.999]");
    }
    return {(*value)[0].get<double>(), (*value)[1].get<double>()};
  }
  std::optional<Section> section(const char* key) {
    const Json* const value = find(key);
    if (value == nullptr) return std::nullopt;
    return Section(file_, under(key), *value, unserved_);
  }
  Section section_or_empty(const char* key) {
    static const Json& nothing = *new Json(Json::object());  // never destroyed: a thread may still read at exit
    const Json* const value = find(key);
    return {file_, under(key), value == nullptr ? nothing : *value, unserved_};
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& sentence) const {
    const std::string where = key.empty() ? path_ : under(key);
    throw Error(ErrorCode::invalid_argument, file_ + ": " + (where.empty() ? "" : where + ": ") + sentence);
  }
  /// It is refused at the end, with what else is not served.
  void note_unserved(const std::string& key, const std::string& sentence) const {
    unserved_.push_back(under(key) + ": " + sentence);
  }
  [[noreturn]] void wrong(const std::string& key, const Json& value, const std::string& wanted) const {
    if (value.is_string() && value.get<std::string>() == "auto") {
      refuse(key, "\"auto\" is for HuggingFace's Trainer, which puts a value here; write " + wanted);
    }
    refuse(key, "it is " + shown(value) + "; it must be " + wanted);
  }

  /// Of a key that has one value alone, which may be written.
  void only(const char* key, bool value) {
    if (boolean(key, value) != value) note_unserved(key, advice_for(under(key)));
  }

  /// What has not been read is not served.
  void end() const {
    for (const auto& item : json_.items()) {
      if (read_.count(item.key()) == 0) note_unserved(shortened(item.key()), advice_for(under(item.key())));
    }
  }

 private:
  static std::string shortened(const std::string& text) { return text.size() > 60 ? text.substr(0, 60) + "..." : text; }
  static std::string shown(const Json& value) {
    return shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  static std::string advice_for(const std::string& path) {
    for (const Advice& advice : kAdvice) {
      if (path.compare(0, advice.path.size(), advice.path) == 0) return std::string(advice.sentence);
    }
    return std::string(kNoSuch);
  }
  [[nodiscard]] std::string under(const std::string& key) const { return path_.empty() ? key : path_ + '.' + key; }
  const Json* find(const char* key) {
    const auto found = json_.find(key);
    if (found == json_.end()) return nullptr;
    read_.insert(key);
    return &*found;
  }

  std::string file_, path_;
  const Json& json_;
  Unserved& unserved_;
  std::set<std::string> read_;
};

// Two of the three numbers give the third; DeepSpeed takes one of the two batch sizes alone, too.
void read_batch_sizes(Section& top, DeepSpeedConfig& config, int ranks) {
  const int all = top.integer("train_batch_size", 0, 1);
  int micro = top.integer("train_micro_batch_size_per_gpu", 0, 1);
  int steps = top.integer("gradient_accumulation_steps", 0, 1);
  const auto quotient = [&](const std::string& key, std::int64_t divisor, const std::string& what) {
    if (all % divisor != 0) {
      top.refuse("train_batch_size", std::to_string(all) + " is no multiple of " + std::to_string(divisor) + ", " +
                                         what + "; change one of them, or leave " + key +
                                         " and train_batch_size to be found");
    }
    return static_cast<int>(all / divisor);
  };
  const std::string of_ranks = std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  if (all == 0 && micro == 0) {
    top.refuse("train_batch_size", "it is missing; write it, or train_micro_batch_size_per_gpu, and "
                                   "gradient_accumulation_steps where that is not 1");
  }
  if (all != 0 && micro != 0 && steps == 0) {
    steps = quotient("gradient_accumulation_steps", std::int64_t{micro} * ranks,
                     "train_micro_batch_size_per_gpu " + std::to_string(micro) + " times " + of_ranks);
  }
  if (steps == 0) steps = 1;
  if (micro == 0) {
    micro = quotient("train_micro_batch_size_per_gpu", std::int64_t{steps} * ranks,
                     "gradient_accumulation_steps " + std::to_string(steps) + " times " + of_ranks);
  }
  const std::string factors = "train_micro_batch_size_per_gpu " + std::to_string(micro) +
                              " times gradient_accumulation_steps " + std::to_string(steps) + " times " + of_ranks;
  if (std::int64_t{micro} * steps > kLargest / ranks) {
    top.refuse("train_batch_size", factors + " is more than " + std::to_string(kLargest) + "; write smaller numbers");
  }
  const int product = micro * steps * ranks;
  if (all != 0 && product != all) {
    top.refuse("train_batch_size", "it is " + std::to_string(all) + ", but " + factors + " is " +
                                       std::to_string(product) + "; delete one of the three");
  }
  config.micro_batch_size = micro;
  config.accumulation_steps = steps;
}

void read_optimizer(Section& top, DeepSpeedConfig& config) {
  std::optional<Section> section = top.section("optimizer");
  if (!section) top.refuse("optimizer", "it is missing; write one of type SGD, Adam or AdamW");
  const std::string type = section->text("type", "");
  const std::string kind = base::in_lower_case(type);
  Section params = section->section_or_empty("params");
  config.learning_rate = params.number("lr", 1e-3, 0);
  if (kind == "sgd") {
    config.weight_decay = params.number("weight_decay", 0, 0);
    config.optimizer = DeepSpeedConfig::Optimizer::sgd;
    config.momentum = params.number("momentum", 0, 0);
    config.dampening = params.number("dampening", 0, 0);
    config.nesterov = params.boolean("nesterov", false);
    if (config.nesterov && !(config.momentum > 0 && config.dampening == 0)) {
      params.refuse("nesterov", "it needs a momentum of more than 0, and no dampening");
    }
  } else if (kind == "adam" || kind == "adamw") {
    // DeepSpeed's Adam decays weights as AdamW does unless adam_w_mode is false.
    const bool decoupled = params.boolean("adam_w_mode", true) || kind == "adamw";
    config.optimizer = decoupled ? DeepSpeedConfig::Optimizer::adamw : DeepSpeedConfig::Optimizer::adam;
    // Of the two that DeepSpeed has, PyTorch's has another default.
    config.weight_decay = params.number("weight_decay", params.boolean("torch_adam", false) && decoupled ? 1e-2 : 0, 0);
    config.betas = params.pair("betas", config.betas);
    for (const double beta : {config.betas.first, config.betas.second}) {
      if (!(beta >= 0 && beta < 1)) params.refuse("betas", "each must be 0 or more and less than 1");
    }
    config.eps = params.number("eps", 1e-8, 0);
    config.amsgrad = params.boolean("amsgrad", false);
    params.only("bias_correction", true);
  } else {
    return section->note_unserved("type", quoted_name(type) + " is not served; write SGD, Adam or AdamW");
  }
  params.end();
  section->end();
}

void read_scheduler(Section& top, DeepSpeedConfig& config) {
  std::optional<Section> section = top.section("scheduler");
  if (!section) return;
  DeepSpeedConfig::Schedule schedule;
  const std::string type = section->text("type", "");
  if (type != "WarmupLR" && type != "WarmupDecayLR") {
    return section->note_unserved(
        "type", quoted_name(type) + " is not served; write WarmupLR or WarmupDecayLR, or set the rate in the program "
                                    "(engine.optimizer())");
  }
  schedule.decays = type == "WarmupDecayLR";
  Section params = section->section_or_empty("params");
  if (schedule.decays) {
    if (!params.has("total_num_steps")) params.refuse("total_num_steps", "it is missing; WarmupDecayLR needs it");
    schedule.total_steps = params.integer("total_num_steps", 0, 1);
  }
  schedule.min_rate = params.number("warmup_min_lr", 0, 0);
  schedule.max_rate = params.number("warmup_max_lr", schedule.decays ? 1e-3 : config.learning_rate, 0);
  schedule.warmup_steps = std::max(2, params.integer("warmup_num_steps", 1000, 0));  // DeepSpeed's rule
  const std::string warmup = params.text("warmup_type", "log");
  if (warmup != "log" && warmup != "linear") {
    params.refuse("warmup_type", "it is " + quoted_name(warmup) + "; it must be \"log\" or \"linear\"");
  }
  schedule.is_linear = warmup == "linear";
  params.end();
  section->end();
  config.schedule = schedule;
}

void read_precision(Section& top, DeepSpeedConfig& config) {
  std::optional<Section> half = top.section("fp16"), brain = top.section("bf16");
  if (half) {
    if (half->boolean("enabled", false)) config.precision = DType::float16;
    LossScalerOptions& scaler = config.loss_scaler;
    scaler.loss_scale = half->number("loss_scale", 0, 0, kLargestScale);
    scaler.initial_scale_power = half->integer("initial_scale_power", 16, 0, 126);
    scaler.loss_scale_window = half->integer("loss_scale_window", 1000, 1);
    scaler.hysteresis = half->integer("hysteresis", 2, 1);
    scaler.min_loss_scale = half->number("min_loss_scale", 1, kLeastScale, kLargestScale);
    for (const char* key : {"auto_cast", "consecutive_hysteresis", "fp16_master_weights_and_grads"})
      half->only(key, false);
    half->end();
  }
  if (brain) {
    if (brain->boolean("enabled", false)) {
      if (config.precision) top.refuse("bf16", "fp16 is enabled, too; one of them can be");
      config.precision = DType::bfloat16;
    }
    brain->end();
  }
}

void read_communication(Section& top, DeepSpeedConfig& config) {
  const std::string name = top.text("communication_data_type", "");
  if (name.empty()) return;
  std::optional<DType> type;
  if (name == "fp16" || name == "float16" || name == "half") type = DType::float16;
  if (name == "bf16" || name == "bfloat16") type = DType::bfloat16;
  if (!type && name != "fp32" && name != "float32" && name != "float") {
    top.refuse("communication_data_type", "it is " + quoted_name(name) + "; it must be \"fp32\", \"fp16\" or \"bf16\"");
  }
  if (config.precision && type != config.precision) {
    top.note_unserved("communication_data_type",
                      "gradients of 16 bits travel as they are, and are summed in float32; delete the key");
  }
  if (!config.precision) config.communication = type;
}

Json parsed(const std::string& file, std::string_view text) {
  // A key that stands twice in an object: the later one would count, silently.
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kDeepest) {
      throw Error(ErrorCode::invalid_argument, file + ": objects and lists are nested more than " +
                                                   std::to_string(kDeepest) +
                                                   " deep; DeepSpeed's "
                                                   "are 3 deep");
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw Error(ErrorCode::invalid_argument, file + ": the key " + quoted_name(value.get<std::string>()) +
                                                   " stands twice in one object; delete one");
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::invalid_argument, file + ": it is no JSON: " + error.what());
  }
}

void check_served(const std::string& file, const Unserved& unserved) {
  if (unserved.empty()) return;
  std::string sentence = file + ": ";
  if (unserved.size() > 1) sentence += std::to_string(unserved.size()) + " entries are not served: ";
  for (const std::string& one : unserved) sentence += (&one == unserved.data() ? "" : ". ") + one;
  throw Error(ErrorCode::unsupported, sentence);
}

}  // namespace

double DeepSpeedConfig::Schedule::rate_after(std::int64_t steps) const {
  if (steps == 0) return min_rate;
  const auto done = static_cast<double>(steps - 1);
  double share = 1;
  if (done < warmup_steps) {
    share = is_linear ? done / warmup_steps : std::log(done + 1) / std::log(static_cast<double>(warmup_steps));
  } else if (decays) {
    share = std::max(0.0, (total_steps - done) / std::max(1.0, static_cast<double>(total_steps) - warmup_steps));
  }
  return min_rate + (max_rate - min_rate) * share;
}

DeepSpeedConfig DeepSpeedConfig::parse(const std::string& file, std::string_view text, int ranks) {
  const Json json = parsed(file, text);
  Unserved unserved;
  Section top(file, "", json, unserved);
  DeepSpeedConfig config;
  read_batch_sizes(top, config, ranks);
  read_optimizer(top, config);
  read_scheduler(top, config);
  read_precision(top, config);
  if (std::optional<Section> zero = top.section("zero_optimization")) {
    config.stage = zero->integer("stage", 0, 0);
    if (config.stage > 2) {
      zero->note_unserved("stage", "it is " + std::to_string(config.stage) +
                                       "; 0, 1 and 2 are served: with 2 each rank has all parameters, and its share of "
                                       "gradients and optimizer state");
    }
    zero->end();
  }
  const double clipping = top.number("gradient_clipping", 0, 0);
  if (clipping > 0) config.gradient_clipping = clipping;
  read_communication(top, config);
  config.steps_per_print = top.integer("steps_per_print", 10, 0);
  top.end();
  check_served(file, unserved);
  return config;
}

}  // namespace kolo::libtorch
