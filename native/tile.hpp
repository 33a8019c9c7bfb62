// Linear algebra on tiles. A tile is `registers` registers of lanes wide; a workspace holds features x registers of
// them. Compiled per instruction-set level.
#pragma once

#include <algorithm>

#include "activations.hpp"
#include "engine.hpp"
#include "vectors.hpp"

namespace neuralcde::LEVEL {

template <class Real, int registers>
struct Tile {
    using V = Vector<Real>;
    static constexpr int lanes = lane_count<Real>;
    static constexpr int width = lanes * registers;  // series in a tile
    // Outputs computed at once: accumulators, inputs and one weight must fit into the registers (16 with AVX2).
    static constexpr int most = register_bytes == 32 && registers == 2 ? 6 : 8;

    // Calls work(first output, number of outputs) for as few blocks as possible, of nearly equal size.
    template <class Work>
    static void blocks(int outputs, Work work) {
        const int count = (outputs + most - 1) / most, size = outputs / count, larger = outputs % count;
        for (int k = 0, o = 0; k < count; ++k) {
            const int rows = size + (k < larger);
            work(o, rows);
            o += rows;
        }
    }

    // Weights are packed block by block: the biases, then [inputs][outputs of the block], so that one load of an input
    // serves all accumulators of the block.
    static int64_t packed_size(int64_t outputs, int64_t inputs) { return outputs * (inputs + 1); }

    static void pack(const Real* weight, const Real* bias, int outputs, int inputs, bool transposed, Real* packed) {
        blocks(outputs, [&](int o, int rows) {
            for (int r = 0; r < rows; ++r) *packed++ = bias ? bias[o + r] : Real(0);
            for (int64_t i = 0; i < inputs; ++i)
                for (int64_t r = o; r < o + rows; ++r)
                    *packed++ = transposed ? weight[i * outputs + r] : weight[r * inputs + i];
        });
    }

    // One block of outputs. All loops over rows and registers are unrolled: the sums stay in registers.
    template <int rows>
    static void linear_block(const Real* packed, const V* in, V* out, int inputs, bool accumulate, Function function) {
        V sum[rows][registers];
        for (int r = 0; r < rows; ++r)
            for (int v = 0; v < registers; ++v) sum[r][v] = splat(packed[r]);
        if (accumulate)
            for (int r = 0; r < rows; ++r)
                for (int v = 0; v < registers; ++v) sum[r][v] += out[r * registers + v];
        packed += rows;
        for (int i = 0; i < inputs; ++i, packed += rows) {
            V x[registers];
            for (int v = 0; v < registers; ++v) x[v] = in[i * registers + v];
            for (int r = 0; r < rows; ++r)
                for (int v = 0; v < registers; ++v) sum[r][v] = multiply_add(packed[r], x[v], sum[r][v]);
        }
        if (function == Function::relu) {
            for (int r = 0; r < rows; ++r)
                for (int v = 0; v < registers; ++v) out[r * registers + v] = apply<Real>(Function::relu, sum[r][v]);
        } else {
            for (int r = 0; r < rows; ++r)
                for (int v = 0; v < registers; ++v) out[r * registers + v] = sum[r][v];
        }
    }

    static void linear(const Real* packed, const V* in, V* out, int inputs, int outputs, bool accumulate,
                       Function function) {
        blocks(outputs, [&](int o, int rows) {
            V* to = out + o * registers;
            switch (rows) {
                case 1: linear_block<1>(packed, in, to, inputs, accumulate, function); break;
                case 2: linear_block<2>(packed, in, to, inputs, accumulate, function); break;
                case 3: linear_block<3>(packed, in, to, inputs, accumulate, function); break;
                case 4: linear_block<4>(packed, in, to, inputs, accumulate, function); break;
                case 5: linear_block<5>(packed, in, to, inputs, accumulate, function); break;
                case 6: linear_block<6>(packed, in, to, inputs, accumulate, function); break;
                case 7: linear_block<std::min(most, 7)>(packed, in, to, inputs, accumulate, function); break;
                case 8: linear_block<most>(packed, in, to, inputs, accumulate, function); break;
            }
            packed += int64_t(rows) * (inputs + 1);
            if (function == Function::tanh) {
                for (int i = 0; i < rows * registers; ++i) to[i] = tanh_of(to[i]);
            } else if (function != Function::identity && function != Function::relu) {
                for (int i = 0; i < rows * registers; ++i) to[i] = apply<Real>(function, to[i]);
            }
        });
    }

