// Row-feature kernels, compiled once per instruction-set level (LEVEL names the namespace). Arithmetic is float64
// inside. The inner loops run over channels and have no branches, so that they vectorise.

#include "row_features.hpp"

#include <cmath>
#include <limits>

#include "parallel.hpp"

namespace neuralcde::LEVEL {

namespace {

constexpr int64_t numbers_per_thread = 1 << 17;  // fewer are computed before a thread has started
constexpr double infinity = std::numeric_limits<double>::infinity();

// log(1 + x) for x >= 0. Much faster than std::log1p, and as accurate: the second term is the rounding error of 1 + x.
double log_one_plus(double x) {
    const double sum = 1 + x;
    return sum < infinity ? std::log(sum) + (x - (sum - 1)) / sum : infinity;
}

bool asked(const std::vector<Family>& families, Family family) {
    return std::find(families.begin(), families.end(), family) != families.end();
}

// Running statistics of every channel of one series.
struct Scan {
    bool moments, extremes, clock, logs;
    std::vector<double> count, log_count, last, mean, squares, low, high;
    // Of each channel, the row of the last observation, counted from 1 in the series; 0 before the first one. Channels
    // with the same one have the same time since then, so that its logarithm is taken once per row.
    std::vector<int64_t> seen_at;
    std::vector<double> seen_time;           // the time of each such row
    mutable std::vector<double> logarithm;   // of the time since each such row,
    mutable std::vector<int64_t> valid_for;  // and the row for which it is valid

    Scan(const std::vector<Family>& families, int64_t channels)
        : moments(asked(families, Family::mean) || asked(families, Family::deviation)),
          extremes(asked(families, Family::minimum) || asked(families, Family::maximum)),
          clock(asked(families, Family::elapsed)),
          logs(asked(families, Family::count)) {
        for (auto* part : {&count, &log_count, &last, &mean, &squares, &low, &high}) part->resize(channels);
        seen_at.resize(channels);
    }

    void start(double time) {
        seen_time.assign(1, time);
        logarithm.assign(1, 0.0);
        valid_for.assign(1, 0);
        std::fill(seen_at.begin(), seen_at.end(), 0);
        for (auto* part : {&count, &log_count, &last, &mean, &squares}) std::fill(part->begin(), part->end(), 0.0);
        std::fill(low.begin(), low.end(), infinity);
        std::fill(high.begin(), high.end(), -infinity);
    }

    template <class Real>
    void add(double time, const Real* values) {
        const int64_t channels = static_cast<int64_t>(count.size());
        for (int64_t c = 0; c < channels; ++c) {
            const double x = values[c];
            const bool here = x == x;
            count[c] += here ? 1.0 : 0.0;
            last[c] = here ? x : last[c];
        }
        if (moments)  // Welford's update
            for (int64_t c = 0; c < channels; ++c) {
                const double x = values[c], before = mean[c], now = before + (x - before) / count[c];
                const bool here = x == x;
                squares[c] = here ? squares[c] + (x - before) * (x - now) : squares[c];
                mean[c] = here ? now : before;
            }
        if (extremes)  // comparisons with NaN are false
            for (int64_t c = 0; c < channels; ++c) {
                const double x = values[c];
                low[c] = x < low[c] ? x : low[c];
                high[c] = x > high[c] ? x : high[c];
            }
        if (logs)  // a logarithm takes longer than a branch, and most values are missing
            for (int64_t c = 0; c < channels; ++c)
                if (values[c] == values[c]) log_count[c] = log_one_plus(count[c]);
        if (clock) {
            const int64_t row = static_cast<int64_t>(seen_time.size());
            seen_time.push_back(time), logarithm.push_back(0.0), valid_for.push_back(0);
            for (int64_t c = 0; c < channels; ++c) seen_at[c] = values[c] == values[c] ? row : seen_at[c];
        }
    }

