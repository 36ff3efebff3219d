// A multi-layer perceptron, 64 → hidden → hidden/2 → 10, ReLU, softmax cross-entropy, written out by hand.
//
// Tensors are numbered in the order of the forward: weights and bias of the first layer are 0 and 1, of the last 4 and 5. The
// backward completes them from the last to the first and says so for each, which lets a reduction start while the layers below
// still compute.
//
// Every sum runs in a fixed order, so the same parameters and samples give the same bytes.

#ifndef GRADGATE_EXAMPLES_DIGITS_NETWORK_H_
#define GRADGATE_EXAMPLES_DIGITS_NETWORK_H_

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "examples/digits/dataset.h"

namespace digits {

template <typename T>
class Network {
 public:
  static constexpr uint32_t kLayers = 3;
  static constexpr uint32_t kTensors = 2 * kLayers;

  struct Score {
    double loss_sum = 0;
    uint32_t correct = 0;
  };

  // Random weights, zero biases; hidden >= 2.
  Network(uint32_t hidden, uint64_t seed);

  static std::string TensorName(uint32_t tensor);
  uint64_t TensorSize(uint32_t tensor) const { return layers_[tensor / 2].size[tensor % 2]; }
  std::span<T> Tensor(uint32_t tensor);
  std::span<const T> Parameters() const { return parameters_; }  // all tensors, one after another

  // Runs a batch, and keeps what the backward needs.
  Score Forward(std::span<const Image* const> batch);

  // Adds d(scale × sum of the batch's losses) to gradients[tensor]; calls ready(tensor) when a tensor's is complete. After
  // Forward.
  void Backward(T scale, std::span<const std::span<T>> gradients, const std::function<void(uint32_t)>& ready);

  // 64-bit FNV-1a over the parameters' bytes.
  uint64_t Hash() const;

 private:
  struct Layer {
    uint32_t in, out;
    uint64_t offset[2];  // of weights [in][out] and bias [out] in parameters_
    uint64_t size[2];
    std::vector<T> output;  // [batch][out], after ReLU; of the last layer: probabilities
    std::vector<T> delta;   // [batch][out], d(loss) before the ReLU
  };

  const std::vector<T>& Input(uint32_t layer) const { return layer == 0 ? input_ : layers_[layer - 1].output; }
  void Softmax(std::span<const Image* const> batch, Score* score);
  void PropagateDelta(uint32_t layer);

  std::array<Layer, kLayers> layers_;
  std::vector<T> parameters_;
  std::vector<T> input_;  // [batch][64], 0 to 1
  std::vector<uint8_t> labels_;
};

}  // namespace digits

#endif  // GRADGATE_EXAMPLES_DIGITS_NETWORK_H_
