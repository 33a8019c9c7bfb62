// The kernels of every instruction-set level that was built, as tables of functions.
#pragma once

#include "engine.hpp"
#include "row_features.hpp"
#include "splines.hpp"
#include "stream.hpp"

namespace neuralcde {

struct Level {
    const char* name;
    bool (*supported)();
    const Splines<float>* splines32;
    const Splines<double>* splines64;
    const Engine<float>* engine32;
    const Engine<double>* engine64;
    const RowFeatures<float>* row_features32;
    const RowFeatures<double>* row_features64;
    const StreamKernels<float>* stream32;
    const StreamKernels<double>* stream64;
};

extern const Level levels[];  // best first
extern const int level_count;

}  // namespace neuralcde
