// The engine's functions in Python. Every argument is checked here; the kernels check nothing.

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "bindings.hpp"
#include "program_bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace neuralcde {
namespace {

// The events of all series, as columns like those of Problem. Steps are listed, or follow from the times.
struct Events {
    Events(Array<const int64_t, 1> offsets, Integers piece, Numbers start, Numbers length, Numbers duration,
           Integers jump_row, Numbers time)
        : offsets(offsets), piece(piece), start(start), length(length), duration(duration), jump_row(jump_row),
          time(time) {
        const bool listed = piece.has_value();
        const size_t count = piece ? piece->shape(0) : time ? time->shape(0) : 0;
        auto fits = [&](const auto& column, bool wanted) {
            return column.has_value() == wanted && (!column || column->shape(0) == count);
        };
        require(fits(start, listed) && fits(length, listed) && fits(duration, listed) && fits(time, !listed) &&
                    fits(jump_row, jump_row.has_value()),
                "events differ in number");
        check_offsets(offsets, count, false);
        for (int64_t i = 0; !listed && i < series(); ++i) require(count_of(i) > 1, "a series needs two events");
    }

    int64_t series() const { return static_cast<int64_t>(offsets.shape(0)) - 1; }
    int64_t total() const { return offsets.data()[series()]; }
    int64_t count_of(int64_t i) const { return offsets.data()[i + 1] - offsets.data()[i]; }

    // Checks that the pieces and rows that events refer to exist.
    void check_names(int64_t pieces, int64_t rows, bool flows) const {
        for (int64_t e = 0; piece && e < total(); ++e)
            require(piece->data()[e] >= -1 && piece->data()[e] < pieces, "an event names a piece that is not there");
        for (int64_t e = 0; jump_row && e < total(); ++e)
            require(jump_row->data()[e] >= -1 && jump_row->data()[e] < rows, "an event names a row that is not there");
        require(piece || !flows || pieces == total() - series(), "one piece for each event but a series' last");
    }

    // Positions of the series, longest first.
    std::vector<int64_t> longest_first() const {
        std::vector<int64_t> order(series());
        std::iota(order.begin(), order.end(), int64_t(0));
        std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return count_of(i) > count_of(j); });
        return order;
    }

    Array<const int64_t, 1> offsets;
    Integers piece;
    Numbers start, length, duration;
    Integers jump_row;
    Numbers time;
};

// The events of each series whose states are saved, sorted.
struct Saved {
    Saved(Array<const int64_t, 1> offsets, Array<const int64_t, 1> event) : offsets(offsets), event(event) {
        check_offsets(offsets, event.shape(0), true);
    }

    void check_events(const Events& events) const {
        require(offsets.shape(0) == events.offsets.shape(0), "offsets must be one more than the series");
        for (int64_t i = 0; i < events.series(); ++i)
            for (int64_t k = offsets.data()[i]; k < offsets.data()[i + 1]; ++k)
                require((k == offsets.data()[i] || event.data()[k - 1] <= event.data()[k]) && event.data()[k] >= 0 &&
                            event.data()[k] < events.count_of(i),
                        "saved events must be sorted and within their series");
    }

    int64_t total() const { return static_cast<int64_t>(event.shape(0)); }

    Array<const int64_t, 1> offsets, event;
};

