"""The style of report pages, light and dark."""

from __future__ import annotations

NUM_COLOURS = 8

# Eight hues that stay apart for most colour-blind readers (after Okabe and Ito, 2008), darker on white than on black.
_RULES = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--mute:#5b6570;--line:#d8dee4;--card:#f5f7f9;
  --warn:#fff4d6;--c0:#0068b3;--c1:#c85200;--c2:#00805f;--c3:#b0295f;--c4:#8a6d00;--c5:#3b8fc7;--c6:#6b4fa0;
  --c7:#555}
@media(prefers-color-scheme:dark){:root{--bg:#12161b;--fg:#e4e8ec;--mute:#98a3ae;--line:#313943;
  --card:#1b2128;--warn:#3b3112;--c0:#5ab0f0;--c1:#f08c3c;--c2:#35c49a;--c3:#ec7aa8;--c4:#d8b83a;--c5:#9ad4ff;
  --c6:#b79cf0;--c7:#aaa}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:1100px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:1.6em;margin:0}
h2{font-size:1.2em;margin:0 0 8px}
header p,.note,dt,small,.cards span{color:var(--mute)}
header p{margin:4px 0 0}
section{margin-top:28px}
.note{font-size:.87em;margin:4px 0 12px}
.warning{background:var(--warn);padding:8px 12px;border-radius:6px;margin:6px 0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:12px 0}
.cards div{background:var(--card);border-radius:8px;padding:10px 12px}
.cards span,.cards small{display:block;font-size:.82em}
.cards b{font-size:1.35em;font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:8px 0}
dd{margin:0;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:20px}
figure{margin:0}
figcaption,caption{font-weight:600;text-align:left;padding:6px 0}
.scroll{overflow-x:auto;margin-top:14px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9em}
th,td{padding:3px 12px 3px 0;text-align:right}
th:first-child{text-align:left;font-weight:400}
thead th,thead th:first-child{font-weight:600;border-bottom:1px solid var(--line)}
svg{width:100%;height:auto;display:block}
svg text{fill:var(--mute);font-size:11px}
.grid{stroke:var(--line);stroke-width:1}
.line{fill:none;stroke-width:1.6}
.dots{fill:none;stroke-width:3.4;stroke-linecap:round;opacity:.55}
.area{opacity:.85;stroke:none}
.shade{fill:var(--mute);opacity:.13}
path.limit{stroke:var(--fg);stroke-dasharray:5 4;fill:none}
svg text.limit{fill:var(--fg)}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:.85em}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
"""

_SERIES = """
.line.s{k},.dots.s{k}{{stroke:var(--c{k})}}
.area.s{k}{{fill:var(--c{k})}}
.legend .s{k}{{background:var(--c{k})}}"""

STYLE = _RULES + "".join(_SERIES.format(k=k) for k in range(NUM_COLOURS))
