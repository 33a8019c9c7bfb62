// Scaling of the values of one row; its specification is series/row_scaling.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "stream.hpp"

namespace neuralcde::LEVEL {

// Internal linkage, because the file is compiled per instruction-set level. Only stream.cpp includes it.
namespace {

constexpr double beyond = 0.5;  // BEYOND in series/quantile_scale.py

// QuantileScale.transform.
inline double score(const RowScale& s, int c, double x) {
    const double *knots = s.knots.data() + c * s.most, *scores = s.scores.data() + c * s.most;
    const int64_t last = s.counts[c] - 1;
    if (x < knots[0]) {
        const double unit = beyond * (knots[1] - knots[0]) / (scores[1] - scores[0]);
        return scores[0] + beyond * std::expm1(-(knots[0] - x) / unit);
    }
    if (x > knots[last]) {
        const double unit = beyond * (knots[last] - knots[last - 1]) / (scores[last] - scores[last - 1]);
        return scores[last] - beyond * std::expm1(-(x - knots[last]) / unit);
    }
    int64_t piece = std::upper_bound(knots, knots + last + 1, x) - knots - 1;
    piece = std::min(piece, last - 1);
    const double part = (x - knots[piece]) / (knots[piece + 1] - knots[piece]);
    return scores[piece] + part * (scores[piece + 1] - scores[piece]);
}

// Scales the values of a row; far values and NaN become NaN.
template <class Training, class Real>
void scale_as(const RowScale& s, const double* given, int channels, Real* x) {
    for (int c = 0; c < channels; ++c) {
        Training v = static_cast<Training>(given[c]);
        if (!(v >= static_cast<Training>(s.lowest[c]) && v <= static_cast<Training>(s.highest[c]))) {
            x[c] = std::numeric_limits<Real>::quiet_NaN();
            continue;
        }
        Training scaled = (v - static_cast<Training>(s.mean[c])) / static_cast<Training>(s.deviation[c]);
        if (s.mapped[c]) scaled = static_cast<Training>(score(s, c, static_cast<double>(v)));
        x[c] = static_cast<Real>(static_cast<float>(scaled * static_cast<Training>(s.use[c])));
    }
}

// The same in the dtype of the training table.
template <class Real>
void scale_row(const RowScale& s, const double* given, int channels, Real* x) {
    if (s.single)
        scale_as<float>(s, given, channels, x);
    else
        scale_as<double>(s, given, channels, x);
}

}  // namespace

}  // namespace neuralcde::LEVEL
