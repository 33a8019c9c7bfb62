// What the files that know Python share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <atomic>
#include <string>

#include "levels.hpp"

namespace neuralcde {

extern std::atomic<const Level*> chosen;

template <class Scalar, int dimensions>
using Array = nanobind::ndarray<Scalar, nanobind::ndim<dimensions>, nanobind::c_contig, nanobind::device::cpu>;

inline void require(bool condition, const std::string& message) {
    if (!condition) throw nanobind::value_error(message.c_str());
}

void bind_engine(nanobind::module_& m);

}  // namespace neuralcde
