// Reads the recordings out of the document, and makes names and figures readable.
//
// A block <script type="application/octet-stream" id="data"> has a recording; of a comparison,
// "data" has B and "before" has A. A block is base64 of gzip of:
//
//   "PSPAGE1\0"
//   u32       bytes of the JSON
//   JSON      {metadata, kinds, strings, frames, series, begin_ms, duration_ns, bucket_ns, columns,
//             diff}; lib/probescope/profile/page.rb says what each of them is
//   padding   to a multiple of 8
//   columns   numbers of one type, little-endian, each at a multiple of 8; `columns` has for each
//             its offset behind the padding, its type and its length
const probescope = {};

(function () {
  const TYPES = {u8: Uint8Array, u32: Uint32Array, f64: Float64Array};
  const MAGIC = "PSPAGE1\0";
  const OWN = 1,
    WHAT = 2;

  async function unpacked(text) {
    if (typeof DecompressionStream === "undefined") {
      throw new Error(
        "this browser cannot decompress the recording: Chromium 80, Firefox 113, Safari 16.4 or later can",
      );
    }
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }

  function column(buffer, start, {offset, type, length}) {
    return new TYPES[type](buffer, start + offset, length);
  }

  // The recording of a block; null if the document has no such block.
  probescope.read = async function (id) {
    const block = document.getElementById(id);
    if (!block) return null;
    const buffer = await unpacked(block.textContent.trim());
    block.remove();
    const head = new Uint8Array(buffer, 0, MAGIC.length);
    if (String.fromCharCode(...head) !== MAGIC) throw new Error("the page has data of another version");
    const size = new DataView(buffer).getUint32(MAGIC.length, true);
    const from = MAGIC.length + 4;
    const recording = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, from, size)));
    const start = Math.ceil((from + size) / 8) * 8;
    recording.nodes = {};
    recording.cells = {};
    for (const [name, place] of Object.entries(recording.columns)) {
      const [table, field] = name.split(".");
      recording[table][field] = column(buffer, start, place);
    }
    const text = recording.strings;
    recording.frames = recording.frames.map(([name, path, line, defined, flags]) => ({
      name: text[name],
      path: text[path],
      line,
      defined,
      own: (flags & OWN) !== 0,
      what: (flags & WHAT) !== 0,
    }));
    recording.series = recording.series.map(([pid, thread, request]) => ({
      pid,
      thread,
      request: request < 0 ? null : text[request],
    }));
    return recording;
  };

  // What is shown of a name. A name belongs to the traced process, and may have anything in it:
  // controls, and characters that reorder or hide text, are shown as escapes.
  const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
  const NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\u001b": "\\e"};
  probescope.MOST = 300; // characters of a name, outside of the box of details
  probescope.clean = function (text) {
    return String(text).replace(UNSAFE, (char) => {
      const code = char.charCodeAt(0).toString(16);
      return NAMED[char] || (char < "\u0100" ? "\\x" + code.padStart(2, "0") : "\\u" + code.padStart(4, "0"));
    });
  };
  probescope.shown = function (text) {
    const clean = probescope.clean(String(text).slice(0, probescope.MOST + 1));
    return clean.length > probescope.MOST ? clean.slice(0, probescope.MOST) + "…" : clean;
  };

  function scaled(value, steps, largest) {
    for (const [size, unit] of steps) {
      if (Math.abs(value) >= size) return rounded(value / size) + " " + unit;
    }
    return value === 0 ? "0" : rounded(value / largest[0]) + " " + largest[1];
  }

  // Three digits.
  function rounded(value) {
    const size = Math.abs(value);
    return size >= 1000
      ? Math.round(value).toLocaleString("en-US")
      : value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
  }

  const TIMES = [
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "µs"],
  ];
  const SIZES = [
    [2 ** 30, "GiB"],
    [2 ** 20, "MiB"],
    [2 ** 10, "KiB"],
  ];

  // A figure with its unit. A whole number of something else than time and bytes has no unit: the
  // heading has it.
  probescope.figure = function (value, unit) {
    if (unit === "nanoseconds") return scaled(value, TIMES, [1, "ns"]);
    if (unit === "bytes") return scaled(value, SIZES, [1, "B"]);
    if (Number.isInteger(value) || Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en-US");
    return rounded(value);
  };

  probescope.percent = function (part, whole) {
    return whole > 0 ? ((100 * part) / whole).toFixed(1) + " %" : "-";
  };

  // An element with attributes and children, which may be texts. Every text reaches the document
  // here or by textContent, so none of it is read as markup.
  probescope.element = function (name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false)
        made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  };
})();
