// Spline kernels, compiled once per instruction-set level (LEVEL names the namespace). Arithmetic is float64 inside.

#include "splines.hpp"

#include <cmath>
#include <vector>

#include "parallel.hpp"

namespace neuralcde::LEVEL {

namespace {

// The observations of one channel within a series, and the work space of the solves.
struct Observations {
    std::vector<int64_t> row;
    std::vector<double> time, value, slope, inverse_gap, pivot, right, adjoint, gradient_value, gradient_time;

    template <class Real>
    int64_t gather(const double* times, const Real* values, int64_t rows, int64_t channels, int64_t channel) {
        row.clear(), time.clear(), value.clear();
        for (int64_t r = 0; r < rows; ++r) {
            const Real x = values[r * channels + channel];
            if (std::isnan(x)) continue;
            row.push_back(r), time.push_back(times[r]), value.push_back(x);
        }
        return static_cast<int64_t>(row.size());
    }

    // Factorises the symmetric tridiagonal matrix A of the slopes: diagonal 2 (q[j-1] + q[j]), off-diagonal q[j], with
    // q the inverse gaps. It is diagonally dominant, so no pivoting is needed.
    void factorise() {
        const size_t n = time.size();
        inverse_gap.resize(n), pivot.resize(n);
        for (size_t j = 0; j + 1 < n; ++j) inverse_gap[j] = 1 / (time[j + 1] - time[j]);
        inverse_gap[n - 1] = 0;
        pivot[0] = 1 / (2 * inverse_gap[0]);
        for (size_t j = 1; j < n; ++j) {
            const double q = inverse_gap[j - 1];
            pivot[j] = 1 / (2 * (q + inverse_gap[j]) - q * q * pivot[j - 1]);
        }
    }

    // Solves A x = b in place.
    void solve(std::vector<double>& b) const {
        const size_t n = time.size();
        for (size_t j = 1; j < n; ++j) b[j] -= inverse_gap[j - 1] * pivot[j - 1] * b[j - 1];
        b[n - 1] *= pivot[n - 1];
        for (size_t j = n - 1; j-- > 0;) b[j] = (b[j] - inverse_gap[j] * b[j + 1]) * pivot[j];
    }

