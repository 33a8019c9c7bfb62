// Entry points of the engine: solves, and programs on rows. Compiled once per instruction-set level.

#include "engine.hpp"

#include <algorithm>
#include <vector>

#include "aligned.hpp"
#include "interrupt_flag.hpp"
#include "parallel.hpp"
#include "prepared.hpp"
#include "series_worker.hpp"
#include "single.hpp"
#include "solve_plan.hpp"
#include "tile.hpp"
#include "tile_worker.hpp"
#include "walk_back_worker.hpp"
#include "walk_worker.hpp"

namespace neuralcde::LEVEL {

namespace {

template <class Real, int registers>
void solve_tiles(const Problem<Real>& problem, bool backward) {
    const SolvePlan<Real, registers> plan(problem, backward);
    const int64_t tiles = plan.tiles, shares = std::max<int64_t>(1, std::min<int64_t>(problem.threads, tiles));
    InterruptFlag interrupt(problem.interrupted);
    std::vector<TileWorker<Real, registers>> workers;
    workers.reserve(shares);
    for (int64_t share = 0; share < shares; ++share) workers.emplace_back(plan, backward);
    parallel(shares, [&](int64_t share) {
        // Tiles are sorted by length, so taking every shares-th tile balances the work.
        for (int64_t tile = share; tile < tiles; tile += shares) {
            if (backward) {
                workers[share].backward(tile, interrupt);
            } else {
                workers[share].forward(tile, interrupt);
            }
            if (interrupt.set()) return;
        }
    });
    if (backward)
        for (const auto& worker : workers) {  // in a fixed order, so that sums are reproducible
            plan.flow.collect(worker.flow_sums);
            plan.jump.collect(worker.jump_sums);
        }
}

// Few series, one after another on the calling thread.
template <class Real>
void solve_series(const Problem<Real>& problem) {
    const Single<Real> flow(problem.flow, true), jump(problem.jump, true);
    SeriesWorker<Real> worker(problem, flow, jump);
    InterruptFlag interrupt(problem.interrupted);
    for (int64_t place = 0; place < problem.series && !interrupt.set(); ++place) worker.forward(place, interrupt);
}

template <class Real>
void solve(const Problem<Real>& problem, bool backward) {
    // A series alone takes about an eighth of the time of a tile of 16.
    if (!backward && problem.registers == 1 && 2 * problem.series < lane_count<Real>) {
        solve_series(problem);
    } else if (problem.registers == 2) {
        solve_tiles<Real, 2>(problem, backward);
    } else {
        solve_tiles<Real, 1>(problem, backward);
    }
}

// One lane per row: the result of a row does not depend on the other rows, bit for bit.
template <class Real>
void evaluate(const RowBatch<Real>& batch) {
    using T = Tile<Real, 1>;
    const Prepared<Real, 1> program(batch.program, 0, false);
    const int64_t tiles = (batch.rows + T::width - 1) / T::width;
    const int64_t fewest_tiles = 8;  // with fewer, starting a thread costs more than it saves
    const int64_t shares = std::max<int64_t>(1, std::min<int64_t>(batch.threads, tiles / fewest_tiles));
    parallel(shares, [&](int64_t share) {
        Aligned<Vector<Real>> work(program.workspace());
        const Real* lanes_in[T::width];
        for (int64_t tile = share; tile < tiles; tile += shares) {
            const int64_t first = tile * T::width, count = std::min<int64_t>(T::width, batch.rows - first);
            for (int64_t j = 0; j < T::width; ++j)
                lanes_in[j] = j < count ? batch.in + (first + j) * batch.inputs : nullptr;
            T::gather(lanes_in, static_cast<int>(batch.inputs), work.data());
            program.evaluate(work.data());
            const Real* found = reinterpret_cast<const Real*>(work.data() + batch.program.output);
            for (int64_t j = 0; j < count; ++j)
                for (int64_t k = 0; k < batch.outputs; ++k)
                    batch.out[(first + j) * batch.outputs + k] = found[k * T::width + j];
        }
    });
}

// Every shares-th series, longest first, belongs to the same thread, whose lanes take them one after another.
template <template <class, int> class Worker, class Real, int registers>
std::vector<Worker<Real, registers>> walk_shares(const WalkPlan<Real, registers>& plan) {
    const Walk<Real>& walk = plan.p;
    const int64_t tiles = (walk.series + plan.width - 1) / plan.width;
    const int64_t shares = std::max<int64_t>(1, std::min<int64_t>(walk.threads, tiles));
    InterruptFlag interrupt(walk.interrupted);
    std::vector<Worker<Real, registers>> workers;
    workers.reserve(shares);
    for (int64_t share = 0; share < shares; ++share) workers.emplace_back(plan);
    parallel(shares, [&](int64_t share) { workers[share].run(share, shares, interrupt); });
    return workers;
}

template <class Real, int registers>
void walk_lanes(const Walk<Real>& walk, bool backward) {
    const WalkPlan<Real, registers> plan(walk, backward);
    if (!backward) {
        walk_shares<WalkWorker>(plan);
        return;
    }
    for (const auto& worker : walk_shares<WalkBackWorker>(plan)) {  // in a fixed order: sums are reproducible
        plan.flow.collect(worker.flow_sums);
        plan.jump.collect(worker.jump_sums);
    }
}

template <class Real>
void walk(const Walk<Real>& walk, bool backward) {
    if (walk.registers == 2) {
        walk_lanes<Real, 2>(walk, backward);
    } else {
        walk_lanes<Real, 1>(walk, backward);
    }
}

template <class Real>
constexpr Engine<Real> engine{lane_count<Real>, [](const Problem<Real>& p) { solve(p, false); },
                              [](const Problem<Real>& p) { solve(p, true); },
                              [](const RowBatch<Real>& batch) { evaluate(batch); },
                              [](const Walk<Real>& w) { walk(w, false); },
                              [](const Walk<Real>& w) { walk(w, true); }};

}  // namespace

extern const Engine<float> engine32 = engine<float>;
extern const Engine<double> engine64 = engine<double>;

}  // namespace neuralcde::LEVEL
