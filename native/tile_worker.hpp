// One thread's work on one tile of series: jumps, Runge-Kutta steps, checkpoints, and the reverse sweep.
#pragma once

#include <algorithm>
#include <vector>

#include "aligned.hpp"
#include "engine.hpp"
#include "interrupt_flag.hpp"
#include "prepared.hpp"
#include "solve_plan.hpp"
#include "tile.hpp"

namespace neuralcde::LEVEL {

// Internal linkage lets the compiler inline functions that are called once. Only engine.cpp includes this file.
namespace {

// The workspaces of one thread, which takes one tile after the other.
template <class Real, int registers>
class TileWorker {
    using T = Tile<Real, registers>;
    using V = Vector<Real>;
    using M = Mask<Real>;
    static constexpr int width = T::width, lanes = T::lanes;

  public:
    TileWorker(const SolvePlan<Real, registers>& s, bool backward)
        : plan(s),
          p(s.p),
          hidden(s.hidden),
          stages(s.stages),
          state(s.hidden * registers),
          gradient(s.hidden * registers),
          increments(static_cast<size_t>(std::max(s.stages, 1)) * s.hidden * registers),
          pieces(static_cast<size_t>(p.powers) * s.channels * registers),
          piece_gradient(pieces.size()),
          jump_work(p.jump.present() ? s.jump.workspace() : 0),
          jump_gradient(backward && p.jump.present() ? s.jump.workspace() : 0),
          segment(backward && p.every > 1 ? static_cast<size_t>(p.every) * s.hidden * registers : 0) {
        if (p.flow.present())
            for (int k = 0; k < (backward ? stages : 1); ++k) {
                work.emplace_back(s.flow.workspace());
                if (backward) work_gradient.emplace_back(s.flow.workspace());
            }
        if (backward) {
            flow_sums = s.flow.sums(stages);
            jump_sums = s.jump.sums(1);
        }
    }

    // Solves one tile: at every event the jump, then the checkpoint and the saved states, then the step of the flow.
    void forward(int64_t tile, InterruptFlag& interrupt) {
        assign(tile);
        load_initial();
        const int64_t events = plan.longest(tile);
        for (int64_t e = 0; e < events; ++e) {
            if (interrupt.set()) return;
            if (advance_jump(e, state.data())) check(e);
            keep(tile, e);
            save(e);
            if (!prepare_step(e)) continue;
            take_step(state.data(), false);
            check(e);
        }
    }

    // The reverse sweep of one tile. At event e, `gradient` is that of the state after the jump of event e + 1. The
    // state between jump and step of event e is read from a checkpoint, or from a segment that is replayed from one.
    // The step is taken again with all stages kept. Then the jump of event e + 1 and the step are pulled back, and
    // the gradient of the saved states of event e is added.
    void backward(int64_t tile, InterruptFlag& interrupt) {
        assign(tile);
        const int64_t events = plan.longest(tile);
        std::fill(gradient.data(), gradient.data() + gradient.size(), V{});
        for (Lane& l : lane) l.saved = l.saved_end;
        const size_t size = static_cast<size_t>(hidden) * registers;
        for (int64_t e = events; e-- > 0;) {
            if (interrupt.set()) return;
            const V* here;
            if (p.every == 1) {
                here = checkpoint(tile, e);
            } else {
                const int64_t start = e / p.every * p.every;
                if (e == events - 1 || e % p.every == p.every - 1) replay(tile, start, e);
                here = segment.data() + (e - start) * size;
            }
            std::copy(here, here + size, state.data());
            const bool flows = prepare_step(e);
            if (flows) take_step(state.data(), true);
            if (e + 1 < events) pull_back_jump(e + 1, state.data());
            if (flows) pull_back_step(e);
            take_saved_gradient(e);
        }
        load_initial();
        pull_back_jump(0, state.data());
        for (int j = 0; j < width; ++j)
            if (lane[j].series >= 0)
                for (int h = 0; h < hidden; ++h)
                    p.initial_gradient[lane[j].series * hidden + h] = at(gradient.data(), h, j);
    }

    typename Prepared<Real, registers>::Sums flow_sums, jump_sums;  // gradients of the parameters, over all tiles

