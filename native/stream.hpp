// Streams: the state of a model after one more row, and its outputs, in one call. What the bindings and the kernels
// agree on.
//
// A stream has two rows of numbers, see Layout in models/stream_state.py: `real` holds the last values and extremes of
// the channels, static features, then per model the state z and the last rows of X; `doubles` holds the clock, then
// counts, times, means and squares of the channels, then per model the integral of the state.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine.hpp"
#include "row_features.hpp"

namespace neuralcde {

// The clock of a stream, in the order of CLOCK in models/stream_state.py.
struct Clock {
    enum : int { rows, start, time, earlier, jumped, jumps };
};
constexpr int clock_count = 6;

enum class Scheme : int { linear, rectilinear, hermite };
enum class Pool : int { last, mean, both };
enum class Cell : int { none, values, shifted, decaying, paper_decaying };  // what the inputs of a cell are made of

// The inputs of encoders and readouts (RowInputs).
template <class Real>
struct KnownInputs {
    std::vector<Family> families;
    std::vector<Real> knots;
    double scale = 1;
    bool common_origin = false;
};

// Scaling of the values of a row (RowScaling). Rows of knots and scores are padded.
struct RowScale {
    bool present = false, single = true;
    double time = 1;
    std::vector<double> mean, deviation, use, lowest, highest, knots, scores;
    std::vector<int64_t> mapped, counts;
    int64_t most = 0;  // knots per channel, padded
};

template <class Real>
struct StreamModel {
    int hidden = 0, channels = 0, memory = 1, outputs = 0;
    int64_t real_start = 0, double_start = 0;
    bool timed = true, values_first = false;
    Scheme scheme = Scheme::linear;
    Pool pool = Pool::last;
    Program<Real> encoder, of_start, of_static, flow, jump, readout;  // those that are not there have no operations
    KnownInputs<Real> encoder_inputs;
    Drive drive = Drive::increment;
    Tableau tableau;
    int substeps = 1;
    double step_size = 0;  // FixedSteps; 0: substeps
    Cell cell = Cell::none;
    bool mask = false;  // whether the inputs of the cell hold what was observed
    std::vector<Real> fade_weight, fade_bias, means;
    // The summary readout: piecewise-linear encodings and the clock go through one layer and SiLU.
    bool summary = false;
    KnownInputs<Real> summary_inputs;
    int bins = 0, width = 0;
    std::vector<double> edges, inverse_widths, encoding_mean, inverse_deviation;  // (numbers, bins)
    std::vector<double> summary_weight, summary_bias;                              // (width, numbers * bins + clock)
};

template <class Real>
struct StreamPlan {
    int data = 0, statics = 0;
    int64_t reals = 0, doubles = 0;
    int counts = 0;  // 0: none, 1: shared, 2: per channel
    bool from_start = true, moments = false, extremes = false;
    double time_scale = 1, count_scale = 1;
    std::vector<double> count_scales;
    RowScale scaling;
    std::vector<StreamModel<Real>> models;
};

// A plan with its weights packed.
template <class Real>
class StreamRunner {
  public:
    virtual ~StreamRunner() = default;
    virtual void update(int64_t streams, Real* real, double* doubles, const double* t, const double* x,
                        int threads) const = 0;
    virtual void read(int64_t streams, const Real* real, const double* doubles, Real* outputs, int threads) const = 0;
};

template <class Real>
struct StreamKernels {
    std::unique_ptr<StreamRunner<Real>> (*prepare)(const StreamPlan<Real>&);
};

}  // namespace neuralcde
