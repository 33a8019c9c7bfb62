// Programs as Python describes them: tables of operations and lists of parameters, checked and assembled.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "bindings.hpp"

namespace neuralcde {

// Internal linkage: only the bindings of solves, walks and streams include this file.
namespace {

// The columns of the two tables that describe a program: one row of integers and one of numbers per operation.
constexpr const char* op_columns[] = {"code",    "function", "out",  "a",            "b",          "rows",
                                      "columns", "weight",   "bias", "weight_start", "bias_start", "accumulate"};
constexpr size_t op_width = std::size(op_columns);
constexpr const char* number_columns[] = {"scale", "shift"};

struct ProgramSpec {
    std::vector<Op> ops;
    int features, input, output;
};

inline ProgramSpec make_program(Array<const int64_t, 2> ops, Array<const double, 2> numbers, int features, int input,
                         int output) {
    require(ops.shape(0) > 0, "a program needs operations");
    require(ops.shape(1) == op_width && numbers.shape(1) == 2 && ops.shape(0) == numbers.shape(0),
            "ops and numbers must have a row per operation, and OP_COLUMNS and NUMBER_COLUMNS as columns");
    const auto fits = [&](int value) { return value >= 0 && value <= features; };
    require(features > 0 && features <= most_features && fits(input) && fits(output),
            "features, input or output out of range");
    ProgramSpec spec{{}, features, input, output};
    for (size_t k = 0; k < ops.shape(0); ++k) {
        const int64_t* v = ops.data() + k * op_width;
        require(v[0] >= 0 && v[0] < static_cast<int64_t>(std::size(code_names)), "unknown code");
        require(v[1] >= 0 && v[1] < static_cast<int64_t>(std::size(function_names)), "unknown function");
        for (int i = 2; i < 7; ++i) require(v[i] >= -1 && v[i] <= features, "an operand is out of range");
        for (int i = 7; i < 9; ++i) require(v[i] >= -1 && v[i] <= most_parameters, "a parameter is out of range");
        for (int i = 9; i < 11; ++i) require(v[i] >= 0 && v[i] < INT64_MAX / 2, "a parameter is out of range");
        Op op{};
        op.code = static_cast<Code>(v[0]), op.function = static_cast<Function>(v[1]);
        op.out = int(v[2]), op.a = int(v[3]), op.b = int(v[4]), op.rows = int(v[5]), op.columns = int(v[6]);
        op.weight = int(v[7]), op.bias = int(v[8]), op.weight_start = v[9], op.bias_start = v[10];
        op.accumulate = v[11] != 0, op.scale = numbers.data()[2 * k], op.shift = numbers.data()[2 * k + 1];
        const bool has_columns = op.code == Code::linear || op.code == Code::contract || op.code == Code::outer;
        require(!has_columns || op.columns > 0, "a linear op, a contraction and an outer product need columns");
        require(op.code != Code::linear || op.weight >= 0, "a linear op needs a weight");
        require(op.code != Code::linear || op.function != Function::silu, "silu needs an op of its own");
        const int64_t size_out = op.size_out(), size_a = op.size_a(), size_b = op.size_b();
        require(op.rows > 0 && op.out >= 0 && op.a >= 0 && op.out + size_out <= features && op.a + size_a <= features,
                "an operand is out of range");
        require(size_b == 0 || (op.b >= 0 && op.b + size_b <= features), "an operand is out of range");
        auto apart = [&](int64_t start, int64_t size) { return start + size <= op.out || op.out + size_out <= start; };
        require(apart(op.a, size_a) && (size_b == 0 || apart(op.b, size_b)), "a result may not overlap its operands");
        spec.ops.push_back(op);
    }
    return spec;
}

template <class Real>
using Arrays = std::vector<nanobind::ndarray<const Real, nanobind::c_contig, nanobind::device::cpu>>;
template <class Real>
using OutArrays = std::vector<nanobind::ndarray<Real, nanobind::c_contig, nanobind::device::cpu>>;

template <class Real>
Program<Real> assemble(const ProgramSpec* spec, const Arrays<Real>& values, int64_t hidden) {
    Program<Real> program;
    if (!spec) return program;
    program.ops = spec->ops;
    program.features = spec->features, program.input = spec->input, program.output = spec->output;
    require(hidden + spec->input <= spec->features && spec->output + hidden <= spec->features,
            "state, input and output must fit the workspace");
    for (const auto& value : values) program.parameters.push_back({value.data(), nullptr, int64_t(value.size())});
    for (const Op& op : spec->ops) {
        if (op.code != Code::linear) continue;
        const int64_t count = static_cast<int64_t>(values.size());
        require(op.weight < count && op.bias < count, "a program asks for a parameter that is not there");
        require(op.weight_start + int64_t(op.rows) * op.columns <= program.parameters[op.weight].size,
                "a weight has the wrong size");
        require(op.bias < 0 || op.bias_start + op.rows <= program.parameters[op.bias].size,
                "a bias has the wrong size");
    }
    return program;
}

template <class Real>
void set_gradients(Program<Real>& program, const OutArrays<Real>& gradients) {
    require(gradients.size() == program.parameters.size() || !program.present(), "one gradient for each parameter");
    for (size_t i = 0; i < program.parameters.size(); ++i) {
        require(int64_t(gradients[i].size()) == program.parameters[i].size,
                "a gradient must have its parameter's size");
        program.parameters[i].gradient = gradients[i].data();
    }
}

template <class Real>
const Engine<Real>& engine() {
    const Level* level = chosen.load();
    if constexpr (sizeof(Real) == 4) {
        return *level->engine32;
    } else {
        return *level->engine64;
    }
}

using Integers = std::optional<Array<const int64_t, 1>>;
using Numbers = std::optional<Array<const double, 1>>;

// An optional array's data, or null.
template <class Maybe>
auto pointer(const Maybe& array) {
    return array ? array->data() : nullptr;
}

// Checks the offsets of ragged rows: series + 1 numbers from 0 to the number of rows; series without rows need `empty`.
inline void check_offsets(const Array<const int64_t, 1>& offsets, size_t total, bool empty) {
    require(offsets.shape(0) >= 1, "offsets must hold at least one number");
    const int64_t *o = offsets.data(), series = static_cast<int64_t>(offsets.shape(0)) - 1;
    require(o[0] == 0 && o[series] == static_cast<int64_t>(total), "offsets must start at 0 and end at the total");
    for (int64_t i = 0; i < series; ++i) require(empty ? o[i] <= o[i + 1] : o[i] < o[i + 1], "offsets must increase");
}

inline Tableau make_tableau(Array<const double, 2> a, Array<const double, 1> b, Array<const double, 1> c, Numbers b_error,
                     int order, bool same_as_last) {
    const size_t stages = b.shape(0);
    require(stages >= 1 && stages <= most_stages, "the tableau has the wrong size");
    require(a.shape(0) == stages && a.shape(1) == stages && c.shape(0) == stages, "the tableau has the wrong size");
    require(!b_error || b_error->shape(0) == stages, "the tableau has the wrong size");
    require(order >= 1 && order <= 1000, "the order of a tableau must be at least 1");
    Tableau made{static_cast<int>(stages), {a.data(), a.data() + stages * stages}, {b.data(), b.data() + stages},
                 {c.data(), c.data() + stages}};
    if (b_error) made.b_error.assign(b_error->data(), b_error->data() + stages);
    made.order = order, made.same_as_last = same_as_last;
    return made;
}

// Runs work(interrupted) without the GIL; Ctrl-C ends it and raises KeyboardInterrupt.
template <class Work>
void interruptible(Work work) {
    bool stopped = false;
    {
        nanobind::gil_scoped_release release;
        work([&stopped] {
            nanobind::gil_scoped_acquire acquire;
            stopped = PyErr_CheckSignals() != 0;
            return stopped;
        });
    }
    if (stopped) throw nanobind::python_error();
}

// Runs one call of the engine, which Ctrl-C can end.
template <class Call>
void run(void (*engine)(const Call&), Call& call) {
    interruptible([&](std::function<bool()> interrupted) {
        call.interrupted = std::move(interrupted);
        engine(call);
    });
}

// noconvert: an array of another dtype or layout is an error, never a silent copy (results in a copy would be lost).
inline auto exact(const char* name) { return nanobind::arg(name).noconvert(); }
inline auto maybe(const char* name) { return nanobind::arg(name).noconvert().none() = nanobind::none(); }

}  // namespace

}  // namespace neuralcde
