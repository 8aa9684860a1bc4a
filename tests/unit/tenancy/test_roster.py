import pytest

from headway.core import Tier
from headway.errors import BadSetting, Forbidden
from headway.tenancy import House, Roster, ServiceClass, add_key, tier_of

WHOLE = """
[defaults]
requests_per_minute = 60
token_burst = 500
tokens_per_minute = 1000

[tenants.acme]
weight = 2
class = "batch"
admin = true
models = ["a", "b"]
requests_per_minute = 6
kv_guaranteed = 0.25
kv_most = 0.5

[tenants.acme.per_class.interactive]
max_concurrent = 1

[tenants.acme.per_model."a"]
max_output_tokens = 10

[tenants.tiny]
"""


def test_a_file_says_everything_about_tenants():
    """Defaults fill in what a tenant leaves out; a rate of its own brings its own burst: one minute's worth."""
    acme, tiny = Roster.parse(WHOLE).tenants.values()
    assert (acme.weight, acme.service_class, acme.is_admin) == (2, ServiceClass.BATCH, True)
    assert (acme.limits.most_requests, acme.limits.most_tokens) == (6, 500)
    assert (tiny.limits.most_requests, tiny.limits.most_tokens, tiny.limits.max_concurrent) == (60, 500, None)
    assert acme.limits_for(ServiceClass.INTERACTIVE, "a").keys() == {"", "class interactive", "model a"}
    assert acme.most_output(ServiceClass.BATCH, "a") == 10
    assert acme.allows("b")
    assert not acme.allows("c")
    assert tiny.allows("c")
    assert (acme.kv.guaranteed, acme.kv.most) == (0.25, 0.5)


KEY = f'sha256 = "{"a" * 64}"'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no tenant"),
        ("[tenants", "not TOML"),
        ('[[tenants]]\nname = "a"', "a table for each, [tenants.NAME]"),
        ("[tenants.a]\nwieght = 2", "unknown key 'wieght'"),
        ("[tenants.a]\nweight = 0", "tenants.a.weight is '0'"),
        ("[tenants.a]\nweight = nan", "tenants.a.weight"),
        ("[tenants.a]\nweight = true", "tenants.a.weight"),
        ('[tenants.a]\nclass = "gold"', "one of interactive, batch"),
        ("[tenants.a]\nmax_concurrent = 0", "whole number"),
        ("[tenants.a]\nrequest_burst = 5", "needs requests_per_minute"),
        ("[tenants.a]\nkv_most = 1.5", "between 0 and 1"),
        ("[tenants.a]\nkv_guaranteed = 0.5\nkv_most = 0.4", "above kv_most"),
        ("[tenants.a]\nkv_guaranteed = 0.6\n[tenants.b]\nkv_guaranteed = 0.6", "adds up to 1.2"),
        ("[tenants.a.per_class.gold]", "no class 'gold'"),
        ("[tenants.a]\nmodels = []", "list of texts"),
        ('[tenants."a b"]', "must have a name"),
        ("[tenants.a]\n[[tenants.a.keys]]\nsha256 = 'abc'", "64 hexadecimal"),
        (f"[[tenants.a.keys]]\n{KEY}\n[[tenants.b.keys]]\n{KEY}", "stands in the file twice"),
        ("[tenants.a]\n[extra]", "unknown key 'extra'"),
    ],
)
def test_a_mistake_is_named_with_its_place(text, words):
    """Nothing is guessed: unknown keys, wrong types, impossible sums and doubles are refused."""
    with pytest.raises(BadSetting, match=words.replace("[", r"\[")):
        Roster.parse(text)


def test_keys_are_appended_and_the_rest_is_left_alone(tmp_path):
    """Comments and order survive; the key is nowhere in the file; it opens the door at once; several may be valid."""
    path = tmp_path / "tenants.toml"
    path.write_text("# ours\n[tenants.acme]  # first\nweight = 2.0")
    keys = dict([add_key(path, "acme"), add_key(path, "acme"), add_key(path, "new.one", "laptop")])
    text = path.read_text()
    assert text.startswith("# ours\n[tenants.acme]  # first\nweight = 2.0\n")
    assert list(keys) == ["acme-1", "acme-2", "laptop"]
    assert not any(key in text for key in keys.values())
    house = House.open(path)
    owners = [house.owner(key.encode()).name for key in keys.values()]
    assert owners == ["acme", "acme", "new.one"]
    assert house.owner(b"hw-nobody") is None
    with pytest.raises(BadSetting, match="twice"):
        add_key(path, "acme", "laptop")
    with pytest.raises(BadSetting, match="letters"):
        add_key(path, "a b")
    assert path.read_text() == text


def test_keys_written_inline_are_not_spoilt(tmp_path):
    """A file that cannot be appended to stays as it was, and the message says what to do."""
    path = tmp_path / "tenants.toml"
    path.write_text(f"[tenants.a]\nkeys = [{{{KEY}}}]\n")
    before = path.read_text()
    with pytest.raises(BadSetting, match=r"\[\[tenants.a.keys\]\]"):
        add_key(path, "a")
    assert path.read_text() == before


def test_tiers():
    """`flex` lowers, `priority` must be granted, everything else means the tenant's own."""
    tenants = Roster.parse('[tenants.a]\n[tenants.b]\nclass = "batch"\n[tenants.c]\npriority_tier = true').tenants
    assert [tier_of(tenants["a"], wanted) for wanted in (None, "auto", "default")] == [Tier.DEFAULT] * 3
    assert tier_of(tenants["a"], "flex") is Tier.FLEX
    assert [tier_of(tenants["b"], wanted) for wanted in (None, "default")] == [Tier.FLEX] * 2
    assert tier_of(tenants["c"], "priority") is Tier.PRIORITY
    with pytest.raises(Forbidden):
        tier_of(tenants["a"], "priority")


def test_reading_again_replaces_all_or_nothing_and_forgets_no_count(tmp_path):
    """A bad file changes nothing; a good one takes over keys and limits while what was used stays used."""
    path = tmp_path / "tenants.toml"
    _, key = add_key(path, "a")
    house = House.open(path)
    good = path.read_text()
    path.write_text("[tenants.a]\nweight = 'x'")
    with pytest.raises(BadSetting):
        house.reload()
    assert house.owner(key.encode()).name == "a"
    path.write_text(good.replace("[tenants.a]", "[tenants.a]\nweight = 5.0", 1))
    house.reload()
    assert house.owner(key.encode()).weight == 5.0
    path.write_text("[tenants.b]")
    house.reload()
    assert house.owner(key.encode()) is None
