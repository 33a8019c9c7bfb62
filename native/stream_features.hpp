// What is known of the channels of a stream at its last row, and the inputs of encoders and readouts made of it.
#pragma once

#include <algorithm>
#include <cmath>

#include "stream.hpp"

namespace neuralcde::LEVEL {

// Internal linkage, because the file is compiled per instruction-set level. Only stream.cpp includes it.
namespace {

inline double log_one_plus(double x) {  // as in row_features.cpp
    const double sum = 1 + x;
    return sum < HUGE_VAL ? std::log(sum) + (x - (sum - 1)) / sum : HUGE_VAL;
}

// The statistics of the channels of one stream, in its two rows of numbers.
template <class Real, class RealPointer, class DoublePointer>
struct Channels {
    Channels(RealPointer real, DoublePointer doubles, int data)
        : clock(doubles),
          count(doubles + clock_count),
          seen_at(count + data),
          mean(seen_at + data),
          squares(mean + data),
          last(real),
          low(real + data),
          high(low + data) {}
    DoublePointer clock, count, seen_at, mean, squares;
    RealPointer last, low, high;
};

// The features of what is known at the last row: channels, then the clock.
template <class Real>
void write_known(const KnownInputs<Real>& inputs, const Channels<Real, const Real*, const double*>& s, int data,
                 Real* out) {
    const double now = s.clock[Clock::time];
    for (Family family : inputs.families) {
        auto each = [&](auto feature) {
            for (int c = 0; c < data; ++c) out[c] = static_cast<Real>(feature(c));
        };
        switch (family) {
            case Family::last: each([&](int c) { return s.last[c]; }); break;
            case Family::mean: each([&](int c) { return s.mean[c]; }); break;
            case Family::deviation:
                each([&](int c) { return std::sqrt(s.squares[c] / (s.count[c] > 0 ? s.count[c] : 1)); });
                break;
            case Family::minimum: each([&](int c) { return s.low[c]; }); break;
            case Family::maximum: each([&](int c) { return s.high[c]; }); break;
            case Family::observed:
                each([&](int c) { return s.count[c] > 0 && s.seen_at[c] == now ? 1.0 : 0.0; });
                break;
            case Family::seen: each([&](int c) { return s.count[c] > 0 ? 1.0 : 0.0; }); break;
            case Family::count: each([&](int c) { return s.count[c] > 0 ? log_one_plus(s.count[c]) : 0.0; }); break;
            case Family::elapsed: {
                double from = now, logarithm = 0;  // channels of one row have the same time, so the same logarithm
                each([&](int c) {
                    if (s.seen_at[c] != from) from = s.seen_at[c], logarithm = log_one_plus(now - from);
                    return logarithm;
                });
                break;
            }
        }
        out += data;
    }
    const double since = now - s.clock[Clock::start];
    const double hour = since + (inputs.common_origin ? 1.0 : 0.0) * (now - since);
    *out++ = static_cast<Real>(hour / inputs.scale);
    const int hats = static_cast<int>(inputs.knots.size());
    const Real at = static_cast<Real>(hour), factor = static_cast<Real>(std::sqrt(double(hats)));
    Real before = 1;  // how far it is past the knot before: hat k is the rise to knot k less the rise after it
    for (int k = 0; k < hats; ++k) {
        Real after = 0;
        if (k + 1 < hats) {
            after = (at - inputs.knots[k]) / (inputs.knots[k + 1] - inputs.knots[k]);
            after = std::min(std::max(after, Real(0)), Real(1));
        }
        out[k] = factor * (before - after);
        before = after;
    }
}

}  // namespace

}  // namespace neuralcde::LEVEL
