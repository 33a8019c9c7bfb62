// One thread's lanes, each of which walks along the pieces of its own series and then takes the next series.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "aligned.hpp"
#include "engine.hpp"
#include "interrupt_flag.hpp"
#include "walk_plan.hpp"

namespace neuralcde::LEVEL {

// Internal linkage lets the compiler inline functions that are called once. Only engine.cpp includes this file.
namespace {

template <class Real, int registers>
class WalkWorker {
    using T = Tile<Real, registers>;
    using V = Vector<Real>;
    using M = Mask<Real>;
    static constexpr int width = T::width, lanes = T::lanes;

  public:
    explicit WalkWorker(const WalkPlan<Real, registers>& plan)
        : plan(plan),
          p(plan.p),
          hidden(plan.hidden),
          count(plan.hidden * registers),
          places(plan),
          state(count),
          end(count),
          slope(count),
          error(count),
          increments(static_cast<size_t>(std::max(plan.stages, 1)) * count),
          work(plan.flow.workspace()),
          jump_work(p.jump.present() ? plan.jump.workspace() : 0) {}

    // Walks the series at places first, first + stride, ... of the order.
    void run(int64_t first, int64_t stride, InterruptFlag& interrupt) {
        next = first;
        while (!interrupt.set()) {
            while (take_series(stride)) arrive();
            if (!place_lanes()) return;
            take_step();
            judge();
            arrive();
        }
    }

  private:
    // A lane: its series, where on it the lane is, and the step to try next.
    struct Lane {
        int64_t series = -1, piece = 0, first = 0, end = 0, tries = 0;
        int64_t substep = 0, steps = 0;  // of fixed steps: steps done in the piece, and in all
        double u = 0, size = 1, h = 1;   // h: the length that is tried
        double previous = 1;             // error of the step accepted before, over its tolerance
        int64_t row = -1;                // a row that was just reached
        bool known = false;              // whether `slope` is dz/du here
        bool stop = false;
        WalkCounts counts = {};
        Track<Real> track = {};
    };

    const WalkPlan<Real, registers>& plan;
    const Walk<Real>& p;
    const int hidden, count;
    int64_t next = 0;
    std::vector<Lane> lane = std::vector<Lane>(width);
    LanePlaces<Real, registers> places;
    Aligned<V> state, end, slope, error, increments, work, jump_work;

    static Real& at(V* data, int feature, int j) { return reinterpret_cast<Real*>(data)[feature * width + j]; }
    static bool holds(const M* mask, int j) { return mask[j / lanes][j % lanes] != 0; }

    // Gives free lanes their next series, at its first row; false if there is none left, or no free lane.
    bool take_series(int64_t stride) {
        bool any = false;
        for (int j = 0; j < width && next < p.series; ++j) {
            if (lane[j].series >= 0) continue;
            const int64_t s = p.order[next];
            next += stride;
            Lane& l = lane[j] = Lane{};
            l.series = s, l.first = l.piece = p.piece_offsets[s], l.end = p.piece_offsets[s + 1];
            l.row = p.row_offsets[s];
            for (int h = 0; h < hidden; ++h) at(state.data(), h, j) = p.initial[s * hidden + h];
            any = true;
        }
        return any;
    }

    // Puts every lane on its next step; false if no lane has one.
    bool place_lanes() {
        bool any = false;
        for (int j = 0; j < width; ++j) {
            Lane& l = lane[j];
            if (l.series < 0) {
                places.put(j, -1, 0, 0);
                continue;
            }
            any = true;
            if (plan.adaptive) {
                // A step that would end just before the end of its piece is extended to it: otherwise rounding leaves
                // a sliver.
                const double left = 1 - l.u;
                l.h = l.size >= left * (1 - 1e-9) ? left : l.size;
            } else {
                l.h = 1.0 / static_cast<double>(p.rule.substeps[l.piece]);
                l.u = static_cast<double>(l.substep) * l.h;
                if (p.stored && l.steps % p.every == 0)
                    save(j, p.stored + (p.stored_offsets[l.series] + l.steps / p.every) * hidden);
                ++l.steps;
            }
            places.put(j, l.piece, l.u, l.h);
        }
        if (any) places.load();
        return any;
    }

