// Right values: every kernel set, weight format and cache dtype against the textbook.
#include <algorithm>
#include <cmath>

#include "check.h"
#include "plain_model.h"

namespace headway::test {
namespace {

constexpr int kTokens = 83;
constexpr double kExact = 1e-4, kRounded = 0.08;  // of the largest logit

double relative_error(const std::vector<float>& found, const std::vector<double>& exact) {
    double most = 0.0, top = 0.0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
        most = std::max(most, std::fabs(static_cast<double>(found[i]) - exact[i]));
        top = std::max(top, std::fabs(exact[i]));
        if (std::isnan(found[i])) return NAN;
    }
    return most / top;
}

void check_model(const TinyModel& tiny, const std::string& set, WeightFormat format,
                 const std::vector<double>& exact) {
    Model model(tiny.config, format, set, 2);
    fill(model, tiny);
    for (KvDtype dtype : {KvDtype::kFloat32, KvDtype::kFloat16, KvDtype::kInt8}) {
        KvCache cache(tiny.config, dtype, 16, 9, 0);
        cache.poison({0, 1, 2, 3, 4, 5, 6, 7, 8});
        const double error = relative_error(run_lanes(model, cache, {{0, kTokens, {8, 0, 3, 7, 2, 5}}}), exact);
        const bool exactly = format == WeightFormat::kFloat32 && dtype == KvDtype::kFloat32;
        // A vocabulary of one token and one feature is all rounding.
        const double allowed = exactly ? kExact : tiny.config.hidden_size == 1 ? 0.2 : kRounded;
        if (error < allowed) continue;
        std::fprintf(stderr, "error %g of hidden_size %d, weights %d, cache %d:\n", error, tiny.config.hidden_size,
                     static_cast<int>(format), static_cast<int>(dtype));
        expect(false, "logits are those of the textbook", set.c_str());
    }
}

}  // namespace

void check_values() {
    for (const TinyModel& tiny : tiny_models()) {
        const std::vector<double> exact = plain_logits(tiny, kTokens);
        for (const std::string& set : runnable_kernel_sets()) {
            check_model(tiny, set, WeightFormat::kFloat32, exact);
            check_model(tiny, set, WeightFormat::kInt8, exact);
        }
    }
}

}  // namespace headway::test
