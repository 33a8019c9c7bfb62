// Programs made ready to run on tiles, and their vector-Jacobian products. Compiled per instruction-set level.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "activations.hpp"
#include "aligned.hpp"
#include "engine.hpp"
#include "tile.hpp"
#include "vectors.hpp"

namespace neuralcde::LEVEL {

// A program with its weights packed for tiles, and a plan of which gradients are written first.
template <class Real, int registers>
class Prepared {
    using T = Tile<Real, registers>;
    using V = Vector<Real>;

  public:
    // `few`: only so many lanes of a tile are in use, and the products with weights are made one by one; 0: all are.
    Prepared(const Program<Real>& program, int hidden, bool training, int few = 0)
        : program(program), hidden(hidden), few(few) {
        starts.resize(program.ops.size());
        turned_starts.resize(program.ops.size());
        size_t total = 0;
        for (size_t k = 0; k < program.ops.size(); ++k) {
            const Op& op = program.ops[k];
            if (op.code != Code::linear) continue;
            starts[k] = total;
            total += few ? T::packed_size_few(op.rows, op.columns) : T::packed_size(op.rows, op.columns);
            if (training) turned_starts[k] = total, total += T::packed_size(op.columns, op.rows);
        }
        packed = Aligned<Real>(total);
        for (size_t k = 0; k < program.ops.size(); ++k) {
            const Op& op = program.ops[k];
            if (op.code != Code::linear) continue;
            const Real* weight = program.parameters[op.weight].values + op.weight_start;
            const Real* bias = op.bias < 0 ? nullptr : program.parameters[op.bias].values + op.bias_start;
            if (few) {
                T::pack_few(weight, bias, op.rows, op.columns, packed.data() + starts[k]);
            } else {
                T::pack(weight, bias, op.rows, op.columns, false, packed.data() + starts[k]);
            }
            if (training) T::pack(weight, nullptr, op.columns, op.rows, true, packed.data() + turned_starts[k]);
        }
        if (training && program.present()) plan_gradients();
    }

    // Size of a workspace. The margin is for kernels that read whole registers past the last feature.
    size_t workspace() const { return static_cast<size_t>(program.features + T::lanes + 4) * registers; }

    // Runs the program on a workspace.
    void evaluate(V* w) const {
        for (size_t k = 0; k < program.ops.size(); ++k) {
            const Op& op = program.ops[k];
            V *out = w + op.out * registers, *a = w + op.a * registers, *b = w + op.b * registers;
            const int count = op.rows * registers;
            switch (op.code) {
                case Code::linear:
                    if (few) {
                        T::linear_few(packed.data() + starts[k], a, out, op.columns, op.rows, op.accumulate,
                                      op.function, few);
                    } else {
                        T::linear(packed.data() + starts[k], a, out, op.columns, op.rows, op.accumulate, op.function);
                    }
                    break;
                case Code::unary:
                    for (int i = 0; i < count; ++i) out[i] = apply<Real>(op.function, a[i]);
                    break;
                case Code::multiply:
                    for (int i = 0; i < count; ++i) out[i] = a[i] * b[i];
                    break;
                case Code::add:
                    for (int i = 0; i < count; ++i) out[i] = a[i] + b[i];
                    break;
                case Code::subtract:
                    for (int i = 0; i < count; ++i) out[i] = a[i] - b[i];
                    break;
                case Code::affine:
                    for (int i = 0; i < count; ++i) out[i] = multiply_add(splat(Real(op.scale)), a[i], splat(Real(op.shift)));
                    break;
                case Code::contract: T::contract(a, b, out, op.rows, op.columns); break;
                case Code::outer:
                    for (int r = 0; r < op.rows; ++r)
                        for (int i = 0; i < op.columns * registers; ++i)
                            out[r * op.columns * registers + i] = a[r * registers + i % registers] * b[i];
                    break;
            }
        }
    }

