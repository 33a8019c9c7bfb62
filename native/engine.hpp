// The tile engine: whole trajectories of a tile of series in one call. What the bindings and the kernels agree on.
//
// A program computes one evaluation of a flow (or of a jump) for a tile. It is a short list of operations on one
// workspace of features. Each feature is a row of lanes, and each lane is a series. The state starts at feature 0, and
// the input follows it.
//
// A series is a list of events. An event is a jump (where it has one), then a step of the flow (where it has one). The
// state that is kept, saved and differentiated is the one between the two. The last event has no flow.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace neuralcde {

enum class Code : int { linear, unary, multiply, add, subtract, affine, contract, outer };
enum class Function : int { identity, relu, tanh, sigmoid, softplus, silu, decay };  // decay: exp(-max(x, 0))
// Their names in this order, for Python.
constexpr const char* code_names[] = {"linear", "unary", "multiply", "add", "subtract", "affine", "contract", "outer"};
constexpr const char* function_names[] = {"identity", "relu", "tanh", "sigmoid", "softplus", "silu", "decay"};

struct Op {
    Code code;
    Function function;  // unary: the function; linear: applied to the result
    int out, a, b;      // first features of the result and of the operands
    // linear: outputs, inputs; contract: a is (rows x columns), b has columns; outer: out is (rows x columns), a has
    // rows, b has columns; others: rows
    int rows, columns;
    int weight, bias;   // parameters of a linear; bias -1: none
    int64_t weight_start, bias_start;  // where its numbers start within the parameters
    bool accumulate;    // linear: add to the old result
    double scale, shift;  // affine: scale * a + shift

    // Number of features of the result and of the operands.
    int64_t size_out() const { return code == Code::outer ? int64_t(rows) * columns : rows; }
    int64_t size_a() const {
        return code == Code::linear ? columns : code == Code::contract ? int64_t(rows) * columns : rows;
    }
    int64_t size_b() const {
        switch (code) {
            case Code::multiply:
            case Code::add:
            case Code::subtract: return rows;
            case Code::contract:
            case Code::outer: return columns;
            default: return 0;
        }
    }
};

template <class Real>
struct Parameter {
    const Real* values;
    Real* gradient;  // null in a forward pass
    int64_t size;
};

template <class Real>
struct Program {
    std::vector<Op> ops;
    int features = 0;  // size of the workspace
    int input = 0;     // number of input features, after the state
    int output = 0;    // first feature of the result
    std::vector<Parameter<Real>> parameters;
    bool present() const { return !ops.empty(); }
};

constexpr int most_stages = 40;
constexpr int most_features = 1 << 24;    // of a workspace: 1 GB per stage for 16 lanes of float
constexpr int most_parameters = 1 << 24;  // of a program

// An explicit Runge-Kutta method. a is a stages x stages matrix, row by row. With an error estimate, stages that only
// the estimate uses are among the stages, with weight 0 in b.
struct Tableau {
    int stages = 0;
    std::vector<double> a, b, c;
    std::vector<double> b_error = {};  // empty: no error estimate
    int order = 1;
    bool same_as_last = false;  // the last stage is evaluated at the end of the step
};

enum class Drive : int { increment, value };  // whether dX or X drives the flow, see term.hpp

template <class Real>
struct Problem {
    Program<Real> flow, jump;
    Tableau tableau;
    Drive drive = Drive::increment;
    int64_t series = 0, hidden = 0, channels = 0, powers = 0, row_features = 0;

    const Real* initial = nullptr;         // (series, hidden)
    const Real* coefficients = nullptr;    // (pieces, powers, channels)
    const Real* row_inputs = nullptr;      // (rows, row_features)
    const int64_t* event_offsets = nullptr;  // (series + 1)
    const int64_t* piece = nullptr;        // (events) -1: no flow; null: every event but a series' last is one piece
    const double* from = nullptr;          // (events) u at the start of the step; null if piece is, as are the next two
    const double* step = nullptr;          // (events) length of the step in u
    const double* duration = nullptr;      // (events) length of the step in time
    const double* time = nullptr;          // (events) time of the event, where piece is null
    const int64_t* jump_row = nullptr;     // (events) -1: no jump; null: no jumps
    const int64_t* order = nullptr;        // (series) longest first
    const int64_t* saved_offsets = nullptr;  // (series + 1)
    const int64_t* saved_event = nullptr;  // (saved) events whose states are saved, increasing within a series

    int64_t every = 1;                     // events per checkpoint; 0: no checkpoints
    Real* checkpoints = nullptr;           // tile after tile, event after event, (hidden, lanes)
    int registers = 1;                     // width of a tile, in registers of lanes
    int threads = 1;
    std::function<bool()> interrupted;     // called every 100 ms or so by the calling thread

