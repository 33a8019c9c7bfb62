// Walks in Python. Every argument is checked here; the kernels check nothing.

#include <algorithm>
#include <cstring>
#include <numeric>

#include "bindings.hpp"
#include "program_bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace neuralcde {
namespace {

using Flags = std::optional<Array<const uint8_t, 1>>;

// The accepted steps of all series.
template <class Real>
struct Steps {
    std::vector<Track<Real>> tracks;
    int64_t hidden = 0;

    int64_t total() const {
        int64_t sum = 0;
        for (const auto& track : tracks) sum += static_cast<int64_t>(track.piece.size());
        return sum;
    }

    void read(Array<int64_t, 1> piece, Array<double, 1> start, Array<double, 1> length, Array<Real, 2> states) const {
        const int64_t steps = total(), series = static_cast<int64_t>(tracks.size());
        auto fits = [&](const auto& array) { return static_cast<int64_t>(array.shape(0)) == steps; };
        require(fits(piece) && fits(start) && fits(length), "one number for each step");
        require(static_cast<int64_t>(states.shape(0)) == steps + series &&
                    static_cast<int64_t>(states.shape(1)) == hidden,
                "states must have shape (steps + series, hidden)");
        int64_t* p = piece.data();
        double *u = start.data(), *h = length.data();
        Real* z = states.data();
        for (const auto& track : tracks) {
            p = std::copy(track.piece.begin(), track.piece.end(), p);
            u = std::copy(track.start.begin(), track.start.end(), u);
            h = std::copy(track.length.begin(), track.length.end(), h);
            z = std::copy(track.states.begin(), track.states.end(), z);
        }
    }
};

// A checked walk and the arrays it points to. It is constant after construction: threads may share it.
template <class Real>
class BoundWalk {
  public:
    BoundWalk(const ProgramSpec& flow, Arrays<Real> flow_values, Drive drive, const ProgramSpec* jump,
              Arrays<Real> jump_values, const Tableau& tableau, Array<const Real, 2> initial,
              Array<const Real, 3> coefficients, Array<const Real, 2> row_inputs, Array<const int64_t, 1> row_offsets,
              Array<const double, 1> time, int64_t pieces_per_gap, Flags jumps, Integers substeps,
              double rtol, double atol, int64_t max_steps, double smooth, int64_t every, int registers, int threads)
        : flow_values(flow_values), jump_values(jump_values), initial(initial), coefficients(coefficients),
          row_inputs(row_inputs), row_offsets(row_offsets), jumps(jumps), substeps(substeps) {
        p.series = initial.shape(0), p.hidden = initial.shape(1);
        p.powers = coefficients.shape(1), p.channels = coefficients.shape(2), p.row_features = row_inputs.shape(1);
        p.flow = assemble<Real>(&flow, flow_values, p.hidden);
        p.jump = assemble<Real>(jump, jump_values, p.hidden);
        p.drive = drive, p.tableau = tableau;
        require(p.hidden > 0, "the state has no features");
        require(flow.input == p.channels || (flow.input == 0 && drive == Drive::value),
                "the flow's input is not the path's channels");
        require(p.powers >= 2 && p.powers <= 4, "pieces must have degree 1 to 3");
        require(pieces_per_gap == 1 || pieces_per_gap == 2, "there are one or two pieces per gap");
        rows = static_cast<int64_t>(time.shape(0));
        check_offsets(row_offsets, time.shape(0), false);
        require(static_cast<int64_t>(row_offsets.shape(0)) == p.series + 1, "offsets must be one more than the series");
        p.row_offsets = row_offsets.data();
        lay_pieces(time.data(), pieces_per_gap);
        const int64_t pieces = piece_offsets[p.series];
        require(static_cast<int64_t>(coefficients.shape(0)) == pieces, "pieces and rows do not match");
        require(!jump || jump->input == p.row_features, "the jump's input is not the rows' features");
        require(!jumps == !jump, "a jump needs its rows");
        require(!jumps || (static_cast<int64_t>(jumps->shape(0)) == rows &&
                           static_cast<int64_t>(row_inputs.shape(0)) == rows),
                "one flag and one input for each row");
        if (substeps) {
            require(static_cast<int64_t>(substeps->shape(0)) == pieces, "one number of steps for each piece");
            for (int64_t k = 0; k < pieces; ++k)
                require(substeps->data()[k] >= 1 && substeps->data()[k] < int64_t(1) << 40, "a piece needs a step");
        } else {
            require(!tableau.b_error.empty(), "the tableau has no error estimate");
            require(rtol >= 0 && atol >= 0 && std::isfinite(rtol) && std::isfinite(atol) && max_steps >= 1,
                    "a tolerance is out of range");
            require(smooth >= 0 && smooth <= 1, "smooth must be between 0 and 1");
        }
        require(every >= 0 && (!every || substeps), "only states at fixed steps are stored");
        p.every = every;
        stored_offsets.push_back(0);
        for (int64_t i = 0; i < p.series && every; ++i) {
            int64_t steps = 0;
            for (int64_t k = piece_offsets[i]; k < piece_offsets[i + 1]; ++k) steps += substeps->data()[k];
            stored_offsets.push_back(stored_offsets.back() + steps / every + (steps % every > 0));
        }
        p.stored_offsets = stored_offsets.data();
        p.rule = {!substeps, pointer(substeps), rtol, atol, max_steps, smooth};

        const int64_t lanes = level.lanes, pairs = (p.series + 2 * lanes - 1) / (2 * lanes);
        require(registers >= 0 && registers <= 2, "a tile is one or two registers wide, or 0 for either");
        p.registers = registers ? registers : p.series > lanes && pairs >= threads ? 2 : 1;
        p.threads = threads;
        p.initial = initial.data(), p.coefficients = coefficients.data(), p.row_inputs = row_inputs.data();
        p.piece_offsets = piece_offsets.data(), p.row_offsets = row_offsets.data(), p.duration = duration.data();
        p.jumps = pointer(jumps), p.pieces_per_gap = pieces_per_gap;
        order.resize(p.series);
        std::iota(order.begin(), order.end(), int64_t(0));
        std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return pieces_of(i) > pieces_of(j); });
        p.order = order.data();
    }
    BoundWalk(const BoundWalk&) = delete;

    int registers() const { return p.registers; }
    int64_t stored() const { return stored_offsets.back(); }

    Steps<Real> forward(Array<Real, 2> last, std::optional<Array<Real, 2>> at_rows,
                        std::optional<Array<Real, 2>> before_jumps, Array<int64_t, 2> counts, Array<double, 1> stopped,
                        bool keep_steps, std::optional<Array<Real, 2>> stored_states) const {
        check_states(last, at_rows, before_jumps);
        check_counts(counts);
        require(static_cast<int64_t>(stopped.shape(0)) == p.series, "stopped must have one number per series");
        Steps<Real> steps{{}, p.hidden};
        if (keep_steps) steps.tracks.resize(p.series);
        Walk<Real> call = p;
        call.last = last.data(), call.at_rows = pointer(at_rows), call.before_jumps = pointer(before_jumps);
        call.counts = counts.data(), call.stopped = stopped.data();
        call.tracks = keep_steps ? steps.tracks.data() : nullptr;
        check_stored(stored_states);
        call.stored = pointer(stored_states);
        run(level.walk, call);
        return steps;
    }

    void backward(Array<const Real, 2> last, std::optional<Array<const Real, 2>> at_rows,
                  std::optional<Array<const Real, 2>> before_jumps, Array<const Real, 2> last_gradient,
                  std::optional<Array<const Real, 2>> rows_gradient, OutArrays<Real> flow_gradients,
                  OutArrays<Real> jump_gradients, Array<Real, 2> initial_gradient,
                  std::optional<Array<Real, 3>> coefficient_gradient, std::optional<Array<Real, 2>> input_gradient,
                  Array<int64_t, 2> counts, std::optional<Array<const Real, 2>> stored_states) const {
        check_stored(stored_states);
        check_states(last, at_rows, before_jumps);
        check_states(last_gradient, rows_gradient, before_jumps);
        require(!p.jumps || before_jumps, "backward needs the states before the jumps");
        check_counts(counts);
        require(initial_gradient.shape(0) == initial.shape(0) && initial_gradient.shape(1) == initial.shape(1),
                "initial_gradient must have the shape of initial");
        require(!coefficient_gradient || coefficient_gradient->size() == coefficients.size(),
                "coefficient_gradient must have the shape of coefficients");
        require(!input_gradient || input_gradient->size() == row_inputs.size(),
                "input_gradient must have the shape of row_inputs");
        Walk<Real> call = p;
        set_gradients(call.flow, flow_gradients);
        set_gradients(call.jump, jump_gradients);
        call.last = const_cast<Real*>(last.data());  // backward only reads the states
        call.at_rows = const_cast<Real*>(pointer(at_rows));
        call.before_jumps = const_cast<Real*>(pointer(before_jumps));
        call.last_gradient = last_gradient.data(), call.rows_gradient = pointer(rows_gradient);
        call.initial_gradient = initial_gradient.data(), call.coefficient_gradient = pointer(coefficient_gradient);
        call.input_gradient = p.jumps ? pointer(input_gradient) : nullptr;
        call.counts = counts.data();
        call.stored = const_cast<Real*>(pointer(stored_states));
        run(level.walk_back, call);
    }

  private:
    // The pieces of every series, and their durations: as many per gap as there are, the second one vertical; and one
    // of no duration for a series of one row.
    void lay_pieces(const double* time, int64_t per_gap) {
        piece_offsets.push_back(0);
        for (int64_t i = 0; i < p.series; ++i) {
            const int64_t first = row_offsets.data()[i], last = row_offsets.data()[i + 1] - 1;
            for (int64_t row = first; row < last; ++row) {
                duration.push_back(time[row + 1] - time[row]);
                if (per_gap == 2) duration.push_back(0);
            }
            if (first == last) duration.push_back(0);
            piece_offsets.push_back(static_cast<int64_t>(duration.size()));
        }
    }

    int64_t pieces_of(int64_t i) const { return piece_offsets[i + 1] - piece_offsets[i]; }

    template <class States, class Maybe, class Other>
    void check_states(const States& last, const Maybe& at_rows, const Other& before_jumps) const {
        auto fits = [&](const auto& array, int64_t count) {
            return static_cast<int64_t>(array.shape(0)) == count && static_cast<int64_t>(array.shape(1)) == p.hidden;
        };
        require(fits(last, p.series), "states must have shape (series, hidden)");
        require((!at_rows || fits(*at_rows, rows)) && (!before_jumps || fits(*before_jumps, rows)),
                "states of rows must have shape (rows, hidden)");
    }

    template <class Maybe>
    void check_stored(const Maybe& stored_states) const {
        require(!stored_states == !p.every, "stored states need their distance");
        require(!stored_states || (static_cast<int64_t>(stored_states->shape(0)) == stored() &&
                                   static_cast<int64_t>(stored_states->shape(1)) == p.hidden),
                "stored states must have shape (stored, hidden)");
    }

    void check_counts(const Array<int64_t, 2>& counts) const {
        require(static_cast<int64_t>(counts.shape(0)) == p.series && counts.shape(1) == walk_columns,
                "counts must have shape (series, columns)");
    }

    const Arrays<Real> flow_values, jump_values;
    const Array<const Real, 2> initial;
    const Array<const Real, 3> coefficients;
    const Array<const Real, 2> row_inputs;
    const Array<const int64_t, 1> row_offsets;
    const Flags jumps;
    const Integers substeps;
    const Engine<Real>& level = engine<Real>();
    std::vector<int64_t> order, piece_offsets, stored_offsets;
    std::vector<double> duration;
    int64_t rows = 0;
    Walk<Real> p;
};