    // Vector-Jacobian product. w holds the values of an evaluation, and g the gradient of the output. Afterwards g
    // holds the gradients of the state and (if wanted) of the input, and those of the results, which add_to reads.
    void pull_back(const V* w, V* g, bool input_wanted) const {
        for (auto [feature, count] : zeroed) std::fill(g + feature * registers, g + (feature + count) * registers, V{});
        for (size_t k = program.ops.size(); k-- > 0;) {
            const Op& op = program.ops[k];
            const Plan& plan = plans[k];
            const V *out = w + op.out * registers, *a = w + op.a * registers, *b = w + op.b * registers;
            V *gout = g + op.out * registers, *ga = g + op.a * registers, *gb = g + op.b * registers;
            const int count = op.rows * registers;
            const bool a_wanted = input_wanted || !is_input(op.a), b_wanted = input_wanted || !is_input(op.b);
            switch (op.code) {
                case Code::linear:
                    if (op.function == Function::tanh) {
                        for (int i = 0; i < count; ++i) gout[i] *= Real(1) - out[i] * out[i];
                    } else if (op.function == Function::relu) {
                        for (int i = 0; i < count; ++i) gout[i] = out[i] > Real(0) ? gout[i] : V{};
                    } else if (op.function != Function::identity) {
                        for (int i = 0; i < count; ++i) gout[i] *= slope<Real>(op.function, out[i], out[i]);
                    }
                    if (a_wanted)
                        T::linear(packed.data() + turned_starts[k], gout, ga, op.rows, op.columns, !plan.first_a,
                                  Function::identity);
                    break;
                case Code::unary:
                    for (int i = 0; i < count; ++i)
                        put_product(ga[i], gout[i], slope<Real>(op.function, a[i], out[i]), plan.first_a);
                    break;
                case Code::multiply:
                    for (int i = 0; i < count; ++i) put_product(ga[i], gout[i], b[i], plan.first_a);
                    for (int i = 0; i < count; ++i) put_product(gb[i], gout[i], a[i], plan.first_b);
                    break;
                case Code::add:
                    for (int i = 0; i < count; ++i) put(ga[i], gout[i], plan.first_a);
                    for (int i = 0; i < count; ++i) put(gb[i], gout[i], plan.first_b);
                    break;
                case Code::subtract:
                    for (int i = 0; i < count; ++i) put(ga[i], gout[i], plan.first_a);
                    for (int i = 0; i < count; ++i) put(gb[i], -gout[i], plan.first_b);
                    break;
                case Code::affine:
                    for (int i = 0; i < count; ++i) put_product(ga[i], gout[i], splat(Real(op.scale)), plan.first_a);
                    break;
                case Code::contract:
                    for (int r = 0; r < op.rows; ++r)
                        for (int c = 0; c < op.columns; ++c)
                            for (int v = 0; v < registers; ++v)
                                put_product(ga[(r * op.columns + c) * registers + v], gout[r * registers + v],
                                            b[c * registers + v], plan.first_a);
                    if (!b_wanted) break;
                    if (plan.first_b) std::fill(gb, gb + op.columns * registers, V{});
                    for (int r = 0; r < op.rows; ++r)
                        for (int c = 0; c < op.columns; ++c)
                            for (int v = 0; v < registers; ++v)
                                gb[c * registers + v] =
                                    multiply_add(gout[r * registers + v], a[(r * op.columns + c) * registers + v],
                                                 gb[c * registers + v]);
                    break;
                case Code::outer:
                    if (plan.first_a) std::fill(ga, ga + op.rows * registers, V{});
                    if (b_wanted && plan.first_b) std::fill(gb, gb + op.columns * registers, V{});
                    for (int r = 0; r < op.rows; ++r)
                        for (int c = 0; c < op.columns; ++c)
                            for (int v = 0; v < registers; ++v) {
                                const V both = gout[(r * op.columns + c) * registers + v];
                                ga[r * registers + v] = multiply_add(both, b[c * registers + v], ga[r * registers + v]);
                                if (!b_wanted) continue;
                                gb[c * registers + v] = multiply_add(both, a[r * registers + v], gb[c * registers + v]);
                            }
                    break;
            }
        }
    }

    // The gradients of the parameters, summed over the steps of one thread.
    struct Sums {
        std::vector<Aligned<Real>> weights;  // one per linear op, (outputs, padded inputs)
        std::vector<Aligned<V>> biases;      // one per linear op, one register per output
        Aligned<Real> turned;
    };

    Sums sums(int stages) const {
        Sums result;
        size_t widest = 0;
        for (const Op& op : program.ops) {
            const bool is_linear = op.code == Code::linear;
            const int64_t stride = T::padded(op.columns);
            result.weights.emplace_back(is_linear ? static_cast<size_t>((op.rows + 4) * stride) : 0);
            result.biases.emplace_back(is_linear && op.bias >= 0 ? static_cast<size_t>(op.rows) : 0);
            if (is_linear) widest = std::max(widest, static_cast<size_t>(stride));
        }
        result.turned = Aligned<Real>(widest * T::width * stages);
        return result;
    }