    Real* saved = nullptr;                 // forward: (saved, hidden)
    int64_t* failed_event = nullptr;       // forward: (series) event after which the state was not finite, or -1

    const Real* saved_gradient = nullptr;  // backward, all below
    Real* initial_gradient = nullptr;      // (series, hidden)
    Real* coefficient_gradient = nullptr;  // or null: not wanted
    Real* row_gradient = nullptr;          // or null: not wanted
};

// How a walk chooses its steps within a piece: a number of equal steps, or by the error.
struct StepRule {
    bool adaptive = false;
    const int64_t* substeps = nullptr;  // (pieces) if not adaptive
    double rtol = 0, atol = 0;   // if adaptive, as are the next two
    int64_t max_steps = 0;       // tried forwards, in all; backwards, in a piece
    double smooth = 0;           // how much the previous error counts: 0 but for a PI controller
};

constexpr double safety = 0.9, shrink = 0.2, grow = 10.0;  // of a step size controller
constexpr int factor_bits = 4;                             // of its factors
constexpr double smallest_step = 1e-12;                    // as a part of its piece

// What a walk found for a series.
struct WalkCounts {
    int64_t finished = 0, accepted = 0, rejected = 0, evaluations = 0;  // pieces, steps, steps, of the flow
    int64_t stuck = 0;  // it stopped because no step is short enough, or because its state was not finite
};
constexpr int walk_columns = 5;
constexpr const char* walk_column_names[] = {"finished", "accepted", "rejected", "evaluations", "stuck"};

// The accepted steps of a series, and the state at the start of each; then its last state.
template <class Real>
struct Track {
    std::vector<int64_t> piece;
    std::vector<double> start, length;
    std::vector<Real> states;
};

// Series that move along their own pieces, each with its own steps. Nothing is stored per step, unless `tracks` is set.
// A lane whose series is finished takes the next one.
template <class Real>
struct Walk {
    Program<Real> flow, jump;
    Tableau tableau;
    Drive drive = Drive::increment;
    StepRule rule;
    int64_t series = 0, hidden = 0, channels = 0, powers = 0, row_features = 0;

    const Real* initial = nullptr;           // (series, hidden)
    const Real* coefficients = nullptr;      // (pieces, powers, channels)
    const Real* row_inputs = nullptr;        // (rows, row_features)
    const int64_t* piece_offsets = nullptr;  // (series + 1)
    const int64_t* row_offsets = nullptr;    // (series + 1)
    const double* duration = nullptr;        // (pieces)
    const uint8_t* jumps = nullptr;          // (rows) whether there is a jump; null: nowhere
    const int64_t* order = nullptr;          // (series) longest first
    int64_t pieces_per_gap = 1;
    int registers = 1, threads = 1;
    std::function<bool()> interrupted;

    Real* last = nullptr;         // (series, hidden)
    Real* at_rows = nullptr;      // (rows, hidden) after the jump, or null: not wanted
    Real* before_jumps = nullptr; // (rows, hidden) where there is one, or null: not wanted
    int64_t* counts = nullptr;    // (series, walk_columns)
    double* stopped = nullptr;    // (series) u at which it stopped within its piece; 0 if finished
    Track<Real>* tracks = nullptr;  // (series) or null: not wanted

    // Fixed steps that are undone backwards by steps of the same method: the state at every `every`-th step of a series
    // is stored, from place stored_offsets[series] on.
    int64_t every = 0;
    const int64_t* stored_offsets = nullptr;
    Real* stored = nullptr;

    // Backwards, all below. The states above are inputs then, and a row whose state is not there is walked over.
    const Real* last_gradient = nullptr;   // (series, hidden)
    const Real* rows_gradient = nullptr;   // (rows, hidden) of at_rows, or null
    Real* initial_gradient = nullptr;      // (series, hidden)
    Real* coefficient_gradient = nullptr;  // or null: not wanted
    Real* input_gradient = nullptr;        // (rows, row_features) or null: not wanted
};

// A program and rows of inputs to evaluate it on. A row fills the workspace from feature 0 on.
template <class Real>
struct RowBatch {
    Program<Real> program;
    int64_t rows = 0, inputs = 0, outputs = 0;
    const Real* in = nullptr;  // (rows, inputs)
    Real* out = nullptr;       // (rows, outputs)
    int threads = 1;
};

template <class Real>
struct Engine {
    int lanes;  // series in a register
    void (*forward)(const Problem<Real>&);
    void (*backward)(const Problem<Real>&);
    void (*evaluate)(const RowBatch<Real>&);
    void (*walk)(const Walk<Real>&);
    void (*walk_back)(const Walk<Real>&);
};

}  // namespace neuralcde