template <class Real>
void bind_walk_of(nb::module_& m, const char* name, const char* steps_name) {
    using S = Steps<Real>;
    nb::class_<S>(m, steps_name, "The accepted steps of all series.")
        .def_prop_ro("total", &S::total, "Number of steps.")
        .def("read", &S::read, nb::kw_only(), exact("piece"), exact("start"), exact("length"), exact("states"),
             "Write the steps, and the state at the start of each; after those of a series comes its last state.");
    using W = BoundWalk<Real>;
    nb::class_<W>(m, name, "Series that take their own steps along their pieces; nothing in it changes.")
        .def(nb::init<const ProgramSpec&, Arrays<Real>, Drive, const ProgramSpec*, Arrays<Real>, const Tableau&,
                      Array<const Real, 2>, Array<const Real, 3>, Array<const Real, 2>, Array<const int64_t, 1>,
                      Array<const double, 1>, int64_t, Flags, Integers, double, double, int64_t, double, int64_t,
                      int, int>(),
             nb::kw_only(), "flow"_a, exact("flow_values"), "drive"_a, "jump"_a.none(), exact("jump_values"),
             "tableau"_a, exact("initial"), exact("coefficients"), exact("row_inputs"), exact("row_offsets"),
             exact("time"), "pieces_per_gap"_a, maybe("jumps"), maybe("substeps"),
             "rtol"_a = 0.0, "atol"_a = 0.0, "max_steps"_a = 1, "smooth"_a = 0.0, "every"_a = 0,
             "registers"_a = 0, "threads"_a = 1)
        .def_prop_ro("registers", &W::registers, "Width of a tile, in registers of lanes.")
        .def_prop_ro("stored", &W::stored, "Number of states to store.")
        .def("forward", &W::forward, nb::kw_only(), exact("last"), maybe("at_rows"), maybe("before_jumps"),
             exact("counts"), exact("stopped"), "keep_steps"_a = false, maybe("stored_states"),
             "Write the states, what was counted, and where each series stopped; return the steps, if they are kept.")
        .def("backward", &W::backward, nb::kw_only(), exact("last"), maybe("at_rows"), maybe("before_jumps"),
             exact("last_gradient"), maybe("rows_gradient"), exact("flow_gradients"), exact("jump_gradients"),
             exact("initial_gradient"), maybe("coefficient_gradient"), maybe("input_gradient"), exact("counts"),
             maybe("stored_states"),
             "Add the gradients: by the continuous adjoint, or of the steps if states were stored.");
}

}  // namespace

void bind_walk(nb::module_& m) {
    nb::list columns;
    for (const char* name : walk_column_names) columns.append(name);
    m.attr("WALK_COLUMNS") = nb::tuple(columns);
    bind_walk_of<float>(m, "Walk32", "Steps32");
    bind_walk_of<double>(m, "Walk64", "Steps64");
}

}  // namespace neuralcde
