// The engine's functions in Python. Every argument is checked here: the kernels trust what they get.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace neuralcde {
namespace {

template <class Real>
const Engine<Real>& engine() {
    const Level* level = chosen.load();
    if constexpr (sizeof(Real) == 4) {
        return *level->engine32;
    } else {
        return *level->engine64;
    }
}

// Rows of ten integers and two numbers: code, function, out, a, b, rows, columns, weight, bias, accumulate; scale, shift.
struct ProgramSpec {
    std::vector<Op> ops;
    int features, input, output;
};

ProgramSpec make_program(Array<const int64_t, 2> ops, Array<const double, 2> numbers, int features, int input,
                         int output) {
    require(ops.shape(0) > 0, "a program needs operations");
    require(ops.shape(1) == 10 && numbers.shape(1) == 2 && ops.shape(0) == numbers.shape(0),
            "ops must have ten columns and numbers two");
    require(features > 0 && features <= most_features && input >= 0 && input <= features && output >= 0 && output <= features,
            "features, input or output out of range");
    ProgramSpec spec{{}, features, input, output};
    for (size_t k = 0; k < ops.shape(0); ++k) {
        const int64_t* v = ops.data() + k * 10;
        require(v[0] >= 0 && v[0] <= static_cast<int>(Code::outer), "unknown code");
        require(v[1] >= 0 && v[1] <= static_cast<int>(Function::decay), "unknown function");
        for (int i = 2; i < 7; ++i) require(v[i] >= -1 && v[i] <= features, "an operand is out of range");
        for (int i = 7; i < 9; ++i) require(v[i] >= -1 && v[i] <= most_parameters, "a parameter is out of range");
        Op op{static_cast<Code>(v[0]), static_cast<Function>(v[1]), int(v[2]), int(v[3]), int(v[4]), int(v[5]),
              int(v[6]),               int(v[7]),                   int(v[8]), v[9] != 0, 0,         0};
        op.scale = numbers.data()[2 * k], op.shift = numbers.data()[2 * k + 1];
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
using Arrays = std::vector<nb::ndarray<const Real, nb::c_contig, nb::device::cpu>>;
template <class Real>
using OutArrays = std::vector<nb::ndarray<Real, nb::c_contig, nb::device::cpu>>;

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
        require(program.parameters[op.weight].size == int64_t(op.rows) * op.columns, "a weight has the wrong size");
        require(op.bias < 0 || program.parameters[op.bias].size == op.rows, "a bias has the wrong size");
    }
    return program;
}

template <class Real>
void set_gradients(Program<Real>& program, const OutArrays<Real>& gradients) {
    require(gradients.size() == program.parameters.size() || !program.present(), "one gradient for each parameter");
    for (size_t i = 0; i < program.parameters.size(); ++i) {
        require(int64_t(gradients[i].size()) == program.parameters[i].size, "a gradient must have its parameter's size");
        program.parameters[i].gradient = gradients[i].data();
    }
}

using Integers = std::optional<Array<const int64_t, 1>>;
using Numbers = std::optional<Array<const double, 1>>;

// A problem that was checked, with the arrays it points to. Nothing in it changes after construction: every call works on
// a copy of the problem, with outputs and checkpoints of its own, so that threads may share a solve.
template <class Real>
class Solve {
  public:
    Solve(const ProgramSpec* flow, Arrays<Real> flow_values, const ProgramSpec* jump, Arrays<Real> jump_values,
          bool controlled, Array<const double, 2> a, Array<const double, 1> b, Array<const double, 1> c,
          Array<const Real, 2> initial, Array<const Real, 3> coefficients, Array<const Real, 2> row_inputs,
          Array<const int64_t, 1> event_offsets, Integers piece, Numbers from, Numbers step, Numbers duration,
          Integers jump_row, Numbers time, Array<const int64_t, 1> order, Array<const int64_t, 1> saved_offsets,
          Array<const int64_t, 1> saved_event, int64_t every, int registers, int threads)
        : held(std::make_tuple(flow_values, jump_values, initial, coefficients, row_inputs, event_offsets, piece, from, step,
                               duration, jump_row, time, order, saved_offsets, saved_event)) {
        p.series = initial.shape(0), p.hidden = initial.shape(1);
        p.powers = coefficients.shape(1), p.channels = coefficients.shape(2), p.row_features = row_inputs.shape(1);
        p.flow = assemble<Real>(flow, flow_values, p.hidden);
        p.jump = assemble<Real>(jump, jump_values, p.hidden);
        require(p.hidden > 0, "the state has no features");
        require(!flow || flow->input == 0 || flow->input == p.channels, "the flow's input is not the path's channels");
        require(!controlled || !flow || flow->input == p.channels, "a controlled flow needs the path as input");
        require(!jump || jump->input == p.row_features, "the jump's input is not the rows' features");
        require(!flow || (p.powers >= 2 && p.powers <= 4), "pieces must have degree 1 to 3");

        const size_t stages = b.shape(0);
        require(stages >= 1 && stages <= most_stages && a.shape(0) == stages && a.shape(1) == stages && c.shape(0) == stages,
                "the tableau has the wrong size");
        p.tableau.stages = static_cast<int>(stages);
        p.tableau.a.assign(a.data(), a.data() + stages * stages);
        p.tableau.b.assign(b.data(), b.data() + stages);
        p.tableau.c.assign(c.data(), c.data() + stages);
        p.controlled = controlled;

        check_offsets(event_offsets, piece ? piece->shape(0) : time ? time->shape(0) : 0, true);
        check_offsets(saved_offsets, saved_event.shape(0), false);
        check_events(event_offsets.data(), piece, from, step, duration, jump_row, time, coefficients.shape(0),
                     row_inputs.shape(0));
        require(static_cast<int64_t>(order.shape(0)) == p.series, "order must name every series");
        check_order(order.data(), event_offsets.data(), saved_offsets.data(), saved_event.data());
        require(registers == 1 || registers == 2, "a tile is one or two registers wide");
        require(every >= 0, "every must not be negative");
        const int64_t most = p.series ? event_offsets.data()[order.data()[0] + 1] - event_offsets.data()[order.data()[0]] : 1;
        every = std::min(every, most);  // more events between checkpoints than there are is one checkpoint a series
        p.registers = registers, p.threads = threads, p.every = every;
        const int64_t width = level.lanes * registers;
        for (int64_t i = 0; i < p.series && every; i += width) {
            const int64_t s = order.data()[i];
            checkpoint_size += (event_offsets.data()[s + 1] - event_offsets.data()[s] + every - 1) / every * width * p.hidden;
        }

        p.initial = initial.data(), p.coefficients = coefficients.data(), p.row_inputs = row_inputs.data();
        auto pointer = [](const auto& array) { return array ? array->data() : nullptr; };
        p.event_offsets = event_offsets.data(), p.piece = pointer(piece), p.from = pointer(from), p.step = pointer(step);
        p.duration = pointer(duration), p.jump_row = pointer(jump_row), p.time = pointer(time), p.order = order.data();
        p.saved_offsets = saved_offsets.data(), p.saved_event = saved_event.data();
    }