    // For few series: the lanes are used for outputs. Weights are packed [inputs][outputs, padded], after the biases.
    static int64_t packed_size_few(int64_t outputs, int64_t inputs) { return padded(outputs) * (inputs + 1); }

    static void pack_few(const Real* weight, const Real* bias, int outputs, int inputs, Real* to) {
        const int64_t stride = padded(outputs);
        for (int o = 0; o < outputs; ++o) {
            to[o] = bias ? bias[o] : Real(0);
            for (int64_t i = 0; i < inputs; ++i) to[(i + 1) * stride + o] = weight[o * int64_t(inputs) + i];
        }
    }

    // The same sums in the same order as `linear`, so the same bits: a matrix-vector product for each of the first
    // `few` lanes of a tile that is one register wide.
    static void linear_few(const Real* packed, const V* in, V* out, int inputs, int outputs, bool accumulate,
                           Function function, int few) {
        const int64_t stride = padded(outputs);
        const Real* x = reinterpret_cast<const Real*>(in);
        Real* y = reinterpret_cast<Real*>(out);
        for (int j = 0; j < few; ++j)
            for (int o = 0; o < outputs; o += 8 * lanes) {
                const int vectors = static_cast<int>(std::min<int64_t>(8, (stride - o) / lanes));
                const int count = std::min(outputs - o, vectors * lanes);
                const Real* weights = packed + o;
                const Real* from = x + j;
                Real* to = y + o * width + j;
                switch (vectors) {
                    case 1: few_block<1>(weights, stride, from, to, inputs, count, accumulate, function); break;
                    case 2: few_block<2>(weights, stride, from, to, inputs, count, accumulate, function); break;
                    case 3: few_block<3>(weights, stride, from, to, inputs, count, accumulate, function); break;
                    case 4: few_block<4>(weights, stride, from, to, inputs, count, accumulate, function); break;
                    case 5: few_block<5>(weights, stride, from, to, inputs, count, accumulate, function); break;
                    case 6: few_block<6>(weights, stride, from, to, inputs, count, accumulate, function); break;
                    case 7: few_block<7>(weights, stride, from, to, inputs, count, accumulate, function); break;
                    case 8: few_block<8>(weights, stride, from, to, inputs, count, accumulate, function); break;
                }
            }
    }

    template <int vectors>
    static void few_block(const Real* weights, int64_t stride, const Real* x, Real* y, int inputs, int count,
                          bool accumulate, Function function) {
        V sum[vectors];
        for (int v = 0; v < vectors; ++v) sum[v] = load(weights + v * lanes);
        if (accumulate) {
            alignas(64) Real old[vectors * lanes] = {};
            for (int o = 0; o < count; ++o) old[o] = y[o * width];
            for (int v = 0; v < vectors; ++v) sum[v] += load(old + v * lanes);
        }
        for (int i = 0; i < inputs; ++i) {
            weights += stride;
            const Real value = x[i * width];
            for (int v = 0; v < vectors; ++v) sum[v] = multiply_add(value, load(weights + v * lanes), sum[v]);
        }
        alignas(64) Real found[vectors * lanes];
        for (int v = 0; v < vectors; ++v)
            store(found + v * lanes, function == Function::identity ? sum[v] : apply<Real>(function, sum[v]));
        for (int o = 0; o < count; ++o) y[o * width] = found[o];
    }

