// The training loop: the part to copy.

#ifndef GRADGATE_EXAMPLES_DIGITS_TRAINER_H_
#define GRADGATE_EXAMPLES_DIGITS_TRAINER_H_

#include "examples/digits/options.h"
#include "examples/digits/report.h"

namespace digits {

// Trains as options.rank of options.world_size, or alone. Prints progress on rank 0. Throws gradgate::Error and
// std::runtime_error.
RankReport Train(const Options& options);

}  // namespace digits

#endif  // GRADGATE_EXAMPLES_DIGITS_TRAINER_H_
