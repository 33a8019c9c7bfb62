// A program for one stream at a time: the lanes of a register are outputs of a layer. Compiled per instruction-set
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

// Adds value * row for all pairs of value and row to `vectors` registers of sums.
template <class Real, int vectors>
inline void add_rows(const Real* weights, int64_t stride, const int* rows, const Real* values, int count, Real* sums) {
    constexpr int lanes = lane_count<Real>;
    Vector<Real> sum[vectors];
    for (int v = 0; v < vectors; ++v) sum[v] = load(sums + v * lanes);
    for (int i = 0; i < count; ++i) {
        const Real* row = weights + rows[i] * stride;
        const Vector<Real> x = splat(values[i]);
        for (int v = 0; v < vectors; ++v) sum[v] += x * load(row + v * lanes);
    }
    for (int v = 0; v < vectors; ++v) store(sums + v * lanes, sum[v]);
}

template <class Real>
inline void add_rows(const Real* weights, int64_t stride, const int* rows, const Real* values, int count, Real* sums) {
    constexpr int lanes = lane_count<Real>;
    for (int64_t o = 0; o < stride; o += 8 * lanes) {
        const Real* w = weights + o;
        switch (std::min<int64_t>(8, (stride - o) / lanes)) {
            case 1: add_rows<Real, 1>(w, stride, rows, values, count, sums + o); break;
            case 2: add_rows<Real, 2>(w, stride, rows, values, count, sums + o); break;
            case 3: add_rows<Real, 3>(w, stride, rows, values, count, sums + o); break;
            case 4: add_rows<Real, 4>(w, stride, rows, values, count, sums + o); break;
            case 5: add_rows<Real, 5>(w, stride, rows, values, count, sums + o); break;
            case 6: add_rows<Real, 6>(w, stride, rows, values, count, sums + o); break;
            case 7: add_rows<Real, 7>(w, stride, rows, values, count, sums + o); break;
            case 8: add_rows<Real, 8>(w, stride, rows, values, count, sums + o); break;
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
template <class Real>
class Single {
  public:
    explicit Single(const Program<Real>& given) : program(given) {
        starts.resize(program.ops.size()), biases.resize(program.ops.size());
        size_t total = 0;
        for (size_t k = 0; k < program.ops.size(); ++k) {
            const Op& op = program.ops[k];
            if (op.code != Code::linear) continue;
            const int64_t stride = padded_to_lanes<Real>(op.rows);
            starts[k] = total, total += static_cast<size_t>(stride * (op.columns + 1));
            biases[k] = starts[k] + static_cast<size_t>(stride * op.columns);
            inputs = std::max<int64_t>(inputs, op.columns), outputs = std::max<int64_t>(outputs, op.rows);
        }
        packed = Aligned<Real>(total);
        for (size_t k = 0; k < program.ops.size(); ++k) {
            const Op& op = program.ops[k];
            if (op.code != Code::linear) continue;
            const Real* weight = program.parameters[op.weight].values + op.weight_start;
            const int64_t stride = padded_to_lanes<Real>(op.rows);
            for (int64_t r = 0; r < op.rows; ++r) {
                for (int64_t c = 0; c < op.columns; ++c)
                    packed.data()[starts[k] + c * stride + r] = weight[r * op.columns + c];
                if (op.bias >= 0)
                    packed.data()[biases[k] + r] = program.parameters[op.bias].values[op.bias_start + r];
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
                case Code::linear: linear(k, op, a, out, scratch); break;
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
                    for (int i = 0; i < op.rows; ++i) out[i] = Real(op.scale) * a[i] + Real(op.shift);
                    break;
                case Code::contract:
                    for (int r = 0; r < op.rows; ++r) {
                        const Real* row = a + int64_t(r) * op.columns;
                        Real sum = 0;
                        for (int c = 0; c < op.columns; ++c) sum += row[c] * b[c];
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
    void linear(size_t k, const Op& op, const Real* a, Real* out, Scratch<Real>& scratch) const {
        int count = 0;  // inputs of 0 are left out: after a ReLU, and for channels that were never observed
        for (int i = 0; i < op.columns; ++i) {
            scratch.rows[count] = i, scratch.values[count] = a[i];
            count += a[i] != 0;  // a NaN is not 0
        }
        const int64_t stride = padded_to_lanes<Real>(op.rows);
        Real* sums = scratch.sums.data();
        std::copy(packed.data() + biases[k], packed.data() + biases[k] + stride, sums);
        if (op.accumulate)
            for (int i = 0; i < op.rows; ++i) sums[i] += out[i];
        add_rows<Real>(packed.data() + starts[k], stride, scratch.rows.data(), scratch.values.data(), count, sums);
        if (op.function == Function::identity)
            std::copy(sums, sums + op.rows, out);
        else
            apply_to<Real>(op.function, sums, out, op.rows);
    }

    Program<Real> program;
    std::vector<size_t> starts, biases;
    Aligned<Real> packed;
    int64_t inputs = 0, outputs = 0;
};

}  // namespace

}  // namespace neuralcde::LEVEL
