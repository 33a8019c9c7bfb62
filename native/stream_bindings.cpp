// The bindings of streams: plans as Python describes them, checked and assembled.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <string>

#include "bindings.hpp"
#include "program_bindings.hpp"
#include "stream.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace neuralcde {

namespace {

template <class Value>
Value of(const nb::dict& given, const char* name) {
    require(given.contains(name), name);
    return nb::cast<Value>(given[name]);
}

// Numbers within these bounds.
template <class Value>
Value of(const nb::dict& given, const char* name, Value low, Value high) {
    const Value value = of<Value>(given, name);
    require(value >= low && value <= high, name);
    return value;
}

void require_size(size_t found, int64_t wanted, const char* name) {
    require(wanted >= 0 && static_cast<int64_t>(found) == wanted, name);
}

// A program as (ops, numbers, features, input, output, values), or None.
template <class Real>
Program<Real> program_of(const nb::dict& given, const char* name, int64_t hidden, int64_t input, int64_t outputs) {
    require(given.contains(name), name);
    if (nb::object(given[name]).is_none()) return {};
    nb::tuple parts = nb::cast<nb::tuple>(given[name]);
    require(parts.size() == 6, name);
    const ProgramSpec spec = make_program(
        nb::cast<Array<const int64_t, 2>>(parts[0]), nb::cast<Array<const double, 2>>(parts[1]),
        nb::cast<int>(parts[2]), nb::cast<int>(parts[3]), nb::cast<int>(parts[4]));
    require(spec.input == input || (spec.input == 0 && hidden > 0), name);
    require(spec.output + outputs <= spec.features, name);
    return assemble<Real>(&spec, nb::cast<Arrays<Real>>(parts[5]), hidden);
}

template <class Real>
KnownInputs<Real> inputs_of(const nb::dict& given, const char* name) {
    KnownInputs<Real> found;
    nb::dict parts = of<nb::dict>(given, name);
    for (int family : of<std::vector<int>>(parts, "families")) {
        require(family >= 0 && family < family_count, "families");
        found.families.push_back(static_cast<Family>(family));
    }
    for (double knot : of<std::vector<double>>(parts, "knots")) found.knots.push_back(static_cast<Real>(knot));
    for (size_t k = 1; k < found.knots.size(); ++k) require(found.knots[k - 1] < found.knots[k], "knots");
    found.scale = of<double>(parts, "scale");
    found.common_origin = of<bool>(parts, "common_origin");
    return found;
}

template <class Real>
int64_t size_of(const KnownInputs<Real>& inputs, int data) {
    return int64_t(inputs.families.size()) * data + 1 + int64_t(inputs.knots.size());
}

RowScale scale_of(const nb::dict& given, int data) {
    RowScale found;
    found.present = true;
    found.single = of<bool>(given, "single"), found.time = of<double>(given, "time");
    for (auto [name, to] : {std::pair{"mean", &found.mean}, {"deviation", &found.deviation}, {"use", &found.use},
                            {"lowest", &found.lowest}, {"highest", &found.highest}}) {
        *to = of<std::vector<double>>(given, name);
        require_size(to->size(), data, name);
    }
    found.most = of<int64_t>(given, "most", 2, 1 << 20);
    found.mapped = of<std::vector<int64_t>>(given, "mapped"), found.counts = of<std::vector<int64_t>>(given, "counts");
    found.knots = of<std::vector<double>>(given, "knots"), found.scores = of<std::vector<double>>(given, "scores");
    require_size(found.mapped.size(), data, "mapped"), require_size(found.counts.size(), data, "counts");
    require_size(found.knots.size(), data * found.most, "knots");
    require_size(found.scores.size(), data * found.most, "scores");
    for (int64_t count : found.counts) require(count >= 2 && count <= found.most, "counts");
    return found;
}

template <class Real>
StreamModel<Real> model_of(const nb::dict& given, const StreamPlan<Real>& plan) {
    StreamModel<Real> m;
    const int data = plan.data;
    m.hidden = of<int>(given, "hidden", 1, most_features), m.channels = of<int>(given, "channels", 1, most_features);
    m.memory = of<int>(given, "memory", 1, 2), m.outputs = of<int>(given, "outputs", 1, most_features);
    m.real_start = of<int64_t>(given, "real_start", 3 * data + plan.statics, plan.reals);
    m.double_start = of<int64_t>(given, "double_start", clock_count + 4 * data, plan.doubles);
    m.timed = of<bool>(given, "timed"), m.values_first = of<bool>(given, "values_first");
    m.scheme = static_cast<Scheme>(of<int>(given, "scheme", 0, 2));
    require(m.memory == (m.scheme == Scheme::hermite ? 2 : 1), "memory");
    m.pool = static_cast<Pool>(of<int>(given, "pool", 0, 2));
    const int64_t features = m.hidden + (m.values_first ? m.channels : 0);
    require(m.real_start + m.hidden + int64_t(m.memory) * m.channels <= plan.reals, "real_start");
    require(m.double_start + (m.pool == Pool::last ? 0 : features) <= plan.doubles, "double_start");

    m.encoder_inputs = inputs_of<Real>(given, "encoder_inputs");
    m.encoder = program_of<Real>(given, "encoder", 0, size_of(m.encoder_inputs, data), m.channels - 1);
    const bool encoded = m.encoder.present();
    const int counts = plan.counts == 0 ? 0 : plan.counts == 1 ? 1 : data;
    require(m.channels == (encoded ? m.channels : int(m.timed) + counts + data), "channels");
    require(!encoded || m.timed, "timed");
    m.of_start = program_of<Real>(given, "of_start", 0, m.channels, m.hidden);
    m.of_static = program_of<Real>(given, "of_static", 0, plan.statics, m.hidden);
    m.flow = program_of<Real>(given, "flow", m.hidden, m.channels, m.hidden);
    m.drive = static_cast<Drive>(of<int>(given, "drive", 0, 1));
    m.tableau.stages = of<int>(given, "stages", 1, most_stages);
    m.tableau.a = of<std::vector<double>>(given, "a"), m.tableau.b = of<std::vector<double>>(given, "b");
    m.tableau.c = of<std::vector<double>>(given, "c");
    require_size(m.tableau.a.size(), m.tableau.stages * m.tableau.stages, "a");
    require_size(m.tableau.b.size(), m.tableau.stages, "b"), require_size(m.tableau.c.size(), m.tableau.stages, "c");
    m.substeps = of<int>(given, "substeps", 1, 1 << 30);
    m.step_size = of<double>(given, "step_size", 0.0, HUGE_VAL);

    m.cell = static_cast<Cell>(of<int>(given, "cell", 0, 4)), m.mask = of<bool>(given, "mask");
    const int values = encoded ? m.channels - 1 : data;
    int64_t cell_inputs = 1 + int64_t(values) * (m.mask ? 2 : 1);
    if (m.cell == Cell::shifted || (m.cell == Cell::paper_decaying && !m.mask)) cell_inputs -= 1;
    if (m.cell == Cell::decaying) cell_inputs += values;
    if (m.cell == Cell::paper_decaying) cell_inputs += 1;
    m.jump = program_of<Real>(given, "jump", m.hidden, cell_inputs, m.hidden);
    require(m.jump.present() == (m.cell != Cell::none), "cell");
    require(!m.jump.present() || m.jump.input == cell_inputs, "jump");
    for (auto [name, to] : {std::pair{"fade_weight", &m.fade_weight}, {"fade_bias", &m.fade_bias}, {"means", &m.means}}) {
        for (double number : of<std::vector<double>>(given, name)) to->push_back(static_cast<Real>(number));
        require_size(to->size(), m.cell == Cell::decaying ? values : 0, name);
    }

    m.summary = of<bool>(given, "summary");
    int64_t inputs = features * (m.pool == Pool::both ? 2 : 1);
    if (m.summary) {
        m.summary_inputs = inputs_of<Real>(given, "summary_inputs");
        m.bins = of<int>(given, "bins", 1, 1 << 16), m.width = of<int>(given, "width", 1, most_features);
        const int64_t numbers = size_of(m.summary_inputs, data) - int64_t(m.summary_inputs.knots.size()) + plan.statics;
        const int64_t wide = numbers * m.bins + 1 + int64_t(m.summary_inputs.knots.size());
        for (auto [name, to, size] :
             {std::tuple{"edges", &m.edges, numbers * m.bins},
              {"inverse_widths", &m.inverse_widths, numbers * m.bins},
              {"encoding_mean", &m.encoding_mean, numbers * m.bins},
              {"inverse_deviation", &m.inverse_deviation, numbers * m.bins},
              {"summary_weight", &m.summary_weight, wide * m.width},
              {"summary_bias", &m.summary_bias, int64_t(m.width)}}) {
            *to = of<std::vector<double>>(given, name);
            require_size(to->size(), size, name);
        }
        inputs += m.width + plan.statics;
    }
    m.readout = program_of<Real>(given, "readout", 0, inputs, m.outputs);
    require(m.readout.present(), "readout");
    return m;
}

template <class Real>
StreamPlan<Real> plan_of(const nb::dict& given) {
    StreamPlan<Real> plan;
    plan.data = of<int>(given, "data", 1, 1 << 24), plan.statics = of<int>(given, "static", 0, 1 << 24);
    plan.reals = of<int64_t>(given, "reals", 3 * int64_t(plan.data) + plan.statics, INT64_MAX / 4);
    plan.doubles = of<int64_t>(given, "doubles", clock_count + 4 * int64_t(plan.data), INT64_MAX / 4);
    plan.counts = of<int>(given, "counts", 0, 2), plan.from_start = of<bool>(given, "from_start");
    plan.time_scale = of<double>(given, "time_scale"), plan.count_scale = of<double>(given, "count_scale");
    plan.count_scales = of<std::vector<double>>(given, "count_scales");
    require_size(plan.count_scales.size(), plan.data, "count_scales");
    if (!nb::object(given["scaling"]).is_none()) plan.scaling = scale_of(of<nb::dict>(given, "scaling"), plan.data);
    for (nb::handle model : of<nb::list>(given, "models"))
        plan.models.push_back(model_of<Real>(nb::cast<nb::dict>(model), plan));
    require(!plan.models.empty(), "models");
    return plan;
}

template <class Real>
const StreamKernels<Real>& stream_kernels() {
    const Level* level = chosen.load();
    if constexpr (sizeof(Real) == 4) {
        return *level->stream32;
    } else {
        return *level->stream64;
    }
}

// A plan made ready to run: it owns everything that it needs.
template <class Real>
class Stream {
  public:
    explicit Stream(const nb::dict& given) {
        const StreamPlan<Real> plan = plan_of<Real>(given);
        data = plan.data, reals = plan.reals, doubles = plan.doubles, models = static_cast<int64_t>(plan.models.size());
        outputs = plan.models.front().outputs;
        for (const auto& model : plan.models) require(model.outputs == outputs, "outputs");
        runner = stream_kernels<Real>().prepare(plan);
    }

