# frozen_string_literal: true

require "spec_helper"
require "support/browser"
require "support/made_recording"
require "probescope/profile/page"
require "probescope/profile/pprof_reader"
require "probescope/profile/summary"

# The page of a recording, opened by Chromium from a file. One example runs in the gate.
RSpec.describe "The page", :browser, full: "a browser takes a second for each page" do
  before(:all) { @browser = Support::Browser.start unless Support::Browser.reason }
  after(:all) { @browser&.quit }
  before { Support::Browser.require! { |reason| skip reason } }

  let(:metadata) do
    {schema: 1, probescope: "0.1.0", begin: "2026-11-27T00:12:01.000000Z", end: "2026-11-27T00:12:31.000000Z",
     seconds: 30.0, bucket_ns: 1_000_000_000, looking_share: 0.0042, own: {by: "glob", globs: ["*/shop/*"]},
     processes: [{pid: 4711, runtime: "ruby", version: "3.1.2", seconds: 30.0, wall_ns: 30_000_000_000,
                  cpu_ns: 18_400_000_000, threads: {"4712" => "puma 001", "4713" => "puma 002"}}],
     lost: {events: 0, rows: 0, samples: 0, paths: 0}, truncated: [], not_covered: [], warnings: []}
  end
  let(:shop) { made { Support::MadeRecording.shop } }

  def made = yield.tap { |recording| recording.metadata = metadata }

  # Writes the page, opens it, and yields it and what the browser has told.
  def open_page(recording, address: "", &block)
    in_browser(address, ->(io) { Probescope::Profile::Page.write(recording, io) }, &block)
  end

  def open_comparison(before, after, diff, &block)
    in_browser("", ->(io) { Probescope::Profile::Page.compare(before, after, io, diff: diff) }, &block)
  end

  def in_browser(address, write)
    Dir.mktmpdir do |dir|
      File.open("#{dir}/page.html", "wb") { |io| write.call(io) }
      Support::Browser.tab(@browser) do |tab, told|
        tab.go_to("file://#{dir}/page.html#{address}")
        await("the page") { tab.evaluate("document.documentElement.dataset.ready") }
        expect(tab.evaluate("document.documentElement.dataset.ready")).to eq("yes"), tab.body[0, 500]
        yield tab, told
      end
    end
  end

  def text(tab, selector) = tab.evaluate("document.querySelector(#{selector.to_json}).innerText")

  # The value of an expression for each element, which is `one`.
  def all(tab, selector, expression)
    tab.evaluate("[...document.querySelectorAll(#{selector.to_json})].map((one) => #{expression})")
  end

  def texts(tab, selector) = all(tab, selector, "one.innerText")
  def boxes(tab) = all(tab, "#graph g", "one.getAttribute('name')")
  def click(tab, selector) = tab.evaluate("document.querySelector(#{selector.to_json}).click()")
  def names(tab) = texts(tab, "#rows button.name")

  # [[function, weight, total, count], ...] of a recording, from its stacks.
  def sums(recording, kind, by)
    rows = Hash.new { |all, name| all[name] = [0, 0, 0] }
    recording.each_cell do |_, _, of, node, count, weight, _|
      next unless of == kind

      frames = []
      until node.zero?
        frames << recording.frames[recording.node_frames[node]]
        node = recording.parents[node]
      end
      frames.select!(&:own) if by == "own"
      row = rows[frames.first&.function]
      row[0] += weight
      row[2] += count
      (frames.any? ? frames.map(&:function).uniq : [nil]).each { |name| rows[name][1] += weight }
    end
    rows.map { |name, figures| [name, *figures] }
  end

  it "has the sums of the recording, kind by kind, by own, self and total" do
    open_page(shop) do |tab|
      shop.kinds.each_with_index do |kind, index|
        %w[own self total].each do |by|
          rows = tab.evaluate("probescopeSums(#{kind.name.to_json}, #{by.to_json})")
          found = rows.map { |row| row.values_at("function", "weight", "total", "count") }
          expect(found).to match_array(sums(shop, index, by))
        end
      end
    end
  end

  it "has the rows that convert prints of a recording", full: nil do
    recording = Probescope::Profile::PprofReader.read("#{Support::ROOT}/spec/fixtures/profile/0.1.0.pb.gz")
    in_browser("", ->(io) { Probescope::Profile::Page.write(recording, io) }) do |tab|
      Probescope::Profile::Summary::BY.each do |by|
        expected = Probescope::Profile::Summary.new(recording, 0, by).rows.map do |row|
          place = [row.function&.path, row.function&.defined].map { |one| one unless ["", 0].include?(one) }
          [row.function&.name, *place, row.weight, row.total, row.count]
        end
        rows = tab.evaluate("probescopeSums('cpu', #{by.to_json})")
        found = rows.map { |row| row.values_at("function", "file", "line", "weight", "total", "count") }
        expect(found).to match_array(expected)
      end
    end
  end

  it "asks nothing of a network, and runs under its policy" do
    open_page(shop) do |tab, told|
      click(tab, "#theme")
      click(tab, "#by [value=total]")
      click(tab, "#rows tbody tr")
      expect(told.reject { |url| url.start_with?("file://") }).to eq([])
    end
  end

  it "has a policy that refuses scripts and requests" do
    open_page(shop) do |tab, told|
      add = "(name, what) => document.body.append(Object.assign(document.createElement(name), what))"
      tab.evaluate("(#{add})('script', {textContent: 'window.hit = 1'})")
      tab.evaluate("(#{add})('img', {src: 'http://127.0.0.1/x'})")
      tab.evaluate("document.body.setAttribute('onclick', 'window.hit = 1')")
      click(tab, "body")
      refused = -> { told.grep(/Content Security Policy/) }
      await("three refusals") { refused.call.size >= 3 }
      expect(refused.call).to include(/script-src/, /img-src/)
      expect(tab.evaluate("window.hit")).to be_nil
    end
  end

  it "tells what was recorded, and shows the application's functions first" do
    open_page(shop) do |tab|
      samples = shop.cells.sum { |cell| cell[2].zero? ? cell[4] : 0 }
      expect(text(tab, "#facts"))
        .to include("4711", "ruby 3.1.2", "cpu, alloc", "30.0 s", "0.42 %", "nothing", "*/shop/*",
                    "#{samples.to_s.sub(/(?=...\z)/, ",")} samples: shares ±")
      expect(names(tab)).to start_with("Shop::Report#render").and end_with("(outside of the application)")
      click(tab, "#by [value=self]")
      expect(names(tab).first).to eq("String#gsub")
    end
  end

  it "shows lost figures, warnings and what was shortened" do
    metadata.update(lost: {events: 1200, paths: 3}, warnings: ["1,200 events were lost"], interrupted: true,
                    truncated: ["threads are not told apart"])
    open_page(shop) do |tab|
      expect(text(tab, "#facts")).to include("events: 1,200, paths: 3", "1,200 events were lost",
                                             "interrupted",
                                             "threads are not told apart")
    end
  end

  it "keeps the selection in its address" do
    open_page(shop, address: "#by=self&from=10&to=20&thread=4711%2F4713&kind=alloc&search=gsub") do |tab|
      expect(names(tab)).to eq(["String#gsub"])
      chosen = shop.cells.select { |bucket, *rest| bucket.between?(10, 19) && rest.take(2) == [1, 1] }
      bytes = chosen.sum { |cell| cell[5] }
      expect(text(tab, "#whole")).to start_with(format("%.1f MiB", bytes / (1024.0**2)))
      click(tab, "#all-time")
      expect(tab.evaluate("location.hash")).to eq("#kind=alloc&by=self&thread=4711%2F4713&search=gsub")
    end
  end

  it "has a bar for each second of a recording that is a moment longer" do
    def shop.duration_ns = super + 20_000_000
    open_page(shop) { |tab| expect(all(tab, "#bars rect:not(.brush)", "1").size).to eq(30) }
  end

  it "selects a span of time by dragging over the bars" do
    open_page(shop) do |tab|
      left, top, width = tab.evaluate("(() => { const r = document.querySelector('#bars svg')" \
                                      ".getBoundingClientRect(); return [r.left, r.top, r.width]; })()")
      tab.mouse.move(x: left + (width * 0.201), y: top + 20).down
         .move(x: left + (width * 0.299), y: top + 20).up
      expect(tab.evaluate("location.hash")).to eq("#from=6&to=9")
    end
  end

  it "selects a span of time by the arrow keys" do
    open_page(shop) do |tab|
      tab.evaluate("document.querySelector('#bars svg').focus()")
      selected = {[] => "", [:right] => "#from=0&to=1", [%i[shift right]] => "#from=0&to=2",
                  %i[right right] => "#from=2&to=4", [%i[shift left]] * 3 => "#from=2&to=3",
                  [:left] * 4 => "#from=0&to=1", [:escape] => "", [:left] => "#from=29&to=30"}
      selected.each do |keys, address|
        tab.keyboard.type(*keys) if keys.any?
        expect(tab.evaluate("location.hash")).to eq(address), keys.inspect
      end
    end
  end

  it "draws widths as the sums are, and a box for what is too narrow" do
    many = made { Support::MadeRecording.new }
    thread = many.thread(4711, 4712)
    many.add(0, thread, 0, many.node([["wide", "/srv/a.rb", 1, 1, true]]), 30_000, 30_000)
    10_000.times { |i| many.add(0, thread, 0, many.node([["narrow#{i}", "/srv/a.rb", 1, 1, true]]), 1, 1) }
    open_page(many) do |tab|
      boxes = boxes(tab).zip(all(tab, "#graph g", "Number(one.getAttribute('width'))")).to_h
      expect(boxes.keys).to contain_exactly("all", "wide", "10,000 narrower calls")
      expect(boxes["wide"] / boxes["all"]).to be_within(0.001).of(0.75)
      expect(boxes["10,000 narrower calls"] / boxes["all"]).to be_within(0.001).of(0.25)
    end
  end

  it "begins paths with the application's first function, or shows all frames" do
    open_page(shop) do |tab|
      first = ["all", "Shop::App#call", "(outside of the application)"]
      expect(boxes(tab)).to include(*first, "ERB#result", "(garbage collection)")
      depths = boxes(tab).zip(all(tab, "#graph g", "one.__data__.depth"))
      expect(depths.filter_map { |name, depth| name if depth < 2 }).to match_array(first)
    end
    open_page(shop, address: "#frames=all") do |tab|
      expect(boxes(tab)).to start_with("all", "block in Thread.new", "Puma::Server#process_client")
      expect(boxes(tab)).not_to include("(outside of the application)")
    end
  end

  it "folds libraries into the application" do
    open_page(shop, address: "#frames=own") do |tab|
      expect(boxes(tab)).to contain_exactly("all", "Shop::App#call", "Shop::Report#render", "Shop::Cart#total",
                                            "Shop::Store.find", "Shop::Price#to_s",
                                            "(outside of the application)")
    end
  end

  it "is used by keys alone" do
    open_page(shop) do |tab|
      tab.keyboard.type("/")
      tab.keyboard.type("Cart")
      await("the search") { names(tab) == ["Shop::Cart#total"] }
      expect(text(tab, "#matched")).to match(/matches: \d\d\.\d %/)
      tab.keyboard.type(:escape, "g")
      focused = -> { tab.evaluate("document.activeElement.getAttribute('name')") }
      tab.keyboard.type(:down)
      expect(focused.call).to eq("Shop::App#call")
      tab.keyboard.type(:down, :right)
      expect(focused.call).to eq("Shop::Cart#total")
      expect(text(tab, "#details")).to include("Shop::Cart#total", "/srv/shop/cart.rb:5", "self")
      tab.keyboard.type(:enter)
      widths = -> { all(tab, "#graph g", "one.getAttribute('width')").uniq }
      expect(widths.call.size).to eq(1)
      tab.keyboard.type(:escape)
      expect(widths.call.size).to be > 1
      tab.keyboard.type("?")
      expect(tab.evaluate("document.querySelector('#help').open")).to be(true)
    end
  end

  it "is dark where the system is, or by its button" do
    open_page(shop) do |tab|
      background = "getComputedStyle(document.body).backgroundColor"
      light = tab.evaluate(background)
      click(tab, "#theme")
      dark = tab.evaluate(background)
      expect(dark).not_to eq(light)
      click(tab, "#theme")
      tab.command("Emulation.setEmulatedMedia", features: [{name: "prefers-color-scheme", value: "dark"}])
      expect(tab.evaluate(background)).to eq(light) # the button was asked
      tab.evaluate("delete document.documentElement.dataset.theme")
      expect(tab.evaluate(background)).to eq(dark)
    end
  end

  it "prints the summary and the first functions, without its controls" do
    open_page(shop) do |tab|
      tab.command("Emulation.setEmulatedMedia", media: "print")
      shown = "(s) => document.querySelector(s).checkVisibility()"
      %w[#facts #rows #graph].each { |one| expect(tab.evaluate("(#{shown})('#{one}')")).to be(true), one }
      %w[#controls #theme footer].each do |one|
        expect(tab.evaluate("(#{shown})('#{one}')")).to be(false), one
      end
    end
  end

  describe "with hostile names" do
    hostile = ["<script>window.hit = 1</script>", "</script><script>window.hit = 1</script>",
               %("><img src=x onerror="window.hit=1">), "<!--<script>", "javascript:window.hit=1",
               "a\u202Eb", "nul\0", "\e[31m", "x" * 10_000, "&lt;b&gt;", "__proto__", "constructor", "",
               "\xFF".b, "(("].freeze

    it "shows them as text" do
      recording = made { Support::MadeRecording.new }
      hostile.each_with_index do |name, i|
        thread = recording.thread(4711, 5000 + i, name.dup.force_encoding("UTF-8").scrub)
        stack = [[name, "/srv/#{name}", 1, 1, true], [name, name, 2, 2, false], [name, "", 0, 0, :what]]
        recording.add(0, thread, 0, recording.node(stack), 10, 10)
      end
      names = hostile.map { |name| name.dup.force_encoding("UTF-8").scrub }
      metadata.update(warnings: names, not_covered: names, own: {by: "glob", globs: names})
      threads = names.each_with_index.to_h { |name, i| [5000 + i, name] }
      metadata[:processes].first.update(runtime: names[1], threads: threads)
      plain = nil
      count = "document.querySelectorAll('*').length - document.querySelectorAll(" \
              "'main *, body > script[type]').length"
      open_page(shop) { |tab| plain = tab.evaluate(count) }
      open_page(recording) do |tab, told|
        expect(all(tab, "img, main script, main style, main a", "one.outerHTML")).to eq([])
        expect(tab.evaluate(count)).to eq(plain)
        %w[self total own].each { |by| click(tab, "#by [value=#{by}]") }
        click(tab, "#rows tbody tr")
        all(tab, "#graph g", "one.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))")
        tab.keyboard.type("/", "((")
        await("the search") { tab.evaluate("location.hash").include?("search") }
        expect(names(tab)).to eq(["(("])
        expect(tab.evaluate("window.hit")).to be_nil
        expect(told.reject { |url| url.start_with?("file://") }).to eq([])
        shown = tab.evaluate("document.body.innerText")
        expect(shown).to include("a\\u202eb", "nul\\x00", "\\e[31m", hostile[1])
        expect(shown).not_to match(/[\0\e\u202e]/)
        expect(text(tab, "#rows") + text(tab, "#graph")).not_to match(/x{301}/)
      end
    end
  end

  describe "of a comparison" do
    let(:after) { made { Support::MadeRecording.shop(seed: 2, factors: {"Shop::Cart#total" => 2}) } }
    let(:diff) do
      changed = [["Shop::Cart#total", "/srv/shop/cart.rb"]]
      {by: "own", per: "time",
       kinds: {"cpu" => {factors: [1 / 30.0, 1 / 30.0], changed: changed},
               "alloc" => {factors: [1 / 30.0, 1 / 30.0], changed: []}}}
    end

    it "has the changed functions first, with a sign, and colours for more and less" do
      open_comparison(shop, after, diff) do |tab, told|
        expect(names(tab).first).to eq("Shop::Cart#total")
        expect(texts(tab, "#rows tbody tr:first-child td")[3]).to match(%r{\A\+2\d\d ms / s})
        expect(texts(tab, "#rows .yes").size).to eq(1)
        expect(text(tab, "#whole")).to end_with("; 1 function changed by more than chance")
        colours = boxes(tab).zip(all(tab, "#graph rect", "one.getAttribute('fill')")).to_h
        expect(colours["+ Shop::Cart#total"]).to eq("var(--more-5)")
        expect(told.reject { |url| url.start_with?("file://") }).to eq([])
      end
    end

    it "shows what was there only before, with the widths before" do
      after.cells.reject! { |cell| after.frames[after.node_frames[cell[3]]].function == "String#gsub" }
      open_comparison(shop, after, diff) do |tab|
        expect(boxes(tab)).not_to include("− String#gsub")
        tab.evaluate("(() => { const box = document.querySelector('#widths'); box.value = 0; " \
                     "box.dispatchEvent(new Event('change')); })()")
        expect(boxes(tab)).to include("− String#gsub")
      end
    end

    it "has the sums of both" do
      open_comparison(shop, after, diff) do |tab|
        [shop, after].each_with_index do |recording, side|
          rows = tab.evaluate("probescopeSums('cpu', 'own', #{side})")
          expect(rows.map { |row| row.values_at("function", "weight", "total", "count") })
            .to match_array(sums(recording, 0, "own"))
        end
      end
    end
  end

  it "opens within 5 s with 1 million cells, and has less than 10 MB",
     full: "a million cells take a minute to make", within: 900 do
    large = made { Support::MadeRecording.large(1_000_000) }
    Dir.mktmpdir do |dir|
      File.open("#{dir}/page.html", "wb") { |io| Probescope::Profile::Page.write(large, io) }
      expect(File.size("#{dir}/page.html")).to be < 10_000_000
      Support::Browser.tab(@browser) do |tab|
        # CPU time, because other programs run beside the browser. The loop is what the processor is
        # compared with.
        loop_seconds = cpu(tab) do
          tab.evaluate("(() => { let sum = 0; for (let i = 0; i < 1e8; i++) sum = (sum + i) | 0; " \
                       "return sum; })()")
        end
        took = cpu(tab) do
          tab.go_to("file://#{dir}/page.html")
          await("the page", within: 300) { tab.evaluate("document.documentElement.dataset.ready") }
        end
        expect(took).to be < [5, 12 * loop_seconds].max
      end
    end
  end

  # Seconds of CPU that the process of the tab takes for the block.
  def cpu(tab)
    time = lambda do
      told = tab.command("Performance.getMetrics")["metrics"]
      told.find { |one| one["name"] == "ProcessTime" }["value"]
    end
    tab.command("Performance.enable")
    before = time.call
    yield
    time.call - before
  end
end
