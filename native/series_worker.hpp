// The work on one series at a time, for a batch with few of them: the lanes of a register are features.
#pragma once

#include <algorithm>
#include <vector>

#include "aligned.hpp"
#include "engine.hpp"
#include "interrupt_flag.hpp"
#include "single.hpp"
#include "term.hpp"

namespace neuralcde::LEVEL {

// Internal linkage lets the compiler inline functions that are called once. Only engine.cpp includes this file.
namespace {

// Forward solves. Every number is the result of the same operations as on a tile, so it has the same bits.
template <class Real>
class SeriesWorker {
    using V = Vector<Real>;
    static constexpr int lanes = lane_count<Real>;

  public:
    SeriesWorker(const Problem<Real>& problem, const Single<Real>& flow, const Single<Real>& jump)
        : p(problem),
          flow(flow),
          jump(jump),
          term(p.drive, p.powers, p.channels),
          hidden(static_cast<int>(p.hidden)),
          stages(p.tableau.stages),
          state(p.hidden),
          sum(p.hidden),
          increments(static_cast<size_t>(std::max(stages, 1)) * p.hidden),
          work(std::max(flow.features(), jump.features())),
          pieces(static_cast<size_t>(p.powers * p.channels)),
          drive(static_cast<size_t>(p.channels)) {
        flow.reserve(scratch);
        jump.reserve(scratch);
        if (!p.every || !p.series) return;
        // The lanes of the checkpoints that no series uses.
        const int64_t events = p.event_offsets[p.order[0] + 1] - p.event_offsets[p.order[0]];
        std::fill(p.checkpoints, p.checkpoints + (events + p.every - 1) / p.every * hidden * lanes, Real(0));
    }

    // Solves the series at a place of the order, which is also its lane in the checkpoints.
    void forward(int64_t place, InterruptFlag& interrupt) {
        series = p.order[place], first = p.event_offsets[series];
        const int64_t events = p.event_offsets[series + 1] - first;
        int64_t saved = p.saved_offsets[series];
        Real* z = state.data();
        std::copy(p.initial + series * hidden, p.initial + (series + 1) * hidden, z);
        for (int64_t e = 0; e < events; ++e) {
            if (interrupt.set()) return;
            if (jump.present() && p.jump_row[first + e] >= 0) take_jump(e), check(e);
            if (p.every && e % p.every == 0) {
                Real* kept = p.checkpoints + e / p.every * hidden * lanes + place;
                for (int h = 0; h < hidden; ++h) kept[h * lanes] = z[h];
            }
            for (; saved < p.saved_offsets[series + 1] && p.saved_event[saved] == e; ++saved)
                std::copy(z, z + hidden, p.saved + saved * hidden);
            if (!flow.present()) continue;
            const int64_t piece = p.piece ? p.piece[first + e] : e + 1 < events ? first + e - series : -1;
            if (piece >= 0) take_step(e, piece), check(e);
        }
    }

  private:
    void take_jump(int64_t e) {
        Real *w = work.data(), *z = state.data();
        const Real* row = p.row_inputs + p.jump_row[first + e] * p.row_features;
        std::copy(z, z + hidden, w);
        std::copy(row, row + p.row_features, w + hidden);
        jump.evaluate(w, scratch);
        std::copy(w + jump.output(), w + jump.output() + hidden, z);
    }

    // One Runge-Kutta step along a piece.
    void take_step(int64_t e, int64_t piece) {
        const bool whole = !p.piece;
        const double lasts = whole ? p.time[first + e + 1] - p.time[first + e] : p.duration[first + e];
        const Real from = whole ? Real(0) : static_cast<Real>(p.from[first + e]);
        const Real step = whole ? Real(1) : static_cast<Real>(p.step[first + e]);
        const V duration = splat(static_cast<Real>(lasts));
        Real *w = work.data(), *z = state.data(), *k = increments.data();
        if (flow.input()) {
            const Real* coefficients = p.coefficients + piece * p.powers * p.channels;
            for (size_t i = 0; i < pieces.size(); ++i) pieces.data()[i] = splat(coefficients[i]);
        }
        for (int s = 0; s < stages; ++s, k += hidden) {
            std::copy(z, z + hidden, w);
            for (int r = 0; r < s; ++r) {
                const double weight = p.tableau.a[s * stages + r];
                if (weight != 0) add(w, static_cast<Real>(weight), increments.data() + r * hidden);
            }
            if (flow.input()) {
                const V u = splat(multiply_add(static_cast<Real>(p.tableau.c[s]), step, from)), du = splat(step);
                term.drive(pieces.data(), &u, &du, drive.data());
                for (int64_t c = 0; c < p.channels; ++c) w[hidden + c] = drive.data()[c][0];
            }
            flow.evaluate(w, scratch);
            const Real* out = w + flow.output();
            for (int h = 0; h < hidden; ++h) k[h] = p.drive == Drive::increment ? out[h] : out[h] * duration[0];
        }
        std::fill(sum.data(), sum.data() + hidden, Real(0));
        for (int s = 0; s < stages; ++s)
            add(sum.data(), static_cast<Real>(p.tableau.b[s]), increments.data() + s * hidden);
        for (int h = 0; h < hidden; ++h) z[h] += sum.data()[h];
    }

    void add(Real* __restrict to, Real weight, const Real* __restrict x) const {
        for (int h = 0; h < hidden; ++h) to[h] = multiply_add(weight, x[h], to[h]);
    }

    // Notes the first event after which the state is not finite.
    void check(int64_t e) {
        bool bad = false;
        for (int h = 0; h < hidden; ++h) bad |= !(state.data()[h] * Real(0) == 0);
        if (bad && p.failed_event[series] < 0) p.failed_event[series] = e;
    }

    const Problem<Real>& p;
    const Single<Real>&flow, &jump;
    const Term<Real, 1> term;
    const int hidden, stages;
    int64_t series = 0, first = 0;
    Aligned<Real> state, sum, increments, work;
    Aligned<V> pieces, drive;
    Scratch<Real> scratch;
};

}  // namespace

}  // namespace neuralcde::LEVEL
