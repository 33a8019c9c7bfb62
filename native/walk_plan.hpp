// What all threads of a walk share and only read, and the step of the tableau that both directions take.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine.hpp"
#include "prepared.hpp"
#include "term.hpp"
#include "tile.hpp"

namespace neuralcde::LEVEL {

// Internal linkage lets the compiler inline functions that are called once. Only engine.cpp includes this file.
namespace {

// One weight of a tableau that is not 0.
template <class Real>
struct Weight {
    int stage;
    Real value;
};

template <class Real, int registers>
struct WalkPlan {
    using T = Tile<Real, registers>;
    using V = Vector<Real>;
    static constexpr int width = T::width;

    WalkPlan(const Walk<Real>& walk, bool training)
        : p(walk),
          hidden(static_cast<int>(walk.hidden)),
          stages(walk.tableau.stages),
          adaptive(walk.rule.adaptive),
          term(walk.drive, walk.powers, walk.channels),
          flow(walk.flow, hidden, training, few_lanes<Real, registers>(walk.series)),
          jump(walk.jump, hidden, training, few_lanes<Real, registers>(walk.series)) {
        for (int s = 0; s < stages; ++s) a.push_back(weights(walk.tableau.a.data() + s * stages, s));
        b = weights(walk.tableau.b.data(), stages);
        if (adaptive) b_error = weights(walk.tableau.b_error.data(), stages);
    }

    static std::vector<Weight<Real>> weights(const double* from, int count) {
        std::vector<Weight<Real>> found;
        for (int s = 0; s < count; ++s)
            if (from[s] != 0) found.push_back({s, static_cast<Real>(from[s])});
        return found;
    }

    // to = from + the weighted sum of the stages' increments, each of which has `count` registers.
    static void add_up(const V* from, const std::vector<Weight<Real>>& by, const V* increments, int count, V* to) {
        for (int i = 0; i < count; ++i) to[i] = from ? from[i] : V{};
        for (const auto& weight : by) {
            const V* k = increments + weight.stage * count;
            for (int i = 0; i < count; ++i) to[i] = multiply_add(weight.value, k[i], to[i]);
        }
    }

    // Adds the squares of the errors over their tolerances, of `n` registers of numbers that a step takes to `to`. Not a
    // number where `to` is not finite.
    void add_errors(const V* from, const V* to, const V* error, int n, V* sum) const {
        const Real rtol = static_cast<Real>(p.rule.rtol), atol = static_cast<Real>(p.rule.atol);
        for (int i = 0; i < n; ++i) {
            const V z = from[i], y = to[i], e = error[i];
            const V a = z < Real(0) ? -z : z, b = y < Real(0) ? -y : y;
            const V r = e / (atol + rtol * (a > b ? a : b));
            sum[i % registers] += (e == Real(0) ? V{} : r * r) + y * Real(0);
        }
    }

    // The factor from one step length to the next: `ratio` is the error over the tolerance, `previous` that of the
    // step accepted before. As scalars: the steps of a series do not depend on the lane that it is in. Rounded, because
    // the last digits of an error estimate are noise: so the accepted times are the same numbers on every processor.
    double factor(double ratio, double previous) const {
        const double order = p.tableau.order, smooth = ratio <= 1 ? p.rule.smooth : 0;
        double power = std::pow(std::max(ratio, 1e-10), (0.75 * smooth - 1) / order);
        if (smooth > 0) power *= std::pow(previous, smooth / order);
        int exponent = 0;
        const double mantissa = std::frexp(safety * power, &exponent);
        const double rounded = std::ldexp(std::nearbyint(std::ldexp(mantissa, factor_bits)), exponent - factor_bits);
        return std::min(std::max(rounded, shrink), grow);
    }

    // The inputs of the jumps at the rows that the lanes have reached (-1: none); false if no lane jumps.
    template <class RowOf>
    bool find_jumps(RowOf row_of, const Real** inputs, Mask<Real>* jumping) const {
        bool any = false;
        for (int j = 0; j < width; ++j) {
            const int64_t row = row_of(j);
            const bool jumps = row >= 0 && p.jumps && p.jumps[row];
            inputs[j] = jumps ? p.row_inputs + row * p.row_features : nullptr;
            jumping[j / T::lanes][j % T::lanes] = jumps ? -1 : 0;
            any |= jumps;
        }
        return any;
    }

    // Evaluates the jump of the lanes that jump, in a workspace.
    void evaluate_jumps(const V* state, const Real* const* inputs, const Mask<Real>* jumping, V* w) const {
        const int count = hidden * registers;
        for (int i = 0; i < count; ++i) w[i] = jumping[i % registers] ? state[i] : V{};
        T::gather(inputs, static_cast<int>(p.row_features), w + count);
        jump.evaluate(w);
    }

    const Walk<Real>& p;
    const int hidden, stages;
    const bool adaptive;
    const Term<Real, registers> term;
    const Prepared<Real, registers> flow, jump;
    std::vector<std::vector<Weight<Real>>> a;
    std::vector<Weight<Real>> b, b_error;
};

// The parts of a step that both directions share: the pieces that the lanes are on, and where on them.
template <class Real, int registers>
struct LanePlaces {
    using T = Tile<Real, registers>;
    using V = Vector<Real>;
    using M = Mask<Real>;
    static constexpr int width = T::width, lanes = T::lanes;

    explicit LanePlaces(const WalkPlan<Real, registers>& plan)
        : plan(plan), pieces(static_cast<size_t>(plan.p.powers) * plan.p.channels * registers) {}

    // Puts a lane on a step of a piece; piece -1: the lane rests.
    void put(int j, int64_t piece, double u, double length) {
        const bool moves = piece >= 0;
        if (piece != piece_of[j]) changed = true;
        piece_of[j] = piece;
        from[j / lanes][j % lanes] = static_cast<Real>(u);
        step[j / lanes][j % lanes] = static_cast<Real>(length);
        duration[j / lanes][j % lanes] = moves ? static_cast<Real>(length * plan.p.duration[piece]) : Real(0);
        moving[j / lanes][j % lanes] = moves ? -1 : 0;
    }

    // Loads the coefficients of the pieces, if a lane is on another one.
    void load() {
        if (!changed || !plan.p.flow.input) return;
        const Real* rows[width];
        const int64_t size = plan.p.powers * plan.p.channels;
        for (int j = 0; j < width; ++j) rows[j] = piece_of[j] < 0 ? nullptr : plan.p.coefficients + piece_of[j] * size;
        T::gather(rows, static_cast<int>(size), pieces.data());
        changed = false;
    }

    // Writes the drive of the flow at a stage into the input region of a workspace.
    void set_input(int stage, V* w) const {
        if (!plan.p.flow.input) return;
        V u[registers];
        place_of(stage, u);
        plan.term.drive(pieces.data(), u, step, w + static_cast<size_t>(plan.hidden) * registers);
    }

    // u at a stage, for every lane.
    void place_of(int stage, V* u) const {
        const Real node = static_cast<Real>(plan.p.tableau.c[stage]);
        for (int v = 0; v < registers; ++v) u[v] = multiply_add(node, step[v], from[v]);
    }

    const WalkPlan<Real, registers>& plan;
    V from[registers] = {}, step[registers] = {}, duration[registers] = {};
    M moving[registers] = {};

  private:
    std::vector<int64_t> piece_of = std::vector<int64_t>(width, -1);
    bool changed = true;
    Aligned<V> pieces;
};

}  // namespace

}  // namespace neuralcde::LEVEL
