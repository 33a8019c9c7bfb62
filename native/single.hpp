// A program for one series at a time: the lanes of a register are outputs of a layer. Compiled per instruction-set
// level.
#pragma once

#include <algorithm>
#include <vector>

#include "activations.hpp"
#include "aligned.hpp"
#include "engine.hpp"
#include "vectors.hpp"

namespace neuralcde::LEVEL {

namespace {

// A function of `count` numbers in place of them or elsewhere, a register at a time.
template <class Real>
inline void apply_to(Function function, const Real* in, Real* out, int count) {
    constexpr int lanes = lane_count<Real>;
    int i = 0;
    for (; i + lanes <= count; i += lanes) store(out + i, apply<Real>(function, load(in + i)));
    if (i == count) return;
    Real rest[lanes] = {};
    std::copy(in + i, in + count, rest);
    store(rest, apply<Real>(function, load(rest)));
    std::copy(rest, rest + (count - i), out + i);
}

// Inputs of a layer: pairs of row and value, or with `rows` null the values of all rows.
template <class Real>
struct Inputs {
    const int* rows;
    const Real* values;
    int count;
};

// Adds value * row for all inputs to `vectors` registers of sums. Inputs are added in their order, as on tiles.
template <class Real, int vectors, bool all>
inline void add_rows(const Real* weights, int64_t stride, Inputs<Real> inputs, Real* sums) {
    constexpr int lanes = lane_count<Real>;
    Vector<Real> sum[vectors];
    for (int v = 0; v < vectors; ++v) sum[v] = load(sums + v * lanes);
    for (int i = 0; i < inputs.count; ++i) {
        const Real* row = weights + (all ? i : inputs.rows[i]) * stride;
        const Vector<Real> x = splat(inputs.values[i]);
        for (int v = 0; v < vectors; ++v) sum[v] = multiply_add(x, load(row + v * lanes), sum[v]);
    }
    for (int v = 0; v < vectors; ++v) store(sums + v * lanes, sum[v]);
}

template <class Real, bool all>
inline void add_rows(const Real* weights, int64_t stride, Inputs<Real> inputs, Real* sums) {
    constexpr int lanes = lane_count<Real>;
    for (int64_t o = 0; o < stride; o += 8 * lanes) {
        const Real* w = weights + o;
        switch (std::min<int64_t>(8, (stride - o) / lanes)) {
            case 1: add_rows<Real, 1, all>(w, stride, inputs, sums + o); break;
            case 2: add_rows<Real, 2, all>(w, stride, inputs, sums + o); break;
            case 3: add_rows<Real, 3, all>(w, stride, inputs, sums + o); break;
            case 4: add_rows<Real, 4, all>(w, stride, inputs, sums + o); break;
            case 5: add_rows<Real, 5, all>(w, stride, inputs, sums + o); break;
            case 6: add_rows<Real, 6, all>(w, stride, inputs, sums + o); break;
            case 7: add_rows<Real, 7, all>(w, stride, inputs, sums + o); break;
            case 8: add_rows<Real, 8, all>(w, stride, inputs, sums + o); break;
        }
    }
}

template <class Real>
constexpr int64_t padded_to_lanes(int64_t count) {
    return (count + lane_count<Real> - 1) / lane_count<Real> * lane_count<Real>;
}

// Memory that evaluations share: the pairs of a layer's inputs that are not 0, and its sums.
template <class Real>
struct Scratch {
    std::vector<int> rows;
    std::vector<Real> values;
    Aligned<Real> sums;

    void reserve(int64_t inputs, int64_t outputs) {
        if (static_cast<int64_t>(rows.size()) < inputs) rows.resize(inputs), values.resize(inputs);
        if (static_cast<int64_t>(sums.size()) < padded_to_lanes<Real>(outputs))
            sums = Aligned<Real>(padded_to_lanes<Real>(outputs));
    }
};

// A program with the weights of its layers turned: one row of outputs per input.
//
// A matrix that is only multiplied with a vector is computed column by column, each padded to whole registers, so that
// the product needs no sum across lanes.
template <class Real>
class Single {
    static constexpr int lanes = lane_count<Real>;

  public:
    // With `exact`, every sum is the one on tiles, bit for bit. Else inputs of 0 are left out: after a ReLU, and for
    // channels that were never observed.
    explicit Single(const Program<Real>& given, bool exact = false) : program(given), exact(exact) {
        layers.resize(program.ops.size());
        size_t total = 0;
        for (size_t k = 0; k < program.ops.size(); ++k) {
            const Op& op = program.ops[k];
            if (op.code != Code::linear) continue;
            Layer& layer = layers[k];
            layer.columns = only_contracted(k) ? program.ops[k + 1].columns : 0;
            layer.padded = padded_to_lanes<Real>(layer.columns ? op.rows / layer.columns : op.rows);
            layer.stride = layer.padded * std::max(layer.columns, 1);
            layer.weights = total, total += static_cast<size_t>(layer.stride * (op.columns + 1));
            layer.bias = layer.weights + static_cast<size_t>(layer.stride * op.columns);
            inputs = std::max<int64_t>(inputs, op.columns), outputs = std::max<int64_t>(outputs, layer.stride);
        }
        packed = Aligned<Real>(total);
        for (size_t k = 0; k < program.ops.size(); ++k) {
            const Op& op = program.ops[k];
            if (op.code != Code::linear) continue;
            const Layer& layer = layers[k];
            const Real* weight = program.parameters[op.weight].values + op.weight_start;
            const Real* bias = op.bias < 0 ? nullptr : program.parameters[op.bias].values + op.bias_start;
            for (int64_t r = 0; r < op.rows; ++r) {
                const int64_t at = layer.columns ? r % layer.columns * layer.padded + r / layer.columns : r;
                for (int64_t c = 0; c < op.columns; ++c)
                    packed.data()[layer.weights + c * layer.stride + at] = weight[r * op.columns + c];
                if (bias) packed.data()[layer.bias + at] = bias[r];
            }
        }
        program.parameters.clear();  // they need not outlive this
    }