    // log(1 + time since the last observation of a channel) at the row that was added last.
    double log_elapsed(int64_t channel) const {
        const int64_t from = seen_at[channel], row = static_cast<int64_t>(seen_time.size()) - 1;
        if (valid_for[from] != row) {
            valid_for[from] = row;
            logarithm[from] = log_one_plus(seen_time[row] - seen_time[from]);
        }
        return logarithm[from];
    }
};

template <class Real>
void write(Family family, const Scan& scan, const Real* values, int64_t channels, Real* out) {
    auto each = [&](auto feature) {
        for (int64_t c = 0; c < channels; ++c) out[c] = static_cast<Real>(feature(c));
    };
    switch (family) {
        case Family::last: return each([&](int64_t c) { return scan.last[c]; });
        case Family::mean: return each([&](int64_t c) { return scan.mean[c]; });
        case Family::deviation:
            return each([&](int64_t c) { return std::sqrt(scan.squares[c] / (scan.count[c] > 0 ? scan.count[c] : 1)); });
        case Family::minimum: return each([&](int64_t c) { return scan.count[c] > 0 ? scan.low[c] : 0.0; });
        case Family::maximum: return each([&](int64_t c) { return scan.count[c] > 0 ? scan.high[c] : 0.0; });
        case Family::observed: return each([&](int64_t c) { return values[c] == values[c] ? 1.0 : 0.0; });
        case Family::seen: return each([&](int64_t c) { return scan.count[c] > 0 ? 1.0 : 0.0; });
        case Family::count: return each([&](int64_t c) { return scan.log_count[c]; });
        case Family::elapsed: return each([&](int64_t c) { return scan.log_elapsed(c); });
    }
}

template <class Real>
void forward(const Batch<Real>& batch, const std::vector<Family>& families, Real* features) {
    const int64_t channels = batch.channels, width = static_cast<int64_t>(families.size()) * channels;
    parallel_over_series(batch.offsets, batch.series, batch.threads, [&](int64_t from, int64_t to) {
        Scan scan(families, channels);
        for (int64_t i = from; i < to; ++i) {
            scan.start(batch.times[batch.offsets[i]]);
            for (int64_t r = batch.offsets[i]; r < batch.offsets[i + 1]; ++r) {
                const Real* values = batch.values + r * channels;
                Real* out = features + r * width;
                scan.add(batch.times[r], values);
                for (Family family : families) {
                    write(family, scan, values, channels, out);
                    out += channels;
                }
            }
        }
    }, numbers_per_thread / std::max<int64_t>(width, 1) + 1);
}

// With n observations up to row r, mean m and deviation d, an observation x has dm/dx = 1 / n and
// dd/dx = (x - m) / (n d). The sums over r >= the row of x are running sums from the last row back.
template <class Real>
void backward(const Batch<Real>& batch, const std::vector<Family>& families, const Real* gradient,
              Real* gradient_values) {
    const int64_t channels = batch.channels, width = static_cast<int64_t>(families.size()) * channels;
    parallel_over_series(batch.offsets, batch.series, batch.threads, [&](int64_t from, int64_t to) {
        std::vector<double> means, deviations;
        for (int64_t i = from; i < to; ++i) {
            const int64_t start = batch.offsets[i], rows = batch.offsets[i + 1] - start;
            means.resize(rows), deviations.resize(rows);
            for (int64_t c = 0; c < channels; ++c) {
                const Real* x = batch.values + start * channels + c;
                Real* result = gradient_values + start * channels + c;
                // Way forward: the statistics at every row, and the first rows of the final extremes.
                double count = 0, mean = 0, squares = 0;
                for (int64_t r = 0; r < rows; ++r) {
                    const double here = x[r * channels];
                    if (here == here) {
                        const double before = mean;
                        mean += (here - before) / ++count;
                        squares += (here - before) * (here - mean);
                    }
                    means[r] = mean;
                    deviations[r] = std::sqrt(squares / (count > 0 ? count : 1));
                }
                // Deviations are summed relative to the last mean, so that a large mean cancels exactly.
                const double shift = mean;
                for (int64_t r = 0; r < rows; ++r) result[r * channels] = 0;
                std::vector<double> total(rows, 0.0);
                for (size_t f = 0; f < families.size(); ++f) {
                    const Real* g = gradient + start * width + static_cast<int64_t>(f) * channels + c;
                    const Family family = families[f];
                    if (family == Family::last || family == Family::minimum || family == Family::maximum) {
                        int64_t row = -1;  // the row that the feature is read from
                        for (int64_t r = 0; r < rows; ++r) {
                            const double here = x[r * channels];
                            if (here == here) {
                                const double held = row < 0 ? 0.0 : static_cast<double>(x[row * channels]);
                                const bool takes = row < 0 || family == Family::last ||
                                                   (family == Family::minimum ? here < held : here > held);
                                row = takes ? r : row;
                            }
                            if (row >= 0) total[row] += g[r * width];
                        }
                    } else if (family == Family::mean || family == Family::deviation) {
                        double n = count, weights = 0, weighted_means = 0;
                        for (int64_t r = rows; r-- > 0 && n > 0;) {
                            const double here = x[r * channels];
                            if (family == Family::mean) {
                                weights += g[r * width] / n;
                            } else if (deviations[r] > 0) {
                                const double weight = g[r * width] / (n * deviations[r]);
                                weights += weight;
                                weighted_means += weight * (means[r] - shift);
                            }
                            if (here == here) {
                                total[r] += family == Family::mean ? weights : weights * (here - shift) - weighted_means;
                                n -= 1;
                            }
                        }
                    }
                }
                for (int64_t r = 0; r < rows; ++r) result[r * channels] = static_cast<Real>(total[r]);
            }
        }
    });
}

template <class Real>
constexpr RowFeatures<Real> table{forward<Real>, backward<Real>};

}  // namespace

extern const RowFeatures<float> row_features32 = table<float>;
extern const RowFeatures<double> row_features64 = table<double>;

}  // namespace neuralcde::LEVEL
