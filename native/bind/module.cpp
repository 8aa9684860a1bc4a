// The Python face of the native code: checks shapes, releases the GIL, calls.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bind/arrays.h"
#include "kernels/registry.h"
#include "model/limits.h"
#include "model/model.h"

namespace headway {
namespace {

WeightFormat weight_format(const std::string& name) {
    if (name == "int8") return WeightFormat::kInt8;
    if (name == "float32") return WeightFormat::kFloat32;
    throw std::invalid_argument("unknown weight format '" + name + "'; known: int8, float32");
}

KvDtype kv_dtype(const std::string& name) {
    if (name == "float32") return KvDtype::kFloat32;
    if (name == "float16") return KvDtype::kFloat16;
    if (name == "int8") return KvDtype::kInt8;
    throw std::invalid_argument("unknown kv dtype '" + name + "'; known: float16, int8, float32");
}

void set_matrix(Model& model, const std::string& name, int layer, Floats2 values) {
    const int rows = extent(values, 0), columns = extent(values, 1);
    nb::gil_scoped_release release;
    model.set_tensor(name, layer, values.data(), rows, columns);
}

void set_vector(Model& model, const std::string& name, int layer, Floats1 values) {
    model.set_tensor(name, layer, values.data(), 1, extent(values, 0));
}

void check_outputs(const Model& model, const OutFloats2& logits, const OutInts1& best) {
    require(extent(logits, 1) == model.config().vocab_size, "logits must have vocab_size columns");
    require(logits.shape(0) == best.shape(0), "logits and best must have as many rows");
}

void run(Model& model, const KvCache& cache, Ints1 token_ids, Ints1 cu_seqlens, Ints1 contexts, Ints2 block_tables,
         Ints1 needed_rows, OutFloats2 logits, OutInts1 best, std::optional<OutDoubles1> stage_seconds) {
    check_outputs(model, logits, best);
    if (stage_seconds) require(stage_seconds->shape(0) == kNumStages, "stage_seconds must have one place per stage");
    require(cu_seqlens.shape(0) == contexts.shape(0) + 1, "cu_seqlens must have one entry more than contexts");
    require(block_tables.shape(0) == contexts.shape(0), "block_tables must have one row per lane");
    const BatchArrays batch{
        .token_ids = token_ids.data(),
        .num_rows = extent(token_ids, 0),
        .cu_seqlens = cu_seqlens.data(),
        .contexts = contexts.data(),
        .num_lanes = extent(contexts, 0),
        .block_tables = block_tables.data(),
        .table_width = extent(block_tables, 1),
        .needed_rows = needed_rows.data(),
        .num_needed = extent(needed_rows, 0),
    };
    const int num_logits = extent(logits, 0);
    double* seconds = stage_seconds ? stage_seconds->data() : nullptr;
    nb::gil_scoped_release release;
    model.run(batch, cache, num_logits, logits.data(), best.data(), seconds);
}

void more_logits(Model& model, int first, OutFloats2 logits, OutInts1 best) {
    check_outputs(model, logits, best);
    const int num_rows = extent(logits, 0);
    nb::gil_scoped_release release;
    model.logits(first, num_rows, logits.data(), best.data());
}

std::unique_ptr<KvCache> new_cache(const Model& model, const std::string& dtype, int block_size, int num_blocks,
                                   int num_host_blocks) {
    return std::make_unique<KvCache>(model.config(), kv_dtype(dtype), block_size, num_blocks, num_host_blocks);
}

std::size_t block_bytes(const ModelConfig& config, const std::string& dtype, int block_size) {
    return KvCache(config, kv_dtype(dtype), block_size, 1, 0).block_bytes();
}

void bind_config(nb::module_& m) {
    nb::enum_<RopePairs>(m, "RopePairs")
        .value("HALF_SPLIT", RopePairs::kHalfSplit)
        .value("INTERLEAVED", RopePairs::kInterleaved);
    nb::class_<ModelConfig>(m, "ModelConfig")
        .def(nb::init<>())
        .def_rw("vocab_size", &ModelConfig::vocab_size)
        .def_rw("hidden_size", &ModelConfig::hidden_size)
        .def_rw("ffn_size", &ModelConfig::ffn_size)
        .def_rw("num_layers", &ModelConfig::num_layers)
        .def_rw("num_heads", &ModelConfig::num_heads)
        .def_rw("num_kv_heads", &ModelConfig::num_kv_heads)
        .def_rw("head_dim", &ModelConfig::head_dim)
        .def_rw("norm_eps", &ModelConfig::norm_eps)
        .def_rw("rope_frequencies", &ModelConfig::rope_frequencies)
        .def_rw("rope_pairs", &ModelConfig::rope_pairs)
        .def_rw("tied_embeddings", &ModelConfig::tied_embeddings)
        .def_rw("qkv_bias", &ModelConfig::qkv_bias)
        .def_rw("qk_norm", &ModelConfig::qk_norm);
}

void bind_model(nb::module_& m) {
    nb::class_<KvCache>(m, "KvCache")
        .def_prop_ro("block_bytes", &KvCache::block_bytes)
        .def("copy", &KvCache::copy, nb::arg("from_to"), nb::call_guard<nb::gil_scoped_release>())
        .def("swap_out", &KvCache::swap_out, nb::arg("device_host"), nb::call_guard<nb::gil_scoped_release>())
        .def("swap_in", &KvCache::swap_in, nb::arg("host_device"), nb::call_guard<nb::gil_scoped_release>())
        .def("poison", &KvCache::poison, nb::arg("block_ids"));
    nb::class_<Model>(m, "Model")
        .def(
            "__init__",
            [](Model* self, const ModelConfig& config, const std::string& weights, const std::string& kernel_set,
               int num_threads) { new (self) Model(config, weight_format(weights), kernel_set, num_threads); },
            nb::arg("config"), nb::kw_only(), nb::arg("weights"), nb::arg("kernel_set"), nb::arg("num_threads"))
        .def_prop_ro("kernel_set", [](const Model& model) { return model.kernel_set().name; })
        .def_prop_ro("num_threads", &Model::num_threads)
        .def_prop_ro("weight_bytes", &Model::weight_bytes)
        .def("set_tensor", set_matrix, nb::arg("name"), nb::arg("layer"), nb::arg("values").noconvert())
        .def("set_tensor", set_vector, nb::arg("name"), nb::arg("layer"), nb::arg("values").noconvert())
        .def("finish", &Model::finish)
        .def("new_cache", new_cache, nb::kw_only(), nb::arg("dtype"), nb::arg("block_size"), nb::arg("num_blocks"),
             nb::arg("num_host_blocks") = 0)
        .def("run", run, nb::arg("cache"), nb::kw_only(), nb::arg("token_ids").noconvert(),
             nb::arg("cu_seqlens").noconvert(), nb::arg("contexts").noconvert(), nb::arg("block_tables").noconvert(),
             nb::arg("needed_rows").noconvert(), nb::arg("logits").noconvert(), nb::arg("best").noconvert(),
             nb::arg("stage_seconds").noconvert() = nb::none())
        .def("logits", more_logits, nb::arg("first"), nb::arg("logits").noconvert(), nb::arg("best").noconvert());
}

}  // namespace
}  // namespace headway

NB_MODULE(_native, m) {
    using namespace headway;
    m.doc() = "Headway's compiled executor. Use headway.kernels.native, which documents it.";
    m.def("built_kernel_sets", built_kernel_sets);
    m.def("runnable_kernel_sets", runnable_kernel_sets);
    m.def("stage_names", [] { return std::vector<std::string>(kStageNames, kStageNames + kNumStages); });
    m.def("product_peak", product_peak, nb::arg("kernel_set"), nb::arg("quantized"), nb::arg("num_threads"),
          nb::call_guard<nb::gil_scoped_release>());
    m.def("read_peak", read_peak, nb::arg("num_threads"), nb::call_guard<nb::gil_scoped_release>());
    m.def("block_bytes", block_bytes, nb::arg("config"), nb::arg("dtype"), nb::arg("block_size"));
    bind_config(m);
    bind_model(m);
    bind_ops(m);
}
