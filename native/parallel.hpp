// Work in parallel.
//
// Threads live for one call. Creating one costs some tens of microseconds, and in exchange nothing is left behind: no
// pool that a forked child would inherit dead, no lock between callers, no change to the process at import.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

namespace neuralcde {

// Lets a new thread run anywhere but where its creator runs. Without this, Linux often queues a short-lived thread behind
// its creator for a whole time slice (2 to 3 ms, measured on two cores) while the other core idles.
inline void place_elsewhere([[maybe_unused]] std::thread& helper) {
#ifdef __linux__
    cpu_set_t others;
    if (sched_getaffinity(0, sizeof others, &others) != 0) return;
    const int here = sched_getcpu();
    if (here < 0) return;
    CPU_CLR(here, &others);
    if (CPU_COUNT(&others) > 0) pthread_setaffinity_np(helper.native_handle(), sizeof others, &others);
#endif
}

// Runs work(0) here and work(1) .. work(shares - 1) on threads of their own; rethrows the first exception.
template <class Work>
void parallel(int64_t shares, Work work) {
    std::vector<std::exception_ptr> failures(shares);
    auto guarded = [&](int64_t share) {
        try {
            work(share);
        } catch (...) {
            failures[share] = std::current_exception();
        }
    };
    std::vector<std::thread> helpers;
    helpers.reserve(shares);
    int64_t started = 1;
    try {
        for (; started < shares; ++started) place_elsewhere(helpers.emplace_back(guarded, started));
    } catch (const std::system_error&) {
        // The system refuses more threads: do the rest of the work here.
    }
    guarded(0);
    for (int64_t share = started; share < shares; ++share) guarded(share);
    for (auto& helper : helpers) helper.join();
    for (auto& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

// Splits a ragged batch into contiguous ranges of series with about equal numbers of rows.
template <class Work>
void parallel_over_series(const int64_t* offsets, int64_t series, int threads, Work work) {
    const int64_t rows = offsets[series];
    const int64_t smallest_share = 4096;  // rows below which a thread costs more than it saves
    const int64_t shares = std::min<int64_t>({std::max(threads, 1), std::max<int64_t>(series, 1), rows / smallest_share + 1});
    std::vector<int64_t> cuts{0};
    for (int64_t share = 1; share < shares; ++share) {
        const int64_t* cut = std::lower_bound(offsets, offsets + series, rows * share / shares);
        cuts.push_back(std::max<int64_t>(cuts.back(), cut - offsets));
    }
    cuts.push_back(series);
    parallel(shares, [&](int64_t share) { work(cuts[share], cuts[share + 1]); });
}

}  // namespace neuralcde
