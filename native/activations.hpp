// Activation functions of a register of lanes, and their derivatives. Compiled per instruction-set level.
#pragma once

#include "engine.hpp"
#include "vectors.hpp"

namespace neuralcde::LEVEL {

template <class Real>
inline Vector<Real> apply(Function function, Vector<Real> x) {
    switch (function) {
        case Function::identity: return x;
        case Function::relu: return x < Real(0) ? Vector<Real>{} : x;  // a NaN stays one
        case Function::tanh: return tanh_of(x);
        case Function::sigmoid: return sigmoid_of<Real>(x);
        case Function::softplus:
            return each<Real>(x, [](Real v) { return v > 20 ? v : std::log1p(std::exp(v)); });  // as torch cuts it
        case Function::silu: return x * sigmoid_of<Real>(x);
        case Function::decay: return exp_of(-apply<Real>(Function::relu, x));
    }
    return x;
}

// The derivative of `function`, from its result y (and its argument x for silu).
template <class Real>
inline Vector<Real> slope(Function function, Vector<Real> x, Vector<Real> y) {
    switch (function) {
        case Function::identity: return splat(Real(1));
        case Function::relu: return y > Real(0) ? splat(Real(1)) : Vector<Real>{};
        case Function::tanh: return Real(1) - y * y;
        case Function::sigmoid: return y * (Real(1) - y);
        case Function::softplus: return each<Real>(y, [](Real v) { return v > 20 ? Real(1) : -std::expm1(-v); });
        case Function::silu: {
            const Vector<Real> s = sigmoid_of<Real>(x);
            return s * (Real(1) + x * (Real(1) - s));
        }
        case Function::decay: return y < Real(1) ? -y : Vector<Real>{};
    }
    return y;
}

}  // namespace neuralcde::LEVEL