    // Reads one row of `features` numbers per lane into the features of a tile; a null row counts as zeros.
    static void gather(const Real* const* rows, int features, V* to) {
        int f = 0;
        for (; f + lanes <= features; f += lanes)
            for (int v = 0; v < registers; ++v) {
                V square[lanes];
                for (int j = 0; j < lanes; ++j) {
                    const Real* row = rows[v * lanes + j];
                    square[j] = row ? load(row + f) : V{};
                }
                transpose<Real>(square);
                for (int j = 0; j < lanes; ++j) to[(f + j) * registers + v] = square[j];
            }
        for (; f < features; ++f)
            for (int j = 0; j < width; ++j)
                reinterpret_cast<Real*>(to)[f * width + j] = rows[j] ? rows[j][f] : Real(0);
    }

    static int64_t padded(int64_t inputs) { return (inputs + lanes - 1) / lanes * lanes; }

    // Transposes (features, width) to (width, padded features).
    static void turn(const V* in, int features, int64_t stride, Real* turned) {
        for (int f = 0; f < features; f += lanes)
            for (int v = 0; v < registers; ++v) {
                V square[lanes];
                for (int j = 0; j < lanes; ++j) square[j] = in[(f + j) * registers + v];  // may read the next region
                transpose<Real>(square);
                for (int j = 0; j < lanes; ++j) store(turned + (v * lanes + j) * stride + f, square[j]);
            }
    }

    // Four rows of the weight gradient: rows += gradients (outputs x depth) times turned (depth x inputs), where the
    // depth is the width of the tile times the number of stages.
    template <int vectors>
    static void outer(Real* const* rows, int64_t at, const Real* const* gradients, const Real* turned, int64_t stride,
                      int stages) {
        V sum[4][vectors];
        for (int r = 0; r < 4; ++r)
            for (int i = 0; i < vectors; ++i) sum[r][i] = load(rows[r] + at + i * lanes);
        const Real* x = turned + at;
        for (int s = 0; s < stages; ++s) {
            const Real* g = gradients[s];
            for (int l = 0; l < width; ++l, x += stride) {
                V xs[vectors];
                for (int i = 0; i < vectors; ++i) xs[i] = load(x + i * lanes);
                for (int r = 0; r < 4; ++r)
                    for (int i = 0; i < vectors; ++i) sum[r][i] = multiply_add(g[r * width + l], xs[i], sum[r][i]);
            }
        }
        for (int r = 0; r < 4; ++r)
            for (int i = 0; i < vectors; ++i) store(rows[r] + at + i * lanes, sum[r][i]);
    }

    static void weight_gradient(Real* sums, V* bias_sums, const V* const* gradients, const Real* turned, int64_t stride,
                                int stages, int outputs) {
        for (int o = 0; o < outputs; o += 4) {
            const Real* from[most_stages];
            for (int s = 0; s < stages; ++s) from[s] = reinterpret_cast<const Real*>(gradients[s] + o * registers);
            Real* rows[4];
            for (int r = 0; r < 4; ++r) rows[r] = sums + (o + r) * stride;
            int64_t i = 0;
            for (; i + 2 * lanes <= stride; i += 2 * lanes) outer<2>(rows, i, from, turned, stride, stages);
            for (; i < stride; i += lanes) outer<1>(rows, i, from, turned, stride, stages);
        }
        if (bias_sums)
            for (int o = 0; o < outputs; ++o) {
                V sum = bias_sums[o];
                for (int s = 0; s < stages; ++s)
                    for (int v = 0; v < registers; ++v) sum += gradients[s][o * registers + v];
                bias_sums[o] = sum;
            }
    }

    static void contract(const V* matrix, const V* vector, V* out, int rows, int columns) {
        for (int r = 0; r < rows; ++r) {
            V sum[registers] = {};
            for (int c = 0; c < columns; ++c)
                for (int v = 0; v < registers; ++v)
                    sum[v] = multiply_add(matrix[(r * columns + c) * registers + v], vector[c * registers + v], sum[v]);
            for (int v = 0; v < registers; ++v) out[r * registers + v] = sum[v];
        }
    }
};

}  // namespace neuralcde::LEVEL
