// The module and its spline functions. Every argument is checked here; the kernels check nothing.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <string>

#include "bindings.hpp"
#include "levels.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace neuralcde {

std::atomic<const Level*> chosen{nullptr};

namespace {

template <class Real>
const Splines<Real>& splines() {
    const Level* level = chosen.load();
    if constexpr (sizeof(Real) == 4) {
        return *level->splines32;
    } else {
        return *level->splines64;
    }
}

template <class Real>
Batch<Real> checked(const Array<const double, 1>& times, const Array<const Real, 2>& values,
                    const Array<const int64_t, 1>& offsets, int threads) {
    const int64_t rows = static_cast<int64_t>(times.shape(0));
    require(static_cast<int64_t>(values.shape(0)) == rows, "values must have one row for each time");
    require(offsets.shape(0) >= 1, "offsets must hold at least one number");
    const int64_t series = static_cast<int64_t>(offsets.shape(0)) - 1;
    const int64_t* o = offsets.data();
    require(o[0] == 0 && o[series] == rows, "offsets must start at 0 and end at the number of rows");
    for (int64_t i = 0; i < series; ++i) require(o[i] < o[i + 1], "offsets must increase: every series needs a row");
    return {times.data(), values.data(), o, series, static_cast<int64_t>(values.shape(1)), threads};
}

template <class Real>
int64_t pieces(const Batch<Real>& batch) {
    int64_t total = 0;
    for (int64_t i = 0; i < batch.series; ++i)
        total += std::max<int64_t>(batch.offsets[i + 1] - batch.offsets[i] - 1, 1);
    return total;
}

template <class Real, class Any>
void check_coefficients(const Batch<Real>& batch, const Any& array, size_t powers) {
    require(static_cast<int64_t>(array.shape(0)) == pieces(batch) && array.shape(1) == powers &&
                static_cast<int64_t>(array.shape(2)) == batch.channels,
            powers == 4 ? "coefficients must have shape (pieces, 4, channels)"
                        : "coefficients must have shape (pieces, 2, channels)");
}

Slopes checked(const std::string& slopes) {
    require(slopes == "natural" || slopes == "backward", "slopes must be 'natural' or 'backward'");
    return slopes == "natural" ? Slopes::natural : Slopes::backward;
}

template <class Real>
void cubic(Array<const double, 1> times, Array<const Real, 2> values, Array<const int64_t, 1> offsets,
           const std::string& slopes, Array<Real, 3> coefficients, int threads) {
    const auto batch = checked<Real>(times, values, offsets, threads);
    check_coefficients(batch, coefficients, 4);
    const Slopes kind = checked(slopes);
    nb::gil_scoped_release release;
    splines<Real>().cubic(batch, kind, coefficients.data());
}

template <class Real>
void cubic_backward(Array<const double, 1> times, Array<const Real, 2> values, Array<const int64_t, 1> offsets,
                    const std::string& slopes, Array<const Real, 3> gradient, Array<Real, 2> gradient_values,
                    std::optional<Array<double, 1>> gradient_times, int threads) {
    const auto batch = checked<Real>(times, values, offsets, threads);
    check_coefficients(batch, gradient, 4);
    require(gradient_values.shape(0) == values.shape(0) && gradient_values.shape(1) == values.shape(1),
            "gradient_values must have the shape of values");
    require(!gradient_times || gradient_times->shape(0) == times.shape(0),
            "gradient_times must have the shape of times");
    double* to_times = gradient_times ? gradient_times->data() : nullptr;
    const Slopes kind = checked(slopes);
    nb::gil_scoped_release release;
    splines<Real>().cubic_backward(batch, kind, gradient.data(), gradient_values.data(), to_times);
}

template <class Real>
void linear(Array<const double, 1> times, Array<const Real, 2> values, Array<const int64_t, 1> offsets,
            Array<Real, 3> coefficients, int threads) {
    const auto batch = checked<Real>(times, values, offsets, threads);
    check_coefficients(batch, coefficients, 2);
    nb::gil_scoped_release release;
    splines<Real>().linear(batch, coefficients.data());
}

template <class Real>
void smooth(Array<const double, 1> times, Array<const Real, 2> values, Array<const int64_t, 1> offsets,
            double penalty, Array<Real, 2> smoothed, int threads) {
    const auto batch = checked<Real>(times, values, offsets, threads);
    require(smoothed.shape(0) == values.shape(0) && smoothed.shape(1) == values.shape(1),
            "smoothed must have the shape of values");
    require(std::isfinite(penalty) && penalty >= 0, "penalty must be a finite number >= 0");
    nb::gil_scoped_release release;
    splines<Real>().smooth(batch, penalty, smoothed.data());
}

template <class Real>
const RowFeatures<Real>& row_feature_kernels() {
    const Level* level = chosen.load();
    if constexpr (sizeof(Real) == 4) {
        return *level->row_features32;
    } else {
        return *level->row_features64;
    }
}

std::vector<Family> checked(const std::vector<int>& families) {
    std::vector<Family> kinds;
    for (int family : families) {
        require(family >= 0 && family < family_count, "families must be numbers from 0 to 8");
        kinds.push_back(static_cast<Family>(family));
    }
    return kinds;
}

template <class Real, class Any>
void check_features(const Batch<Real>& batch, const Any& array, size_t families) {
    require(array.shape(0) == static_cast<size_t>(batch.offsets[batch.series]) &&
                array.shape(1) == families * static_cast<size_t>(batch.channels),
            "features must have shape (rows, families x channels)");
}

template <class Real>
void row_features(Array<const double, 1> times, Array<const Real, 2> values, Array<const int64_t, 1> offsets,
                  const std::vector<int>& families, Array<Real, 2> features, int threads) {
    const auto batch = checked<Real>(times, values, offsets, threads);
    const auto kinds = checked(families);
    check_features(batch, features, kinds.size());
    nb::gil_scoped_release release;
    row_feature_kernels<Real>().forward(batch, kinds, features.data());
}

template <class Real>
void row_features_backward(Array<const double, 1> times, Array<const Real, 2> values,
                           Array<const int64_t, 1> offsets, const std::vector<int>& families,
                           Array<const Real, 2> gradient, Array<Real, 2> gradient_values, int threads) {
    const auto batch = checked<Real>(times, values, offsets, threads);
    const auto kinds = checked(families);
    check_features(batch, gradient, kinds.size());
    require(gradient_values.shape(0) == values.shape(0) && gradient_values.shape(1) == values.shape(1),
            "gradient_values must have the shape of values");
    nb::gil_scoped_release release;
    row_feature_kernels<Real>().backward(batch, kinds, gradient.data(), gradient_values.data());
}

template <class Real>
void bind(nb::module_& m) {
    // noconvert: an array of another dtype or layout is an error, never a silent copy (outputs would be lost).
    m.def("cubic", cubic<Real>, "times"_a.noconvert(), "values"_a.noconvert(), "offsets"_a.noconvert(), "slopes"_a,
          "coefficients"_a.noconvert(), "threads"_a);
    m.def("cubic_backward", cubic_backward<Real>, "times"_a.noconvert(), "values"_a.noconvert(),
          "offsets"_a.noconvert(), "slopes"_a, "gradient"_a.noconvert(), "gradient_values"_a.noconvert(),
          "gradient_times"_a.noconvert().none(), "threads"_a);
    m.def("linear", linear<Real>, "times"_a.noconvert(), "values"_a.noconvert(), "offsets"_a.noconvert(),
          "coefficients"_a.noconvert(), "threads"_a);
    m.def("smooth", smooth<Real>, "times"_a.noconvert(), "values"_a.noconvert(), "offsets"_a.noconvert(),
          "penalty"_a, "smoothed"_a.noconvert(), "threads"_a);
    m.def("row_features", row_features<Real>, "times"_a.noconvert(), "values"_a.noconvert(), "offsets"_a.noconvert(),
          "families"_a, "features"_a.noconvert(), "threads"_a);
    m.def("row_features_backward", row_features_backward<Real>, "times"_a.noconvert(), "values"_a.noconvert(),
          "offsets"_a.noconvert(), "families"_a, "gradient"_a.noconvert(), "gradient_values"_a.noconvert(),
          "threads"_a);
}

std::vector<std::string> supported_levels() {
    std::vector<std::string> names;
    for (int i = 0; i < level_count; ++i)
        if (levels[i].supported()) names.push_back(levels[i].name);
    return names;
}

void use_level(const std::string& name) {
    for (int i = 0; i < level_count; ++i)
        if (levels[i].name == name && levels[i].supported()) {
            chosen.store(&levels[i]);
            return;
        }
    throw nb::value_error(("no level '" + name + "' on this machine").c_str());
}

}  // namespace
}  // namespace neuralcde

NB_MODULE(_kernels, m) {
    using namespace neuralcde;
    nb::set_leak_warnings(false);  // a traceback that lives until exit keeps arrays alive
    m.doc() = "Compiled kernels of neuralcde; use them through neuralcde.paths.";
    use_level(supported_levels().front());
    m.def("supported_levels", supported_levels, "Instruction-set levels this processor can run, best first.");
    m.def("use_level", use_level, "name"_a, "Run the kernels of one level from now on.");
    m.def("level", [] { return std::string(chosen.load()->name); }, "The level in use.");
    bind<float>(m);
    bind<double>(m);
    bind_engine(m);
    bind_streams(m);
}
