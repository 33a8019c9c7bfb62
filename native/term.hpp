// Terms of a differential equation: what drives a flow along a piece of the path, and what increment it gives. Compiled
// per instruction-set level.
#pragma once

#include "engine.hpp"
#include "vectors.hpp"

namespace neuralcde::LEVEL {

// dz = f(z) dX is driven by the increment X'(u) du, and its output is an increment. dz = h(z, X) dt is driven by the
// value X(u), and its output is a rate per unit of time. On each piece X is a polynomial in u with coefficients
// (powers, channels) per lane.
template <class Real, int registers>
class Term {
    using V = Vector<Real>;

  public:
    Term(Drive drive, int64_t powers, int64_t channels)
        : controlled(drive == Drive::increment),
          powers(static_cast<int>(powers)),
          channels(static_cast<int>(channels)) {}

    // The drive at u in a step of length du, by Horner's rule.
    void drive(const V* pieces, const V* u, const V* du, V* input) const {
        const int low = controlled ? 1 : 0;
        for (int v = 0; v < registers; ++v)
            for (int c = 0; c < channels; ++c) {
                V sum{};
                for (int k = powers - 1; k >= low; --k) {
                    const V coefficient = pieces[(k * channels + c) * registers + v];
                    sum = multiply_add(sum, u[v], controlled ? Real(k) * coefficient : coefficient);
                }
                input[c * registers + v] = controlled ? sum * du[v] : sum;
            }
    }

    // Vector-Jacobian product of drive: adds to the gradient of the coefficients.
    void pull_back_drive(const V* to_input, const V* u, const V* du, V* to_pieces) const {
        for (int v = 0; v < registers; ++v) {
            V power = splat(Real(1));  // u^k, or u^(k - 1) for dX
            for (int k = controlled ? 1 : 0; k < powers; ++k) {
                const V factor = controlled ? Real(k) * power * du[v] : power;
                for (int c = 0; c < channels; ++c) {
                    V& to = to_pieces[(k * channels + c) * registers + v];
                    to = multiply_add(factor, to_input[c * registers + v], to);
                }
                power *= u[v];
            }
        }
    }

    // The increment of an output over dt. It is linear, so it is its own vector-Jacobian product.
    V scale(V output, V dt) const { return controlled ? output : output * dt; }

  private:
    const bool controlled;
    const int powers, channels;
};

}  // namespace neuralcde::LEVEL
