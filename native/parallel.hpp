// Parallel loops.
//
// On Linux the work runs on torch's own threads, those of the OpenMP runtime that it has loaded. They keep spinning
// after torch's operations, so threads of ours would compete with them for cores. Where there is no such runtime, and
// in a forked child, where its threads no longer exist, new threads are started for each call. No thread outlives the
// call, so a fork cannot break anything.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#ifdef __linux__
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#endif

namespace neuralcde {

// The function of the loaded OpenMP runtime that runs work on several threads, or null. Sanitizers see into our threads
// only.
using Team = void (*)(void (*work)(void*), void* data, unsigned threads, unsigned flags);
inline Team team() {
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    static const pid_t home = getpid();
    static const Team found = reinterpret_cast<Team>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return getpid() == home ? found : nullptr;
#else
    return nullptr;
#endif
}

// Keeps a new thread off its creator's core. Without this, Linux often queues a short-lived thread behind its creator
// for a whole time slice (2 to 3 ms, measured on two cores) while the other core idles.
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

// Runs work(0) .. work(shares - 1) on several threads, including the caller's; rethrows the first exception.
template <class Work>
void parallel(int64_t shares, Work work) {
    std::vector<std::exception_ptr> failures(shares);
    std::atomic<int64_t> next{0};
    auto take = [&] {
        for (int64_t share = next++; share < shares; share = next++) {
            try {
                work(share);
            } catch (...) {
                failures[share] = std::current_exception();
            }
        }
    };
    const Team together = shares > 1 ? team() : nullptr;
    if (together) {
        together([](void* data) { (*static_cast<decltype(take)*>(data))(); }, &take, static_cast<unsigned>(shares), 0);
    } else {
        std::vector<std::thread> helpers;
        helpers.reserve(shares);
        try {
            for (int64_t share = 1; share < shares; ++share) place_elsewhere(helpers.emplace_back(take));
        } catch (const std::system_error&) {
            // No more threads can be started: the existing ones do all the work.
        }
        take();
        for (auto& helper : helpers) helper.join();
    }
    for (auto& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

// Splits a ragged batch into contiguous ranges of series with about equal numbers of rows. With fewer rows than the
// smallest share, a thread costs more than it saves.
template <class Work>
void parallel_over_series(const int64_t* offsets, int64_t series, int threads, Work work,
                          int64_t smallest_share = 4096) {
    const int64_t rows = offsets[series];
    const int64_t most = std::min<int64_t>(std::max(threads, 1), std::max<int64_t>(series, 1));
    const int64_t shares = std::min<int64_t>(most, rows / smallest_share + 1);
    std::vector<int64_t> cuts{0};
    for (int64_t share = 1; share < shares; ++share) {
        const int64_t* cut = std::lower_bound(offsets, offsets + series, rows * share / shares);
        cuts.push_back(std::max<int64_t>(cuts.back(), cut - offsets));
    }
    cuts.push_back(series);
    parallel(shares, [&](int64_t share) { work(cuts[share], cuts[share + 1]); });
}

}  // namespace neuralcde