    bool present() const { return program.present(); }
    int features() const { return program.features; }
    int input() const { return program.input; }
    int output() const { return program.output; }
    void reserve(Scratch<Real>& scratch) const { scratch.reserve(inputs, outputs); }

    void evaluate(Real* w, Scratch<Real>& scratch) const {
        for (size_t k = 0; k < program.ops.size(); ++k) {
            const Op& op = program.ops[k];
            Real* out = w + op.out;
            const Real *a = w + op.a, *b = w + op.b;
            switch (op.code) {
                case Code::linear: linear(k, a, out, scratch); break;
                case Code::unary: apply_to<Real>(op.function, a, out, op.rows); break;
                case Code::multiply:
                    for (int i = 0; i < op.rows; ++i) out[i] = a[i] * b[i];
                    break;
                case Code::add:
                    for (int i = 0; i < op.rows; ++i) out[i] = a[i] + b[i];
                    break;
                case Code::subtract:
                    for (int i = 0; i < op.rows; ++i) out[i] = a[i] - b[i];
                    break;
                case Code::affine:
                    for (int i = 0; i < op.rows; ++i) out[i] = multiply_add(Real(op.scale), a[i], Real(op.shift));
                    break;
                case Code::contract:
                    if (k > 0 && layers[k - 1].columns) {
                        contract(layers[k - 1], scratch.sums.data(), b, out, op.rows);
                        break;
                    }
                    for (int r = 0; r < op.rows; ++r) {
                        const Real* row = a + int64_t(r) * op.columns;
                        Real sum = 0;
                        for (int c = 0; c < op.columns; ++c) sum = multiply_add(row[c], b[c], sum);
                        out[r] = sum;
                    }
                    break;
                case Code::outer:
                    for (int r = 0; r < op.rows; ++r)
                        for (int c = 0; c < op.columns; ++c) out[r * op.columns + c] = a[r] * b[c];
                    break;
            }
        }
    }

  private:
    struct Layer {
        size_t weights = 0, bias = 0;     // where they start among the packed numbers
        int64_t stride = 0, padded = 0;   // padded sizes of all outputs, and of a column of them
        int columns = 0;                  // of the matrix that they are; 0: they are no such matrix
    };

    // Whether the results of a layer are a matrix that the next operation multiplies with a vector, and nothing else
    // reads. Not where padding the columns would cost more than a quarter.
    bool only_contracted(size_t k) const {
        if (k + 1 == program.ops.size()) return false;
        const Op &op = program.ops[k], &next = program.ops[k + 1];
        if (op.accumulate || next.code != Code::contract || next.a != op.out || next.size_a() != op.rows) return false;
        if (4 * padded_to_lanes<Real>(next.rows) > 5 * int64_t(next.rows)) return false;
        auto apart = [&](int64_t start, int64_t size) { return start + size <= op.out || op.out + op.rows <= start; };
        if (!apart(program.output, 1) || !apart(next.b, next.columns)) return false;
        for (size_t i = k + 2; i < program.ops.size(); ++i) {
            const Op& later = program.ops[i];
            if (!apart(later.a, later.size_a()) || !apart(later.b, later.size_b()) || !apart(later.out, 1)) return false;
        }
        return true;
    }

    void linear(size_t k, const Real* a, Real* out, Scratch<Real>& scratch) const {
        const Op& op = program.ops[k];
        const Layer& layer = layers[k];
        const Real *weights = packed.data() + layer.weights, *bias = packed.data() + layer.bias;
        Real* sums = scratch.sums.data();
        std::copy(bias, bias + layer.stride, sums);
        if (op.accumulate)
            for (int i = 0; i < op.rows; ++i) sums[i] += out[i];
        if (exact) {
            add_rows<Real, true>(weights, layer.stride, {nullptr, a, op.columns}, sums);
        } else {
            int count = 0;
            for (int i = 0; i < op.columns; ++i) {
                scratch.rows[count] = i, scratch.values[count] = a[i];
                count += a[i] != 0;  // a NaN is not 0
            }
            add_rows<Real, false>(weights, layer.stride, {scratch.rows.data(), scratch.values.data(), count}, sums);
        }
        if (layer.columns) {
            apply_to<Real>(op.function, sums, sums, static_cast<int>(layer.stride));
        } else if (op.function == Function::identity) {
            std::copy(sums, sums + op.rows, out);
        } else {
            apply_to<Real>(op.function, sums, out, op.rows);
        }
    }

    // The product of a matrix, given column by column, and a vector; summed over the columns in their order.
    static void contract(const Layer& layer, const Real* matrix, const Real* vector, Real* out, int rows) {
        for (int r = 0; r < rows; r += lanes) {
            Vector<Real> sum{};
            for (int c = 0; c < layer.columns; ++c) sum = multiply_add(vector[c], load(matrix + c * layer.padded + r), sum);
            if (r + lanes <= rows) {
                store(out + r, sum);
            } else {
                Real rest[lanes];
                store(rest, sum);
                std::copy(rest, rest + (rows - r), out + r);
            }
        }
    }

    Program<Real> program;
    bool exact;
    std::vector<Layer> layers;
    Aligned<Real> packed;
    int64_t inputs = 0, outputs = 0;
};

}  // namespace

}  // namespace neuralcde::LEVEL