    void forward(Array<Real, 2> saved, Array<int64_t, 1> failed_event, Array<Real, 1> checkpoints) const {
        check_saved(saved.shape(0), saved.shape(1));
        check_checkpoints(checkpoints.shape(0), checkpoints.data());
        require(static_cast<int64_t>(failed_event.shape(0)) == p.series, "failed_event must have one number per series");
        Problem<Real> call = p;
        call.saved = saved.data(), call.failed_event = failed_event.data(), call.checkpoints = checkpoints.data();
        run(level.forward, call);
    }

    void backward(Array<const Real, 1> checkpoints, Array<const Real, 2> saved_gradient, OutArrays<Real> flow_gradients,
                  OutArrays<Real> jump_gradients, Array<Real, 2> initial_gradient,
                  std::optional<Array<Real, 3>> coefficient_gradient, std::optional<Array<Real, 2>> row_gradient) const {
        require(p.every > 0, "backward needs checkpoints");
        check_saved(saved_gradient.shape(0), saved_gradient.shape(1));
        check_checkpoints(checkpoints.shape(0), checkpoints.data());
        Problem<Real> call = p;
        call.checkpoints = const_cast<Real*>(checkpoints.data());  // only read on the way back
        set_gradients(call.flow, flow_gradients);
        set_gradients(call.jump, jump_gradients);
        require(static_cast<int64_t>(initial_gradient.size()) == p.series * p.hidden,
                "initial_gradient must have the shape of initial");
        require(!coefficient_gradient || coefficient_gradient->size() == std::get<3>(held).size(),
                "coefficient_gradient must have the shape of coefficients");
        require(!row_gradient || row_gradient->size() == std::get<4>(held).size(),
                "row_gradient must have the shape of row_inputs");
        call.saved_gradient = saved_gradient.data(), call.initial_gradient = initial_gradient.data();
        call.coefficient_gradient = coefficient_gradient ? coefficient_gradient->data() : nullptr;
        call.row_gradient = row_gradient ? row_gradient->data() : nullptr;
        run(level.backward, call);
    }