// A checked problem and the arrays it points to. It is constant after construction: every call works on a copy of the
// problem with its own outputs and checkpoints, so that threads may share a solve.
template <class Real>
class Solve {
  public:
    Solve(const ProgramSpec* flow, Arrays<Real> flow_values, Drive drive, const ProgramSpec* jump,
          Arrays<Real> jump_values, const Tableau& tableau, Array<const Real, 2> initial,
          Array<const Real, 3> coefficients, Array<const Real, 2> row_inputs, const Events& events, const Saved& saved,
          int64_t every, int registers, int threads)
        : flow_values(flow_values), jump_values(jump_values), initial(initial), coefficients(coefficients),
          row_inputs(row_inputs), events(events), saved(saved), order(events.longest_first()) {
        p.series = initial.shape(0), p.hidden = initial.shape(1);
        p.powers = coefficients.shape(1), p.channels = coefficients.shape(2), p.row_features = row_inputs.shape(1);
        p.flow = assemble<Real>(flow, flow_values, p.hidden);
        p.jump = assemble<Real>(jump, jump_values, p.hidden);
        p.drive = drive, p.tableau = tableau;
        require(p.hidden > 0, "the state has no features");
        require(!flow || flow->input == 0 || flow->input == p.channels, "the flow's input is not the path's channels");
        require(drive == Drive::value || !flow || flow->input == p.channels,
                "a flow driven by dX needs the path as input");
        require(!jump || jump->input == p.row_features, "the jump's input is not the rows' features");
        require(!flow || (p.powers >= 2 && p.powers <= 4), "pieces must have degree 1 to 3");
        require(events.series() == p.series, "offsets must be one more than the series");
        require(events.jump_row || !jump, "a jump needs rows");
        events.check_names(coefficients.shape(0), row_inputs.shape(0), flow != nullptr);
        saved.check_events(events);
        require(every >= 0, "every must not be negative");
        require(registers >= 0 && registers <= 2, "a tile is one or two registers wide, or 0 for either");

        // Two registers per tile halve the reads of the weights. Used where a tile is left for every thread.
        const int64_t lanes = level.lanes, pairs = (p.series + 2 * lanes - 1) / (2 * lanes);
        p.registers = registers ? registers : p.series > lanes && pairs >= threads ? 2 : 1;
        p.threads = threads;
        // More events between checkpoints than a series has: one checkpoint per series.
        p.every = std::min(every, p.series ? events.count_of(order[0]) : 1);
        const int64_t width = lanes * p.registers;
        for (int64_t i = 0; i < p.series && p.every; i += width)
            checkpoint_size += (events.count_of(order[i]) + p.every - 1) / p.every * width * p.hidden;

        p.initial = initial.data(), p.coefficients = coefficients.data(), p.row_inputs = row_inputs.data();
        p.event_offsets = events.offsets.data(), p.piece = pointer(events.piece), p.from = pointer(events.start);
        p.step = pointer(events.length), p.duration = pointer(events.duration), p.jump_row = pointer(events.jump_row);
        p.time = pointer(events.time), p.order = order.data();
        p.saved_offsets = saved.offsets.data(), p.saved_event = saved.event.data();
    }
    Solve(const Solve&) = delete;

    // Size of the checkpoints, in numbers.
    int64_t checkpoints() const { return checkpoint_size; }
    int registers() const { return p.registers; }

    void forward(Array<Real, 2> states, Array<int64_t, 1> failed_event, Array<Real, 1> checkpoints) const {
        check_saved(states.shape(0), states.shape(1));
        check_checkpoints(checkpoints.shape(0), checkpoints.data());
        require(static_cast<int64_t>(failed_event.shape(0)) == p.series,
                "failed_event must have one number per series");
        Problem<Real> call = p;
        call.saved = states.data(), call.failed_event = failed_event.data(), call.checkpoints = checkpoints.data();
        run(level.forward, call);
    }

    // Writes the checkpoints of a forward pass whose states at all events are known.
    void lay_out(Array<const Real, 2> event_states, Array<Real, 1> checkpoints) const {
        require(p.every > 0, "there are no checkpoints");
        require(static_cast<int64_t>(event_states.shape(0)) == events.total() &&
                    static_cast<int64_t>(event_states.shape(1)) == p.hidden,
                "event_states must have shape (events, hidden)");
        check_checkpoints(checkpoints.shape(0), checkpoints.data());
        const int64_t width = static_cast<int64_t>(level.lanes) * p.registers;
        Real* to = checkpoints.data();
        for (int64_t tile = 0; tile < p.series; tile += width)
            for (int64_t e = 0; e < events.count_of(order[tile]); e += p.every, to += width * p.hidden)
                for (int64_t j = 0; j < width; ++j) {
                    const int64_t s = tile + j < p.series ? order[tile + j] : -1;
                    const bool there = s >= 0 && e < events.count_of(s);
                    const Real* from = there ? event_states.data() + (events.offsets.data()[s] + e) * p.hidden : nullptr;
                    for (int64_t h = 0; h < p.hidden; ++h) to[h * width + j] = there ? from[h] : Real(0);
                }
    }

