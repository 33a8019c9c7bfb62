// One register of lanes, one series per lane. Sizes depend on the instruction-set level that the file is compiled for.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace neuralcde::LEVEL {

#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX2__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif

template <class Real>
struct Lanes;
template <>
struct Lanes<float> {
    typedef float Vector __attribute__((vector_size(register_bytes)));
    typedef int32_t Mask __attribute__((vector_size(register_bytes)));
};
template <>
struct Lanes<double> {
    typedef double Vector __attribute__((vector_size(register_bytes)));
    typedef int64_t Mask __attribute__((vector_size(register_bytes)));
};

template <class Real>
using Vector = typename Lanes<Real>::Vector;
template <class Real>
using Mask = typename Lanes<Real>::Mask;
template <class Real>
constexpr int lane_count = register_bytes / sizeof(Real);

template <class Real>
inline Vector<Real> splat(Real x) {
    return x - Vector<Real>{};
}

template <class Real>
inline Vector<Real> load(const Real* from) {  // any alignment
    Vector<Real> x;
    std::memcpy(&x, from, sizeof(x));
    return x;
}

template <class Real>
inline void store(Real* to, Vector<Real> x) {
    std::memcpy(to, &x, sizeof(x));
}

// a * b + c. The compiler may not fuse products and sums on its own (-ffp-contract=off), because it would do so in one
// loop and not in another: a series alone and a series in a tile must round alike. Here they are rounded once on every
// processor that can, and twice elsewhere (x86-64 without FMA), in registers and in single numbers alike.
template <class Real>
inline Real multiply_add(Real a, Real b, Real c) {
#if defined(__FMA__) || defined(__aarch64__)
    if constexpr (sizeof(Real) == sizeof(float)) return __builtin_fmaf(a, b, c);
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

inline Vector<float> multiply_add(Vector<float> a, Vector<float> b, Vector<float> c) {
#if defined(__AVX512F__)
    return (Vector<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (Vector<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return (Vector<float>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}
inline Vector<double> multiply_add(Vector<double> a, Vector<double> b, Vector<double> c) {
#if defined(__AVX512F__)
    return (Vector<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX2__)
    return (Vector<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return (Vector<double>)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
    return a * b + c;
#endif
}

// With one factor (and one term) that all lanes share.
template <class Real>
inline Vector<Real> multiply_add(Real a, Vector<Real> b, Vector<Real> c) {
    return multiply_add(splat(a), b, c);
}
template <class Real>
inline Vector<Real> multiply_add(Vector<Real> a, Real b, Real c) {
    return multiply_add(a, splat(b), splat(c));
}
template <class Real>
inline Vector<Real> multiply_add(Vector<Real> a, Vector<Real> b, Real c) {
    return multiply_add(a, b, splat(c));
}

// The smaller (larger) of a bound and x. A NaN in x stays, as with the processor's own instruction.
inline Vector<float> smaller(Vector<float> bound, Vector<float> x) {
#if defined(__AVX512F__)
    return _mm512_min_ps(bound, x);
#elif defined(__AVX2__)
    return _mm256_min_ps(bound, x);
#else
    return bound < x ? bound : x;
#endif
}
inline Vector<float> larger(Vector<float> bound, Vector<float> x) {
#if defined(__AVX512F__)
    return _mm512_max_ps(bound, x);
#elif defined(__AVX2__)
    return _mm256_max_ps(bound, x);
#else
    return bound > x ? bound : x;
#endif
}

// tanh(x) = x P(x^2) / Q(x^2), a minimax fit of degrees 4 and 4 up to 9.01, where tanh is 1 in float32. Relative error
// 2.1e-8 before rounding, 3.4e-7 after. NaN stays NaN. Doubles use the library's tanh.
inline Vector<float> tanh_of(Vector<float> x) {
    const Vector<float> limit = splat(9.01f);
    const Vector<float> y = larger(-limit, smaller(limit, x));
    const Vector<float> s = y * y;
    Vector<float> p = multiply_add(s, 1.3336853399437132e-08f, 2.0596278773155063e-05f);
    Vector<float> q = multiply_add(s, 7.769285161884909e-07f, 0.00032843637745827436f);
    p = multiply_add(s, p, 0.0034948112443089485f);
    q = multiply_add(s, q, 0.025874027982354164f);
    p = multiply_add(s, p, 0.13380372524261475f);
    q = multiply_add(s, q, 0.46713685989379883f);
    p = multiply_add(s, p, 1.0f);
    q = multiply_add(s, q, 1.0f);
    return y * p / q;
}

template <class Real, class Function>
inline Vector<Real> each(Vector<Real> x, Function function) {
    for (int lane = 0; lane < lane_count<Real>; ++lane) x[lane] = function(x[lane]);
    return x;
}

inline Vector<double> tanh_of(Vector<double> x) {
    return each<double>(x, [](double v) { return std::tanh(v); });
}

// exp(x) for x <= 0, as 2^n e^r with |r| <= ln(2) / 2. Relative error 1e-7; 0 below -87. NaN stays NaN.
inline Vector<float> exp_of(Vector<float> x) {
    const Vector<float> y = larger(splat(-87.0f), x);
    const Vector<float> rounder = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the lowest bits
    const Vector<float> shifted = multiply_add(splat(1.44269504f), y, rounder);
    const Vector<float> n = shifted - rounder;
    // ln(2) in two parts, for accuracy.
    const Vector<float> r = multiply_add(splat(2.12194440e-4f), n, multiply_add(splat(-0.693359375f), n, y));
    Vector<float> p = multiply_add(r, 1.0f / 720, 1.0f / 120);
    p = multiply_add(r, p, 1.0f / 24);
    p = multiply_add(r, p, 1.0f / 6);
    p = multiply_add(r, p, 0.5f);
    p = multiply_add(r, p, 1.0f);
    p = multiply_add(r, p, 1.0f);
    Lanes<float>::Mask power;
    std::memcpy(&power, &shifted, sizeof(power));
    power = (power + 127) << 23;
    Vector<float> scale;
    std::memcpy(&scale, &power, sizeof(scale));
    return x < -87.0f ? Vector<float>{} : p * scale;
}

inline Vector<double> exp_of(Vector<double> x) {
    return each<double>(x, [](double v) { return std::exp(v); });
}

template <class Real>
inline Vector<Real> sigmoid_of(Vector<Real> x) {
    return multiply_add(tanh_of(Real(0.5) * x), Real(0.5), Real(0.5));
}

// Transposes a square block of lanes in place.
template <class Real>
inline void transpose(Vector<Real>* rows) {
    constexpr int n = lane_count<Real>;
    alignas(64) Real block[n * n];
    for (int i = 0; i < n; ++i) store(block + i * n, rows[i]);
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) rows[i][j] = block[j * n + i];
}

#if defined(__AVX2__) && !defined(__AVX512F__)
template <>
inline void transpose<float>(Vector<float>* r) {
    Vector<float> t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    Vector<float> s[8];
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; ++j) {
            s[i + 2 * j] = __builtin_shufflevector(t[i + j], t[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            s[i + 2 * j + 1] = __builtin_shufflevector(t[i + j], t[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; ++i) {
        r[i] = __builtin_shufflevector(s[i], s[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = __builtin_shufflevector(s[i], s[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}
#elif defined(__AVX512F__)
// log2(16) rounds of perfect shuffles: each interleaves row i with row i + 8.
template <>
inline void transpose<float>(Vector<float>* r) {
    Vector<float> t[16];
    for (int round = 0; round < 4; ++round) {
        Vector<float>*from = round % 2 ? t : r, *to = round % 2 ? r : t;
        for (int i = 0; i < 8; ++i) {
            const Vector<float> a = from[i], b = from[i + 8];
            to[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            to[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
    }
}
#endif

}  // namespace neuralcde::LEVEL
