// What all threads of a solve share and only read.
#pragma once

#include <cstdint>
#include <vector>

#include "engine.hpp"
#include "prepared.hpp"
#include "term.hpp"
#include "tile.hpp"

namespace neuralcde::LEVEL {

// Internal linkage lets the compiler inline functions that are called once. Only engine.cpp includes this file.
namespace {

// The problem, its programs with packed weights, and where the checkpoints of each tile start.
template <class Real, int registers>
struct SolvePlan {
    static constexpr int width = Tile<Real, registers>::width;

    SolvePlan(const Problem<Real>& problem, bool training)
        : p(problem),
          hidden(static_cast<int>(problem.hidden)),
          channels(static_cast<int>(problem.channels)),
          stages(problem.tableau.stages),
          term(problem.drive, problem.powers, problem.channels),
          flow(problem.flow, hidden, training, few_lanes<Real, registers>(problem.series)),
          jump(problem.jump, hidden, training, few_lanes<Real, registers>(problem.series)),
          tiles((problem.series + width - 1) / width) {
        first_checkpoint.assign(tiles + 1, 0);
        for (int64_t tile = 0; tile < tiles; ++tile) {
            const int64_t kept = p.every ? (longest(tile) + p.every - 1) / p.every : 0;
            first_checkpoint[tile + 1] = first_checkpoint[tile] + kept;
        }
    }

    // Events of the longest series of a tile. Series are sorted by length: it is the first one.
    int64_t longest(int64_t tile) const {
        const int64_t series = p.order[tile * width];
        return p.event_offsets[series + 1] - p.event_offsets[series];
    }

    const Problem<Real>& p;
    const int hidden, channels, stages;
    const Term<Real, registers> term;
    const Prepared<Real, registers> flow, jump;
    const int64_t tiles;
    std::vector<int64_t> first_checkpoint;
};

}  // namespace

}  // namespace neuralcde::LEVEL
