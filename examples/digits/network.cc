#include "examples/digits/network.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "examples/digits/random.h"

namespace digits {
namespace {

// y += a · x.
template <typename T>
void AddScaled(T a, const T* x, T* y, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) y[i] += a * x[i];
}

// Eight partial sums in a fixed order: fast without leave to reorder.
template <typename T>
T Dot(const T* x, const T* y, uint32_t count) {
  T lanes[8] = {};
  uint32_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (uint32_t lane = 0; lane < 8; ++lane) lanes[lane] += x[i + lane] * y[i + lane];
  }
  T sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  for (; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

template <typename T>
Network<T>::Network(uint32_t hidden, uint64_t seed) {
  const uint32_t width[kLayers + 1] = {kPixels, hidden, hidden / 2, kClasses};
  uint64_t offset = 0;
  for (uint32_t l = 0; l < kLayers; ++l) {
    Layer& layer = layers_[l];
    layer.in = width[l];
    layer.out = width[l + 1];
    layer.size[0] = uint64_t{layer.in} * layer.out;
    layer.size[1] = layer.out;
    for (int part = 0; part < 2; ++part) {
      layer.offset[part] = offset;
      offset += layer.size[part];
    }
  }
  parameters_.assign(offset, T{0});
  Random random(seed);
  for (uint32_t l = 0; l < kLayers; ++l) {
    const double limit = std::sqrt(6.0 / layers_[l].in);
    for (T& weight : Tensor(2 * l)) weight = static_cast<T>(random.Uniform(-limit, limit));
  }
}

template <typename T>
std::string Network<T>::TensorName(uint32_t tensor) {
  return "layer" + std::to_string(tensor / 2) + (tensor % 2 == 0 ? ".weights" : ".bias");
}

template <typename T>
std::span<T> Network<T>::Tensor(uint32_t tensor) {
  const Layer& layer = layers_[tensor / 2];
  return std::span<T>(parameters_).subspan(layer.offset[tensor % 2], layer.size[tensor % 2]);
}

template <typename T>
typename Network<T>::Score Network<T>::Forward(std::span<const Image* const> batch) {
  input_.resize(batch.size() * kPixels);
  labels_.resize(batch.size());
  for (size_t b = 0; b < batch.size(); ++b) {
    for (uint32_t p = 0; p < kPixels; ++p) input_[b * kPixels + p] = static_cast<T>(batch[b]->pixels[p]) / T{16};
    labels_[b] = batch[b]->label;
  }
  for (uint32_t l = 0; l < kLayers; ++l) {
    Layer& layer = layers_[l];
    const std::span<const T> weights = Tensor(2 * l), bias = Tensor(2 * l + 1);
    const std::vector<T>& input = Input(l);
    layer.output.resize(batch.size() * layer.out);
    for (size_t b = 0; b < batch.size(); ++b) {
      T* const output = &layer.output[b * layer.out];
      std::copy(bias.begin(), bias.end(), output);
      for (uint32_t i = 0; i < layer.in; ++i) {
        const T x = input[b * layer.in + i];
        if (x != 0) AddScaled(x, &weights[uint64_t{i} * layer.out], output, layer.out);  // ink and ReLU leave many zeros
      }
      if (l + 1 < kLayers) {
        for (uint32_t o = 0; o < layer.out; ++o) output[o] = std::max(output[o], T{0});
      }
    }
  }
  Score score;
  Softmax(batch, &score);
  return score;
}

template <typename T>
void Network<T>::Softmax(std::span<const Image* const> batch, Score* score) {
  for (size_t b = 0; b < batch.size(); ++b) {
    T* const output = &layers_.back().output[b * kClasses];
    const T top = *std::max_element(output, output + kClasses);
    score->correct += output[batch[b]->label] == top;
    T sum = 0;
    for (uint32_t c = 0; c < kClasses; ++c) sum += output[c] = std::exp(output[c] - top);
    for (uint32_t c = 0; c < kClasses; ++c) output[c] /= sum;
    score->loss_sum -= std::log(std::max(static_cast<double>(output[batch[b]->label]), 1e-30));
  }
}

template <typename T>
void Network<T>::Backward(T scale, std::span<const std::span<T>> gradients, const std::function<void(uint32_t)>& ready) {
  Layer& last = layers_.back();
  last.delta = last.output;
  for (size_t b = 0; b < labels_.size(); ++b) last.delta[b * kClasses + labels_[b]] -= T{1};
  for (T& delta : last.delta) delta *= scale;

  for (uint32_t l = kLayers; l-- > 0;) {
    const Layer& layer = layers_[l];
    const std::vector<T>& input = Input(l);
    for (size_t b = 0; b < labels_.size(); ++b) {
      const T* const delta = &layer.delta[b * layer.out];
      AddScaled(T{1}, delta, gradients[2 * l + 1].data(), layer.out);
      for (uint32_t i = 0; i < layer.in; ++i) {
        const T x = input[b * layer.in + i];
        if (x != 0) AddScaled(x, delta, &gradients[2 * l][uint64_t{i} * layer.out], layer.out);
      }
    }
    ready(2 * l + 1);
    ready(2 * l);
    if (l > 0) PropagateDelta(l);
  }
}

// Of the layer below, from this one's.
template <typename T>
void Network<T>::PropagateDelta(uint32_t l) {
  const Layer& layer = layers_[l];
  Layer& below = layers_[l - 1];
  const std::span<const T> weights = Tensor(2 * l);
  below.delta.resize(below.output.size());
  for (size_t b = 0; b < labels_.size(); ++b) {
    for (uint32_t i = 0; i < layer.in; ++i) {
      const size_t at = b * layer.in + i;
      below.delta[at] =
          below.output[at] > 0 ? Dot(&weights[uint64_t{i} * layer.out], &layer.delta[b * layer.out], layer.out) : T{0};
    }
  }
}

template <typename T>
uint64_t Network<T>::Hash() const {
  uint64_t hash = 0xcbf29ce484222325;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(parameters_.data());
  for (size_t i = 0; i < parameters_.size() * sizeof(T); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

template class Network<float>;
template class Network<double>;

}  // namespace digits