    // One Runge-Kutta step of every lane, from `state` to `end`, with its error estimate.
    void take_step() {
        bool all_known = true;
        M known[registers] = {};
        for (int j = 0; j < width; ++j) {
            known[j / lanes][j % lanes] = lane[j].known ? -1 : 0;
            all_known &= lane[j].known || lane[j].series < 0;
        }
        V *k = increments.data(), *w = work.data();
        for (int s = 0; s < plan.stages; ++s, k += count) {
            if (s > 0 || !all_known) {
                plan.add_up(state.data(), plan.a[s], increments.data(), count, w);
                for (int i = 0; i < count; ++i)  // lanes that rest are evaluated at 0, so that they cannot overflow
                    w[i] = places.moving[i % registers] ? w[i] : V{};
                places.set_input(s, w);
                plan.flow.evaluate(w);
                const V* out = w + p.flow.output * registers;
                for (int i = 0; i < count; ++i)
                    k[i] = places.moving[i % registers] ? plan.term.scale(out[i], places.duration[i % registers]) : V{};
            }
            if (s == 0)
                for (int i = 0; i < count; ++i)
                    k[i] = known[i % registers] ? places.step[i % registers] * slope.data()[i] : k[i];
        }
        plan.add_up(state.data(), plan.b, increments.data(), count, end.data());
        if (plan.adaptive) plan.add_up(nullptr, plan.b_error, increments.data(), count, error.data());
    }

    // The error of every lane, over the tolerance: the root mean square over the state. Infinite if not a number.
    void measure(Real* ratio) const {
        V sum[registers] = {};
        plan.add_errors(state.data(), end.data(), error.data(), count, sum);
        for (int j = 0; j < width; ++j) {
            const Real found = std::sqrt(sum[j / lanes][j % lanes] / static_cast<Real>(hidden));
            ratio[j] = std::isfinite(found) ? found : std::numeric_limits<Real>::infinity();
        }
    }

    // Accepts or rejects the step of every lane, chooses the next one, and moves on to the next piece.
    void judge() {
        Real ratio[width];
        if (plan.adaptive) {
            measure(ratio);
        } else {
            check_finite(ratio);
        }
        M good[registers] = {};
        for (int j = 0; j < width; ++j) {
            Lane& l = lane[j];
            if (l.series < 0) continue;
            l.counts.evaluations += plan.stages - l.known;
            const bool accepted = !plan.adaptive || ratio[j] <= 1;
            good[j / lanes][j % lanes] = accepted ? -1 : 0;
            if (plan.adaptive) choose_next(l, static_cast<double>(ratio[j]), accepted);
            if (!accepted) continue;
            ++l.counts.accepted;
            if (p.tracks) keep(l, j);
            if (!plan.adaptive && ratio[j] > 1) l.counts.stuck = 1, l.stop = true;
        }
        for (int i = 0; i < count; ++i)
            state.data()[i] = good[i % registers] ? end.data()[i] : state.data()[i];
        if (plan.adaptive) keep_slopes(good);
        for (int j = 0; j < width; ++j) {
            Lane& l = lane[j];
            if (l.series < 0) continue;
            if (holds(good, j) && !l.stop) advance(l);
            if (plan.adaptive && l.tries >= p.rule.max_steps) l.stop = true;
        }
    }

    // Fixed steps: an infinite ratio where the state is not finite.
    void check_finite(Real* ratio) const {
        V sum[registers] = {};
        for (int i = 0; i < count; ++i) sum[i % registers] += end.data()[i] * Real(0);
        for (int j = 0; j < width; ++j)
            ratio[j] = sum[j / lanes][j % lanes] == 0 ? Real(0) : std::numeric_limits<Real>::infinity();
    }

    void choose_next(Lane& l, double ratio, bool accepted) {
        ++l.tries;
        double factor = plan.factor(ratio, l.previous);
        if (accepted) {
            l.previous = std::max(ratio, 1e-4);
        } else {
            ++l.counts.rejected;
            factor = std::min(factor, 1.0);
            if (l.h * factor < smallest_step) l.counts.stuck = 1, l.stop = true;  // no length will ever be accepted
        }
        l.size = l.h * factor;
        // A rejected step is tried again from the same point, so its first stage is known. After an accepted step, the
        // last stage may be the slope at the new point.
        l.known = accepted ? p.tableau.same_as_last : true;
    }