  private:
    // A lane of the tile: which series it is, and which of its states are still to be saved.
    struct Lane {
        int64_t series = -1, first_event = 0, events = 0;
        int64_t saved = 0, saved_end = 0;
    };

    const SolvePlan<Real, registers>& plan;
    const Problem<Real>& p;
    const int hidden, stages;
    std::vector<Lane> lane = std::vector<Lane>(width);
    Aligned<V> state, gradient, increments, pieces, piece_gradient, jump_work, jump_gradient, segment;
    std::vector<Aligned<V>> work, work_gradient;  // one workspace per stage
    V from[registers], step[registers], duration[registers];
    M moving[registers];
    std::vector<const Real*> lane_coefficients = std::vector<const Real*>(width);

    // ---- lanes ----

    static Real& at(V* data, int feature, int j) { return reinterpret_cast<Real*>(data)[feature * width + j]; }

    void assign(int64_t tile) {
        for (int j = 0; j < width; ++j) {
            const int64_t place = tile * width + j;
            lane[j] = Lane{};
            if (place >= p.series) continue;
            const int64_t s = p.order[place];
            lane[j] = {s, p.event_offsets[s], p.event_offsets[s + 1] - p.event_offsets[s], p.saved_offsets[s],
                       p.saved_offsets[s + 1]};
        }
    }

    void load_initial() {
        for (int j = 0; j < width; ++j)
            for (int h = 0; h < hidden; ++h)
                at(state.data(), h, j) = lane[j].series < 0 ? Real(0) : p.initial[lane[j].series * hidden + h];
    }

    V* checkpoint(int64_t tile, int64_t e) {
        const int64_t size = static_cast<int64_t>(hidden) * registers;
        return reinterpret_cast<V*>(p.checkpoints) + (plan.first_checkpoint[tile] + e / p.every) * size;
    }

    void keep(int64_t tile, int64_t e) {
        if (!p.every || e % p.every) return;
        std::copy(state.data(), state.data() + state.size(), checkpoint(tile, e));
    }

    void save(int64_t e) {
        for (int j = 0; j < width; ++j) {
            Lane& l = lane[j];
            for (; l.saved < l.saved_end && p.saved_event[l.saved] == e; ++l.saved)
                for (int h = 0; h < hidden; ++h) p.saved[l.saved * hidden + h] = at(state.data(), h, j);
        }
    }

    void take_saved_gradient(int64_t e) {
        for (int j = 0; j < width; ++j) {
            Lane& l = lane[j];
            if (l.series < 0) continue;
            for (; l.saved > p.saved_offsets[l.series] && p.saved_event[l.saved - 1] == e; --l.saved)
                for (int h = 0; h < hidden; ++h)
                    at(gradient.data(), h, j) += p.saved_gradient[(l.saved - 1) * hidden + h];
        }
    }

    // Recomputes the states from a checkpoint up to event `last` into `segment`, for the reverse sweep.
    void replay(int64_t tile, int64_t start, int64_t last) {
        const size_t size = state.size();
        const V* from_here = checkpoint(tile, start);
        std::copy(from_here, from_here + size, state.data());
        for (int64_t e = start;; ++e) {
            if (e > start) advance_jump(e, state.data());
            std::copy(state.data(), state.data() + size, segment.data() + (e - start) * size);
            if (e == last) return;
            if (prepare_step(e)) take_step(state.data(), false);
        }
    }

    // Notes the first event after which the state of a lane is not finite: 0 * z sums to NaN.
    void check(int64_t e) {
        V sum[registers] = {};
        const V* z = state.data();
        for (int h = 0; h < hidden; ++h)
            for (int v = 0; v < registers; ++v) sum[v] += z[h * registers + v] * Real(0);
        for (int v = 0; v < registers; ++v) {
            const M bad = sum[v] != sum[v];
            for (int j = 0; j < lanes; ++j) {
                const Lane& l = lane[v * lanes + j];
                if (bad[j] && l.series >= 0 && p.failed_event[l.series] < 0) p.failed_event[l.series] = e;
            }
        }
    }

    // ---- jumps ----

