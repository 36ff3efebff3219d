#include "client/cli/html/style.h"

namespace gradgate::cli::html {

const char kStyle[] = R"(
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f5f7fa; --ink: #161b22; --quiet: #535e6c; --line: #d3d9e0; --link: #005a8c;
  --own: #4a94c7; --exposed: #8f3a00; --intended: #00755a; --wasted: #d55e00; --flag: #8a2f73; --mark: #161b22;
  --ok: #00694f; --notice: #005a8c; --warning: #a34700; --critical: #a8123a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10151b; --panel: #19212a; --ink: #e8ecf1; --quiet: #a3afbd; --line: #35404c; --link: #7cc4ee;
    --own: #3a86bb; --exposed: #f3b04f; --intended: #2fae8b; --wasted: #ff8433; --flag: #d890c3; --mark: #ffffff;
    --ok: #43c9a3; --notice: #7cc4ee; --warning: #ffa25e; --critical: #ff8fa6;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", Arial, sans-serif;
}
.wrap { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1.25rem 3rem; }
.brand { margin: 0; color: var(--quiet); font-size: .875rem; }
h1 { margin: .1rem 0 .25rem; font-size: 1.9rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 2.6rem 0 .5rem; padding-top: .9rem; border-top: 1px solid var(--line); font-size: 1.3rem; line-height: 1.3; }
h3 { margin: 1.4rem 0 .3rem; font-size: 1.02rem; line-height: 1.35; }
p { margin: .4rem 0 .8rem; }
p, li, dd { overflow-wrap: anywhere; }
.quiet, caption, .x, .y, .legend { color: var(--quiet); font-size: .875rem; }
code { font: .92em/1.4 ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", Consolas, monospace; overflow-wrap: anywhere; }
pre { margin: .4rem 0 .9rem; padding: .6rem .8rem; background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  white-space: pre-wrap; }
.badge { display: inline-block; padding: .05rem .5rem; border: 1.5px solid currentColor; border-radius: 1rem; font-size: .8rem;
  font-weight: 650; white-space: nowrap; vertical-align: .1em; }
.ok { color: var(--ok); } .notice { color: var(--notice); } .warning { color: var(--warning); } .critical { color: var(--critical); }
.verdict { margin: .8rem 0 1.2rem; padding: .8rem 1rem; background: var(--panel); border-left: 6px solid currentColor;
  border-radius: 0 6px 6px 0; font-size: 1.1rem; }
.verdict span:last-child { color: var(--ink); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(13.5rem, 1fr)); gap: .6rem 1.5rem; margin: 1rem 0 0; }
.facts .two { grid-column: span 2; } .facts dt { color: var(--quiet); font-size: .8rem; } .facts dd { margin: 0; }
.hero { display: grid; grid-template-columns: minmax(14rem, auto) 1fr; gap: 1rem 2.5rem; align-items: center; margin-top: 1rem; }
.big { margin: 0; font-size: 3.6rem; line-height: 1; font-weight: 700; letter-spacing: -.02em; font-variant-numeric: tabular-nums; }
.big small { display: block; margin-top: .4rem; font-size: 1rem; font-weight: 500; letter-spacing: 0; line-height: 1.4; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem; margin: 1.4rem 0 0; padding: 0; list-style: none; }
.tiles li { padding: .7rem .9rem; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; }
.tiles b { display: block; font-size: 1.45rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--quiet); font-size: .85rem; line-height: 1.35; display: block; }
svg { display: block; }
.chart { display: grid; grid-template-columns: auto 1fr; gap: .25rem .5rem; margin: .4rem 0 .3rem; }
.y { display: flex; flex-direction: column; justify-content: space-between; text-align: right; min-width: 3.2rem; line-height: 1; padding-bottom: 5px; }
.x { grid-column: 2; display: flex; justify-content: space-between; gap: 1rem; }
svg.columns { width: 100%; height: 11rem; border-bottom: 1px solid var(--line); background:
  linear-gradient(var(--line), var(--line)) 0 0 / 100% 1px no-repeat, linear-gradient(var(--line), var(--line)) 0 48% / 100% 1px no-repeat; }
svg.columns g:hover rect { opacity: .75; }
svg.strip { width: 100%; height: 1.15rem; background: var(--panel); border-radius: 2px; }
.own { fill: var(--own); } .exposed { fill: var(--exposed); } .intended { fill: var(--intended); } .wasted { fill: var(--wasted); }
.flag { fill: var(--flag); } .none { fill: transparent; }
.mark { fill: none; stroke: var(--mark); stroke-width: 2; vector-effect: non-scaling-stroke; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .3rem 0 .6rem; padding: 0; list-style: none; }
.legend li { display: flex; align-items: center; gap: .4rem; } .legend svg { width: 1rem; height: 1rem; flex: none; }
.rows { display: grid; grid-template-columns: max-content 1fr max-content; gap: .3rem .7rem; align-items: center; margin: .6rem 0; font-size: .9rem; }
.rows .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.rows .cut { grid-column: 1 / -1; color: var(--quiet); border-top: 1px dashed var(--line); padding-top: .2rem; }
.rows .x { grid-column: 2; }
.scroll { overflow-x: auto; margin: .6rem 0; } .scroll:focus-visible { outline: 2px solid var(--link); }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .3rem; }
th, td { padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { color: var(--quiet); font-weight: 600; } tbody th { font-weight: 600; }
.n { text-align: right; white-space: nowrap; } tr.best th, tr.best td { background: var(--panel); }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--link); font-size: .9rem; }
.finding { margin: .8rem 0; padding: .1rem 1rem .5rem; border: 1px solid var(--line); border-left: 6px solid; border-radius: 6px; }
.finding > * { color: var(--ink); } .finding.ok { border-left-color: var(--ok); } .finding.notice { border-left-color: var(--notice); }
.finding.warning { border-left-color: var(--warning); } .finding.critical { border-left-color: var(--critical); }
.finding h3 { margin-top: .6rem; } .finding ul { margin: .2rem 0 .5rem; padding-left: 1.2rem; }
.finding .ok, .tag.ok { color: var(--ok); } .finding .notice { color: var(--notice); }
.finding .warning { color: var(--warning); } .finding .critical { color: var(--critical); }
.unknown { color: var(--quiet); font-style: italic; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--quiet); font-size: .85rem; }
@media (max-width: 40rem) {
  .wrap { padding: 1rem .9rem 2rem; } h1 { font-size: 1.5rem; } .big { font-size: 2.9rem; }
  .hero { grid-template-columns: 1fr; } .facts { grid-template-columns: 1fr 1fr; gap: .6rem 1rem; }
  .tiles { grid-template-columns: 1fr 1fr; } .y { min-width: 2.4rem; } svg.columns { height: 9rem; }
  .rows { grid-template-columns: max-content 1fr; } .rows .n { grid-column: 1 / -1; text-align: left; margin: -.2rem 0 .3rem; white-space: normal; }
  .rows .x { grid-column: 1 / -1; }
}
@media print {
  :root { color-scheme: light; --page: #ffffff; --panel: #f5f7fa; --ink: #161b22; --quiet: #535e6c; --line: #d3d9e0; --link: #005a8c;
    --own: #4a94c7; --exposed: #8f3a00; --intended: #00755a; --wasted: #d55e00; --flag: #8a2f73; --mark: #161b22;
    --ok: #00694f; --notice: #005a8c; --warning: #a34700; --critical: #a8123a; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .wrap { max-width: none; padding: 0; } .chart, .finding, .tiles li, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; } summary { color: var(--quiet); }
}
)";

}  // namespace gradgate::cli::html
