from prometheus_client import CollectorRegistry, generate_latest

from headway.obs.tenants import MAX_TENANTS, TenantFigures
from headway.tenancy import Usage


def test_labels_are_bounded_and_sums_are_kept():
    """Three hundred tenants make a hundred labels and `_other`; names that had one keep it."""
    used = {f"t{n}": Usage(requests=1) for n in range(300)}
    figures = TenantFigures(lambda: used, dict)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(figures)

    def ended():
        page = generate_latest(registry).decode()
        lines = [line for line in page.splitlines() if line.startswith('headway:tenant_requests_total{outcome="ended"')]
        return {line.split('tenant="')[1].partition('"')[0]: float(line.split()[-1]) for line in lines}

    first = ended()
    assert len(first) == MAX_TENANTS + 1
    assert first["_other"] == 300 - MAX_TENANTS
    used["a new one"] = Usage(requests=5)
    assert ended()["_other"] == 300 - MAX_TENANTS + 5
    assert ended()["t0"] == 1
