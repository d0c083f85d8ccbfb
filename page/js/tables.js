// The table of functions, and its figures for the console and for tests.
(function () {
  const {element, shown, figure, percent} = probescope;
  const ROWS = 200;
  const PLACE = 36; // characters of a path

  // columns: [{key, title, about, number, cell(row)}]
  function columns(view) {
    const unit = view.unit,
      suffix = view.suffix,
      whole = view.whole;
    const name = {key: "name", title: "Function", text: (row) => row.name, cell: (row) => nameCell(row)};
    const of = (value) => [bar(value, whole), element("span", {class: "share"}, percent(value, whole))];
    const amount = (value) => element("span", {class: "amount"}, view.show(value));
    if (view.comparison) {
      const change = (row) => (row.difference === 0 ? "" : row.difference > 0 ? "more" : "less");
      return [
        name,
        {key: "before", title: "Before" + suffix, number: true, cell: (row) => amount(row.before)},
        {key: "after", title: "After" + suffix, number: true, cell: (row) => amount(row.after)},
        {
          key: "difference",
          title: "Difference",
          number: true,
          about: "after less before; the share is of the whole before",
          cell: (row) =>
            element(
              "span",
              {class: `change ${row.changed ? change(row) : ""}`},
              signed(row.difference, view.show),
            ),
          // Shares are shown already where they are compared.
          extra: (row) =>
            view.comparison.per === "cpu"
              ? ""
              : element("span", {class: "share"}, signedPercent(row.difference, view.wholes[0])),
        },
        {
          key: "changed",
          title: "Changed",
          number: false,
          about: "by more than chance",
          cell: (row) =>
            row.changed ? element("span", {class: "yes"}, "yes") : element("span", {class: "no"}, "–"),
        },
      ];
    }
    const found = [name];
    if (view.by === "own") {
      found.push({
        key: "line",
        title: "Line",
        about: "the line of the function with most of it",
        number: true,
        cell: (row) => (row.line ? String(row.line) : ""),
      });
    }
    const self = {
      key: "self",
      title: view.by === "own" ? "With its libraries" : "Self",
      number: true,
      about: view.by === "own" ? "the function, with the libraries that it called" : "the function alone",
    };
    const total = {
      key: "total",
      title: "Total",
      number: true,
      about: "the function, with everything that it called",
    };
    const [first, second] = view.by === "total" ? [total, self] : [self, total];
    found.push(
      {...first, cell: (row) => of(row[first.key])},
      {key: "amount", number: true, cell: (row) => amount(row[first.key])},
      {...second, cell: (row) => percent(row[second.key], whole)},
      {key: "other", title: view.otherTitle, number: true, cell: (row) => figure(row.other, view.otherUnit)},
    );
    if (view.by === "own")
      found.push({
        key: "called",
        title: "Calls",
        about: "what it called, the largest one",
        cell: (row) => calledCell(row, whole),
      });
    return found;
  }

  function bar(value, whole) {
    const made = element("span", {class: "bar-of"}, element("span"));
    made.firstChild.style.width = whole > 0 ? `${Math.min(100, (100 * value) / whole)}%` : "0";
    return made;
  }

  function signed(value, show) {
    return value === 0 ? show(0) : (value > 0 ? "+" : "−") + show(Math.abs(value));
  }

  function signedPercent(value, whole) {
    if (!(whole > 0)) return "-";
    return (value < 0 ? "−" : "+") + Math.abs((100 * value) / whole).toFixed(1) + " %";
  }

  function nameCell(row) {
    const tag = row.outside ? "outside" : row.what ? "what" : row.own ? "own" : "library";
    const name = element("button", {type: "button", class: "name", title: shown(row.name)}, shown(row.name));
    return [
      element("span", {class: `dot ${tag}`, "aria-label": tag}),
      name,
      row.place ? element("span", {class: "place", title: shown(row.place)}, tail(row.place)) : null,
    ];
  }

  // The end of a long path, which says more than its beginning.
  function tail(text) {
    const clean = shown(text);
    if (clean.length <= PLACE) return clean;
    const end = clean.slice(1 - PLACE);
    return "…" + end.slice(Math.max(0, end.indexOf("/")));
  }

  function calledCell(row, whole) {
    if (!row.called) return "";
    const name = shown(row.called.name);
    return [
      element("span", {class: "share"}, percent(row.called.value, whole)),
      element("span", {class: "callee", title: name}, name),
    ];
  }

  function cellClass(one) {
    return one.number ? `number ${one.key}` : one.key;
  }

  function compare(one, other, key) {
    const a = one[key],
      b = other[key];
    if (typeof a === "string" || typeof b === "string") return String(a).localeCompare(String(b));
    return Number(b) - Number(a);
  }

  // view: see main.js. choose(row) is called with the row that is clicked.
  probescope.table = function (place, view, choose) {
    const list = columns(view);
    const state = view.sort;
    const key = list.some((one) => one.key === state.key) ? state.key : view.firstKey;
    const sorted = [...view.rows].sort((a, b) => {
      if (!view.comparison && a.outside !== b.outside) return a.outside ? 1 : -1;
      if (view.comparison && key === "difference" && a.changed !== b.changed) return a.changed ? -1 : 1;
      const order =
        key === "difference" ? Math.abs(b.difference) - Math.abs(a.difference) : compare(a, b, key);
      return (state.reverse ? -order : order) || a.name.localeCompare(b.name);
    });
    const search = view.search.toLowerCase();
    const matching = search ? sorted.filter((row) => row.key0.includes(search)) : sorted;
    const rows = state.all ? matching : matching.slice(0, ROWS);
    const head = element("tr");
    for (const one of list) {
      const sort = one.key;
      if (!one.title) {
        head.append(element("th", {class: cellClass(one)}));
        continue;
      }
      const order = sort !== key ? "none" : (sort === "name") === !state.reverse ? "ascending" : "descending";
      const button = element("button", {type: "button", title: one.about}, one.title);
      button.addEventListener("click", () => view.sortBy(sort, sort === key ? !state.reverse : false));
      head.append(element("th", {class: cellClass(one), scope: "col", "aria-sort": order}, button));
    }
    const body = element("tbody");
    for (const row of rows) {
      const line = element("tr", {
        class:
          [row.outside ? "outside" : "", view.marked === row.key ? "marked" : ""].join(" ").trim() || null,
      });
      for (const one of list) {
        const cell = one.cell(row);
        line.append(
          element(
            "td",
            {class: cellClass(one)},
            ...(Array.isArray(cell) ? cell : [cell]),
            one.extra ? one.extra(row) : "",
          ),
        );
      }
      line.addEventListener("click", () => choose(row));
      body.append(line);
    }
    const old = place.querySelector(".scroll");
    const top = old ? old.scrollTop : 0;
    const scroll = element("div", {class: "scroll"}, element("table", {}, element("thead", {}, head), body));
    place.replaceChildren(scroll);
    scroll.scrollTop = top;
    if (rows.length === 0)
      place.append(
        element(
          "p",
          {class: "empty"},
          search ? "No function matches the search." : "There are no figures in this selection.",
        ),
      );
    if (matching.length > rows.length) {
      const more = element(
        "button",
        {type: "button", class: "more"},
        `All ${matching.length.toLocaleString("en-US")} functions`,
      );
      more.addEventListener("click", () => view.showAll());
      place.append(more);
    }
  };

  // The rows of the whole recording, as `probescope convert --json` has them. by: own, self, total.
  // side: 0, or of a comparison 0 for the one before and 1 for the one after.
  window.probescopeSums = function (kind, by, side = 0) {
    const {paths, functions} = probescope.state;
    const {recording} = paths[side];
    const index = recording.kinds.findIndex((one) => one.name === kind);
    if (index < 0) return null;
    const filter = {kind: index, from: 0, to: Infinity, series: recording.series.map(() => true)};
    const rows = paths[side].rows(by, paths[side].sums(filter, "weight"), paths[side].sums(filter, "count"));
    return [...rows.values()].map(({key, self, total, other}) => {
      const one = key === probescope.OUTSIDE ? {name: null, path: null, defined: null} : functions.list[key];
      return {
        function: one.name,
        file: one.path || null,
        line: one.defined || null,
        weight: self,
        total,
        count: other,
      };
    });
  };
})();