    // Loads states and row inputs of the lanes that jump at event e; false if none does.
    bool load_jump(int64_t e, const V* before, M* jumping) {
        if (!p.jump.present()) return false;
        const Real* rows[width];
        bool any = false;
        for (int j = 0; j < width; ++j) {
            const Lane& l = lane[j];
            const int64_t row = e < l.events ? p.jump_row[l.first_event + e] : -1;
            rows[j] = row < 0 ? nullptr : p.row_inputs + row * p.row_features;
            jumping[j / lanes][j % lanes] = row < 0 ? 0 : -1;
            any |= row >= 0;
        }
        if (!any) return false;
        std::copy(before, before + static_cast<size_t>(hidden) * registers, jump_work.data());
        T::gather(rows, static_cast<int>(p.row_features), jump_work.data() + static_cast<size_t>(hidden) * registers);
        return true;
    }

    bool advance_jump(int64_t e, V* z) {
        M jumping[registers] = {};
        if (!load_jump(e, z, jumping)) return false;
        plan.jump.evaluate(jump_work.data());
        const V* out = jump_work.data() + p.jump.output * registers;
        for (int h = 0; h < hidden; ++h)
            for (int v = 0; v < registers; ++v)
                z[h * registers + v] = jumping[v] ? out[h * registers + v] : z[h * registers + v];
        return true;
    }

    // Turns the gradient of the state after the jump of event e into that of the state before it.
    void pull_back_jump(int64_t e, const V* before) {
        M jumping[registers] = {};
        if (!load_jump(e, before, jumping)) return;
        plan.jump.evaluate(jump_work.data());
        V *g = gradient.data(), *out = jump_gradient.data() + p.jump.output * registers;
        for (int h = 0; h < hidden; ++h)
            for (int v = 0; v < registers; ++v) out[h * registers + v] = jumping[v] ? g[h * registers + v] : V{};
        plan.jump.pull_back(jump_work.data(), jump_gradient.data(), p.row_gradient != nullptr);
        V *w = jump_work.data(), *gw = jump_gradient.data();
        plan.jump.add_to(jump_sums, &w, &gw, 1);
        for (int h = 0; h < hidden; ++h)
            for (int v = 0; v < registers; ++v)
                g[h * registers + v] = jumping[v] ? gw[h * registers + v] : g[h * registers + v];
        if (!p.row_gradient) return;
        for (int j = 0; j < width; ++j) {
            if (!jumping[j / lanes][j % lanes]) continue;
            Real* to = p.row_gradient + p.jump_row[lane[j].first_event + e] * p.row_features;
            for (int64_t f = 0; f < p.row_features; ++f) to[f] = at(gw, hidden + static_cast<int>(f), j);
        }
    }

    // ---- steps of the flow ----

    // The piece that a lane steps along at event e, or -1.
    int64_t piece(const Lane& l, int64_t e) const {
        if (e >= l.events) return -1;
        if (p.piece) return p.piece[l.first_event + e];
        return e + 1 < l.events ? l.first_event + e - l.series : -1;
    }

    // Reads the pieces that the lanes step along; false if no lane has a step at event e.
    bool prepare_step(int64_t e) {
        if (!p.flow.present()) return false;
        bool any = false;
        for (int j = 0; j < width; ++j) {
            const Lane& l = lane[j];
            const int64_t event = l.first_event + e;
            const int64_t along = piece(l, e);
            const bool moves = along >= 0, whole = moves && !p.piece;
            lane_coefficients[j] = moves ? p.coefficients + along * p.powers * p.channels : nullptr;
            const double lasts = whole ? p.time[event + 1] - p.time[event] : moves ? p.duration[event] : 0;
            from[j / lanes][j % lanes] = whole || !moves ? Real(0) : static_cast<Real>(p.from[event]);
            step[j / lanes][j % lanes] = whole ? Real(1) : moves ? static_cast<Real>(p.step[event]) : Real(0);
            duration[j / lanes][j % lanes] = static_cast<Real>(lasts);
            moving[j / lanes][j % lanes] = moves ? -1 : 0;
            any |= moves;
        }
        if (!any) return false;
        if (p.flow.input) T::gather(lane_coefficients.data(), static_cast<int>(p.powers * p.channels), pieces.data());
        return true;
    }

