// Sums over the cells of a recording, and the tree of functions that the flame graph draws.
(function () {
  // The functions of all recordings of the page, each with one number. Recordings of two versions
  // have a function in common even if an edit above it has moved its definition.
  probescope.Functions = class {
    constructor(moved) {
      this.moved = moved;
      this.list = [];
      this.numbers = new Map();
    }

    number(frame) {
      const key = frame.name + "\0" + frame.path + "\0" + (this.moved ? "" : frame.defined);
      let number = this.numbers.get(key);
      if (number === undefined) {
        number = this.list.length;
        this.numbers.set(key, number);
        this.list.push({
          name: frame.name,
          path: frame.path,
          defined: frame.defined,
          own: frame.own,
          what: frame.what,
        });
      }
      return number;
    }
  };

  // What is known of the nodes of a recording, whatever is selected.
  //   functions  the function of each node
  //   own        the nearest node of the application: the node itself, or a caller; 0 if none is
  //   called     the node that this one called, 0 for itself
  //   first      whether no caller is of the same function
  probescope.Paths = class {
    constructor(recording, functions) {
      const {parent, frame} = recording.nodes;
      this.recording = recording;
      this.size = parent.length;
      this.ofFrame = Uint32Array.from(recording.frames, (one) => functions.number(one));
      this.functions = new Uint32Array(this.size);
      this.own = new Uint32Array(this.size);
      this.called = new Uint32Array(this.size);
      this.first = new Uint8Array(this.size);
      for (let node = 1; node < this.size; node++) {
        this.functions[node] = this.ofFrame[frame[node]];
        const caller = parent[node];
        const own = recording.frames[frame[node]].own;
        this.own[node] = own ? node : this.own[caller];
        this.called[node] = own ? 0 : this.called[caller] || node;
      }
      this.findFirst(parent, functions.list.length);
    }

    // Walks through the tree, with the number of times that each function is on the path.
    findFirst(parent, count) {
      const child = new Uint32Array(this.size);
      const sibling = new Uint32Array(this.size);
      for (let node = this.size - 1; node > 0; node--) {
        sibling[node] = child[parent[node]];
        child[parent[node]] = node;
      }
      const times = new Uint32Array(count);
      let node = child[0];
      while (node !== 0) {
        this.first[node] = times[this.functions[node]]++ === 0 ? 1 : 0;
        if (child[node] !== 0) {
          node = child[node];
          continue;
        }
        let left = node;
        node = 0;
        while (left !== 0 && node === 0) {
          times[this.functions[left]]--;
          node = sibling[left];
          left = parent[left];
        }
      }
    }

    // The weight (or count) of each node by itself. filter: {kind, from, to, series}; series: for
    // each one, whether it counts.
    sums(filter, figure) {
      const {bucket, series, kind, node} = this.recording.cells;
      const values = this.recording.cells[figure];
      const found = new Float64Array(this.size);
      for (let i = 0; i < node.length; i++) {
        if (
          kind[i] === filter.kind &&
          bucket[i] >= filter.from &&
          bucket[i] < filter.to &&
          filter.series[series[i]]
        ) {
          found[node[i]] += values[i];
        }
      }
      return found;
    }

    // With everything that a node calls: children have higher numbers than their callers.
    totals(self) {
      const {parent} = this.recording.nodes;
      const found = Float64Array.from(self);
      for (let node = this.size - 1; node > 0; node--) found[parent[node]] += found[node];
      return found;
    }

    // The rows of the table, as a Map from the number of a function to its figures. by: "own", "self"
    // or "total". What has no function of the application is in the row of OUTSIDE.
    rows(by, self, other) {
      const rows = new Map();
      const {frame} = this.recording.nodes;
      const row = (key) => {
        let one = rows.get(key);
        if (!one)
          rows.set(key, (one = {key, self: 0, total: 0, other: 0, lines: new Map(), called: new Map()}));
        return one;
      };
      const add = (map, key, value) => map.set(key, (map.get(key) || 0) + value);
      const totals = this.totals(self);
      for (let node = 0; node < this.size; node++) {
        if (self[node] !== 0 || other[node] !== 0) {
          const at = by === "own" ? this.own[node] : node;
          const one = row(at === 0 ? probescope.OUTSIDE : this.functions[at]);
          one.self += self[node];
          one.other += other[node];
          if (at !== 0) add(one.lines, this.recording.frames[frame[at]].line, self[node]);
          else one.total += self[node];
          const called = at === 0 ? node : this.called[node];
          if (by === "own" && called !== 0) add(one.called, this.functions[called], self[node]);
        }
        const counts = by !== "own" || this.own[node] === node;
        if (node !== 0 && counts && this.first[node] && totals[node] !== 0) {
          row(this.functions[node]).total += totals[node];
        }
      }
      return rows;
    }

    // The weight of each `each` buckets of the recording's time, among the cells that count.
    times(filter, figure, buckets, each) {
      const {bucket, series, kind} = this.recording.cells;
      const values = this.recording.cells[figure];
      const found = new Float64Array(Math.ceil(buckets / each));
      for (let i = 0; i < bucket.length; i++) {
        if (kind[i] === filter.kind && filter.series[series[i]]) {
          found[Math.floor(bucket[i] / each)] += values[i];
        }
      }
      return found;
    }
  };

  probescope.OUTSIDE = -1;

  // Call paths by function, of all recordings of the page together. frames:
  //   all   every frame
  //   from  those from the application's first function on; paths without one are below OUTSIDE
  //   own   those of the application; a library is part of the function that called it
  probescope.Tree = class {
    constructor(paths, frames) {
      this.parent = [0];
      this.functions = [probescope.OUTSIDE];
      const all = frames === "all";
      if (!all) {
        this.outside = 1;
        this.parent.push(0);
        this.functions.push(probescope.OUTSIDE);
      }
      const numbers = new Map();
      const child = (parent, number) => {
        const key = parent * 4294967296 + number;
        let node = numbers.get(key);
        if (node === undefined) {
          node = this.parent.length;
          numbers.set(key, node);
          this.parent.push(parent);
          this.functions.push(number);
        }
        return node;
      };
      this.maps = paths.map((one) => {
        const {parent} = one.recording.nodes;
        const map = new Uint32Array(one.size);
        if (!all) map[0] = this.outside;
        for (let node = 1; node < one.size; node++) {
          const above = parent[node];
          const first = !all && one.own[node] !== 0 && one.own[above] === 0;
          const caller = first ? 0 : map[above];
          const left = frames === "own" && one.own[node] !== node;
          map[node] = left ? caller : child(caller, one.functions[node]);
        }
        return map;
      });
      this.size = this.parent.length;
      this.children = Array.from({length: this.size}, () => []);
      for (let node = 1; node < this.size; node++) this.children[this.parent[node]].push(node);
    }

    // Self and total of each node, from the sums of the recording's nodes.
    sums(index, self) {
      const map = this.maps[index];
      const own = new Float64Array(this.size);
      for (let node = 0; node < map.length; node++) own[map[node]] += self[node];
      const total = Float64Array.from(own);
      for (let node = this.size - 1; node > 0; node--) total[this.parent[node]] += total[node];
      return {self: own, total};
    }
  };
})();
