// The row-feature kernels of one instruction-set level, as a table of functions.
//
// A row of the output holds the families in the order asked for, each with one feature per channel.
#pragma once

#include <cstdint>
#include <vector>

#include "splines.hpp"

namespace neuralcde {

// In the order of FAMILIES in series/row_features.py.
enum class Family : int { last, mean, deviation, minimum, maximum, observed, seen, count, elapsed };
constexpr int family_count = 9;

template <class Real>
struct RowFeatures {
    void (*forward)(const Batch<Real>&, const std::vector<Family>&, Real* features);
    // The vector-Jacobian product with respect to the values, which is overwritten.
    void (*backward)(const Batch<Real>&, const std::vector<Family>&, const Real* gradient, Real* gradient_values);
};

}  // namespace neuralcde