  private:
    void check_checkpoints(size_t size, const Real* data) const {
        require(static_cast<int64_t>(size) == checkpoint_size, "checkpoints have the wrong size");
        require(reinterpret_cast<uintptr_t>(data) % 64 == 0, "checkpoints must be aligned to 64 bytes");
    }

    void check_saved(size_t rows, size_t columns) const {
        require(static_cast<int64_t>(rows) == p.saved_offsets[p.series] && static_cast<int64_t>(columns) == p.hidden,
                "saved states must have shape (saved events, hidden)");
    }

    void check_offsets(const Array<const int64_t, 1>& offsets, size_t total, bool strictly) const {
        require(static_cast<int64_t>(offsets.shape(0)) == p.series + 1, "offsets must be one more than the series");
        const int64_t* o = offsets.data();
        require(o[0] == 0 && o[p.series] == static_cast<int64_t>(total), "offsets must start at 0 and end at the total");
        for (int64_t i = 0; i < p.series; ++i)
            require(strictly ? o[i] < o[i + 1] : o[i] <= o[i + 1], "offsets must increase");
    }

    void check_events(const int64_t* offsets, const Integers& piece, const Numbers& from, const Numbers& step,
                      const Numbers& duration, const Integers& jump_row, const Numbers& time, int64_t pieces,
                      int64_t rows) const {
        const int64_t events = offsets[p.series];
        auto fits = [&](const auto& array, bool wanted) {
            return array.has_value() == wanted && (!array || static_cast<int64_t>(array->shape(0)) == events);
        };
        const bool listed = piece.has_value();
        require(fits(piece, listed) && fits(from, listed) && fits(step, listed) && fits(duration, listed) &&
                    fits(time, !listed) && fits(jump_row, jump_row.has_value()),
                "events differ in number");
        require(jump_row || !p.jump.present(), "a jump needs rows");
        for (int64_t e = 0; listed && e < events; ++e)
            require(piece->data()[e] >= -1 && piece->data()[e] < pieces, "an event names a piece that is not there");
        for (int64_t e = 0; jump_row && e < events; ++e)
            require(jump_row->data()[e] >= -1 && jump_row->data()[e] < rows, "an event names a row that is not there");
        if (listed) return;
        require(!p.flow.present() || pieces == events - p.series, "one piece for each event but a series' last");
        for (int64_t i = 0; i < p.series; ++i) require(offsets[i + 1] - offsets[i] > 1, "a series needs two events");
    }

    void check_order(const int64_t* order, const int64_t* event_offsets, const int64_t* saved_offsets,
                     const int64_t* saved_event) const {
        std::vector<bool> seen(p.series, false);
        int64_t before = INT64_MAX;
        for (int64_t i = 0; i < p.series; ++i) {
            const int64_t s = order[i];
            require(s >= 0 && s < p.series && !seen[s], "order must name every series once");
            seen[s] = true;
            const int64_t length = event_offsets[s + 1] - event_offsets[s];
            require(length <= before, "order must put the longest series first");
            before = length;
            for (int64_t k = saved_offsets[s]; k < saved_offsets[s + 1]; ++k)
                require((k == saved_offsets[s] || saved_event[k - 1] <= saved_event[k]) && saved_event[k] >= 0 &&
                            saved_event[k] < length,
                        "saved events must be sorted and within their series");
        }
    }

