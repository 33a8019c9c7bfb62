// The step of streams, compiled once per instruction-set level (LEVEL names the namespace). Its specification is
// models/stepper.py.

#include "stream.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "parallel.hpp"
#include "row_scale.hpp"
#include "single.hpp"
#include "stream_features.hpp"
#include "summary_layer.hpp"

namespace neuralcde::LEVEL {

namespace {

constexpr int64_t streams_per_thread = 32;  // fewer are updated before a thread has started

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
    std::vector<Real> program, stages, state, now, pieces, known, x, since, statics;
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
        work.now.resize(channels), work.pieces.resize(8 * channels), work.known.resize(known);
        work.x.resize(plan.data), work.since.resize(plan.data), work.statics.resize(plan.statics);
        return work;
    }

    void step(Real* real, double* doubles, double t, const double* given, Workspace<Real>& work) const {
        const int data = plan.data;
        Real* x = work.x.data();
        if (plan.scaling.present) {
            t /= plan.scaling.time;
            scale_row(plan.scaling, given, data, x);
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
        for (int c = 0; c < data; ++c) {
            work.since[c] = static_cast<Real>(t - s.seen_at[c]);  // as cells see it: before this row
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
            flow(one, row, z, window, now, work);
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

    // The fields that run natively do not depend on time.
    void flow(const PreparedModel<Real>& one, const Row& row, Real* z, const Real* window, const Real* now,
              Workspace<Real>& work) const {
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
    }

    void jump(const PreparedModel<Real>& one, const Channels<Real, const Real*, const double*>& s, const Row& row,
              Real* z, const Real* now, Workspace<Real>& work) const {
        const StreamModel<Real>& m = one.model;
        const bool encoded = one.encoder.present();
        const int data = encoded ? m.channels - 1 : plan.data;
        const Real* values = encoded ? now + 1 : s.last;
        const Real gap = static_cast<Real>(encoded ? row.time - row.previous : row.jump_gap);
        auto observed = [&](int c) { return encoded || work.x[c] == work.x[c]; };
        auto channel_gap = [&](int c) { return encoded ? gap : work.since[c]; };
        Real* w = work.program.data();
        std::copy(z, z + m.hidden, w);
        Real* in = w + m.hidden;
        if (m.cell == Cell::shifted) {
            for (int c = 0; c < data; ++c) *in++ = values[c] + (c == 0 ? gap : Real(0));
        } else {
            const bool alone = m.cell == Cell::paper_decaying && !m.mask;
            if (!alone) *in++ = gap;
            if (m.mask)
                for (int c = 0; c < data; ++c) *in++ = observed(c) ? Real(1) : Real(0);
            for (int c = 0; c < data; ++c) {
                Real value = values[c];
                if (m.cell == Cell::decaying) {
                    const bool known = encoded || s.count[c] > 0;
                    value = known ? value : m.means[c];
                    if (!observed(c)) {
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
            Real* given = work.statics.data();
            for (int k = 0; k < plan.statics; ++k) given[k] = statics[k] == statics[k] ? statics[k] : Real(0);
            one.summary.evaluate(work.known.data(), given, static_cast<int>(inputs.families.size()) * plan.data,
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
            for (int k = 0; k < plan.statics; ++k) *in++ = work.statics[k];
        one.readout.evaluate(w, work.scratch);
        std::copy(w + one.readout.output(), w + one.readout.output() + m.outputs, out);
    }

    StreamPlan<Real> plan;
    std::vector<PreparedModel<Real>> models;
};

template <class Real>
std::unique_ptr<StreamRunner<Real>> prepare(const StreamPlan<Real>& plan) {
    return std::make_unique<Runner<Real>>(plan);
}

}  // namespace

extern const StreamKernels<float> stream32{prepare<float>};
extern const StreamKernels<double> stream64{prepare<double>};

}  // namespace neuralcde::LEVEL
