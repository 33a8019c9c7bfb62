// One thread's lanes, each of which walks its series backwards. With the continuous adjoint, z and its adjoint a are
// solved backwards in time, and the gradients of path and parameters are integrals along the way. With a reversible
// method, each step is undone by a step back, and then differentiated.
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
class WalkBackWorker {
    using T = Tile<Real, registers>;
    using V = Vector<Real>;
    using M = Mask<Real>;
    static constexpr int width = T::width, lanes = T::lanes;

  public:
    explicit WalkBackWorker(const WalkPlan<Real, registers>& plan)
        : plan(plan),
          p(plan.p),
          hidden(plan.hidden),
          count(plan.hidden * registers),
          to_path(p.coefficient_gradient && p.flow.input),  // only a flow that sees X has such a gradient
          places(plan),
          state(2 * count),
          end(2 * count),
          error(2 * count),
          y(2 * count),
          increments(static_cast<size_t>(std::max(plan.stages, 1)) * 2 * count),
          piece_gradient(to_path ? static_cast<size_t>(p.powers) * p.channels * registers : 0),
          jump_work(p.jump.present() ? plan.jump.workspace() : 0),
          jump_gradient(jump_work.size()),
          flow_sums(plan.flow.sums(plan.stages)),
          jump_sums(plan.jump.sums(1)) {
        for (int s = 0; s < plan.stages; ++s) {
            work.emplace_back(plan.flow.workspace());
            work_gradient.emplace_back(plan.flow.workspace());
        }
    }

    // Walks the series at places first, first + stride, ... of the order.
    void run(int64_t first, int64_t stride, InterruptFlag& interrupt) {
        next = first;
        while (!interrupt.set()) {
            while (take_series(stride)) leave_rows();
            if (!place_lanes()) return;
            if (p.stored) {
                undo_step();
            } else {
                take_step();
            }
            judge();
            leave_rows();
        }
    }

  private:
    struct Lane {
        int64_t series = -1, piece = 0, first = 0, tries = 0;
        int64_t substep = 0;             // of fixed steps: steps left in the piece
        int64_t steps = 0;               // of a reversible method: steps left in the series
        double left = 1, size = 1, h = 1;  // of the piece: what is left, the step to try, the one that is tried
        int64_t row = -1;                // a row that was just reached, from its later side
        bool stuck = false;
        int64_t evaluations = 0, accepted = 0, rejected = 0;
    };

    const WalkPlan<Real, registers>& plan;
    const Walk<Real>& p;
    const int hidden, count;
    const bool to_path;
    int64_t next = 0;
    std::vector<Lane> lane = std::vector<Lane>(width);
    LanePlaces<Real, registers> places;
    Aligned<V> state, end, error, y, increments;  // [z, a]
    Aligned<V> piece_gradient, jump_work, jump_gradient;
    std::vector<Aligned<V>> work, work_gradient;  // one workspace per stage

  public:
    typename Prepared<Real, registers>::Sums flow_sums, jump_sums;  // gradients of the parameters

  private:
    static Real& at(V* data, int feature, int j) { return reinterpret_cast<Real*>(data)[feature * width + j]; }
    V* adjoint() { return state.data() + count; }

    bool take_series(int64_t stride) {
        bool any = false;
        for (int j = 0; j < width && next < p.series; ++j) {
            if (lane[j].series >= 0) continue;
            const int64_t s = p.order[next];
            next += stride;
            Lane& l = lane[j] = Lane{};
            l.series = s, l.first = p.piece_offsets[s], l.piece = p.piece_offsets[s + 1];
            l.row = p.row_offsets[s + 1] - 1;
            for (int64_t k = l.first; p.stored && k < l.piece; ++k) l.steps += p.rule.substeps[k];
            if (l.row == p.row_offsets[s]) {  // one row: it is where the only piece starts, and no row is at its end
                l.row = -1;
                enter(l);
            }
            for (int h = 0; h < hidden; ++h) {
                at(state.data(), h, j) = p.last[s * hidden + h];
                at(adjoint(), h, j) = p.last_gradient[s * hidden + h];
            }
            any = true;
        }
        return any;
    }

