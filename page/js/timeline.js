// Bars of the selected kind over time. Dragging selects a span of time, and so do the arrow keys.
(function () {
  const SVG = "http://www.w3.org/2000/svg";
  const BARS = 240,
    HEIGHT = 56,
    AXIS = 18;

  function draw(name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // A round number of seconds between two marks of the axis.
  function step(seconds, most) {
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600];
    return steps.find((one) => seconds / one <= most) || Math.ceil(seconds / most / 86400) * 86400;
  }

  function mark(seconds, whole) {
    if (whole <= 120) return `${seconds} s`;
    const two = (number) => String(number).padStart(2, "0");
    const minutes = Math.floor(seconds / 60);
    return whole < 7200
      ? `${minutes}:${two(seconds % 60)}`
      : `${Math.floor(minutes / 60)}:${two(minutes % 60)} h`;
  }

  // values: of bars. span: {from, to, each, buckets, seconds}: the selected buckets, the buckets of
  // each bar and of all, and all seconds.
  // choose(from, to) is called with what the reader selects.
  probescope.timeline = function (place, values, span, choose) {
    place.replaceChildren();
    const width = Math.max(320, place.clientWidth);
    const svg = draw("svg", {
      width,
      height: HEIGHT + AXIS,
      tabindex: 0,
      role: "group",
      "aria-label": "figures over time; the arrow keys select a span of time, with Shift its end",
    });
    const most = Math.max(...values, 0);
    const each = (width / span.buckets) * span.each;
    values.forEach((value, i) => {
      const height = most > 0 ? Math.max(value > 0 ? 1 : 0, (HEIGHT * value) / most) : 0;
      const at = (i + 0.5) * span.each;
      const bar = draw("rect", {
        x: i * each,
        y: HEIGHT - height,
        width: Math.max(0.5, Math.min(each, width - i * each) - (each > 3 ? 1 : 0)),
        height,
        class: at >= span.from && at < span.to ? "bar" : "bar out",
      });
      svg.append(bar);
    });
    svg.append(draw("line", {x1: 0, x2: width, y1: HEIGHT + 0.5, y2: HEIGHT + 0.5, class: "axis"}));
    const every = step(span.seconds, Math.floor(width / 70));
    for (let at = 0; at <= span.seconds; at += every) {
      const x = span.seconds > 0 ? (width * at) / span.seconds : 0;
      const end = x > width - 24;
      svg.append(draw("line", {x1: x, x2: x, y1: HEIGHT, y2: HEIGHT + 4, class: "axis"}));
      svg.append(
        draw(
          "text",
          {
            x: end ? width : x,
            y: HEIGHT + AXIS - 3,
            "text-anchor": end ? "end" : x === 0 ? "start" : "middle",
          },
          mark(at, span.seconds),
        ),
      );
    }
    const brush = draw("rect", {y: 0, height: HEIGHT, class: "brush"});
    svg.append(brush);
    const bucket = (event) => {
      const x = Math.min(width, Math.max(0, event.clientX - svg.getBoundingClientRect().left));
      return (x / width) * span.buckets;
    };
    let start = null;
    const show = (from, to) => {
      brush.setAttribute("x", (from / span.buckets) * width);
      brush.setAttribute("width", Math.max(0, ((to - from) / span.buckets) * width));
    };
    if (span.from > 0 || span.to < span.buckets) show(span.from, span.to);
    svg.addEventListener("pointerdown", (event) => {
      start = bucket(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (start !== null) show(Math.min(start, bucket(event)), Math.max(start, bucket(event)));
    });
    svg.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const ends = [start, bucket(event)].sort((a, b) => a - b);
      start = null;
      const moved = ((ends[1] - ends[0]) / span.buckets) * width > 3;
      if (moved) choose(Math.floor(ends[0]), Math.max(Math.floor(ends[0]) + 1, Math.ceil(ends[1])));
      else choose(0, span.buckets);
    });
    svg.addEventListener("keydown", (event) => {
      const chosen = event.key === "Escape" ? [0, span.buckets] : moved(span, event);
      if (!chosen) return;
      event.preventDefault();
      event.stopPropagation();
      choose(...chosen);
      place.querySelector("svg").focus();
    });
    place.append(svg);
  };

  // The span of time after an arrow key: the next one of the same length, with Shift another end. From
  // the whole time, the first or the last bar.
  function moved(span, event) {
    const step = {ArrowLeft: -span.each, ArrowRight: span.each}[event.key];
    if (!step) return null;
    if (span.from === 0 && span.to >= span.buckets)
      return step > 0 ? [0, span.each] : [span.buckets - span.each, span.buckets];
    if (event.shiftKey)
      return [span.from, Math.max(span.from + span.each, Math.min(span.buckets, span.to + step))];
    const length = span.to - span.from;
    const from = Math.max(0, Math.min(span.buckets - length, span.from + step));
    return [from, from + length];
  }

  // The number of buckets of each bar.
  probescope.ofEachBar = (buckets) => Math.ceil(buckets / BARS);
})();
