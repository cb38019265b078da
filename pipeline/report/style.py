"""The style sheet of the page. It is embedded, so that the page works offline."""

STYLE = """\
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1c2430; }
body { font: 16px/1.45 system-ui, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 24px; }
header { padding: 20px 28px; border-radius: 8px; border-left: 12px solid; }
header.proved { background: #e5f4ea; border-color: #23803f; }
header.disproved { background: #fbe7e5; border-color: #b3261e; }
header.undecided { background: #fdf2d8; border-color: #b07a00; }
header h1 { margin: 0; font-size: 44px; line-height: 1.15; letter-spacing: 1px; }
header.proved h1 { color: #1a6a33; }
header.disproved h1 { color: #9c1f18; }
header.undecided h1 { color: #855c00; }
header p { margin: 4px 0 0; font-size: 20px; }
header .job { margin: 0 0 4px; font-size: 16px; overflow-wrap: anywhere; }
header ul { margin: 8px 0 0; padding-left: 22px; font-size: 18px; }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; }
.tile { flex: 1 1 auto; padding: 10px 14px; border: 1px solid #d8dde3; border-radius: 8px; }
.tile b { display: block; font-size: 24px; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tile span, .tile i { display: block; font-size: 14px; font-style: normal; white-space: nowrap; }
.tile.none { color: #5c6673; }
.tile.good { background: #f1f9f4; border-color: #9ccfae; }
.tile.bad { background: #fbe7e5; border-color: #b3261e; color: #9c1f18; }
.tile.open { background: #fdf2d8; border-color: #b07a00; color: #855c00; }
section { margin: 26px 0 0; }
h2 { margin: 0 0 6px; font-size: 20px; }
section p { margin: 0 0 8px; }
section ul { margin: 0; padding-left: 22px; }
img { display: block; width: 100%; min-width: 640px; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 10px; border-bottom: 1px solid #d8dde3; text-align: left; vertical-align: top; }
td { overflow-wrap: anywhere; }
th { border-bottom: 2px solid #8a93a0; overflow-wrap: normal; }
.numbers td:first-child { overflow-wrap: normal; min-width: 140px; }
.numbers th:not(:first-child), .numbers td:not(:first-child) { text-align: right; white-space: nowrap; }
.list table { font-size: 13px; }
.list th, .list td { padding: 4px 8px; min-width: 60px; }
.list td { max-width: 240px; overflow-wrap: break-word; }
.evidence td:nth-child(2) { white-space: nowrap; }
.evidence .ok b { color: #1a6a33; }
.evidence .failed { background: #fdf2d8; }
.evidence .failed b { color: #855c00; }
.evidence .not_checked b { color: #5c6673; }
footer { margin: 30px 0 0; font-size: 14px; color: #5c6673; }
@media (max-width: 760px) {
  .numbers { font-size: 13px; }
  .numbers th, .numbers td { padding: 4px 5px; }
  .numbers td:first-child { min-width: 100px; }
}
@media print { img { min-width: 0; } main { max-width: none; padding: 0; } section { break-inside: avoid; } }
"""