    void backward(Array<const Real, 1> checkpoints, Array<const Real, 2> states_gradient,
                  OutArrays<Real> flow_gradients, OutArrays<Real> jump_gradients, Array<Real, 2> initial_gradient,
                  std::optional<Array<Real, 3>> coefficient_gradient,
                  std::optional<Array<Real, 2>> row_gradient) const {
        require(p.every > 0, "backward needs checkpoints");
        check_saved(states_gradient.shape(0), states_gradient.shape(1));
        check_checkpoints(checkpoints.shape(0), checkpoints.data());
        Problem<Real> call = p;
        call.checkpoints = const_cast<Real*>(checkpoints.data());  // backward only reads them
        set_gradients(call.flow, flow_gradients);
        set_gradients(call.jump, jump_gradients);
        require(static_cast<int64_t>(initial_gradient.size()) == p.series * p.hidden,
                "initial_gradient must have the shape of initial");
        require(!coefficient_gradient || coefficient_gradient->size() == coefficients.size(),
                "coefficient_gradient must have the shape of coefficients");
        require(!row_gradient || row_gradient->size() == row_inputs.size(),
                "row_gradient must have the shape of row_inputs");
        call.saved_gradient = states_gradient.data(), call.initial_gradient = initial_gradient.data();
        call.coefficient_gradient = coefficient_gradient ? coefficient_gradient->data() : nullptr;
        call.row_gradient = row_gradient ? row_gradient->data() : nullptr;
        run(level.backward, call);
    }

  private:
    void check_saved(size_t rows, size_t columns) const {
        require(static_cast<int64_t>(rows) == saved.total() && static_cast<int64_t>(columns) == p.hidden,
                "saved states must have shape (saved events, hidden)");
    }

    void check_checkpoints(size_t size, const Real* data) const {
        require(static_cast<int64_t>(size) == checkpoint_size, "checkpoints have the wrong size");
        require(!size || reinterpret_cast<uintptr_t>(data) % 64 == 0, "checkpoints must be aligned to 64 bytes");
    }

    // The arrays that the problem points to.
    const Arrays<Real> flow_values, jump_values;
    const Array<const Real, 2> initial;
    const Array<const Real, 3> coefficients;
    const Array<const Real, 2> row_inputs;
    const Events events;
    const Saved saved;
    const std::vector<int64_t> order;
    const Engine<Real>& level = engine<Real>();  // fixed for the life of a solve, which lays checkpoints out for it
    int64_t checkpoint_size = 0;
    Problem<Real> p;
};

// Applies a program to every row of a matrix: inputs (rows, features), results (rows, outputs).
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
    nb::class_<S>(m, name, "One batch of trajectories; nothing in it changes, so that threads may share it.")
        .def(nb::init<const ProgramSpec*, Arrays<Real>, Drive, const ProgramSpec*, Arrays<Real>, const Tableau&,
                      Array<const Real, 2>, Array<const Real, 3>, Array<const Real, 2>, const Events&, const Saved&,
                      int64_t, int, int>(),
             nb::kw_only(), "flow"_a.none(), exact("flow_values"), "drive"_a, "jump"_a.none(), exact("jump_values"),
             "tableau"_a, exact("initial"), exact("coefficients"), exact("row_inputs"), "events"_a, "saved"_a,
             "every"_a, "registers"_a = 0, "threads"_a = 1)
        .def_prop_ro("checkpoints", &S::checkpoints, "Size of the checkpoints, in numbers.")
        .def_prop_ro("registers", &S::registers, "Width of a tile, in registers of lanes.")
        .def("forward", &S::forward, nb::kw_only(), exact("states"), exact("failed_event"), exact("checkpoints"),
             "Write the states asked for, the event after which each series was not finite, and the checkpoints.")
        .def("lay_out", &S::lay_out, nb::kw_only(), exact("event_states"), exact("checkpoints"),
             "Write the checkpoints, given the states at all events.")
        .def("backward", &S::backward, nb::kw_only(), exact("checkpoints"), exact("states_gradient"),
             exact("flow_gradients"), exact("jump_gradients"), exact("initial_gradient"), maybe("coefficient_gradient"),
             maybe("row_gradient"), "Write or add the gradients, given the gradient of the saved states.");
}

