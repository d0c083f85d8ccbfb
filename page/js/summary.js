// What was recorded, of what, how long, what was lost, and what looking cost.
(function () {
  const {element, shown} = probescope;

  // The figures of the head: [name, value, a sentence].
  function facts(recording) {
    const told = recording.metadata;
    const found = [];
    const processes = told.processes || [];
    const counted = processes.filter((one) => !one.left_out);
    if (counted.length) {
      const runtimes = new Set(counted.map((one) => [one.runtime, one.version].filter(Boolean).join(" ")));
      const pids = counted.slice(0, 4).map((one) => one.pid);
      const more = counted.length > 4 ? ` and ${counted.length - 4} more` : "";
      found.push([
        counted.length === 1 ? "Process" : "Processes",
        pids.join(", ") + more,
        [...runtimes].filter(Boolean).join(", "),
      ]);
    }
    const {kinds} = recording;
    found.push([
      kinds.length === 1 ? "Kind" : "Kinds",
      kinds.map((one) => one.name).join(", "),
      precision(recording),
    ]);
    if (told.begin)
      found.push([
        "Recorded",
        duration(told.seconds),
        moment(told.begin) + " – " + moment(told.end).slice(11) + " UTC",
      ]);
    else found.push(["Recorded", duration(recording.duration_ns / 1e9), ""]);
    const cpu = sum(counted, "cpu_ns"),
      wall = sum(counted, "wall_ns");
    if (wall > 0)
      found.push([
        "CPU used",
        probescope.percent(cpu, wall),
        `${time(cpu)} of ${time(wall)}`,
      ]);
    if (typeof told.looking_share === "number") {
      found.push([
        "Cost of recording",
        (100 * told.looking_share).toFixed(2) + " %",
        "of the CPU used",
      ]);
    }
    const lost = Object.entries(told.lost || {}).filter(([, count]) => count > 0);
    if (told.lost) {
      found.push([
        "Lost",
        lost.length
          ? lost.map(([what, count]) => `${what}: ${count.toLocaleString("en-US")}`).join(", ")
          : "nothing",
        "",
        lost.length ? "bad" : null,
      ]);
    }
    if (told.own) found.push(["Application", ...own(told.own)]);
    return found;
  }

  // The number of samples, and how far chance moves the share of half of them, in 19 of 20 recordings.
  function precision(recording) {
    const index = recording.kinds.findIndex((one) => one.counts && one.counts[0] === "samples");
    if (index < 0) return "";
    const {kind, count} = recording.cells;
    const samples = kind.reduce((all, one, i) => (one === index ? all + count[i] : all), 0);
    const points = samples > 0 ? `: shares ± ${(100 / Math.sqrt(samples)).toFixed(1)} points` : "";
    return `${samples.toLocaleString("en-US")} samples${points}`;
  }

  function time(ns) {
    return probescope.figure(ns, "nanoseconds");
  }

  function sum(list, field) {
    return list.reduce((all, one) => all + (one[field] || 0), 0);
  }

  // Which files are the application's, and what tells them from libraries.
  const TOLD_BY = {process: "by the process's roots", glob: "by --own", entry: "by its entry point"};
  function own({by, globs}) {
    if (by === "none") return ["not told apart", "libraries count for themselves"];
    return [[...(by === "process" ? ["its own folders"] : []), ...globs].join(", "), TOLD_BY[by]];
  }

  function duration(seconds) {
    if (seconds < 120) return seconds.toFixed(1) + " s";
    const minutes = Math.floor(seconds / 60);
    return minutes < 120
      ? `${minutes} min ${Math.round(seconds % 60)} s`
      : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  // "2026-11-27T00:12:01.123456Z" -> "2026-11-27 00:12:01"
  function moment(text) {
    return text ? text.slice(0, 19).replace("T", " ") : "";
  }

  // What has to be known before the figures are believed: [[text, kind]].
  function notices(recording) {
    const told = recording.metadata;
    const found = [];
    if (told.interrupted) found.push(["The recording was interrupted before its time.", "note"]);
    if (told.ended) found.push(["A process ended before the recording.", "note"]);
    for (const one of told.processes || []) {
      if (one.left_out) found.push([`Process ${one.pid} is left out: ${one.left_out}`, "bad"]);
    }
    for (const text of told.truncated || []) found.push([`The recording was shortened: ${text}.`, "note"]);
    for (const text of told.warnings || []) found.push([text, "warning"]);
    for (const text of told.not_covered || []) found.push([text, "note"]);
    if (Object.keys(told).length === 0)
      found.push(["The recording is of another tool, so there is nothing about how it was made.", "note"]);
    return found;
  }

  probescope.summary = function (place, recordings) {
    const names = recordings.length > 1 ? ["before", "after"] : [""];
    recordings.forEach((recording, index) => {
      const list = element("dl", {
        class: "facts",
        "aria-label": names[index] ? `the recording ${names[index]}` : "the recording",
      });
      if (names[index]) list.append(element("div", {class: "which"}, element("dt", {}, names[index])));
      for (const [name, value, more, kind] of facts(recording)) {
        list.append(
          element(
            "div",
            {class: kind},
            element("dt", {}, name),
            element("dd", {}, shown(value)),
            more ? element("dd", {class: "more"}, shown(more)) : null,
          ),
        );
      }
      place.append(list);
      const told = notices(recording);
      if (told.length) {
        place.append(
          element(
            "ul",
            {class: "notices"},
            ...told.map(([text, kind]) =>
              element("li", {class: kind}, shown(names[index] ? `${names[index]}: ${text}` : text)),
            ),
          ),
        );
      }
    });
  };
})();
