"""Pages, tables and pictures: whole, escaped, and nothing outside the frame."""

import re
import xml.dom.minidom
from html.parser import HTMLParser

import numpy as np
import pytest

from headway.errors import BadSetting
from headway.report import (
    Chart,
    Grid,
    Limit,
    Mark,
    Outcome,
    Series,
    StepSample,
    cdf,
    result_json,
    run_markdown,
    run_page,
    run_text,
    save_chart,
)
from headway.report.chart import thinned
from headway.report.grid import show
from headway.report.svg import draw, draw_file
from headway.report.ticks import linear_ticks, log_ticks, tick_label
from tests.unit.report.runs import TIGHT, refused, request, run_of

VOID = {"meta", "i", "path", "rect"}


class Balanced(HTMLParser):
    """Every tag that opens closes."""

    def __init__(self):
        super().__init__()
        self.open, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def run():
    requests = [
        request(k / 10, slo=TIGHT, tenant=f"<b>t{k % 3}", num_prompt=50 + 3000 * (k % 2), ttft_s=0.05 + k / 500)
        for k in range(80)
    ]
    steps = [
        StepSample(start_s=k / 10, duration_s=0.02, num_prefill=k % 7 * 100, num_decode=k, num_running=k, kv_use=k / 90)
        for k in range(80)
    ]
    return run_of([*requests, refused(7.0, tenant="<b>t1")], label="A & B <script>", steps=steps, warmup_s=1.0)


def test_the_page_stands_alone(run):
    """It is well-formed, escapes what it shows, fetches nothing, and works in light and dark."""
    page = run_page(run)
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert parser.links == []
    assert "<script" not in page
    assert "A &amp; B &lt;script&gt;" in page
    assert "prefers-color-scheme:dark" in page.replace(" ", "")
    titles = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert {
        "Output tokens over time",
        "Distribution of TTFT",
        "Service of each tenant",
        "Composition of batches",
    } <= set(titles)
    assert "nan" not in re.sub("[a-z]nan|nan[a-z]", "", page.lower())


def test_an_empty_run_has_a_page():
    """A run in which nothing happened still makes a report that says so."""
    page = run_page(run_of([]))
    assert "no request falls into the measured window" in page
    assert "Outcomes" in run_text(run_of([]))


def test_text_and_markdown(run):
    """The same tables for a terminal and for a document, warnings first, sample sizes beside."""
    text, markdown = run_text(run), run_markdown(run)
    assert re.search(r"TTFT +70 ", text)
    assert "steady state" in text
    assert markdown.startswith("## A & B")
    assert "| TTFT |" in markdown


def test_a_report_says_why_requests_were_refused_or_failed():
    """In the server's words, what differs in numbers alone once, the most frequent first; nothing moves a cursor."""
    bad = [refused(k / 10, status=400, reason=f"{k} tokens,\nat most 8 fit") for k in range(3)]
    odd = [request(k, outcome=Outcome.FAILED, reason=name) for k, name in enumerate("\x1b[2JB|" + "cdefghi")]
    run = run_of([*bad, *odd, request(1.0, outcome=Outcome.CANCELLED, reason="left"), *[request(2.0)] * 9])
    text, page, found = run_text(run), run_page(run), result_json(run)["headway"]["reasons"]
    assert re.search(r"^0 tokens, at most 8 fit +refused +400 +3$", text, re.MULTILINE)
    assert "0 tokens, at most 8 fit" in page
    assert "\x1b" not in text
    assert "left" not in "".join(line for line in text.splitlines() if "failed" in line)
    assert re.search(r"^\d more reasons", text, re.MULTILINE)
    assert found[0] == {"outcome": "refused", "status": 400, "words": "0 tokens, at most 8 fit", "num_requests": 3}
    assert sum(one["num_requests"] for one in found) == len(bad) + len(odd)
    assert "Why requests" not in run_text(run_of([request()]))


