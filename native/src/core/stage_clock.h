// Where the time of a step goes.
#pragma once

#include <chrono>

namespace headway {

enum class Stage {
    kEmbed,   // token rows and rotary angles
    kNorm,    // norms, and quantisation of the rows behind them
    kQkv,     // matrices from here on carry their names
    kAppend,  // rotation, and keys and values into the cache
    kAttend,
    kOutput,
    kGateUp,
    kGate,  // silu, Hadamard transform, quantisation
    kDown,
    kHead,
    kArgmax,
    kWait,  // for other threads, where rows are split among them; else a stage's time ends with its last thread
};
constexpr int kNumStages = 12;
constexpr const char* kStageNames[kNumStages] = {"embed",  "norm",    "qkv",  "append", "attend", "output",
                                                 "gate_up", "gate",    "down", "head",   "argmax", "wait"};

/// Adds the time since the last mark to a stage. Made with null it measures nothing and asks no clock.
class StageClock {
public:
    explicit StageClock(double* seconds) : seconds_(seconds) {
        if (seconds_ != nullptr) last_ = Clock::now();
    }

    void mark(Stage stage) {
        if (seconds_ == nullptr) return;
        const Clock::time_point now = Clock::now();
        seconds_[static_cast<int>(stage)] += std::chrono::duration<double>(now - last_).count();
        last_ = now;
    }

private:
    using Clock = std::chrono::steady_clock;
    double* seconds_;
    Clock::time_point last_;
};

}  // namespace headway
