// The first layer of the summary readout: piecewise-linear encodings of what is known, one matrix and SiLU.
#pragma once

#include <algorithm>
#include <vector>

#include "aligned.hpp"
#include "single.hpp"
#include "stream.hpp"

namespace neuralcde::LEVEL {

// Internal linkage, because the file is compiled per instruction-set level. Only stream.cpp includes it.
namespace {

// The first layer of a summary readout, as a table: the sum over the bins of a number is linear within each bin.
template <class Real>
class Summary {
  public:
    explicit Summary(const StreamModel<Real>& model) : bins(model.bins), stride(padded_to_lanes<Real>(model.width)) {
        if (!model.summary) return;
        numbers = static_cast<int>(model.edges.size()) / bins;
        clock = 1 + static_cast<int>(model.summary_inputs.knots.size());
        edges.assign(model.edges.begin(), model.edges.end());
        rises.assign(model.inverse_widths.begin(), model.inverse_widths.end());
        const int64_t inputs = int64_t(numbers) * bins + clock;
        table = Aligned<Real>(static_cast<size_t>((2 * int64_t(numbers) * bins + clock + 1) * stride));
        std::vector<double> base(stride, 0.0), sum(stride);
        for (int o = 0; o < model.width; ++o) base[o] = model.summary_bias[o];
        for (int n = 0; n < numbers; ++n) {
            std::fill(sum.begin(), sum.end(), 0.0);
            int used = 0;
            for (int b = 0; b < bins; ++b) {
                const int64_t k = int64_t(n) * bins + b;
                if (model.inverse_widths[k] > 0) used = b + 1;
                for (int o = 0; o < model.width; ++o) {
                    const double w = model.summary_weight[o * inputs + k] * model.inverse_deviation[k];
                    row(2 * k)[o] = static_cast<Real>(sum[o]), row(2 * k + 1)[o] = static_cast<Real>(w);
                    base[o] -= w * model.encoding_mean[k];
                    sum[o] += w;
                }
            }
            counts.push_back(used);
        }
        for (int c = 0; c < clock; ++c)
            for (int o = 0; o < model.width; ++o)
                row(first_clock() + c)[o] =
                    static_cast<Real>(model.summary_weight[o * inputs + int64_t(numbers) * bins + c]);
        for (int o = 0; o < model.width; ++o) row(first_clock() + clock)[o] = static_cast<Real>(base[o]);
    }

    void reserve(Scratch<Real>& scratch) const { scratch.reserve(2 * numbers + clock, stride); }

    // SiLU of the layer, for these summaries, static features and clock; they are put together here.
    void evaluate(const Real* known, const Real* statics, int channels_known, Scratch<Real>& scratch, Real* out,
                  int width) const {
        int count = 0;
        auto add = [&](int64_t row, Real value) {
            scratch.rows[count] = static_cast<int>(row), scratch.values[count] = value;
            count += value != 0;
        };
        // The numbers are the features of channels, the clock's time, and the static features.
        for (int n = 0; n < numbers; ++n) {
            const Real x = n <= channels_known ? known[n] : statics[n - channels_known - 1];
            const Real* edge = edges.data() + int64_t(n) * bins;
            int b = 0;
            while (b + 1 < counts[n] && x >= edge[b + 1]) ++b;
            const int64_t k = int64_t(n) * bins + b;
            Real share = (x - edge[b]) * rises[k];
            share = share < Real(0) ? Real(0) : share > Real(1) ? Real(1) : share;
            if (b) add(2 * k, 1);
            add(2 * k + 1, share);
        }
        for (int c = 0; c < clock; ++c) add(first_clock() + c, known[channels_known + c]);
        Real* sums = scratch.sums.data();
        std::copy(row(first_clock() + clock), row(first_clock() + clock) + stride, sums);
        add_rows<Real, false>(table.data(), stride, {scratch.rows.data(), scratch.values.data(), count}, sums);
        apply_to<Real>(Function::silu, sums, out, width);
    }

  private:
    int64_t first_clock() const { return 2 * int64_t(numbers) * bins; }
    Real* row(int64_t k) { return table.data() + k * stride; }
    const Real* row(int64_t k) const { return table.data() + k * stride; }

    int bins, numbers = 0, clock = 0;
    int64_t stride;
    std::vector<Real> edges, rises;
    std::vector<int> counts;
    Aligned<Real> table;  // per bin: the sum of the bins before it, and the slope within it; then the clock; the bias
};

}  // namespace

}  // namespace neuralcde::LEVEL
