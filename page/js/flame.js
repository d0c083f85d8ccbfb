// The flame graph. d3-flame-graph draws a small tree, which is cut out of the whole one here: what
// is narrower than a third of a pixel, and what does not belong to the function that is looked at,
// is left out. Widths are sums of the whole tree, so they stay what they are.
(function () {
  const {element, shown, percent} = probescope;
  const ROW = 18,
    NARROW = 0.3,
    MOST = 4000;

  // Differences from which the colours of a comparison grow stronger, as parts of the whole.
  probescope.STEPS = [0.005, 0.01, 0.02, 0.04, 0.08];

  // A tree for d3-flame-graph. value(node): the width. focus: the node that is as wide as the graph.
  function cut(tree, value, focus, width, limit) {
    let count = 0;
    const whole = value(focus);
    const least = whole > 0 ? (limit / width) * whole : Infinity;
    const made = (node) => {
      count++;
      const children = [];
      let narrow = 0,
        hidden = 0;
      for (const child of tree.children[node]) {
        const size = value(child);
        if (size >= least) children.push(child);
        else if (size > 0) {
          narrow += size;
          hidden++;
        }
      }
      children.sort((a, b) => value(b) - value(a));
      const found = {node, value: value(node), children: []};
      waiting.push([found, children, narrow, hidden]);
      return found;
    };
    const waiting = [];
    const root = made(focus);
    while (waiting.length) {
      const [one, children, narrow, hidden] = waiting.pop();
      one.children = children.map(made);
      if (hidden && narrow >= least) one.children.push({node: null, value: narrow, hidden, children: []});
    }
    return {root, count};
  }

  // With the callers of the focus above it, each as wide as the graph.
  function withCallers(tree, root, focus) {
    let found = root;
    for (let node = focus; node !== 0;) {
      node = tree.parent[node];
      found = {node, value: root.value, fade: true, children: [found]};
    }
    return found;
  }

  function shade(number, of) {
    return ((number * 2654435761) >>> 0) % of;
  }

  // The class of colour of a frame. view.delta(node) is between -1 and 1 in a comparison.
  function colour(view, data) {
    if (data.node === null) return "var(--frame-narrow)";
    if (view.matches && view.matches(data.node)) return "var(--frame-match)";
    if (view.delta) {
      const delta = view.delta(data.node);
      const step = probescope.STEPS.filter((least) => Math.abs(delta) >= least).length;
      if (step === 0) return "var(--same)";
      return `var(--${delta > 0 ? "more" : "less"}-${step})`;
    }
    const one = view.functionOf(data.node);
    if (!one) return "var(--frame-root)";
    const kind = one.what ? "what" : one.own ? "own" : "library";
    return `var(--frame-${kind}-${shade(view.functionNumber(data.node), 4)})`;
  }

  function label(view, data) {
    if (data.node === null) return `${data.hidden.toLocaleString("en-US")} narrower calls`;
    const one = view.functionOf(data.node);
    const name = one ? shown(one.name) : view.rootName(data.node);
    return view.sign ? view.sign(data.node) + name : name;
  }

  // view: {tree, value, focus, functionOf, functionNumber, rootName, describe, matches, delta, sign,
  // choose(node), tell(lines)}
  probescope.flame = function (place, view) {
    const width = Math.max(320, Math.floor(place.clientWidth - 2));
    let limit = NARROW,
      drawn = cut(view.tree, view.value, view.focus, width, limit);
    while (drawn.count > MOST) drawn = cut(view.tree, view.value, view.focus, width, (limit *= 1.5));
    place.replaceChildren();
    if (!(drawn.root.value > 0)) {
      place.append(element("p", {class: "empty"}, "There are no figures in this selection."));
      return;
    }
    const data = withCallers(view.tree, drawn.root, view.focus);
    const chart = flamegraph
      .default()
      .width(width)
      .cellHeight(ROW)
      .inverted(true)
      .transitionDuration(0)
      .minFrameSize(0)
      .getName((d) => label(view, d.data))
      .label((d) => view.describe(d.data).join("\n"))
      .setColorMapper((d) => colour(view, d.data))
      .setDetailsHandler(() => {});
    d3.select(place).datum(data).call(chart);
    const svg = place.querySelector("svg");
    const groups = [...svg.querySelectorAll("g")];
    // d3-flame-graph sets widths and texts by transitions, which take a quarter of a second.
    d3.select(svg).selectAll("*").interrupt();
    for (const one of groups) {
      one.querySelector("rect").setAttribute("width", one.getAttribute("width"));
      const text = one.querySelector(".d3-flame-graph-label");
      if (text.style.display !== "none") text.textContent = label(view, one.__data__.data);
    }
    const depth = Math.max(...groups.map((one) => one.__data__.depth));
    svg.setAttribute("height", (depth + 1) * ROW + 2);
    svg.setAttribute("role", "tree");
    svg.setAttribute("aria-label", "flame graph");
    walkable(svg, groups, view);
  };

  // The mouse and the keyboard. d3-flame-graph's own zoom is not used: a click draws another tree.
  function walkable(svg, groups, view) {
    const rows = [];
    for (const one of groups) {
      const at = one.__data__;
      at.data.group = one;
      (rows[at.depth] = rows[at.depth] || []).push(one);
      one.setAttribute("tabindex", "-1");
      one.setAttribute("role", "treeitem");
      one.setAttribute("aria-label", view.describe(at.data).join(", "));
    }
    for (const row of rows) row.sort((a, b) => a.__data__.x0 - b.__data__.x0);
    const first = groups.find((one) => one.__data__.data.node === view.focus) || groups[0];
    first.setAttribute("tabindex", "0");
    const groupOf = (event) => event.target.closest && event.target.closest("g");
    svg.addEventListener(
      "click",
      (event) => {
        const group = groupOf(event);
        event.stopPropagation();
        if (group && group.__data__.data.node !== null) view.choose(group.__data__.data.node);
      },
      true,
    );
    const tell = (event) => {
      const group = groupOf(event);
      if (group) view.tell(group.__data__.data);
    };
    svg.addEventListener("mouseover", tell);
    svg.addEventListener("focusin", tell);
    svg.addEventListener("mouseleave", () => view.tell(null));
    svg.addEventListener("keydown", (event) => {
      const group = groupOf(event);
      if (!group) return;
      const at = group.__data__;
      let to = null;
      if (event.key === "ArrowUp") to = at.parent;
      else if (event.key === "ArrowDown")
        to = (at.children || []).reduce((a, b) => (a && a.value >= b.value ? a : b), null);
      else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        const row = rows[at.depth];
        const next = row[row.indexOf(group) + (event.key === "ArrowLeft" ? -1 : 1)];
        to = next && next.__data__;
      } else if (event.key === "Enter") {
        if (at.data.node !== null) view.choose(at.data.node, true);
      } else return;
      event.preventDefault();
      if (to) {
        group.setAttribute("tabindex", "-1");
        to.data.group.setAttribute("tabindex", "0");
        to.data.group.focus();
      }
    });
  }
})();
