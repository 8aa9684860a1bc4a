import json
from datetime import UTC, datetime

from headway.tenancy import House, Usage, UsageKey, open_store


def test_add_key_prints_the_key_and_nothing_else_on_stdout(headway, tmp_path):
    """`KEY=$(headway tenants add-key FILE NAME)` works; the remark goes to stderr; the key opens the door."""
    path = tmp_path / "tenants.toml"
    status, out, err = headway("tenants", "add-key", str(path), "acme")
    assert status == 0
    assert House.open(path).owner(out.strip().encode()).name == "acme"
    assert out.strip() not in err
    assert path.stat().st_mode & 0o077 == 0
    status, out, _ = headway(
        "tenants", "add-key", str(path), "acme", "--id", "old", "--expires", "2001-01-01", "--json"
    )
    assert House.open(path).owner(json.loads(out)["key"].encode()) is None


def test_list_and_check(headway, tmp_path):
    """Both read the file as the server would; neither shows a hash."""
    path = tmp_path / "tenants.toml"
    headway("tenants", "add-key", str(path), "acme")
    path.write_text(path.read_text().replace("[tenants.acme]", "[tenants.acme]\nrequests_per_minute = 90", 1))
    status, out, _ = headway("tenants", "list", str(path))
    assert status == 0
    assert "90 (burst 90)" in out
    assert "sha256" not in headway("tenants", "list", str(path), "--json")[1]
    status, out, err = headway("tenants", "check", str(path))
    assert (status, "tenants 1, keys 1" in out, "no tenant is an admin" in err) == (0, True, True)
    path.write_text("[tenants.acme]\nweight = -1")
    status, out, err = headway("tenants", "check", str(path))
    assert (status, out) == (2, "")
    assert "tenants.acme.weight" in err


def test_usage(headway, tmp_path):
    """Rows from beside the tenants file, or from a store by its URL; neither or both is bad usage."""
    path, today = tmp_path / "tenants.toml", datetime.now(UTC).date()
    assert headway("usage")[0] == 2
    assert headway("usage", "--tenants", str(path))[0] == 2
    store = open_store(f"sqlite:///{tmp_path / 'tenants.usage.sqlite'}")
    store.add({UsageKey(today, name, "m"): Usage(requests=1234) for name in ("a", "b")})
    assert "1,234" in headway("usage", "--tenants", str(path))[1]
    url = f"sqlite:///{tmp_path / 'tenants.usage.sqlite'}"
    rows = json.loads(headway("usage", "--store", url, "--tenant", "b", "--json")[1])["usage"]
    assert [(row["tenant"], row["requests"], row["day"]) for row in rows] == [("b", 1234, today.isoformat())]