    // Adds the gradients of the parameters in one step. w and g hold one workspace per stage.
    void add_to(Sums& sums, V* const* w, V* const* g, int stages) const {
        for (size_t k = 0; k < program.ops.size(); ++k) {
            const Op& op = program.ops[k];
            if (op.code != Code::linear) continue;
            const int64_t stride = T::padded(op.columns);
            const V* gradients[most_stages];
            for (int s = 0; s < stages; ++s) {
                T::turn(w[s] + op.a * registers, op.columns, stride, sums.turned.data() + s * T::width * stride);
                gradients[s] = g[s] + op.out * registers;
            }
            T::weight_gradient(sums.weights[k].data(), op.bias < 0 ? nullptr : sums.biases[k].data(), gradients,
                               sums.turned.data(), stride, stages, op.rows);
        }
    }

    // Adds one thread's sums to the gradients of the parameters.
    void collect(const Sums& sums) const {
        for (size_t k = 0; k < program.ops.size(); ++k) {
            const Op& op = program.ops[k];
            if (op.code != Code::linear) continue;
            const int64_t stride = T::padded(op.columns);
            Real* weight = program.parameters[op.weight].gradient + op.weight_start;
            for (int64_t o = 0; o < op.rows; ++o)
                for (int64_t i = 0; i < op.columns; ++i)
                    weight[o * op.columns + i] += sums.weights[k].data()[o * stride + i];
            if (op.bias < 0) continue;
            Real* bias = program.parameters[op.bias].gradient + op.bias_start;
            for (int64_t o = 0; o < op.rows; ++o)
                for (int lane = 0; lane < T::lanes; ++lane) bias[o] += sums.biases[k].data()[o][lane];
        }
    }

    const Program<Real>& program;
    const int hidden, few;

  private:
    struct Plan {
        bool first_a = false, first_b = false;
    };

    static void put(V& to, V value, bool first) { to = first ? value : to + value; }
    static void put_product(V& to, V a, V b, bool first) { to = first ? a * b : multiply_add(a, b, to); }
    bool is_input(int feature) const { return feature >= hidden && feature < hidden + program.input; }

    // Going backwards, the first gradient that reaches a feature overwrites it, and later ones are added: so most
    // features need not be cleared first. If only a part of an operand has been written, its other features are cleared
    // at the start, and gradients are added to all of it.
    void plan_gradients() {
        std::vector<bool> written(program.features, false), cleared(program.features, false);
        auto mark = [&](int from, int count) {
            std::fill(written.begin() + from, written.begin() + from + count, true);
        };
        auto clear_missing = [&](int from, int count) {
            for (int f = from; f < from + count; ++f)
                if (!written[f]) cleared[f] = written[f] = true;
        };
        auto reach = [&](int from, int count) {
            const auto begin = written.begin() + from;
            const bool first = std::none_of(begin, begin + count, [](bool x) { return x; });
            if (!first) clear_missing(from, count);
            mark(from, count);
            return first;
        };
        plans.resize(program.ops.size());
        mark(program.output, hidden);
        for (size_t k = program.ops.size(); k-- > 0;) {
            const Op& op = program.ops[k];
            clear_missing(op.out, static_cast<int>(op.size_out()));
            plans[k].first_a = reach(op.a, static_cast<int>(op.size_a()));
            if (op.size_b() > 0) plans[k].first_b = reach(op.b, static_cast<int>(op.size_b()));
        }
        clear_missing(0, hidden + program.input);
        for (int f = 0; f < program.features; ++f)
            if (cleared[f]) {
                if (!zeroed.empty() && zeroed.back().first + zeroed.back().second == f) {
                    ++zeroed.back().second;
                } else {
                    zeroed.emplace_back(f, 1);
                }
            }
    }

    std::vector<size_t> starts, turned_starts;
    Aligned<Real> packed;
    std::vector<Plan> plans;
    std::vector<std::pair<int, int>> zeroed;
};

// The lanes that so many series use, if that is few enough for products one by one; else 0.
template <class Real, int registers>
int few_lanes(int64_t series) {
    return registers == 1 && series <= lane_count<Real> / 4 ? static_cast<int>(series) : 0;
}

}  // namespace neuralcde::LEVEL