    void keep_slopes(const M* good) {
        const V *first = increments.data(), *last = increments.data() + (plan.stages - 1) * count;
        for (int i = 0; i < count; ++i) {
            const int v = i % registers;
            const V found = (good[v] ? last[i] : first[i]) / places.step[v];
            slope.data()[i] = places.moving[v] ? found : V{};
        }
    }

    // Moves a lane past its accepted step; at the end of a piece, onto the next one, with a step as long in time.
    void advance(Lane& l) {
        if (plan.adaptive) {
            l.u += l.h;
            if (l.u < 1) return;
        } else if (++l.substep < p.rule.substeps[l.piece]) {
            return;
        }
        const double before = p.duration[l.piece];
        l.u = 0, l.substep = 0, l.known = false;
        ++l.piece;
        const int64_t within = l.piece - l.first, row = p.row_offsets[l.series] + within / p.pieces_per_gap;
        if (within % p.pieces_per_gap == 0 && row < p.row_offsets[l.series + 1]) l.row = row;
        if (l.piece == l.end) return;
        const double after = p.duration[l.piece];
        l.size = std::min(std::max(before > 0 && after > 0 ? l.size * before / after : 1.0, smallest_step), 1.0);
    }

    // Jumps at the rows that were reached, saves their states, and frees the lanes whose series is finished.
    void arrive() {
        const Real* inputs[width];
        M jumping[registers] = {};
        if (plan.find_jumps([&](int j) { return lane[j].series < 0 ? -1 : lane[j].row; }, inputs, jumping)) {
            for (int j = 0; j < width; ++j)
                if (holds(jumping, j) && p.before_jumps) save(j, p.before_jumps + lane[j].row * hidden);
            plan.evaluate_jumps(state.data(), inputs, jumping, jump_work.data());
            const V* out = jump_work.data() + p.jump.output * registers;
            for (int i = 0; i < count; ++i) state.data()[i] = jumping[i % registers] ? out[i] : state.data()[i];
        }
        for (int j = 0; j < width; ++j) {
            Lane& l = lane[j];
            if (l.series < 0) continue;
            if (l.row >= 0 && p.at_rows) save(j, p.at_rows + l.row * hidden);
            l.row = -1;
            if (l.stop || l.piece == l.end) finish(j);
        }
    }

    void save(int j, Real* to) {
        for (int h = 0; h < hidden; ++h) to[h] = at(state.data(), h, j);
    }

    void keep(Lane& l, int j) {
        l.track.piece.push_back(l.piece), l.track.start.push_back(l.u), l.track.length.push_back(l.h);
        for (int h = 0; h < hidden; ++h) l.track.states.push_back(at(state.data(), h, j));
    }

    // Writes the results of a lane's series. Rows that it did not reach have the state at which it stopped.
    void finish(int j) {
        Lane& l = lane[j];
        const int64_t s = l.series;
        l.counts.finished = l.piece - l.first;
        save(j, p.last + s * hidden);
        for (int h = 0; h < hidden; ++h) l.counts.stuck |= !std::isfinite(at(state.data(), h, j));
        const int64_t reached = std::min(l.counts.finished / p.pieces_per_gap, rows_of(s) - 1);
        for (int64_t row = p.row_offsets[s] + reached + 1; p.at_rows && row < p.row_offsets[s + 1]; ++row)
            save(j, p.at_rows + row * hidden);
        if (p.tracks) {
            for (int h = 0; h < hidden; ++h) l.track.states.push_back(at(state.data(), h, j));
            p.tracks[s] = std::move(l.track);
        }
        int64_t* c = p.counts + s * walk_columns;
        c[0] = l.counts.finished, c[1] = l.counts.accepted, c[2] = l.counts.rejected;
        c[3] = l.counts.evaluations, c[4] = l.counts.stuck;
        p.stopped[s] = l.piece < l.end ? l.u : 0;
        l.series = -1;
    }

    int64_t rows_of(int64_t s) const { return p.row_offsets[s + 1] - p.row_offsets[s]; }
};

}  // namespace

}  // namespace neuralcde::LEVEL