    static void run(void (*engine)(const Problem<Real>&), Problem<Real>& call) {
        bool interrupted = false;
        call.interrupted = [&interrupted] {
            nb::gil_scoped_acquire acquire;
            interrupted = PyErr_CheckSignals() != 0;
            return interrupted;
        };
        {
            nb::gil_scoped_release release;
            engine(call);
        }
        if (interrupted) throw nb::python_error();
    }

    std::tuple<Arrays<Real>, Arrays<Real>, Array<const Real, 2>, Array<const Real, 3>, Array<const Real, 2>,
               Array<const int64_t, 1>, Integers, Numbers, Numbers, Numbers, Integers, Numbers, Array<const int64_t, 1>,
               Array<const int64_t, 1>, Array<const int64_t, 1>>
        held;
    const Engine<Real>& level = engine<Real>();  // of the whole life of a solve: its checkpoints are laid out for it
    int64_t checkpoint_size = 0;
    Problem<Real> p;
};

// A program applied to every row of a matrix, each by itself: inputs (rows, features), results (rows, outputs).
template <class Real>
void evaluate_rows(const ProgramSpec& spec, Arrays<Real> values, Array<const Real, 2> inputs, Array<Real, 2> results,
                   int threads) {
    RowBatch<Real> batch;
    batch.program = assemble<Real>(&spec, values, 0);
    batch.rows = inputs.shape(0), batch.inputs = inputs.shape(1), batch.outputs = results.shape(1);
    require(batch.inputs <= spec.features && spec.output + batch.outputs <= spec.features,
            "inputs and results must fit the workspace");
    require(static_cast<int64_t>(results.shape(0)) == batch.rows, "one result per row");
    batch.in = inputs.data(), batch.out = results.data(), batch.threads = threads;
    nb::gil_scoped_release release;
    engine<Real>().evaluate(batch);
}

template <class Real>
void bind_solve(nb::module_& m, const char* name) {
    using S = Solve<Real>;
    using I = Array<const int64_t, 1>;
    using D = Array<const double, 1>;
    const auto exact = nb::arg().noconvert();  // never converted: an output that was copied would be lost
    const auto maybe = nb::arg().noconvert().none();
    nb::class_<S>(m, name, "One batch of trajectories.")
        .def(nb::init<const ProgramSpec*, Arrays<Real>, const ProgramSpec*, Arrays<Real>, bool, Array<const double, 2>, D, D,
                      Array<const Real, 2>, Array<const Real, 3>, Array<const Real, 2>, I, Integers, Numbers, Numbers,
                      Numbers, Integers, Numbers, I, I, I, int64_t, int, int>(),
             nb::arg().none(), exact, nb::arg().none(), exact, nb::arg(), exact, exact, exact, exact, exact, exact, exact,
             maybe, maybe, maybe, maybe, maybe, maybe, exact, exact, exact, nb::arg(), nb::arg(), nb::arg())
        .def("forward", &S::forward, exact, exact, exact)
        .def("backward", &S::backward, exact, exact, exact, exact, exact, maybe, maybe);
}

}  // namespace

void bind_engine(nb::module_& m) {
    nb::class_<ProgramSpec>(m, "Program", "Operations on a tile: one evaluation of a flow or a jump.")
        .def("__init__",
             [](ProgramSpec* self, Array<const int64_t, 2> ops, Array<const double, 2> numbers, int features, int input,
                int output) { new (self) ProgramSpec(make_program(ops, numbers, features, input, output)); });
    m.def("lanes", [](int bytes) { return bytes == 4 ? engine<float>().lanes : engine<double>().lanes; }, "bytes"_a,
          "Series in a register, for numbers of 4 or 8 bytes.");
    m.attr("MOST_FEATURES") = most_features;
    const auto exact = nb::arg().noconvert();
    m.def("evaluate_rows32", &evaluate_rows<float>, nb::arg(), exact, exact, exact, nb::arg(), "A program on every row.");
    m.def("evaluate_rows64", &evaluate_rows<double>, nb::arg(), exact, exact, exact, nb::arg(), "A program on every row.");
    bind_solve<float>(m, "Solve32");
    bind_solve<double>(m, "Solve64");
}

}  // namespace neuralcde
