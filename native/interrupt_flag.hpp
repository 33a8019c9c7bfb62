// Ctrl-C during a solve.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace neuralcde::LEVEL {

// Internal linkage lets the compiler inline functions that are called once. Only engine.cpp includes this file.
namespace {

// Set for all threads once the calling thread is interrupted. The calling thread asks Python at most every 100 ms.
class InterruptFlag {
  public:
    explicit InterruptFlag(const std::function<bool()>& interrupted) : interrupted(interrupted) {}
    bool set() {
        if (stopped.load(std::memory_order_relaxed)) return true;
        if (!interrupted || std::this_thread::get_id() != caller) return false;
        const auto now = std::chrono::steady_clock::now();
        if (now - last < std::chrono::milliseconds(100)) return false;
        last = now;
        if (interrupted()) stopped.store(true);
        return stopped.load();
    }

  private:
    const std::function<bool()>& interrupted;
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<bool> stopped{false};
    std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
};

}  // namespace

}  // namespace neuralcde::LEVEL
