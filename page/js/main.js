// What is selected, and drawing what belongs to it. The selection is in the address, so a link to
// the page keeps it.
(function () {
  const {element, shown, figure, percent, OUTSIDE} = probescope;
  const $ = (id) => document.getElementById(id);
  const COUNT = "count",
    WEIGHT = "weight";
  const PER = {time: " / s", cpu: ""};
  const ABOUT_PER = {
    time: "in each second of a process",
    cpu: "as shares of the whole",
  };

  const state = (probescope.state = {
    recordings: [],
    paths: [],
    functions: null,
    trees: {},
    comparison: null,
    kind: 0,
    figure: WEIGHT,
    by: "own",
    process: "",
    thread: "",
    request: "",
    from: 0,
    to: 0,
    search: "",
    frames: "all",
    widths: 1,
    focus: 0,
    marked: null,
    sort: {key: "", reverse: false, all: false},
  });

  const last = () => state.recordings[state.recordings.length - 1];
  const kind = () => last().kinds[state.kind];

  // Buckets of a recording: those of its time, or those that it has. A recording is a moment longer or
  // shorter than whole seconds.
  function buckets(recording) {
    if (!recording.buckets) {
      const most = recording.cells.bucket.reduce((a, b) => Math.max(a, b), -1);
      recording.buckets = Math.max(most + 1, Math.round(recording.duration_ns / recording.bucket_ns), 1);
    }
    return recording.buckets;
  }

  // ---- the address

  const FIELDS = {
    kind: "text",
    figure: [WEIGHT, COUNT],
    by: ["own", "self", "total"],
    process: "text",
    thread: "text",
    request: "text",
    from: "number",
    to: "number",
    search: "text",
    frames: ["from", "all", "own"],
    widths: "number",
    focus: "number",
  };

  function readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const [name, type] of Object.entries(FIELDS)) {
      const text = given.get(name);
      if (text === null) continue;
      if (name === "kind")
        state.kind = Math.max(
          0,
          last().kinds.findIndex((one) => one.name === text),
        );
      else if (Array.isArray(type)) state[name] = type.includes(text) ? text : state[name];
      else if (type === "number") state[name] = Math.max(0, Math.floor(Number(text)) || 0);
      else state[name] = text;
    }
  }

  function writeAddress() {
    const given = new URLSearchParams();
    const whole = buckets(last());
    if (state.kind) given.set("kind", kind().name);
    if (state.figure !== WEIGHT) given.set("figure", state.figure);
    if (state.by !== state.firstBy) given.set("by", state.by);
    for (const name of ["process", "thread", "request", "search"])
      if (state[name]) given.set(name, state[name]);
    if (state.from > 0 || state.to < whole) {
      given.set("from", state.from);
      given.set("to", state.to);
    }
    if (state.frames !== state.firstFrames) given.set("frames", state.frames);
    if (state.comparison && state.widths !== 1) given.set("widths", state.widths);
    if (state.focus) given.set("focus", state.focus);
    const text = given.toString();
    history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
  }

  // ---- what is selected

  function chosenSeries(recording) {
    return recording.series.map(
      (one) =>
        (!state.process || String(one.pid) === state.process) &&
        (!state.thread || `${one.pid}/${one.thread}` === state.thread) &&
        (!state.request || one.request === state.request),
    );
  }

  function filter(index, wholeTime) {
    const recording = state.recordings[index];
    const found = recording.kinds.findIndex((one) => one.name === kind().name);
    const all = wholeTime || state.comparison;
    return {
      kind: found,
      series: chosenSeries(recording),
      from: all ? 0 : state.from,
      to: all ? Infinity : state.to,
    };
  }

  // What the sums of a recording are multiplied by: 1, but in a comparison.
  function factor(index) {
    const given = state.comparison && state.comparison.kinds[kind().name];
    return given ? given.factors[index] : 1;
  }

  function unit(name = state.figure) {
    return name === COUNT ? (kind().counts ? kind().counts[1] : "count") : kind().unit;
  }

  function figureName(name) {
    if (name === WEIGHT)
      return {nanoseconds: "time", bytes: "bytes"}[kind().unit] || kind().weighs[0].replace(/_/g, " ");
    return kind().counts ? kind().counts[0].replace(/_/g, " ") : name;
  }

  function sums() {
    state.sums = state.paths.map((one, index) => {
      const chosen = filter(index);
      const other = state.figure === WEIGHT ? COUNT : WEIGHT;
      return {self: one.sums(chosen, state.figure), other: one.sums(chosen, other)};
    });
    state.whole = state.sums.map(({self}) => self.reduce((a, b) => a + b, 0));
  }

  function row(found) {
    const outside = found.key === OUTSIDE;
    const one = outside
      ? {
          name: state.by === "own" ? "(outside of the application)" : "(no stack)",
          path: "",
          own: false,
          what: false,
        }
      : state.functions.list[found.key];
    const place = one.path ? one.path + (one.defined ? ":" + one.defined : "") : "";
    return {
      ...found,
      name: one.name,
      place,
      path: one.path,
      own: one.own,
      what: one.what,
      outside,
      key0: (one.name + "\0" + place).toLowerCase(),
    };
  }

  function largest(map) {
    let found = null;
    for (const [key, value] of map) if (!found || value > found[1]) found = [key, value];
    return found;
  }

  function rows() {
    const sides = state.paths.map((one, index) =>
      one.rows(state.by, state.sums[index].self, state.sums[index].other),
    );
    if (!state.comparison) {
      return [...sides[0].values()].map((found) => {
        const line = largest(found.lines),
          called = largest(found.called);
        return {
          ...row(found),
          line: line && line[0],
          called: called && {name: state.functions.list[called[0]].name, value: called[1]},
        };
      });
    }
    const key = state.by === "total" ? "total" : "self";
    return [...new Set(sides.flatMap((one) => [...one.keys()]))].map((number) => {
      const [before, after] = sides.map(
        (one, index) => (one.has(number) ? one.get(number)[key] : 0) * factor(index),
      );
      const found = sides[1].get(number) || sides[0].get(number);
      const line = largest(found.lines);
      const made = {...row(found), before, after, difference: after - before, line: line && line[0]};
      made.changed = changed(made);
      return made;
    });
  }

  function changed(one) {
    const given = state.comparison.kinds[kind().name];
    if (!given.keys) given.keys = new Set(given.changed.map(([name, path]) => `${name}\0${path || ""}`));
    return (
      state.by === state.comparison.by &&
      state.figure === WEIGHT &&
      given.keys.has(one.outside ? "null\0" : `${one.name}\0${one.path}`)
    );
  }

  // A figure with its unit, in a comparison for what it is per.
  function show(value) {
    if (state.comparison && state.comparison.per === "cpu") return percent(value, 1);
    return figure(value, unit()) + (state.comparison ? PER[state.comparison.per] : "");
  }

  function tree() {
    const name = state.frames;
    return (state.trees[name] = state.trees[name] || new probescope.Tree(state.paths, name));
  }

  // ---- drawing

  function drawTimeline() {
    const recording = last(),
      index = state.recordings.length - 1;
    $("timeline").hidden = Boolean(state.comparison) || buckets(recording) < 2;
    if ($("timeline").hidden) return;
    const each = probescope.ofEachBar(buckets(recording));
    const values = state.paths[index].times(filter(index, true), state.figure, buckets(recording), each);
    const seconds = (buckets(recording) * recording.bucket_ns) / 1e9;
    probescope.timeline(
      $("bars"),
      values,
      {from: state.from, to: state.to, each, buckets: buckets(recording), seconds},
      (from, to) => {
        state.from = from;
        state.to = Math.min(to, buckets(recording));
        draw();
      },
    );
    const all = state.from === 0 && state.to >= buckets(recording);
    const second = recording.bucket_ns / 1e9;
    $("peak").textContent = `up to ${figure(Math.max(...values, 0), unit())} in ${each * second} s`;
    $("span").textContent = all
      ? "Drag over the bars, or use the arrow keys, to select a span of time."
      : `${state.from * second} s to ${state.to * second} s`;
    $("all-time").hidden = all;
  }

  function drawTable() {
    const view = {
      rows: state.rows,
      comparison: state.comparison,
      by: state.by,
      unit: unit(),
      show,
      whole: state.whole[state.whole.length - 1],
      wholes: state.whole.map((one, index) => one * factor(index)),
      otherTitle: capital(figureName(state.figure === WEIGHT ? COUNT : WEIGHT)),
      otherUnit: unit(state.figure === WEIGHT ? COUNT : WEIGHT),
      suffix: "",
      search: state.search,
      sort: state.sort,
      marked: state.marked,
      firstKey: state.comparison ? "difference" : state.by === "total" ? "total" : "self",
      sortBy: (key, reverse) => {
        state.sort = {key, reverse, all: state.sort.all};
        drawTable();
        const again = [...$("rows").querySelectorAll("th[aria-sort]")].find(
          (one) => one.getAttribute("aria-sort") !== "none",
        );
        if (again) again.firstChild.focus();
      },
      showAll: () => {
        state.sort.all = true;
        drawTable();
      },
    };
    probescope.table($("rows"), view, (chosen) => {
      state.marked = state.marked === chosen.key ? null : chosen.key;
      drawTable();
      drawFlame();
    });
    const wholes = state.whole.map((one, index) => one * factor(index));
    $("whole").textContent = state.comparison
      ? `${show(wholes[0])} before, ${show(wholes[1])} after, ${ABOUT_PER[state.comparison.per]}${found()}`
      : `${show(wholes[0])} in all${outside()}`;
  }

  // The share that the last row has: it may be out of sight.
  function outside() {
    const one = state.by === "own" && state.rows.find((row) => row.outside);
    return one ? `, ${percent(one.self, state.whole[0])} of it outside of the application` : "";
  }

  // How many functions have changed, where the page knows.
  function found() {
    if (state.by !== state.comparison.by || state.figure !== WEIGHT) return "";
    const count = state.rows.filter((one) => one.changed).length;
    if (!count) return "; no change can be told from chance";
    const functions = count === 1 ? "1 function" : `${count} functions`;
    return `; ${functions} changed by more than chance`;
  }

  function capital(text) {
    return text.charAt(0).toUpperCase() + text.slice(1);
  }

  function drawFlame() {
    const all = tree();
    if (state.focus >= all.size) state.focus = 0;
    const sides = state.sums.map((one, index) => all.sums(index, one.self));
    const side = state.comparison ? state.widths : 0;
    const value = (node) => sides[side].total[node];
    const functionOf = (node) =>
      all.functions[node] === OUTSIDE ? null : state.functions.list[all.functions[node]];
    const rootName = (node) => (node === 0 ? "all" : "(outside of the application)");
    const search = state.search.toLowerCase();
    const found = (node) => {
      if (state.marked !== null && all.functions[node] === state.marked && node !== 0) return true;
      const one = search && functionOf(node);
      return Boolean(one) && (one.name + "\0" + one.path).toLowerCase().includes(search);
    };
    const normalised = (node) => sides.map((one, index) => one.total[node] * factor(index));
    const view = {
      tree: all,
      value,
      focus: state.focus,
      functionOf,
      rootName,
      functionNumber: (node) => all.functions[node],
      matches: search || state.marked !== null ? found : null,
      describe: (data) => describe(data, all, sides, functionOf, rootName, normalised),
      tell: (data) => tell(data, all, sides, functionOf, rootName, normalised),
      choose: (node, keyboard) => {
        state.focus = node === state.focus ? all.parent[node] : node;
        drawFlame();
        if (keyboard) $("graph").querySelector("g[tabindex='0']").focus();
        writeAddress();
      },
    };
    if (state.comparison) {
      view.delta = (node) => {
        const [before, after] = normalised(node);
        return (after - before) / Math.max(...normalised(0), 1e-300);
      };
      view.sign = (node) => {
        const delta = view.delta(node);
        return Math.abs(delta) < probescope.STEPS[0] ? "" : delta > 0 ? "+ " : "− ";
      };
    }
    probescope.flame($("graph"), view);
    $("zoom-out").hidden = state.focus === 0;
    $("matched").textContent = view.matches
      ? `matches: ${percent(covered(all, sides[side].total, found), sides[side].total[0])}`
      : "";
    view.tell(null);
  }

  // The weight of all paths with a node that matches.
  function covered(all, totals, found) {
    let sum = 0;
    const waiting = [0];
    while (waiting.length) {
      const node = waiting.pop();
      if (found(node)) sum += totals[node];
      else for (const child of all.children[node]) if (totals[child] !== 0) waiting.push(child);
    }
    return sum;
  }

  // What a frame's box says, a text for each line.
  function describe(data, all, sides, functionOf, rootName, normalised) {
    if (data.node === null)
      return [
        `${data.hidden.toLocaleString("en-US")} calls that are too narrow`,
        show(data.value * factor(state.comparison ? state.widths : 0)),
      ];
    const one = functionOf(data.node);
    const name = one ? shown(one.name) : rootName(data.node);
    const place = one && one.path ? shown(one.path) + (one.defined ? ":" + one.defined : "") : null;
    if (state.comparison) {
      const [before, after] = normalised(data.node);
      return [name, place, `before ${show(before)}, after ${show(after)}`].filter(Boolean);
    }
    const total = sides[0].total[data.node],
      self = sides[0].self[data.node],
      whole = sides[0].total[0];
    return [
      name,
      place,
      `total ${show(total)}, ${percent(total, whole)}; self ${show(self)}, ${percent(self, whole)}`,
    ].filter(Boolean);
  }

  function tell(data, all, sides, functionOf, rootName, normalised) {
    const place = $("details");
    if (!data) {
      place.replaceChildren(
        element(
          "span",
          {class: "hint"},
          "Point at a box, or walk with Tab and the arrows. A click or Enter widens it; Esc goes back.",
        ),
      );
      return;
    }
    const [name, ...more] = describe(data, all, sides, functionOf, rootName, normalised);
    const one = data.node !== null && functionOf(data.node);
    // Here a name is shown as a whole.
    place.replaceChildren(
      element("strong", {}, one ? probescope.clean(one.name) : name),
      ...more.map((text) => element("span", {}, text)),
    );
  }

  function draw() {
    sums();
    state.rows = rows();
    drawControls();
    drawTimeline();
    drawTable();
    drawFlame();
    writeAddress();
  }

  // ---- the controls

  function options(select, list, value) {
    select.replaceChildren(...list.map(([key, text]) => element("option", {value: key}, shown(text))));
    select.value = value;
  }

  function drawControls() {
    const recordings = state.recordings;
    const series = recordings.flatMap((one) => one.series);
    const unique = (list) => [...new Set(list)];
    const threads = {};
    for (const recording of recordings) {
      for (const one of recording.metadata.processes || []) {
        for (const [id, name] of Object.entries(one.threads || {}))
          threads[`${one.pid}/${id}`] = `${id} ${name}`;
      }
    }
    options(
      $("kind"),
      last().kinds.map((one, index) => [index, one.name]),
      state.kind,
    );
    options(
      $("figure"),
      [WEIGHT, COUNT].map((name) => [name, figureName(name)]),
      state.figure,
    );
    const pids = unique(series.map((one) => one.pid)).sort((a, b) => a - b);
    if (state.process && !pids.includes(Number(state.process))) state.process = "";
    options($("process"), [["", "all"], ...pids.map((pid) => [pid, String(pid)])], state.process);
    const of = series.filter((one) => one.thread && (!state.process || String(one.pid) === state.process));
    const ids = unique(of.map((one) => `${one.pid}/${one.thread}`));
    if (state.thread && !ids.includes(state.thread)) state.thread = "";
    options(
      $("thread"),
      [["", "all"], ...ids.map((id) => [id, threads[id] || id.split("/")[1]])],
      state.thread,
    );
    const requests = unique(series.map((one) => one.request).filter((one) => one !== null)).sort();
    if (state.request && !requests.includes(state.request)) state.request = "";
    options($("request"), [["", "all"], ...requests.map((one) => [one, one])], state.request);
    const show = (id, visible) => {
      $(id).closest("label").hidden = !visible;
    };
    show("kind", last().kinds.length > 1);
    show("process", pids.length > 1);
    show("thread", ids.length > 1);
    show("request", requests.length > 0);
    show("figure", !state.comparison && Boolean(kind().counts));
    for (const button of $("by").querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.value === state.by));
    }
    if (document.activeElement !== $("search")) $("search").value = state.search;
    $("frames").value = state.frames;
    show("frames", state.hasOwn);
    $("widths").closest("label").hidden = !state.comparison;
    $("widths").value = state.widths;
    $("only-before").hidden = !state.comparison || state.widths === 0;
  }

  function change(id, field, after = () => {}) {
    $(id).addEventListener("change", () => {
      const box = $(id);
      state[field] = typeof state[field] === "number" ? Number(box.value) : box.value;
      after();
      draw();
    });
  }

  function zoomOut() {
    state.focus = state.focus ? tree().parent[state.focus] : 0;
    drawFlame();
    writeAddress();
  }

  function controls() {
    change("kind", "kind");
    change("figure", "figure");
    change("process", "process");
    change("thread", "thread");
    change("request", "request");
    change("widths", "widths");
    change("frames", "frames", () => {
      state.focus = 0;
    });
    $("by").addEventListener("click", (event) => {
      if (!event.target.value) return;
      state.by = event.target.value;
      state.sort = {key: "", reverse: false, all: state.sort.all};
      draw();
    });
    let waiting = 0;
    $("search").addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        state.search = $("search").value;
        drawTable();
        drawFlame();
        writeAddress();
      }, 120);
    });
    $("all-time").addEventListener("click", () => {
      state.from = 0;
      state.to = buckets(last());
      draw();
    });
    $("zoom-out").addEventListener("click", () => {
      state.focus = 0;
      drawFlame();
      writeAddress();
    });
    $("theme").addEventListener("click", () => {
      const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark");
      document.documentElement.dataset.theme = dark ? "light" : "dark";
    });
    $("keys").addEventListener("click", () => $("help").showModal());
    $("help").addEventListener("click", () => $("help").close());
    document.addEventListener("keydown", keys);
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (window.innerWidth === width) return;
      width = window.innerWidth;
      drawTimeline();
      drawFlame();
    });
    for (const when of ["beforeprint", "afterprint"]) {
      window.addEventListener(when, () => {
        drawTimeline();
        drawFlame();
      });
    }
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      else if ($("help").open) return;
      else if (state.focus) zoomOut();
      return;
    }
    if (typing || $("help").open) return;
    const go = {
      "/": () => $("search").focus(),
      "?": () => $("help").showModal(),
      t: () => focusFirst("#rows button"),
      g: () => focusFirst("#graph g[tabindex='0']"),
      d: () => $("theme").click(),
    }[event.key];
    if (!go) return;
    event.preventDefault();
    go();
  }

  function focusFirst(selector) {
    const found = document.querySelector(selector);
    if (!found) return;
    found.closest("section").scrollIntoView({block: "start"});
    found.focus({preventScroll: true});
  }

  // ---- the beginning

  async function open() {
    const [before, recording] = await Promise.all([probescope.read("before"), probescope.read("data")]);
    if (!recording) throw new Error("the page has no recording");
    state.recordings = before ? [before, recording] : [recording];
    state.comparison = before ? recording.diff : null;
    state.functions = new probescope.Functions(Boolean(before));
    state.paths = state.recordings.map((one) => new probescope.Paths(one, state.functions));
    state.hasOwn = state.recordings.some((one) => one.frames.some((frame) => frame.own));
    state.firstFrames = state.frames = state.hasOwn ? "from" : "all";
    state.firstBy = state.by = state.comparison ? state.comparison.by : state.hasOwn ? "own" : "self";
    state.to = buckets(recording);
    readAddress();
    state.to = Math.min(state.to || buckets(recording), buckets(recording));
    document.body.classList.toggle("comparison", Boolean(before));
    $("title").textContent = before ? "before and after" : "recording";
    probescope.summary($("facts"), state.recordings);
    $("legend").replaceChildren(
      ...(before
        ? legend(
            ["more", "more than before"],
            ["less", "less than before"],
            ["same", `within ${100 * probescope.STEPS[0]} % of all`],
          )
        : legend(["own", "application"], ["library", "libraries"], ["what", "what is not a function"])),
    );
    for (const id of ["loading"]) $(id).remove();
    $("page").hidden = false;
    controls();
    draw();
    performance.mark("shown");
    document.documentElement.dataset.ready = "yes";
  }

  function legend(...list) {
    return list.map(([kind, text]) => element("span", {}, element("span", {class: `dot ${kind}`}), text));
  }

  open().catch((error) => {
    document.documentElement.dataset.ready = "failed";
    const place = $("loading") || $("facts");
    place.textContent = `The recording cannot be shown: ${error.message}`;
    console.error(error);
  });
})();