    // Undoes what happened at the rows that were reached: the state there is restored, its gradient is added to the
    // adjoint, and the adjoint goes through the jump. Frees the lanes that are at their first row.
    void leave_rows() {
        const Real* inputs[width];
        M jumping[registers] = {};
        const bool any =
            plan.find_jumps([&](int j) { return lane[j].series < 0 ? -1 : lane[j].row; }, inputs, jumping);
        for (int j = 0; j < width; ++j) {
            const int64_t row = lane[j].series < 0 ? -1 : lane[j].row;
            if (row < 0) continue;
            for (int h = 0; h < hidden; ++h) {
                if (p.at_rows) at(state.data(), h, j) = p.at_rows[row * hidden + h];
                if (p.rows_gradient) at(adjoint(), h, j) += p.rows_gradient[row * hidden + h];
                if (jumping[j / lanes][j % lanes]) at(state.data(), h, j) = p.before_jumps[row * hidden + h];
            }
        }
        if (any) pull_back_jumps(inputs, jumping);
        for (int j = 0; j < width; ++j) {
            Lane& l = lane[j];
            if (l.series < 0) continue;
            if (l.stuck || (l.row >= 0 && l.piece == l.first)) {
                for (int h = 0; h < hidden; ++h) p.initial_gradient[l.series * hidden + h] = at(adjoint(), h, j);
                int64_t* c = p.counts + l.series * walk_columns;
                c[0] = l.piece - l.first, c[1] = l.accepted, c[2] = l.rejected, c[3] = l.evaluations, c[4] = l.stuck;
                l.series = -1;
                continue;
            }
            if (l.row >= 0) enter(l);
            l.row = -1;
        }
    }

    // Puts a lane at the end of the piece before.
    void enter(Lane& l) {
        --l.piece;
        l.left = l.size = 1, l.tries = 0;
        if (!plan.adaptive) l.substep = p.rule.substeps[l.piece];
    }

