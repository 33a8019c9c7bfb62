// Which instruction-set levels were built, and which of them this processor can run.

#include "levels.hpp"

namespace neuralcde {

#define DECLARE(LEVEL)                       \
    namespace LEVEL {                        \
    extern const Splines<float> splines32;   \
    extern const Splines<double> splines64;  \
    extern const Engine<float> engine32;     \
    extern const Engine<double> engine64;    \
    extern const RowFeatures<float> row_features32;   \
    extern const RowFeatures<double> row_features64;  \
    extern const StreamKernels<float> stream32;       \
    extern const StreamKernels<double> stream64;      \
    }
#define TABLES(LEVEL)                                                                  \
    &LEVEL::splines32, &LEVEL::splines64, &LEVEL::engine32, &LEVEL::engine64,          \
        &LEVEL::row_features32, &LEVEL::row_features64, &LEVEL::stream32, &LEVEL::stream64

DECLARE(baseline)
#ifdef NEURALCDE_X86
DECLARE(x86_64_v3)
DECLARE(x86_64_v4)

static bool has_v3() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}
static bool has_v4() {
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif
static bool always() { return true; }

const Level levels[] = {
#ifdef NEURALCDE_X86
    {"x86-64-v4", has_v4, TABLES(x86_64_v4)},
    {"x86-64-v3", has_v3, TABLES(x86_64_v3)},
#endif
    {"baseline", always, TABLES(baseline)},
};
const int level_count = sizeof(levels) / sizeof(levels[0]);

}  // namespace neuralcde
