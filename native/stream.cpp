// The step of streams, compiled once per instruction-set level (LEVEL names the namespace). Its specification is
// models/stepper.py.

#include "stream.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "parallel.hpp"
#include "single.hpp"

namespace neuralcde::LEVEL {

namespace {

constexpr int64_t streams_per_thread = 32;  // fewer are updated before a thread has started
constexpr double beyond = 0.5;              // BEYOND in series/quantile_scale.py

double log_one_plus(double x) {  // as in row_features.cpp
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

template <class Real>
struct PreparedModel {
    explicit PreparedModel(const StreamModel<Real>& model)
        : model(model),
          encoder(model.encoder),
          of_start(model.of_start),
          of_static(model.of_static),
          flow(model.flow),
          jump(model.jump),
          readout(model.readout),
          summary(model) {}

    StreamModel<Real> model;  // without its programs' parameters
    Single<Real> encoder, of_start, of_static, flow, jump, readout;
    Summary<Real> summary;
};

// Memory of one thread.
template <class Real>
struct Workspace {
    std::vector<Real> program, stages, state, now, pieces, known, x;
    Scratch<Real> scratch;
};

template <class Real>
class Runner final : public StreamRunner<Real> {
  public:
    explicit Runner(const StreamPlan<Real>& given) : plan(given) {
        for (const auto& model : plan.models) models.emplace_back(model);
        for (auto& model : plan.models) forget(model);
        for (auto& model : models) forget(model.model);
    }

    void update(int64_t streams, Real* real, double* doubles, const double* t, const double* x,
                int threads) const override {
        share(streams, threads, [&](int64_t from, int64_t to, Workspace<Real>& work) {
            for (int64_t i = from; i < to; ++i)
                step(real + i * plan.reals, doubles + i * plan.doubles, t[i], x + i * plan.data, work);
        });
    }

    void read(int64_t streams, const Real* real, const double* doubles, Real* outputs, int threads) const override {
        share(streams, threads, [&](int64_t from, int64_t to, Workspace<Real>& work) {
            for (int64_t i = from; i < to; ++i) {
                Real* out = outputs;
                for (const auto& one : models) {
                    output(one, real + i * plan.reals, doubles + i * plan.doubles, out + i * one.model.outputs, work);
                    out += streams * one.model.outputs;
                }
            }
        });
    }

  private:
    static void forget(StreamModel<Real>& model) {
        for (auto* program : {&model.encoder, &model.of_start, &model.of_static, &model.flow, &model.jump,
                              &model.readout})
            program->parameters.clear();
        model.summary_weight.clear(), model.summary_weight.shrink_to_fit();  // the table holds them
    }

    template <class Work>
    void share(int64_t streams, int threads, Work work) const {
        const int64_t shares =
            std::max<int64_t>(1, std::min<int64_t>(std::max(threads, 1), streams / streams_per_thread));
        parallel(shares, [&](int64_t part) {
            Workspace<Real> memory = workspace();
            work(streams * part / shares, streams * (part + 1) / shares, memory);
        });
    }

    Workspace<Real> workspace() const {
        Workspace<Real> work;
        size_t program = 0, stages = 0, state = 0, channels = 0, known = 0;
        for (const auto& one : models) {
            const StreamModel<Real>& m = one.model;
            for (const Single<Real>* part :
                 {&one.encoder, &one.of_start, &one.of_static, &one.flow, &one.jump, &one.readout}) {
                program = std::max<size_t>(program, part->features());
                part->reserve(work.scratch);
            }
            one.summary.reserve(work.scratch);
            stages = std::max<size_t>(stages, size_t(m.tableau.stages) * m.hidden);
            state = std::max<size_t>(state, m.hidden);
            channels = std::max<size_t>(channels, m.channels);
            for (const auto* inputs : {&m.encoder_inputs, &m.summary_inputs})
                known = std::max<size_t>(known, inputs->families.size() * plan.data + inputs->knots.size() + 1);
        }
        work.program.resize(program + 64), work.stages.resize(stages), work.state.resize(2 * state);
        work.now.resize(channels), work.pieces.resize(8 * channels), work.known.resize(known), work.x.resize(plan.data);
        return work;
    }

    // Scales the values of a row; far values and NaN become NaN.
    template <class Training>
    void scale(const double* given, Real* x) const {
        const RowScale& s = plan.scaling;
        for (int c = 0; c < plan.data; ++c) {
            Training v = static_cast<Training>(given[c]);
            if (!(v >= static_cast<Training>(s.lowest[c]) && v <= static_cast<Training>(s.highest[c]))) {
                x[c] = std::numeric_limits<Real>::quiet_NaN();
                continue;
            }
            Training scaled = (v - static_cast<Training>(s.mean[c])) / static_cast<Training>(s.deviation[c]);
            if (s.mapped[c]) scaled = static_cast<Training>(score(c, static_cast<double>(v)));
            x[c] = static_cast<Real>(static_cast<float>(scaled * static_cast<Training>(s.use[c])));
        }
    }

    // QuantileScale.transform.
    double score(int c, double x) const {
        const RowScale& s = plan.scaling;
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

    void step(Real* real, double* doubles, double t, const double* given, Workspace<Real>& work) const {
        const int data = plan.data;
        Real* x = work.x.data();
        if (plan.scaling.present) {
            t /= plan.scaling.time;
            if (plan.scaling.single)
                scale<float>(given, x);
            else
                scale<double>(given, x);
        } else {
            for (int c = 0; c < data; ++c) x[c] = static_cast<Real>(given[c]);
        }
        Channels<Real, Real*, double*> s(real, doubles, data);
        double* clock = s.clock;
        const bool first = clock[Clock::rows] == 0;
        if (first) {
            clock[Clock::start] = clock[Clock::time] = clock[Clock::earlier] = clock[Clock::jumped] = t;
            for (int c = 0; c < data; ++c) s.seen_at[c] = t;
        }
        const double previous = clock[Clock::time], earlier = clock[Clock::earlier];
        bool any = false;
        for (int c = 0; c < data; ++c) any |= x[c] == x[c];
        // The inputs of cells need the times before this row, so that they are written first.
        gather_cell_times(s, t, x);
        for (int c = 0; c < data; ++c) {
            if (!(x[c] == x[c])) continue;
            const double exact = x[c], n = s.count[c] + 1, before = s.mean[c];
            s.low[c] = n == 1 || x[c] < s.low[c] ? x[c] : s.low[c];
            s.high[c] = n == 1 || x[c] > s.high[c] ? x[c] : s.high[c];
            s.mean[c] += (exact - before) / n;
            s.squares[c] += (exact - before) * (exact - s.mean[c]);
            s.count[c] = n, s.last[c] = x[c], s.seen_at[c] = t;
        }
        const double jump_gap = t - clock[Clock::jumped];
        clock[Clock::rows] += 1, clock[Clock::time] = t, clock[Clock::earlier] = previous;
        if (any) clock[Clock::jumped] = t, clock[Clock::jumps] += 1;
        for (size_t k = 0; k < models.size(); ++k)
            advance(models[k], real, doubles, {first, any, earlier, previous, t, jump_gap}, work);
    }

    struct Row {
        bool first, any;
        double earlier, previous, time, jump_gap;
    };

    // Time since the last observation of each channel before this row, where a cell needs it.
    void gather_cell_times(const Channels<Real, Real*, double*>& s, double t, const Real* x) const {
        thread_local std::vector<Real> gaps;
        gaps.resize(2 * plan.data);
        for (int c = 0; c < plan.data; ++c) {
            gaps[c] = static_cast<Real>(t - s.seen_at[c]);
            gaps[plan.data + c] = x[c] == x[c] ? Real(1) : Real(0);
        }
        row_gaps = gaps.data();
    }
    static thread_local const Real* row_gaps;

    void advance(const PreparedModel<Real>& one, Real* real, double* doubles, const Row& row,
                 Workspace<Real>& work) const {
        const StreamModel<Real>& m = one.model;
        Real *z = real + m.real_start, *window = z + m.hidden, *now = work.now.data();
        const Channels<Real, const Real*, const double*> s(real, doubles, plan.data);
        path_row(one, s, now, work);
        if (row.first)
            for (int k = 0; k < m.memory; ++k) std::copy(now, now + m.channels, window + k * m.channels);
        Real* old = work.state.data() + m.hidden;
        std::copy(z, z + m.hidden, old);
        if (row.first)
            initial(one, now, real + 3 * plan.data, z, work);
        else if (one.flow.present())
            flow(one, row, s.clock[Clock::start], z, window, now, work);
        if (one.jump.present() && (row.any || one.encoder.present())) jump(one, s, row, z, now, work);
        if (m.pool != Pool::last) {
            double* area = doubles + m.double_start;
            const double half = row.first ? 0 : row.time - row.previous;
            const int skipped = m.values_first ? m.channels : 0;
            for (int c = 0; c < skipped; ++c) area[c] += half * (window[c] + now[c]) / 2;
            for (int i = 0; i < m.hidden; ++i) area[skipped + i] += half * (row.first ? z[i] : old[i] + z[i]) / 2;
        }
        for (int k = m.memory - 1; k > 0; --k)
            std::copy(window + (k - 1) * m.channels, window + k * m.channels, window + k * m.channels);
        std::copy(now, now + m.channels, window);
    }

    // X at the row.
    void path_row(const PreparedModel<Real>& one, const Channels<Real, const Real*, const double*>& s, Real* now,
                  Workspace<Real>& work) const {
        const double time = s.clock[Clock::time];
        if (one.model.timed)
            *now++ = static_cast<Real>((plan.from_start ? time - s.clock[Clock::start] : time) / plan.time_scale);
        if (one.encoder.present()) {
            write_known(one.model.encoder_inputs, s, plan.data, work.program.data());
            one.encoder.evaluate(work.program.data(), work.scratch);
            const Real* out = work.program.data() + one.encoder.output();
            std::copy(out, out + one.model.channels - 1, now);
            return;
        }
        if (plan.counts == 1) *now++ = static_cast<Real>(s.clock[Clock::jumps] / plan.count_scale);
        if (plan.counts == 2)
            for (int c = 0; c < plan.data; ++c) *now++ = static_cast<Real>(s.count[c] / plan.count_scales[c]);
        std::copy(s.last, s.last + plan.data, now);
    }

    void initial(const PreparedModel<Real>& one, const Real* now, const Real* statics, Real* z,
                 Workspace<Real>& work) const {
        const StreamModel<Real>& m = one.model;
        Real* w = work.program.data();
        std::fill(z, z + m.hidden, Real(0));
        if (one.of_start.present()) {
            std::copy(now, now + m.channels, w);
            one.of_start.evaluate(w, work.scratch);
            for (int i = 0; i < m.hidden; ++i) z[i] += w[one.of_start.output() + i];
        }
        if (one.of_static.present()) {
            for (int k = 0; k < plan.statics; ++k) w[k] = statics[k] == statics[k] ? statics[k] : Real(0);
            one.of_static.evaluate(w, work.scratch);
            for (int i = 0; i < m.hidden; ++i) z[i] += w[one.of_static.output() + i];
        }
    }

    // The coefficients of the pieces of the gap, (pieces, powers, channels); gives their number and powers.
    static std::pair<int, int> gap(const StreamModel<Real>& m, const Row& row, const Real* window, const Real* now,
                                   Real* out) {
        const int n = m.channels;
        if (m.scheme == Scheme::linear) {
            for (int c = 0; c < n; ++c) out[c] = window[c], out[n + c] = now[c] - window[c];
            return {1, 2};
        }
        if (m.scheme == Scheme::rectilinear) {
            for (int c = 0; c < n; ++c) {
                const Real rise = now[c] - window[c], across = m.timed && c == 0 ? rise : Real(0);
                out[c] = window[c], out[n + c] = across;
                out[2 * n + c] = window[c] + across, out[3 * n + c] = rise - across;
            }
            return {2, 2};
        }
        const double duration = row.time - row.previous, before = row.previous - row.earlier;
        for (int c = 0; c < n; ++c) {
            const double start = window[c], rise = double(now[c]) - start;
            const double leaving = before > 0 ? (start - window[n + c]) / before * duration : rise;
            out[c] = static_cast<Real>(start), out[n + c] = static_cast<Real>(leaving);
            out[2 * n + c] = static_cast<Real>(2 * (rise - leaving)), out[3 * n + c] = static_cast<Real>(leaving - rise);
        }
        return {1, 4};
    }

    void flow(const PreparedModel<Real>& one, const Row& row, double start, Real* z, const Real* window,
              const Real* now, Workspace<Real>& work) const {
        const StreamModel<Real>& m = one.model;
        const auto [pieces, powers] = gap(m, row, window, now, work.pieces.data());
        const bool by_rise = m.drive == Drive::increment;
        Real* w = work.program.data();
        for (int p = 0; p < pieces; ++p) {
            const double duration = p % 2 ? 0 : row.time - row.previous;
            const Real* piece = work.pieces.data() + int64_t(p) * powers * m.channels;
            const double counted = m.step_size > 0 ? std::max(std::ceil(duration / m.step_size - 1e-9), 1.0)
                                                   : double(m.substeps);
            const int64_t steps = static_cast<int64_t>(counted);
            const double length = 1 / counted;
            const Real du = static_cast<Real>(length), dt = static_cast<Real>(duration * length);
            for (int64_t k = 0; k < steps; ++k) {
                const Real from = static_cast<Real>(double(k) * length);
                for (int stage = 0; stage < m.tableau.stages; ++stage) {
                    for (int i = 0; i < m.hidden; ++i) {
                        Real sum = 0;
                        for (int j = 0; j < stage; ++j)
                            sum += static_cast<Real>(m.tableau.a[stage * m.tableau.stages + j]) *
                                   work.stages[j * m.hidden + i];
                        w[i] = z[i] + sum;
                    }
                    if (one.flow.input() > 0) {
                        const Real u = from + static_cast<Real>(m.tableau.c[stage]) * du;
                        const int low = by_rise ? 1 : 0;
                        for (int c = 0; c < m.channels; ++c) {
                            Real sum = 0;
                            for (int power = powers - 1; power >= low; --power) {
                                const Real coefficient = piece[power * m.channels + c];
                                sum = sum * u + (by_rise ? Real(power) * coefficient : coefficient);
                            }
                            w[m.hidden + c] = by_rise ? sum * du : sum;
                        }
                    }
                    one.flow.evaluate(w, work.scratch);
                    const Real* out = w + one.flow.output();
                    for (int i = 0; i < m.hidden; ++i)
                        work.stages[stage * m.hidden + i] = by_rise ? out[i] : out[i] * dt;
                }
                for (int i = 0; i < m.hidden; ++i) {
                    Real sum = 0;
                    for (int j = 0; j < m.tableau.stages; ++j)
                        sum += static_cast<Real>(m.tableau.b[j]) * work.stages[j * m.hidden + i];
                    z[i] += sum;
                }
            }
        }
        (void)start;  // the fields that run natively do not depend on time
    }

    void jump(const PreparedModel<Real>& one, const Channels<Real, const Real*, const double*>& s, const Row& row,
              Real* z, const Real* now, Workspace<Real>& work) const {
        const StreamModel<Real>& m = one.model;
        const bool encoded = one.encoder.present();
        const int data = encoded ? m.channels - 1 : plan.data;
        const Real* values = encoded ? now + 1 : s.last;
        const Real gap = static_cast<Real>(encoded ? row.time - row.previous : row.jump_gap);
        auto observed = [&](int c) { return encoded ? Real(1) : row_gaps[plan.data + c]; };
        auto channel_gap = [&](int c) { return encoded ? gap : row_gaps[c]; };
        Real* w = work.program.data();
        std::copy(z, z + m.hidden, w);
        Real* in = w + m.hidden;
        if (m.cell == Cell::shifted) {
            for (int c = 0; c < data; ++c) *in++ = values[c] + (c == 0 ? gap : Real(0));
        } else {
            const bool alone = m.cell == Cell::paper_decaying && !m.mask;
            if (!alone) *in++ = gap;
            if (m.mask)
                for (int c = 0; c < data; ++c) *in++ = observed(c);
            for (int c = 0; c < data; ++c) {
                Real value = values[c];
                if (m.cell == Cell::decaying) {
                    const bool known = encoded || s.count[c] > 0;
                    value = known ? value : m.means[c];
                    if (observed(c) == 0) {
                        const Real rate = m.fade_weight[c] * channel_gap(c) + m.fade_bias[c];
                        value = m.means[c] + std::exp(-std::max(rate, Real(0))) * (value - m.means[c]);
                    }
                }
                *in++ = value + (alone && c == 0 ? gap : Real(0));
            }
            if (m.cell == Cell::paper_decaying) *in++ = gap;
            if (m.cell == Cell::decaying)
                for (int c = 0; c < data; ++c) *in++ = channel_gap(c);
        }
        one.jump.evaluate(w, work.scratch);
        std::copy(w + one.jump.output(), w + one.jump.output() + m.hidden, z);
    }

    void output(const PreparedModel<Real>& one, const Real* real, const double* doubles, Real* out,
                Workspace<Real>& work) const {
        const StreamModel<Real>& m = one.model;
        const Channels<Real, const Real*, const double*> s(real, doubles, plan.data);
        const Real *z = real + m.real_start, *values = z + m.hidden, *statics = real + 3 * plan.data;
        const double passed = s.clock[Clock::time] - s.clock[Clock::start];
        const double* area = doubles + m.double_start;
        Real *w = work.program.data(), *in = w;
        if (m.summary) {
            const KnownInputs<Real>& inputs = m.summary_inputs;
            write_known(inputs, s, plan.data, work.known.data());
            std::vector<Real>& given = work.x;  // at least as long as the static features, see below
            given.resize(std::max<size_t>(given.size(), plan.statics));
            for (int k = 0; k < plan.statics; ++k) given[k] = statics[k] == statics[k] ? statics[k] : Real(0);
            one.summary.evaluate(work.known.data(), given.data(), static_cast<int>(inputs.families.size()) * plan.data,
                                 work.scratch, in, m.width);
            in += m.width;
        }
        const int skipped = m.values_first ? m.channels : 0;
        auto feature = [&](int i) { return i < skipped ? values[i] : z[i - skipped]; };
        if (m.pool != Pool::mean)
            for (int i = 0; i < skipped + m.hidden; ++i) *in++ = feature(i);
        if (m.pool != Pool::last)
            for (int i = 0; i < skipped + m.hidden; ++i)
                *in++ = passed > 0 ? static_cast<Real>(area[i] / passed) : feature(i);
        if (m.summary)
            for (int k = 0; k < plan.statics; ++k) *in++ = statics[k] == statics[k] ? statics[k] : Real(0);
        one.readout.evaluate(w, work.scratch);
        std::copy(w + one.readout.output(), w + one.readout.output() + m.outputs, out);
    }

    StreamPlan<Real> plan;
    std::vector<PreparedModel<Real>> models;
};

template <class Real>
thread_local const Real* Runner<Real>::row_gaps = nullptr;

template <class Real>
std::unique_ptr<StreamRunner<Real>> prepare(const StreamPlan<Real>& plan) {
    return std::make_unique<Runner<Real>>(plan);
}

}  // namespace

extern const StreamKernels<float> stream32{prepare<float>};
extern const StreamKernels<double> stream64{prepare<double>};

}  // namespace neuralcde::LEVEL