    void pull_back_jumps(const Real* const* inputs, const M* jumping) {
        V *w = jump_work.data(), *g = jump_gradient.data(), *a = adjoint();
        plan.evaluate_jumps(state.data(), inputs, jumping, w);
        V* out = g + p.jump.output * registers;
        for (int i = 0; i < count; ++i) out[i] = jumping[i % registers] ? a[i] : V{};
        plan.jump.pull_back(w, g, p.input_gradient != nullptr);
        plan.jump.add_to(jump_sums, &w, &g, 1);
        for (int i = 0; i < count; ++i) a[i] = jumping[i % registers] ? g[i] : a[i];
        for (int j = 0; j < width; ++j) {
            if (!inputs[j] || !p.input_gradient) continue;
            Real* to = p.input_gradient + lane[j].row * p.row_features;
            for (int64_t f = 0; f < p.row_features; ++f) to[f] += at(g, hidden + static_cast<int>(f), j);
        }
    }

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
                l.h = l.size >= l.left * (1 - 1e-9) ? l.left : l.size;
            } else {
                l.h = 1.0 / static_cast<double>(p.rule.substeps[l.piece]);
                l.left = static_cast<double>(l.substep) * l.h;
            }
            places.put(j, l.piece, l.left, -l.h);
        }
        if (any) places.load();
        return any;
    }

    // One Runge-Kutta step of [z, a] backwards in time. At every stage the increment of z is that of the term over a
    // step of negative length, and the increment of a is minus its vector-Jacobian product with a.
    void take_step() {
        for (int s = 0; s < plan.stages; ++s) {
            plan.add_up(state.data(), plan.a[s], increments.data(), 2 * count, y.data());
            V *w = work[s].data(), *g = work_gradient[s].data(), *k = increments.data() + s * 2 * count;
            for (int i = 0; i < count; ++i) w[i] = places.moving[i % registers] ? y.data()[i] : V{};
            places.set_input(s, w);
            plan.flow.evaluate(w);
            V *out = w + p.flow.output * registers, *to_out = g + p.flow.output * registers;
            for (int i = 0; i < count; ++i) {
                const int v = i % registers;
                k[i] = places.moving[v] ? plan.term.scale(out[i], places.duration[v]) : V{};
                to_out[i] = places.moving[v] ? plan.term.scale(y.data()[count + i], places.duration[v]) : V{};
            }
            plan.flow.pull_back(w, g, to_path);
            for (int i = 0; i < count; ++i) k[count + i] = places.moving[i % registers] ? -g[i] : V{};
        }
        plan.add_up(state.data(), plan.b, increments.data(), 2 * count, end.data());
        if (plan.adaptive) plan.add_up(nullptr, plan.b_error, increments.data(), 2 * count, error.data());
    }

    // The increments of one step of z in the places of the lanes; each stage keeps its workspace.
    void step_of_state(const V* from) {
        for (int s = 0; s < plan.stages; ++s) {
            plan.add_up(from, plan.a[s], increments.data(), count, y.data());
            V *w = work[s].data(), *k = increments.data() + s * count;
            for (int i = 0; i < count; ++i) w[i] = places.moving[i % registers] ? y.data()[i] : V{};
            places.set_input(s, w);
            plan.flow.evaluate(w);
            const V* out = w + p.flow.output * registers;
            for (int i = 0; i < count; ++i)
                k[i] = places.moving[i % registers] ? plan.term.scale(out[i], places.duration[i % registers]) : V{};
        }
    }

    // Undoes one step: a step back gives the state at its start, or that state was stored. The step is taken again from
    // there with all stages kept, and the adjoint goes through it by its vector-Jacobian product.
    void undo_step() {
        step_of_state(state.data());
        V *start = end.data(), *a = end.data() + count;
        plan.add_up(state.data(), plan.b, increments.data(), count, start);
        for (int j = 0; j < width; ++j) {
            Lane& l = lane[j];
            if (l.series < 0) continue;
            if (--l.steps % p.every == 0) {
                const Real* kept = p.stored + (p.stored_offsets[l.series] + l.steps / p.every) * hidden;
                for (int h = 0; h < hidden; ++h) at(start, h, j) = kept[h];
            }
            places.put(j, l.piece, static_cast<double>(l.substep - 1) * l.h, l.h);
        }
        step_of_state(start);
        std::copy(adjoint(), adjoint() + count, a);
        V* to_k = increments.data();  // the increments are not needed any more
        std::fill(to_k, to_k + plan.stages * count, V{});
        for (const auto& weight : plan.b)
            for (int i = 0; i < count; ++i) to_k[weight.stage * count + i] = weight.value * a[i];
        for (int s = plan.stages; s-- > 0;) {
            V *g = work_gradient[s].data(), *out = g + p.flow.output * registers;
            for (int i = 0; i < count; ++i) {
                const int v = i % registers;
                out[i] = places.moving[v] ? plan.term.scale(to_k[s * count + i], places.duration[v]) : V{};
            }
            plan.flow.pull_back(work[s].data(), g, to_path);
            for (int i = 0; i < count; ++i) g[i] = places.moving[i % registers] ? g[i] : V{};
            for (int i = 0; i < count; ++i) a[i] += g[i];
            for (const auto& weight : plan.a[s])
                for (int i = 0; i < count; ++i) {
                    V& k = to_k[weight.stage * count + i];
                    k = multiply_add(weight.value, g[i], k);
                }
        }
    }

    // The error of z and a over the tolerance (the integrals are left out). A step whose result is not finite is
    // rejected, unless the state was not finite before: no step can help it then.
    void measure(Real* ratio) const {
        V sum[registers] = {}, before[registers] = {};
        plan.add_errors(state.data(), end.data(), error.data(), 2 * count, sum);
        for (int i = 0; i < 2 * count; ++i) before[i % registers] += state.data()[i] * Real(0);
        for (int j = 0; j < width; ++j) {
            const Real found = std::sqrt(sum[j / lanes][j % lanes] / static_cast<Real>(2 * hidden));
            const bool hopeless = before[j / lanes][j % lanes] != 0;
            ratio[j] = std::isfinite(found) ? found : hopeless ? Real(0) : std::numeric_limits<Real>::infinity();
        }
    }

    void judge() {
        Real ratio[width] = {};
        if (plan.adaptive) measure(ratio);
        M good[registers] = {};
        bool all_good = true;
        for (int j = 0; j < width; ++j) {
            Lane& l = lane[j];
            if (l.series < 0) continue;
            const bool accepted = ratio[j] <= 1;
            good[j / lanes][j % lanes] = accepted ? -1 : 0;
            all_good &= accepted;
            l.evaluations += plan.stages, l.accepted += accepted, l.rejected += !accepted;
            ++l.tries;
            if (!plan.adaptive) continue;
            l.size = l.h * plan.factor(static_cast<double>(ratio[j]), 1.0);
            l.stuck = !accepted && (l.size < smallest_step || l.tries >= p.rule.max_steps);
        }
        integrate(good, all_good);
        for (int i = 0; i < 2 * count; ++i)
            state.data()[i] = good[i % registers] ? end.data()[i] : state.data()[i];
        for (int j = 0; j < width; ++j) {
            Lane& l = lane[j];
            if (l.series < 0) continue;
            const bool accepted = good[j / lanes][j % lanes] != 0;
            bool arrived = false;
            if (accepted && plan.adaptive) {
                l.left -= l.h;
                arrived = l.left <= 0;
            } else if (accepted) {
                arrived = --l.substep == 0;
            }
            if (arrived) {
                arrive(l);
            } else if (plan.adaptive && l.tries >= p.rule.max_steps) {
                l.stuck = true;
            }
        }
    }

    // At the start of a piece: there is a row, or the end of the piece before.
    void arrive(Lane& l) {
        const int64_t within = l.piece - l.first;
        if (within % p.pieces_per_gap == 0) {
            l.row = p.row_offsets[l.series] + within / p.pieces_per_gap;
        } else {
            enter(l);
        }
    }

    // Adds the integrals of the accepted steps: the gradients of the stages with the weights of the tableau. Of a step
    // that was undone, the gradients of the stages as they are.
    void integrate(const M* good, bool all_good) {
        V *w[most_stages], *g[most_stages];
        int used = 0;
        if (to_path) std::fill(piece_gradient.data(), piece_gradient.data() + piece_gradient.size(), V{});
        for (int s = 0; s < plan.stages; ++s) {
            const Real weight = p.stored ? Real(1) : -static_cast<Real>(p.tableau.b[s]);
            if (weight == 0) continue;
            V *values = work[s].data(), *gradients = work_gradient[s].data();
            const int total = p.flow.features * registers;
            for (int i = 0; i < total; ++i)
                gradients[i] = good[i % registers] ? weight * gradients[i] : V{};
            for (int i = 0; i < total && !all_good; ++i)  // what was rejected may not be finite
                values[i] = good[i % registers] ? values[i] : V{};
            if (to_path) {
                V u[registers];
                places.place_of(s, u);
                plan.term.pull_back_drive(gradients + count, u, places.step, piece_gradient.data());
            }
            w[used] = values, g[used] = gradients;
            ++used;
        }
        plan.flow.add_to(flow_sums, w, g, used);
        if (!to_path) return;
        const int64_t size = p.powers * p.channels;
        for (int j = 0; j < width; ++j) {
            if (lane[j].series < 0 || !good[j / lanes][j % lanes]) continue;
            Real* to = p.coefficient_gradient + lane[j].piece * size;
            for (int64_t k = 0; k < size; ++k) to[k] += at(piece_gradient.data(), static_cast<int>(k), j);
        }
    }
};

}  // namespace

}  // namespace neuralcde::LEVEL
