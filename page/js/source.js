// The source of a file, with the figures of each line.
(function () {
  const {element, clean, percent} = probescope;
  // A line of source that is longer is cut: a file may be one line.
  const MOST = 2000;

  // lines: {line => [self, total]}. mark: the line to which the reader is led.
  probescope.source = function (place, file, lines, view, mark) {
    place.replaceChildren();
    if (!file) {
      place.append(
        element(
          "p",
          {class: "empty"},
          view.sources
            ? "Click a function of the table or of the graph: its source is shown here, if the page has it."
            : "The page has no source files.",
        ),
      );
      return;
    }
    if (file.note) place.append(element("p", {class: "note"}, clean(file.note)));
    const body = element("tbody");
    const most = Math.max(...[...lines.values()].map(([, total]) => total), 0);
    file.text
      .replace(/\n$/, "")
      .split("\n")
      .forEach((text, index) => {
        const number = index + 1;
        const sums = lines.get(number);
        const row = element(
          "tr",
          {id: `line-${number}`, class: number === mark ? "marked" : null},
          element("td", {class: "number line"}, String(number)),
          element("td", {class: "number"}, sums && sums[0] ? percent(sums[0], view.whole) : ""),
          element("td", {class: "number"}, sums ? percent(sums[1], view.whole) : ""),
          element("td", {class: "code"}, clean(text.replace(/\r$/, "").replace(/\t/g, "  ")).slice(0, MOST)),
        );
        if (sums && most > 0)
          row.lastChild.style.setProperty("--heat", `${Math.round(6 + (54 * sums[1]) / most)}%`);
        if (sums) row.classList.add("hot");
        body.append(row);
      });
    place.append(
      element(
        "div",
        {class: "scroll"},
        element(
          "table",
          {},
          element(
            "thead",
            {},
            element(
              "tr",
              {},
              element("th", {class: "number"}, "Line"),
              element("th", {class: "number", title: "the line itself"}, "Self"),
              element("th", {class: "number", title: "with everything that the line called"}, "Total"),
              element("th", {}, clean(file.path)),
            ),
          ),
          body,
        ),
      ),
    );
    const row = mark && place.querySelector(`#line-${mark}`);
    if (row) {
      const scroll = place.querySelector(".scroll");
      scroll.scrollTop = row.offsetTop - scroll.clientHeight / 3;
    }
  };
})();