@pytest.mark.parametrize("mark", list(Mark))
@pytest.mark.parametrize("logs", [(False, False), (True, False), (True, True)])
def test_pictures_stay_in_their_frame(mark, logs):
    """Every coordinate of every mark lies inside the picture, and the file is XML."""
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.lognormal(0, 3, 3000)), rng.lognormal(0, 3, 3000)
    series = [Series(name=f"<{k}>", x=x, y=y * (k + 1), mark=mark) for k in range(2)]
    chart = Chart(title="t", x_label="x", y_label="y", series=series, x_log=logs[0], y_log=logs[1], shaded=[(0, 1)])
    document = draw_file(chart)
    xml.dom.minidom.parseString(document)
    for path in re.findall(r' d="([^"]*)"', document):
        for a, b in re.findall(r"[ML]?(-?[\d.]+) (-?[\d.]+)", path):
            assert 0 <= float(a) <= 640
            assert -24 <= float(b) <= 300


def test_one_point_nothing_and_limits():
    """A single point, an empty series and a limit above all values are drawn without fuss."""
    base = {"title": "t", "x_label": "x", "y_label": "y"}
    one = Chart(
        **base, series=[Series(name="a", x=[1], y=[0])], limits=[Limit(name="SLO", y=9), Limit(name="now", x=3)]
    )
    assert "SLO" in draw(one)
    assert "Nothing to draw" in draw(Chart(**base, series=[Series(name="a", x=[], y=[])]))


def test_thinning_keeps_the_extremes():
    """A spike among a hundred thousand points stays."""
    y = np.zeros(100_000)
    y[77_777] = 5
    kept = thinned(Series(name="", x=np.arange(100_000), y=y))
    assert max(kept.y) == 5
    assert len(kept.x) <= 802


def test_cdf_is_exact_at_its_points():
    """Half of the values are at most the median."""
    series = cdf("", [4, 1, 3, 2])
    assert (list(series.x), list(series.y)) == ([1, 2, 3, 4], [25, 50, 75, 100])
    assert list(cdf("", np.arange(10_000)).y)[-1] == 100


def test_ticks_are_round():
    """Steps of 1, 2 or 5; powers of ten on a logarithm."""
    assert linear_ticks(0, 10, 5) == [0, 2, 4, 6, 8, 10]
    assert linear_ticks(0, 0.034, 6) == pytest.approx([0, 0.01, 0.02, 0.03])
    assert log_ticks(1, 20_000) == pytest.approx([1, 10, 100, 1000, 10_000])
    assert log_ticks(5, 40) == pytest.approx([5, 10, 20])
    assert [tick_label(value) for value in (0, 0.02, 1500, 2e6)] == ["0", "0.02", "1.5k", "2M"]


def test_cells():
    """Four significant digits, thousands apart, a dash for nothing."""
    assert [show(cell) for cell in (None, float("nan"), 1234567, 12345.6, 1.23456, 0.0, "a")] == [
        *("-", "-", "1,234,567", "12,346", "1.235", "0", "a")
    ]
    grid = Grid(title="T", columns=["a", "b"], rows=[["x|y", 1.5]])
    assert "x\\|y" in grid.to_markdown()
    assert "x|y" in grid.to_text()


def test_figures_in_files(tmp_path):
    """SVG needs no library; an unknown kind is refused, and so is a PNG without matplotlib."""
    chart = Chart(title="t", x_label="x", y_label="y", series=[Series(name="a", x=[1, 2], y=[3, 4])])
    save_chart(chart, tmp_path / "deep" / "a.svg")
    xml.dom.minidom.parse(str(tmp_path / "deep" / "a.svg"))
    with pytest.raises(BadSetting, match=r"must end in one of .svg, .png, .pdf"):
        save_chart(chart, tmp_path / "a.gif")
    try:
        save_chart(chart, tmp_path / "a.png")
    except BadSetting as error:
        assert "headway[plots]" in str(error)  # noqa: PT017 - either outcome is right: the library is optional
    else:
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