    void update(Array<Real, 2> real, Array<double, 2> numbers, Array<const double, 1> t, Array<const double, 2> x,
                int threads) const {
        const size_t streams = real.shape(0);
        check(real, numbers);
        require(t.shape(0) == streams, "t must have one time per stream");
        require(x.shape(0) == streams && static_cast<int64_t>(x.shape(1)) == data,
                "x must have shape (streams, data channels)");
        nb::gil_scoped_release release;
        runner->update(static_cast<int64_t>(streams), real.data(), numbers.data(), t.data(), x.data(), threads);
    }

    void read(Array<const Real, 2> real, Array<const double, 2> numbers, Array<Real, 3> found, int threads) const {
        check(real, numbers);
        require(static_cast<int64_t>(found.shape(0)) == models && found.shape(1) == real.shape(0) &&
                    static_cast<int64_t>(found.shape(2)) == outputs,
                "outputs must have shape (models, streams, outputs)");
        nb::gil_scoped_release release;
        runner->read(static_cast<int64_t>(real.shape(0)), real.data(), numbers.data(), found.data(), threads);
    }

  private:
    template <class A, class B>
    void check(const A& real, const B& numbers) const {
        require(static_cast<int64_t>(real.shape(1)) == reals && static_cast<int64_t>(numbers.shape(1)) == doubles &&
                    real.shape(0) == numbers.shape(0),
                "states must have the shape that the plan gives");
    }

    int64_t data, reals, doubles, models, outputs;
    std::unique_ptr<StreamRunner<Real>> runner;
};

template <class Real>
void bind(nb::module_& m, const char* name) {
    nb::class_<Stream<Real>>(m, name)
        .def(nb::init<nb::dict>(), "plan"_a)
        .def("update", &Stream<Real>::update, "real"_a.noconvert(), "doubles"_a.noconvert(), "t"_a.noconvert(),
             "x"_a.noconvert(), "threads"_a)
        .def("read", &Stream<Real>::read, "real"_a.noconvert(), "doubles"_a.noconvert(), "outputs"_a.noconvert(),
             "threads"_a);
}

}  // namespace

void bind_streams(nb::module_& m) {
    bind<float>(m, "Stream32");
    bind<double>(m, "Stream64");
}

}  // namespace neuralcde