    // Writes the drive of the flow at a stage into the input region of a workspace.
    void set_input(int stage, V* w) {
        if (!p.flow.input) return;
        V u[registers];
        place_of(stage, u);
        plan.term.drive(pieces.data(), u, step, w + static_cast<size_t>(hidden) * registers);
    }

    // u at a stage, for every lane.
    void place_of(int stage, V* u) const {
        const Real node = static_cast<Real>(p.tableau.c[stage]);
        for (int v = 0; v < registers; ++v) u[v] = multiply_add(node, step[v], from[v]);
    }

    // One Runge-Kutta step: z += sum of b_s k_s. With keep_stages each stage keeps its workspace, for the reverse
    // sweep.
    void take_step(V* z, bool keep_stages) {
        const int count = hidden * registers;
        const std::vector<double>&a = p.tableau.a, &b = p.tableau.b;
        for (int s = 0; s < stages; ++s) {
            V* w = work[keep_stages ? s : 0].data();
            for (int i = 0; i < count; ++i) {
                V y = z[i];
                for (int r = 0; r < s; ++r) {
                    const double weight = a[s * stages + r];
                    if (weight != 0) y = multiply_add(static_cast<Real>(weight), increments.data()[r * count + i], y);
                }
                // Lanes without a step are evaluated at 0, so that they cannot overflow.
                w[i] = moving[i % registers] ? y : V{};
            }
            set_input(s, w);
            plan.flow.evaluate(w);
            const V* out = w + p.flow.output * registers;
            V* k = increments.data() + s * count;
            for (int i = 0; i < count; ++i) {
                k[i] = moving[i % registers] ? plan.term.scale(out[i], duration[i % registers]) : V{};
            }
        }
        for (int i = 0; i < count; ++i) {
            V sum{};
            for (int s = 0; s < stages; ++s)
                sum = multiply_add(static_cast<Real>(b[s]), increments.data()[s * count + i], sum);
            z[i] += sum;
        }
    }

    // Vector-Jacobian product of take_step(..., true): turns the gradient at the end of the step into that at its
    // start. `increments`, which hold the k_s, are reused for their gradients.
    void pull_back_step(int64_t e) {
        const int count = hidden * registers;
        const std::vector<double>&a = p.tableau.a, &b = p.tableau.b;
        V *g = gradient.data(), *to_k = increments.data();
        for (int s = 0; s < stages; ++s)
            for (int i = 0; i < count; ++i) to_k[s * count + i] = static_cast<Real>(b[s]) * g[i];
        V *w[most_stages], *gw[most_stages];
        const bool to_path = p.coefficient_gradient && p.flow.input;  // only a flow that sees X has such a gradient
        if (to_path) std::fill(piece_gradient.data(), piece_gradient.data() + piece_gradient.size(), V{});
        for (int s = stages; s-- > 0;) {
            w[s] = work[s].data(), gw[s] = work_gradient[s].data();
            V* out = gw[s] + p.flow.output * registers;
            for (int i = 0; i < count; ++i) {
                const V k = to_k[s * count + i];
                out[i] = moving[i % registers] ? plan.term.scale(k, duration[i % registers]) : V{};
            }
            plan.flow.pull_back(w[s], gw[s], to_path);
            if (to_path) {
                V u[registers];
                place_of(s, u);
                plan.term.pull_back_drive(gw[s] + count, u, step, piece_gradient.data());
            }
            for (int i = 0; i < count; ++i) {
                const V y = moving[i % registers] ? gw[s][i] : V{};
                g[i] += y;
                for (int r = 0; r < s; ++r) {
                    const double weight = a[s * stages + r];
                    if (weight == 0) continue;
                    to_k[r * count + i] = multiply_add(static_cast<Real>(weight), y, to_k[r * count + i]);
                }
            }
        }
        plan.flow.add_to(flow_sums, w, gw, stages);
        if (!to_path) return;
        const int64_t size = p.powers * p.channels;
        for (int j = 0; j < width; ++j) {
            const Lane& l = lane[j];
            if (!moving[j / lanes][j % lanes]) continue;
            Real* to = p.coefficient_gradient + piece(l, e) * size;
            for (int64_t k = 0; k < size; ++k) to[k] += at(piece_gradient.data(), static_cast<int>(k), j);
        }
    }
};

}  // namespace

}  // namespace neuralcde::LEVEL