template <size_t count>
nb::tuple names(const char* const (&list)[count]) {
    nb::list found;
    for (const char* name : list) found.append(name);
    return nb::tuple(found);
}

}  // namespace

void bind_engine(nb::module_& m) {
    m.attr("CODES") = names(code_names);
    m.attr("FUNCTIONS") = names(function_names);
    m.attr("OP_COLUMNS") = names(op_columns);
    m.attr("NUMBER_COLUMNS") = names(number_columns);
    m.attr("MOST_FEATURES") = most_features;
    m.attr("MOST_STAGES") = most_stages;
    nb::enum_<Drive>(m, "Drive", "What of X drives a flow: its increment, or its value.")
        .value("increment", Drive::increment)
        .value("value", Drive::value);
    nb::class_<ProgramSpec>(m, "Program", "Operations on a tile: one evaluation of a flow or a jump.")
        .def("__init__",
             [](ProgramSpec* self, Array<const int64_t, 2> ops, Array<const double, 2> numbers, int features, int input,
                int output) { new (self) ProgramSpec(make_program(ops, numbers, features, input, output)); },
             exact("ops"), exact("numbers"), "features"_a, "input"_a, "output"_a);
    nb::class_<Tableau>(m, "Tableau", "An explicit Runge-Kutta method.")
        .def("__init__",
             [](Tableau* self, Array<const double, 2> a, Array<const double, 1> b, Array<const double, 1> c,
                Numbers b_error, int order, bool same_as_last) {
                 new (self) Tableau(make_tableau(a, b, c, b_error, order, same_as_last));
             },
             exact("a"), exact("b"), exact("c"), maybe("b_error"), "order"_a = 1, "same_as_last"_a = false);
    nb::class_<Events>(m, "Events", "Jumps and steps of all series; steps are listed, or every event is a knot.")
        .def(nb::init<Array<const int64_t, 1>, Integers, Numbers, Numbers, Numbers, Integers, Numbers>(),
             exact("offsets"), nb::kw_only(), maybe("piece"), maybe("start"), maybe("length"), maybe("duration"),
             maybe("jump_row"), maybe("time"));
    nb::class_<Saved>(m, "Saved", "The events of each series whose states are saved.")
        .def(nb::init<Array<const int64_t, 1>, Array<const int64_t, 1>>(), exact("offsets"), exact("event"));
    m.def("lanes", [](int bytes) { return bytes == 4 ? engine<float>().lanes : engine<double>().lanes; }, "bytes"_a,
          "Series in a register, for numbers of 4 or 8 bytes.");
    m.def("evaluate_rows", &evaluate_rows<float>, "program"_a, exact("values"), exact("inputs"), exact("results"),
          "threads"_a, "Evaluate a program on every row.");
    m.def("evaluate_rows", &evaluate_rows<double>, "program"_a, exact("values"), exact("inputs"), exact("results"),
          "threads"_a, "Evaluate a program on every row.");
    bind_solve<float>(m, "Solve32");
    bind_solve<double>(m, "Solve64");
    bind_walk(m);
}

}  // namespace neuralcde
