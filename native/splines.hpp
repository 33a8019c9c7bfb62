// The spline kernels of one instruction-set level, as a table of functions.
//
// Ragged layout: the rows of series i are offsets[i] .. offsets[i + 1] - 1; NaN means not observed. A series of n rows
// has max(n - 1, 1) pieces, stored one series after the other; a piece is four coefficients of u in [0, 1] a channel,
// coefficients[(piece * 4 + power) * channels + channel].
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

// Which slopes a cubic has at a channel's observations: those that make it twice differentiable, or those of the gap
// before (of the first gap, at the first observation).
enum class Slopes : int { natural, backward };

template <class Real>
struct Splines {
    // Cubic of each channel through its own observations.
    void (*cubic)(const Batch<Real>&, Slopes, Real* coefficients);
    // Its vector-Jacobian product; gradient_times may be null. Both gradients are overwritten.
    void (*cubic_backward)(const Batch<Real>&, Slopes, const Real* gradient, Real* gradient_values,
                           double* gradient_times);
    // Straight lines between each channel's own observations; coefficients[(piece * 2 + power) * channels + channel].
    void (*linear)(const Batch<Real>&, Real* coefficients);
    // Smoothed values at the observations: (I + penalty K)^-1 x, K the roughness of the natural spline. Self-adjoint.
    void (*smooth)(const Batch<Real>&, double penalty, Real* smoothed);
};

}  // namespace neuralcde
