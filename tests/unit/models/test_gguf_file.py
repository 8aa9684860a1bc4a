import contextlib
import struct

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import BadModelFile
from headway.models import GgufFile, random_weights
from headway.models.gguf_file import READABLE, dequantise
from tests.support.tiny_model import named_tensors, tiny_config, tiny_tokenizer_spec, write_metadata, write_tiny_gguf


def open_tiny(tmp_path, **options):
    path = tmp_path / "model.gguf"
    write_tiny_gguf(path, **options)
    return GgufFile.open(path)


def refusal(path):
    """The one line with which a file is refused."""
    with pytest.raises(BadModelFile) as caught:
        GgufFile.open(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    assert path.name in message
    return message


def refusal_of_bytes(tmp_path, data):
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return refusal(path)


def refusal_with(tmp_path, **options):
    path = tmp_path / "model.gguf"
    write_tiny_gguf(path, **options)
    return refusal(path)


def test_config_and_tokenizer_come_back_as_written(tmp_path):
    """What the metadata says is what `config` and `tokenizer_spec` hold."""
    file = open_tiny(tmp_path)
    config, written = file.config, tiny_config()
    for field in (
        "name",
        "num_layers",
        "hidden_size",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "ffn_size",
        "vocab_size",
    ):
        assert getattr(config, field) == getattr(written, field), field
    assert config.tied_embeddings
    assert config.quantisation == "F32"
    assert config.norm_eps == pytest.approx(written.norm_eps)
    assert file.tokenizer_spec == tiny_tokenizer_spec()


@pytest.mark.parametrize("tied", [True, False])
def test_float32_tensors_come_back_bit_for_bit(tmp_path, tied):
    """A float32 file loses nothing."""
    path = tmp_path / "model.gguf"
    weights = write_tiny_gguf(path, config=tiny_config(tied_embeddings=tied))
    file = GgufFile.open(path)
    assert file.config.tied_embeddings is tied
    for name, array in named_tensors(weights).items():
        np.testing.assert_array_equal(file.tensor(name), array)


@pytest.mark.parametrize(
    ("kind", "error"),
    [("F16", 1e-3), ("BF16", 8e-3), ("Q8_0", 1e-2), ("Q5_1", 5e-2), ("Q5_0", 6.3e-2), ("Q4_1", 0.1), ("Q4_0", 0.126)],
)
def test_stored_types_come_back_within_their_step(tmp_path, kind, error):
    """Each type returns what was written, but for its own rounding (relative to a row's largest weight)."""
    path = tmp_path / "model.gguf"
    weights = write_tiny_gguf(path, kind=kind)
    file = GgufFile.open(path)
    assert file.config.quantisation.startswith(kind)
    for name, array in named_tensors(weights).items():
        largest = np.abs(array).max(axis=-1, keepdims=True)
        assert np.abs((file.tensor(name) - array) / largest).max() < error, name


@pytest.mark.parametrize("kind", [kind for kind in READABLE if kind != "F32"])
def test_dequantise_equals_the_librarys_numbers(kind):
    """Every readable type gives exactly the values that the `gguf` library gives, at every number of blocks."""
    kind = gguf.GGMLQuantizationType[kind]
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(3)
    for num_blocks in (1, 16, 8_191, 8_193):
        # Bytes below 0x40 keep every scale a small number, whatever its place in the block.
        raw = rng.integers(0, 0x40, (1, num_blocks * block_bytes), np.uint8)
        expected = gguf.quants.dequantize(raw, kind)
        np.testing.assert_array_equal(dequantise(raw, kind), expected.reshape(-1))
        assert expected.size == num_blocks * per_block


def q4_k_by_hand(block):
    """One Q4_K block, value by value: 8 groups of 32, each w = d * scale * q - dmin * least, both of 6 bits."""
    d, dmin = (float(x) for x in np.frombuffer(block[:4], "<f2"))
    packed, quants = block[4:16], block[16:]
    values = []
    for group in range(8):
        if group < 4:
            scale, least = packed[group] & 63, packed[group + 4] & 63
        else:
            scale = packed[group + 4] & 15 | packed[group - 4] >> 6 << 4
            least = packed[group + 4] >> 4 | packed[group] >> 6 << 4
        pairs = quants[group // 2 * 32 : group // 2 * 32 + 32]
        nibbles = [byte >> 4 if group % 2 else byte & 15 for byte in pairs]
        values += [d * scale * q - dmin * least for q in nibbles]
    return values


def q6_k_by_hand(block):
    """One Q6_K block, value by value: 16 groups of 16, w = d * scale * (q - 32), four bits and two bits kept apart."""
    low, high, scales = block[:128], block[128:192], np.frombuffer(block[192:208], np.int8)
    d = float(np.frombuffer(block[208:210], "<f2")[0])
    values = []
    for index in range(256):
        half, place = divmod(index, 128)
        quarter, column = divmod(place, 32)
        nibble = low[half * 64 + (quarter % 2) * 32 + column] >> (4 if quarter >= 2 else 0) & 15
        q = nibble | (high[half * 32 + column] >> 2 * quarter & 3) << 4
        values.append(d * int(scales[index // 16]) * (q - 32))
    return values


def q5_k_by_hand(block):
    """One Q5_K block: as Q4_K, with a fifth bit for each value in 32 bytes of their own."""
    four = np.array(q4_k_by_hand(block[:16] + block[48:]))
    d = float(np.frombuffer(block[:2], "<f2")[0])
    packed, fifth = block[4:16], block[16:48]
    for index in range(256):
        group = index // 32
        scale = packed[group] & 63 if group < 4 else packed[group + 4] & 15 | packed[group - 4] >> 6 << 4
        four[index] += d * scale * 16 * (fifth[index % 32] >> group & 1)
    return four


@pytest.mark.parametrize(
    ("kind", "by_hand", "scale_at"),
    [("Q4_K", q4_k_by_hand, (0, 2)), ("Q5_K", q5_k_by_hand, (0, 2)), ("Q6_K", q6_k_by_hand, (208,))],
)
def test_super_blocks_mean_what_the_format_says(kind, by_hand, scale_at):
    """The K types, for which the library has no writer, agree with the format worked out value by value."""
    kind = gguf.GGMLQuantizationType[kind]
    rng = np.random.default_rng(5)
    for _ in range(20):
        block = bytearray(rng.integers(0, 256, gguf.GGML_QUANT_SIZES[kind][1], np.uint8).tobytes())
        for at in scale_at:
            block[at : at + 2] = np.float16(rng.uniform(-0.1, 0.1)).tobytes()
        np.testing.assert_allclose(
            dequantise(np.frombuffer(bytes(block), np.uint8), kind), by_hand(bytes(block)), rtol=1e-5, atol=1e-5
        )


def test_raw_is_a_view_and_tensor_is_a_copy(tmp_path):
    """`raw` copies nothing and cannot be written; what `tensor` returns belongs to the caller."""
    file = open_tiny(tmp_path, kind="Q4_1")
    raw = file.raw("blk.0.attn_q.weight")
    assert raw.shape == (64, 64 // 32 * 20)
    assert not raw.flags.writeable
    assert not raw.flags.owndata
    assert file.tensor("blk.0.attn_q.weight").flags.writeable


def test_opening_reads_the_header_as_the_library_does(tmp_path):
    """Tensor places, shapes and metadata are those that the library's own reader finds."""
    file = open_tiny(tmp_path, kind="Q8_0")
    theirs = gguf.GGUFReader(file.path)
    assert list(file.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        info = file.tensors[tensor.name]
        assert (info.offset, info.num_bytes, info.kind) == (tensor.data_offset, tensor.n_bytes, tensor.tensor_type)
        assert list(reversed(info.shape)) == list(tensor.shape)


class TestRefusals:
    """A file that cannot be used is refused when it is opened, in one line that says what and where."""

    def test_no_file(self, tmp_path):
        """A path without a file."""
        assert "No such file" in refusal(tmp_path / "absent.gguf")

    def test_a_folder(self, tmp_path):
        """A folder is not a file."""
        assert "directory" in refusal(tmp_path)

    def test_an_empty_file(self, tmp_path):
        """A download that never began."""
        assert "empty" in refusal_of_bytes(tmp_path, b"")

    @pytest.mark.parametrize("data", [b"<!DOCTYPE html>", b"\x80\x02", b"GGU", b"PK\x03\x04" * 100, b"FUGG" * 9])
    def test_another_kind_of_file(self, tmp_path, data):
        """A page of HTML, a pickle, a zip."""
        assert "not a GGUF file" in refusal_of_bytes(tmp_path, data)

    @pytest.mark.parametrize(("version", "what"), [(1, "version 1"), (9, "version 9"), (3 << 24, "big-endian")])
    def test_another_version(self, tmp_path, tiny_bytes, version, what):
        """Versions this reader does not know, and files of the other byte order."""
        assert what in refusal_of_bytes(tmp_path, tiny_bytes[:4] + struct.pack("<I", version) + tiny_bytes[8:])

    def test_a_cut_file_names_the_first_tensor_beyond_its_end(self, tmp_path, tiny_bytes):
        """The commonest damage: a download that stopped in the weights."""
        message = refusal_of_bytes(tmp_path, tiny_bytes[:-10_000])
        assert "cut short" in message
        assert "blk." in message

    def test_counts_beyond_the_file(self, tmp_path, tiny_bytes):
        """A huge count is refused before anything is allocated for it."""
        for at in (8, 16):
            data = tiny_bytes[:at] + struct.pack("<Q", 1 << 62) + tiny_bytes[at + 8 :]
            assert "cannot fit" in refusal_of_bytes(tmp_path, data)

    def test_architecture(self, tmp_path):
        """A model of a kind that is not written yet."""
        message = refusal_with(tmp_path, config=tiny_config(architecture="mamba"))
        assert "'mamba' is not supported; supported: llama, mistral, qwen2, qwen3" in message

    @pytest.mark.parametrize(
        "key",
        [
            "llama.block_count",
            "llama.context_length",
            "llama.embedding_length",
            "llama.attention.head_count",
            "llama.attention.layer_norm_rms_epsilon",
            "tokenizer.ggml.tokens",
            "tokenizer.ggml.merges",
        ],
    )
    def test_a_missing_key_is_named(self, tmp_path, key):
        """Metadata without which the model cannot be understood."""
        assert key in refusal_with(tmp_path, metadata={key: None})

    @pytest.mark.parametrize(
        ("key", "value", "what"),
        [
            ("llama.block_count", "two", "'two'"),
            ("llama.block_count", 3, "'blk.2.attn_norm.weight' is missing"),
            ("llama.block_count", 1, "'blk.1."),
            ("llama.embedding_length", 128, "has shape"),
            ("llama.attention.head_count", 0, "num_heads is 0"),
            ("llama.rope.dimension_count", 8, "rope.dimension_count is 8"),
            ("llama.rope.scaling.type", "yarn", "'yarn'"),
            ("llama.expert_count", 8, "experts"),
            ("llama.rope.freq_base", 5, "not a real number"),
            ("split.count", 4, "one part of 4"),
            ("split.count", "all", "'all', not a whole number"),
            ("split.tensors.count", ["x"] * 300, "not a whole number"),
            ("general.alignment", 33, "alignment"),
            ("general.alignment", [1] * 300, "alignment"),
            ("tokenizer.ggml.model", "t5", "'t5' is not supported"),
            ("tokenizer.ggml.eos_token_id", 99_999, "99999"),
            ("tokenizer.ggml.tokens", ["a"] * len(tiny_tokenizer_spec().tokens), "twice"),
            ("tokenizer.ggml.tokens", ["a", "b"], "token_type"),
            ("tokenizer.ggml.token_type", [1, 2], "token_type"),
            ("tokenizer.chat_template", 3, "not text"),
        ],
    )
    def test_a_wrong_value_is_shown(self, tmp_path, key, value, what):
        """Values that contradict the tensors, or ask for what is not supported."""
        path = tmp_path / "model.gguf"
        write_tiny_gguf(path, metadata={key: value})
        assert what in refusal(path)

    @pytest.mark.parametrize("name", ["output_norm.weight", "blk.1.ffn_down.weight", "token_embd.weight"])
    def test_a_missing_tensor_is_named(self, tmp_path, tiny_bytes, name):
        """A tensor under another name is missing under its own."""
        assert name in refusal_of_bytes(tmp_path, tiny_bytes.replace(name.encode(), b"x" * len(name)))

    def test_a_tensor_that_would_be_ignored(self, tmp_path, tiny_bytes):
        """A bias, say: leaving it out would give wrong answers without a word."""
        data = tiny_bytes.replace(b"blk.1.attn_q.weight", b"blk.1.attn_q.biasXX")
        assert "blk.1.attn_q" in refusal_of_bytes(tmp_path, data)

    def test_an_unsupported_type(self, tmp_path, tiny_bytes):
        """Both a type that does not exist and one that is not read are refused by name or number."""
        at = tiny_bytes.index(b"output_norm.weight") + len(b"output_norm.weight") + 4 + 8
        for kind, what in ((999, "unknown type 999"), (26, "I32")):
            data = tiny_bytes[:at] + struct.pack("<I", kind) + tiny_bytes[at + 4 :]
            assert what in refusal_of_bytes(tmp_path, data)


@given(keep=st.floats(0, 1, exclude_max=True))
def test_every_truncation_is_refused(tmp_path_factory, tiny_bytes, keep):
    """Cut at any byte, a file is refused as such, never opened and never crashed on."""
    path = tmp_path_factory.getbasetemp() / "cut.gguf"
    path.write_bytes(tiny_bytes[: int(keep * (len(tiny_bytes) - 32))])
    refusal(path)


@given(damage=st.lists(st.tuples(st.integers(0, 6_100), st.integers(0, 255)), min_size=1, max_size=8))
def test_damaged_headers_open_or_are_refused(tmp_path_factory, tiny_bytes, damage):
    """Bytes changed anywhere in the header lead to a model that opens or to one refusal, and to nothing else."""
    data = bytearray(tiny_bytes)
    for at, byte in damage:
        data[at] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(data)
    with contextlib.suppress(BadModelFile):
        file = GgufFile.open(path)
        for name in file.tensors:
            file.tensor(name)


@pytest.mark.model
def test_the_default_model_is_the_one_we_describe(real_file):
    """The shape of SmolLM2-135M-Instruct, and types by their share of bytes."""
    config = real_file.config
    assert (config.num_layers, config.hidden_size, config.num_heads, config.num_kv_heads) == (30, 576, 9, 3)
    assert (config.head_dim, config.ffn_size, config.vocab_size, config.context_length) == (64, 1536, 49_152, 8192)
    assert config.rope_base == 100_000
    assert config.tied_embeddings
    assert config.quantisation == "Q4_1, Q8_0, F32"
    assert config.num_params == 134_515_008


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K"])
def test_whole_files_of_super_blocks_load(tmp_path, kind):
    """Matrices of the K types through a file, row by row as the library reads them; norms beside them as float32."""
    config = tiny_config(hidden_size=256, head_dim=64, ffn_size=256)
    stored = gguf.GGMLQuantizationType[kind]
    rng = np.random.default_rng(2)
    raw, writer = {}, gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    write_metadata(writer, config)
    for name, array in named_tensors(random_weights(config, 0)).items():
        if array.ndim == 1:
            writer.add_tensor(name, array)
            continue
        # Bytes below 0x40 keep every scale a small number, whatever its place in the block.
        raw[name] = rng.integers(0, 0x40, gguf.quants.quant_shape_to_byte_shape(array.shape, stored), np.uint8)
        writer.add_tensor(name, raw[name], raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile.open(tmp_path / "model.gguf")
    assert file.config.quantisation == f"{kind}, F32"
    for name, blocks in raw.items():
        np.testing.assert_array_equal(file.tensor(name), gguf.quants.dequantize(blocks, stored))