    void find_slopes(Slopes kind) {
        const size_t n = time.size();
        if (kind == Slopes::backward) {
            inverse_gap.resize(n), slope.resize(n);
            for (size_t j = 0; j + 1 < n; ++j) {
                inverse_gap[j] = 1 / (time[j + 1] - time[j]);
                slope[j + 1] = (value[j + 1] - value[j]) * inverse_gap[j];
            }
            slope[0] = slope[1];
            return;
        }
        factorise();
        slope.assign(n, 0.0);
        for (size_t j = 0; j + 1 < n; ++j) {
            const double pull = 3 * inverse_gap[j] * inverse_gap[j] * (value[j + 1] - value[j]);
            slope[j] += pull, slope[j + 1] += pull;
        }
        solve(slope);
    }
};

// The cubic on the gap between observations j and j + 1, as powers of the time since observation j.
struct Cubic {
    double a, b, c, d;
    Cubic(const Observations& o, int64_t j) {
        const double q = o.inverse_gap[j], mean = (o.value[j + 1] - o.value[j]) * q;
        a = o.value[j], b = o.slope[j];
        c = (3 * mean - o.slope[j + 1] - 2 * o.slope[j]) * q;
        d = (o.slope[j + 1] + o.slope[j] - 2 * mean) * q * q;
    }
};

template <class Real>
void cubic_with_gaps(const double* times, const Real* values, int64_t rows, int64_t channels, int64_t channel,
                     Slopes slopes, Observations& own, Real* coefficients) {
    const int64_t n = own.gather(times, values, rows, channels, channel), pieces = std::max<int64_t>(rows - 1, 1);
    Real* out = coefficients + channel;
    auto constant = [&](int64_t from, int64_t to, double value) {
        for (int64_t piece = from; piece < to; ++piece)
            for (int64_t power = 0; power < 4; ++power)
                out[(piece * 4 + power) * channels] = static_cast<Real>(power == 0 ? value : 0);
    };
    if (n < 2) return constant(0, pieces, n ? own.value[0] : 0.0);
    own.find_slopes(slopes);
    constant(0, own.row[0], own.value[0]);
    for (int64_t j = 0; j + 1 < n; ++j) {
        const Cubic p(own, j);
        for (int64_t r = own.row[j]; r < own.row[j + 1]; ++r) {
            const double s = times[r] - own.time[j], h = times[r + 1] - times[r];
            Real* piece = out + r * 4 * channels;
            piece[0] = static_cast<Real>(p.a + s * (p.b + s * (p.c + s * p.d)));
            piece[channels] = static_cast<Real>(h * (p.b + s * (2 * p.c + 3 * s * p.d)));
            piece[2 * channels] = static_cast<Real>(h * h * (p.c + 3 * s * p.d));
            piece[3 * channels] = static_cast<Real>(h * h * h * p.d);
        }
    }
    constant(own.row[n - 1], pieces, own.value[n - 1]);
}

// Natural slopes where every value is observed: one factorisation serves all channels, and loops over channels
// vectorise.
template <class Real>
void natural_complete(const double* times, const Real* values, int64_t rows, int64_t channels, Observations& own,
                      Real* coefficients) {
    own.time.assign(times, times + rows);
    own.factorise();
    const double *q = own.inverse_gap.data(), *pivot = own.pivot.data();
    own.slope.assign(rows * channels, 0.0);
    double* slope = own.slope.data();
    for (int64_t r = 0; r + 1 < rows; ++r) {
        const double pull = 3 * q[r] * q[r], carry = q[r] * pivot[r];
        const Real* x = values + r * channels;
        double* d = slope + r * channels;
        for (int64_t c = 0; c < channels; ++c) {
            const double push = pull * (double(x[channels + c]) - double(x[c]));
            d[c] += push;
            d[channels + c] = push - carry * d[c];
        }
    }
    double* end = slope + (rows - 1) * channels;
    for (int64_t c = 0; c < channels; ++c) end[c] *= pivot[rows - 1];
    for (int64_t r = rows - 1; r-- > 0;) {
        const double h = times[r + 1] - times[r];
        const Real* x = values + r * channels;
        double* d = slope + r * channels;
        Real* out = coefficients + r * 4 * channels;
        for (int64_t c = 0; c < channels; ++c) {
            d[c] = (d[c] - q[r] * d[channels + c]) * pivot[r];
            const double start = h * d[c], stop = h * d[channels + c], rise = double(x[channels + c]) - double(x[c]);
            out[c] = x[c];
            out[channels + c] = static_cast<Real>(start);
            out[2 * channels + c] = static_cast<Real>(3 * rise - 2 * start - stop);
            out[3 * channels + c] = static_cast<Real>(start + stop - 2 * rise);
        }
    }
}

// The vector-Jacobian product of cubic_with_gaps: gradients of the observations, and of the times if wanted.
template <class Real>
void cubic_backward_channel(const double* times, const Real* values, int64_t rows, int64_t channels, int64_t channel,
                            Slopes slopes, Observations& own, const Real* gradient, Real* gradient_values,
                            double* gradient_times) {
    const int64_t n = own.gather(times, values, rows, channels, channel), pieces = std::max<int64_t>(rows - 1, 1);
    const Real* in = gradient + channel;
    auto constant = [&](int64_t from, int64_t to) {
        double total = 0;
        for (int64_t piece = from; piece < to; ++piece) total += in[piece * 4 * channels];
        return total;
    };
    for (int64_t r = 0; r < rows; ++r) gradient_values[r * channels + channel] = 0;
    if (n == 0) return;
    if (n == 1) {
        gradient_values[own.row[0] * channels + channel] = static_cast<Real>(constant(0, pieces));
        return;
    }
    own.find_slopes(slopes);
    own.adjoint.assign(n, 0.0), own.gradient_value.assign(n, 0.0), own.gradient_time.assign(n, 0.0);
    std::vector<double>&slope = own.slope, &lambda = own.adjoint, &to_value = own.gradient_value,
    &to_time = own.gradient_time;
    for (int64_t j = 0; j + 1 < n; ++j) {
        const Cubic p(own, j);
        double ga = 0, gb = 0, gc = 0, gd = 0;
        for (int64_t r = own.row[j]; r < own.row[j + 1]; ++r) {
            const double s = times[r] - own.time[j], h = times[r + 1] - times[r];
            const Real* piece = in + r * 4 * channels;
            const double g0 = piece[0], g1 = h * piece[channels], g2 = h * h * piece[2 * channels],
                         g3 = h * h * h * piece[3 * channels];
            ga += g0;
            gb += s * g0 + g1;
            gc += s * s * g0 + 2 * s * g1 + g2;
            gd += s * s * s * g0 + 3 * s * s * g1 + 3 * s * g2 + g3;
            if (gradient_times) {
                const double first = p.b + s * (2 * p.c + 3 * s * p.d), second = p.c + 3 * s * p.d;
                const double to_s = g0 * first + 2 * g1 * second + 3 * g2 * p.d;
                const double to_h = (g1 * first + 2 * g2 * second + 3 * g3 * p.d) / h;
                gradient_times[r] += to_s - to_h;
                gradient_times[r + 1] += to_h;
                to_time[j] -= to_s;
            }
        }
        // p.c and p.d as functions of the mean slope, both end slopes and q = 1 / gap.
        const double q = own.inverse_gap[j], rise = own.value[j + 1] - own.value[j], mean = rise * q;
        const double to_mean = 3 * q * gc - 2 * q * q * gd;
        lambda[j] += gb - 2 * q * gc + q * q * gd;
        lambda[j + 1] += -q * gc + q * q * gd;
        to_value[j] += ga - to_mean * q;
        to_value[j + 1] += to_mean * q;
        const double to_q = to_mean * rise + gc * (3 * mean - slope[j + 1] - 2 * slope[j]) +
                            2 * q * gd * (slope[j + 1] + slope[j] - 2 * mean);
        to_time[j + 1] -= q * q * to_q;
        to_time[j] += q * q * to_q;
    }
    if (slopes == Slopes::natural) own.solve(lambda);  // the matrix is symmetric
    if (slopes == Slopes::backward) lambda[1] += lambda[0];
    for (int64_t j = 0; j + 1 < n; ++j) {
        if (slopes == Slopes::backward) {
            const double q = own.inverse_gap[j], to_rise = lambda[j + 1] * q;
            to_value[j] -= to_rise;
            to_value[j + 1] += to_rise;
            to_time[j] += slope[j + 1] * to_rise;
            to_time[j + 1] -= slope[j + 1] * to_rise;
            continue;
        }
        const double q = own.inverse_gap[j], rise = own.value[j + 1] - own.value[j], both = lambda[j] + lambda[j + 1];
        to_value[j] -= 3 * q * q * both;
        to_value[j + 1] += 3 * q * q * both;
        const double to_q = 6 * q * rise * both - 2 * (lambda[j] * slope[j] + lambda[j + 1] * slope[j + 1]) -
                            lambda[j] * slope[j + 1] - lambda[j + 1] * slope[j];
        to_time[j + 1] -= q * q * to_q;
        to_time[j] += q * q * to_q;
    }
    to_value[0] += constant(0, own.row[0]);
    to_value[n - 1] += constant(own.row[n - 1], pieces);
    for (int64_t j = 0; j < n; ++j) {
        gradient_values[own.row[j] * channels + channel] = static_cast<Real>(to_value[j]);
        if (gradient_times) gradient_times[own.row[j]] += to_time[j];
    }
}

// Reinsch (1967): the second derivatives gamma solve (R + penalty Q'Q) gamma = Q'x. The matrix is pentadiagonal and
// positive definite. The smoothed values are x - penalty Q gamma.
void smooth_channel(Observations& own, double penalty) {
    const int64_t n = static_cast<int64_t>(own.time.size()), m = n - 2;
    if (m < 1) return;
    own.inverse_gap.resize(n);
    for (int64_t j = 0; j + 1 < n; ++j) own.inverse_gap[j] = 1 / (own.time[j + 1] - own.time[j]);
    const double *t = own.time.data(), *q = own.inverse_gap.data();
    std::vector<double>&x = own.value, &gamma = own.right, &diagonal = own.pivot, &first = own.slope,
    &second = own.adjoint;
    gamma.assign(m, 0.0), diagonal.assign(m, 0.0), first.assign(m, 0.0), second.assign(m, 0.0);
    // L D L' with unit lower L: first[i] = L[i + 1, i], second[i] = L[i + 2, i].
    for (int64_t i = 0; i < m; ++i) {
        const double middle = q[i] + q[i + 1];
        double d = (t[i + 2] - t[i]) / 3 + penalty * (q[i] * q[i] + middle * middle + q[i + 1] * q[i + 1]);
        double e = i + 1 < m ? (t[i + 2] - t[i + 1]) / 6 - penalty * q[i + 1] * (middle + q[i + 1] + q[i + 2]) : 0;
        double b = (x[i + 2] - x[i + 1]) * q[i + 1] - (x[i + 1] - x[i]) * q[i];
        if (i > 0) {
            d -= first[i - 1] * first[i - 1] * diagonal[i - 1];
            e -= first[i - 1] * second[i - 1] * diagonal[i - 1];
            b -= first[i - 1] * gamma[i - 1];
        }
        if (i > 1) {
            d -= second[i - 2] * second[i - 2] * diagonal[i - 2];
            b -= second[i - 2] * gamma[i - 2];
        }
        diagonal[i] = d;
        first[i] = e / d;
        second[i] = i + 2 < m ? penalty * q[i + 1] * q[i + 2] / d : 0;
        gamma[i] = b;
    }
    for (int64_t i = m; i-- > 0;) {
        gamma[i] /= diagonal[i];
        if (i + 1 < m) gamma[i] -= first[i] * gamma[i + 1];
        if (i + 2 < m) gamma[i] -= second[i] * gamma[i + 2];
    }
    for (int64_t i = 0; i < m; ++i) {
        x[i] -= penalty * q[i] * gamma[i];
        x[i + 1] += penalty * (q[i] + q[i + 1]) * gamma[i];
        x[i + 2] -= penalty * q[i + 1] * gamma[i];
    }
}

// The first piece of each series. A series has max(rows - 1, 1) pieces.
std::vector<int64_t> first_pieces(const int64_t* offsets, int64_t series) {
    std::vector<int64_t> first(series + 1, 0);
    for (int64_t i = 0; i < series; ++i)
        first[i + 1] = first[i] + std::max<int64_t>(offsets[i + 1] - offsets[i] - 1, 1);
    return first;
}

template <class Real>
bool complete(const Real* values, int64_t count) {
    bool missing = false;
    for (int64_t i = 0; i < count; ++i) missing |= std::isnan(values[i]);
    return !missing;
}

template <class Real>
void cubic(const Batch<Real>& batch, Slopes slopes, Real* coefficients) {
    const auto first = first_pieces(batch.offsets, batch.series);
    const int64_t channels = batch.channels;
    parallel_over_series(batch.offsets, batch.series, batch.threads, [&](int64_t from, int64_t to) {
        Observations own;
        for (int64_t i = from; i < to; ++i) {
            const int64_t start = batch.offsets[i], rows = batch.offsets[i + 1] - start;
            const double* times = batch.times + start;
            const Real* values = batch.values + start * channels;
            Real* out = coefficients + first[i] * 4 * channels;
            if (slopes == Slopes::natural && rows > 1 && complete(values, rows * channels)) {
                natural_complete(times, values, rows, channels, own, out);
            } else {
                for (int64_t c = 0; c < channels; ++c)
                    cubic_with_gaps(times, values, rows, channels, c, slopes, own, out);
            }
        }
    });
}

template <class Real>
void cubic_backward(const Batch<Real>& batch, Slopes slopes, const Real* gradient, Real* gradient_values,
                    double* gradient_times) {
    const auto first = first_pieces(batch.offsets, batch.series);
    const int64_t channels = batch.channels;
    parallel_over_series(batch.offsets, batch.series, batch.threads, [&](int64_t from, int64_t to) {
        Observations own;
        for (int64_t i = from; i < to; ++i) {
            const int64_t start = batch.offsets[i], rows = batch.offsets[i + 1] - start;
            double* to_times = gradient_times ? gradient_times + start : nullptr;
            if (to_times) std::fill(to_times, to_times + rows, 0.0);
            for (int64_t c = 0; c < channels; ++c)
                cubic_backward_channel(batch.times + start, batch.values + start * channels, rows, channels, c, slopes,
                                       own, gradient + first[i] * 4 * channels, gradient_values + start * channels,
                                       to_times);
        }
    });
}

template <class Real>
void linear(const Batch<Real>& batch, Real* coefficients) {
    const auto first = first_pieces(batch.offsets, batch.series);
    const int64_t channels = batch.channels;
    parallel_over_series(batch.offsets, batch.series, batch.threads, [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) {
            const int64_t start = batch.offsets[i], rows = batch.offsets[i + 1] - start;
            const double* times = batch.times + start;
            for (int64_t c = 0; c < channels; ++c) {
                const Real* values = batch.values + start * channels + c;
                Real* out = coefficients + first[i] * 2 * channels + c;
                int64_t last = -1;  // row of the last observation
                auto line = [&](int64_t begin, int64_t end, double x, double slope, double since) {
                    for (int64_t r = begin; r < end; ++r) {
                        const double h = r + 1 < rows ? times[r + 1] - times[r] : 0;
                        out[r * 2 * channels] = static_cast<Real>(x + slope * (times[r] - since));
                        out[(r * 2 + 1) * channels] = static_cast<Real>(slope * h);
                    }
                };
                for (int64_t r = 0; r < rows; ++r) {
                    const Real x = values[r * channels];
                    if (std::isnan(x)) continue;
                    if (last < 0) {
                        line(0, r, x, 0, 0);
                    } else {
                        const double before = values[last * channels];
                        line(last, r, before, (x - before) / (times[r] - times[last]), times[last]);
                    }
                    last = r;
                }
                const int64_t pieces = std::max<int64_t>(rows - 1, 1);
                line(std::max<int64_t>(last, 0), pieces, last < 0 ? Real(0) : values[last * channels], 0, 0);
            }
        }
    });
}

template <class Real>
void smooth(const Batch<Real>& batch, double penalty, Real* smoothed) {
    const int64_t channels = batch.channels;
    parallel_over_series(batch.offsets, batch.series, batch.threads, [&](int64_t from, int64_t to) {
        Observations own;
        for (int64_t i = from; i < to; ++i) {
            const int64_t start = batch.offsets[i], rows = batch.offsets[i + 1] - start;
            const Real* values = batch.values + start * channels;
            Real* out = smoothed + start * channels;
            std::copy(values, values + rows * channels, out);
            for (int64_t c = 0; c < channels; ++c) {
                const int64_t n = own.gather(batch.times + start, values, rows, channels, c);
                smooth_channel(own, penalty);
                for (int64_t j = 0; j < n; ++j) out[own.row[j] * channels + c] = static_cast<Real>(own.value[j]);
            }
        }
    });
}

template <class Real>
constexpr Splines<Real> table{cubic<Real>, cubic_backward<Real>, linear<Real>, smooth<Real>};

}  // namespace

extern const Splines<float> splines32 = table<float>;
extern const Splines<double> splines64 = table<double>;

}  // namespace neuralcde::LEVEL
