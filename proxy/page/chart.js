/** Small charts by uPlot, in the page's colours. */
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";

/** Counts changes of the theme, by the page's switch or the system's. */
function useTheme() {
  const [count, setCount] = useState(0);
  useEffect(() => {
    const changed = () => setCount((now) => now + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("themechange", changed);
    system.addEventListener("change", changed);
    return () => {
      removeEventListener("themechange", changed);
      system.removeEventListener("change", changed);
    };
  }, []);
  return count;
}

/** Of stacked bars, from the one at the bottom; also the classes c0 to c5. */
export const COLORS = ["--accent", "--c1", "--c2", "--c3", "--c4", "--c5"];

const dayOf = (time) => new Date(time * 1000).toISOString().slice(5, 10);
const timeOf = (time) => new Date(time * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

/** series: lists of values, the first of the times (Unix seconds) or days; the second is drawn filled.
 *  format: of a value, for the axis. bars: instead of lines, the highest first, which stand behind those after it. onPoint: gets the index under the pointer, or null. */
export function Chart({ label, series, format, height = 88, bars = false, span, onPoint }) {
  const element = useRef(),
    plot = useRef();
  const theme = useTheme();
  useLayoutEffect(() => {
    const at = element.current,
      style = getComputedStyle(at);
    const [accent, soft, line, text] = ["--accent", "--accent-soft", "--line", "--muted"].map((name) =>
      style.getPropertyValue(name).trim(),
    );
    const colors = COLORS.map((name) => style.getPropertyValue(name).trim());
    const font = `11px ${style.fontFamily}`;
    const axis = { stroke: text, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
    // what there is, as soon as there are two minutes: a server that has just started has no hour
    const scale = span
      ? { range: (_, least, most) => [most - Math.min(span, Math.max(most - least, 120)), most] }
      : { range: (_, least, most) => [least - 43_200, most + 43_200] };
    plot.current = new window.uPlot(
      {
        width: at.clientWidth || 200,
        height,
        legend: { show: false },
        padding: [6, 0, 0, 0],
        cursor: { y: false, points: { size: 7, fill: accent }, drag: { x: false, y: false } },
        hooks: { setCursor: [({ cursor }) => onPoint?.(cursor.idx ?? null)] },
        scales: { x: { time: true, ...scale }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.15 : 1] } },
        axes: [
          {
            ...axis,
            grid: { show: false },
            size: 20,
            gap: 4,
            space: 64,
            incrs: bars ? [86_400, 604_800] : [60, 120, 300, 600, 900],
            values: (_, times) => times.map((time, place) => (place ? (bars ? dayOf : timeOf)(time) : "")), // the first would be cut
          },
          { ...axis, side: 1, size: 50, gap: 6, space: 28, values: (_, values) => values.map(format) },
        ],
        series: [
          {},
          ...series.slice(1).map((_, place) => ({
            stroke: place ? text : accent,
            width: place ? 1 : 1.75,
            fill: place ? undefined : soft,
            spanGaps: true,
            points: { show: false },
            ...(bars && { paths: window.uPlot.paths.bars({ size: [0.6, 48] }), width: 0, fill: colors[series.length - 2 - place] }),
          })),
        ],
      },
      series,
      at,
    );
    const resized = new ResizeObserver(() => plot.current.setSize({ width: at.clientWidth, height }));
    resized.observe(at);
    return () => {
      resized.disconnect();
      plot.current.destroy();
    };
  }, [theme, series.length, bars]);
  useEffect(() => plot.current.setData(series), [series]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${element}></div>`;
}
