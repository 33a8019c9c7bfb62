// Which instruction-set levels were built, and which of them this processor can run.

#include "splines.hpp"

namespace neuralcde {

#define DECLARE(LEVEL)                      \
    namespace LEVEL {                       \
    extern const Splines<float> float32;    \
    extern const Splines<double> float64;   \
    }

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
    {"x86-64-v4", has_v4, &x86_64_v4::float32, &x86_64_v4::float64},
    {"x86-64-v3", has_v3, &x86_64_v3::float32, &x86_64_v3::float64},
#endif
    {"baseline", always, &baseline::float32, &baseline::float64},
};
const int level_count = sizeof(levels) / sizeof(levels[0]);

}  // namespace neuralcde
