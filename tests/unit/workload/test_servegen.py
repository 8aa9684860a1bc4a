"""A provider's client mix: rates, laws, lengths, and broken files."""

import json

import numpy as np
import pytest

from headway.errors import BadSetting
from headway.workload import parse_workload

HEAD = "client,t_start_s,rate_rps,cv,pattern,p1,p2\n"
QUANTILES = {"quantile_levels": [0, 1], "clients": {}}


def write(tmp_path, rates, clients):
    (tmp_path / "r.csv").write_text(HEAD + rates)
    (tmp_path / "l.json").write_text(json.dumps({"quantile_levels": [0, 1], "clients": clients}))
    return {"rates": str(tmp_path / "r.csv"), "lengths": str(tmp_path / "l.json")}


def lengths(low, high):
    return {"input_tokens": {"q": [low, high]}, "output_tokens": {"q": [1, 3]}}


def test_each_client_has_its_rate_and_lengths(tmp_path):
    """Gamma and Weibull clients send at shape × scale and scale × Γ(1 + 1/shape); lengths change with the day."""
    rates = "a,0,5,1,Gamma,0.5,0.4\na,600,5,1,Gamma,0.5,0.4\nb,0,2,1,Weibull,1,0.5\n"
    clients = {"a": {"0": lengths(10, 20), "600": lengths(500, 600)}, "b": {"0": lengths(7, 7)}}
    items = list(parse_workload({"servegen": write(tmp_path, rates, clients)}).items())
    early = [item for item in items if item.tenant == "a" and item.at_s < 600]
    late = [item for item in items if item.tenant == "a" and item.at_s >= 600]
    assert len(early) == pytest.approx(3000, rel=0.07)
    assert max(item.num_prompt for item in early) <= 20
    assert min(item.num_prompt for item in late) >= 500
    assert sum(item.tenant == "b" for item in items) == pytest.approx(1200, rel=0.15)
    assert [item.at_s for item in items] == sorted(item.at_s for item in items)


def test_scale_start_and_number_of_clients(tmp_path):
    """The busiest clients alone, slower, from a later moment on."""
    rates = "a,0,10,1,Gamma,1,0.1\na,600,10,1,Gamma,1,0.1\nb,0,2,1,Weibull,1,0.5\n"
    table = write(tmp_path, rates, {"a": {"0": lengths(1, 2)}, "b": {"0": lengths(1, 2)}})
    items = list(parse_workload({"servegen": table | {"clients": 1, "start_s": 300, "rate_scale": 0.5}}).items())
    assert {item.tenant for item in items} == {"a"}
    assert len(items) == pytest.approx(900 * 5, rel=0.1)
    assert 0 <= items[0].at_s < 5


@pytest.mark.parametrize("row", ["a,0,1,1,Pareto,1,1", "a,0,1,1,Gamma,0,1", "a,0,x,1,Gamma,1,1", "a,0"])
def test_a_broken_row_is_named(tmp_path, row):
    """Row number and what it must have."""
    table = write(tmp_path, "a,0,1,1,Gamma,1,1\n" + row + "\n", {"a": {"0": lengths(1, 2)}})
    with pytest.raises(BadSetting, match="row 2: it must have"):
        parse_workload({"servegen": table})


def test_other_files_are_refused(tmp_path):
    """A lengths file of another shape, no common client, and arrivals beside it."""
    table = write(tmp_path, "a,0,1,1,Gamma,1,1\n", {"b": {"0": lengths(1, 2)}})
    with pytest.raises(BadSetting, match="no client in common"):
        parse_workload({"servegen": table})
    (tmp_path / "l.json").write_text("[]")
    with pytest.raises(BadSetting, match="no file of ServeGen"):
        parse_workload({"servegen": table})
    table = write(tmp_path, "a,0,1,1,Gamma,1,1\n", {"a": {"0": lengths(1, 2)}})
    with pytest.raises(BadSetting, match="brings its own arrivals"):
        parse_workload({"servegen": table, "arrivals": "poisson:rate=1"})


def test_a_published_mix(shared_data):
    """The mid-size model's clients, a hundredth of their load: bursty, with the clients' own lengths."""
    table = {
        "rates": str(shared_data / "traces" / "servegen_m-mid_rates_day2.csv"),
        "lengths": str(shared_data / "traces" / "servegen_m-mid_lengths_day2.json"),
        "rate_scale": 0.01,
    }
    items = list(parse_workload({"servegen": table, "num_requests": 2000}).items())
    gaps = np.diff([item.at_s for item in items])
    assert len({item.tenant for item in items}) > 5
    assert gaps.std() / gaps.mean() > 1
