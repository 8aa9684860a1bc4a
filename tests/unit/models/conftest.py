"""What the tests of `models` share: the tiny model on disk, the real one, and its reference tokenizer."""

import pytest
import tokenizers

from headway.errors import BadModelFile
from headway.models import ChatTemplate, GgufFile, Tokenizer, resolve_model
from tests.conftest import skip_or_fail
from tests.support.tiny_model import tiny_tokenizer_spec, write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_bytes(tmp_path_factory):
    """The tiny model's GGUF file as bytes: damage a copy of them."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_gguf(path)
    return path.read_bytes()


@pytest.fixture(scope="session")
def tiny_tokenizer():
    return Tokenizer(tiny_tokenizer_spec())


@pytest.fixture(scope="session")
def real_file():
    """The default model, opened; fetched first where it is not cached yet."""
    try:
        path = resolve_model(progress=lambda *_: None)
    except BadModelFile as error:
        skip_or_fail(str(error))
    return GgufFile.open(path)


@pytest.fixture(scope="session")
def real_tokenizer(real_file):
    return Tokenizer(real_file.tokenizer_spec)


@pytest.fixture(scope="session")
def real_template(real_file, real_tokenizer):
    return ChatTemplate(real_file.chat_template, bos_text=real_tokenizer.bos_text, eos_text=real_tokenizer.eos_text)


@pytest.fixture(scope="session")
def reference_tokenizer(shared_data):
    """The model maker's own tokenizer file, read by the library alone."""
    return tokenizers.Tokenizer.from_file(str(shared_data / "tokenizer_smollm2" / "tokenizer.json"))
