"""The example workloads are read and do what their first lines say."""

from pathlib import Path

import pytest

from headway.workload import load_workload

EXAMPLES = Path(__file__).parents[3] / "examples" / "workloads"


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_examples_load(path):
    """Each ends, and its prompts fit a context of 8,192 tokens."""
    workload = load_workload(path)
    items = list(workload.items())
    assert len(items) == workload.num_requests
    assert max(item.num_prompt + item.max_output for item in items) <= 8192


def test_users_wait_for_each_other():
    """Eight users, ten requests each."""
    workload = load_workload(EXAMPLES / "users.json")
    assert workload.is_closed_loop
    assert {item.session for item in workload.items()} == {f"top-{k}" for k in range(8)}
