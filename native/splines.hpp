// The spline kernels of one instruction-set level, as a table of functions.
//
// Ragged layout: the rows of series i are offsets[i] .. offsets[i + 1] - 1. NaN means not observed. A series of n
// rows has max(n - 1, 1) pieces, stored one series after the other. A piece has four coefficients of u in [0, 1] per
// channel, coefficients[(piece * 4 + power) * channels + channel].
#pragma once

#include <cstdint>

namespace neuralcde {

template <class Real>
struct Batch {
    const double* times;
    const Real* values;
    const int64_t* offsets;
    int64_t series;
    int64_t channels;
    int threads;
};

// Slopes of a cubic at the observations of a channel: those that make it twice differentiable, or the slope of the gap
// before (at the first observation, of the first gap).
enum class Slopes : int { natural, backward };

template <class Real>
struct Splines {
    // Cubic of each channel through its own observations.
    void (*cubic)(const Batch<Real>&, Slopes, Real* coefficients);
    // Its vector-Jacobian product; gradient_times may be null. Both gradients are overwritten.
    void (*cubic_backward)(const Batch<Real>&, Slopes, const Real* gradient, Real* gradient_values,
                           double* gradient_times);
    // Lines between the observations of each channel; coefficients[(piece * 2 + power) * channels + channel].
    void (*linear)(const Batch<Real>&, Real* coefficients);
    // Smoothed values at the observations: (I + penalty K)^-1 x, with K the roughness of the natural spline.
    // Self-adjoint.
    void (*smooth)(const Batch<Real>&, double penalty, Real* smoothed);
};

}  // namespace neuralcde
