// What the files that know Python share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <atomic>

#include "levels.hpp"

namespace neuralcde {

extern std::atomic<const Level*> chosen;

template <class Scalar, int dimensions>
using Array = nanobind::ndarray<Scalar, nanobind::ndim<dimensions>, nanobind::c_contig, nanobind::device::cpu>;

inline void require(bool condition, const char* message) {
    if (!condition) throw nanobind::value_error(message);
}

void bind_engine(nanobind::module_& m);
void bind_walk(nanobind::module_& m);
void bind_streams(nanobind::module_& m);

}  // namespace neuralcde
